"""A type planted in a stored schema: no code in it runs, on any version of Spark."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import CorruptItemError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.packed_json import pack_json
from scripts.helpers.sinks.targets import target_rows
from scripts.helpers.watermarks import Watermarks
from tests.support.places import REPOSITORY
from tests.support.planted import Opened, plant_type
from tests.support.steps import commit

PLANTED = """
import json, pickle, sys, zlib
from base64 import b64encode
from pathlib import Path

class Opened:
    def __reduce__(self):
        return open, ("unpickled", "w")

planted = {
    "type": "udt", "pyClass": "planted_module.NoSuch", "serializedClass": b64encode(pickle.dumps(Opened())).decode(),
    "sqlType": "string",
}
"""
"""Loading the pickle writes the file ``unpickled``; importing the module that it names writes ``imported``."""
RAW = """
from pyspark.sql.types import StructType
field = {"name": "a", "type": planted, "nullable": True, "metadata": {}}
StructType.fromJson({"type": "struct", "fields": [field]})
"""
AS_KEPT = """
from scripts.helpers.schemas.kept import schemas_of
from scripts.helpers.schemas.spark_frames import struct_of

packed = zlib.compress(json.dumps([["spark", [["a", planted], ["b", {"type": "array", "elementType": planted,
    "containsNull": True}]]]]).encode())
print(struct_of(schemas_of({"kind": "rows", "schemas": packed})["spark"]).simpleString())
"""
GIVEN = """
from scripts.helpers.schemas.spark_frames import struct_of
print(struct_of({"a": planted}).simpleString())
"""


def left_by(code: str, folder: Path) -> tuple[str, set[str]]:
    """Run code in a new process; return its output and the files that the planted code created."""
    (folder / "planted_module.py").write_text("open('imported', 'w')")
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PLANTED + code],
        cwd=folder, env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip(), {path.name for path in folder.iterdir()} - {"planted_module.py"}


def test_planted_type_is_dangerous_when_spark_reads_it_unchecked(tmp_path: Path) -> None:
    _, files = left_by(RAW, tmp_path)

    assert files


@pytest.mark.parametrize(
    ("code", "shown"),
    [(AS_KEPT, "struct<a:string,b:array<string>>"), (GIVEN, "struct<a:string>")],
    ids=["kept", "given"],
)
def test_type_is_the_one_that_it_is_stored_as_and_no_code_runs_when_it_was_planted(
    code: str, shown: str, tmp_path: Path
) -> None:
    assert left_by(code, tmp_path) == (shown, set())


@pytest.mark.parametrize("stored_as", [None, "string"], ids=["of-nothing", "of-text"])
def test_job_runs_no_code_when_a_type_was_planted_in_its_state(
    spark: Any, watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_as: str | None
) -> None:
    imported, unpickled = tmp_path / "imported", tmp_path / "unpickled"
    (tmp_path / "planted_in_a_job.py").write_text(f"open({str(imported)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    planted = {"type": "udt", "pyClass": "planted_in_a_job.NoSuch", "sqlType": stored_as}
    planted["serializedClass"] = b64encode(pickle.dumps(Opened(unpickled))).decode()
    schemas = [["spark", [["id", "long"], ["bay", planted]]]]
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 1, "schemas": pack_json(schemas)}
    commit(watermarks, "loans", "jr_1", {"rows": state})
    rows = spark.createDataFrame([(1,), (2,)], "id long")

    def run() -> Any:
        with IncrementalJob(watermarks, "loans", "jr_2") as job:
            return job.rows_since(rows, "id", on_schema_change="add", settled=True).collect()

    if stored_as is None:
        with pytest.raises(CorruptItemError, match=r"watermarks\.rows\.schemas is not columns with types"):
            run()
    else:
        # The source no longer has the column, so it is NULL, with the type that it is stored as.
        assert [tuple(row) for row in run()] == [(1, None), (2, None)]

    assert not imported.exists()
    assert not unpickled.exists()


@pytest.mark.parametrize("module", ["planted_in_a_file", "os"])
@pytest.mark.parametrize("door", ["read", "verify"])
def test_file_is_refused_and_no_code_runs_when_a_type_was_planted_in_it(
    spark: Any, watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, door: str
) -> None:
    imported, unpickled = tmp_path / "imported", tmp_path / "unpickled"
    (tmp_path / "planted_in_a_file.py").write_text(f"open({str(imported)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    plant_type(tmp_path / "landing", module, unpickled)

    with pytest.raises(SourceError, match="names a type of Python"):
        if door == "verify":
            target_rows(str(tmp_path / "landing"), "parquet", spark, None)
        else:
            with IncrementalJob(watermarks, "loans", "jr_1", spark=spark) as job:
                job.new_files(str(tmp_path / "landing")).read(spark, "parquet")

    assert not imported.exists()
    assert not unpickled.exists()


def test_rows_are_read_when_the_schema_is_given_in_place_of_a_planted_type(spark: Any, tmp_path: Path) -> None:
    plant_type(tmp_path / "landing", "os", tmp_path / "unpickled")

    delta = FileBookmark(str(tmp_path / "landing")).new_files()

    assert delta.read(spark, "parquet", schema="id BIGINT, bay ARRAY<BIGINT>").collect() == [(1, [1])]


def test_vectors_are_read_when_a_file_has_those_of_mllib(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    spark.createDataFrame([(1, Vectors.dense(1.0, 2.0))], ["id", "at"]).write.parquet(str(tmp_path / "landing"))

    found = FileBookmark(str(tmp_path / "landing")).new_files().read(spark, "parquet")

    assert found.collect() == [(1, Vectors.dense(1.0, 2.0))]
