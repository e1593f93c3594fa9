"""The figures in docs/cost.md are those of metered requests."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from hashlib import md5
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing import listing
from scripts.helpers.protocol import run
from scripts.helpers.protocol.heartbeat import Heartbeat
from scripts.helpers.protocol.items import HEAD_KEY
from scripts.helpers.protocol.recent import MOST
from scripts.helpers.reading import fetch
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page, text_of
from tests.protocol.capacity import Item, Meter, item_bytes, write_units
from tests.support.clock import Clock
from tests.support.faults import Wire
from tests.support.listed_rows import ListedRows

HOURS_A_YEAR = 8_760
KNOWN = 10_000
COLUMN = CursorColumn("last_modified", "timestamp")


class Costs:
    """Runs jobs through a client whose requests are metered."""

    def __init__(self, endpoint: str, clock: Clock, folder: Path) -> None:
        client = boto3.client("dynamodb", endpoint_url=endpoint)
        self.meter, self.clock, self.folder = Meter(client), clock, folder
        self.watermarks = Watermarks("costs", client, clock=clock)
        if not self.watermarks.exists():
            self.watermarks.create_table()
        self._runs = 0

    def run(
        self, job: str, plan: Callable[[IncrementalJob], Any], run_id: str = "", *, is_idle: bool = False
    ) -> tuple[int, int]:
        """Run a job once over what is new; return the read and write units that it used."""
        self._runs += 1
        run_id = run_id or f"jr_{self._runs}"
        self.clock.move(minutes=1)
        self.meter.clear()
        with IncrementalJob(self.watermarks, job, run_id, clock=self.clock) as started:
            plan(started)
            if not is_idle:
                started.freeze()
        return self.meter.reads, self.meter.writes

    def daily(self, job: str, number: int, plan: Callable[[IncrementalJob], Any]) -> None:
        """Run a job that writes rows, with a run id as long as Glue's."""

        def work(started: IncrementalJob) -> None:
            plan(started)
            started.metrics["rows_written"] = 48_000 + 371 * number % 5_000

        self.run(job, work, f"jr_{number:064x}")

    def land(self, first: int, last: int) -> None:
        for number in range(first, last):
            (self.folder / f"{number:06d}.csv").touch()
            written = 1_760_000_000_000_000_000 + number * 7_000_000_000
            os.utime(self.folder / f"{number:06d}.csv", ns=(written, written))

    def rows(self, job: IncrementalJob) -> None:
        stamps = [self.clock() - timedelta(minutes=minutes) for minutes in (30, 20, 10)]
        job.rows_since(ListedRows((COLUMN,), [(stamp,) for stamp in stamps], self.clock()), "last_modified")

    def files(self, job: IncrementalJob) -> int:
        return job.new_files(f"{self.folder}/").count

    def three(self, job: IncrementalJob) -> None:
        source = ListedRows((COLUMN,), [(datetime(2026, 1, 1, tzinfo=timezone.utc),)], self.clock())
        for name in ("repairs", "permits", "fines"):
            job.rows_since(source, "last_modified", transformation_ctx=name)


class HeadWrites:
    """The heads that a client writes, in order, and their cost by DynamoDB's rules."""

    def __init__(self, client: Any = None) -> None:
        self.written: list[Item] = []
        if client is not None:
            client.meta.events.register("provide-client-params.dynamodb.PutItem", self._see)

    def units(self) -> int:
        """Return the units of all writes. Each write replaces the head before it and costs the larger of the two."""
        before = [self.written[0], *self.written[:-1]]
        return sum(write_units(one, after) for one, after in zip(before, self.written, strict=True))

    def without_kept(self) -> HeadWrites:
        """Return the same writes, as they would be if heads kept no commits."""
        bare = HeadWrites()
        bare.written = [{name: value for name, value in head.items() if name != "recent"} for head in self.written]
        return bare

    def kept_bytes(self) -> list[int]:
        """Return the size in each head of the attribute that keeps commits, including its name."""
        return [item_bytes({"recent": head["recent"]}) for head in self.written]

    def _see(self, params: dict[str, Any], **_: Any) -> None:
        if params["Item"]["runId"]["S"] == HEAD_KEY:
            self.written.append(params["Item"])


@pytest.fixture(autouse=True)
def _etags_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give files ETags as in S3, so that figures are the same everywhere: inodes compress better on some disks."""
    for module in (listing, fetch):
        monkeypatch.setattr(module, "local_etag", lambda status: md5(b"%d" % status.st_mtime_ns).hexdigest())


def test_units_and_dollars_are_those_of_the_page_when_jobs_run(
    endpoint: str, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    assert run_page("cost.md", names) == 1
    costs = Costs(endpoint, clock, tmp_path)
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (.+?) \| \$(.+) \| \$(.+) \|$", text_of("cost.md"), re.M)

    one = [costs.run("rows", costs.rows) for _ in range(3)][-1]
    three = [costs.run("three", costs.three) for _ in range(3)][-1]
    costs.land(0, KNOWN)
    costs.run("files", costs.files)
    idle = costs.run("files", costs.files, is_idle=True)
    costs.land(KNOWN, KNOWN + 100)
    new = costs.run("files", costs.files)

    assert [(int(reads), int(writes)) for _, reads, writes, *_ in rows] == [one, three, idle, new]
    for name, reads, writes, listed, dollars, year in rows:
        cost = names["cost_of_a_run"](int(reads), int(writes), *map(int, re.findall(r"\d+", listed)))
        assert (dollars, year) == (f"{cost:.6f}", f"{cost * HOURS_A_YEAR:.2f}"), name


def test_kept_commits_cost_what_the_page_says_when_a_daily_job_of_rows_has_28(
    endpoint: str, clock: Clock, tmp_path: Path
) -> None:
    costs = Costs(endpoint, clock, tmp_path)
    heads = HeadWrites(costs.watermarks.store.client)
    told = re.search(r"take (\d+) bytes.*?(\d+) units instead of (\d+)", text_of("cost.md"), re.DOTALL)

    for number in range(MOST + 1):
        clock.move(days=1)
        heads.written.clear()
        costs.daily("council-tax-arrears", number, costs.rows)

    assert told is not None
    kept, units, without = map(int, told.groups())
    assert heads.kept_bytes() == [kept] * 3
    assert (heads.units(), heads.without_kept().units()) == (units, without)


def test_kept_commits_cost_what_the_page_says_when_a_daily_job_of_files_has_28(
    endpoint: str, clock: Clock, tmp_path: Path
) -> None:
    costs, more = Costs(endpoint, clock, tmp_path), list[int]()
    heads = HeadWrites(costs.watermarks.store.client)
    told = re.search(r"(\d+) bytes for a job of files, whose head .*? 0 to (\d) units", text_of("cost.md"), re.DOTALL)

    for number in range(MOST + 8):
        clock.move(days=1)
        costs.land(25 * number, 25 * (number + 1))
        heads.written.clear()
        costs.daily("planning-scans", number, costs.files)
        more.append(heads.units() - heads.without_kept().units())

    assert told is not None
    assert heads.kept_bytes() == [int(told[1])] * 3
    assert set(more) <= set(range(int(told[2]) + 1))


def test_requests_are_as_many_as_the_page_says_when_rows_are_loaded(
    endpoint: str, clock: Clock, tmp_path: Path
) -> None:
    told = re.search(r"reads the table (\w+) and writes it (\w+ \w+)", text_of("cost.md"))
    numbers = {"twice": 2, "five times": 5}
    costs = Costs(endpoint, clock, tmp_path)
    wire = Wire(costs.watermarks.store.client)
    for _ in range(2):
        costs.run("requests", costs.rows)
    wire.clear()

    costs.run("requests", costs.rows)

    assert told is not None
    assert (len(wire.reads), len(wire.writes)) == (numbers[told[1]], numbers[told[2]])


def test_each_new_object_is_looked_at_once_when_it_is_committed(
    watermarks: Watermarks, s3: Any, bucket: str, endpoint: str
) -> None:
    for number in range(5):
        s3.put_object(Bucket=bucket, Key=f"landing/{number}.csv", Body=b"id")
    client, asked = boto3.client("s3", endpoint_url=endpoint), Counter[str]()
    client.meta.events.register("before-send.s3", lambda event_name, **_: asked.update([event_name.split(".")[-1]]))

    with IncrementalJob(watermarks, "parking", s3_client=client) as job:
        count = job.new_files(f"s3://{bucket}/landing/").count

    assert count == 5
    assert asked == {"ListObjectsV2": 1, "HeadObject": 5}


def test_lease_is_renewed_as_often_as_the_page_says_when_a_run_is_long(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    paces: list[float] = []

    def heartbeat(owner: Any, beat: Any, seconds: float) -> Heartbeat:
        paces.append(seconds)
        return Heartbeat(owner, beat, seconds)

    monkeypatch.setattr(run, "Heartbeat", heartbeat)
    with watermarks.begin("parking", "jr_1"):
        pass

    assert paces == [5 * 60]
    assert "renews its lease every five minutes" in text_of("cost.md")
