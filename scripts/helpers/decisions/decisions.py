"""Decisions of people about a job: rewind, reset, set, discard, release, adopt and restore. The history keeps each."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

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
from scripts.helpers.protocol.outputs import Output, Retraction, has_batches
from scripts.helpers.protocol.races import TO_DECIDE, TO_RECORD, Written
from scripts.helpers.protocol.values import ImplausibleError, Spilled, as_stored, same_values

logger = logging.getLogger(__name__)

MAX_WHY = 1_000
"""Characters of a reason: it is one line of the history, and lies in the head until the next step."""
LOOKED_AT = 100
"""Versions that are looked at to warn of what they leave at targets: one request."""

ADOPTED = "it has a committed state already; there is nothing to adopt."
ADOPTED_BY_HAND = "adopted by hand"

StatesToSet = Callable[[Head, Mapping[str, Any], str], Mapping[str, Any]]
"""Makes of the states that a person sets those to store, from the head that they replace and the decision's token."""


@dataclass(frozen=True)
class JobDecision:
    """What goes with each decision; see `Watermarks.rewind`."""

    why: str
    who: str | None
    expected: Head | None
    context: str | None = None
    retract: bool = False


class Decisions:
    """Changes to a job that no run makes.

    Every decision is one conditional write that is legal from any state. It makes a new version, fences
    the run that is at work and drops its plan: what a person decided must not be undone by a commit
    that was prepared before. Only `release` leaves version and plan as they are.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes, self._lookups = changes, changes.lookups
        self._store = changes.lookups.store

    def rewind(self, job_id: str, made: JobDecision, to_version: int | None, to_run: str | None) -> Head:
        """Go back to the watermarks of an earlier version or run; see `Watermarks.rewind`."""
        if (to_version is None) == (to_run is None):
            raise InvalidValueError("A rewind takes one of to_version and to_run.")
        if to_version is not None and (type(to_version) is not int or to_version < 1):
            raise InvalidValueError(
                f"A rewind goes to version 1 or later, not {to_version!r}. To forget everything call reset."
            )
        order, context, retract = self._checked(made), made.context, made.retract

        def change(head: Head) -> Head:
            version = to_version if to_run is None else self._lookups.version_of(head, to_run)
            assert version is not None
            entry = self._entry(head, version)
            if context is not None and context not in entry.watermarks and context not in head.watermarks:
                raise InvalidValueError(f"Neither version {version} nor the present one has a context {context!r}.")
            outputs = self._outputs_after(head, version, retract) if context is None else ()
            copied = self._copied(head, self._in_force(head, entry) if context is None else entry, context)
            after = head.rewound(copied, order, context, outputs, retract=retract)
            return _with_warning(head, after, version, outputs)

        return self._decide(job_id, change, expected=made.expected)

    def reset(self, job_id: str, made: JobDecision) -> Head:
        """Forget a job's watermarks, or those of one context; see `Watermarks.reset`."""
        order, context, retract = self._checked(made), made.context, made.retract

        def change(head: Head) -> Head:
            if context is not None and context not in head.watermarks:
                raise InvalidValueError(f"Job {job_id!r} has no context {context!r} to reset.")
            outputs = self._outputs_after(head, 0, retract) if context is None else ()
            return _with_warning(head, head.reset(order, context, outputs, retract=retract), 0, outputs)

        return self._decide(job_id, change, expected=made.expected)

    def set_watermark(
        self,
        job_id: str,
        watermarks: Mapping[str, Any],
        made: JobDecision,
        states_to_set: StatesToSet,
    ) -> Head:
        """Declare "processed up to here" without running; see `Watermarks.set_watermark`.

        Parameters
        ----------
        states_to_set
            Called for each head that the decision is tried on, so that what it takes from the present
            states is that of the head which is replaced, not of one that a run has left behind meanwhile.
        """
        order, context = self._checked(made), made.context
        if not isinstance(watermarks, Mapping):
            raise InvalidValueError(f"Watermarks are a map of names to values, not a {type(watermarks).__name__}.")
        # Once before anything is read: bad values are refused without a request.
        as_stored(take_blobs(watermarks, job_id, order.token, {}))

        def change(head: Head) -> Head:
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
            states = take_blobs(states_to_set(head, merged, order.token), job_id, token, chunks, kept)
            return self._declared(head, {**head.watermarks, **states}, order, chunks)

        return self._decide(job_id, change, may_be_new=True, expected=made.expected)

    def discard_plan(self, job_id: str, made: JobDecision) -> Head:
        """Drop the open plan; see `Watermarks.discard_plan`."""
        order = self._checked(made)
        return self._decide(job_id, lambda head: head.discarded(order), expected=made.expected)

    def release(self, job_id: str, made: JobDecision, run_id: str | None) -> Head:
        """End the claim of a run that is dead; see `Watermarks.release`."""
        order = self._checked(made)
        if run_id is not None:
            check_run_id(run_id)
        meant: str | None = None
        for _ in TO_DECIDE.races(self._store.sleep):
            head = self._lookups.latest(job_id)
            check_expected(head, made.expected)
            claim = head.claim
            if claim is None:
                # Also when an earlier call took effect and its caller died: so it can be repeated.
                return head
            # Whoever has begun since this call looked is another one than the caller took for dead.
            if run_id not in (None, claim.run_id) or meant not in (None, claim.token):
                raise StaleError(f"Run {claim.run_id!r} has job {job_id!r} now. Nothing was released. Look again.")
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
        """Set the state of one context to what `change` makes of the present one, whoever else writes meanwhile.

        The same state again is no change and makes no version.

        Parameters
        ----------
        change
            Gets the state, or None if there is none. It is called again for each write of others
            that came in between, so it must change nothing else.

        Raises
        ------
        StaleError
            Others kept writing; nothing was changed.
        """
        order = self._order(who, why)
        check_context(context)

        def changed(head: Head) -> Head:
            before = self._lookups.state_at(head, context)
            state = as_stored(change(before), limit=MAX_SPILL_BYTES)
            if isinstance(before, Mapping) and same_values(dict(before), state):
                return head
            return self._declared(head, {**head.watermarks, context: state}, order)

        for _ in TO_RECORD.races(self._store.sleep):
            with suppress(StaleError):
                return self._decide(job_id, changed, may_be_new=True)
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
        """Start a new epoch, from the watermarks of `back_to` where that is an earlier version; see `Head.restored`.

        InvalidValueError for rows that nothing marks with their batch. What versions above `back_to` have left is taken
        back where it is marked, and stays with a WARNING elsewhere.
        """
        order = self._order(who, why)
        return self._decide(job_id, lambda head: self.restored(head, order, seen, retract, back_to), expected=expected)

    def restored(
        self, head: Head, order: Order, seen: Seen, retract: tuple[Retraction, ...], back_to: int | None
    ) -> Head:
        """Return the head that `restore` writes in the place of another one."""
        for one in retract:
            if not has_batches(one.sink, one.batch_column):
                sink = f"{one.sink.capitalize()}Sink(…, batch_column=…)"
                remedy = f" If these were, name the column: after_restore(…, sinks=[{sink}], retract=True, why=…)."
                raise _not_told(one.target, f"the rows of versions {one.first} to {one.last}", remedy)
        if back_to is None or back_to == head.version:
            return head.restored(order, seen, retract)
        outputs = self.outputs_after(head, back_to)
        told = tuple(output for output in outputs if output.is_retractable)
        back = head.reset(order, None, told, retract=True)
        if back_to:
            entry = self._copied(head, self._in_force(head, self._entry(head, back_to)), None)
            back = head.rewound(entry, order, None, told, retract=True)
        return _with_warning(head, head.restored(order, seen, retract, back), back_to, outputs)

    # --- items of the original class --------------------------------------------------------------

    def latest_started(self, job_id: str, runs: Iterable[Mapping[str, Any]]) -> str:
        """Return which of Glue's ``JobRuns`` has an item of the original class and started last.

        Raises
        ------
        PlanConflictError
            The job has a head already, so its latest run is known.
        InvalidValueError
            No run of the list has an item.
        """
        self._lookups.check_job(job_id)
        return _latest_started(job_id, runs, self._to_adopt(job_id))

    def adopt(
        self,
        job_id: str,
        made: JobDecision,
        run_id: str | None,
        runs: Iterable[Mapping[str, Any]] | None,
        watermarks: Mapping[str, Any] | None,
    ) -> Head:
        """Declare which item of the original class is the most recent one; see `Watermarks.adopt`."""
        self._lookups.check_job(job_id)
        if (run_id is None) == (runs is None):
            raise InvalidValueError("adopt takes one of run_id and runs.")
        if run_id is not None:
            check_readable_run_id(run_id)
        given = None if watermarks is None else as_stored(watermarks)
        order = self._checked(made)
        found = self._to_adopt(job_id)
        run_id = run_id or _latest_started(job_id, runs or (), found)
        if run_id not in found:
            raise UnknownRunError(job_id, run_id)
        head = self._lookups.head_of_legacy(found[run_id], len(found), given).explained(order)
        check_adoptable(head)
        if not isinstance(self._store.swap(None, head), Written):
            raise PlanConflictError(job_id, ADOPTED)
        self._changes.write_log(head)
        return head

    def _to_adopt(self, job_id: str) -> dict[str, items.Item]:
        """Return the items of the original class by run id; PlanConflictError if the job has a head."""
        head = self._store.read_head(job_id)
        found: dict[str, items.Item] = {}
        if head is None:
            head, found = self._lookups.without_head(job_id)
        if head is not None:
            raise PlanConflictError(job_id, ADOPTED)
        return found

    # --- within ---------------------------------------------------------------------------------

    def outputs_after(self, head: Head, version: int, most: int | None = None) -> Outputs:
        """Return what the versions above one have left at targets, newest first, as far as the history goes.

        `most` is how many versions are looked at.
        """
        if head.version <= version:
            return ()
        later = head.version - version
        entries = self._lookups.history_of(head, later if most is None else min(most, later))
        return tuple(output for entry in entries if entry.version > version for output in entry.change.outputs)

    def _outputs_after(self, head: Head, version: int, retract: bool) -> Outputs:
        """Return the output of later versions: all of it to take it back, and else enough of it to warn."""
        first = min((output.version for output in head.unpublished if output.version > version), default=head.version)
        outputs = self.outputs_after(head, version, None if retract else max(LOOKED_AT, head.version - first + 1))
        for output in outputs if retract else ():
            if not output.is_retractable and output not in head.unpublished:
                raise _not_told(output.target, f"the {_counted(output)} that version {output.version} left there")
        return outputs

    def _checked(self, made: JobDecision) -> Order:
        """Return the order of a decision; InvalidValueError for what it may not say."""
        order = self._order(made.who, made.why)
        if made.context is not None:
            check_context(made.context)
            if made.retract:
                raise InvalidValueError(
                    "A batch holds the rows of all contexts, so nothing of it can be taken back for "
                    f"{made.context!r} alone. Leave out retract, or transformation_ctx."
                )
        return order

    def _order(self, who: str | None, why: str) -> Order:
        return make_order(who, why, self._lookups.clock())

    def _decide(
        self,
        job_id: str,
        change: Callable[[Head], Head],
        *,
        may_be_new: bool = False,
        expected: Head | None = None,
    ) -> Head:
        """Write a decision on the head as it is then, if it is as expected where anything is.

        A run that commits in between is taken into account, or refuses the decision.
        """
        for _ in TO_DECIDE.races(self._store.sleep):
            before, head = self._changes.read_for_change(job_id)
            check_expected(head, expected)
            if before is None and not may_be_new:
                raise UnknownJobError(job_id, self._store.table_name)
            after = change(head)
            if after is head:
                return head
            if before is None and references(after.watermarks):
                before = head  # It was written before the chunks were.
            if isinstance(self._store.swap(before, after), Written):
                self._tidy_up(head, after)
                return after
        raise StaleError(f"Job {job_id!r} changed {TO_DECIDE.tries} times meanwhile; nothing was decided. Try again.")

    def _merged(self, head: Head, name: str, given: Any, *, is_context: bool) -> Any:
        """Return what is to be stored under a name: of a source, its state with what is given put into it.

        A state with a `kind` is a whole one, and takes the place of what is there. One without says only what
        changes: alone it would not name its source, and the next run would refuse it or read everything.
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

    def _declared(
        self,
        head: Head,
        watermarks: Mapping[str, Any],
        order: Order,
        chunks: Mapping[str, list[bytes]] = MappingProxyType({}),
    ) -> Head:
        """Set all watermarks by hand; what is too large for the head is written in chunks, as are those given.

        It is called for each head that a decision is tried on, and writes chunks of other names each time: those of
        a try that lost may be deleted by `doctor` at any moment, as it raises the fence before it deletes.
        """
        in_head, large = spill_large(watermarks, "s", new_token(), "watermark", head.watermarks)
        chunks = {**chunks, **large}
        after = head.declared(in_head, order)
        if chunks:
            if head.fence == 0 and head.last is None:
                # Chunks without a head would be taken for a damaged job. Who else made a head meanwhile does not
                # matter: there is one then.
                self._store.swap(None, head)
            self._store.write_chunks(head.job_id, chunks)
        return after

    def _tidy_up(self, before: Head, after: Head) -> None:
        """Do what follows a decision. It is made, so a failure is only logged: the next begin, or `doctor`, does it."""
        try:
            self._changes.write_log(after)
            # Ends are set before anything is deleted: a role that may not delete still has versions that expire.
            self._changes.expire_before(before, after)
            # A plan repeats the states that it does not change. Their chunks are in force after the decision, or
            # those of the version before it, to which a person may go back.
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
        """Return the entry with what the versions up to it left at targets, as far as they count at it."""
        outputs: list[Output] = []
        back_to = None
        for one in self._lookups.history_of(head, LOOKED_AT, before=entry.version + 1):
            op, run_id = one.change.op, one.change.run_id
            # Versions between a rewind and the one it went back to do not count.
            if back_to is not None and run_id != back_to:
                continue
            if op in ("RESET", "REWIND") and run_id is None:
                break
            back_to = run_id if op == "REWIND" else None
            outputs += () if head.has_retracted(one.version) else one.change.outputs
        return replace(entry, change=replace(entry.change, outputs=tuple(reversed(outputs))))

    def _copied(self, head: Head, entry: LogEntry, context: str | None) -> LogEntry:
        """Return the entry with its spilled states copied: the old chunks may expire with their version.

        What the head refers to as well needs no copy; nor do contexts other than the one gone back to.
        """
        watermarks, present = dict(entry.watermarks), references(head.watermarks)

        def copied(reference: Spilled) -> Spilled:
            if reference in present:
                return reference
            value = self._store.read_spilled(head.job_id, reference)
            copy, parts = cut(value, f"s#{new_token()}-0", "watermark")
            self._store.write_chunks(head.job_id, {copy.id: parts})
            return copy

        # Copied anew for each head that the rewind is tried on, as in `_declared`.
        for name in watermarks if context is None else {context} & watermarks.keys():
            watermarks[name] = replaced(watermarks[name], copied)
        return replace(entry, watermarks=watermarks)


def _not_told(target: str, rows: str, remedy: str = "") -> InvalidValueError:
    return InvalidValueError(
        f"{target!r} is not a folder of files, so {rows} cannot be taken back: no column holds their batch. Decide "
        "without retract, and delete those rows by hand, or let the target merge by key. Rows that are written with "
        f"batch_column= can be taken back.{remedy}"
    )


def _with_warning(before: Head, after: Head, version: int, outputs: Outputs) -> Head:
    """Return the head after a decision, with a WARNING of output of later versions that it leaves at the targets."""
    kept = {output.target for output in outputs if output not in before.unpublished and after.keeps(output)}
    if kept:
        logger.warning(
            "event=output_kept job=%s versions=%d-%d targets=%s: their rows come again, under other batch ids. "
            "Decide with retract to have them deleted first, unless the target merges by key",
            before.job_id, version + 1, before.version, ", ".join(sorted(kept)),
        )  # fmt: skip
    return after


def _counted(output: Output) -> str:
    # An output that does not say how many it holds: rows were not counted while they were staged.
    return "rows" if output.rows is None else count_of(output.rows, "row")


def _latest_started(job_id: str, runs: Iterable[Mapping[str, Any]], found: Mapping[str, Any]) -> str:
    """Return which of some runs has an item and started last."""
    started = {run["Id"]: run["StartedOn"] for run in runs if run.get("Id") in found and "StartedOn" in run}
    if not started:
        known = (
            f"Its items are of runs {', '.join(sorted(found)[:10])}." if found else "It has no items; check the name."
        )
        raise InvalidValueError(f"None of the runs given has an item of job {job_id!r}. {known}")
    return str(max(started, key=started.__getitem__))


def make_order(who: str | None, why: str, at: datetime) -> Order:
    """Make the order of a decision, by the system's user unless `who` is given; InvalidValueError for a bad text."""
    who = who or _system_user()
    for name, text in (("who", who), ("why", why)):
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_WHY or not text.isprintable():
            raise InvalidValueError(f"{name!r} must be one printable line of 1 to {MAX_WHY:,} characters.")
    return Order(who, why, at, new_token())


def check_expected(head: Head, expected: Head | None) -> None:
    """Raise StaleError if a head is not any more what somebody has looked at.

    One that no run or decision has touched (fence 0) was made of nothing, or of an item of the original
    class, when it was read: its epoch and token say nothing.
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
