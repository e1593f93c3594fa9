"""The state machine over `World`: calls in any order, by live and by dead runs, with any trouble in them."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from scripts.helpers.protocol import chunks
from tests.protocol.actors import CONTEXTS, Handle, Trouble, in_memory
from tests.protocol.model import History
from tests.protocol.world import World
from tests.support.doubles import Double

actors = st.sampled_from(["a", "b"])
contexts = st.none() | st.sampled_from(CONTEXTS)
kinds = st.sampled_from(["drop", "reply-lost", "re-send", "throttle", "die-before", "die-after"])
requests = st.integers(1, 3) | st.integers(1, 8)
faults = st.builds(Trouble, requests, kinds, st.sampled_from([1, 1, 2, 99]), st.none())
MEANWHILE = ("take over", "release", "reset", "rewind", "set", "discard", "repair", "commit", "abort", "heartbeat")
disturbances = st.tuples(requests, st.sampled_from(MEANWHILE))
STEPS = ("begin", "freeze", "process", "commit")
troubles = st.none() | faults | disturbances | faults
"""Nothing, a fault of the network, or another call in the middle of this one."""
requests_of_copy = st.integers(5, 30)
troubles_of_copy = (
    troubles
    | st.builds(Trouble, requests_of_copy, kinds, st.sampled_from([1, 99]), st.none())
    | st.tuples(requests_of_copy, st.sampled_from(MEANWHILE))
)
"""A copy takes more requests than any other call: one for each item."""


class Protocol(RuleBasedStateMachine):
    """Runs of two actors on one job. Handles are kept forever, so old ones can still act."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(logging.root.manager, "disable", logging.CRITICAL)
        self.world: World
        self.backups: list[History] = []

    @initialize(
        skew=st.integers(-24 * 60, 24 * 60),
        retention=st.none() | st.sampled_from([timedelta(minutes=20), timedelta(days=3)]),
        head_bytes=st.sampled_from([None, None, 0, 400]),
        cut_bytes=st.sampled_from([None, 60]),
        commits=st.integers(0, 3),
    )
    def start(
        self, skew: int, retention: timedelta | None, head_bytes: int | None, cut_bytes: int | None, commits: int
    ) -> None:
        if cut_bytes is not None:
            self.patch.setattr(chunks, "INLINE_BYTES", 0)
            self.patch.setattr(chunks, "CHUNK_BYTES", cut_bytes)
        if head_bytes is not None:
            self.patch.setattr(chunks, "MAX_BYTES", head_bytes)
            self.patch.setattr(chunks, "WORTH_BYTES", 0)
        self.world = World(retention, self.make_double)
        self.world.skew["b"] = timedelta(minutes=skew)
        for number in range(commits):
            self.world.source[CONTEXTS[number % 2]] += 3
            self._run("a", 2)

    def make_double(self) -> Double:
        """Create the table for an example."""
        return in_memory()

    def _trouble(self, drawn: Any, handle: Handle | None = None) -> Trouble | None:
        if drawn is None or isinstance(drawn, Trouble):
            return drawn
        request, what = drawn
        return Trouble(request, meanwhile=lambda: self._disturb(what, handle))

    def _disturb(self, what: str, busy: Handle | None) -> None:
        """Make another call while one is under way. The busy handle makes none: its lock allows one call at a time."""
        if what == "take over":
            self.world.begin("b", self.world.new_run_id(), take_over=True)
        elif what == "reset":
            self.world.reset("b", None)
        elif what == "rewind" and self.world.model.state:
            self.world.rewind("b", max(1, self.world.model.state.version - 1), None)
        elif what == "set":
            self.world.set_watermark("b", "files", min(1, self.world.source["files"]))
        elif what == "discard":
            self.world.discard("b")
        elif what == "release":
            self.world.release("b")
        elif what == "repair":
            self.world.doctor("b", repair=True)
        for handle in [handle for handle in self.world.handles if handle is not busy][-1:]:
            if what == "commit":
                self.world.process(handle)
                self.world.commit(handle)
            elif what == "abort":
                self.world.abort(handle)
            elif what == "heartbeat":
                self.world.heartbeat(handle)

    # --- the world ------------------------------------------------------------------------------

    @rule(context=st.sampled_from(CONTEXTS), count=st.integers(1, 5))
    def grow(self, context: str, count: int) -> None:
        self.world.source[context] += count

    @rule(minutes=st.sampled_from([1, 16, 60, 24 * 60]), skew=st.none() | st.integers(-24 * 60, 24 * 60), actor=actors)
    def pass_time(self, minutes: int, skew: int | None, actor: str) -> None:
        """Let time pass, or set a clock; then let DynamoDB delete what has expired."""
        if skew is not None:
            self.world.skew[actor] = timedelta(minutes=skew)
        else:
            self.world.now += timedelta(minutes=minutes)
        self.world.model.sweep(self.world.now)

    @rule(run_id=st.sampled_from(["jr_old_1", "jr_old_2"]), value=st.integers(0, 3))
    def legacy_write(self, run_id: str, value: int) -> None:
        self.world.model.legacy_write(run_id, min(value, self.world.source["rows"]))

    @rule(actor=actors, restore=st.booleans())
    def back_up(self, actor: str, restore: bool) -> None:
        if restore and self.backups:
            self.world.restore(actor, self.backups[-1])
        elif self.world.model.state is not None:
            self.backups.append(self.world.model.snapshot())

    @rule(actor=actors, there=troubles_of_copy, back=troubles_of_copy)
    def copy(self, actor: str, there: Any, back: Any) -> None:
        """Copy the job to another table, and back."""
        if self.world.model.state is not None:
            self.world.copy(actor, self._trouble(there), self._trouble(back))

    # --- runs -----------------------------------------------------------------------------------

    @rule(target=handles, actor=actors, same=st.booleans(), take_over=st.booleans(), trouble=troubles)
    def begin(self, actor: str, same: bool, take_over: bool, trouble: Any) -> Any:
        world = self.world
        run_id = world.handles[-1].run.run_id if same and world.handles else world.new_run_id()
        handle = world.begin(actor, run_id, take_over=take_over, trouble=self._trouble(trouble))
        return handle if handle else multiple()

    @rule(target=handles, actor=actors, count=st.integers(1, 9), until=st.sampled_from(STEPS))
    def run(self, actor: str, count: int, until: str) -> Any:
        """Do a whole run, or one that stops after a step."""
        handle = self._run(actor, count, until)
        return handle if handle else multiple()

    @rule(
        target=handles,
        actor=actors,
        count=st.integers(1, 9),
        troubled=st.sampled_from(["commit", "freeze", "begin"]),
        trouble=faults | disturbances,
    )
    def troubled_run(self, actor: str, count: int, troubled: str, trouble: Any) -> Any:
        """Do a run with trouble in one of its calls."""
        handle = self._run(actor, count, "commit", troubled, trouble)
        return handle if handle else multiple()

    def _run(
        self, actor: str, count: int, until: str = "commit", troubled: str | None = None, trouble: Any = None
    ) -> Handle | None:
        def at(step: str) -> Trouble | None:
            return self._trouble(trouble, handle) if step == troubled else None

        world, steps, handle = self.world, STEPS[: STEPS.index(until)], None
        handle = world.begin(actor, world.new_run_id(), trouble=at("begin"))
        if handle is None:
            return None
        if "begin" in steps:
            world.freeze(handle, dict.fromkeys(CONTEXTS, count), at("freeze"))
        if "freeze" in steps:
            world.process(handle)
        if "process" in steps:
            world.commit(handle, at("commit"))
        return handle

    @rule(step=st.sampled_from(["commit", "freeze", "abort", "heartbeat"]), trouble=troubles)
    def go_on(self, step: str, trouble: Any) -> None:
        """Let the newest run act, because it is the one most likely to hold the job."""
        for handle in self.world.handles[-1:]:
            self._act(handle, step, trouble)

    @rule(
        handle=handles,
        most=st.dictionaries(st.sampled_from(CONTEXTS), st.integers(0, 9)),
        trouble=troubles,
    )
    def freeze(self, handle: Handle, most: dict[str, int], trouble: Any) -> None:
        self.world.freeze(handle, most, self._trouble(trouble, handle))

    @rule(handle=handles, step=st.sampled_from(["process", "commit", "abort", "heartbeat"]), trouble=troubles)
    def act(self, handle: Handle, step: str, trouble: Any) -> None:
        """Let any run act, however old it is."""
        self._act(handle, step, trouble)

    def _act(self, handle: Handle, step: str, trouble: Any) -> None:
        troubled = self._trouble(trouble, handle)
        if step == "freeze":
            self.world.freeze(handle, dict.fromkeys(CONTEXTS, 2), troubled)
        elif step == "abort":
            self.world.abort(handle, troubled)
        elif step == "heartbeat":
            self.world.heartbeat(handle, troubled)
        else:
            self.world.process(handle)
        if step == "commit":
            self.world.commit(handle, troubled)

    # --- people ---------------------------------------------------------------------------------

    @rule(
        actor=actors,
        kind=st.sampled_from(["rewind", "reset", "set", "discard", "release"]),
        context=contexts,
        number=st.integers(0, 9),
        trouble=troubles,
    )
    def decide(self, actor: str, kind: str, context: str | None, number: int, trouble: Any) -> None:
        """Rewind to one of the last versions, reset, set a watermark, discard the plan, or release the job."""
        world, troubled = self.world, self._trouble(trouble)
        if kind == "rewind":
            version = world.model.state.version if world.model.state else 0
            world.rewind(actor, max(1, version + 1 - number), context, troubled)
        elif kind == "reset":
            world.reset(actor, context, troubled)
        elif kind == "set":
            world.set_watermark(actor, context, min(number, world.source[context or "rows"]), troubled)
        elif kind == "release":
            world.release(actor, troubled)
        else:
            world.discard(actor, troubled)

    @rule(actor=actors, repair=st.booleans(), trouble=troubles)
    def look(self, actor: str, repair: bool, trouble: Any) -> None:
        self.world.doctor(actor, repair, self._trouble(trouble))
        self.world.look(actor)

    # --- what holds -----------------------------------------------------------------------------

    @invariant()
    def items_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.model.check()

    def teardown(self) -> None:
        try:
            if hasattr(self, "world") and sys.exc_info()[0] is None:
                self.world.drain()
                self.world.zombies()
                self.world.model.check()
                self.world.look("b")
        finally:
            self.patch.undo()
