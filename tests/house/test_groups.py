"""Groups of tests that run only after a change: which are left out, what a run prints, and which results it notes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import reach
from tests.support.places import REPOSITORY

GROUPED = """\
import os, pytest

@pytest.fixture
def broken():
    yield
    raise ValueError

@pytest.mark.if_changed('model')
def test_good():
    pass

@pytest.mark.if_changed('mutants')
def test_one():
    pass

@pytest.mark.if_changed('mutants')
def test_another():
    pass
{more}
def test_of_no_group():
    pass
"""
FAILING = """
@pytest.mark.if_changed('terraform')
def test_bad():
    assert False

@pytest.mark.if_changed('types')
def test_bad_at_the_end(broken):
    pass

@pytest.mark.if_changed('targets')
def test_skipped():
    pytest.skip('no time')
"""
DYING = """
@pytest.mark.if_changed('terraform')
def test_process_dies():
    os._exit(0)
"""
VARIABLES = ("GLUE_WATERMARKS_ALL", "GLUE_WATERMARKS_LONG")
ALL_SPARKS = {"spark-3.3", "spark-4.1"}


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that replaces .ci/passed; a folder next to it replaces that of the results."""
    monkeypatch.setattr(reach, "PASSED", tmp_path / "passed")
    monkeypatch.setattr(reach, "RESULTS", tmp_path / "groups")
    return reach.PASSED


def run_tests(folder: Path, *options: str, more: str = "", **variables: str) -> str:
    """Run tests of several groups and one without a group; `folder/passed` holds the groups that have passed."""
    (folder / "test_it.py").write_text(GROUPED.format(more=more))
    conftest = f"import pathlib\n\nfrom tests.support import reach\n\nreach.PASSED = pathlib.{folder / 'passed'!r}\n"
    (folder / "conftest.py").write_text(conftest)
    environment = {name: value for name, value in os.environ.items() if name not in (*VARIABLES, "CI")}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment | variables, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.if_changed("runs")
@pytest.mark.parametrize(
    ("variables", "outcome"),
    [
        ({}, "2 passed, 2 deselected"),
        ({"GLUE_WATERMARKS_ALL": "1"}, "4 passed"),
        ({"GLUE_WATERMARKS_LONG": "1"}, "4 passed"),
    ],
    ids=["make-test", "make-test-all", "make-test-long"],
)
def test_group_is_left_out_and_named_when_nothing_that_it_reaches_has_changed(
    tmp_path: Path, variables: dict[str, str], outcome: str
) -> None:
    (tmp_path / "passed").write_text(f"model 0123\nmutants {reach.digest('mutants')}\n")

    said = run_tests(tmp_path, **variables)

    named = re.findall(
        r"^(\w+): 2 tests did not run, because nothing .* has changed .*SHA-256 (\w+)", said, re.MULTILINE
    )
    assert outcome in said
    assert named == ([("mutants", reach.digest("mutants"))] if "deselected" in outcome else [])


@pytest.mark.if_changed("runs")
def test_hash_is_noted_only_when_all_tests_of_a_group_passed(tmp_path: Path, noted: Path) -> None:
    noted.write_text("".join(f"{group} 0123\n" for group in sorted(reach.GROUPS)))
    # The group mutants has a third test, in a part that did not run.
    collected = {"model": 1, "mutants": 3, "targets": 1, "terraform": 1, "types": 1}
    counts = [reach.Result(group, "collected", tests, reach.digest(group)) for group, tests in collected.items()]
    reach.leave(reach.RESULTS / "all", counts)

    said = run_tests(tmp_path, "--groups-to", str(reach.RESULTS / "part"), more=FAILING, GLUE_WATERMARKS_ALL="1")
    told = reach.note()

    as_before = dict.fromkeys(reach.GROUPS.keys() - {"terraform", "types"}, "0123")
    assert reach.passed() == as_before | {"model": reach.digest("model")}, said
    assert [line.partition(",")[0] for line in told] == [
        "model: passed",
        "mutants: .ci/passed has what it had before",
        "targets: .ci/passed has what it had before",
        "terraform: failed",
        "types: failed",
    ]


@pytest.mark.if_changed("runs")
def test_no_group_of_a_process_is_noted_when_it_dies(tmp_path: Path, noted: Path) -> None:
    noted.write_text("model 0123\nterraform 0123\ntypes 0123\n")

    run_tests(tmp_path, "--groups-to", str(reach.RESULTS / "part"), more=DYING, GLUE_WATERMARKS_ALL="1")
    reach.note()

    assert reach.passed() == {"types": "0123"}


def test_hash_is_not_noted_when_something_has_changed_while_the_tests_ran(noted: Path) -> None:
    before = [reach.Result("types", outcome, 1, "0123") for outcome in ("collected", "passed")]
    reach.leave(reach.RESULTS / "types", before)

    told = reach.note()

    assert noted.read_text() == ""
    assert told == ["types: .ci/passed has what it had before, because something that it reaches has changed meanwhile"]


def test_group_is_noted_when_several_processes_together_ran_all_its_tests(noted: Path) -> None:
    def leave(part: str, outcome: reach.Outcome, tests: int) -> None:
        reach.leave(reach.RESULTS / part, [reach.Result("terraform", outcome, tests, reach.digest("terraform"))])

    leave("all", "collected", 5)
    leave("jobs", "passed", 2)
    reach.note()
    first = noted.read_text()
    leave("plain", "passed", 3)
    reach.note()

    assert first == ""
    assert noted.read_text() == f"terraform {reach.digest('terraform')}\n"


@pytest.mark.if_changed("runs")
def test_tests_are_counted_when_they_are_only_collected(tmp_path: Path, noted: Path) -> None:
    run_tests(tmp_path, "--collect-only", "--groups-to", str(reach.RESULTS / "all"))

    expected = [reach.Result(group, "collected", n, reach.digest(group)) for group, n in (("model", 1), ("mutants", 2))]
    assert reach.left() == expected


@pytest.mark.if_changed("runs")
def test_run_fails_and_is_not_noted_when_its_tests_load_a_file_outside_the_hash_of_their_group(
    tmp_path: Path, noted: Path
) -> None:
    """Otherwise a change to such a file could break the group's tests without running them."""
    more = "\ndef test_it():\n    import tests.support.inventories\n"

    said = run_tests(tmp_path, "--group", "model", "--groups-to", str(reach.RESULTS / "model"), more=more)
    reach.note()

    assert "5 passed" in said
    assert re.search("does not count what model loads: .*tests/support/inventories.py", said)
    assert {(one.group, one.outcome, one.tests) for one in reach.left()} == {
        ("model", "collected", 5),
        ("model", "failed", 5),
    }


# --- files reached --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of all files that the groups reach."""
    folder = tmp_path_factory.mktemp("copy")
    for name in (".ci", "docs", "scripts", "terraform", "tests"):
        wanted = shutil.ignore_patterns("__pycache__", ".terraform*", "*.png")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=wanted)
    for name in (*reach.STARTED_BY, "README.md"):
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


@pytest.fixture
def copy(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the copy, with all groups noted as passed."""
    monkeypatch.setattr(reach, "REPOSITORY", copied)
    monkeypatch.setattr(reach, "PASSED", copied / ".ci" / "passed")
    forget()
    reach.PASSED.write_text("".join(f"{group} {reach.digest(group)}\n" for group in reach.GROUPS))
    yield copied
    forget()


def forget() -> None:
    reach.files.cache_clear()
    reach.digest.cache_clear()


ALL = set(reach.GROUPS)
OF_JOBS = ALL_SPARKS | {"targets", "types"}
OF_SCRIPTS = OF_JOBS | {"searches", "second-opinion", "site"}
CHANGES = {
    "terraform/policies.tf": {"terraform"},
    "terraform/tests/choices.tftest.hcl": {"terraform"},
    "docs/permissions.md": {"site", "terraform"},
    "docs/model/exactly_once.pml": {"model", "site"},
    "docs/rows.md": {"site"},
    # A module that needs IAM permissions, and a job that the complete example starts.
    "scripts/helpers/protocol/dynamodb.py": OF_SCRIPTS | {"terraform"},
    "scripts/jobs/ingest_table.py": OF_JOBS | {"site", "terraform"},
    # Modules imported by a quoted name, in a function, by Spark's workers, and before any other module.
    "scripts/helpers/sinks/spark_files.py": OF_SCRIPTS,
    "scripts/helpers/databases/sql_table.py": OF_SCRIPTS,
    "scripts/helpers/reading/spark_partitions.py": OF_SCRIPTS,
    "scripts/helpers/display/units.py": OF_SCRIPTS,
    "scripts/helpers/__init__.py": OF_SCRIPTS,
    "scripts/helpers/glue/job.py": OF_SCRIPTS,
    # Loaded only by the command line, which the contract tests of the sinks call.
    "scripts/cli/rewind.py": {"site", "targets", "types"},
    "scripts/report/templates/page.html": {"site", "targets"},
    "scripts/helpers/SKILL.md": {"site"},
    "tests/conftest.py": ALL,
    "tests/support/__init__.py": ALL,
    "tests/support/database_fixtures.py": ALL,
    "tests/support/spark_daemon.py": ALL,
    "tests/support/iam_policies.py": {"terraform", "types"},
    "tests/mutants/judging.py": {"mutants", "types"},
    "tests/sinks/contract/conftest.py": OF_JOBS,
    "tests/sinks/contract/test_once.py": {"targets", "types"},
    "tests/sinks/test_iceberg.py": {"targets", "types"},
    "tests/jobs/conftest.py": ALL_SPARKS | {"types"},
    "tests/watermarks/test_fence.py": {"second-opinion", "types"},
    "tests/report/test_page.py": {"site", "types"},
    "tests/cli/test_looking.py": {"types"},
    ".ci/constraints.txt": ALL,
    ".ci/small/spark-3.3.txt": ALL,
    ".ci/small/run": ALL,
    ".ci/shard": ALL,
    "Makefile": ALL,
    "setup.cfg": ALL,
}
"""For each file, the groups that run again after a change of one byte."""


def test_group_has_not_passed_when_something_that_it_reaches_is_changed(copy: Path) -> None:
    found = {}
    for changed in CHANGES:
        before = (copy / changed).read_bytes()
        (copy / changed).write_bytes(before + b"\n")
        reach.digest.cache_clear()
        found[changed] = {group for group in reach.GROUPS if not reach.has_passed(group)}
        (copy / changed).write_bytes(before)

    assert found == CHANGES


def test_targets_have_not_passed_when_a_file_is_added(copy: Path) -> None:
    added = ("tests/sinks/contract/test_more.py", "scripts/helpers/sinks/more.py", "tests/sinks/conftest.py")
    have_passed = []
    for name in added:
        (copy / name).write_text("")
        forget()
        have_passed.append(reach.has_passed("targets"))
        (copy / name).unlink()

    assert have_passed == [False, False, False]


AUDIT = """\
import os, sys

def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        with open(os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w", errors="surrogateescape") as file:
            file.write(os.path.abspath(arguments[0]) + "\\n")

def hook(event, arguments, busy=[]):
    if not busy:
        busy.append(event)
        try:
            note(event, arguments)
        finally:
            busy.clear()

sys.addaudithook(hook)
"""


def test_group_reaches_each_file_that_the_contract_opens_when_it_runs(tmp_path: Path) -> None:
    """This includes files that its child processes open."""
    log = tmp_path / "log"
    (tmp_path / "sitecustomize.py").write_text(AUDIT.format(log=str(log)))
    tests = "commands_of_the_warning and pyiceberg-append-read or die_between_commit and (pyiceberg or sqlite)"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sinks/contract", "-k", tests]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "GLUE_WATERMARKS_ALL": "1"}

    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)

    opened = {source_of(Path(line)) for line in log.read_text(errors="surrogateescape").splitlines()}
    folders = (".ci", "benchmarks", "docs", "scripts", "terraform", "tests")
    own = {path for name in folders for path in opened if path.is_relative_to(REPOSITORY / name)}
    assert done.returncode == 0, done.stdout + done.stderr
    assert REPOSITORY / "scripts" / "helpers" / "sinks" / "iceberg.py" in own
    assert sorted(path for path in own - reach.files("targets") if path.is_file()) == []


def source_of(path: Path) -> Path:
    """Return the source of a byte code file; any other path is returned unchanged."""
    return path.parent.parent / f"{path.name.partition('.')[0]}.py" if path.suffix == ".pyc" else path


# --- the scripts of .ci ----------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with the files of .ci and few other files, so that its checks are quick."""
    shutil.copytree(REPOSITORY / ".ci", tmp_path / ".ci")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for name in ("scripts/__init__.py", "docs/model/model.pml", "tests/__init__.py", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "tests" / "protocol").mkdir()
    (tmp_path / "tests" / "protocol" / "test_promela_model.py").write_text("")
    (tmp_path / "tests" / "support").mkdir()
    for name in ("__init__", "imports", "long", "places", "reach"):
        shutil.copy(REPOSITORY / "tests" / "support" / f"{name}.py", tmp_path / "tests" / "support")
    (tmp_path / "setup.cfg").write_text("[mypy]\nstrict = True\nfiles = scripts, tests\n")
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "Makefile").write_text(
        "test:\n"
        '\t@echo "$${GLUE_WATERMARKS_ALL}" >all.txt\n'
        "\t@.venv/bin/python -m tests.support.reach run types true\n"
        "\t@.venv/bin/python -m tests.support.reach run model false\n"
    )
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # All clones share one mypy cache, so that the standard library is analysed only once.
    monkeypatch.setenv("MYPY_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "mypy"))
    monkeypatch.setattr(reach, "REPOSITORY", tmp_path)
    monkeypatch.setattr(reach, "PASSED", tmp_path / ".ci" / "passed")
    monkeypatch.setattr(reach, "RESULTS", tmp_path / "build" / "groups")
    forget()
    reach.PASSED.write_text("")
    yield tmp_path
    forget()


def start(clone: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([clone / command[0], *command[1:]], capture_output=True, text=True, check=False)


@pytest.mark.if_changed("runs")
def test_passed_groups_are_noted_and_failed_ones_left_out_when_all_tests_have_run(clone: Path) -> None:
    reach.PASSED.write_text(f"model {reach.digest('model')}\nmutants 0123\n")

    done = start(clone, ".ci/all")

    assert done.returncode != 0
    assert (clone / "all.txt").read_text() == "1\n"
    assert reach.PASSED.read_text().splitlines() == ["mutants 0123", f"types {reach.digest('types')}"]
    assert "model: failed, so it is not in .ci/passed\n" in done.stdout


@pytest.mark.if_changed("runs")
def test_results_of_an_earlier_run_are_forgotten_when_all_tests_run_again(clone: Path) -> None:
    results = [reach.Result("terraform", outcome, 1, reach.digest("model")) for outcome in ("collected", "failed")]
    reach.leave(reach.RESULTS / "plain", results)

    start(clone, ".ci/all")

    assert {one.group for one in reach.left()} == {"model", "types"}


@pytest.mark.if_changed("runs")
def test_groups_of_the_rooms_are_noted_when_long_tests_have_run(clone: Path) -> None:
    for name, group, body in (("protocol", "model", "pass"), ("mutants", "mutants", "assert False")):
        (clone / "tests" / name).mkdir(exist_ok=True)
        test = f"import pytest\n\n@pytest.mark.if_changed('{group}')\ndef test_it():\n    {body}\n"
        (clone / "tests" / name / ("test_promela_model.py" if name == "protocol" else "test_it.py")).write_text(test)
    shutil.copy(REPOSITORY / "tests" / "support" / "group_results.py", clone / "tests" / "support")
    (clone / "tests" / "conftest.py").write_text(
        'pytest_plugins = ["tests.support.group_results"]\n\n'
        'def pytest_addoption(parser):\n    parser.addoption("--ids-to")\n'
    )
    forget()
    noted = f"model {reach.digest('model')}\n"
    reach.PASSED.write_text("mutants 0123\n")

    of_a_room = start(clone, ".ci/long", "protocol")
    first = reach.PASSED.read_text()
    of_all = start(clone, ".ci/long", "protocol", "mutants")

    assert of_a_room.returncode == 0, of_a_room.stdout + of_a_room.stderr
    assert first == f"{noted}mutants 0123\n"
    assert of_all.returncode == 1, of_all.stdout + of_all.stderr
    assert reach.PASSED.read_text() == noted


@pytest.mark.if_changed("runs")
@pytest.mark.parametrize(
    ("wrong", "has_passed", "code"),
    [
        pytest.param("tests", False, 1, id="tests"),
        pytest.param("tests", True, 0, id="tests-that-have-passed"),
        pytest.param("scripts", True, 1, id="scripts"),
    ],
)
def test_types_of_tests_are_checked_only_after_a_change_when_those_of_the_package_always_are(
    clone: Path, wrong: str, has_passed: bool, code: int
) -> None:
    (clone / wrong / "wrong.py").write_text("number: int = ''\n")
    if has_passed:
        reach.PASSED.write_text(f"types {reach.digest('types')}\n")

    done = start(clone, ".ci/types")

    assert done.returncode == code, done.stdout + done.stderr
    line = f"types: the type checks of tests/ did not run, because .*{reach.digest('types')}"
    assert bool(re.search(line, done.stdout)) == has_passed
    outcomes = {one.outcome for one in reach.left()} - {"collected"}
    assert outcomes == (set() if has_passed else {"failed" if code else "passed"})


@pytest.mark.parametrize("target", ["test-all", "test"])
def test_every_group_runs_when_make_is_asked_for_all_of_them(target: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", "--dry-run", target]
    planned = subprocess.run(command, cwd=REPOSITORY, env=kept, capture_output=True, text=True, check=True).stdout

    assert (".ci/all\n" in planned) == (target == "test-all")
    assert (".ci/types\n" in planned) == (target == "test")


# --- the groups themselves ------------------------------------------------------------------------------


def test_only_formats_beyond_parquet_and_delta_are_in_the_group_when_the_contract_is_collected() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", "not if_changed"]

    done = subprocess.run(
        [*command, "tests/sinks/contract"],
        cwd=REPOSITORY,
        env=os.environ | {"GLUE_WATERMARKS_ALL": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    always = {word for line in done.stdout.splitlines() for word in re.split(r"[\[\]-]", line.rpartition("::")[2])}
    kinds = {"parquet", "pandas", "deltalake", "delta", "postgres", "maria", "sqlite"}
    further = {"iceberg", "pyiceberg", "orc", "csv", "json"}
    assert always & (kinds | further) == kinds
    assert int(re.findall(r"(\d+) deselected", done.stdout)[0]) > 150
