"""Nothing that one team's role may do, in any order, changes what another team has, runs or sees.

One team, the neighbour, makes random moves under the writer's policy that Terraform rendered: runs, decisions, job
runs, and sound or spoiled items put and deleted, under its own names and others. Between them the other team does its
day's work. All that this team has and sees must be byte for byte the same as on a day without a neighbour.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner

from scripts.cli import surroundings
from scripts.cli.main import cli
from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import WatermarkError
from scripts.helpers.glue_api.errors import GlueApiError
from scripts.helpers.job_runs.client import JobRuns
from scripts.helpers.protocol import items
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from tests.infra.roles import TABLE, TABLE_ARN
from tests.support.dynamodb import OPERATIONS, FakeDynamoDB, Item
from tests.support.iam_policies import Request, is_allowed
from tests.support.iam_requests import leading_keys
from tests.support.listed_rows import ListedRows
from tests.support.spoiled_table import SPOILED, attribute_at, paths_in, spoiled, spoilt_by

pytestmark = pytest.mark.if_changed("terraform")

START = datetime(2026, 3, 16, 6, tzinfo=timezone.utc)
VALUES, ROWS, RUNS = "waste-values", "waste-rows", "waste-runs"
STATE = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10}
LARGE = [f"{number:0100d}" for number in range(900)]
"""Too large for a head, so it is stored in chunks."""
OWN = ["parking-values", "parking-", "parking-waste-rows", "parking-\x00<b>", f"parking-{'x' * 1_000}"]
OTHERS = [VALUES, ROWS, RUNS, "waste-", "parking", "Parking-values", "*", "~latest"]
WALKS, MOVES_BETWEEN = 30, 3


class AsRole:
    """A client of the table that refuses each request that the role's policy does not allow."""

    def __init__(self, double: FakeDynamoDB, document: str) -> None:
        self._double, self._document = double, document
        self.meta = double.meta
        self.refused = 0

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._send, method)

    def _send(self, method: str, **params: Any) -> Any:
        operation = OPERATIONS[method]
        keys = leading_keys(operation, params)
        context = {"dynamodb:LeadingKeys": keys} if keys else {}
        if not is_allowed([self._document], Request(f"dynamodb:{operation}", TABLE_ARN, context)):
            self.refused += 1
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "refused"}}, operation)
        return getattr(self._double, method)(**params)


class Listed(FakeDynamoDB):
    """A double of the table with Scan, for the lister."""

    def scan(self, **given: Any) -> dict[str, Any]:
        kept = self.items
        jobs = sorted({job for job, _ in kept})[given.get("Segment", 0) :: given.get("TotalSegments", 1)]
        found = [item for (job, _), item in kept.items() if job in jobs]  # A segment holds all items of its jobs.
        return {"Items": found, "Count": len(found), "ScannedCount": len(found)}


class Tokens:
    """Tokens that are the same each day for a team, however many the other team has requested."""

    def __init__(self) -> None:
        self.team, self._made = "waste", Counter[str]()

    def __call__(self, count: int | None = None) -> str:
        self._made[self.team] += 1
        return hashlib.sha256(f"{self.team} {self._made[self.team]}".encode()).hexdigest()[: 2 * (count or 32)]


# --- the day of the observed team -----------------------------------------------------------------------


def committed(marks: Watermarks, run_id: str, **values: Any) -> None:
    with marks.begin(VALUES, run_id) as run:
        run.freeze({"files": LARGE}, values)
        run.commit(rows_collected=1)


def backfilled(marks: Watermarks) -> None:
    rows = ListedRows((CursorColumn("id", "bigint"),), [(number,) for number in range(8)])
    with Backfill(marks, ROWS, low=0, high=5, clock=marks.clock) as backfill:
        backfill.rows(rows, "id")


def runs_defined(marks: Watermarks) -> None:
    jobs = JobRuns(marks, clock=marks.clock)
    for name in (RUNS, VALUES):
        jobs.create_job(Name=name, Command={"Name": "pythonshell", "ScriptLocation": "script.py"})


DAY: list[Callable[[Watermarks], Any]] = [
    lambda marks: marks.set_watermark(ROWS, STATE, transformation_ctx="rows", why="a test", who="sam"),
    lambda marks: committed(marks, "jr_1", files=LARGE),
    runs_defined,
    lambda marks: committed(marks, "jr_2", files=[*LARGE, "2"]),
    backfilled,
    lambda marks: marks.begin(VALUES, "jr_3").freeze({"files": LARGE}, {"files": []}),
    lambda marks: marks.begin(VALUES, "jr_4", take_over=True).abort(),
    lambda marks: marks.rewind(ROWS, to_version=1, why="a test", who="sam"),
]
COMMANDS = [
    ["jobs", VALUES, ROWS], ["show", VALUES], ["history", VALUES], ["history", VALUES, "--diff", "1", "2"],
    ["history", RUNS, "--runs"], ["doctor", ROWS], ["backfill", ROWS], ["complete-up-to", ROWS],
    ["jobs", VALUES, "--fail-on", "missing"], ["jobs", VALUES, "--metrics"],
]  # fmt: skip


def seen(double: Listed, reader: AsRole, now: datetime) -> dict[str, Any]:
    """Return all that the team has and sees: items, commands and page as its reader, and its part of the lists."""
    marks, everything = (Watermarks(TABLE, client, clock=lambda: now) for client in (reader, double))  # type: ignore[arg-type]
    found: dict[str, Any] = {"items": {key: item for key, item in double.items.items() if key[0].startswith("waste-")}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surroundings, "make_table_client", lambda *_: reader)
        for command in COMMANDS:
            done = CliRunner().invoke(cli, ["--table", TABLE, "--now", now.isoformat(), *command])
            found[" ".join(command)] = (done.exit_code, done.output)
    found["page"] = build_report(marks, jobs=[VALUES, ROWS], now=now)
    found["runs"] = JobRuns(marks, clock=marks.clock).get_job(JobName=RUNS)["Job"]
    found["page of all"] = sorted(re.findall(r'data-name="(waste-[^"]*)"', build_report(everything, now=now)))
    found["list"] = [repr(job) for job in everything.list_jobs() if job.job_id.startswith("waste-")]
    return found


# --- what the neighbour does ----------------------------------------------------------------------------


class Neighbour:
    """The random moves of the other team on one day."""

    def __init__(self, double: Listed, client: AsRole, seed: int) -> None:
        self._double, self.client, self._random = double, client, random.Random(seed)
        self._now = START + timedelta(days=self._random.randint(-3, 3))
        self._marks = Watermarks(TABLE, client, clock=lambda: self._now)  # type: ignore[arg-type]
        self._marks.store.sleep = lambda _: None
        self.moves = Counter[str]()

    def move(self) -> None:
        """Make one move, and ignore a refusal or an error about an item that the neighbour itself spoiled."""
        chosen = self._random.choice(
            [self._put, self._put, self._put, self._delete, self._run, self._decide, self._ask]
        )
        self.moves[chosen.__name__] += 1
        with suppress(WatermarkError, GlueApiError, ClientError):
            chosen()

    def _name(self) -> str:
        return self._random.choice(OWN if self._random.random() < 0.7 else OTHERS)

    def _item(self) -> tuple[str, Item]:
        """Return an item of any team, so it may hold the other team's names, spoiled more often than not."""
        (_, range_key), item = self._random.choice(list(self._double.items.items()) or [(("", "~latest"), {})])
        for _ in range(self._random.randrange(3)):
            if paths := list(paths_in(item)):
                path = self._random.choice(paths)
                item = spoiled(item, path, SPOILED[self._random.choice(spoilt_by(attribute_at(item, path)))])
        return range_key, item

    def _put(self) -> None:
        range_key, item = self._item()
        self.client.put_item(TableName=TABLE, Item=item | items.key(self._name(), range_key))

    def _delete(self) -> None:
        key = self._random.choice([key for key, _ in self._double.items] or [VALUES])
        self.client.delete_item(TableName=TABLE, Key=items.key(key, self._item()[0]))

    def _run(self) -> None:
        run = self._marks.begin(self._name(), f"jr_{self._random.random()}", take_over=self._random.random() < 0.5)
        if self._random.random() < 0.8:
            run.freeze({"files": self._random.choice([LARGE, ["a"]])}, {"files": []})
            if self._random.random() < 0.8:
                run.commit(rows_collected=1)

    def _decide(self) -> None:
        marks, name = self._marks, self._name()
        decide: Callable[[], Any] = self._random.choice([
            lambda: marks.reset(name, why="a test"),
            lambda: marks.rewind(name, to_version=1, why="a test"),
            lambda: marks.set_watermark(name, {"n": 1}, why="a test"),
            lambda: marks.discard_plan(name, why="a test"),
            lambda: marks.doctor(name, repair=True),
            lambda: marks.decisions.restore(name, {}, why="a test"),
        ])  # fmt: skip
        decide()

    def _ask(self) -> None:
        jobs, name = JobRuns(self._marks, clock=self._marks.clock), self._name()
        command = {"Name": "pythonshell", "ScriptLocation": "script.py"}
        ask: Callable[[], Any] = self._random.choice([
            lambda: jobs.create_job(Name=name, Command=command),
            lambda: jobs.delete_job(JobName=name),
            lambda: jobs.batch_stop_job_run(JobName=name, JobRunIds=["jr_1"]),
        ])  # fmt: skip
        ask()


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Tokens]:
    """Return a function that starts the tokens of a new day."""

    def begin() -> Tokens:
        made = Tokens()
        monkeypatch.setattr(secrets, "token_hex", made)
        return made

    return begin


def day(documents: dict[str, str], tokens: Tokens, seed: int | None) -> tuple[dict[str, Any], Counter[str]]:
    """Run one day, alone or beside a neighbour; return what the team sees afterwards, and the neighbour's moves."""
    double = Listed(TABLE)
    # The same policies for the other team, with its prefix.
    writer, reader = (
        AsRole(double, documents[role].replace('"parking-*"', '"waste-*"')) for role in ("writer", "reader")
    )
    neighbour = None if seed is None else Neighbour(double, AsRole(double, documents["writer"]), seed)
    tried = Counter[str]()
    for hour, step in enumerate(DAY):
        if neighbour:
            tokens.team = "parking"
            for _ in range(MOVES_BETWEEN):
                neighbour.move()
            tokens.team = "waste"
        now = START + timedelta(hours=hour)
        step(Watermarks(TABLE, writer, clock=lambda now=now: now))  # type: ignore[arg-type, misc]
    if neighbour:
        tried = neighbour.moves
        tried["refused"] = neighbour.client.refused
        tried["items"] = len([key for key in double.items if key[0].startswith("parking-")])
    return seen(double, reader, START + timedelta(days=1)), tried


def test_team_sees_no_difference_when_its_neighbour_does_all_that_its_role_allows(
    documents: dict[str, str], tokens: Callable[[], Tokens]
) -> None:
    alone, _ = day(documents, tokens(), None)
    again, _ = day(documents, tokens(), None)
    assert again == alone  # Otherwise a difference could have another cause than the neighbour.
    assert all(code == 0 for code, _ in (alone[" ".join(command)] for command in COMMANDS)), alone
    tried = Counter[str]()

    for seed in range(WALKS):
        beside, moves = day(documents, tokens(), seed)
        tried += moves
        assert [name for name in alone if beside[name] != alone[name]] == [], seed

    assert min(tried[name] for name in ("_put", "_delete", "_run", "_decide", "_ask", "refused", "items")) >= WALKS


def test_difference_is_seen_when_a_neighbour_may_write_more(
    documents: dict[str, str], tokens: Callable[[], Tokens]
) -> None:
    """With the rights of both teams, the same moves make a difference, so the test above would notice one."""
    alone, _ = day(documents, tokens(), None)
    policy = json.loads(documents["writer"].replace('"parking-*"', '"*"'))

    differences = 0
    for seed in range(5):
        try:
            beside, _ = day({**documents, "writer": json.dumps(policy)}, tokens(), seed)
        except WatermarkError:
            differences += 1
        else:
            differences += beside != alone

    assert differences == 5
