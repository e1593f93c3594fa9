"""Take the new files of a source, found on the driver or by executors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import SparkSession
from scripts.helpers.batch.after_commit import AfterCommit, ClearingUp
from scripts.helpers.batch.batch import Batch, SourcePart, Stored, T
from scripts.helpers.batch.modes import Reach
from scripts.helpers.batch.schemas import SchemaKeeping
from scripts.helpers.display.options import options_of
from scripts.helpers.errors import ChangedObjectError, InvalidValueError, PlanConflictError
from scripts.helpers.files.bookmark import FileBookmark, FilesTaken, Found, warn_of_set_aside, without_files
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.kept_schemas import KeptSchemas
from scripts.helpers.files.rules import FileOptions
from scripts.helpers.files.states import FilesPlan, FilesState, PartitionState, PlannedPartitions
from scripts.helpers.files.unchanged import check_on_changed
from scripts.helpers.listing.listing import Location
from scripts.helpers.protocol.run import Run

if TYPE_CHECKING:
    from scripts.helpers.files.partitions import PartitionRule
    from scripts.helpers.files.sources import EventSource, JournalSource, ListingSource
    from scripts.helpers.files.spark import Executors, SparkFileDelta
    from scripts.helpers.reading.small_files import OnChanged

logger = logging.getLogger(__name__)

PLANNED = Reach(saves=True)
"""The reach for a frozen plan: a replay needs no state, only the location of its files."""


@dataclass(frozen=True)
class FileSource:
    """A source of files, with the options for listing them and for checking that they have not changed.

    Parameters
    ----------
    batch
        The batch, whose run has begun.
    options
        The options of `FileBookmark`.
    """

    batch: Batch
    source: str
    context: str | None
    on_changed: OnChanged | None
    options: Mapping[str, Any]

    kind = "files"

    def check_options(self, *beside: str, refused: Collection[str] = ()) -> None:
        """Raise InvalidValueError for an unknown option, before anything is listed. `options_of` has the parameters."""
        options_of(FileOptions, self.options, ("transformation_ctx", "on_changed", *beside), refused)

    def begin(self) -> None:
        """Note in the batch that it reads files, and where they are."""
        self.batch.reads_files = True
        self.batch.folders.append(str(Location.parse(self.source)))

    def nothing(self) -> Any:
        """Return no files."""
        return FileDelta(Location.parse(self.source))

    def bookmark(self, reach: Reach, partitions: PartitionRule | None = None, *, clears: bool = False) -> FileBookmark:
        """Return a bookmark that finds files from `reach.before` to `reach.until`; raise as `check_on_changed` does."""
        made = FileBookmark(
            self.source,
            s3_client=self.batch.client(Location.parse(self.source)),
            partitions=partitions,
            clears=clears,
            needs_versions=self.on_changed == "skip" and self.options.get("compare") != "mtime",
            **self.reaching(reach, "partitions" if partitions else "files"),
        )
        check_on_changed(self.on_changed, made.location, made.options)
        return made

    def reaching(self, reach: Reach, name: str) -> dict[str, Any]:
        """Return the arguments of `FileBookmark`: options, and from `reach` the states between which files are new."""
        run, options = self.batch.run, self.options
        if reach.everything:
            # Ignore `start_from`, because this run reads all files, including those before it.
            options = {**options, "start_from": None}
        return dict(
            state=reach.before, until=reach.until, saves=reach.saves, transformation_ctx=self.context or name,
            taken_by=(run.version + 1, run.run_id), **options,
        )  # fmt: skip

    def listed(
        self,
        bookmark: FileBookmark,
        reach: Reach,
        listing: ListingSource | None = None,
        position: Mapping[str, Any] | None = None,
    ) -> FilesTaken:
        """Return the new files of a listing."""
        taken = bookmark.find(listing, position)
        self.warn_of_limit(taken.delta, reach)
        return taken

    def warn_of_limit(self, delta: FileDelta | SparkFileDelta, reach: Reach) -> None:
        """Log a WARNING if a limit left out files that no later run takes."""
        if reach.everything and delta.has_more:
            logger.warning(
                "event=limited job=%s source=%s files=%d: a limit of the batch left files out, and the run saves "
                "nothing from which the next run could continue. Omit max_files and max_bytes to read everything",
                self.batch.run.job_id, delta.location, delta.count,
            )  # fmt: skip

    def schemas(self, delta: FileDelta | SparkFileDelta, *, whole: bool = False) -> KeptSchemas:
        """Return the columns that earlier batches stored, with functions to store the columns of this delta.

        Parameters
        ----------
        whole
            Whether the delta has all rows of its partitions.
        """
        kept = SchemaKeeping(self.batch)
        # Hide frames of whole partitions from `contexts_of`: its WARNING that an aggregate lacks rows would be wrong.
        on_read = partial(self.batch.give, self.context, is_recognisable=not whole)
        schemas = KeptSchemas(
            self.context, kept.known(self.context), partial(kept.keep, self.context, str(delta.location)), on_read
        )
        if self.context and self.batch.saves:
            self.batch.end.before_commit(schemas.check_taken)
        return schemas

    def taken(
        self,
        data: T,
        files: FileDelta | SparkFileDelta,
        planned: FilesPlan,
        state: FilesState | PartitionState | None,
        detail: str,
        check: Callable[[], Any],
    ) -> SourcePart[T]:
        """Return the part of the source that the batch takes. `check` runs before the commit if `on_changed` is set."""
        facts = f"files={planned.count} bytes={planned.bytes} gone={files.gone} {detail}"
        following = None if state is None else state.to_store()
        return SourcePart(data, planned.to_store(), following, facts, None if self.on_changed is None else check)


def new_files(
    asked: FileSource,
    after: AfterCommit,
    listing: ListingSource | None,
    events: EventSource | None,
    metadata: JournalSource | None,
    relist: timedelta | None,
) -> FileDelta:
    """Return the new files; see `IncrementalJob.new_files`."""
    asked.check_options("listing", "events", "metadata", "relist", *signature(AfterCommit).parameters)
    has_hints = events is not None or metadata is not None
    if relist is not None and (not has_hints or relist < timedelta(0)):
        raise InvalidValueError(
            f"relist is {relist!r}. Give it with events or metadata only, and as a timedelta that is not negative."
        )
    if events is not None and metadata is not None:
        raise InvalidValueError("events and metadata both name changed objects. Give only one of them.")
    if events is not None and asked.options.get("max_bytes") is not None:
        raise InvalidValueError(
            "max_bytes cannot be used with events: messages of files that it leaves out would stay hidden, and in the "
            "end go to the dead-letter queue. Give max_files."
        )
    asked.begin()
    source = NewFiles(**vars(asked), listing=listing, events=events, metadata=metadata, relist=relist, after=after)
    found: FileDelta = asked.batch.take(asked.context, source)
    return found


@dataclass(frozen=True)
class NewFiles(FileSource):
    """New files that the driver finds, in a listing or among the objects that events or a journal name."""

    listing: ListingSource | None
    events: EventSource | None
    metadata: JournalSource | None
    relist: timedelta | None
    after: AfterCommit

    def plan(self, reach: Reach) -> SourcePart[FileDelta]:
        """Find the new files."""
        bookmark = self.bookmark(reach, clears=self.after.after_commit is not None)
        clearing = self._clearing(bookmark)
        found = self._found(bookmark, reach)
        return self._taken(replace(found, delta=self._watched(found.delta, lambda: bookmark)), clearing)

    def resume(self, stored: Stored) -> SourcePart[FileDelta]:
        """Take the files of a frozen plan, and check that they have not changed."""
        bookmark = self.bookmark(PLANNED, clears=self.after.after_commit is not None)
        clearing = self._clearing(bookmark)
        found = bookmark.resume(stored)
        check_same_call(found.plan, None, self.batch.run.job_id, self.context)
        delta = self._watched(found.delta, self._bookmark_before)
        if delta.readings is not None:
            delta.readings.is_replay = True
        if self.on_changed is not None:
            # Check before the replay writes: an earlier attempt may have written this batch with a file's old content.
            delta = self._unchanged(delta, stored, self.on_changed)
        # Read the plan from the batch, because the check above may have removed files from it.
        planned = FilesPlan.read(self.batch.contexts.get(self.context or "", stored), "plan")
        return self._taken(replace(found, delta=delta, plan=planned), clearing)

    def _taken(self, found: FilesTaken, clearing: ClearingUp | None) -> SourcePart[FileDelta]:
        delta = found.delta
        if clearing is not None:
            self.batch.end.after_commit(replace(clearing, taken=lambda: (found.still_there, delta.readable)))
        # Before the commit, raise for a changed file even if `on_changed` is "skip": it is already in the output.
        check = partial(delta.check_unread, self.batch.s3_client)
        return self.taken(delta, delta, found.plan, found.state, f"has_more={delta.has_more}", check)

    def _watched(self, delta: FileDelta, before: Callable[[], FileBookmark]) -> FileDelta:
        """Return a delta that knows the columns of earlier batches, and removes unreadable files from the plan.

        Parameters
        ----------
        before
            A function that returns the bookmark as it was before the plan. It is called only if a file is unreadable.
        """
        delta = replace(delta, schemas=self.schemas(delta))
        if delta.readings is not None:
            self.batch.watch(delta.readings, self.context)
            delta.readings.on_bad = partial(self._set_aside, delta, before)
        return delta

    def _found(self, bookmark: FileBookmark, reach: Reach) -> FilesTaken:
        """Return the new files among the objects that events or a journal name. Without these, list the source."""
        # List the source to read all, or a range of runs: events and S3's journal name only changes since the last run.
        if reach.everything or reach.until is not None:
            return self.listed(bookmark, reach, self.listing)
        relist, listed = self.relist, bookmark.listed
        is_due = relist is not None and (listed is None or self.batch.clock() - listed >= relist)
        if is_due and self.listing is not None and listed is not None and self.listing.created <= listed:
            # Do not read one S3 inventory report twice: each run would read it in place of events, until these expire.
            is_due = False
            logger.warning(
                "event=report_too_old job=%s source=%s created=%s: the source was not listed for %s, and the report of "
                "listing= was read before, so events or the journal are read. Make reports more often than relist",
                self.batch.run.job_id, bookmark.location, self.listing.created, relist,
            )  # fmt: skip
        if self.metadata is not None:
            reason = f"it was not listed for {relist}" if is_due else None
            return self._recorded(bookmark, self.metadata, reason, reach)
        if self.events is None or is_due or (bookmark.begins and bookmark.options.start_from is not None):
            # With `start_from`, the first run must list the source to remember the older files, which it skips. Events
            # do not name these files, so a later listing would take them for new.
            return self.listed(bookmark, reach, self.listing)
        return self._found_by_events(bookmark, self.events, saves=reach.saves)

    def _found_by_events(self, bookmark: FileBookmark, events: EventSource, *, saves: bool) -> FilesTaken:
        end = self.batch.end
        if not saves:
            # Return the messages to the queue at the end. Register this first, so that it happens after an error, too.
            end.call_at_end(partial(end.call, [partial(events.extend, 0)]))
        told = events.receive(bookmark.location, bookmark.options.max_files)
        found = bookmark.find_among(told, self.batch.clock())
        if saves:
            # Delete messages only after the commit, otherwise no event would name their files again after a crash.
            # Keep the messages of files that a limit left out, so that a later batch gets them.
            end.after_commit(partial(events.acknowledge, but=found.left))
        return found

    def _recorded(
        self, bookmark: FileBookmark, metadata: JournalSource, reason: str | None, reach: Reach
    ) -> FilesTaken:
        """Return a journal's new files. List the source if records are missing or a `reason` to list it is given."""
        # Read the journal before a listing, so that the next run finds in the journal what changes during the listing.
        found = metadata.read(bookmark.location, bookmark.position)
        reason, listing = found.lost or reason, self.listing
        if reason is None and found.changes is not None:
            taken = bookmark.find_recorded(found.changes, self.batch.clock(), found.position)
            if taken is not None:
                return taken
            reason = "the journal names more objects than S3 is asked about one by one"
        since = found.since and max(found.since, bookmark.listed or found.since)
        if listing is not None and (since is None or listing.created < since):
            # Do not read an S3 inventory that ends before the journal begins: neither has objects written in between.
            reason = f"{reason}; listing= ends before the last listing or the journal's next record, and is not read"
            listing = None
        logger.warning(
            "event=journal_not_enough job=%s source=%s: the whole source is listed, because %s",
            self.batch.run.job_id, bookmark.location, reason,
        )  # fmt: skip
        return self.listed(bookmark, reach, listing, found.position)

    def _bookmark_before(self) -> FileBookmark:
        return self.bookmark(replace(PLANNED, before=self.batch.run.state(self.context or "")))

    def _clearing(self, bookmark: FileBookmark) -> ClearingUp | None:
        """Return the hook that archives or deletes files after the commit; None if they stay."""
        if self.after.after_commit is None:
            return None
        # Only a full listing finds what a dead run did not clear. With events or a journal, only `relist` leads to one.
        sees_all = (self.events is None and self.metadata is None) or self.relist is not None
        self.after.check_clearable(bookmark, sees_all)
        run = self.batch.run
        if not self.context or not isinstance(run, Run):
            logger.warning(
                "event=after_commit_without_effect job=%s source=%s: the run saves nothing for it, so all files stay",
                run.job_id, bookmark.location,
            )  # fmt: skip
            return None
        clearing = ClearingUp(self.after, self.batch, run, bookmark)
        clearing.check_rights()
        return clearing

    def _unchanged(self, delta: FileDelta, planned: Stored, on_changed: OnChanged) -> FileDelta:
        """Check an inherited plan's files. If one has changed, raise, skip it, or set it aside, by the options."""
        try:
            return delta.unchanged(on_changed, self.batch.s3_client)
        except ChangedObjectError as error:
            if delta.readings is None or self.context is None:
                raise
            # Add the plan to the batch first, because `set_aside` then amends the batch's plan.
            self.batch.add(self.context, planned, None)
            delta.readings.set_aside(delta.readings.found(error))
        return delta.unchanged(on_changed, self.batch.s3_client)

    def _set_aside(self, delta: FileDelta, before: Callable[[], FileBookmark], reasons: Mapping[str, str]) -> None:
        """Remove unreadable files from the plan, and list them in the watermark to store at the commit."""
        table, batch, context = delta.table, self.batch, self.context
        bad = table.filter(pc.is_in(table.column("key"), value_set=pa.array(sorted(reasons), pa.string())))
        if context and context in batch.contexts:
            planned, following = FilesPlan.read(batch.contexts[context], "plan"), batch.following(context)
            if following is None:
                batch.amend(context, without_files(planned, bad).to_store(), None)
            else:
                state = FilesState.read(following, context)
                planned, state = before().without(planned, state, bad, reasons)
                batch.amend(context, planned.to_store(), state.to_store())
        warn_of_set_aside(delta.location, reasons)


def new_files_on_spark(asked: FileSource, spark: SparkSession | None) -> SparkFileDelta:
    """Return the new files, found by executors; see `IncrementalJob.new_files_on_spark`."""
    asked.check_options()
    if spark is None:
        raise PlanConflictError(asked.batch.run.job_id, "there is no Spark session. Give the job spark=.")
    if asked.on_changed not in ("raise", None):
        raise InvalidValueError(f"On Spark on_changed is 'raise' or None, and not {asked.on_changed!r}. Use new_files.")
    asked.begin()
    return asked.batch.take(asked.context, FilesOnSpark(**vars(asked), spark=spark))


@dataclass(frozen=True)
class FilesOnSpark(FileSource):
    """New files that executors find."""

    spark: SparkSession

    def plan(self, reach: Reach) -> SourcePart[SparkFileDelta]:
        """Find the new files with executors."""
        executors = self._executors(reach)
        found = executors.find()
        self.warn_of_limit(found.delta, reach)
        return self._taken(executors, found)

    def resume(self, stored: Stored) -> SourcePart[SparkFileDelta]:
        """Take the files of a frozen plan. Executors check that the files have not changed."""
        executors = self._executors(PLANNED)
        found = executors.resume(stored)
        check_same_call(found.plan, None, self.batch.run.job_id, self.context)
        if self.on_changed is not None:
            executors.check_unchanged(found.plan)
        return self._taken(executors, found)

    def nothing(self) -> SparkFileDelta:
        """Return no files."""
        delta = self._executors(PLANNED).nothing()
        return replace(delta, schemas=self.schemas(delta))

    def _executors(self, reach: Reach) -> Executors:
        from scripts.helpers.files.spark import Executors

        return Executors(self.spark, self.bookmark(reach))

    def _taken(self, executors: Executors, new: Found[SparkFileDelta]) -> SourcePart[SparkFileDelta]:
        delta = replace(new.delta, schemas=self.schemas(new.delta))
        check = partial(executors.check_unchanged, new.plan)
        return self.taken(delta, delta, new.plan, new.state, f"has_more={delta.has_more} on_spark=True", check)


def check_same_call(planned: FilesPlan, asked: PlannedPartitions | None, job_id: str, context: str | None) -> None:
    """Raise PlanConflictError if a call would read other files than the plan of partitions that it replays.

    Parameters
    ----------
    asked
        The partitions that the call reads, from `PartitionRule.to_plan`, or None for a call that takes single files.
    """
    if planned.partitions != asked and any(one is not None and one.whole for one in (planned.partitions, asked)):
        raise PlanConflictError(
            job_id,
            f"the open plan of context {context!r} has other files than this call would read: one of the two is of "
            "whole partitions, or of other partition columns. Run the code that made the plan, or discard the plan.",
        )
