"""The wheel: its content, its requirements, and its import from the file by a clean interpreter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE

REPOSITORY = Path(__file__).parents[2]

IMPORT_FROM_WHEEL = """
import json, sys
from scripts.helpers import watermarks
from scripts.helpers.watermarks import Watermarks
print(json.dumps({"file": watermarks.__file__, "path": sys.path}))
"""

IMPORT_AND_WATCH = """
import json, sys
SENDING = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"}
touched = []
sys.addaudithook(lambda name, _: touched.append(name) if name in SENDING else None)
import boto3, botocore.session
made = []
make = botocore.session.Session.create_client
botocore.session.Session.create_client = lambda *args, **options: made.append(str(args[1:])) or make(*args, **options)
before = sorted(sys.modules)
import scripts.helpers.watermarks
print(json.dumps({
    "modules": sorted(sys.modules), "before": before, "sockets": touched, "clients": made,
    "session": boto3.DEFAULT_SESSION is not None,
}))
"""


def run(code: str, folder: Path, path: Path) -> Any:
    """Run code in an interpreter that finds this package only at `path`, and return the JSON that it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AWS_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def names(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


@pytest.fixture
def metadata(wheel: Path) -> Any:
    (folder,) = [found for found in zipfile.Path(wheel).iterdir() if found.name.endswith(".dist-info")]
    return PathDistribution(folder).metadata


def test_wheel_runs_on_any_python_3_and_platform_when_built(wheel: Path) -> None:
    assert wheel.name.startswith("glue_watermarks-")
    assert wheel.name.endswith("-py3-none-any.whl")


def test_watermarks_imports_from_the_wheel_file_when_the_interpreter_is_clean(wheel: Path, tmp_path: Path) -> None:
    found = run(IMPORT_FROM_WHEEL, tmp_path, wheel)

    assert found["file"] == str(wheel / "scripts" / "helpers" / "watermarks.py")


def test_wheel_holds_its_type_marker_and_the_guide_for_agents_when_built(names: list[str]) -> None:
    assert {"scripts/helpers/py.typed", "scripts/helpers/SKILL.md"} <= set(names)


def test_wheel_holds_every_helper_and_job_when_built(names: list[str]) -> None:
    sources = [*(REPOSITORY / "scripts/helpers").rglob("*.py"), *(REPOSITORY / "scripts/jobs").glob("*.py")]

    assert {path.relative_to(REPOSITORY).as_posix() for path in sources} <= set(names)


def test_wheel_holds_the_page_with_its_templates_when_built(names: list[str]) -> None:
    sources = [path for path in (REPOSITORY / "scripts/report").rglob("*.*") if path.suffix != ".pyc"]

    assert len(sources) > 5
    assert {path.relative_to(REPOSITORY).as_posix() for path in sources} <= set(names)


def test_wheel_holds_neither_demo_nor_tests_when_built(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}

    assert tops == {"scripts"}
    assert [name for name in names if name.startswith("scripts/demo")] == []


def test_wheel_needs_boto3_and_dateutil_alone_when_no_extra_is_asked_for(metadata: Any) -> None:
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]

    assert sorted(re.split(r"[^\w-]", line)[0] for line in needed) == ["boto3", "python-dateutil"]


@pytest.mark.parametrize(
    ("extra", "package"),
    [
        ("spark", "pyspark"),
        ("files", "pyarrow"),
        ("fast", "obstore"),
        ("cli", "click"),
        ("report", "Jinja2"),
        ("all", "pyiceberg"),
    ],
)
def test_extra_brings_its_packages_when_asked_for(metadata: Any, extra: str, package: str) -> None:
    brought = [line for line in metadata.get_all("Requires-Dist") if line.replace('"', "'").endswith(f"'{extra}'")]

    assert extra in metadata.get_all("Provides-Extra")
    assert any(line.startswith(package) for line in brought)


def test_extras_are_those_of_users_when_the_wheel_is_built(metadata: Any) -> None:
    """Requirements of tests, demo, benchmarks and docs are in `.ci/requirements`, because users do not need them."""
    brought: dict[str, set[str]] = {}
    for line in metadata.get_all("Requires-Dist"):
        package, extra = re.match(r"([\w.-]+)", line), re.search(r"extra == ['\"](\w+)['\"]", line)
        if package and extra:
            brought.setdefault(extra[1], set()).add(package[1])
    everything = brought.pop("all")

    assert brought.keys() == {
        "spark", "files", "fast", "iceberg", "pandas", "delta", "telemetry", "cli", "notebook", "report", "sql",
    }  # fmt: skip
    assert everything == set().union(*brought.values())


def test_wheel_needs_python_3_10_when_installed(metadata: Any) -> None:
    assert (metadata["Name"], metadata["Requires-Python"]) == ("glue-watermarks", ">=3.10")


def test_import_brings_only_boto3_and_the_standard_library_when_watermarks_is_imported(tmp_path: Path) -> None:
    found = run(IMPORT_AND_WATCH, tmp_path, REPOSITORY)

    tops = {name.partition(".")[0] for name in set(found["modules"]) - set(found["before"])}
    assert tops - set(sys.stdlib_module_names) <= {"scripts", "boto3", "botocore", "s3transfer", "jmespath", "dateutil"}
    assert not {"pyspark", "awsglue", "pandas", "numpy", "pyarrow"} & {
        name.partition(".")[0] for name in found["modules"]
    }
    assert not {"dateutil.zoneinfo", "dateutil.rrule", "dateutil.easter"} & set(found["modules"])


def test_import_makes_no_client_and_no_connection_when_watermarks_is_imported(tmp_path: Path) -> None:
    found = run(IMPORT_AND_WATCH, tmp_path, REPOSITORY)

    assert (found["clients"], found["sockets"], found["session"]) == ([], [], False)


OWN_CODE = """
import json
from scripts.helpers.watermarks import Watermarks
from scripts.helpers.own import OWN
from scripts.own_job import JOB
print(json.dumps([OWN, JOB, Watermarks.__module__]))
"""


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
@pytest.mark.parametrize("init", ["none", "extends"])
def test_own_package_of_the_same_name_is_found_when_the_wheel_is_beside_it(
    order: str, init: str, wheel: Path, tmp_path: Path
) -> None:
    helpers = tmp_path / "repository" / "scripts" / "helpers"
    helpers.mkdir(parents=True)
    (helpers / "own.py").write_text("OWN = 'own'\n")
    (helpers.parent / "own_job.py").write_text("JOB = 'job'\n")
    if init == "extends":
        for folder in (helpers, helpers.parent):
            line = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
            (folder / "__init__.py").write_text(line)
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    paths = [str(tmp_path / "repository"), str(installed)]
    if order == "ours first":
        paths.reverse()

    assert run(OWN_CODE, tmp_path, Path(os.pathsep.join(paths))) == ["own", "job", "scripts.helpers.watermarks"]
