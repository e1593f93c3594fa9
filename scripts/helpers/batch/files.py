"""`FileBatch`: how a job takes the files that are new."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from scripts.helpers.batch.batch import NOTHING, Batch
from scripts.helpers.errors import InvalidValueError, PlanConflictError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scripts.helpers.files.delta import FileDelta
    from scripts.helpers.files.sources import EventSource, ListingSource
    from scripts.helpers.files.spark import SparkFileDelta
    from scripts.helpers.reading.small_files import OnChanged

logger = logging.getLogger(__name__)

CONNECTIONS = 32
"""Of the S3 client that lists, compares and checks."""


class FileBatch(Batch):
    """What a job does with sources of files."""

    spark: SparkSession | None
    _clock: Callable[[], datetime]

    def new_files(
        self,
        source: str,
        *,
        transformation_ctx: str | None = "files",
        listing: ListingSource | None = None,
        events: EventSource | None = None,
        on_changed: OnChanged | None = "error",
        **options: Any,
    ) -> FileDelta:
        """Return the files under a prefix or directory that are new.

        Parameters
        ----------
        listing
            Another way to see the objects, such as `S3Inventory`.
        events
            Notifications of new objects, such as `S3EventQueue`: only objects they tell of are
            looked at. They are acknowledged once the batch is committed. Run the job without them
            from time to time: a listing finds what no event told of. Without a `transformation_ctx`, in a
            disabled job and for a range of runs the source is listed all the same. A paused job lets
            its messages go at the end, if the source of events has `extend`.
        on_changed
            A planned file that was overwritten or deleted before the commit is a ChangedObjectError
            that names it, and nothing is committed. The replay then raises the same at once, or with
            ``skip`` leaves that file out: its new content is new in the next batch. ``skip`` is refused
            where that could not be kept; see `unchanged.check_on_changed`. None looks at nothing
            again: for sources whose files never change, or that the job itself moves away.
        **options
            See `file_rules.FileOptions`. `FileBookmark` lists the errors. Limits of a batch count in a
            disabled job, and without a `transformation_ctx`, as well: what they leave out is warned of,
            and no batch follows that would take it.
        """
        _need_pyarrow(source)
        self._reads_files = True
        from scripts.helpers.files.bookmark import FileBookmark
        from scripts.helpers.files.delta import FileDelta
        from scripts.helpers.files.unchanged import check_on_changed
        from scripts.helpers.listing.listing import Location
        from scripts.helpers.listing.s3 import make_client

        stored = self._planned(transformation_ctx) if transformation_ctx else None
        if stored == NOTHING:
            return FileDelta(Location.parse(source))
        if self._s3_client is None and Location.parse(source).is_s3:
            self._s3_client = make_client(CONNECTIONS)
        reach = self._reach(transformation_ctx) if stored is None else {}
        bookmark = FileBookmark(
            source,
            context=transformation_ctx or "files",
            s3_client=self._s3_client,
            taken_by=(self.run.version + 1, self.run_id),
            **reach,
            **options,
        )
        check_on_changed(on_changed, bookmark.location, bookmark.options)
        if not transformation_ctx:
            return self._whole(bookmark.new_files(listing))
        if stored is not None:
            delta = bookmark.from_plan(stored, transformation_ctx)
            if on_changed is not None:
                delta = delta.unchanged(on_changed, self._s3_client)
            self._add(transformation_ctx, stored, None)
        else:
            if events is not None and self._range is None and self.mode.name != "disable":
                if not self.mode.saves:
                    self._at_end.callback(self._let_go, events)
                delta = bookmark.new_among(events.receive(bookmark.location), self._clock())
                if self.mode.saves:
                    self._after_commit.append(partial(events.acknowledge, but=bookmark.left))
            else:
                delta = bookmark.new_files(listing)
                if self.mode.name == "disable":
                    self._whole(delta)
            state = bookmark.state_after if self.mode.saves else None
            self._add(transformation_ctx, bookmark.to_plan(delta), state)
        logger.info(
            "event=planned job=%s context=%s kind=files files=%d bytes=%d gone=%d has_more=%s replay=%s",
            self.job_id, transformation_ctx, delta.count, delta.bytes, delta.gone, delta.has_more, self.run.replay,
        )  # fmt: skip
        if on_changed is not None:
            self._before_commit.append(partial(delta.unchanged, "error", self._s3_client))
        return delta

    def _whole(self, delta: FileDelta) -> FileDelta:
        """Warn if a limit left files of a source out that is to be read whole."""
        if delta.has_more:
            logger.warning(
                "event=limited job=%s source=%s files=%d: a limit of the batch left files out, and nothing is saved "
                "that the next run could go on from. Leave max_files and max_bytes out to read everything",
                self.job_id, delta.location, delta.count,
            )  # fmt: skip
        return delta

    def _let_go(self, events: EventSource) -> None:
        """Show messages to other runs at once, where the source of events can."""
        extend = getattr(events, "extend", None)
        if extend is not None:
            self._end.call([partial(extend, 0)])

    def new_files_on_spark(
        self,
        source: str,
        *,
        transformation_ctx: str | None = "files",
        on_changed: Literal["error"] | None = "error",
        **options: Any,
    ) -> SparkFileDelta:
        """Return the files that are new, found by the executors; see `SparkFileBookmark`. Needs `spark`.

        Parameters
        ----------
        on_changed
            As that of `new_files`, without ``skip``: the executors look at all planned files again
            before the commit, and first of all in a replay.
        """
        _need_pyarrow(source)
        self._reads_files = True
        from scripts.helpers.files.spark import SparkFileBookmark

        if self.spark is None:
            raise PlanConflictError(self.job_id, "there is no Spark session. Give the job spark=.")
        stored = self._planned(transformation_ctx) if transformation_ctx else None
        reach = self._reach(transformation_ctx) if stored is None else {}
        bookmark = SparkFileBookmark(
            self.spark,
            source,
            context=transformation_ctx or "files",
            taken_by=(self.run.version + 1, self.run_id),
            **reach,
            **options,
        )
        if on_changed not in ("error", None):
            raise InvalidValueError(f"On Spark on_changed is 'error' or None, and not {on_changed!r}. Use new_files.")
        if not transformation_ctx:
            return bookmark.new_files()
        if stored is not None:
            planned = None if stored == NOTHING else stored
            delta = bookmark.delta_of(planned)
            if on_changed is not None:
                bookmark.check_unchanged(planned)
            self._add(transformation_ctx, stored, None)
        else:
            delta, planned = bookmark.new_files(), bookmark.plan
            self._add(transformation_ctx, bookmark.plan or {}, bookmark.state_after)
        logger.info(
            "event=planned job=%s context=%s kind=files files=%d bytes=%d gone=%d on_spark=True replay=%s",
            self.job_id, transformation_ctx, delta.count, delta.bytes, delta.gone, self.run.replay,
        )  # fmt: skip
        if on_changed is not None:
            self._before_commit.append(partial(bookmark.check_unchanged, planned))
        return delta


def _need_pyarrow(source: str) -> None:
    """Raise SourceError where pyarrow is missing, which jobs that read rows can do without."""
    if find_spec("pyarrow") is None:
        raise SourceError(source, "files need pyarrow. Install it: pip install 'glue-watermarks[files]'.")
