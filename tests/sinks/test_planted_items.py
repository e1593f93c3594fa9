"""Random walks: an attacker writes anything into the items of one job, and everything of the other job stays as it was.

Each walk alters one or two attributes of the planter's items. Then runs and an operator's commands follow in any
order. Everything that only the victim may change is compared byte by byte: its target and staging place, the files
next to them, and all that the package returns about the job.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
from click.testing import CliRunner

from scripts.cli import surroundings
from scripts.cli.main import cli
from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol import items
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.watermarks import Watermarks
from tests.support.databases import PostgresServer
from tests.support.dynamodb import FakeDynamoDB
from tests.support.long import cases
from tests.support.neighbours import (
    KINDS,
    PLANTED,
    PLANTER,
    VICTIM,
    DatabaseNeighbours,
    Neighbours,
    record_of,
    retraction_of,
)
from tests.support.patience import LONG
from tests.support.spoiled_table import SPOILED, attribute_at, paths_in, spoiled
from tests.support.steps import KilledError, commit
from tests.support.table_items import put_item
from tests.support.written import WrittenPostgres

WALKS = {"files": 3, "sqlite": 3, "delta": 2, "iceberg": 2, "postgres": 2}
"""How many walks there are, by the kind of target; seventy times as many in `make test-long`."""
AT_ONCE = 10
WHY = ("--why", "a test", "--who", "sam", "--yes")
LARGE = "".join(random.Random(1).choices("0123456789abcdef", k=200_000))
Item = dict[str, Any]


class ScannedTable(FakeDynamoDB):
    """The in-memory DynamoDB with Scan, which returns all items on one page."""

    def scan(self, **given: Any) -> dict[str, Any]:
        found = [item for (job, _), item in self.items.items() if given.get("Segment", 0) == 0 and job]
        return {"Items": found, "Count": len(found), "ScannedCount": len(found)}


class PostgresNeighbours(DatabaseNeighbours):
    """The two jobs, in a PostgreSQL schema of their own."""

    schemas = count(1)

    def __init__(self, watermarks: Watermarks, folder: Path, server: PostgresServer) -> None:
        schema = f"walk_{next(self.schemas)}"
        written = WrittenPostgres(server)
        written.sql(f"CREATE SCHEMA {schema}")

        def connect() -> Any:
            connection = written.connect()
            connection.execute(f"SET search_path TO {schema}")
            connection.commit()
            return connection

        super().__init__(watermarks, folder, connect)

    def tables(self) -> list[str]:
        found = self.ask("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename")
        return [name for (name,) in found]


def run_with_files(two: Neighbours, job: str, *new: int) -> None:
    """Let a job read rows and files, and delete the files that it has read."""
    two.source[job] += new
    inbox = two.folder / "inbox" / job
    for number in new:
        (inbox / f"{number}.csv").write_text(f"id\n{number + 100}\n")
    with IncrementalJob(two.watermarks, job, new_run_id()) as began:
        rows = began.rows_since(pd.DataFrame({"id": two.source[job]}), "id")
        files = began.new_files(str(inbox), after_commit="delete")
        read = files.read_pandas("csv", dtype={"id": "int64"})
        # An altered state may leave no file to read, and the frame then has no columns.
        began.write(pd.concat([rows, read.reindex(columns=["id"])]).astype("int64"), two.sink(job))


def build(two: Neighbours, dies: str) -> None:
    """Bring both jobs to the state in which an attacker alters the items of one of them.

    The victim has a batch that no reader sees yet. The planter has such a batch too, or an open plan; it also has
    versions that were taken back, a state in chunks, and a record of a run.
    """
    for place in ("home/alice", f"inbox/{PLANTER}", f"inbox/{VICTIM}"):
        (two.folder / place).mkdir(parents=True)
    (two.folder / "home/alice/letter.txt").write_text("dear")
    (two.folder / f"inbox/{VICTIM}/1.csv").write_text("id\n1\n")
    for number in (1, 2):
        two.run(VICTIM, number)
        run_with_files(two, PLANTER, number)
    two.watermarks.rewind(PLANTER, to_version=1, retract=True, why="a test")
    before = two.watermarks.latest(PLANTER).watermarks
    commit(two.watermarks, PLANTER, new_run_id(), {**before, "large": LARGE})
    run_with_files(two, PLANTER, 3)
    two.leave_waiting(VICTIM, 3)
    with patch.object(type(two.sink(PLANTER)), dies, side_effect=KilledError), pytest.raises(KilledError):
        run_with_files(two, PLANTER, 4)
    now = two.watermarks.clock()
    record = RunRecord(PLANTER, "jr_2", "FAILED", now, now, {"Attempt": 0}, completed_on=now, error="x")
    put(two.watermarks, record.to_item())


def put(watermarks: Watermarks, *made: dict[str, Any]) -> None:
    for item in made:
        put_item(watermarks, item)


# --- what is planted --------------------------------------------------------------------------------


def traps(two: Neighbours) -> list[Any]:
    """Return attributes to plant: texts and numbers that look like values of this package."""
    theirs = record_of(two.watermarks, VICTIM)
    texts = [
        *(str(value) for value in theirs.values()), VICTIM, "../victim", f"../../{VICTIM}", str(two.folder), "/",
        f"{two.folder}/home", f"file://{two.folder}/home", "alice", "home/alice", f"{VICTIM}'; DROP TABLE {VICTIM}; --",
        "' OR '1'='1", "\\", "7,'a','b'); DROP TABLE victim; --", theirs["job"][:8], "%s", "{}", "?",
    ]  # fmt: skip
    numbers = ["0", "1", "3", "1000000000", "-1"]
    return [{"S": text} for text in texts] + [{"N": number} for number in numbers]


def in_json(chance: random.Random, two: Neighbours, text: str) -> str:
    """Return a JSON text with something altered: a field, a whole record, or a record of the victim added to it."""
    made = json.loads(text)
    theirs = record_of(two.watermarks, VICTIM)
    kinds = [theirs, retraction_of(theirs), retraction_of(theirs, last=10**9)]
    if not isinstance(made, list) or chance.random() < 0.2:
        made = [*made, chance.choice(kinds)] if isinstance(made, list) else kinds
        return json.dumps(made)
    for _ in range(chance.randint(1, 2)):
        if not made or not isinstance(made[0], dict):
            return json.dumps([chance.choice([theirs, [], 1, None])])
        record = chance.choice(made)
        name = chance.choice(list(record))
        like = theirs.get(name, record[name])
        trap = next(iter(chance.choice(traps(two)).values()))
        record[name] = chance.choice([like, trap, int(trap) if trap.isdecimal() else trap, None, [], {}, like])
    return json.dumps(made)


def altered(chance: random.Random, two: Neighbours, item: Item) -> Item:
    """Return an item with one attribute altered, at any depth."""
    paths = list(paths_in(item))
    # Records and plans lie deep, beside many counters, so they are chosen more often than chance would choose them.
    deep = [path for path in paths if {"unpublished", "retracting", "outputs", "plan", "watermarks"} & set(path)]
    path = chance.choice(deep if deep and chance.random() < 0.6 else paths)
    found = attribute_at(item, path)
    ((tag, value),) = found.items()
    if tag == "S" and value[:1] in "[{" and chance.random() < 0.8:
        with suppress(ValueError):
            return spoiled(item, path, {"S": in_json(chance, two, value)})
    same = [trap for trap in traps(two) if set(trap) == {tag}]
    if same and chance.random() < 0.7:
        return spoiled(item, path, chance.choice(same))
    return spoiled(item, path, chance.choice(list(SPOILED.values())))


def with_record(chance: random.Random, two: Neighbours, head: Item) -> Item:
    """Return a head with a whole record that names the victim's data; random changes would rarely produce one."""
    own, theirs = record_of(two.watermarks, PLANTER), record_of(two.watermarks, VICTIM)
    record = chance.choice(PLANTED)(own, theirs)
    if chance.random() < 0.5:
        return head | {"unpublished": {"S": json.dumps([record])}}
    return head | {"retracting": {"S": json.dumps([retraction_of(record, last=chance.choice([1, 3, 10**9]))])}}


def plant_anything(chance: random.Random, two: Neighbours, double: FakeDynamoDB) -> None:
    own = {key: item for (job, key), item in double.items.items() if job == PLANTER}
    times = chance.randint(1, 2)
    if chance.random() < 0.4:
        own[items.HEAD_KEY] = with_record(chance, two, own[items.HEAD_KEY])
        times = chance.choice([0, 0, 0, 1])
    for _ in range(times):
        others = [key for key in own if key != items.HEAD_KEY]
        key = items.HEAD_KEY if chance.random() < 0.5 else chance.choice(others)
        own[key] = altered(chance, two, own[key])
    put(two.watermarks, *own.values())


# --- what follows -----------------------------------------------------------------------------------


def commands(two: Neighbours) -> dict[str, list[str]]:
    return {
        "doctor": ["doctor", PLANTER, "--repair", "--yes"],
        "rewind": ["rewind", PLANTER, "--to-version", "1", "--retract", *WHY],
        "reset": ["reset", PLANTER, "--retract", *WHY],
        "report": ["report", "--html", f"{two.folder}/report.html", "--yes"],
        "show": ["show", PLANTER],
    }


def ordered(two: Neighbours, *arguments: str) -> None:
    """Run an operator's command. Errors of this package may end it; any other error fails the test."""
    done = CliRunner().invoke(cli, ["--table", two.watermarks.table_name, *arguments], prog_name="watermarks")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception


def repaired(two: Neighbours) -> None:
    """Repair from a script what the command cannot reach."""
    with suppress(WatermarkError):
        examine_targets(two.watermarks, PLANTER, sinks=[two.sink(PLANTER)], repair=True)


def planter_runs(two: Neighbours) -> None:
    with suppress(WatermarkError):
        run_with_files(two, PLANTER, max(two.source[PLANTER]) + 1)


def answers(two: Neighbours) -> tuple[Any, ...]:
    """Return what the package reports about the victim."""
    marks = two.watermarks
    history = [(one.version, one.change, one.watermarks) for one in marks.history(VICTIM)]
    return two.rows(VICTIM), history, marks.get_watermark_values(VICTIM), marks.latest(VICTIM), marks.doctor(VICTIM)


def untouched(two: Neighbours) -> dict[str, Any]:
    found = two.of_others()
    found.pop("report.html", None)
    return {name: data for name, data in found.items() if not name.startswith(f"inbox/{PLANTER}/")}


def walk(two: Neighbours, double: FakeDynamoDB, seed: str) -> None:
    chance = random.Random(seed)
    plant_anything(chance, two, double)
    if chance.random() < 0.5:
        two.run(VICTIM, 4)
    before, said = untouched(two), answers(two)
    steps: list[Callable[[], None]] = [partial(ordered, two, *given) for given in commands(two).values()]
    steps += [partial(planter_runs, two), partial(repaired, two), partial(planter_runs, two)]
    chance.shuffle(steps)
    for step in steps:
        step()
    assert untouched(two) == before
    assert answers(two) == said
    two.run(VICTIM, 5)
    assert two.rows(VICTIM) == two.source[VICTIM]
    assert two.watermarks.latest(VICTIM).unpublished == ()


# --- the worlds -------------------------------------------------------------------------------------


@pytest.fixture
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], tuple[Neighbours, FakeDynamoDB]]:
    """Return a function that sets up the two jobs as they are before a walk, always in the same folder."""
    kept: dict[str, tuple[Path, dict[str, list[int]], list[Item]]] = {}
    folder = tmp_path / "lake"

    def make(kind: str, dies: str) -> tuple[Neighbours, FakeDynamoDB]:
        shutil.rmtree(folder, ignore_errors=True)
        double: Any = ScannedTable()
        watermarks = Watermarks("table", double)
        if kind == "postgres":
            folder.mkdir()
            made: Neighbours = PostgresNeighbours(watermarks, folder, request.getfixturevalue("postgres"))
            build(made, dies)
            return made, double
        if dies not in kept:
            folder.mkdir()
            made = KINDS[kind](watermarks, folder)
            build(made, dies)
            saved = Path(shutil.copytree(folder, tmp_path / dies))
            kept[dies] = saved, made.source, list(double.items.values())
            shutil.rmtree(folder)
        saved, source, found = kept[dies]
        shutil.copytree(saved, folder)
        double = ScannedTable()
        watermarks = Watermarks("table", double)
        put(watermarks, *found)
        made = KINDS[kind](watermarks, folder)
        made.source = {job: list(ids) for job, ids in source.items()}
        return made, double

    return make


def parts(kind: str) -> list[Any]:
    """Return the numbers of the walks in parts, so that several processes can share them."""
    total = WALKS[kind] * cases(1, long=70)
    return [
        pytest.param(kind, range(at, min(at + AT_ONCE, total)), id=f"{kind}-{at}") for at in range(0, total, AT_ONCE)
    ]


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize(("kind", "numbers"), [part for kind in WALKS for part in parts(kind)])
def test_nothing_of_others_changes_when_anything_is_written_into_the_items_of_a_job(
    two: Callable[[str, str], tuple[Neighbours, FakeDynamoDB]],
    kind: str,
    numbers: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in numbers:
        made, double = two(kind, ("publish", "stage")[number % 2])
        monkeypatch.setattr(surroundings, "make_table_client", lambda *_, double=double: double)

        walk(made, double, seed := f"{kind} {number}")

        assert seed
