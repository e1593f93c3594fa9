"""Commands show how many columns a source had, which ones changed, and which ones were left out."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.schemas.kept import with_schema
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command, document, rows_state
from tests.support.steps import commit

LEFT_OUT = {"rows": {"count": 22, "names": ["colour", "size"]}}


@pytest.fixture
def loans(watermarks: Watermarks) -> Watermarks:
    """Return a table with a job whose second version has one column more, and other columns left out."""
    before = with_schema(rows_state(1, "bigint"), "spark", {"id": "integer"})
    after = with_schema(rows_state(2, "bigint"), "spark", {"id": "long", "bay": "string"})
    commit(watermarks, "loans", "jr_1", {"rows": before})
    commit(watermarks, "loans", "jr_2", {"rows": after}, columns_left_out=LEFT_OUT)
    return watermarks


def test_number_of_columns_is_shown_when_a_state_has_them(run: Command, loans: Watermarks) -> None:
    assert "last_modified 2, 2 columns" in run(loans, "show", "loans").output


def test_columns_are_listed_with_their_types_when_json_is_asked_for(run: Command, loans: Watermarks) -> None:
    found = document(run(loans, "show", "loans", "--output", "json"))

    assert found["watermarks"]["rows"]["schemas"] == {"spark": {"id": "bigint", "bay": "string"}}


def test_columns_that_changed_are_named_when_versions_are_compared(run: Command, loans: Watermarks) -> None:
    lines = run(loans, "history", "loans", "--diff").output.splitlines()

    assert lines[-2:] == [
        "rows: spark: column 'id' was int and is bigint",
        "rows: spark: column 'bay' is new (string)",
    ]


def test_columns_that_were_left_out_are_in_the_history_when_there_are_some(run: Command, loans: Watermarks) -> None:
    assert "colour, size and 20 more" in run(loans, "history", "loans").output


@pytest.mark.parametrize("stored", [b"no schema", "text", 5])
def test_state_is_shown_as_damaged_when_the_entry_of_its_columns_is(
    run: Command, watermarks: Watermarks, stored: Any
) -> None:
    commit(watermarks, "loans", "jr_1", {"rows": {**rows_state(1, "bigint"), "schemas": stored}})

    shown, found = run(watermarks, "show", "loans"), document(run(watermarks, "show", "loans", "--output", "json"))

    assert shown.exit_code == 0
    assert "damaged: watermarks.schemas is not columns with types that are known: not compressed data" in shown.output
    (told,) = found["damaged"]
    assert told.startswith("watermarks.rows.schemas is not columns with types that are known")
