"""Decisions of operators, reads from outside, and the count at the end (hazards I6, I11)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from scripts.helpers.decisions.copying import copy_job
from scripts.helpers.errors import (
    AmbiguousHistoryError,
    InvalidValueError,
    NothingThereError,
    PlanConflictError,
    RunInProgressError,
    StaleError,
    UnknownJobError,
)
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.items import HEAD_KEY, log_key
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.store import Store
from tests.protocol.actors import CONTEXTS, DECISIONS, Outcome, Trouble, mark, nothing, position, rows_of
from tests.protocol.model import JOB, History, Intent, State, canonical
from tests.protocol.runs import Runs
from tests.support.dynamodb import FakeDynamoDB


class World(Runs):
    """Everything around one job."""

    # --- decisions ------------------------------------------------------------------------------

    def rewind(self, actor: str, version: int, context: str | None, trouble: Trouble | None = None) -> None:
        old = dict(self.model.log)

        def change(state: State) -> tuple[str, Mapping[str, Any], str | None]:
            entry = self.model.log[version]
            if context is None:
                return "REWIND", entry.watermarks, entry.run_id
            marks = {name: value for name, value in state.watermarks.items() if name != context}
            marks |= {name: value for name, value in entry.watermarks.items() if name == context}
            return "REWIND", marks, state.run_id

        call = self._decide("rewind", change, trouble, lambda: self.actors[actor].rewind(
            JOB, to_version=version, transformation_ctx=context, why="a test"
        ), NothingThereError, InvalidValueError)  # fmt: skip
        if getattr(call.error, "reason", "") == "unknown_version" and not call.intent.disturbed:
            assert version not in old or log_key(version) in self.model.swept
        if isinstance(call.error, InvalidValueError) and not call.intent.disturbed:
            assert context and self.model.state and context not in self.model.state.watermarks

    def reset(self, actor: str, context: str | None, trouble: Trouble | None = None) -> None:
        def change(state: State) -> tuple[str, Mapping[str, Any], str | None]:
            kept = {name: value for name, value in state.watermarks.items() if context not in (None, name)}
            return "RESET", kept, state.run_id if context else None

        call = self._decide(
            "reset",
            change,
            trouble,
            lambda: self.actors[actor].reset(JOB, transformation_ctx=context, why="a test"),
            InvalidValueError,
        )
        if isinstance(call.error, InvalidValueError) and not call.intent.disturbed:
            assert context and self.model.state and context not in self.model.state.watermarks

    def set_watermark(self, actor: str, context: str | None, value: int, trouble: Trouble | None = None) -> None:
        new = mark(context or "rows", value)
        given = new if context else {"rows": new}

        def change(state: State) -> tuple[str, Mapping[str, Any], str | None]:
            return "SET", {**state.watermarks, context or "rows": new}, state.run_id

        self._decide("set", change, trouble, lambda: self.actors[actor].set_watermark(
            JOB, given, transformation_ctx=context, why="a test"
        ), may_be_new=True)  # fmt: skip

    def discard(self, actor: str, trouble: Trouble | None = None) -> None:
        call = self._decide(
            "discard",
            lambda state: ("DISCARD", state.watermarks, state.run_id),
            trouble,
            lambda: self.actors[actor].discard_plan(JOB, why="a test"),
            PlanConflictError,
        )
        if isinstance(call.error, PlanConflictError) and not call.intent.disturbed:
            assert self.model.state and self.model.state.plan is None

    def release(self, actor: str, trouble: Trouble | None = None) -> None:
        """Release the job: its plan and version stay, and the run that held it is fenced."""

        def freed(before: State | None, after: State) -> State:
            assert before  # Releasing is harmless even if the run has given up in the meantime.
            return dataclasses.replace(before.released(), fence=before.fence + 1)

        old = self.model.state
        call = self.call(Intent("release", freed), trouble, lambda: self.actors[actor].release(JOB, why="a test"))
        if call.refused(UnknownJobError, AmbiguousHistoryError, StaleError):
            assert not isinstance(call.error, StaleError) or call.intent.disturbed
        elif not call.intent.disturbed:
            assert len(call.intent.made) == bool(old and old.owner)
            assert self.model.state is None or self.model.state.owner is None

    def _decide(
        self,
        kind: str,
        change: Callable[[State], tuple[str, Mapping[str, Any], str | None]],
        trouble: Trouble | None,
        function: Callable[[], Any],
        *errors: type[BaseException],
        may_be_new: bool = False,
    ) -> Outcome:
        def decided(before: State | None, after: State) -> State:
            assert before or may_be_new
            state = before or State(after.epoch)
            assert kind != "restore" or after.epoch != state.epoch, "batch ids are used again after a restore (I6)"
            return dataclasses.replace(state, epoch=after.epoch if kind == "restore" else state.epoch).decided(
                *change(state)
            )

        call = self.call(Intent(kind, decided), trouble, function)
        if call.refused(UnknownJobError, AmbiguousHistoryError, *errors):
            if isinstance(call.error, UnknownJobError) and not call.intent.disturbed:
                assert self.model.state is None and not self.model.legacy
        else:
            assert len(call.intent.made) == 1
        return call

    def restore(self, actor: str, kept: History) -> None:
        """Restore the table from a backup, then declare the restore to the doctor."""
        self.model.restore(kept)
        self._decide(
            "restore",
            lambda state: ("SET", state.watermarks, state.run_id),
            None,
            lambda: self.actors[actor].decisions.restore(JOB, {}, why="a backup came back"),
        )

    # --- another table ----------------------------------------------------------------------------

    def copy(self, actor: str, there: Trouble | None, back: Trouble | None) -> None:
        """Copy the job to another table and back; a copy that died is repeated until it succeeds."""

        def moved(before: State | None, after: State) -> State:
            assert before, "a job was moved that is not there"
            return dataclasses.replace(before.released(), fence=before.fence + 1)

        def returned(before: State | None, after: State) -> State:
            # The first write at the target only announces the copy.
            return before if before and after.fence == before.fence else moved(before, after)

        def legs(one: Store, other: Store, trouble: Trouble | None) -> bool:
            """Copy the job from one table to the other; return False if the copy was refused."""
            lookups = Lookups(one, lambda: self.clock(actor), ".*")
            while True:
                intent = Intent("copy", moved) if one is here else Intent("copy", returned, most=2)
                call = self.call(intent, trouble, lambda: copy_job(Changes(lookups), other, JOB))
                if not call.refused(UnknownJobError, AmbiguousHistoryError, RunInProgressError, StaleError):
                    return True
                assert not isinstance(call.error, StaleError) or call.intent.disturbed
                if not call.unknown:
                    return False
                trouble = None

        double: Any = FakeDynamoDB("other")
        here, elsewhere = self.actors[actor].store, Store("other", double)
        if legs(here, elsewhere, there):
            assert legs(elsewhere, here, back), "a job whose copy has arrived could not come back"

    def adopt(self, actor: str, run_id: str) -> None:
        self.call(Intent("adopt", nothing), None, lambda: self.actors[actor].adopt(JOB, run_id))

    def doctor(self, actor: str, repair: bool, trouble: Trouble | None = None) -> None:
        def fence(before: State | None, after: State) -> State:
            assert before and repair and before.owner is None, "the doctor ended a run"
            return dataclasses.replace(before, fence=before.fence + 1)

        call = self.call(Intent("doctor", fence), trouble, lambda: self.actors[actor].doctor(JOB, repair=repair))
        state = self.model.state
        if call.unknown or call.intent.disturbed:
            return
        if call.refused(UnknownJobError) or state is None:
            assert state is None
            assert [finding.kind for finding in call.value or ()] == ["no head"] * bool(self.model.legacy)
            return
        assert not [finding for finding in call.value if finding.kind == "missing chunk"]
        missing = {finding.detail for finding in call.value if finding.kind == "missing log entry"}
        swept = {f"version {version}" for version in self.model.log if log_key(version) in self.model.swept}
        assert missing <= {f"version {state.version}"} | swept, "a version that is there is called missing"

    # --- looking --------------------------------------------------------------------------------

    def look(self, actor: str) -> None:
        """Make every query; the answers must match the model (I2, I8, I14)."""
        state, watermarks = self.model.state, self.actors[actor]
        if state is None:
            return
        head = watermarks.latest(JOB)
        assert (head.version, head.fence) == (state.version, state.fence)
        item = self.model.legacy_read()
        assert item and item["runId"]["S"] == HEAD_KEY
        if state.run_id is not None:
            assert canonical(watermarks.get_watermark_values(JOB)) == canonical(state.watermarks)
            assert watermarks.get_most_recent_run_id(JOB) == state.run_id
        found = [entry.version for entry in watermarks.history(JOB)]
        there = {version for version in self.model.log if (JOB, log_key(version)) in self.model.items}
        assert found == sorted(there | ({state.version} if state.version else set()), reverse=True)

    # --- the end --------------------------------------------------------------------------------

    def drain(self) -> None:
        """Process what remains, then check that each row since the last decision came once, in order (I6, I11)."""
        if self.model.state is None and len(self.model.legacy) > 1:
            self.adopt("a", max(self.model.legacy))
        while True:
            handle = self.begin("a", self.new_run_id(), take_over=True)
            assert handle is not None
            if handle.plan is None:
                if all(position(handle.state.watermarks, name) >= count for name, count in self.source.items()):
                    break
                self.freeze(handle, dict.fromkeys(CONTEXTS, 1_000))
            self.process(handle)
            self.commit(handle)
            assert repr(handle.run).find("committed") > 0
        self.abort(handle)
        self._count()

    def zombies(self) -> None:
        """Let every old run try to continue; the job is done, so none of them may change it (I4, I7)."""
        before = self.model.state
        for handle in self.handles:
            self.process(handle)
            self.commit(handle)
            self.heartbeat(handle)
            self.abort(handle)
        assert self.model.state == before

    def _count(self) -> None:
        log = self.model.log
        decided = max((version for version, entry in log.items() if entry.op in DECISIONS), default=0)
        for context, count in self.source.items():
            start = position(log[decided].watermarks, context) if decided else 0
            got: list[str] = []
            for version, entry in sorted(log.items()):
                if version > decided and entry.op == "COMMIT":
                    got += self.sink[f"{entry.epoch}-{version:010d}"].get(context, [])  # type: ignore[attr-defined]
            assert got == rows_of(context, start, max(start, count)), f"{context} is lost or doubled (I6, I11)"
