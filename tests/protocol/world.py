"""Decisions of people, looks from outside, and the count at the end (hazards I6, I11)."""

from __future__ import annotations

import dataclasses
import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scripts.helpers.decisions.decisions import make_order
from scripts.helpers.decisions.transfer import export_jobs, import_jobs, plan_import
from scripts.helpers.errors import (
    AmbiguousHistoryError,
    InvalidValueError,
    JobsExistError,
    NoWatermarkError,
    PlanConflictError,
    StaleError,
    UnknownJobError,
    UnknownVersionError,
)
from scripts.helpers.protocol.items import HEAD_KEY, log_key
from tests.protocol.actors import CONTEXTS, DECISIONS, Outcome, Trouble, mark, nothing, position, rows_of
from tests.protocol.model import JOB, History, Intent, State, canonical
from tests.protocol.runs import Runs


class ExportedJob(NamedTuple):
    """A file with the job, and what the model knew of it when it was written."""

    lines: bytes
    kept: History


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
        ), UnknownVersionError, NoWatermarkError, InvalidValueError)  # fmt: skip
        if isinstance(call.error, UnknownVersionError) and not call.intent.disturbed:
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
        """End the lease of whoever has the job: its plan and its version stay, and its fence is too old."""

        def freed(before: State | None, after: State) -> State:
            assert before and before.owner and not before.owner.startswith("import_")
            return dataclasses.replace(before.released(), fence=before.fence + 1)

        old = self.model.state
        call = self.call(Intent("release", freed), trouble, lambda: self.actors[actor].release(JOB, why="a test"))
        if call.refused(UnknownJobError, AmbiguousHistoryError, StaleError, PlanConflictError):
            if isinstance(call.error, StaleError) and not call.intent.disturbed:
                assert isinstance(call.error, PlanConflictError) and old and str(old.owner).startswith("import_")
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
        """Bring the table back from a backup, then tell the doctor."""
        self.model.restore(kept)
        self._decide(
            "restore",
            lambda state: ("SET", state.watermarks, state.run_id),
            None,
            lambda: self.actors[actor].doctor(JOB, after_restore=True),
        )

    # --- moving ---------------------------------------------------------------------------------

    def export(self, actor: str) -> ExportedJob:
        """Write the job to a file."""
        file = io.BytesIO()
        store, now = self.actors[actor].store, self.clock(actor)
        self.call(Intent("export", nothing), None, lambda: export_jobs(store, [JOB], file, now))
        return ExportedJob(file.getvalue(), self.model.snapshot())

    def move(self, actor: str, job: ExportedJob, new_epoch: bool, trouble: Trouble | None = None) -> None:
        """Go on with a table that has nothing but what an import brings, however often that dies."""
        self.model.empty()
        while self._import(actor, job, trouble, new_epoch=new_epoch).unknown:
            trouble = None
        kept, state = job.kept.state, self.model.state
        assert kept and state and state.owner == (None if new_epoch else kept.owner)

    def put_in_place(self, actor: str, job: ExportedJob, replace: bool, trouble: Trouble | None = None) -> None:
        """Import a job where it is already. One that died is done again: until then its history may be of both."""
        before = self.model.state
        call = self._import(actor, job, trouble, replace=replace)
        if call.unknown and call.intent.made:
            call = self._import(actor, job, None, replace=replace)
            assert call.error is None
        if call.refused(StaleError, JobsExistError):
            is_other = isinstance(call.error, JobsExistError) and not replace
            assert call.unknown or call.intent.disturbed or is_other
        elif not call.intent.disturbed:
            assert self.model.state and (self.model.state.owner is None or self.model.state == before)

    def _import(
        self,
        actor: str,
        job: ExportedJob,
        trouble: Trouble | None,
        *,
        replace: bool = False,
        new_epoch: bool = False,
    ) -> Outcome:
        def written(before: State | None, after: State) -> State:
            if intent.made:
                assert before, "a job was let go that is not there"
                return before.released()
            assert job.kept.state
            intent.history = job.kept
            if not replace and not new_epoch:
                return job.kept.state
            state = job.kept.state.decided("SET", job.kept.state.watermarks, job.kept.state.run_id)
            assert after.epoch != state.epoch, "batch ids are used again after an import (I6)"
            # Whoever imports has the job until its history is in order.
            return dataclasses.replace(state, epoch=after.epoch, owner=after.owner, lease_until=after.lease_until)

        def write() -> None:
            order = make_order(None, "a test", self.clock(actor))
            with tempfile.NamedTemporaryFile() as file:
                file.write(job.lines)
                file.flush()
                plan = plan_import(store, Path(file.name), replace=replace, new_epoch=new_epoch)
                import_jobs(store, plan, order)

        store, intent = self.actors[actor].store, Intent("import", written, imported=True, most=2)
        return self.call(intent, trouble, write)

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
        """Ask everything that can be asked; the answers are the model's (I2, I8, I14)."""
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
        """Take everything that is left, then count: each row since the last decision once, in order (I6, I11)."""
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
        """Let every old run try to go on; the job is done, so none of them may change it (I4, I7)."""
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
