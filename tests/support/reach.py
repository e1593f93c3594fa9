"""What a group of tests reaches, and whether any of it has changed since `make test-long` passed the group.

The file `.ci/passed` holds each group with the SHA-256 of what it reached then. `.ci/long` writes it.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path

from tests.support.imports import DYNAMODB_CALLS, S3_CALLS, files_below, names_imported
from tests.support.places import REPOSITORY

PASSED = REPOSITORY / ".ci" / "passed"
PACKAGES = REPOSITORY / ".ci" / "constraints.txt"
RIGHT = re.compile(r"\b[a-z][a-z0-9-]*:[A-Z][a-z]+[A-Z]\w+")
"""An action of an IAM policy, such as s3:GetObject."""


CALLS = DYNAMODB_CALLS | S3_CALLS
CALLS_AWS = re.compile(r"^\s*(?:from|import) boto", re.MULTILINE)


def needs_a_right(path: Path) -> bool:
    """Return whether a module names an action of a policy or an operation that needs one, or imports AWS' client."""
    text = path.read_text(encoding="utf-8")
    found = RIGHT.search(text) or CALLS_AWS.search(text)
    return bool(found) or not CALLS.isdisjoint(re.findall(r"\w+", text))


def of_terraform() -> Iterable[Path]:
    """Return what decides whether the policies and examples of terraform/ fit the package."""
    yield from (path for path in (REPOSITORY / "terraform").rglob("*") if path.is_file() and not is_made(path))
    yield from (path for path in files_below(REPOSITORY / "scripts") if needs_a_right(path))
    yield from files_below(REPOSITORY / "scripts" / "jobs")  # The complete example starts them.
    yield REPOSITORY / "docs" / "permissions.md"
    yield REPOSITORY / ".ci" / "checkov.txt"
    yield from with_support(*files_below(REPOSITORY / "tests" / "infra"))


def of_model() -> Iterable[Path]:
    yield from (path for path in (REPOSITORY / "docs" / "model").iterdir() if path.is_file())
    yield from with_support(REPOSITORY / "tests" / "protocol" / "test_promela_model.py")


def of_mutants() -> Iterable[Path]:
    return with_support(*files_below(REPOSITORY / "tests" / "mutants"))


GROUPS: dict[str, Callable[[], Iterable[Path]]] = {"model": of_model, "mutants": of_mutants, "terraform": of_terraform}
PLACES = {"model": "protocol/test_promela_model.py", "mutants": "mutants", "terraform": "infra"}
"""Where all tests of a group are, below tests/."""


def is_made(path: Path) -> bool:
    """Return whether Terraform has made a file, or the folder that it is in."""
    return any(part.startswith((".terraform", "terraform.tfstate")) for part in path.parts)


def with_support(*tests: Path) -> set[Path]:
    """Return files of tests, the conftest.py of all tests, and what these import of tests/."""
    found: set[Path] = set()
    left = [*tests, REPOSITORY / "tests" / "conftest.py"]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += [other for name in names_imported(path) if (other := module_of(name)) is not None]
    return found


def module_of(name: str) -> Path | None:
    """Return the file of tests/ that an imported name is, or is in."""
    if name.partition(".")[0] != "tests":
        return None
    whole = REPOSITORY / Path(*name.split("."))
    places = (whole.with_suffix(".py"), whole.parent.with_suffix(".py"), whole / "__init__.py")
    return next((place for place in places if place.exists()), None)


@cache
def digest(group: str) -> str:
    """Return the SHA-256 of the names and bytes of all that a group reaches."""
    found = hashlib.sha256()
    for path in sorted({*GROUPS[group](), PACKAGES}):
        found.update(f"{path.relative_to(REPOSITORY).as_posix()}\n".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def has_passed(group: str) -> bool:
    """Return whether all of a group passed with what it reaches now."""
    lines = PASSED.read_text(encoding="utf-8").splitlines() if PASSED.exists() else []
    return f"{group} {digest(group)}" in lines


def main(rooms: Collection[str]) -> None:
    """Note that the groups in these folders or files of tests have passed."""
    passed = [group for group, place in PLACES.items() if any(f"{place}/".startswith(f"{room}/") for room in rooms)]
    lines = PASSED.read_text(encoding="utf-8").splitlines() if PASSED.exists() else []
    known = dict(line.split() for line in lines) | {group: digest(group) for group in passed}
    PASSED.write_text("".join(f"{group} {known[group]}\n" for group in sorted(GROUPS.keys() & known)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
