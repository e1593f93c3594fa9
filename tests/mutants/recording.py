"""Which tests run which lines, and how long they take.

A plugin of pytest (`-p tests.mutants.recording`) writes a record for each test file to the folder that RECORDS names.
A record serves as long as its test file is the same. Where a module has changed since, its lines have moved, and
whatever test ran the module counts for all of it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.mutants.changes import Mutant

ROOT = Path(__file__).parents[2]
RECORDS = "MUTANTS_RECORDS"
AROUND = 25
"""So many lines before and after a mutant tell tests apart."""
IMPORT = "import"
"""What stands for a test where lines are noted that run before the first one."""


@cache
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def record_of(folder: Path, test_file: str) -> Path:
    """Return where the record of a test file is, which another version of the file does not have."""
    return folder / f"{Path(test_file).stem}-{digest(ROOT / test_file)}.json"


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process and of those below it, of which Spark is one, ended or not.

    By parents and not by session: what records other files beside it is of the same session.
    """
    ticks: dict[int, int] = {}
    below = defaultdict[int, list[int]](list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            number = int(stat.parent.name)
            ticks[number] = sum(map(int, fields[11:15]))  # its own, and those of its children that have ended
            below[int(fields[1])].append(number)
    if not ticks:
        return time.process_time()  # No Linux.
    total, pending = 0, [process]
    while pending:
        each = pending.pop()
        total += ticks.get(each, 0)
        pending += below[each]
    return total / os.sysconf("SC_CLK_TCK")


def clear_caches() -> None:
    """Forget what functions of `scripts` have kept of their results."""
    for name, module in list(sys.modules.items()):
        if name.startswith("scripts."):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


class Recorder:
    """Notes lines of `scripts` while tests run. The functions it hands to Python must be quick."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.scripts = folder, f"{ROOT / 'scripts'}{os.sep}"
        self.seen: defaultdict[str, set[int]] = defaultdict(set)
        self.tests: dict[str, dict[str, Any]] = {}
        self.is_passed = True
        self.watch(self.trace)
        self.imports: dict[str, str] | None = None

    def watch(self, trace: Any) -> None:
        threading.settrace(trace)
        sys.settrace(trace)

    def trace(self, frame: FrameType, event: str, given: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(self.scripts):
            return None
        add = self.seen[name].add

        def line(frame: FrameType, event: str, given: Any) -> Any:
            add(frame.f_lineno)
            return line

        return line

    def taken(self) -> dict[str, str]:
        """Return the lines of each module since this was last asked, as bits."""
        seen, self.seen = self.seen, defaultdict(set)
        root = f"{ROOT}{os.sep}"
        return {name.removeprefix(root): hex(sum(1 << line for line in set(lines))) for name, lines in seen.items()}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if self.imports is None:
            self.imports = self.taken()
        # What an earlier test has had computed would hide which lines this one needs, and a judge begins without it.
        clear_caches()
        self.is_passed, began = True, cpu_seconds(os.getpid())
        self.watch(self.trace)
        result = yield
        self.watch(None)
        # A process whose parent has ended is no longer below this one, and its time is gone.
        seconds = max(cpu_seconds(os.getpid()) - began, 0.0)
        self.tests[item.nodeid] = {"passed": self.is_passed, "seconds": round(seconds, 3), "lines": self.taken()}
        if nextitem is None or nextitem.path != item.path:
            self.write(item.path)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.is_passed &= report.passed

    def write(self, test_file: Path) -> None:
        tests = self.tests | {IMPORT: {"passed": False, "seconds": 0, "lines": self.imports}}
        modules = {name for test in tests.values() for name in test["lines"]}
        record = {"modules": {name: digest(ROOT / name) for name in sorted(modules)}, "tests": tests}
        path = record_of(self.folder, test_file.relative_to(ROOT).as_posix())
        path.with_suffix(".new").write_text(json.dumps(record))
        path.with_suffix(".new").rename(path)
        self.tests = {}


if RECORDS in os.environ:
    recorder = Recorder(Path(os.environ[RECORDS]))
    pytest_runtest_protocol = recorder.pytest_runtest_protocol
    pytest_runtest_logreport = recorder.pytest_runtest_logreport


@dataclass(frozen=True)
class Recorded:
    """A test that passed, and the lines that it ran, as bits by module. None are known of a module that changed."""

    name: str
    seconds: float
    lines: dict[str, int | None]

    def runs(self, mutant: Mutant) -> bool:
        """Tell whether the test runs a changed line; of what a module does when it is imported, any line."""
        if mutant.path not in self.lines:
            return False
        lines = self.lines[mutant.path]
        if lines is None or mutant.lines is None:
            return True
        first, last = mutant.lines
        return (lines >> first) & ((1 << (last - first + 1)) - 1) != 0

    def around(self, mutant: Mutant) -> int | None:
        """Return which of the lines around a mutant the test runs."""
        lines = self.lines[mutant.path]
        if lines is None or mutant.lines is None:
            return lines
        first, last = mutant.lines
        return (lines >> max(first - AROUND, 0)) & ((1 << (last - first + 2 * AROUND)) - 1)


class Records:
    """What is recorded of test files."""

    def __init__(self, folder: Path, test_files: list[str]) -> None:
        self._tests: list[Recorded] = []
        self._imported: list[Recorded] = []
        self._digests: dict[str, str] = {}
        for test_file in test_files:
            path = record_of(folder, test_file)
            if path.exists():
                self._digests[test_file] = digest(ROOT / test_file)
                self._read(json.loads(path.read_text()))

    def _read(self, record: dict[str, Any]) -> None:
        same = {name for name, known in record["modules"].items() if digest(ROOT / name) == known}
        for name, test in record["tests"].items():
            lines = {module: int(bits, 16) if module in same else None for module, bits in test["lines"].items()}
            recorded = Recorded(name, test["seconds"], lines)
            if name == IMPORT:
                self._imported.append(recorded)
            elif test["passed"]:
                self._tests.append(recorded)

    def tests_of(self, mutant: Mutant) -> list[Recorded]:
        """Return the tests that run a mutant, those first that are likely to notice it.

        Tests that run the same lines around it notice much the same: the cheapest of each such group come first, then
        the second of each. Where each test of a module counts, those of its own file come before all others.
        """
        own = f"/test_{Path(mutant.path).stem}.py::"
        found = []
        before = Counter[int | None]()
        for test in sorted(self._tests, key=lambda test: test.seconds):
            if test.runs(mutant):
                around = test.around(mutant)
                found.append((mutant.lines is None and own not in test.name, before[around], test))
                before[around] += 1
        return [test for *_, test in sorted(found, key=lambda each: (*each[:2], each[2].seconds))]

    def is_imported(self, mutant: Mutant) -> bool:
        """Tell whether code runs when modules are imported, so that a change comes too late for a process that has."""
        return mutant.lines is None or any(imported.runs(mutant) for imported in self._imported)

    def fingerprint(self, mutant: Mutant) -> str:
        """Return what changes with the tests that run a mutant, and with their files."""
        names = sorted(test.name for test in self.tests_of(mutant))
        files = sorted({self._digests[name.partition("::")[0]] for name in names})
        return hashlib.sha256("\n".join([*names, *files]).encode()).hexdigest()[:16]
