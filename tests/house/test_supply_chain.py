"""Only chosen packages are installed: each is locked by its hash, and no hint names a package of another owner."""

from __future__ import annotations

import re
import runpy
from configparser import ConfigParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.locked import packages, versions
from tests.support.places import REPOSITORY

LOCKED = [
    REPOSITORY / ".ci" / name
    for name in ("constraints.txt", "checkov.txt", "small/spark-3.3.txt", "small/spark-4.1.txt")
]
INSTALLERS = [REPOSITORY / ".ci" / name for name in ("setup", "install-locked", "small/run")]
OF_CI = ("spark", "fast", "pandas", "telemetry", "cli", "notebook", "report", "sql")
"""The extras whose packages the tests need."""
NEEDED_BY_DEMO = ("boto3", "python-dateutil", "pyspark", "click", "rich", "Jinja2")
"""Requirements of the package, its command line and its report."""
OF_DEVELOPERS = [REPOSITORY / ".ci/requirements" / f"{name}.txt" for name in ("demo", "docs", "test")]
"""Further requirements of the tests. Benchmarks need more packages, which `make bench-files` installs."""


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_each_package_has_hashes_when_ci_installs_it(path: Path) -> None:
    whole = re.compile(r"\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+")

    without = [name for name, rest in packages(path).items() if not whole.fullmatch(rest)]

    assert packages(path)
    assert without == []


def test_nothing_comes_without_its_hash_when_ci_is_set_up() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in INSTALLERS)
    installing = [
        line for line in text.splitlines() if re.search(r"pip\S* install\b", line) and not line.startswith("#")
    ]

    others = [line for line in installing if not re.search(r'"\$\{(options|editable)\[@\]\}"', line)]

    assert "options=(--quiet --no-compile --no-deps --no-build-isolation --require-hashes)" in text
    assert installing
    assert others == []
    assert "editable=(--quiet --no-deps --no-build-isolation --editable .)" in text


X86 = "manylinux_2_17_x86_64.manylinux2014_x86_64"


@pytest.mark.parametrize(
    ("pythons", "tags", "taken"),
    [
        ((11,), f"cp311-cp311-{X86}", True),
        ((11,), f"cp313-cp313-{X86}", False),
        ((11, 13), f"cp313-cp313-{X86}", True),
        ((11, 13), f"cp313-cp313t-{X86}", False),
        ((10,), f"cp311-abi3-{X86}", False),
        ((10,), f"cp39-abi3-{X86}", True),
        ((10,), "py2.py3-none-any", True),
        ((10,), "cp310-cp310-win_amd64", False),
    ],
)
def test_wheel_is_locked_when_it_fits_a_python_that_the_file_is_for(
    pythons: tuple[int, ...], tags: str, taken: bool
) -> None:
    lock = runpy.run_path(str(REPOSITORY / ".ci" / "lock"))

    assert lock["is_for"](pythons, f"numpy-2.2.6-{tags}.whl") is taken
    assert set(lock["PYTHONS"]) <= {path.name for path in LOCKED}


def test_each_requirement_is_locked_when_the_tests_need_it() -> None:
    """CI installs without resolving dependencies, so a requirement that is not in the lock file would be missing."""
    config = ConfigParser()
    config.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    lines = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in OF_CI)]
    lines += [path.read_text(encoding="utf-8") for path in OF_DEVELOPERS]
    needed = [Requirement(line) for text in lines for line in text.split("\n") if line.strip()]
    locked = versions(LOCKED[0])

    wrong = [str(one) for one in needed if not one.specifier.contains(locked.get(canonicalize_name(one.name), "0"))]

    assert len(needed) > 30
    assert wrong == []


def test_demo_installs_what_its_requirements_need_and_nothing_else_when_it_is_set_up() -> None:
    """The demo needs fewer than half of the packages. Requirements are read from the metadata of installed packages."""
    lines = (REPOSITORY / ".ci/requirements/demo.txt").read_text(encoding="utf-8").split("\n")
    # Only the jars of sagemaker_pyspark are used, because its Python requirements are too old. They are left out.
    left = [Requirement(line) for line in [*lines, *NEEDED_BY_DEMO] if line]
    needed, seen = {"sagemaker-pyspark"}, set()
    while left:
        one = left.pop()
        if str(one) not in seen:
            seen.add(str(one))
            needed.add(canonicalize_name(one.name))
            requirements = [Requirement(text) for text in distribution(one.name).requires or []]
            extras = [{"extra": extra} for extra in one.extras or {""}]
            left += [two for two in requirements if not two.marker or any(map(two.marker.evaluate, extras))]

    named = (REPOSITORY / ".ci/demo.txt").read_text(encoding="utf-8").split()

    assert {canonicalize_name(name) for name in named} == needed
    assert set(named) <= set(re.findall(r"^(\S+)==", LOCKED[0].read_text(encoding="utf-8"), re.MULTILINE))


def test_no_hint_names_the_package_in_an_index_when_something_is_missing() -> None:
    """The package is in no index. If a stranger registered its name, users who follow the hint would install that."""
    texts = [*(REPOSITORY / "scripts").rglob("*.py"), *(REPOSITORY / "docs").glob("*.md"), REPOSITORY / "README.md"]
    named = re.compile(r"(?:pip|uv|pipx)[^\n]*install[^\n]*[\s'\"]glue-watermarks(?:\[|['\"\s=]|$)")

    found = [f"{path.name}: {match[0]}" for path in texts for match in named.finditer(path.read_text(encoding="utf-8"))]

    assert found == []
