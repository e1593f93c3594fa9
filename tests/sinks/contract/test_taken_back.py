"""Random stories in which a target loses data between runs: each lost row is reported until it is there again.

A run has new rows or none, and may die before or after it publishes or takes back. Between runs an operator rewinds or
resets the job (the target changes at once, or in the next run), and a target is restored from a copy, deleted, or
replaced by another table of the same name.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.batch.publishing import take_back_now
from scripts.helpers.errors import StagedFilesLostError, UnpublishedError
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks
from tests.sinks.contract.targets import TARGETS, Copy, Database, Delta, Files, Folder, Iceberg, Target, numbers
from tests.support.databases import SQLiteFile
from tests.support.long import cases
from tests.support.steps import KilledError
from tests.support.written import WrittenSQLite

STEPS = 14
COMMAND = re.compile(r"`?watermarks (?:reset repairs|rewind repairs --to-version (\d+)) --retract --why TEXT`")


class Story:
    """One job and its target, and what readers of the target should see.

    Attributes
    ----------
    told
        The steps so far, shown when the test fails.
    """

    def __init__(self, copy: Copy, seed: int, patch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture) -> None:
        self.copy, self.patch, self.logged = copy, patch, logged
        self.random = random.Random(seed)
        self.told: list[str] = []
        self.rows: dict[int, list[int]] = {}
        """The ids that each version has brought."""
        self.at: dict[int, int] = {0: 0}
        """How many batches of the source are behind the watermark of each version."""
        self.saved: list[Callable[[], object]] = []
        self.is_touched = False
        copy.run(numbers(1))
        self.rows[1], self.at[1] = [1], 1

    # --- what is done ---------------------------------------------------------------------------

    def run(self, *, fresh: bool, dies: bool = False) -> None:
        copy, before = self.copy, self.position
        was_lost = bool(self.lost()) and not self.is_noted()
        batches = [numbers(len(copy.batches) + 1)] if fresh else []
        self.logged.clear()
        with self.patch.context() as patch:
            if dies:
                self._die_in(patch)
            try:
                job = copy.begin(*batches)
                job.commit()
            except (StagedFilesLostError, UnpublishedError) as error:
                # The restored database file lacks what was staged, or the table is gone that rows were staged for. Go
                # back to the version before that of the error.
                if isinstance(error, UnpublishedError) and not self.is_table_gone():
                    raise
                self.rewind(error.version - 1)
                return
            except KilledError:
                pass
        head = copy.watermarks.latest(copy.job_id)
        if head.claim is not None:
            copy.watermarks.release(copy.job_id, why="it is dead")
        version = head.version
        if version in self.rows:
            self.told.append("a run dies before its commit")
            if head.plan is not None:
                copy.watermarks.discard_plan(copy.job_id, why="a later run may read more")
                self._decided(before, "discard")
            return
        self.rows[version] = list(range(before + 1, len(copy.batches) + 1))
        self.at[version] = len(copy.batches)
        warned = [one for one in self.logged.messages if "event=target_behind " in one]
        self.told.append(f"run {version} of {self.rows[version]}{' dies' if dies else ''}, {len(warned)} warnings")
        # A run with new rows warns before its batch hides the loss in the target's own record.
        if was_lost and not dies and self.rows[version]:
            assert warned, self.told

    def _die_in(self, patch: pytest.MonkeyPatch) -> None:
        """Kill a run before or after it changes its target: it writes nothing afterwards, and keeps its lease."""
        sink_class, abort = self.copy.target.sink_class, Run.abort
        is_done = self.random.random() < 0.5
        for name in ("publish", "retract"):
            patch.setattr(sink_class, name, partialmethod(_die, getattr(sink_class, name) if is_done else None))

        def give_up(run: Run, error: BaseException | None = None, **options: Any) -> None:
            if not isinstance(error, KilledError):
                abort(run, error, **options)

        patch.setattr(Run, "abort", give_up)

    def decide(self) -> None:
        copy, position = self.copy, self.position
        head = copy.watermarks.latest(copy.job_id)
        known = [one for one in self.at if one and one < head.version and not head.has_retracted(one)]
        what = self.random.choice(["note", "reset", *["rewind"] * 3])
        if what == "note":
            copy.watermarks.set_watermark(copy.job_id, {"note": 1}, why="a decision")
            self._decided(position, "note")
        elif what == "reset" or not known:
            copy.watermarks.reset(copy.job_id, retract=True, why="a decision")
            self._decided(0, "reset")
        else:
            # Half of the rewinds go to a version with the same position: no row is read again.
            same = [one for one in known if self.at[one] == position]
            self.rewind(self.random.choice(same if same and self.random.random() < 0.5 else known))

    def rewind(self, version: int) -> None:
        self.copy.watermarks.rewind(self.copy.job_id, to_version=version, retract=True, why="a decision")
        self._decided(self.at[version], f"rewind to {version}")
        # If the command can reach the target, it deletes the rows at once.
        if self.random.random() < 0.5:
            for retraction in self.copy.watermarks.latest(self.copy.job_id).retracting:
                sink = self.copy.target.sink(**self.copy.options)
                take_back_now(self.copy.watermarks, self.copy.job_id, sink, retraction)
            self.told.append("taken back by the command")

    def _decided(self, position: int, what: str) -> None:
        version = self.copy.watermarks.latest(self.copy.job_id).version
        self.rows[version], self.at[version] = [], position
        self.told.append(f"{version} is a {what}")

    def take_back(self) -> None:
        at = self.random.randrange(len(self.saved) + 1)
        if at < len(self.saved):
            self.saved[at]()
            # After a restore, copies that are newer than the restored one are not used any more.
            del self.saved[at + 1 :]
        else:
            destroy(self.copy.target)
        self.is_touched = True
        self.told.append(f"taken back: {self.copy.target.ids()}")

    def repair(self) -> None:
        """Run the commands that the findings name."""
        remedies = [one.remedy for one in self.findings() if one.kind == "target behind"]
        commands = [found for remedy in remedies if (found := COMMAND.search(remedy)) is not None]
        assert len(commands) == len(remedies), (remedies, self.told)
        if not commands:
            return
        versions = [int(found[1] or 0) for found in commands]
        if min(versions):
            self.rewind(min(versions))
        else:
            self.copy.watermarks.reset(self.copy.job_id, retract=True, why="as it says")
            self._decided(0, "reset")

    def step(self) -> None:
        saved = self.saved
        steps: list[tuple[int, Callable[[], None]]] = [
            (4, partial(self.run, fresh=True)),
            (2, partial(self.run, fresh=False)),
            (1, partial(self.run, fresh=True, dies=True)),
            (3, lambda: saved.extend(save(self.copy.target))),
            (3, self.take_back),
            (1, self.decide),
            (1, self.repair),
        ]
        self.random.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()

    def end(self) -> None:
        """Run and repair until no row is lost."""
        for _ in range(4):
            self.run(fresh=False)
            self.check()
            self.repair()
        self.run(fresh=False)

    # --- what is found --------------------------------------------------------------------------

    @property
    def position(self) -> int:
        return self.at[self.copy.watermarks.latest(self.copy.job_id).version]

    def lost(self) -> Counter[int]:
        """Return rows that the watermark counts as loaded, but that no run will publish and no reader sees."""
        head = self.copy.watermarks.latest(self.copy.job_id)
        waiting = [number for one in head.unpublished for number in self.rows[one.version]]
        expected = Counter(range(1, self.position + 1)) - Counter(waiting)
        return expected - Counter(self.copy.target.ids())

    def findings(self) -> list[Any]:
        copy, target = self.copy, self.copy.target
        found = examine_targets(copy.watermarks, copy.job_id, sinks=[target.sink(**copy.options)])
        return [*found, *copy.watermarks.doctor(copy.job_id)]

    def is_table_gone(self) -> bool:
        """Return whether the target is an Iceberg table that was dropped."""
        return isinstance(self.copy.target, Iceberg) and self.copy.target.table is None

    def is_noted(self) -> bool:
        """Return whether a run has recorded the loss already."""
        head = self.copy.watermarks.latest(self.copy.job_id)
        return any(one.lacks_after is not None for one in head.at_targets)

    def check(self) -> None:
        behind = [one.detail for one in self.findings() if one.kind == "target behind"]
        lost = self.lost()
        assert behind or not lost, (lost, "\n".join(self.told))
        # A copy may bring back rows of a batch that was taken back; restoring the lost rows then forgets the target.
        assert self.is_touched or not behind, (behind, "\n".join(self.told))
        self.is_touched = bool(behind)


def _die(sink: Any, done: Callable[..., object] | None, record: Any) -> None:
    if done is not None:
        done(sink, record)
    raise KilledError


def save(target: Target) -> list[Callable[[], object]]:
    """Return ways to restore a target's present state, with its own records and, for a database, also without."""
    if isinstance(target, Iceberg):
        table = target.table
        return [] if table is None else [partial(roll_back, target, table.metadata.table_uuid, target.newest())]
    if isinstance(target, Database):
        file = Path(target.written.server.path)
        copied = file.with_name(f"saved-{len(list(file.parent.iterdir()))}.db")
        shutil.copy(file, copied)
        return [partial(shutil.copy, copied, file), partial(make_again, target, copied)]
    assert isinstance(target, Files | Delta)
    place = Path(target.place.uri)
    if not place.exists():
        return []
    copied = place.with_name(f"saved-{len(list(place.parent.iterdir()))}")
    shutil.copytree(place, copied)

    def bring_back() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(copied, place)

    return [bring_back]


def roll_back(target: Iceberg, uuid: Any, to: int) -> None:
    """Roll a table back, unless it was dropped in the meantime."""
    if target.table is not None and target.table.metadata.table_uuid == uuid:
        target.roll_back(to)


def make_again(target: Database, copied: Path | None = None) -> None:
    """Drop a table and make it again, empty or with the rows in a copy of the database file."""
    table = target.quoted(target.name)
    target.written.sql(f"DROP TABLE {table}")
    target.create(numbers().schema, batch=pa.string())
    if copied is not None:
        target.written.sql(f"ATTACH '{copied}' AS old", f"INSERT INTO {table} SELECT * FROM old.{table}")


def destroy(target: Target) -> None:
    """Delete a target; make it again if the sink does not make one."""
    if isinstance(target, Iceberg):
        if target.table is not None:
            target.catalog.drop_table(target.name.partition(".")[2])
    elif isinstance(target, Database):
        make_again(target)
    else:
        assert isinstance(target, Files | Delta)
        shutil.rmtree(target.place.uri, ignore_errors=True)


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Return an empty target of a kind that needs no server; a database has its own file."""
    kind = TARGETS[request.param]
    if kind.family == "iceberg":
        return Iceberg(kind, f"lake.raw.taken_back_{tmp_path.name}", request.getfixturevalue("contract_catalog"))
    if kind.family != "database":
        return (Files if kind.family == "files" else Delta)(kind, Folder(tmp_path / "lake" / "raw"))
    (tmp_path / "files").mkdir()
    made = Database(kind, WrittenSQLite(SQLiteFile(tmp_path / "files" / "target.db")), "t")
    made.create(numbers().schema, batch=pa.string())
    return made


@pytest.mark.parametrize("seed", range(cases(1, long=60)))
@pytest.mark.parametrize("target", ["pandas", "deltalake", "pyiceberg", "sqlite"], indirect=True)
def test_each_lost_row_is_reported_until_it_is_there_once_when_targets_are_taken_back_between_runs(
    target: Target, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watermarks = Watermarks(f"sqlite:{tmp_path}/watermarks.db")
    watermarks.create_table()
    options = {"batch_column": "batch"} if "batch_column" in target.kind.can else {}
    story = Story(Copy(watermarks, target, **options), seed, monkeypatch, caplog)
    caplog.set_level(logging.WARNING)

    for _ in range(STEPS):
        story.step()
        story.check()
    story.end()

    assert target.ids() == [*range(1, len(story.copy.batches) + 1)], "\n".join(story.told)
    assert [one.detail for one in story.findings() if one.kind == "target behind"] == []
