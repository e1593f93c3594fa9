"""A script with Glue's names stores its bookmarks in one file, without any AWS configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.glue import GlueContext, Job
from scripts.helpers.watermarks import Watermarks
from tests.glue.options import ENABLE, Put
from tests.support.no_aws import no_aws


@pytest.mark.parametrize("is_variable", [False, True], ids=["argument", "variable"])
def test_bookmarks_are_in_the_file_when_a_script_or_the_environment_names_it(
    spark: Any, landing: str, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_variable: bool
) -> None:
    no_aws(monkeypatch)
    marks = Watermarks(f"sqlite:{tmp_path}/watermarks.db")
    marks.create_table()
    if is_variable:
        monkeypatch.setenv("WATERMARKS_TABLE", marks.table_name)
    context = GlueContext(spark.sparkContext)
    put("a.json", "b.json")
    counts = []

    for number in (1, 2):
        job = Job(context, None if is_variable else marks)
        job.init("landed", ENABLE | {"JOB_RUN_ID": f"jr_{number}"})
        options = {"paths": [landing]}
        frame = context.create_dynamic_frame.from_options("file", options, "json", transformation_ctx="landed")
        counts.append(frame.count())
        job.commit()

    assert counts == [2, 0]
    assert [entry.change.run_id for entry in marks.history("landed")] == ["jr_2", "jr_1"]
