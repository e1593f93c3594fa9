"""The calls of a run, and what each may report given what it wrote (hazards I3 to I7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scripts.helpers.errors import AmbiguousHistoryError, FencedError, PlanConflictError, RunInProgressError
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.items import log_key
from scripts.helpers.protocol.run import Run
from tests.protocol.actors import (
    LEASE,
    Actors,
    Handle,
    Outcome,
    Trouble,
    blob_of,
    mark,
    nothing,
    position,
    rows_of,
)
from tests.protocol.model import JOB, Frozen, Intent, State, canonical
from tests.support.dynamodb import Died

MOST_PARTS = 3
"""A state that would have more parts starts again with one; its old parts stay with earlier versions."""


class Runs(Actors):
    """The calls that job code makes."""

    def begin(
        self, actor: str, run_id: str, *, take_over: bool = False, trouble: Trouble | None = None
    ) -> Handle | None:
        now = self.clock(actor)

        def claim(before: State | None, after: State) -> State:
            if intent.made:
                assert before and before.fence == intent.made[0].fence, "a job was let go that another run has (I7)"
                intent.given_up = True
                return before.released()
            state = before or State(after.epoch)
            if not intent.disturbed:
                free = state.owner in (None, run_id) or take_over
                assert free or (state.lease_until and now >= state.lease_until), "a living lease was ignored"
            return state.claimed(run_id, now + LEASE)

        intent, old = Intent("begin", claim), self.model.state
        call = self.call(
            intent, trouble, lambda: self.actors[actor].begin(JOB, run_id, lease=LEASE, take_over=take_over)
        )
        if call.refused(RunInProgressError, AmbiguousHistoryError):
            if isinstance(call.error, RunInProgressError) and not intent.disturbed:
                assert old and old.owner not in (None, run_id) and old.lease_until and not take_over
                assert now < old.lease_until
            if isinstance(call.error, AmbiguousHistoryError):
                assert self.model.state is None and len(self.model.legacy) > 1
            return None
        (state,) = intent.made
        run = call.value
        assert (run.version, run.fence, run.replay) == (state.version, state.fence, state.plan is not None)
        handle = Handle(run, actor, state, state.plan)
        self.handles.append(handle)
        return handle

    def freeze(self, handle: Handle, most: Mapping[str, int], trouble: Trouble | None = None) -> None:
        """Freeze a plan of at most `most` rows per context; without `most`, repeat the frozen or last tried plan."""
        run = handle.run
        if handle.dead or run.closed:
            return
        try:
            if run.plan is not None and not most:
                contexts = {name: run.planned(name) for name in run.plan.contexts}
                following = dict(run.plan.next)
            elif handle.given is not None and not most:
                contexts, following = handle.given  # Try again after an unknown outcome.
            else:
                contexts, following = handle.given = self._plan(run, most)
            given = with_data(self.model.resolved(contexts)), with_data(self.model.resolved(following))
        except (FencedError, AssertionError):
            # A run also cannot plan any more if the chunks of its state are gone.
            assert not self._in_force(handle)
            return

        def plan(before: State | None, after: State) -> State:
            assert before and self._may_write(handle, before) and before.plan is None, "a zombie froze a plan (I7)"
            assert after.plan
            return before.planned(Frozen(after.plan.plan_id, *given), run.run_id, handle.state.lease_until)

        was_in_force, old = self._in_force(handle), self.model.state
        call = self.call(Intent("freeze", plan), trouble, lambda: run.freeze(contexts, following))
        self._note_death(handle, call)
        if call.refused(FencedError, PlanConflictError):
            if isinstance(call.error, PlanConflictError) and not call.intent.disturbed:
                # Equal bytes that were stored twice are two blobs, and therefore two plans.
                is_stored_again = "part" in contexts.get("files", {})
                assert handle.plan and (is_stored_again or canonical(handle.plan.contexts) != canonical(given[0]))
            if isinstance(call.error, FencedError) and not call.intent.disturbed:
                assert not was_in_force or (old and old.plan and handle.plan is None)
            return
        handle.plan = call.intent.made[0].plan if call.intent.made else handle.plan or (old.plan if old else None)
        assert handle.plan is not None and run.plan is not None and handle.plan.plan_id == run.plan.plan_id
        self.model.see_plan(handle.state.epoch, handle.state.version, handle.plan)
        assert canonical([handle.plan.contexts, handle.plan.next]) == canonical(list(given))

    def _plan(self, run: Run, most: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
        contexts, following = {}, {name: run.state(name) for name in run.watermarks}
        for context, count in most.items():
            state = run.state(context) or {"value": 0}
            low = state["value"]
            high = max(low, min(self.source[context], low + count))
            contexts[context] = {"low": low, "high": high, "names": rows_of(context, low, high)}
            parts = state.get("parts", [])
            if context == "files" and high > low:
                added = blob_of(rows_of(context, low, high))
                # The plan and the state share the added part; the state shares its other parts with earlier versions.
                contexts[context]["part"], parts = added, [*parts, added] if len(parts) < MOST_PARTS else []
            following[context] = mark(context, high, parts)
        return contexts, following

    def process(self, handle: Handle) -> None:
        """Write the plan's rows to the sink, which must get the same content for a batch id from every run."""
        if handle.dead or handle.plan is None:
            return
        call = self.call(
            Intent("process", nothing),
            None,
            lambda: {name: with_data(handle.run.planned(name)) for name in handle.plan.contexts} if handle.plan else {},
        )
        if call.refused(FencedError):
            assert not self._in_force(handle)
            return
        if handle.run.plan is None:
            return  # Nothing is left to process after the commit.
        assert canonical(call.value) == canonical(handle.plan.contexts), "another plan than the frozen one (I3)"
        taken = {name: rows_of(name, part["low"], part["high"]) for name, part in call.value.items()}
        assert self.sink.setdefault(str(handle.run.batch_id), taken) == taken, "two contents for one batch (I6)"
        handle.processed = True

    def commit(self, handle: Handle, trouble: Trouble | None = None) -> None:
        if handle.dead or (not handle.processed and not handle.run.closed and handle.plan is not None):
            return
        model, run = self.model, handle.run

        def commit(before: State | None, after: State) -> State:
            assert before and self._may_write(handle, before), "a zombie committed (I7)"
            assert before.plan and handle.plan and before.plan.plan_id == handle.plan.plan_id
            batch = {name: rows_of(name, part["low"], part["high"]) for name, part in before.plan.contexts.items()}
            assert self.sink[str(run.batch_id)] == batch, "committed without the batch (I6)"
            self._check_tiling(before)
            return before.committed(run.run_id)

        was_closed, was_in_force = run.closed, self._in_force(handle)
        call = self.call(Intent("commit", commit), trouble, lambda: run.commit(count=run.attempt))
        self._note_death(handle, call)
        if call.unknown:
            return
        made = model.log.get(handle.state.version + 1)
        is_ours = bool(
            made and made.plan and handle.plan and made.epoch == handle.state.epoch
            and made.plan.plan_id == handle.plan.plan_id
        )  # fmt: skip
        if call.refused(PlanConflictError, FencedError):
            is_closed = getattr(call.error, "reason", "") == "run_closed"
            assert not is_closed or was_closed
            assert is_closed or not isinstance(call.error, PlanConflictError) or handle.plan is None
            if isinstance(call.error, FencedError):
                assert call.intent.disturbed or not was_in_force, "fenced though nobody took over"
                gone = (JOB, log_key(handle.state.version + 1)) not in model.items
                restored = model.state is not None and model.state.epoch != handle.state.epoch
                assert not is_ours or gone or restored, "fenced though its plan is committed (I4)"
            return
        assert not was_closed
        assert is_ours, f"{call.value!r} was reported, but the log has {made} (I4)"
        assert len(call.intent.made) == (1 if call.value == "done" else 0)
        assert call.value in ("done", "already")
        assert run.version == handle.state.version + 1

    def _check_tiling(self, before: State) -> None:
        """Check that each context starts where the last commit ended (I5), and that all others keep their watermark."""
        assert before.plan is not None
        for context, part in before.plan.contexts.items():
            assert part["low"] == position(before.watermarks, context), "a gap or an overlap (I5)"
            assert part["high"] == position(before.plan.next, context)
        for context in before.watermarks.keys() - before.plan.contexts.keys():
            assert canonical(before.plan.next[context]) == canonical(before.watermarks[context])

    def abort(self, handle: Handle, trouble: Trouble | None = None) -> None:
        if handle.dead:
            return

        def release(before: State | None, after: State) -> State:
            assert before and self._may_write(handle, before), "a zombie let go of a job that is not its own (I7)"
            return before.released()

        was_closed, was_in_force = handle.run.closed, self._in_force(handle)
        call = self.call(Intent("abort", release), trouble, handle.run.abort)
        self._note_death(handle, call)
        if not call.refused() and was_in_force and not was_closed and not call.intent.disturbed:
            assert self.model.state and self.model.state.owner is None
            assert self.model.state.plan is None or handle.run.closed

    def heartbeat(self, handle: Handle, trouble: Trouble | None = None) -> None:
        if handle.dead:
            return
        until = self.clock(handle.actor) + LEASE

        def renew(before: State | None, after: State) -> State:
            assert before and before.owner == handle.run.run_id and self._may_write(handle, before), "I7"
            return replace(before, lease_until=until)

        was_in_force = self._in_force(handle) and not handle.run.closed
        call = self.call(Intent("heartbeat", renew), trouble, handle.run.heartbeat)
        self._note_death(handle, call)
        if call.intent.made:
            handle.state = replace(handle.state, lease_until=until)
        if not call.refused() and trouble is None:
            owner = self.model.state.owner if self.model.state else None
            assert call.value == (was_in_force and owner is not None)

    def _in_force(self, handle: Handle) -> bool:
        return self.model.state is not None and self._may_write(handle, self.model.state)

    def _may_write(self, handle: Handle, state: State) -> bool:
        mine = (handle.state.epoch, handle.state.version, handle.state.fence)
        return mine == (state.epoch, state.version, state.fence)

    def _note_death(self, handle: Handle, call: Outcome) -> None:
        handle.dead = handle.dead or isinstance(call.error, Died)


def with_data(values: Any) -> Any:
    """Return nested values with their blobs read back."""
    if isinstance(values, Blob):
        return values.data
    if isinstance(values, Mapping):
        return {name: with_data(value) for name, value in values.items()}
    return [with_data(value) for value in values] if isinstance(values, list) else values
