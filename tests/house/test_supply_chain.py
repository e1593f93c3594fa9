"""What is installed is what was chosen: each package by its hash, and no hint names a package that is not ours."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.places import REPOSITORY

LOCKED = [REPOSITORY / ".ci" / name for name in ("constraints.txt", "checkov.txt")]
SETUP = (REPOSITORY / ".ci/setup").read_text(encoding="utf-8")
OF_CI = ("spark", "fast", "pandas", "telemetry", "cli", "notebook", "report")
"""The extras whose packages the tests need."""
OF_DEVELOPERS = [REPOSITORY / ".ci/requirements" / f"{name}.txt" for name in ("demo", "docs", "test")]
"""What the tests need besides. Benchmarks need more, which `make bench-files` installs."""


def packages(path: Path) -> dict[str, str]:
    """Return the version and the hashes of each package that a file locks, by its name in the index's spelling."""
    blocks = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8").strip())
    return {canonicalize_name(name): rest for name, rest in (block.split("==", 1) for block in blocks)}


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.stem)
def test_each_package_has_hashes_when_ci_installs_it(path: Path) -> None:
    whole = re.compile(r"\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+")

    without = [name for name, rest in packages(path).items() if not whole.fullmatch(rest)]

    assert packages(path)
    assert without == []


def test_nothing_comes_without_its_hash_when_ci_is_set_up() -> None:
    installing = [
        line for line in SETUP.splitlines() if re.search(r"pip\S* install\b", line) and not line.startswith("#")
    ]

    others = [line for line in installing if '"${options[@]}"' not in line and not line.endswith("--editable .")]

    assert "--require-hashes" in SETUP
    assert installing
    assert others == []
    assert all("--no-deps --no-build-isolation" in line for line in installing if line.endswith("--editable ."))


def test_each_requirement_is_locked_when_the_tests_need_it() -> None:
    """Nothing is resolved when CI is set up, so that a requirement that the file lacks would be missing."""
    config = ConfigParser()
    config.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    lines = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in OF_CI)]
    lines += [path.read_text(encoding="utf-8") for path in OF_DEVELOPERS]
    needed = [Requirement(line) for text in lines for line in text.split("\n") if line.strip()]
    locked = {name: rest.split()[0] for name, rest in packages(LOCKED[0]).items()}

    wrong = [str(one) for one in needed if not one.specifier.contains(locked.get(canonicalize_name(one.name), "0"))]

    assert len(needed) > 30
    assert wrong == []


def test_no_hint_names_the_package_in_an_index_when_something_is_missing() -> None:
    """The package is in no index. Whoever takes its name there would be installed by everyone who follows the hint."""
    texts = [*(REPOSITORY / "scripts").rglob("*.py"), *(REPOSITORY / "docs").glob("*.md"), REPOSITORY / "README.md"]
    named = re.compile(r"(?:pip|uv|pipx)[^\n]*install[^\n]*[\s'\"]glue-watermarks(?:\[|['\"\s=]|$)")

    found = [f"{path.name}: {match[0]}" for path in texts for match in named.finditer(path.read_text(encoding="utf-8"))]

    assert found == []
