"""Avro and XML, which Spark 3 reads with packages that the session has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.files.bookmark import FileBookmark
from tests.support.landing import Landing

BAYS = b'<bays><bay id="1"><state kind="taped">free</state></bay><bay id="2"><state>taken</state></bay></bays>'


@pytest.fixture(params=["local", "s3a"])
def landing(request: pytest.FixtureRequest, tmp_path: Path, spark_with_packages: Any) -> Landing:
    """Return an empty source, in a directory and in S3, for a session that has the packages."""
    if request.param == "local":
        return Landing(spark_with_packages, f"{tmp_path}/landing/")
    source = f"s3a://{request.getfixturevalue('bucket')}/landing/"
    return Landing(spark_with_packages, source, request.getfixturevalue("s3"))


@pytest.fixture
def avro(tmp_path: Path, spark_with_packages: Any) -> Any:
    """Return what makes the bytes of an Avro file with these ids."""

    def make(*ids: int) -> bytes:
        made = tmp_path / f"made-{ids}"
        rows = spark_with_packages.createDataFrame([(each,) for each in ids], "id long")
        rows.coalesce(1).write.format("avro").save(str(made))
        (part,) = made.glob("part-*.avro")
        return part.read_bytes()

    return make


def read(landing: Landing, format: str, before: list[str], **options: Any) -> Any:
    """Read the files of a source that are not among those of a run before."""
    planned = FileBookmark(landing.location.uri(""), s3_client=landing.client).new_files()
    new = planned.split(lambda key: key not in before)[True]
    return new.read(landing.spark, format, **options)


def test_rows_are_those_of_the_planned_files_when_the_format_is_avro(landing: Landing, avro: Any) -> None:
    landing.put("old.avro", avro(-1))
    landing.put("month=3/a b%.avro", avro(1, 2))
    landing.put("month=4/[x].avro", avro(3))

    frame = read(landing, "avro", ["old.avro"], path_column="file")

    assert frame.dtypes == [("id", "bigint"), ("month", "int"), ("file", "string")]
    first, second = (landing.location.uri(key) for key in ("month=3/a b%.avro", "month=4/[x].avro"))
    assert sorted(tuple(row) for row in frame.collect()) == [(1, 3, first), (2, 3, first), (3, 4, second)]


def test_rows_have_the_readers_schema_when_avro_is_given_one(landing: Landing, avro: Any) -> None:
    landing.put("a.avro", avro(7))
    fields = [{"name": "id", "type": "long"}, {"name": "state", "type": "string", "default": "free"}]
    schema = json.dumps({"type": "record", "name": "bay", "fields": fields})

    frame = read(landing, "avro", [], avroSchema=schema)

    assert [row.asDict() for row in frame.collect()] == [{"id": 7, "state": "free"}]


def test_rows_are_those_of_the_planned_file_when_the_format_is_xml(landing: Landing) -> None:
    landing.put("old.xml", b"<bays><bay id='-1'/></bays>")
    landing.put("a.xml", BAYS)

    frame = read(landing, "xml", ["old.xml"], rowTag="bay")

    assert [row.asDict(recursive=True) for row in frame.collect()] == [
        {"_id": 1, "state": {"_VALUE": "free", "_kind": "taped"}},
        {"_id": 2, "state": {"_VALUE": "taken", "_kind": None}},
    ]


def test_columns_are_those_of_the_schema_when_xml_is_given_one(landing: Landing) -> None:
    landing.put("a.xml", BAYS)

    frame = read(landing, "xml", [], schema="id int, until date", rowTag="bay", attributePrefix="")

    assert [row.asDict() for row in frame.collect()] == [{"id": 1, "until": None}, {"id": 2, "until": None}]
