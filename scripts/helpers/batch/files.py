"""`FilePlanning`: how a job takes the files that are new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.after_commit import NAMES, AfterCommit, ClearingUp
from scripts.helpers.batch.batch import NOTHING, Batch
from scripts.helpers.batch.reach import Reach
from scripts.helpers.batch.schemas import SchemaKeeping
from scripts.helpers.errors import ChangedObjectError, InvalidValueError, PlanConflictError, SourceError
from scripts.helpers.protocol.run import Run

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import SparkSession

    from scripts.helpers.batch.end_of_run import EndOfRun
    from scripts.helpers.files.bookmark import FileBookmark
    from scripts.helpers.files.delta import FileDelta
    from scripts.helpers.files.kept_schemas import KeptSchemas
    from scripts.helpers.files.partitions import PartitionRule
    from scripts.helpers.files.sources import EventSource, JournalSource, ListingSource
    from scripts.helpers.files.spark import SparkFileDelta
    from scripts.helpers.reading.small_files import OnChanged

logger = logging.getLogger(__name__)

OWN = ("listing", "events", "metadata", "relist", *NAMES)
"""Options that `new_files` alone has."""
CONNECTIONS = 32
"""Of the S3 client that lists, compares and checks. Workers would wait for a connection if it had fewer than them."""


class FilePlanning:
    """Plans sources of files in one batch.

    Parameters
    ----------
    batch
        The batch, begun.
    clock
        Returns the time as an aware datetime.
    s3_client
        By default one is made when the first source on S3 is planned.
    committed_at
        Returns when a version of the job was committed; None if nothing tells it any more.

    Attributes
    ----------
    s3_client
        The one given or made, for whoever writes the batch.
    """

    def __init__(
        self,
        batch: Batch,
        clock: Callable[[], datetime],
        s3_client: S3Client | None,
        committed_at: Callable[[int], datetime | None],
    ) -> None:
        self._batch, self._clock, self.s3_client, self._committed_at = batch, clock, s3_client, committed_at
        self._schemas = SchemaKeeping(batch)

    def new_files(
        self,
        source: str,
        context: str | None,
        listing: ListingSource | None,
        events: EventSource | None,
        relist: timedelta | None,
        on_changed: OnChanged | None,
        options: Mapping[str, Any],
        metadata: JournalSource | None = None,
    ) -> FileDelta:
        """Return the files that are new; see `IncrementalJob.new_files`."""
        sees_all = _sees_all(events, relist, metadata)
        if events is not None and options.get("max_bytes") is not None:
            raise InvalidValueError(
                "max_bytes cannot be used with events: messages of files that it leaves out would stay hidden, and "
                "in the end go to the dead-letter queue. Give max_files."
            )
        after, options = AfterCommit.of(options)
        settled, reach = self.begin(source, context)
        from scripts.helpers.files.delta import FileDelta
        from scripts.helpers.listing.listing import Location

        if settled == NOTHING:
            return FileDelta(Location.parse(source))
        options = _without_start(options, reach)
        clears = after.after_commit is not None
        bookmark = self.bookmark(source, context or "files", reach, options, on_changed, clears=clears)
        clearing = self._clearing(after, context, bookmark, sees_all)
        planned: Mapping[str, Any]
        state: Mapping[str, Any] | None
        if settled is None:
            delta = self._found(bookmark, reach, listing, events, metadata, relist)
            planned, state = bookmark.to_plan(delta), bookmark.state_after if reach.saves else None
        else:
            check_same_call(settled, None, self._batch.run.job_id, context)
            delta = bookmark.from_plan(settled, context or "files")
            planned, state = settled, None

        def before() -> FileBookmark:
            """Return the bookmark of the state that the plan was made from; a replay reads that state only now."""
            if settled is None:
                return bookmark
            return self._bookmark_before(source, context, options, on_changed)

        delta = self.with_schemas(context, delta)
        if delta.readings is not None:
            self._batch.watch(delta.readings, context)
            delta.readings.is_replay = settled is not None
            delta.readings.on_bad = partial(self._set_aside, context, delta, before)
        check: Callable[[], Any] | None = None
        if on_changed is not None:
            if settled is not None:
                # A replay looks before it writes: the batch of an earlier attempt may hold the old content.
                delta = self._unchanged(context, planned, delta, on_changed)
            # Never "skip": it would leave files out of a batch that is written with them by now.
            check = partial(delta.unchanged, "error", self.s3_client)
        self.add(context, planned, state, delta, f"has_more={delta.has_more}", check)
        if clearing is not None:
            self._batch.end.after_commit(replace(clearing, batch=lambda: delta.readable))
        return delta

    def new_files_on_spark(
        self,
        spark: SparkSession | None,
        source: str,
        context: str | None,
        on_changed: str | None,
        options: Mapping[str, Any],
    ) -> SparkFileDelta:
        """Return the files that are new, found by executors; see `IncrementalJob.new_files_on_spark`."""
        batch = self._batch
        options = without_own("new_files_on_spark", options)
        if spark is None:
            raise PlanConflictError(batch.run.job_id, "there is no Spark session. Give the job spark=.")
        settled, reach = self.begin(source, context)
        from scripts.helpers.files.spark import SparkFileBookmark

        options = _without_start(options, reach)
        bookmark = SparkFileBookmark(
            spark,
            source,
            state=reach.before,
            transformation_ctx=context or "files",
            taken_by=(batch.run.version + 1, batch.run.run_id),
            until=reach.until,
            saves=reach.saves,
            **options,
        )
        if on_changed not in ("error", None):
            raise InvalidValueError(f"On Spark on_changed is 'error' or None, and not {on_changed!r}. Use new_files.")
        taken: Mapping[str, Any] | None
        if settled is None:
            delta = bookmark.new_files()
            taken, state = bookmark.plan, bookmark.state_after
            self._warn_of_limit(delta, reach)
        else:
            taken, state = None if settled == NOTHING else settled, None
            delta = bookmark.delta_of(taken)
            if on_changed is not None:
                bookmark.check_unchanged(taken)
        delta = replace(delta, schemas=self._kept_schemas(context, delta), s3_client=self._client(delta.location))
        check = partial(bookmark.check_unchanged, taken) if on_changed is not None else None
        detail = f"has_more={delta.has_more} on_spark=True"
        self.add(context, NOTHING if taken is None else taken, state, delta, detail, check)
        return delta

    def begin(self, source: str, context: str | None) -> tuple[Mapping[str, Any] | None, Reach]:
        """Return what is settled of a source, as `Batch.settled` does, and how far its bookmark reaches."""
        need_pyarrow(source)
        from scripts.helpers.listing.listing import Location

        self._batch.reads_files = True
        self._batch.folders.append(str(Location.parse(source)))
        settled = self._batch.settled(context)
        if settled is not None:
            # A plan needs no state, only where its files lie.
            return settled, Reach(saves=True)
        self._batch.warn_if_new(context)
        return None, self._batch.reach(context)

    def bookmark(
        self,
        source: str,
        context: str,
        reach: Reach,
        options: Mapping[str, Any],
        on_changed: OnChanged | None,
        partitions: PartitionRule | None = None,
        *,
        clears: bool = False,
    ) -> FileBookmark:
        """Return the bookmark of a source, as far as it reaches. What `on_changed` cannot keep is refused."""
        from scripts.helpers.files.bookmark import FileBookmark
        from scripts.helpers.files.unchanged import check_on_changed
        from scripts.helpers.listing.listing import Location

        run = self._batch.run
        made = FileBookmark(
            source,
            state=reach.before,
            transformation_ctx=context,
            s3_client=self._client(Location.parse(source)),
            taken_by=(run.version + 1, run.run_id),
            until=reach.until,
            saves=reach.saves,
            partitions=partitions,
            clears=clears,
            needs_versions=on_changed == "skip" and options.get("compare") != "mtime",
            **options,
        )
        check_on_changed(on_changed, made.location, made.options)
        return made

    def listed(self, bookmark: FileBookmark, reach: Reach, listing: ListingSource | None = None) -> FileDelta:
        """Return what is new in a listing; warn if a limit leaves files out where no later run takes them."""
        delta = bookmark.new_files(listing)
        self._warn_of_limit(delta, reach)
        return delta

    def with_schemas(self, context: str | None, delta: FileDelta) -> FileDelta:
        """Return a delta that knows the columns of earlier batches, and has those that it is read with kept."""
        return replace(delta, schemas=self._kept_schemas(context, delta))

    def add(
        self,
        context: str | None,
        planned: Mapping[str, Any],
        state: Mapping[str, Any] | None,
        delta: FileDelta | SparkFileDelta,
        detail: str,
        check: Callable[[], Any] | None,
    ) -> None:
        """Put the files that are taken into the plan, and have them checked before the commit."""
        if not context:
            return
        batch = self._batch
        # Files may have been set aside by now.
        planned = batch.contexts.get(context, planned)
        batch.add(context, planned, state)
        logger.info(
            "event=planned job=%s context=%s kind=files files=%d bytes=%d gone=%d %s replay=%s",
            batch.run.job_id, context, planned.get("count", 0), planned.get("bytes", 0), delta.gone, detail,
            batch.run.replay,
        )  # fmt: skip
        if check is not None:
            batch.end.before_commit(check)

    def _warn_of_limit(self, delta: FileDelta | SparkFileDelta, reach: Reach) -> None:
        if reach.everything and delta.has_more:
            logger.warning(
                "event=limited job=%s source=%s files=%d: a limit of the batch left files out, and the run saves "
                "nothing from which the next run could continue. Omit max_files and max_bytes to read everything",
                self._batch.run.job_id, delta.location, delta.count,
            )  # fmt: skip

    def _found(
        self,
        bookmark: FileBookmark,
        reach: Reach,
        listing: ListingSource | None,
        events: EventSource | None,
        metadata: JournalSource | None,
        relist: timedelta | None,
    ) -> FileDelta:
        """Return what is new: among what events or a journal name, if there are any, else by listing."""
        # Events and journals name only what came since the last run, and not what a range or everything has.
        if reach.everything or reach.until is not None:
            return self.listed(bookmark, reach, listing)
        is_due = relist is not None and (bookmark.listed is None or self._clock() - bookmark.listed >= relist)
        if metadata is not None:
            reason = f"it was not listed for {relist}" if is_due else None
            return self._recorded(bookmark, metadata, reason, reach, listing)
        if events is None or is_due or (bookmark.begins and bookmark.options.start_from is not None):
            # For `start_from`, what was there before must be known: events do not name it, and a later listing would
            # take it.
            return self.listed(bookmark, reach, listing)
        return self._told(bookmark, events, saves=reach.saves)

    def _told(self, bookmark: FileBookmark, events: EventSource, *, saves: bool) -> FileDelta:
        end = self._batch.end
        if not saves:
            # Before messages are received: those that came before an error are let go as well, for a run that saves.
            end.whatever_comes(partial(_let_go, events, end))
        told = events.receive(bookmark.location, bookmark.options.max_files)
        delta = bookmark.new_among(told, self._clock())
        if saves:
            # Messages go after the commit only: gone before it, a crash would leave files that nobody tells of again.
            # Those of files that a limit left out are kept, so that a later batch hears of them.
            end.after_commit(partial(events.acknowledge, but=bookmark.left))
        return delta

    def _recorded(
        self,
        bookmark: FileBookmark,
        metadata: JournalSource,
        reason: str | None,
        reach: Reach,
        listing: ListingSource | None,
    ) -> FileDelta:
        """Return what is new among what a journal records; by listing where that is not enough, or for a reason."""
        # Before a listing: what changes while that runs is recorded after this position, and read the next time.
        found = metadata.read(bookmark.location, bookmark.position)
        bookmark.read_until(found.position)
        reason = found.lost or reason
        if reason is None and found.changes is not None:
            delta = bookmark.new_recorded(found.changes, self._clock())
            if delta is not None:
                return delta
            reason = "the journal names more objects than S3 is asked about one by one"
        if listing is not None and (found.since is None or listing.created < found.since):
            # Neither it nor the journal shows what was written in between.
            listing, reason = None, f"{reason}; listing= ends before what the journal records next, and is not read"
        logger.warning(
            "event=journal-not-enough job=%s source=%s: everything is looked at, as %s",
            self._batch.run.job_id, bookmark.location, reason,
        )  # fmt: skip
        return self.listed(bookmark, reach, listing)

    def _bookmark_before(
        self, source: str, context: str | None, options: Mapping[str, Any], on_changed: OnChanged | None
    ) -> FileBookmark:
        run = self._batch.run
        reach = Reach(run.state(context or ""), saves=True)
        return self.bookmark(source, context or "files", reach, options, on_changed)

    def _clearing(
        self, after: AfterCommit, context: str | None, bookmark: FileBookmark, sees_all: bool
    ) -> ClearingUp | None:
        """Return what archives or deletes files after the commit; None where nothing is to be done."""
        if after.after_commit is None:
            return None
        after.check_clearable(bookmark, sees_all)
        run = self._batch.run
        if not context or not isinstance(run, Run):
            logger.warning(
                "event=after_commit_without_effect job=%s source=%s: nothing is saved of it, so all files stay",
                run.job_id, bookmark.location,
            )  # fmt: skip
            return None
        clearing = ClearingUp(
            after, run, bookmark, self.s3_client, self._clock, self._committed_at,
            lambda: bookmark.still_there.slice(0, 0),
        )  # fmt: skip
        clearing.check_rights()
        return clearing

    def _kept_schemas(self, context: str | None, delta: FileDelta | SparkFileDelta) -> KeptSchemas:
        from scripts.helpers.files.kept_schemas import KeptSchemas

        on_kept = partial(self._schemas.keep, context, str(delta.location))
        return KeptSchemas(context, self._schemas.known(context), on_kept)

    def _unchanged(
        self, context: str | None, planned: Mapping[str, Any], delta: FileDelta, on_changed: OnChanged
    ) -> FileDelta:
        """Compare the files of an inherited plan with what is there; set aside what changed, if that is asked for."""
        try:
            return delta.unchanged(on_changed, self.s3_client)
        except ChangedObjectError as error:
            if delta.readings is None or context is None:
                raise
            # The plan is amended, so it must be there before the files are added to the batch.
            self._batch.add(context, planned, None)
            delta.readings.set_aside(delta.readings.found(error))
        return delta.unchanged(on_changed, self.s3_client)

    def _set_aside(
        self, context: str | None, delta: FileDelta, base: Callable[[], FileBookmark], reasons: Mapping[str, str]
    ) -> None:
        """Take files that cannot be read out of the plan, frozen or not, and put them on the list that follows it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from scripts.helpers.files.bookmark import warn_of_set_aside, without_files

        table, batch = delta.table, self._batch
        bad = table.filter(pc.is_in(table.column("key"), value_set=pa.array(sorted(reasons), pa.string())))
        if context and context in batch.contexts:
            planned, following = batch.contexts[context], batch.following(context)
            if following is None:
                batch.amend(context, without_files(planned, bad), None)
            else:
                batch.amend(context, *base().without(planned, following, bad, reasons))
        warn_of_set_aside(delta.location, reasons)

    def _client(self, location: Any) -> S3Client | None:
        if self.s3_client is None and location.is_s3:
            from scripts.helpers.listing.s3 import make_client

            self.s3_client = make_client(CONNECTIONS)
        return self.s3_client


def _sees_all(events: EventSource | None, relist: timedelta | None, metadata: JournalSource | None) -> bool:
    """Tell whether the whole source is listed, at least from time to time; refuse hints that make no sense together."""
    has_hints = events is not None or metadata is not None
    if relist is not None and (not has_hints or relist < timedelta(0)):
        raise InvalidValueError(
            f"relist is {relist!r}. Give it with events or metadata only, and as a timedelta that is not negative."
        )
    if events is not None and metadata is not None:
        raise InvalidValueError("events and metadata both name changed objects. Give only one of them.")
    return not has_hints or relist is not None


def _let_go(events: EventSource, end: EndOfRun) -> None:
    """Show messages to other runs at once, where the source of events can."""
    extend = getattr(events, "extend", None)
    if extend is not None:
        end.call([partial(extend, 0)])


def _without_start(options: Mapping[str, Any], reach: Reach) -> Mapping[str, Any]:
    return {**options, "start_from": None} if reach.everything else options


def without_own(call: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those that `new_files` alone has; InvalidValueError if another call is given one."""
    for name in OWN:
        if options.get(name) is not None:
            raise InvalidValueError(f"{call} does not support {name}. Omit it, or use new_files.")
    return {name: value for name, value in options.items() if name not in OWN}


def need_pyarrow(source: str) -> None:
    """Raise SourceError before any module of files is imported, which would end with an ImportError."""
    if find_spec("pyarrow") is None:
        raise SourceError(source, "files need pyarrow. Install it: pip install pyarrow.")


def check_same_call(
    settled: Mapping[str, Any], asked: Mapping[str, Any] | None, job_id: str, context: str | None
) -> None:
    """Refuse to replay a plan of partitions by another call than made it: other files would be read.

    Parameters
    ----------
    asked
        What `PartitionRule.to_plan` says; None for files. New files are the same, grouped by partition or not.
    """
    # What is not a plan of files is refused when the files are read.
    planned = settled.get("partitions") if isinstance(settled, Mapping) else None
    if planned == asked:
        return
    is_whole = [isinstance(call, Mapping) and bool(call.get("whole")) for call in (planned, asked)]
    if any(is_whole):
        raise PlanConflictError(
            job_id,
            f"the open plan of context {context!r} has other files than this call would read: one of the two is of "
            "whole partitions, or of other partition columns. Run the code that made the plan, or discard the plan.",
        )
