"""Random mutants, or all: `make mutants SEED=1 MODULES="rows report/page.py" N=30`; see CONTRIBUTING.

Mutants are judged in copies of the tree, never in the tree itself; see `judging`. First by the tests that are likely to
notice, then those that survive by all others that may. Results are added to a file, and what it holds is not judged
again, unless the tests of a survivor have changed. A survivor is a hint to a missing test: however many there are, the
command succeeds. It fails where it cannot run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.changes import Mutant, mutants_of
from tests.mutants.covering import covering_tests
from tests.mutants.judging import Order, Result
from tests.mutants.recording import RECORDS, ROOT, Records, record_of

WAVES = (15, None)
"""How many test files of a module are run, first those that find a fault soonest; then all, for what is alive yet."""
RECORDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""How pytest ends when it has run all tests of its files. A test that fails is recorded as one that kills nothing."""
PLACES = ("scripts/helpers", "scripts")
RECORDS_FOLDER = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "glue-watermarks" / "mutants"


class Copies:
    """Copies of the tree, in which tests are recorded and mutants judged, one process in each."""

    def __init__(self, folder: Path, count: int, log: Path) -> None:
        self.folders = [folder / str(number) for number in range(count)]
        self.log = log
        listed = git("ls-files", "-co", "--exclude-standard").splitlines()
        for copy in self.folders:
            for name in listed:
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    (copy / name).write_bytes((ROOT / name).read_bytes())
            # Byte code that is checked by a hash: by time and size, a mutant could be taken for the one before it.
            compiling = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(copy / "scripts")]
            subprocess.run([sys.executable, *compiling], check=True)

    def start(self, number: int, arguments: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
        # Commands that tests start, too, import the copy and not the tree that is installed.
        folder = self.folders[number]
        # No group of tests is left out because it passed before a mutant.
        environment = os.environ | {"PYTHONPATH": str(folder), "GLUE_WATERMARKS_ALL": "1"} | variables
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=folder, env=environment, stdout=log, stderr=log
            )

    def record(self, test_files: Sequence[str], records: Path) -> None:
        """Record the tests of files that have no record yet."""
        missing = [name for name in test_files if not record_of(records, name).exists()]
        options = ["pytest", "-q", "-p", "tests.mutants.recording"]
        shares = [missing[number :: len(self.folders)] for number in range(len(self.folders))]
        variables = {RECORDS: str(records)}
        running = [self.start(number, [*options, *share], **variables) for number, share in enumerate(shares) if share]
        ended = [process.wait() for process in running]
        # Without a record a test kills nothing, and whatever only it notices would be called a survivor.
        if any(code not in RECORDED for code in ended):
            raise SystemExit(f"Not all tests could be recorded; {self.log} says why.")

    def judge(self, number: int, order: Order, results: Results) -> None:
        """Judge mutants in one of the copies. A process that cannot go on is followed by another."""
        while order.mutants:
            path = self.folders[number].with_suffix(".order")
            order.write(path)
            before = len(results.read())
            self.start(number, ["tests.mutants.judging", str(path)]).wait()
            judged = {result.mutant for result in results.read()[before:]}
            left = [mutant for mutant in order.mutants if mutant.name not in judged]
            if len(left) == len(order.mutants):
                raise SystemExit(f"No mutant could be judged; {self.log} says why.")
            order = replace(order, mutants=left)


class Results:
    """What became of mutants, as lines of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def read(self) -> list[Result]:
        return [Result(**json.loads(line)) for line in self.path.read_text().splitlines()]

    def last(self) -> dict[str, Result]:
        """Return the last result of each mutant by its name."""
        return {result.mutant: result for result in self.read()}

    def left(self, mutants: Sequence[Mutant], records: Records) -> list[Mutant]:
        """Return the mutants that no test is known to kill, without those that these very tests have not killed."""
        known = {(result.mutant, result.outcome == "killed" or result.tests) for result in self.read()}
        return [
            mutant
            for mutant in mutants
            if not {(mutant.name, True), (mutant.name, records.fingerprint(mutant))} & known
        ]


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


def tests_of(mutants: list[Mutant], named: list[str], most: int | None) -> list[str]:
    """Return the test files that are likely to notice these mutants, or those that are named."""
    if named:
        return sorted({path for name in named for path in tests_named(name)})
    modules = sorted({mutant.path for mutant in mutants})
    return sorted({name for module in modules for name in covering_tests(ROOT, module)[:most]})


def tests_named(name: str) -> list[str]:
    paths = (ROOT / name).rglob("test_*.py") if (ROOT / name).is_dir() else [ROOT / name]
    return [path.relative_to(ROOT).as_posix() for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description="Mutants, and the tests that kill them.")
    parser.add_argument("modules", nargs="*", help="rooms or files; by default what differs from main")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="a random sample")
    which.add_argument("--all", action="store_true", help="every mutant of the modules")
    parser.add_argument("--most", type=int, default=20, help="how many mutants a sample has")
    parser.add_argument("--tests", nargs="*", default=[], help="test files or folders; by default all that may notice")
    parser.add_argument("--results", type=Path, help="a file of results, to which others are added")
    parser.add_argument(
        "--seconds", type=float, default=300, help="for the tests of one mutant, by what they took before"
    )
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()

    modules = chosen(given.modules) if given.modules else changed()
    possible = [mutant for module in modules for mutant in mutants_of(module, (ROOT / module).read_bytes())]
    number = len(possible) if given.all else min(given.most, len(possible))
    sample = possible if given.all else random.Random(given.seed).sample(possible, number)
    print(f"{len(sample)} of {len(possible)} mutants of {len(modules)} modules", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(given.jobs) as pool:
        folder = Path(name)
        results = Results((given.results or folder / "results.jsonl").absolute())
        log = results.path.with_suffix(".log")
        copies = Copies(folder, given.jobs, log)
        for most in WAVES:
            killed = {name for name, result in results.last().items() if result.outcome == "killed"}
            # Only tests of what still lives are looked at: to record a room's takes longer than to kill most mutants.
            alive = [mutant for mutant in sample if mutant.name not in killed]
            test_files = tests_of(alive, given.tests, most)
            copies.record(test_files, RECORDS_FOLDER)
            records = Records(RECORDS_FOLDER, test_files)
            left = results.left(alive, records)
            orders = [
                Order(left[job :: given.jobs], test_files, str(RECORDS_FOLDER), str(results.path), given.seconds)
                for job in range(given.jobs)
            ]
            judging = [pool.submit(copies.judge, job, order, results) for job, order in enumerate(orders)]
            print(f"{len(left)} to judge by {len(test_files)} test files", flush=True)
            for judged in judging:
                judged.result()
        last = results.last()

    found = [last[mutant.name] for mutant in sample]
    for mutant, result in zip(sample, found, strict=True):
        if result.outcome != "killed" or not given.all:
            print(f"{result.outcome:10} {mutant}  [{result.told}]", flush=True)
    count = Counter(result.outcome for result in found)
    print(f"{count['killed']} killed, {count['SURVIVED']} survived")


if __name__ == "__main__":
    main()
