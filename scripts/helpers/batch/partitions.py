"""`PartitionPlanning`: how a job takes partitions that changed, or the largest one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.batch import NOTHING, Batch
from scripts.helpers.batch.files import FilePlanning, check_same_call, need_pyarrow, without_own
from scripts.helpers.batch.reach import Reach
from scripts.helpers.batch.unsaved_run import UnsavedRun
from scripts.helpers.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scripts.helpers.files.bookmark import FileBookmark
    from scripts.helpers.files.latest import OnSame
    from scripts.helpers.files.partition_delta import PartitionDelta
    from scripts.helpers.files.partitions import PartitionRule
    from scripts.helpers.reading.small_files import OnChanged

logger = logging.getLogger(__name__)

_LIMIT = "A batch has whole partitions, or new files of them: use max_partitions"
_STOPS = "A file that cannot be read stops a batch of partitions: leave it out, or use new_files"
LIMITS = {"max_files": _LIMIT, "max_bytes": _LIMIT, "on_unreadable": _STOPS}
"""Options of files that have no place here, and why. Those that are None count as not given."""
NOT_WHOLE = {
    "layout": "It leaves old folders unlisted, and what changes there unseen: leave it out",
    "lookback": "It is for layout, which leaves old folders unlisted: leave it out",
    "on_modified": "A partition in which a file was changed is read again: leave it out",
}
NOT_LATEST = {
    "on_unreadable": _STOPS,
    "max_files": "One partition is read: leave it out",
    "max_bytes": "One partition is read: leave it out",
    "ledger_uri": "No files are remembered: leave it out",
    "layout": "All folders are listed, to find the largest: leave it out",
    "lookback": "It is for layout, and all folders are listed: leave it out",
    "start_from": "Only the largest partition is read: leave it out",
    "on_modified": "A partition in which a file was changed is another one: leave it out",
    "compare": "ETag and size say whether a file is the same: leave it out",
}


@dataclass(frozen=True)
class PartitionRequest:
    """A source of partitions, what it is called in the job, and how its files are listed and looked at again."""

    source: str
    columns: str | Sequence[str]
    types: Mapping[str, str] | None
    context: str | None
    on_changed: OnChanged | None
    options: Mapping[str, Any]


class PartitionPlanning:
    """Plans sources of partitions in one batch.

    Parameters
    ----------
    batch
        The batch, begun.
    files
        Plans the files of that batch.
    spark
        Looks up tables of the catalogue; None without Spark.
    """

    def __init__(self, batch: Batch, files: FilePlanning, spark: SparkSession | None) -> None:
        self._batch, self._files, self._spark = batch, files, spark

    def new_partitions(
        self, asked: PartitionRequest, whole: bool, nulls: str, start_from: Any, max_partitions: int | None
    ) -> PartitionDelta:
        """Return the partitions in which something is new; see `IncrementalJob.new_partitions`."""
        asked = replace(asked, options=without_own("new_partitions", asked.options))
        self._refuse(asked, LIMITS, whole=whole)
        if whole:
            self._refuse(asked, NOT_WHOLE, whole=True)
        need_pyarrow(asked.source)
        from scripts.helpers.files.catalogue import located
        from scripts.helpers.files.partitions import PartitionRule, is_file_start

        uri, columns = located(asked.source, asked.columns, asked.types, self._spark)
        start = None
        options: dict[str, Any] = {**asked.options}
        if is_file_start(start_from):
            options["start_from"] = start_from
        else:
            start = columns.from_caller(start_from, "start_from")
        rule = PartitionRule(uri, columns, whole, nulls, start, max_partitions)
        planned: Mapping[str, Any]
        state: Mapping[str, Any] | None
        settled, reach = self._files.begin(uri, asked.context)
        if reach.everything:
            # Everything is read as it was asked for, also what lies before the start of a first run.
            rule, options["start_from"] = replace(rule, start_from=None), None
        bookmark = self._bookmark(asked, uri, rule, options, reach)
        if settled is None:
            files = self._files.listed(bookmark, reach)
            planned, state = bookmark.to_plan(files), bookmark.state_after if reach.saves else None
            delta = bookmark.delta_of_partitions(files)
            if bookmark.waiting:
                logger.info("event=partitions_waiting source=%s partitions=%d", uri, bookmark.waiting)
        else:
            delta, planned, state = self._replayed(asked, bookmark, rule, settled), settled, None
        delta = self._with_schemas(asked, delta)
        emptied = delta.emptied
        if emptied:
            logger.warning(
                "event=partitions_emptied source=%s partitions=%d: all their files are gone. No row says so: empty "
                "them at the target, delta.emptied names them",
                uri, len(emptied),
            )  # fmt: skip
        self._add(asked, delta, planned, state, f"partitions={len(delta.partitions)} whole={whole}")
        return delta

    def latest_partition(self, asked: PartitionRequest, on_same: OnSame) -> PartitionDelta:
        """Return the largest partition; see `IncrementalJob.latest_partition`."""
        asked = replace(asked, options=without_own("latest_partition", asked.options))
        self._refuse(asked, NOT_LATEST, whole=True)
        need_pyarrow(asked.source)
        from scripts.helpers.files.catalogue import located
        from scripts.helpers.files.latest import LatestPartition, check_on_same
        from scripts.helpers.files.partitions import PartitionRule

        check_on_same(on_same)
        uri, columns = located(asked.source, asked.columns, asked.types, self._spark)
        rule = PartitionRule(uri, columns, whole=True, nulls="include", latest=True)
        settled, reach = self._files.begin(uri, asked.context)
        # Nothing is remembered of files: all that is there is new, and of that only one partition is taken.
        bookmark = self._bookmark(asked, uri, rule, asked.options, replace(reach, before=None))
        if settled is not None:
            delta = self._replayed(asked, bookmark, rule, settled)
            delta = self._with_schemas(asked, delta)
            self._add(asked, delta, settled, None, "latest=True")
            return delta
        context, job_id = asked.context or "partition", self._batch.run.job_id
        before = LatestPartition(bookmark.location, rule, reach.before, context, job_id)
        files = self._files.listed(bookmark, reach)
        found = before.decided(bookmark.delta_of_partitions(files), on_same)
        if bookmark.waiting:
            logger.warning(
                "event=partition_not_ready source=%s partitions=%d: they are larger than the one that is taken, and "
                "some of their files have to wait",
                uri, bookmark.waiting,
            )  # fmt: skip
        if not found.delta.count and not found.is_same:
            logger.warning("event=no_partition source=%s: nothing is read", uri)
        planned = bookmark.to_plan(found.delta.files)
        if not found.delta.count:
            planned["files"] = None
        state = found.state if reach.saves else None
        delta = self._with_schemas(asked, found.delta)
        self._add(asked, delta, planned, state, f"latest=True same={found.is_same}")
        return delta

    # --- within ---------------------------------------------------------------------------------

    def _refuse(self, asked: PartitionRequest, refused: Mapping[str, str], *, whole: bool) -> None:
        """Refuse options that would leave a part of a partition out, or would have no effect."""
        for name, why in refused.items():
            if asked.options.get(name) is not None:
                raise InvalidValueError(f"{name} is {asked.options[name]!r}. {why}.")
        if not whole:
            return
        archived = asked.options.get("on_archived", "error")
        if archived not in ("error", "take"):
            raise InvalidValueError(
                f"on_archived is {archived!r}, which would leave files out of a partition that is read whole. Use "
                "'error' or 'take'."
            )
        if asked.on_changed == "skip":
            raise InvalidValueError(
                "on_changed is 'skip', which would leave a file out of a partition that is read whole. Use 'error' or "
                "None."
            )
        if asked.context and isinstance(self._batch.run, UnsavedRun) and self._batch.run.mode.is_range:
            raise InvalidValueError(
                "A range of runs knows which files they took, and not what partitions held then. Use new_partitions "
                "with whole=False, or rewind the job."
            )

    def _bookmark(
        self, asked: PartitionRequest, uri: str, rule: PartitionRule, options: Mapping[str, Any], reach: Reach
    ) -> FileBookmark:
        return self._files.bookmark(uri, asked.context or "partitions", reach, options, asked.on_changed, rule)

    def _replayed(
        self, asked: PartitionRequest, bookmark: FileBookmark, rule: PartitionRule, settled: Mapping[str, Any]
    ) -> PartitionDelta:
        """Return the delta of a frozen plan, and look at its files again."""
        from scripts.helpers.files.delta import FileDelta

        if settled == NOTHING:
            return bookmark.delta_of_partitions(FileDelta(bookmark.location))
        check_same_call(settled, rule.to_plan(), self._batch.run.job_id, asked.context)
        files = bookmark.from_plan(settled, asked.context or "partitions")
        if asked.on_changed is not None:
            files = files.unchanged(asked.on_changed, self._files.s3_client)
        return bookmark.delta_of_partitions(files)

    def _with_schemas(self, asked: PartitionRequest, delta: PartitionDelta) -> PartitionDelta:
        return replace(delta, files=self._files.with_schemas(asked.context, delta.files))

    def _add(
        self,
        asked: PartitionRequest,
        delta: PartitionDelta,
        planned: Mapping[str, Any],
        state: Mapping[str, Any] | None,
        detail: str,
    ) -> None:
        check = None
        if asked.on_changed is not None:
            check = partial(delta.files.unchanged, "error", self._files.s3_client)
        self._files.add(asked.context, planned, state, delta.files, f"{detail} has_more={delta.has_more}", check)
