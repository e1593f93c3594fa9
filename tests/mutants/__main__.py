"""Random mutants: `make mutants SEED=1 MODULES="rows report/page.py" N=30`; see CONTRIBUTING.

Each mutant is made in a copy of the tree, never in the tree itself. The tests that cover it run until the first one
fails. A test that fails without the mutant as well stops everything: it would prove nothing. A test whose time was over
proves something only if it is quick without the mutant.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from tests.mutants.changes import Mutant, mutants_of
from tests.mutants.covering import covering_tests
from tests.mutants.equivalents import EQUIVALENT

ROOT = Path(__file__).parents[2]
GOAL = 0.95
TEST_SECONDS = 200
"""A mutant that makes a test wait for ever is killed by this."""
QUICK_SECONDS = TEST_SECONDS / 4
"""A test that ends within this without a mutant was not stopped only because the machine is busy."""
FIRST = 15
"""Test files that are run before the others are collected, which takes longer than to kill most mutants."""
TIME_WAS_OVER = re.compile(r"Timeout \(?>|TimeoutExpired")
"""What pytest-timeout says, and a process that a test waits for."""
PLACES = ("scripts/helpers", "scripts")


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed by a test, survived, or left out as equivalent."""

    mutant: Mutant
    outcome: str
    told: str
    seconds: float


class Copy:
    """A copy of the tree in which one mutant at a time lives."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.passed = set[str]()
        listed = git("ls-files", "-co", "--exclude-standard").splitlines()
        for name in listed:
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes((ROOT / name).read_bytes())
        # Byte code that is checked by a hash: by time and size, a mutant could be taken for the one before it.
        compiling = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(folder / "scripts")]
        subprocess.run([sys.executable, *compiling], check=True)

    def judge(self, mutant: Mutant) -> Result:
        """Run the tests that cover a mutant."""
        path, began = self.folder / mutant.path, time.monotonic()
        original, tests = path.read_bytes(), covering_tests(self.folder, mutant.path)
        path.write_bytes(mutant.applied(original))
        try:
            code, told = self.test(tests[:FIRST])
            if code == 0 and tests[FIRST:]:
                code, told = self.test(tests[FIRST:], began)
        finally:
            path.write_bytes(original)
        seconds = time.monotonic() - began
        if code is None:
            return Result(mutant, "SURVIVED", f"no failure in {self.seconds:.0f} s", seconds)
        if code == 0:
            return Result(mutant, "SURVIVED", "every test passes", seconds)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", told, re.MULTILINE)
        if code not in (1, 2) or failed is None:
            raise SystemExit(f"The tests of {mutant} could not run:\n{told}")
        test = failed[1]
        time_was_over = TIME_WAS_OVER.search(told) is not None
        if test not in self.passed or time_was_over:
            began_again = time.monotonic()
            # A file that cannot be imported has no test yet.
            without, told_without = self.test([test] if "::" in test else [test, "--collect-only"])
            if time_was_over and (without != 0 or time.monotonic() - began_again > QUICK_SECONDS):
                return Result(mutant, "SURVIVED", f"{test} is too slow to tell", seconds)
            if without != 0:
                raise SystemExit(f"{test} fails without a mutant as well:\n{told_without}")
        self.passed.add(test)
        return Result(mutant, "killed", test.removeprefix("tests/"), seconds)

    def test(self, arguments: list[str], began: float | None = None) -> tuple[int | None, str]:
        """Return how pytest ended and what it said; no code where the time since `began` was over."""
        left = self.seconds - (time.monotonic() - began if began is not None else 0)
        options = ["-q", "-x", "--tb=short", "-rfE", "--no-header", "--timeout", str(TEST_SECONDS)]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        # Commands that tests start, too, import the copy and not the tree that is installed.
        environment = os.environ | {"PYTHONPATH": str(self.folder), "COLUMNS": "400"}
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            told, _ = process.communicate(timeout=max(left, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the servers and the Spark that tests started
            process.wait()
            return None, ""
        return process.returncode, told[-4000:]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def changed() -> list[str]:
    """Return the modules that differ from main, or on main from the commit before."""
    base = git("merge-base", "HEAD", "main").strip()
    if base == git("rev-parse", "HEAD").strip():
        base = "HEAD~"
    return git("diff", "--name-only", "--diff-filter=d", base, "--", "scripts/*.py").split()


def chosen(names: list[str]) -> list[str]:
    """Return the modules of rooms and files, which are named as below `scripts/helpers` or `scripts`."""
    found: list[Path] = []
    for name in names:
        places = [ROOT / place / name for place in PLACES] + [ROOT / name]
        place = next((place for place in places if place.exists()), None)
        if place is None:
            raise SystemExit(f"There is no module or room {name!r} below {' or '.join(PLACES)}.")
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [path.relative_to(ROOT).as_posix() for path in found]


def why_equivalent(mutant: Mutant) -> str | None:
    """Return why a mutant is accepted, if it is on the list."""
    for known in EQUIVALENT:
        if (mutant.path, mutant.code, mutant.after) == (known.path, known.code, known.after):
            return known.because
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description="Random mutants, and the tests that kill them.")
    parser.add_argument("modules", nargs="*", help="rooms or files; by default what differs from main")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--most", type=int, default=20, help="how many mutants")
    parser.add_argument("--seconds", type=float, default=600, help="for the tests of one mutant")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()

    modules = chosen(given.modules) if given.modules else changed()
    possible = [mutant for module in modules for mutant in mutants_of(module, (ROOT / module).read_bytes())]
    sample = random.Random(given.seed).sample(possible, min(given.most, len(possible)))
    print(f"seed {given.seed}: {len(sample)} of {len(possible)} mutants of {len(modules)} modules", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        copies: Queue[Copy] = Queue()
        for number in range(given.jobs):
            copies.put(Copy(Path(folder) / str(number), given.seconds))

        def judge(mutant: Mutant) -> Result:
            reason = why_equivalent(mutant)
            if reason is not None:
                return Result(mutant, "equivalent", reason, 0)
            copy = copies.get()
            try:
                return copy.judge(mutant)
            finally:
                copies.put(copy)

        results = []
        for result in pool.map(judge, sample):
            results.append(result)
            print(f"{result.outcome:10} {result.seconds:4.0f} s  {result.mutant}  [{result.told}]", flush=True)

    count = {outcome: sum(r.outcome == outcome for r in results) for outcome in ("killed", "SURVIVED", "equivalent")}
    real = count["killed"] + count["SURVIVED"]
    share = count["killed"] / real if real else 1.0
    print(f"{count['killed']} killed, {count['SURVIVED']} survived, {count['equivalent']} equivalent: {share:.1%}")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
