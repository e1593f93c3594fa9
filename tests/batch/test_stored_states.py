"""States and plans of versions that predate typed states: they are read, and written back unchanged."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.lookups import PLANS, STATES
from scripts.helpers.protocol.values import decode, encode
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.states import RowsState
from scripts.helpers.states import checked, typed
from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import FakeDynamoDB

OLD: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "stored_states.json").read_text())
"""One state or plan of each kind with all its fields, as attributes of an item; bytes are in base64."""
WHOLE = [name for name, one in OLD.items() if one["place"] == STATES and name != "backfills"]


def stored(name: str) -> dict[str, Any]:
    one = json.loads(json.dumps(OLD[name]), object_hook=_with_bytes)
    return decode(one["attribute"], one["types"])


def _with_bytes(found: dict[str, Any]) -> Any:
    return base64.b64decode(found["base64"]) if set(found) == {"base64"} else found


@pytest.mark.parametrize("name", OLD)
def test_what_earlier_versions_stored_is_taken_as_it_is_when_it_is_checked(name: str) -> None:
    before = stored(name)

    assert checked(OLD[name]["place"], "c", before) is before


@pytest.mark.parametrize("name", WHOLE)
def test_state_is_written_back_as_it_was_when_an_earlier_version_wrote_it(name: str) -> None:
    before = stored(name)

    after = typed(before).to_store()

    assert encode(after) == encode(before)


@pytest.mark.parametrize("name", [name for name, one in OLD.items() if one["place"] == PLANS and "window" in name])
def test_window_is_written_back_as_it_was_when_an_earlier_version_planned_it(name: str) -> None:
    before = stored(name)

    assert typed(before, PLANS).to_plan() == {key: value for key, value in before.items() if key != "options"}


def test_state_has_read_all_that_it_passed_when_it_is_older_than_coverage() -> None:
    state: RowsState = typed(stored("before-coverage"))

    assert (state.columns, state.ranges, state.origin) == ((CursorColumn("id", "bigint"),), [((), (5,))], "")
    assert state.with_coverage(state, [((5,), (9,))], "o1").ranges == [((), (9,))]


# --- open plans of heads ------------------------------------------------------------------------------------------

HEADS: dict[str, Any] = json.loads((Path(__file__).parent / "stored_plans.json").read_text(), object_hook=_with_bytes)
"""Heads of a job whose run ended after it had planned, by the option given to the run."""
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
