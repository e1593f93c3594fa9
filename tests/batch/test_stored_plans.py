"""Open plans that versions with other words for the options of rows wrote: the next run reads exactly their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.batch.test_stored_states import with_bytes
from tests.support.dynamodb import FakeDynamoDB

HEADS: dict[str, Any] = json.loads((Path(__file__).parent / "stored_plans.json").read_text(), object_hook=with_bytes)
"""Heads of a job whose run planned and ended, by the option that the run was given."""
REPLAYS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "a sink that merges": ({"write_disposition": "merge"}, [2, 3, 4]),
    "behind source": ({}, [4, 5, 6]),
    "behind strict": ({}, [4, 5, 6]),
    "behind warn": ({}, [4, 5, 6]),
}


@pytest.mark.parametrize("name", HEADS)
def test_open_plan_is_replayed_as_it_was_when_its_options_had_other_words(name: str) -> None:
    client = FakeDynamoDB("table")
    client.put_item(TableName="table", Item=HEADS[name])
    watermarks = Watermarks("table", client)  # type: ignore[arg-type]
    options, planned = REPLAYS[name]

    with IncrementalJob(watermarks, "j", "jr_3") as job:
        rows = job.rows_since(pd.DataFrame({"id": range(1, 10)}), "id", transformation_ctx="rows", **options)
        found = [int(number) for number in rows["id"]]

    assert found == planned
    assert watermarks.latest("j").version == 2
