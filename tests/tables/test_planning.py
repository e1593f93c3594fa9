"""What a span reads between two watermarks, and which states and plans are refused as those of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from scripts.helpers.errors import SourceError, SourceLostError
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.tables.frames import check_no_feed_columns
from scripts.helpers.tables.planning import span_between
from scripts.helpers.tables.sources import TableSource
from scripts.helpers.tables.spans import TableOptions, TableSpan, TableState
from tests.support.reasons import because
from tests.support.versioned_tables import DeltaByHand


@pytest.fixture
def table(tmp_path: Path) -> DeltaByHand:
    """Return a table with three versions after the version that created it."""
    made = DeltaByHand(tmp_path)
    for number in (1, 2, 3):
        made.append(number)
    return made


def state_at(table: DeltaByHand, version: int, **facts: Any) -> dict[str, Any]:
    """Return the watermark of a run whose last version was `version`."""
    source = table.source()
    head = source.head()
    at = head.at if version == head.newest else source.history(version - 1, None, head).commits[0].at
    return {**TableSpan("delta", None, version, at=at, source=head.identity).state_after, **facts}


def between(table: DeltaByHand, before: Any, until: Any, **options: Any) -> TableSpan:
    asked, source = TableOptions.of(options), cast("TableSource", table.source())
    return span_between(source, before, until, context="rows", job_id="sales", options=asked)


def ends(span: TableSpan) -> tuple[Any, ...]:
    return span.after, span.until, span.whole, span.changes, span.commits, span.is_empty


@pytest.mark.parametrize("changes", ["append", "feed"])
@pytest.mark.parametrize("is_set_back", [False, True], ids=["same history", "set back"])
def test_range_is_empty_when_its_runs_took_nothing(table: DeltaByHand, changes: Any, is_set_back: bool) -> None:
    state = state_at(table, 2, **({"at": state_at(table, 1)["at"]} if is_set_back else {}))

    found = between(table, state, state, changes=changes)

    assert ends(found) == (2, 2, False, changes, 0, True)
    assert (found.format, found.at, found.source) == ("delta", state["at"], table.source().identity())


@pytest.mark.parametrize("options", [{}, {"on_loss": "take", "write_disposition": "merge"}], ids=["raise", "take"])
def test_range_is_empty_when_a_rewind_came_between_its_runs(table: DeltaByHand, options: dict[str, Any]) -> None:
    until = state_at(table, 1)

    found = between(table, state_at(table, 3), until, changes="append", **options)

    assert ends(found) == (1, 1, False, "append", 0, True)
    assert (found.format, found.at, found.source) == ("delta", until["at"], table.source().identity())


def test_range_is_refused_or_all_rows_when_the_table_has_another_history(table: DeltaByHand) -> None:
    before, until = state_at(table, 3), state_at(table, 1, at=state_at(table, 2)["at"])

    with pytest.raises(SourceLostError, check=because("rolled_back")) as raised:
        between(table, before, until)
    found = between(table, before, until, on_loss="take", write_disposition="merge")

    assert (raised.value.source, raised.value.context, raised.value.job_id) == (table.name, "rows", "sales")
    assert (found.until, found.whole) == (1, True)


def test_range_is_refused_or_all_rows_when_commits_inside_it_are_gone(table: DeltaByHand) -> None:
    before, until = state_at(table, 1), state_at(table, 3)
    table.expire()

    with pytest.raises(SourceLostError, check=because("expired")):
        between(table, before, until)
    found = between(table, before, until, on_loss="take", write_disposition="merge")

    assert (found.until, found.whole) == (3, True)


def test_range_from_the_beginning_is_refused_when_files_of_its_end_are_gone(table: DeltaByHand) -> None:
    until = state_at(table, 3)
    table.overwrite(4)
    table.vacuum()

    with pytest.raises(SourceLostError, check=because("expired")) as raised:
        between(table, None, until)

    found = raised.value
    assert (found.source, found.context, found.job_id, found.reason) == (table.name, "rows", "sales", "expired")


# --- states and plans -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"at": "yesterday"}, "at is not a time"),
        ({"format": "hudi"}, "format is not one of delta, iceberg"),
        ({"value": -1}, "value is not a whole number from 0 to 9,223,372,036,854,775,807"),
        ({"start": True}, "start is not a whole number from 0 to 9,223,372,036,854,775,807"),
        ({"source": 7}, "source is not a text of 1 to 65,536 characters"),
    ],
    ids=str,
)
def test_state_is_refused_when_it_holds_a_value_that_no_run_writes(facts: dict[str, Any], told: str) -> None:
    state = {**TableSpan("delta", 1, 2).state_after, **facts}

    with pytest.raises(ImplausibleError, match=f"^sales.{told}$"):
        TableState.read(state, "sales")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"changes": "all"}, "changes is not one of append, feed"),
        ({"changes": None}, "changes is missing"),
        ({"at": "yesterday"}, "at is not a time"),
        ({"whole": 1}, "whole is not True or False"),
    ],
    ids=str,
)
def test_plan_is_refused_when_it_holds_a_value_that_no_run_writes(facts: dict[str, Any], told: str) -> None:
    plan = {**TableSpan("delta", 1, 2).to_plan(), **facts}

    with pytest.raises(ImplausibleError, match=f"^rows.{told}$"):
        TableSpan.from_plan(plan, "delta", "rows", "sales")


@pytest.mark.parametrize("name", ["after", "until", "sequence", "start"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "3"], ids=repr)
def test_error_names_the_field_when_a_plan_has_no_valid_commit_number(name: str, value: Any) -> None:
    plan = {**TableSpan("delta", 1, 2).to_plan(), name: value}

    with pytest.raises(ImplausibleError) as raised:
        TableSpan.from_plan(plan, "delta", "rows", "sales")

    assert str(raised.value) == f"rows.{name} is not a whole number from 0 to 9,223,372,036,854,775,807"


def test_source_has_changed_when_a_plan_is_of_the_other_format() -> None:
    plan = TableSpan("iceberg", 1, 2).to_plan()

    with pytest.raises(SourceError, check=because("changed")) as raised:
        TableSpan.from_plan(plan, "delta", "rows", "s3://lake/sales")

    found = raised.value
    assert (found.context, found.before, found.source) == ("rows", "a table of format iceberg", "s3://lake/sales")


def test_column_is_named_when_the_table_has_one_that_a_feed_adds() -> None:
    with pytest.raises(SourceError, check=because("change_feed")) as raised:
        check_no_feed_columns(["id", "_commit_version", "_Change_Type"], "sales", known=["_commit_version"])

    assert str(raised.value) == (
        "Source 'sales': it has a column '_Change_Type' of its own, as a feed adds one. Rename it."
    )
