"""pandas times of every unit, and categories, as cursors: each is exactly the moment or value in the column."""

from __future__ import annotations

from datetime import datetime, timezone

import pandas as pd
import pytest

from scripts.helpers.rows.memory import PandasRows

MOMENT = datetime(2026, 3, 16, 15, 45, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_largest_value_is_the_moment_itself_when_times_are_of_any_unit(unit: str) -> None:
    source = PandasRows(pd.DataFrame({"at": pd.Series([MOMENT]).dt.as_unit(unit)}))

    facts = source.facts(source.columns(["at"], strings=False), None, descending=False)

    assert facts.largest == (MOMENT,)


def test_values_and_not_their_codes_are_compared_when_a_column_is_categorical() -> None:
    # The first category is the largest value, but has the smallest code.
    frame = pd.DataFrame({"part": pd.Categorical(["a", "c", "b"], categories=["c", "a", "b"])})
    source = PandasRows(frame)
    (column,) = columns = source.columns(["part"], strings=True)

    assert column.type == "string"
    assert source.facts(columns, None, descending=False).largest == ("c",)
