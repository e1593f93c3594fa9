"""Overhead of the package on a table in one SQLite file, compared with the same transactions of sqlite3 alone.

The raw side repeats, for a second job, exactly the reads and writes that the package sends to its table: the same items
as JSON, as many transactions, in a separate file with the same settings (WAL, synchronous=FULL), on one connection. A
write first reads the item that it replaces, in the same transaction, as a condition needs. Both sides alternate, and so
does the one that is first. A ratio is that of their medians; the printed table has the medians of three rounds.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.goals import Goal, judge, say
from benchmarks.overhead import seconds
from scripts.helpers.protocol.requests import Put
from scripts.helpers.protocol.sqlite import TABLE
from scripts.helpers.watermarks import Watermarks

ROUNDS, RUNS, WARM_UP = 3, 500, 50
GOAL_RATIO = 2.0
OTHER = "raw"


class Recorder:
    """Records the reads and writes that a table receives."""

    def __init__(self, table: Any) -> None:
        self.asked: list[tuple[str, Any]] = []
        for name in ("get", "write", "query"):
            setattr(table, name, self._kept(name, getattr(table, name)))

    def _kept(self, name: str, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            self.asked.append((name, given))
            return method(given)

        return call

    def take(self) -> list[tuple[str, Any]]:
        taken, self.asked = self.asked, []
        return taken


class Raw:
    """Runs the same reads and writes with sqlite3 alone, and checks no condition."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(TABLE)

    def step(self, name: str, given: Any) -> Callable[[], Any]:
        """Return a function that repeats one read or write for the other job."""
        if name == "write" and isinstance(given, Put):
            return lambda: self._write(given.item["runId"]["S"], given.item)
        if name == "get":
            return lambda: self._read(given["runId"]["S"], given["runId"]["S"])
        if name == "query":  # Only the first run queries: it looks for items of the original class.
            return lambda: self._read("", "\x7f")
        raise AssertionError(f"a step that this benchmark does not know: {name} {given!r}")

    def _write(self, key: str, item: Any) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._read(key, key)
        text = json.dumps(item, separators=(",", ":"))
        self._db.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?, NULL)", (OTHER, key, text))
        self._db.execute("COMMIT")

    def _read(self, first: str, last: str) -> list[Any]:
        found = self._db.execute("SELECT item FROM items WHERE job = ? AND key BETWEEN ? AND ?", (OTHER, first, last))
        return [json.loads(text) for (text,) in found.fetchall()]


def all_of(steps: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    def again() -> None:
        for step in steps:
            step()

    return again


def measure(folder: str) -> dict[str, tuple[float, float, int, int]]:
    """Return for each step the medians of the package and of sqlite3 in milliseconds, and its writes and reads."""
    marks = Watermarks(f"sqlite:{folder}/watermarks.db")
    marks.create_table()
    recorder, raw = Recorder(marks.store.table), Raw(f"{folder}/raw.db")
    times: dict[str, tuple[list[float], list[float]]] = {}
    counts: dict[str, tuple[int, int]] = {}
    repeats: dict[str, Callable[[], Any]] = {}

    def compare(name: str, work: Callable[[], Any], *, raw_first: bool) -> None:
        ours, theirs = times.setdefault(name, ([], []))
        # Alternate, because the first side has more to flush. If raw is first, it repeats the previous round's steps.
        if raw_first:
            theirs.append(seconds(repeats[name]))
        recorder.take()
        ours.append(seconds(work))
        asked = recorder.take()
        repeats[name] = all_of([raw.step(*one) for one in asked])
        if not raw_first:
            theirs.append(seconds(repeats[name]))
        writes = sum(what == "write" for what, _ in asked)
        counts[name] = writes, len(asked) - writes

    def one_round(number: int) -> None:
        runs: list[Any] = []
        work: dict[str, Callable[[], Any]] = {
            "begin": lambda: runs.append(marks.begin("package", f"jr_{number}")),
            "freeze": lambda: runs[0].freeze({"rows": {"low": number, "high": number + 1}}, {"rows": number + 1}),
            "commit": lambda: runs[0].commit(rows_written=number),
            "most recent run": lambda: marks.get_most_recent_run_id("package"),
        }
        for name, step in work.items():
            compare(name, step, raw_first=number % 2 == 1)

    for number in range(RUNS + WARM_UP):
        one_round(number)
    return {
        name: (1000 * statistics.median(ours[WARM_UP:]), 1000 * statistics.median(theirs[WARM_UP:]), *counts[name])
        for name, (ours, theirs) in times.items()
    }


def main() -> int:
    logging.getLogger("scripts").setLevel(logging.ERROR)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    rounds = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as folder:
            rounds.append(measure(folder))
    say(f"{'step':<18}{'writes':>8}{'reads':>7}{'package ms':>12}{'sqlite3 ms':>12}{'ratio':>8}")
    ratios = {}
    for name, (*_, writes, reads) in rounds[0].items():
        ours, theirs = (statistics.median(measured[name][side] for measured in rounds) for side in (0, 1))
        ratios[name] = statistics.median(measured[name][0] / measured[name][1] for measured in rounds)
        say(f"{name:<18}{writes:>8}{reads:>7}{ours:>12.3f}{theirs:>12.3f}{ratios[name]:>8.2f}")
    steps = ("begin", "freeze", "commit")
    return judge(Goal(f"{name} beside sqlite3 alone", ratios[name], GOAL_RATIO, more=False) for name in steps)


if __name__ == "__main__":
    sys.exit(main())
