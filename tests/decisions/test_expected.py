"""A decision is made about the job that the operator has looked at, and refused if the job has changed since."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from scripts.helpers.decisions.decisions import check_expected
from scripts.helpers.errors import StaleError
from scripts.helpers.protocol.head import Change, Head

AT = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
SHOWN = Head("parking", "e1", 1, 0, {"seen": 7}, Change("ADOPT", "c1", AT, run_id="jr_1"))
"""A head made from an item of the original class; no run or decision has changed it."""


def test_decision_is_taken_when_an_item_of_the_original_class_was_read_again() -> None:
    check_expected(replace(SHOWN, epoch="e2"), SHOWN)


@pytest.mark.parametrize(
    "changed",
    [
        {"last": Change("ADOPT", "c2", AT, run_id="jr_2")},
        {"last": None},
        {"watermarks": {"seen": 8}},
        {"version": 2},
        {"fence": 1},
    ],
    ids=", ".join,
)
def test_decision_is_refused_when_the_job_differs_from_what_was_shown(changed: dict[str, Any]) -> None:
    with pytest.raises(StaleError, match="changed while you looked"):
        check_expected(replace(SHOWN, epoch="e2", **changed), SHOWN)
