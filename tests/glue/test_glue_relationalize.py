"""Relationalize under Glue's names: without a context, as in AWS's examples, and in runs where nothing is new."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.glue import GlueContext, Relationalize
from tests.glue.options import Put

PERSON = '{"name": "Ada", "contact_details": [{"type": "fax", "value": "7"}, {"type": "phone", "value": "9"}]}'


def read(glue_context: GlueContext, landing: str) -> Any:
    return glue_context.create_dynamic_frame.from_options(
        "file", {"paths": [landing]}, "json", transformation_ctx="landed"
    )


def flatten_by_method(frame: Any) -> Any:
    return frame.relationalize("hist_root", "s3://not-used/")


def flatten_by_class(frame: Any) -> Any:
    return Relationalize.apply(frame, staging_path="s3://not-used/", name="hist_root")


@pytest.mark.parametrize(
    ("flatten", "begun"),
    [(flatten_by_method, False), (flatten_by_class, True)],
    ids=["method without init", "class in a job"],
)
def test_tables_join_when_neither_context_nor_job_is_given(
    flatten: Any, begun: bool, begin: Any, glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("a", body=PERSON)
    job = begin() if begun else None

    tables = flatten(read(glue_context, landing))
    root, details = (tables.select(name).toDF() for name in tables.keys())  # noqa: SIM118 (as Glue's scripts do)
    joined = root.join(details, root["contact_details"] == details["id"]).orderBy("index")
    found = joined.select("name", "`contact_details.val.value`", "id").collect()
    if job is not None:
        job.commit()

    assert list(tables.keys()) == ["hist_root", "hist_root_contact_details"]
    assert [tuple(row)[:2] for row in found] == [("Ada", "7"), ("Ada", "9")]
    assert max(row["id"] for row in found) < 0


def test_script_goes_on_when_nothing_is_new(
    begin: Any, glue_context: GlueContext, put: Put, landing: str, raw: str, spark: Any
) -> None:
    put("a", body=PERSON)
    for _ in range(2):
        job = begin()
        tables = read(glue_context, landing).relationalize("root", None, transformation_ctx="related")
        details = tables.select("root_contact_details")
        glue_context.write_dynamic_frame.from_options(details, "s3", {"path": raw}, "parquet")
        job.commit()

    assert spark.read.parquet(raw).count() == 2
