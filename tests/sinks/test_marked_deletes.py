"""Which rows of a merge are deletes; marking them changes nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.sinks import Merge
from scripts.helpers.sinks.given_frames import events_of
from scripts.helpers.sinks.merging import DELETED

RULE = Merge.of("id", "at")
NO_CONDITIONS: dict[str, list[Any]] = {
    "text": ["true", "false", "deleted"], "whole number": [1, 0, 1], "text or NULL": ["true", None, None],
    "float": [1.0, None, 0.0],
}  # fmt: skip
CONDITIONS: dict[str, Any] = {
    "flags": [True, False, True],
    "flags or NULL": [True, None, True],
    "nullable": pd.array([True, None, True], dtype="boolean"),
    "arrow": pd.Series([True, None, True], dtype=pd.ArrowDtype(pa.bool_())),
}


@pytest.mark.parametrize("name", NO_CONDITIONS)
@pytest.mark.parametrize("engine", ["pandas", "spark"])
def test_column_is_refused_when_it_is_not_true_or_false(request: pytest.FixtureRequest, name: str, engine: str) -> None:
    rows: Any = pd.DataFrame({"id": [1, 2, 3], "at": 1, "gone": NO_CONDITIONS[name]})
    if engine == "spark":
        rows = request.getfixturevalue("spark").createDataFrame(rows)

    with pytest.raises(InvalidValueError, match="must be a condition"):
        events_of(rows, RULE, deletes="gone")


@pytest.mark.parametrize("name", CONDITIONS)
def test_null_is_no_delete_when_a_column_is_a_condition(name: str) -> None:
    rows = pd.DataFrame({"id": [1, 2, 3], "at": 1}).assign(gone=CONDITIONS[name])

    assert list(events_of(rows, RULE, deletes="gone")[DELETED]) == [True, False, True]
    assert list(events_of(rows, RULE, deletes=lambda found: found["gone"])[DELETED]) == [True, False, True]


def test_nothing_is_deleted_when_the_condition_is_null_in_each_row() -> None:
    rows = pd.DataFrame({"id": [1, 2], "at": 1, "gone": [None, None]})

    assert list(events_of(rows, RULE, deletes="gone")[DELETED]) == [False, False]
    assert list(events_of(rows[:0], RULE, deletes="gone")[DELETED]) == []


COLUMNS = {
    "int32": pd.Series([1, 2], dtype="int32"), "int64": pd.Series([2**53 + 1, 2]),
    "uint8": pd.Series([1, 2], dtype="uint8"),
    "float32": pd.Series([1.5, 2], dtype="float32"), "bool": pd.Series([True, False]), "text": pd.Series(["a", "b"]),
    "decimal": pd.Series([Decimal("1.20"), Decimal(2)], dtype=pd.ArrowDtype(pa.decimal128(10, 2))),
    "list": pd.Series([[1], [2]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "null in a list": pd.Series([[2**53 + 1, None], None], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "null in a list of doubles": pd.Series([[1.5, None], [2.5]], dtype=pd.ArrowDtype(pa.list_(pa.float64()))),
    "time": pd.Series(pd.to_datetime(["2026-03-16", "2026-03-17"])), "nullable": pd.Series([1, None], dtype="Int16"),
    "category": pd.Series(["x", "y"], dtype="category"),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_type_is_that_of_the_rows_when_keys_are_missing(name: str) -> None:
    rows = pd.DataFrame({"id": [1, 2], "at": [1, 1], "v": COLUMNS[name]})

    events = events_of(rows, RULE, missing=pd.DataFrame({"id": [3], "at": [2]}))

    before, after = (pa.Table.from_pandas(found, preserve_index=False)["v"] for found in (rows, events))
    assert after.type == (pa.string() if name == "category" else before.type)
    assert after.to_pylist() == [*before.to_pylist(), None]
    assert list(events[DELETED]) == [False, False, True]
    assert list(events["id"]) == [1, 2, 3]
