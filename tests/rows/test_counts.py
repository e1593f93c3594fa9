"""Counts of the rows that a job reads: a context that cannot be counted is left out, and no job fails because of it."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.rows.counts import RowCounts


class Lost:
    """The counts of a Spark session that was stopped."""

    def found(self) -> Any:
        raise RuntimeError("the session is stopped")


def test_context_is_left_out_and_a_warning_names_it_when_spark_does_not_tell_its_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts = RowCounts()
    counts.add("stops", {"rows": 2})
    lost: Any = Lost()
    counts._watched["repairs"] = (None, lost)

    assert counts.metrics() == {"contexts": {"stops": {"rows": 2}}}
    assert caplog.messages == [
        "event=rows_not_counted context=repairs error=RuntimeError: Spark did not return the counts"
    ]
