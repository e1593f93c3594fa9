"""Avro and XML under Glue's names, with Glue's options, read and written with Spark's packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.glue import GlueContext, Job
from tests.glue.options import Put

Begin = Callable[..., Job]
pytestmark = pytest.mark.usefixtures("spark_with_packages")


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.toDF().collect()]


def test_batches_are_the_new_files_when_the_format_is_avro(
    begin: Begin, glue_context: GlueContext, spark: Any, landing: str, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    batches = []
    for number in (1, 2):
        made = tmp_path / f"made{number}"
        spark.createDataFrame([(number, "free")], "id long, state string").write.format("avro").save(str(made))
        for part in made.glob("part-*.avro"):
            part.rename(tmp_path / "landing" / f"{number}-{part.name}")
        job = begin()
        frame = glue_context.create_dynamic_frame.from_options(
            connection_type="s3", connection_options={"paths": [landing]}, format="avro", transformation_ctx="bays"
        )
        batches.append(rows(frame))
        job.commit()

    assert batches == [[{"id": 1, "state": "free"}], [{"id": 2, "state": "free"}]]


def test_rows_are_the_elements_of_the_row_tag_when_the_format_is_xml(
    begin: Begin, glue_context: GlueContext, landing: str, put: Put
) -> None:
    put("a.xml", body='<bays><bay id="1"><state>free</state></bay><bay id="2"><state>taken</state></bay></bays>')
    begin()

    frame = glue_context.create_dynamic_frame.from_options(
        connection_type="s3",
        connection_options={"paths": [landing]},
        format="xml",
        format_options={"rowTag": "bay"},
        transformation_ctx="bays",
    )

    assert rows(frame) == [{"_id": 1, "state": "free"}, {"_id": 2, "state": "taken"}]


def test_table_is_read_back_when_it_was_written_as_avro(
    begin: Begin, glue_context: GlueContext, spark: Any, table: Callable[..., str], raw: str
) -> None:
    written = spark.createDataFrame([(1, "free"), (2, "taken")], "id long, state string").coalesce(1)
    begin()
    glue_context.write_dynamic_frame.from_options(
        written, connection_type="s3", connection_options={"path": raw}, format="avro"
    )
    database = table("bays", raw, "avro")

    frame = glue_context.create_dynamic_frame.from_catalog(
        database=database, table_name="bays", transformation_ctx="bays"
    )

    assert rows(frame) == [{"id": 1, "state": "free"}, {"id": 2, "state": "taken"}]
