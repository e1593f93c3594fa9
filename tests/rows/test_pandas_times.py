"""Times of pandas, in each of its units, as cursors: the same moment, to the microsecond."""

from __future__ import annotations

from datetime import datetime, timezone

import pandas as pd
import pytest

from scripts.helpers.rows.pandas_frames import PandasRows

MOMENT = datetime(2026, 3, 16, 15, 45, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_largest_value_is_the_moment_itself_when_times_are_of_any_unit(unit: str) -> None:
    source = PandasRows(pd.DataFrame({"at": pd.Series([MOMENT]).dt.as_unit(unit)}))

    facts = source.facts(source.columns(["at"], strings=False), None, descending=False)

    assert facts.largest == (MOMENT,)
