"""An operator's decisions about a job: rewind, reset, set, discard, release, adopt and restore, kept in the history."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from scripts.helpers.display.units import count_of
from scripts.helpers.errors import (
    InvalidValueError,
    NothingThereError,
    NoWatermarkError,
    PlanConflictError,
    StaleError,
    UnknownJobError,
    UnknownRunError,
    WatermarkError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.changes import Changes, check_adoptable
from scripts.helpers.protocol.chunks import MAX_SPILL_BYTES, cut, references, replaced, spill_large, take_blobs, unused
from scripts.helpers.protocol.head import Head, LogEntry, Order, Outputs, Seen
from scripts.helpers.protocol.lookups import STATES
from scripts.helpers.protocol.names import check_context, check_readable_run_id, check_run_id, new_token
from scripts.helpers.protocol.outputs import Output, Retraction, shows_batches
from scripts.helpers.protocol.races import TO_DECIDE, TO_RECORD, Written
from scripts.helpers.protocol.values import ImplausibleError, Spilled, as_stored, same_values

logger = logging.getLogger(__name__)

MAX_WHY = 1_000
"""Most characters of a reason: it is one line of the history, and the head stores it until its next change."""
LOOKED_AT = 100
"""How many later versions are read, in one request, to warn of their output that a decision leaves at targets."""

ADOPTED = "it has a committed state already; there is nothing to adopt."
ADOPTED_BY_HAND = "adopted by hand"


class Progress(Protocol):
    """The methods of `rows.progress.RowsProgress` that decisions call."""

    def states_to_set(self, version: Head, states: Mapping[str, Any], origin: str) -> Mapping[str, Any]:
        """Return what to store for `states`, which an operator sets. `version` is the head before the decision."""

    def warn_of_backfills(self, version: Head, contexts: Iterable[str]) -> None:
        """Log a WARNING if the next runs will read rows again that backfills of these contexts have read."""


@dataclass(frozen=True)
class JobDecision:
    """The arguments that decisions share; see `Watermarks.rewind`."""

    why: str
    who: str | None
    expected: Head | None
    context: str | None = None
    retract: bool = False


class Decided(NamedTuple):
    """`after`, the head after an operator's decision (such as a rewind), and what is written or logged with that head.

    Attributes
    ----------
    chunks
        Chunks to write before the head. A chunk is an item with a part of a state that is too large for the head.
    whole
        The states that the decision sets, as a whole. For a large one, `after` only refers to its chunks.
    back_to, outputs
        The version that the decision goes back to, and what later versions wrote to targets.
    gone_back
        The contexts that continue from an earlier version.
    """

    after: Head
    chunks: Mapping[str, list[bytes]] = MappingProxyType({})
    whole: Mapping[str, Any] = MappingProxyType({})
    back_to: int = 0
    outputs: Outputs = ()
    gone_back: Iterable[str] = ()


class Proposal(NamedTuple):
    """A decision that is not written yet: `Decisions.preview` shows it, and `Decisions.take` writes it."""

    job_id: str
    change: Callable[[Head], Decided]
    expected: Head | None
    may_be_new: bool = False


class Decisions:
    """Changes to a job that an operator makes.

    Every decision is one conditional write that is legal from any state. It makes a new version, fences
    the run that holds the job and drops its plan, so that a commit that was prepared before
    cannot undo the decision. Only `release` leaves version and plan as they are.
    """

    def __init__(self, changes: Changes, progress: Progress) -> None:
        self._changes, self._lookups, self._progress = changes, changes.lookups, progress
        self._store = changes.lookups.store

    def preview(self, proposal: Proposal) -> Decided:
        """Return what `take` would write on `proposal.expected` or the latest head, or raise; write nothing."""
        return proposal.change(proposal.expected or self._lookups.latest(proposal.job_id))

    def take(self, proposal: Proposal) -> Head:
        """Write a decision on the current head; StaleError if `proposal.expected` is another head than the current one.

        If a run changes the head between the read and the write, try again with the new head, up to `TO_DECIDE` times.
        """
        job_id = proposal.job_id
        for _ in TO_DECIDE.races(self._store.sleep):
            before, head = self._changes.read_for_change(job_id)
            check_expected(head, proposal.expected)
            if before is None and not proposal.may_be_new:
                raise UnknownJobError(job_id, self._store.table_name)
            # Compute the change again at each try, so that its chunks get new names: if the last try failed because a
            # `doctor` raised the fence, that `doctor` may still delete the unused chunks of the last try.
            decided = proposal.change(head)
            if decided.after is head:
                return head
            if decided.chunks:
                if before is None:
                    # Write a head before the chunks: a job with chunks and no head would look damaged. If this write
                    # fails, another writer has just written a head, so the job has a head all the same.
                    self._store.swap(None, head)
                    before = head
                self._store.write_chunks(job_id, decided.chunks)
            if isinstance(self._store.swap(before, decided.after), Written):
                self._tidy_up(head, decided)
                return decided.after
        raise StaleError(f"Job {job_id!r} changed {TO_DECIDE.tries} times meanwhile; nothing was decided. Try again.")

    def rewind(self, job_id: str, made: JobDecision, to_version: int | None, to_run: str | None) -> Proposal:
        """Go back to the watermarks of an earlier version or run; see `Watermarks.rewind`."""
        if (to_version is None) == (to_run is None):
            raise InvalidValueError("A rewind takes one of to_version and to_run.")
        if to_version is not None and (type(to_version) is not int or to_version < 1):
            raise InvalidValueError(
                f"A rewind goes to version 1 or later, not {to_version!r}. To forget everything call reset."
            )
        order, context, retract = self._checked(made), made.context, made.retract

        def change(head: Head) -> Decided:
            version = to_version if to_run is None else self._lookups.version_of(head, to_run)
            assert version is not None
            entry = self._entry(head, version)
            if context is not None and context not in entry.watermarks and context not in head.watermarks:
                raise InvalidValueError(f"Neither version {version} nor the present one has a context {context!r}.")
            outputs = self._outputs_after(head, version, retract)
            copied, chunks = self._copied(head, self._in_force(head, entry) if context is None else entry, context)
            after = head.rewound(copied, order, context, outputs, retract=retract)
            gone_back = after.watermarks if context is None else [context]
            return Decided(after, chunks, back_to=version, outputs=outputs, gone_back=gone_back)

        return Proposal(job_id, change, made.expected)

    def reset(self, job_id: str, made: JobDecision) -> Proposal:
        """Forget a job's watermarks, or those of one context; see `Watermarks.reset`."""
        order, context, retract = self._checked(made), made.context, made.retract

        def change(head: Head) -> Decided:
            # Resetting a context that does not exist would succeed, and hide a mistyped name.
            if context is not None and context not in head.watermarks:
                known = ", ".join(head.watermarks)
                raise InvalidValueError(f"Job {job_id!r} has no context {context!r}. It has: {known}.")
            outputs = self._outputs_after(head, 0, retract)
            return Decided(head.reset(order, context, outputs, retract=retract), outputs=outputs)

        return Proposal(job_id, change, made.expected)

    def set_watermark(self, job_id: str, watermarks: Mapping[str, Any], made: JobDecision) -> Proposal:
        """Declare a job as processed up to some watermarks, without a run; see `Watermarks.set_watermark`."""
        order, context = self._checked(made), made.context
        if not isinstance(watermarks, Mapping):
            raise InvalidValueError(f"Watermarks are a map of names to values, not a {type(watermarks).__name__}.")
        # Check the values before anything is read, to refuse bad values without a request.
        as_stored(take_blobs(watermarks, job_id, order.token, {}))

        def change(head: Head) -> Decided:
            chunks: dict[str, list[bytes]] = {}
            token, kept = new_token(), {reference.id for reference in references(head.watermarks)}
            values = as_stored(take_blobs(watermarks, job_id, token, chunks))
            given = values if context is None else {context: values}
            merged = {name: self._merged(head, name, value, is_context=bool(context)) for name, value in given.items()}
            for name, value in merged.items():
                try:
                    self._lookups.check(STATES, name, value)
                except ImplausibleError as error:
                    raise InvalidValueError(f"{error}, so the next run would refuse it.") from error
            states = self._progress.states_to_set(head, merged, order.token)
            return _declared(head, take_blobs(states, job_id, token, chunks, kept), order, chunks)

        return Proposal(job_id, change, made.expected, may_be_new=True)

    def discard_plan(self, job_id: str, made: JobDecision) -> Proposal:
        """Drop the open plan; see `Watermarks.discard_plan`."""
        order = self._checked(made)
        return Proposal(job_id, lambda head: Decided(head.discarded(order)), made.expected)

    def release(self, job_id: str, made: JobDecision, run_id: str | None) -> Head:
        """End the lease of a dead run; see `Watermarks.release`."""
        order = self._checked(made)
        if run_id is not None:
            check_run_id(run_id)
        meant: str | None = None
        for _ in TO_DECIDE.races(self._store.sleep):
            head = self._lookups.latest(job_id)
            check_expected(head, made.expected)
            claim = head.claim
            check_owner(head, run_id, meant)
            if claim is None:
                # The job is free. An earlier call may have released it before its caller died, so a repeat is valid.
                return head
            meant = claim.token
            after = head.freed(order)
            if isinstance(self._store.swap(head, after), Written):
                logger.warning(
                    "event=released job=%s run=%s fence=%d plan_kept=%s who=%s: the next run may begin",
                    job_id, claim.run_id, after.fence, after.plan is not None, order.who,
                )  # fmt: skip
                return after
        raise StaleError(f"Job {job_id!r} changed {TO_DECIDE.tries} times meanwhile; nothing was released. Try again.")

    def change_watermark(
        self,
        job_id: str,
        change: Callable[[Any], Mapping[str, Any]],
        *,
        context: str,
        why: str,
        who: str | None = None,
    ) -> Head:
        """Set the state of one context to what `change` returns for it; retry if others change the job meanwhile.

        If `change` returns the same state, no version is made.

        Parameters
        ----------
        change
            A function that gets the state, or None if there is none, and returns the new state. It is called
            again after each write of another writer, so it must have no side effects.

        Raises
        ------
        StaleError
            Other writers changed the job at each try; nothing was changed.
        """
        order = make_order(who, why, self._lookups.clock())
        check_context(context)

        def changed(head: Head) -> Decided:
            before = self._lookups.state_at(head, context)
            state = as_stored(change(before), limit=MAX_SPILL_BYTES)
            if isinstance(before, Mapping) and same_values(dict(before), state):
                return Decided(head)
            return _declared(head, {context: state}, order, {})

        for _ in TO_RECORD.races(self._store.sleep):
            with suppress(StaleError):
                return self.take(Proposal(job_id, changed, None, may_be_new=True))
        raise StaleError(f"Job {job_id!r} kept changing; nothing was decided. Try again.")

    def restore(
        self,
        job_id: str,
        seen: Seen,
        retract: tuple[Retraction, ...] = (),
        *,
        back_to: int | None = None,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Start a new epoch (the part of a batch id that keeps ids unique after a restore); see `Head.restored`.

        With `back_to`, continue from that version, and delete later output that shows its batch: files by names, rows
        by a batch column. Other rows stay, with a WARNING. InvalidValueError if `retract` asks to delete such rows.
        """
        order = make_order(who, why, self._lookups.clock())
        return self.take(Proposal(job_id, lambda head: self.restored(head, order, seen, retract, back_to), expected))

    def restored(
        self, head: Head, order: Order, seen: Seen, retract: tuple[Retraction, ...], back_to: int | None
    ) -> Decided:
        """Return the head that `restore` makes of a given head, with the chunks of states to write before it."""
        for one in retract:
            if not shows_batches(one.sink, one.batch_column):
                sink = f"{one.sink.capitalize()}Sink(…, batch_column=…)"
                remedy = f" If these were, name the column: after_restore(…, sinks=[{sink}], retract=True, why=…)."
                raise _unmarked_rows_error(one.target, f"the rows of versions {one.first} to {one.last}", remedy)
        if back_to is None or back_to == head.version:
            return Decided(head.restored(order, seen, retract))
        outputs = self._later_outputs(head, back_to)
        told = tuple(output for output in outputs if output.is_retractable)
        back, chunks = head.reset(order, None, told, retract=True), dict[str, list[bytes]]()
        if back_to:
            entry, chunks = self._copied(head, self._in_force(head, self._entry(head, back_to)), None)
            back = head.rewound(entry, order, None, told, retract=True)
        after = head.restored(order, seen, retract, back)
        _warn_of_outputs(head, after, back_to, outputs)
        return Decided(after, chunks)

    # --- items of the original class --------------------------------------------------------------

    def adopt(self, adopted: Head, expected: Head | None = None) -> Head:
        """Store a head made from an item of the original class; StaleError if the caller expected another head."""
        check_expected(adopted, expected)
        if not isinstance(self._store.swap(None, adopted), Written):
            raise PlanConflictError(adopted.job_id, ADOPTED)
        self._changes.write_log(adopted)
        return adopted

    def adopted(
        self,
        job_id: str,
        made: JobDecision,
        run_id: str | None,
        runs: Iterable[Mapping[str, Any]] | None,
        watermarks: Mapping[str, Any] | None = None,
    ) -> Head:
        """Return the head made from the most recent item of the original class; see `Watermarks.adopt`."""
        self._lookups.check_job(job_id)
        if (run_id is None) == (runs is None):
            raise InvalidValueError("adopt takes one of run_id and runs.")
        if run_id is not None:
            check_readable_run_id(run_id)
        given = None if watermarks is None else as_stored(watermarks)
        order = self._checked(made)
        head, found = self._store.read_head(job_id), dict[str, items.Item]()
        if head is None:
            head, found = self._lookups.without_head(job_id)
        if head is not None:
            raise PlanConflictError(job_id, ADOPTED)
        run_id = run_id or _latest_started(job_id, runs or (), found)
        if run_id not in found:
            raise UnknownRunError(job_id, run_id)
        head = self._lookups.head_of_legacy(found[run_id], len(found), given).explained(order)
        check_adoptable(head)
        return head

    # --- helpers --------------------------------------------------------------------------------

    def _later_outputs(self, head: Head, version: int, most: int | None = None) -> Outputs:
        """Return the output of (at most `most`) versions above `version`, newest first, as far as the history goes."""
        left = head.version - version if most is None else min(most, head.version - version)
        entries = takewhile(lambda entry: entry.version > version, self._lookups.versions(head, left))
        return tuple(output for entry in entries for output in entry.change.outputs)

    def _outputs_after(self, head: Head, version: int, retract: bool) -> Outputs:
        """Return all output above `version`, to delete it, if `retract`; else the newest of it, for a WARNING."""
        first = min((output.version for output in head.unpublished if output.version > version), default=head.version)
        outputs = self._later_outputs(head, version, None if retract else max(LOOKED_AT, head.version - first + 1))
        for output in outputs if retract else ():
            if not output.is_retractable and output not in head.unpublished:
                raise _unmarked_rows_error(
                    output.target, f"the {_counted(output)} that version {output.version} left there"
                )
        return outputs

    def _checked(self, made: JobDecision) -> Order:
        """Return the `Order` of a decision: who, why and when. Raise InvalidValueError for bad arguments."""
        order = make_order(made.who, made.why, self._lookups.clock())
        if made.context is not None:
            check_context(made.context)
            if made.retract:
                raise InvalidValueError(
                    "A batch holds the rows of all contexts, so nothing of it can be taken back for "
                    f"{made.context!r} alone. Leave out retract, or transformation_ctx."
                )
        return order

    def _merged(self, head: Head, name: str, given: Any, *, is_context: bool) -> Any:
        """Return the value to store under a name; for a source, its stored state updated with the given values.

        A given state with a `kind` is complete and replaces the stored state. A state without `kind` has only
        the changes: alone it would not name its source, and the next run would refuse it or read everything.
        """
        before = self._lookups.stored_at(head, name) if name in head.watermarks else None
        if not isinstance(before, Mapping) or not (is_context or "kind" in before):
            return given
        if not isinstance(given, Mapping):
            raise InvalidValueError(
                f"{name!r} of job {head.job_id!r} is the state of a source, which one value cannot replace. "
                f"Name what to set: set_watermark(job, {{…}}, transformation_ctx={name!r}). Or reset it first."
            )
        return given if "kind" in given else {**before, **given}

    def _tidy_up(self, before: Head, decided: Decided) -> None:
        """Do the work that follows a decision. Only log a failure, because the next begin or `doctor` does the work."""
        after = decided.after
        _warn_of_outputs(before, after, decided.back_to, decided.outputs)
        # The decision is written. If this look-up fails, skip the WARNING, so that the decision does not seem to fail.
        with suppress(WatermarkError):
            self._progress.warn_of_backfills(after, decided.gone_back)
        try:
            self._changes.write_log(after)
            # Set expiry before deleting: a role without DeleteItem must still let versions expire.
            self._changes.expire_before(before, after)
            # Delete the dropped plan's chunks, but keep those that the new head or the previous version needs, too:
            # a plan shares the states that it did not change, and an operator may rewind to the previous version.
            for reference in unused(before.plan, after.watermarks, before.watermarks) if before.plan else ():
                self._store.delete_chunks(before.job_id, reference)
        except WatermarkError as error:
            logger.warning("event=log_deferred job=%s version=%d error=%s", after.job_id, after.version, error)

    def _entry(self, head: Head, version: int) -> LogEntry:
        if head.log_entry is None:
            raise NoWatermarkError(head.job_id)
        entry = head.log_entry if version == head.version else self._store.read_log(head.job_id, version)
        if entry is None or version > head.version:
            raise NothingThereError(reason="unknown_version", job_id=head.job_id, version=version, current=head.version)
        return entry

    def _in_force(self, head: Head, entry: LogEntry) -> LogEntry:
        """Return `entry` with the outputs of all versions up to its own, except of versions that were taken back."""
        outputs: list[Output] = []
        back_to = None
        for one in self._lookups.history_of(head, LOOKED_AT, before=entry.version + 1):
            op, run_id = one.change.op, one.change.run_id
            # Skip versions between a rewind and the version that it went back to: their rows do not count as loaded.
            if back_to is not None and run_id != back_to:
                continue
            if op in ("RESET", "REWIND") and run_id is None:
                break
            back_to = run_id if op == "REWIND" else None
            outputs += () if head.has_retracted(one.version) else one.change.outputs
        return replace(entry, change=replace(entry.change, outputs=tuple(reversed(outputs))))

    def _copied(self, head: Head, entry: LogEntry, context: str | None) -> tuple[LogEntry, dict[str, list[bytes]]]:
        """Copy the large states of a log entry, whose chunks may expire. Return the entry, and the chunks to write.

        States that the head refers to, too, are not copied. With `context`, only the state of that context is copied.
        """
        watermarks, present = dict(entry.watermarks), references(head.watermarks)
        chunks: dict[str, list[bytes]] = {}

        def copied(reference: Spilled) -> Spilled:
            if reference in present:
                return reference
            value = self._store.read_spilled(head.job_id, reference)
            copy, chunks[copy.id] = cut(value, f"s#{new_token()}-0", "watermark")
            return copy

        for name in watermarks if context is None else {context} & watermarks.keys():
            watermarks[name] = replaced(watermarks[name], copied)
        return replace(entry, watermarks=watermarks), chunks


def _declared(head: Head, states: Mapping[str, Any], order: Order, chunks: Mapping[str, list[bytes]]) -> Decided:
    """Return the decision that sets `states` by hand. Its chunks are `chunks`, plus those of states that are large."""
    watermarks = {**head.watermarks, **states}
    in_head, large = spill_large(watermarks, "s", new_token(), "watermark", head.watermarks)
    return Decided(head.declared(in_head, order), {**chunks, **large}, states)


def _unmarked_rows_error(target: str, rows: str, remedy: str = "") -> InvalidValueError:
    return InvalidValueError(
        f"{target!r} is not a folder of files, so {rows} cannot be taken back: no column holds their batch. Decide "
        "without retract, and delete those rows by hand, or let the target merge by key. Rows that are written with "
        f"batch_column= can be taken back.{remedy}"
    )


def kept_outputs(before: Head, after: Head, outputs: Outputs) -> list[Output]:
    """Return those of `outputs` that a decision, such as a rewind, keeps: published or still to be published."""
    dropped = [output for output in before.unpublished if output not in after.unpublished]
    return [output for output in outputs if output not in dropped and after.keeps(output)]


def _warn_of_outputs(before: Head, after: Head, version: int, outputs: Outputs) -> None:
    """Log a WARNING if a decision leaves output of versions above `version` at the targets."""
    if kept := {output.target for output in kept_outputs(before, after, outputs)}:
        logger.warning(
            "event=output_kept job=%s versions=%d-%d targets=%s: the rows of these versions are read again, under "
            "other batch ids. Decide with retract, and for all contexts, to delete the published rows first, unless "
            "the target merges by key",
            before.job_id, version + 1, before.version, ", ".join(sorted(kept)),
        )  # fmt: skip


def _counted(output: Output) -> str:
    # If `rows` is None, the rows were not counted while they were staged.
    return "rows" if output.rows is None else count_of(output.rows, "row")


def _latest_started(job_id: str, runs: Iterable[Mapping[str, Any]], found: Mapping[str, Any]) -> str:
    """Return the id of the run that started last, among those in `runs` that have an item in the table."""
    started = {run["Id"]: run["StartedOn"] for run in runs if run.get("Id") in found and "StartedOn" in run}
    if not started:
        known = (
            f"Its items are of runs {', '.join(sorted(found)[:10])}." if found else "It has no items; check the name."
        )
        raise InvalidValueError(f"None of the runs given has an item of job {job_id!r}. {known}")
    return str(max(started, key=started.__getitem__))


def make_order(who: str | None, why: str, at: datetime) -> Order:
    """Return who changes a job, why and when; `who` defaults to the system's user. InvalidValueError for a bad text."""
    who = who or _system_user()
    for name, text in (("who", who), ("why", why)):
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_WHY or not text.isprintable():
            raise InvalidValueError(f"{name!r} must be one printable line of 1 to {MAX_WHY:,} characters.")
    return Order(who, why, at, new_token())


def check_owner(head: Head, run_id: str | None, token: str | None = None) -> None:
    """Raise StaleError if the job is held by another run than the one that the operator considers dead."""
    claim = head.claim
    if claim is not None and (run_id not in (None, claim.run_id) or token not in (None, claim.token)):
        raise StaleError(f"Run {claim.run_id!r} has job {head.job_id!r} now. Nothing was released. Look again.")


def check_expected(head: Head, expected: Head | None) -> None:
    """Raise StaleError if a head has changed since the operator looked at it.

    A head that no run or decision has written yet (fence 0) is made at each read, from nothing or from an item
    of the original class, so its epoch and token are not compared.
    """
    if expected is None or head.identity == expected.identity:
        return
    if head.fence == expected.fence == 0 and head.version == expected.version:
        runs = [one.last.run_id if one.last else None for one in (head, expected)]
        if runs[0] == runs[1] and same_values(dict(head.watermarks), dict(expected.watermarks)):
            return
    raise StaleError(
        f"Job {head.job_id!r} changed while you looked: version {expected.version} was shown and it is at "
        f"{head.version}, or another run has it. Nothing was changed. Look again."
    )


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
