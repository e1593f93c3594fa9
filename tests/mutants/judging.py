"""Judges mutants, many in a minute: `python -m tests.mutants.judging ORDER`, in a copy of the tree.

The process imports everything, collects the tests once, and starts Spark and the servers that they need. For each
mutant it forks. The child puts the changed code into the functions that have it, and runs the tests that run the
changed lines, the cheapest first, until one fails. Code that runs when its module is imported is judged in a child
that has imported nothing of `scripts` or `tests` yet. The file in the copy is changed as well, for processes that tests
start and for modules that are imported late.

A failure proves something only if the same tests pass in the same way without the mutant.
"""

from __future__ import annotations

import functools
import gc
import importlib
import itertools
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutants.changes import Mutant
from tests.mutants.recording import ROOT, Recorded, Records

GRACE, TIMES = 60, 30
"""A test is stopped after this many seconds, and this many times what it took; after a third of it in CPU time."""
PRELOADED = ["boto3", "hypothesis", "moto.server", "pandas", "pyarrow.parquet", "deltalake", "pyiceberg.catalog.sql"]
"""What takes long to import and knows nothing of this project."""
SHARED = [
    "endpoint", "moto_process", "ministack", "postgres", "maria", "spark", "spark_with_tables",
    "world", "gappy", "slow",
]  # fmt: skip
"""Fixtures that are started once, before anything is forked. The last three are tables with names of their own, which
each child would make anew on the same server."""
FIRST = 40
"""How many tests are tried first of all those of a module, so that few files are imported."""
PASSED, FAILED = b"passed  ", b"failed  "


@dataclass(frozen=True)
class Order:
    """Which mutants to judge, and by which tests, for how many seconds each; results are added to a file."""

    mutants: list[Mutant]
    test_files: list[str]
    records: str
    results: str
    seconds: float

    @classmethod
    def read(cls, path: Path) -> Order:
        given = json.loads(path.read_text())
        mutants = [Mutant(**{**made, "lines": made["lines"] and tuple(made["lines"])}) for made in given["mutants"]]
        return cls(**{**given, "mutants": mutants})

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed by a test, or not by any of those whose fingerprint it has."""

    mutant: str
    outcome: str
    told: str
    tests: str
    seconds: float


@dataclass(frozen=True)
class Failure:
    """The number of the test that failed or was stopped."""

    number: int
    is_stopped: bool


Report = Callable[[bytes], None]
Attempt = Callable[[Mutant | None, Sequence[Recorded]], Failure | None]


def patience(test: Recorded) -> float:
    """Return after how many seconds a test is stopped."""
    return GRACE + TIMES * test.seconds


def in_fork(work: Callable[[Report], object], tests: Sequence[Recorded]) -> Failure | None:
    """Let a fork run tests; it reports the number of each before it begins, and how all ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        try:
            work(lambda said: void(os.write(write, said)))
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(write)
    number, said, is_stopped = 0, b" ", False
    while said and said not in (PASSED, FAILED):
        number = int(said) if said.strip() else 0
        if not select.select([read], [], [], patience(tests[number]))[0]:
            is_stopped = True
            break
        said = os.read(read, len(PASSED))
    os.close(read)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # with the processes that tests started
    _, status = os.waitpid(pid, 0)
    is_stopped |= os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    return None if said == PASSED else Failure(number, is_stopped)


def run(items: Sequence[pytest.Item], tests: Sequence[Recorded], report: Report) -> None:
    """Run tests until one fails."""
    failed: list[pytest.TestReport] = []

    class Noted:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report)

    items[0].config.pluginmanager.register(Noted())
    followers: list[pytest.Item | pytest.Session] = [*items[1:], items[0].session]
    for number, (item, following) in enumerate(zip(items, followers, strict=True)):
        report(f"{number:8}".encode())
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + patience(tests[number]) / 3)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        run_one(item, following)
        if failed:
            report(FAILED)
            return
    report(PASSED)


def run_one(item: pytest.Item, following: pytest.Item | pytest.Session) -> None:
    """Run a test, and end what it does not share with what follows; before the session that is all but the session."""
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def void(_: Any) -> None:
    """Drop a result."""


class Judge:
    """Judges mutants one after the other, and keeps which tests have shown that they pass without one."""

    def __init__(self, order: Order, records: Records) -> None:
        self.order, self.records = order, records
        self.proven, self.unfit = set[str](), set[str]()

    def judge(self, mutant: Mutant, known: Callable[[str], bool], attempt: Attempt) -> None:
        """Write down what becomes of a mutant."""
        path = ROOT / mutant.path
        original = path.read_bytes()

        def tried(change: Mutant | None, tests: Sequence[Recorded]) -> Failure | None:
            path.write_bytes(original if change is None else change.applied(original))
            try:
                return attempt(change, tests)
            finally:
                path.write_bytes(original)

        every = self.records.tests_of(mutant)
        enough = itertools.takewhile(
            lambda pair: pair[1] <= self.order.seconds,
            zip(every, itertools.accumulate(test.seconds for test in every), strict=True),
        )
        tests = [test for test, _ in enough if known(test.name)]
        began = time.monotonic()
        outcome, told = "SURVIVED", f"{len(tests)} of {len(every)} tests pass" if every else "no test runs it"
        try:
            killer = self._killer(mutant, tests, tried)
            outcome, told = ("SURVIVED", told) if killer is None else ("killed", killer)
        except OutOfStepError as error:
            told = str(error)
            raise
        finally:
            result = Result(mutant.name, outcome, told, self.records.fingerprint(mutant), time.monotonic() - began)
            with open(self.order.results, "a") as results:
                results.write(json.dumps(asdict(result)) + "\n")

    def _killer(self, mutant: Mutant, tests: Sequence[Recorded], attempt: Attempt) -> str | None:
        """Return the test that fails with a mutant and passes without it."""
        while tests := [test for test in tests if test.name not in self.unfit]:
            failure = attempt(mutant, tests)
            if failure is None:
                return None
            test = tests[failure.number]
            if test.name in self.proven and not failure.is_stopped:
                return test.name
            began = time.monotonic()
            same = attempt(None, tests[: failure.number + 1])
            if same is None:
                self.proven.update(test.name for test in tests[: failure.number + 1])
                # On a busy machine a test may need long without a mutant, too.
                if not failure.is_stopped or time.monotonic() - began < patience(test) / 4:
                    return test.name
                same = failure
            self.unfit.add(tests[same.number].name)
            sys.stderr.write(f"fails without a mutant as well: {tests[same.number].name}\n")
        return None


class OutOfStepError(Exception):
    """The process can judge no more mutants."""


class Warm:
    """A plugin of pytest that judges in forks of a process that has collected the tests."""

    def __init__(self, judge: Judge, mutants: Sequence[Mutant]) -> None:
        self.judge, self.mutants = judge, mutants
        self.originals = {mutant.path: (ROOT / mutant.path).read_bytes() for mutant in mutants}
        self.numbers = itertools.count(100_000, 1_000)
        self.wanted = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.start_shared(session.items)
        self.functions, self.caches = functions_below(ROOT / "scripts")
        for mutant in self.mutants:
            self.judge.judge(mutant, self.items.__contains__, self.attempt)
        return True

    def start_shared(self, items: Sequence[pytest.Item]) -> None:
        """Start what the files of tests name, each in the course of a test that may use it."""
        started: set[Any] = set()
        texts: dict[Path, str] = {}
        for name in SHARED:
            for item in items:
                # Folders have fixtures of one name; those of a test alone are none of these.
                seen = item.session._fixturemanager.getfixturedefs(name, item) or ()
                if not seen or seen[-1].scope != "session" or seen[-1] in started or not hasattr(item, "_request"):
                    continue
                folder = item.path.parent
                if folder not in texts:
                    texts[folder] = "".join(path.read_text() for path in folder.glob("*.py"))
                if name in texts[folder]:
                    started.add(seen[-1])
                    self.wanted = name
                    run_one(item, item.session)
        self.wanted = ""

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_setup(self, item: Any) -> None:
        if self.wanted:
            getattr(item, "_request").getfixturevalue(self.wanted)  # noqa: B009  # pytest's own, not one of ours

    def attempt(self, mutant: Mutant | None, tests: Sequence[Recorded]) -> Failure | None:
        items = [self.items[test.name] for test in tests]
        changed = {} if mutant is None else changed_codes(mutant, self.originals[mutant.path]) or {}
        number = next(self.numbers)

        def work(report: Report) -> None:
            for function in self.functions[mutant.path] if mutant is not None else []:
                function.__code__ = changed.get(place_of(function.__code__), function.__code__)
            for cache in self.caches:
                cache.cache_clear()
            count_from(number)
            run(items, tests, report)

        failure = in_fork(work, tests)
        if failure is not None and failure.is_stopped and is_on_spark(items[failure.number]):
            # The child may have been stopped while it waited for Spark: the next one would read the answer.
            raise OutOfStepError(f"stopped in {tests[failure.number].name}")
        return failure


def is_on_spark(item: pytest.Item) -> bool:
    return "spark" in " ".join(path.read_text() for path in item.path.parent.glob("*.py"))


def functions_below(folder: Path) -> tuple[dict[str, list[FunctionType]], list[Any]]:
    """Return all functions by the file that they are in, and the caches of results."""
    gc.unfreeze()
    functions, caches = defaultdict(list), []
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(f"{folder}{os.sep}"):
            functions[Path(thing.__code__.co_filename).relative_to(ROOT).as_posix()].append(thing)
        elif isinstance(thing, functools._lru_cache_wrapper) and str(thing.__module__).startswith("scripts."):
            caches.append(thing)
    gc.freeze()
    return functions, caches


def place_of(code: CodeType) -> tuple[str, int, bytes]:
    """Return what tells code from all other code of its file. Code that has run does not equal what it was before."""
    return code.co_name, code.co_firstlineno, code.co_linetable


def changed_codes(mutant: Mutant, original: bytes) -> dict[tuple[str, int, bytes], CodeType] | None:
    """Return the codes that take the place of others; none if functions need other cells, or are fewer."""
    both = (original, mutant.applied(original))
    before, after = (codes_in(compile(source, mutant.path, "exec", dont_inherit=True)) for source in both)
    if [code.co_freevars for code in before] != [code.co_freevars for code in after]:
        return None
    return {place_of(old): new for old, new in zip(before, after, strict=True) if old != new}


def has_place(mutant: Mutant) -> bool:
    """Tell whether the functions that are there can take the changed code. Only a name less means other cells."""
    return mutant.after not in ("pass", "return None") or bool(changed_codes(mutant, (ROOT / mutant.path).read_bytes()))


def codes_in(code: CodeType) -> list[CodeType]:
    """Return code and all code within it."""
    return [code, *(part for inner in code.co_consts if isinstance(inner, CodeType) for part in codes_in(inner))]


def count_from(number: int) -> None:
    """Let tests number their tables and buckets as no child before did: the servers still have those."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for attribute, value in vars(module).items():
                if isinstance(value, itertools.count):
                    setattr(module, attribute, itertools.count(number))


class Fresh:
    """A plugin of pytest that runs given tests in a process that has just imported them."""

    def __init__(self, tests: Sequence[Recorded], report: Report) -> None:
        self.tests, self.report = tests, report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        run([items[test.name] for test in self.tests], self.tests, self.report)
        return True


def fresh_attempt(_: Mutant | None, tests: Sequence[Recorded]) -> Failure | None:
    """Run the first tests in a process that imports code as it is now, and then all."""
    for begin, some in ((0, tests[:FIRST]), (FIRST, tests[FIRST:])):
        failure = in_fork(functools.partial(start_fresh, some), some) if some else None
        if failure is not None:
            return Failure(begin + failure.number, failure.is_stopped)
    return None


def start_fresh(tests: Sequence[Recorded], report: Report) -> None:
    start(tests, Fresh(tests, report))


def start(tests: Sequence[Recorded], plugin: object) -> int:
    files = sorted({test.name.partition("::")[0] for test in tests})
    return pytest.main(["-q", "--timeout", "0", "-p", "no:cacheprovider", *files], [plugin])


def main(order: Order) -> None:
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    judge = Judge(order, Records(Path(order.records), order.test_files))
    imported = {mutant.name for mutant in order.mutants if judge.records.is_imported(mutant) or not has_place(mutant)}
    others = [mutant for mutant in order.mutants if mutant.name not in imported]
    tests = {test.name: test for mutant in others for test in judge.records.tests_of(mutant)}
    # In a fork, so that this process has imported nothing when it is the turn of code that runs then.
    pid = os.fork()
    if pid == 0:
        os._exit(start(list(tests.values()), Warm(judge, others)))
    if os.waitpid(pid, 0)[1] == 0:
        for mutant in order.mutants:
            if mutant.name in imported:
                judge.judge(mutant, lambda name: True, fresh_attempt)


if __name__ == "__main__":
    main(Order.read(Path(sys.argv[1])))
