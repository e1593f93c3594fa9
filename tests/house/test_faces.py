"""Faces: the names that each room's `__init__` exports lazily. And imports without the optional packages."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

import scripts.helpers
from scripts.helpers import _lazy
from tests.support.blocked_packages import run_without
from tests.support.imports import files_below, names_imported
from tests.support.places import REPOSITORY

START = "scripts.helpers."
ROOMS = sorted(module.name for module in pkgutil.iter_modules(scripts.helpers.__path__) if module.ispkg)
IMPORT_ALL = "import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
WITHOUT_ANY = [
    START + name
    for name in (
        "watermarks", "job", "backfill", "errors", "job_runs", "job_runs.client", "job_runs.launcher", "glue.bookmarks",
        "glue.arguments", "glue.job", "glue.context", "databases.table", "databases.snapshot",
        "rows.options", "rows.spark_frames", "rows.date_partitions", "rows.missing", "rows.coverage",
        "metrics.embedded", "metrics.freshness", "decisions.copying", "relational.relations", "sinks.spark_files",
        *ROOMS,
    )
] + ["scripts.jobs.ingest_table", "scripts.report.facts"]  # fmt: skip
"""Modules that can be imported if only boto3 is installed."""
PROMISES = {
    "pyarrow": [*WITHOUT_ANY, "scripts.cli.main"],
    "pandas": [*WITHOUT_ANY, "scripts.cli.main", START + "files.bookmark", "scripts.jobs.ingest_files"],
    "pyspark": [*WITHOUT_ANY, "scripts.cli.main", START + "files.spark", "scripts.jobs.ingest_files"],
    "click": WITHOUT_ANY,
}


@pytest.mark.parametrize("room", ROOMS)
def test_room_hands_out_every_name_of_its_face_when_asked(room: str) -> None:
    face = importlib.import_module(START + room)

    found = {name: getattr(face, name) for name in getattr(face, "__all__", [])}
    assert [name for name, value in found.items() if isinstance(value, ModuleType)] == []
    assert set(found) <= set(dir(face)) | set(getattr(face, "NOT_HERE", ()))


@pytest.mark.parametrize("room", ROOMS)
def test_face_has_no_attribute_when_the_name_is_unknown(room: str) -> None:
    face = importlib.import_module(START + room)

    with pytest.raises(AttributeError, match="no_such_name"):
        face.no_such_name  # noqa: B018


def test_modules_stay_unloaded_when_only_faces_are_imported() -> None:
    code = (
        f"import sys, {', '.join(START + room for room in ROOMS)}\n"
        "print(sorted(name for name in sys.modules if name.startswith('scripts.helpers.') and name.count('.') > 2))"
    )

    done = run_without((), code)

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_modules_for_rows_and_tables_stay_unloaded_when_a_run_finds_no_new_file(tmp_path: Path) -> None:
    (tmp_path / "monday.json").write_text("{}")
    code = (
        "import sys\n"
        "from scripts.helpers.job import IncrementalJob\n"
        "from scripts.helpers.watermarks import Watermarks\n"
        "watermarks = Watermarks(f'sqlite:{sys.argv[1]}/.watermarks.db')\n"
        "watermarks.create_table()\n"
        "for _ in range(2):\n"
        "    with IncrementalJob(watermarks, 'parking') as job:\n"
        "        found = job.new_files(sys.argv[1]).count\n"
        "rooms = 'databases', 'relational', 'rows', 'sql', 'tables'\n"
        "loaded = [name.split('.')[2:] for name in sys.modules if name.startswith('scripts.helpers.')]\n"
        "print(found, sorted('.'.join(name) for name in loaded if name[0] in rooms and name[1:]))"
    )

    done = run_without((), code, str(tmp_path))

    assert done.stdout.strip() == "0 ['rows.arrow_streams', 'rows.counts']", done.stderr


@pytest.mark.parametrize("package", PROMISES)
def test_module_is_imported_when_an_optional_package_is_not_there(package: str) -> None:
    done = run_without({package}, IMPORT_ALL, *PROMISES[package])

    assert (done.returncode, done.stderr) == (0, "")


def test_lazy_module_unpickles_as_the_real_one_when_sent_to_a_spark_worker() -> None:
    assert pickle.loads(pickle.dumps(_lazy.pa)) is pa


@pytest.mark.parametrize("path", files_below(REPOSITORY / "benchmarks"), ids=lambda path: path.stem)
def test_benchmark_finds_what_it_imports_when_code_has_moved(path: Path) -> None:
    found = [name.rpartition(".") for name in names_imported(path) if name.startswith(("scripts.", "tests."))]

    missing = [
        f"{module}.{name}"
        for module, _, name in found
        if not hasattr(importlib.import_module(module), name) and find_spec(f"{module}.{name}") is None
    ]

    assert missing == []
