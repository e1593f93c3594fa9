"""One job over a model source and a model sink: the crash tests run it, kill it, run it again and count the rows."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar

from scripts.helpers.errors import FencedError, PlanConflictError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.store import ItemTable
from scripts.helpers.protocol.values import Spilled, decode
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.doubles import Double, opened
from tests.support.dynamodb import FakeDynamoDB, Key
from tests.support.table_items import items_of

CONTEXT = "repairs"
PAD_BYTES = 2_000
"""The default size of `padding`: small, for tests that lower the limits of `chunks`."""

TOKEN = re.compile(r"(?<![0-9a-f])e?[0-9a-f]{16}(?![0-9a-f])")
"""The random name of a write, an epoch or a chunk."""

Point = Callable[[str], None]


class Source:
    """Rows with a cursor column: row n is visible once the source has grown past n."""

    def __init__(self, count: int = 3) -> None:
        self.count = count

    def grow(self, by: int = 1) -> None:
        self.count += by

    def rows(self, low: int, high: int) -> list[int]:
        return list(range(low, min(high, self.count)))


class Sink:
    """Writes each batch as a whole and replaces an earlier write of the same batch id; remembers every content."""

    def __init__(self) -> None:
        self.contents: dict[str, list[tuple[list[int], bytes]]] = {}

    def write(self, batch: str, rows: list[int], pad: bytes) -> None:
        self.contents.setdefault(batch, []).append((rows, pad))

    @property
    def rows(self) -> list[int]:
        return sorted(row for written in self.contents.values() for row in written[-1][0])

    @property
    def changed(self) -> list[str]:
        """Return the batches that did not always have the same content."""
        return [batch for batch, written in self.contents.items() if any(one != written[0] for one in written)]


@lru_cache(maxsize=256)
def padding(low: int, high: int, size: int = PAD_BYTES) -> bytes:
    """Return bytes that cannot be compressed, the same ones for the same bounds."""
    return random.Random(f"{low}-{high}").randbytes(size)


def work(
    watermarks: Watermarks,
    job_id: str,
    run_id: str,
    source: Source,
    sink: Sink,
    *,
    spilled: bool = False,
    pad_bytes: int = PAD_BYTES,
    take_over: bool = False,
    handles: list[Run] | None = None,
    point: Point = lambda name: None,
) -> bool:
    """Do one whole run as a job author would; return False if there was nothing new."""
    with watermarks.begin(job_id, run_id, take_over=take_over) as run:
        if handles is not None:
            handles.append(run)
        point("begun")
        if run.plan is None:
            state = run.state(CONTEXT)
            low, high = state["value"] if state else 0, source.count
            if low == high:
                return False
            pad = {"pad": padding(low, high, pad_bytes)} if spilled else {}
            run.freeze({CONTEXT: {"low": low, "high": high, **pad}}, {CONTEXT: {"value": high, **pad}})
        point("frozen")
        planned = run.planned(CONTEXT)
        source.grow()  # Rows arrive while the batch is processed.
        run.check()
        rows = source.rows(planned["low"], planned["high"])
        sink.write(str(run.batch_id), rows, planned.get("pad", b""))
        point("written")
        run.commit(rows=len(rows))
    point("committed")
    return True


@dataclass(frozen=True)
class Moment:
    """The table, the clock, the source and the sink as they are at one moment."""

    items: Mapping[Key, bytes]
    now: datetime
    count: int
    contents: Mapping[str, list[tuple[list[int], bytes]]]


class ModelJob:
    """One job on a table with faults, its clock, its source and its sink.

    Parameters
    ----------
    job_id
        The job.
    commits
        How many runs have already committed. `client` does not show their requests.
    spilled
        Whether plan and state go to chunks.
    """

    make_double: ClassVar[Callable[[], Double]] = FakeDynamoDB
    """Makes the double that holds the table; the fixture `double` sets it."""

    def __init__(self, job_id: str, *, commits: int, spilled: bool) -> None:
        self.job_id, self.spilled = job_id, spilled
        self.client, self.clock = type(self).make_double(), Clock()
        self.source, self.sink = Source(), Sink()
        self.watermarks = self.process()
        for number in range(commits):
            self.run(f"r-{number}")
        self.client.requests.clear()

    def kept(self) -> Moment:
        """Return the current moment, as `restore` takes it."""
        return Moment(self.client.dump(), self.clock.now, self.source.count, deepcopy(self.sink.contents))

    def restore(self, kept: Moment) -> None:
        """Return to a saved moment, for another process: everything that came later is gone."""
        self.client.load(kept.items)
        self.clock.now, self.source.count, self.sink.contents = kept.now, kept.count, deepcopy(dict(kept.contents))
        self.client.requests.clear()
        self.watermarks = self.process()

    def state(self) -> str:
        """Return the current state as a text; states that differ only in random names have the same text."""
        names: dict[str, str] = {}
        text = repr((self.client.items, self.clock.now, self.source.count, self.sink.contents))
        return TOKEN.sub(lambda found: names.setdefault(found[0], f"name {len(names)}"), text)

    def process(self) -> Watermarks:
        """Return `Watermarks` over the table as another process would open it."""
        return opened(self.client, clock=self.clock)

    def run(self, run_id: str, **options: Any) -> None:
        """Do one whole run in a process of its own."""
        work(self.process(), self.job_id, run_id, self.source, self.sink, spilled=self.spilled, **options)


def drain(watermarks: Watermarks, job_id: str, source: Source, sink: Sink, **options: Any) -> None:
    """Run until nothing is new; the source does not grow meanwhile."""
    for number in range(4):
        before = source.count
        if not work(watermarks, job_id, f"drain-{number}", source, sink, **options):
            return
        source.count = before
    raise AssertionError("the source is not empty after four runs")


def act_as_zombie(run: Run, read_head: Callable[[], Any]) -> None:
    """Try every call on an old handle: it may learn that it is too late, but must change nothing."""
    bounds = {CONTEXT: {"low": 0, "high": 99}}
    for attempt in (run.check, run.heartbeat, lambda: run.freeze(bounds, {CONTEXT: {"value": 99}}), run.commit):
        before = read_head()
        try:
            answer = attempt()
        except (FencedError, PlanConflictError):
            answer = False
        assert answer in (False, "already"), f"an old handle was told {answer!r}"
        assert read_head() == before, "an old handle changed the head"


def legacy_read(table: ItemTable, job_id: str) -> dict[str, Any]:
    """Read the item that the original class considers a job's newest."""
    (found,) = table.query(Between(job_id, newest_first=True, limit=1)).items
    return found


def chunk_keys(values: dict[str, Any]) -> set[str]:
    """Return the range keys of all chunks that a map of values refers to."""
    return {
        items.chunk_key(value.id, index)
        for value in values.values()
        if isinstance(value, Spilled)
        for index in range(value.chunks)
    }


def is_by_run(item: dict[str, Any]) -> bool:
    """Return whether a log entry's version was made by a run, so that the run item must show that version."""
    return item["op"]["S"] in ("COMMIT", "IMPORT")


def check_table(watermarks: Watermarks, job_id: str) -> None:
    """Assert what must hold for a job at rest: a dense log that matches the head, no orphans, no expiry set."""
    legacy = legacy_read(watermarks.store.table, job_id)
    watermarks.doctor(job_id, repair=True)
    found = items_of(watermarks.store.table, job_id)
    head = found[items.HEAD_KEY]
    log = {key: item for key, item in found.items() if key.startswith(items.LOG_PREFIX)}
    version = int(head["version"]["N"])
    assert [int(item["version"]["N"]) for item in log.values()] == list(range(1, version + 1)), f"log {sorted(log)}"
    newest = log[items.log_key(version)]
    assert (head["watermarks"], head["types"]) == (newest["watermarks"], newest["types"]), "head and log differ"
    assert legacy["watermarks"] == head["watermarks"], f"a legacy reader sees {legacy['runId']}"
    runs = {item["byRun"]["S"]: int(item["version"]["N"]) for item in log.values() if is_by_run(item)}
    shown = {run_id: int(found[run_id]["version"]["N"]) if run_id in found else None for run_id in runs}
    assert shown == runs, f"run items {shown}, log {runs}"
    held = [decode(item["watermarks"], item["types"]) for item in [head, *log.values()]]
    if "plan" in head:
        plan = head["plan"]["M"]
        held += [decode(plan["contexts"], plan["contextTypes"]), decode(plan["next"], plan["nextTypes"])]
    used = set().union(*map(chunk_keys, held))
    chunks = {key for key in found if key.startswith(("!p#", "!s#"))}
    assert chunks == used, f"orphans {sorted(chunks - used)}, missing {sorted(used - chunks)}"
    assert not [key for key, item in found.items() if items.TTL_ATTRIBUTE in item], "something expires"
    findings = [finding for finding in watermarks.doctor(job_id) if finding.kind != "open plan"]
    assert findings == [], f"the doctor found {findings}"


def check_delivery(watermarks: Watermarks, job_id: str, source: Source, sink: Sink) -> None:
    """Assert that the sink holds each source row once, and that each batch belongs to one version and never changed."""
    assert sink.rows == source.rows(0, source.count), f"sink {sink.rows}, source {source.count}"
    assert sink.changed == [], f"batches with two contents: {sink.changed}"
    head = watermarks.latest(job_id)
    versions = sorted(int(batch.rpartition("-")[2]) for batch in sink.contents)
    assert versions == [entry.version for entry in reversed(watermarks.history(job_id))], f"batches {versions}"
    assert watermarks.get_watermark_values(job_id)[CONTEXT]["value"] == source.count
    assert head.plan is None, "a plan is open"
