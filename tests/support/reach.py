"""What a group of tests reaches, and whether any of it has changed since the group passed.

The file `.ci/passed` holds the SHA-256 of what each group reached when it passed. `make test` leaves out a group whose
hash is there. `make test-all` and `make test-long` run all groups and write the file from the results that their
processes leave in build/groups/:

    python -m tests.support.reach passed GROUP WHAT     exits with 0 and prints a line if a run leaves the group out
    python -m tests.support.reach run GROUP COMMAND     runs a command and leaves its result as that of the group
    python -m tests.support.reach note                  writes .ci/passed
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.support.imports import DYNAMODB_CALLS, S3_CALLS, files_below, imports_of
from tests.support.long import is_all
from tests.support.places import REPOSITORY

if TYPE_CHECKING:
    import pytest

PASSED = REPOSITORY / ".ci" / "passed"
RESULTS = REPOSITORY / "build" / "groups"
"""A file of results for each process."""
STARTED_BY = ("Makefile", "setup.cfg", "setup.py")
"""Files that start and configure all tests, besides the files of .ci."""
RIGHT = re.compile(r"\b[a-z][a-z0-9-]*:[A-Z][a-z]+[A-Z]\w+")
"""An action of an IAM policy, such as s3:GetObject."""
QUOTED = re.compile(r"""["']((?:scripts|tests)(?:\.\w+)+)["']""")
"""A module that a file names as a text, for example to start it in another process."""


CALLS = DYNAMODB_CALLS | S3_CALLS
CALLS_AWS = re.compile(r"^\s*(?:from|import) boto", re.MULTILINE)


def needs_a_right(path: Path) -> bool:
    """Return whether a module names an IAM action or an operation that needs a permission, or imports boto."""
    text = path.read_text(encoding="utf-8")
    found = RIGHT.search(text) or CALLS_AWS.search(text)
    return bool(found) or not CALLS.isdisjoint(re.findall(r"\w+", text))


def files_of_terraform() -> Iterable[Path]:
    """Yield the files that decide whether the policies and examples of terraform/ fit the package."""
    yield from (path for path in (REPOSITORY / "terraform").rglob("*") if path.is_file() and not is_made(path))
    yield from (path for path in files_below(REPOSITORY / "scripts") if needs_a_right(path))
    yield from files_below(REPOSITORY / "scripts" / "jobs")  # The complete example starts these jobs.
    yield REPOSITORY / "docs" / "permissions.md"
    yield REPOSITORY / ".ci" / "checkov.txt"
    yield from with_support(*files_below(REPOSITORY / "tests" / "infra"))


def files_of_model() -> Iterable[Path]:
    yield from (path for path in (REPOSITORY / "docs" / "model").iterdir() if path.is_file())
    yield from with_support(REPOSITORY / "tests" / "protocol" / "test_promela_model.py")


def files_of_mutants() -> Iterable[Path]:
    return with_support(*files_below(REPOSITORY / "tests" / "mutants"))


def files_of_runs() -> Iterable[Path]:
    """Yield the files that decide which tests a run leaves out and what it reports, besides those of .ci."""
    house = REPOSITORY / "tests" / "house"
    return with_support(*(house / f"test_{name}.py" for name in ("groups", "matrix", "small_set")))


def files_of_searches() -> Iterable[Path]:
    return with_support(REPOSITORY / "tests" / "protocol" / "test_mutants.py", packages=("scripts", "tests"))


def files_of_second_opinion() -> Iterable[Path]:
    tests = REPOSITORY / "tests"
    suite = (*files_below(tests / "watermarks"), tests / "decisions" / "test_administration.py")
    return with_support(tests / "protocol" / "test_second_opinion.py", *suite, packages=("scripts", "tests"))


def files_of_site() -> Iterable[Path]:
    """Yield the pages, and all of scripts/: the site documents the API and has screenshots of the report.

    The tests that open the report in a browser belong to the same group.
    """
    yield REPOSITORY / "README.md"
    for folder in ("docs", "scripts"):
        yield from (path for path in (REPOSITORY / folder).rglob("*") if path.is_file() and not is_made(path))
    tests = REPOSITORY / "tests"
    yield from with_support(tests / "docs" / "test_site.py", tests / "report" / "test_page.py")


def files_of_small_set() -> Iterable[Path]:
    lines = (REPOSITORY / ".ci" / "small" / "tests.txt").read_text(encoding="utf-8").splitlines()
    return with_support(*(REPOSITORY / line.partition("::")[0] for line in lines), packages=("scripts", "tests"))


def files_of_targets() -> Iterable[Path]:
    """Yield the files that decide the contract of sinks; its tests import the command, so nearly all of scripts/."""
    below = (path for path in (REPOSITORY / "scripts").rglob("*") if path.is_file() and not is_made(path))
    yield from (path for path in below if path.suffix != ".md")
    sinks = REPOSITORY / "tests" / "sinks"
    yield from with_support(*files_below(sinks / "contract"), *sinks.glob("test_iceberg*.py"))


def files_of_types() -> Iterable[Path]:
    return (path for folder in ("scripts", "tests") for path in files_below(REPOSITORY / folder))


GROUPS: dict[str, Callable[[], Iterable[Path]]] = {
    "model": files_of_model,
    "mutants": files_of_mutants,
    "runs": files_of_runs,
    "searches": files_of_searches,
    "second-opinion": files_of_second_opinion,
    "site": files_of_site,
    "spark-3.3": files_of_small_set,
    "spark-4.1": files_of_small_set,
    "targets": files_of_targets,
    "terraform": files_of_terraform,
    "types": files_of_types,
}


def group_of(item: pytest.Item) -> str:
    """Return the group that a test belongs to, or an empty text."""
    marker = item.get_closest_marker("if_changed")
    return str(marker.args[0]) if marker else ""


def is_made(path: Path) -> bool:
    """Return whether Terraform, Python or a linter has created a file or the folder that it is in."""
    made = (".terraform", "terraform.tfstate", "__pycache__", ".ruff_cache", ".mypy_cache")
    return any(part.startswith(made) for part in path.parts)


def with_support(*tests: Path, packages: Sequence[str] = ("tests",)) -> set[Path]:
    """Return test files, what pytest imports for them, and what all of these import from some packages.

    pytest imports the conftest.py and __init__.py of each folder that a file is in, and the shared fixtures.
    """
    top = REPOSITORY / "tests"
    folders = {folder for test in tests for folder in test.parents if folder.is_relative_to(top)} | {top}
    shared = {folder / name for folder in folders for name in ("conftest.py", "__init__.py")}
    fixtures = (top / "support").glob("*_fixtures.py")
    return with_imports([*tests, *filter(Path.is_file, shared), *fixtures], packages)


def with_imports(files: Iterable[Path], packages: Sequence[str]) -> set[Path]:
    """Return files and everything that they import from some packages, directly or through other files, or by name."""
    found: set[Path] = set()
    left = [*files]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        names = names_in(path.read_text(encoding="utf-8"))
        left += [other for name in names if name.partition(".")[0] in packages for other in files_of(name)]
    return found


@cache
def names_in(text: str) -> frozenset[str]:
    """Return every name that a file imports, and the modules of this repository that it names as a text."""
    return frozenset({name for name, _ in imports_of(ast.parse(text))} | set(QUOTED.findall(text)))


def files_of(name: str) -> list[Path]:
    """Return the files that an import of a name runs: the packages that contain the name, and its module."""
    wholes = [REPOSITORY.joinpath(*name.split(".")[: number + 1]) for number in range(name.count(".") + 1)]
    places = [place for whole in wholes for place in (whole.with_suffix(".py"), whole / "__init__.py")]
    return [place for place in places if place.is_file()]


@cache
def files(group: str) -> set[Path]:
    """Return all files that decide whether a group passes."""
    ci = (path for path in (REPOSITORY / ".ci").rglob("*") if path.is_file() and not is_made(path))
    starting = {path for path in ci if path.name != "passed"} | {REPOSITORY / name for name in STARTED_BY}
    return starting.union(GROUPS[group]())


@cache
def digest(group: str) -> str:
    """Return the SHA-256 of the names and contents of all files that a group reaches."""
    found = hashlib.sha256()
    for path in sorted(files(group)):
        found.update(f"{path.relative_to(REPOSITORY).as_posix()}\n".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def not_reached(group: str) -> list[str]:
    """Return the modules of this repository that this process has loaded although the group does not reach them."""
    loaded = {Path(file) for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))}
    own = {path for name in ("scripts", "tests") for path in loaded if path.is_relative_to(REPOSITORY / name)}
    return sorted(path.relative_to(REPOSITORY).as_posix() for path in own - files(group))


def passed() -> dict[str, str]:
    """Return the groups that passed, with the hash of the files that they reached."""
    lines = PASSED.read_text(encoding="utf-8").splitlines() if PASSED.exists() else []
    return dict(line.split() for line in lines)


def has_passed(group: str) -> bool:
    """Return whether all tests of a group passed with the files that it reaches now."""
    noted = passed().get(group)
    return noted is not None and noted == digest(group)


def is_passed_over(group: str) -> bool:
    """Return whether this run skips a group."""
    return not is_all() and has_passed(group)


def passing_over(group: str, what: str) -> str:
    """Return the line that a run prints about a group that it skips."""
    return (
        f"{group}: {what} did not run, because nothing that they reach has changed since they passed "
        f"(SHA-256 {digest(group)})."
    )


# --- results --------------------------------------------------------------------------------------------

Outcome = Literal["collected", "began", "passed", "failed", "skipped"]
"""The outcome of tests. Tests that only began ran in a process that did not finish."""


@dataclass(frozen=True)
class Result:
    """The outcome of a group's tests in one process. The outcome `collected` counts all tests of the group."""

    group: str
    outcome: Outcome
    tests: int
    digest: str


def leave(path: Path, results: Iterable[Result]) -> None:
    """Write results to a file, and replace its previous results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{one.group} {one.outcome} {one.tests} {one.digest}\n" for one in results]
    path.write_text("".join(lines), encoding="utf-8")


def left() -> list[Result]:
    """Return the results of all processes."""
    lines = [line.split() for path in RESULTS.glob("*") for line in path.read_text(encoding="utf-8").splitlines()]
    return [Result(group, outcome, int(tests), digest) for group, outcome, tests, digest in lines]  # type: ignore[arg-type]


def run(group: str, command: Sequence[str]) -> int:
    """Run the command that is all of a group, write its result, and return the command's exit code."""
    result = partial(Result, group, tests=1, digest=digest(group))
    leave(RESULTS / group, [result("collected"), result("began")])
    code = subprocess.run(command, check=False).returncode
    leave(RESULTS / group, [result("collected"), result("failed" if code else "passed")])
    return code


def note() -> list[str]:
    """Write the hash of each group that passed to `.ci/passed`, remove that of each that failed, and return a report.

    A group keeps the hash that it had if some of its tests were skipped or did not run, or if a file that it reaches
    has changed while they ran.
    """
    known, found, lines = passed(), left(), []
    for group in GROUPS:
        results = [one for one in found if one.group == group]
        outcomes = {one.outcome for one in results} - {"collected"}
        all_tests, well = (sum(one.tests for one in results if one.outcome == name) for name in ("collected", "passed"))
        is_same = all(one.digest == digest(group) for one in results)
        if outcomes & {"began", "failed"}:
            known.pop(group, None)
            lines.append(f"{group}: failed, so it is not in .ci/passed")
        elif outcomes == {"passed"} and is_same and well == all_tests:
            known[group] = digest(group)
            lines.append(f"{group}: passed, so it is in .ci/passed (SHA-256 {digest(group)})")
        elif outcomes:
            why = "some of its tests did not run" if is_same else "something that it reaches has changed meanwhile"
            lines.append(f"{group}: .ci/passed has what it had before, because {why}")
    PASSED.write_text("".join(f"{group} {known[group]}\n" for group in sorted(GROUPS.keys() & known)), encoding="utf-8")
    return lines


def main(command: str, *arguments: str) -> int:
    """Run a command of the table above and return the exit code."""
    if command == "run":
        return run(arguments[0], arguments[1:])
    if command == "note":
        lines = note()
    else:
        group, what = arguments
        lines = [passing_over(group, what)] if is_passed_over(group) else []
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0 if lines or command == "note" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
