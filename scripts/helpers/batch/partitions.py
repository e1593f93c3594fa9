"""Take the partitions in which something is new, or the one with the largest value, such as the latest day."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from scripts.helpers.batch.batch import SourcePart, Stored
from scripts.helpers.batch.files import PLANNED, FileSource, check_same_call
from scripts.helpers.batch.modes import Reach, UnsavedRun
from scripts.helpers.display.options import check_choice, option_error
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.files.latest import LatestPartition, OnSame
from scripts.helpers.files.partition_delta import PartitionDelta
from scripts.helpers.files.partitions import PartitionColumns, PartitionRule, is_file_start
from scripts.helpers.files.states import FilesPlan, FilesState, PartitionState

logger = logging.getLogger(__name__)

_LIMIT = "A batch has whole partitions, or new files of them: use max_partitions"
_STOPS = "A file that cannot be read stops a batch of partitions: leave it out, or use new_files"
LIMITS = {"max_files": _LIMIT, "max_bytes": _LIMIT, "on_unreadable": _STOPS}
"""Options of files that cannot be used with partitions, and why. An option that is None counts as not given."""
NOT_WHOLE = {
    "layout": "It leaves old folders unlisted, and what changes there unseen: leave it out",
    "allowed_lateness": "It is for layout, which leaves old folders unlisted: leave it out",
    "on_modified": "A partition in which a file was changed is read again: leave it out",
}
NOT_LATEST = {
    "on_unreadable": _STOPS,
    "max_files": "One partition is read: leave it out",
    "max_bytes": "One partition is read: leave it out",
    "ledger_uri": "No files are remembered: leave it out",
    "layout": "All folders are listed, to find the largest: leave it out",
    "allowed_lateness": "It is for layout, and all folders are listed: leave it out",
    "start_from": "Only the largest partition is read: leave it out",
    "on_modified": "A partition in which a file was changed is another one: leave it out",
    "compare": "ETag and size say whether a file is the same: leave it out",
}


def new_partitions(
    asked: FileSource,
    columns: str | Sequence[str],
    types: Mapping[str, str] | None,
    *,
    whole: bool,
    nulls: str,
    start_from: Any,
    max_partitions: int | None,
) -> PartitionDelta:
    """Return the partitions in which something is new; see `IncrementalJob.new_partitions`."""
    refused = LIMITS | NOT_WHOLE if whole else LIMITS
    asked.check_options("columns", "types", "whole", "nulls", "max_partitions", refused=refused)
    known = _checked(asked, refused, columns, types, whole=whole)
    start = None
    if is_file_start(start_from):
        asked = replace(asked, options={**asked.options, "start_from": start_from})
    else:
        start = known.from_caller(start_from, "start_from")
    rule = PartitionRule(asked.source, known, whole, nulls, start, max_partitions)
    return asked.batch.take(asked.context, NewPartitions(**vars(asked), rule=rule))


def latest_partition(
    asked: FileSource,
    columns: str | Sequence[str],
    types: Mapping[str, str] | None,
    on_same: OnSame,
) -> PartitionDelta:
    """Return the partition with the largest value, such as the latest day; see `IncrementalJob.latest_partition`."""
    asked.check_options("columns", "types", "on_same", refused=NOT_LATEST)
    known = _checked(asked, NOT_LATEST, columns, types, whole=True)
    check_choice("on_same", on_same, get_args(OnSame))
    rule = PartitionRule(asked.source, known, whole=True, nulls="take", latest=True)
    return asked.batch.take(asked.context, LargestPartition(**vars(asked), rule=rule, on_same=on_same))


@dataclass(frozen=True)
class NewPartitions(FileSource):
    """Partitions in which something is new."""

    rule: PartitionRule

    def plan(self, reach: Reach) -> SourcePart[PartitionDelta]:
        """Find the partitions with new files."""
        # If the run reads everything, read the partitions before `start_from`, too.
        rule = replace(self.rule, start_from=None) if reach.everything else self.rule
        bookmark = self.bookmark(reach, rule)
        found = self.listed(bookmark, reach)
        if found.waiting:
            logger.info("event=partitions_waiting source=%s partitions=%d", self.source, found.waiting)
        return self._taken(PartitionDelta(found.delta, rule, found.gone), found.plan, found.state)

    def resume(self, stored: Stored) -> SourcePart[PartitionDelta]:
        """Take the files of a frozen plan, and check that they have not changed."""
        bookmark = self.bookmark(PLANNED, self.rule)
        found = bookmark.resume(stored)
        check_same_call(found.plan, self.rule.to_plan(), self.batch.run.job_id, self.context)
        if self.on_changed is not None:
            found = replace(found, delta=found.delta.unchanged(self.on_changed, self.batch.s3_client))
        return self._taken(PartitionDelta(found.delta, self.rule, found.gone), found.plan, None)

    def nothing(self) -> PartitionDelta:
        """Return no partitions."""
        files = super().nothing()
        return PartitionDelta(replace(files, schemas=self.schemas(files)), self.rule)

    def _taken(
        self, delta: PartitionDelta, planned: FilesPlan, state: FilesState | PartitionState | None
    ) -> SourcePart[PartitionDelta]:
        files = replace(delta.files, schemas=self.schemas(delta.files, whole=self.rule.whole))
        delta = replace(delta, files=files)
        if emptied := delta.emptied:
            logger.warning(
                "event=partitions_emptied source=%s partitions=%d: all files of these partitions are gone, and no row "
                "shows it. Empty the partitions at the target: delta.emptied names them",
                self.source, len(emptied),
            )  # fmt: skip
        check, rule = partial(files.unchanged, "raise", self.batch.s3_client), self.rule
        detail = f"partitions={len(delta.partitions)} whole={rule.whole} latest={rule.latest} has_more={delta.has_more}"
        return self.taken(delta, files, planned, state, detail, check)


@dataclass(frozen=True)
class LargestPartition(NewPartitions):
    """The largest partition (such as the latest day) of a source in which each partition is a full snapshot."""

    on_same: OnSame

    def plan(self, reach: Reach) -> SourcePart[PartitionDelta]:
        """Find the largest partition, and decide whether to read it."""
        # Ignore the stored state, so that all files count as new, even if an earlier run has read their partition.
        bookmark = self.bookmark(replace(reach, before=None), self.rule)
        context, job_id = self.context or "partition", self.batch.run.job_id
        before = LatestPartition(bookmark.location, self.rule, reach.before, context, job_id)
        listed = self.listed(bookmark, reach)
        found = before.decided(PartitionDelta(listed.delta, self.rule, listed.gone), self.on_same)
        if listed.waiting:
            logger.warning(
                "event=partition_not_ready source=%s partitions=%d: larger partitions than the one that is read are "
                "left for a later run, because some of their files are not ready",
                self.source, listed.waiting,
            )  # fmt: skip
        if not found.delta.count and not found.is_same:
            logger.warning("event=no_partition source=%s: no partition is found, so nothing is read", self.source)
        segment = listed.plan.segment if found.delta.count else None
        planned = replace(listed.plan, count=found.delta.count, bytes=found.delta.bytes, segment=segment)
        return self._taken(found.delta, planned, found.state if reach.saves else None)


def _checked(
    asked: FileSource,
    refused: Mapping[str, str],
    columns: str | Sequence[str],
    types: Mapping[str, str] | None,
    *,
    whole: bool,
) -> PartitionColumns:
    """Return a source's partition columns. Refuse a table's name in place of a folder, and options that omit files."""
    options = asked.options
    if "/" not in asked.source and asked.source not in (".", ".."):
        raise option_error(
            "source",
            f"{asked.source!r} is a table's name, or a folder without its path. Give the folder, ending in a slash: "
            f"that of a table is its Location in DESCRIBE TABLE EXTENDED {asked.source}. Give the types of its folder "
            "columns with types= or schema=.",
        )
    for name, why in refused.items():
        if options.get(name) is not None:
            raise InvalidValueError(f"{name} is {options[name]!r}. {why}.")
    if whole:
        archived, run = options.get("on_archived", "raise"), asked.batch.run
        if archived not in ("raise", "take"):
            raise InvalidValueError(
                f"on_archived is {archived!r}, which would leave files out of a partition that is read whole. Use "
                "'raise' or 'take'."
            )
        if asked.on_changed == "skip":
            raise InvalidValueError(
                "on_changed is 'skip', which would leave a file out of a partition that is read whole. Use 'raise' or "
                "None."
            )
        if asked.context and isinstance(run, UnsavedRun) and run.mode.is_range:
            raise InvalidValueError(
                "A range of runs knows which files they took, and not what partitions held then. Use new_partitions "
                "with whole=False, or rewind the job."
            )
    known = PartitionColumns.of(columns, types)
    asked.begin()
    return known
