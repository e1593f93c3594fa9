"""Names that users may have written before: they work, with a warning about the line that has them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getsourcelines
from typing import Any

import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.watermarks import Watermarks

STATE = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10}
CALLS: dict[str, Callable[..., Any]] = {
    "rewind": lambda w, job, **given: w.rewind(job, to_version=1, why="a test", **given),
    "reset": lambda w, job, **given: w.reset(job, why="a test", **given),
    "set_watermark": lambda w, job, **given: w.set_watermark(job, STATE, why="a test", **given),
    "coverage": lambda w, job, **given: w.coverage(job, **given),
    "gaps": lambda w, job, **given: w.gaps(job, **given),
    "unfinished": lambda w, job, **given: w.unfinished(job, **given),
}


@pytest.fixture
def declared(watermarks: Watermarks, job_id: str) -> Watermarks:
    """Return a table in which a job has a rows context."""
    watermarks.set_watermark(job_id, STATE, transformation_ctx="rows", why="a test")
    return watermarks


@pytest.mark.parametrize("call", CALLS)
def test_context_is_taken_with_a_warning_when_given_under_its_old_name(
    declared: Watermarks, job_id: str, call: str
) -> None:
    with pytest.warns(DeprecationWarning, match="context= is called transformation_ctx= now") as warned:
        CALLS[call](declared, job_id, context="rows")

    assert [(one.filename, one.lineno) for one in warned] == [(__file__, getsourcelines(CALLS[call])[1])]


@pytest.mark.parametrize("call", CALLS)
def test_call_is_refused_when_the_context_is_given_under_both_names(
    declared: Watermarks, job_id: str, call: str
) -> None:
    with pytest.raises(InvalidValueError, match="Both transformation_ctx and context"):
        CALLS[call](declared, job_id, transformation_ctx="rows", context="rows")


@pytest.mark.parametrize("call", ["coverage", "gaps", "unfinished"])
def test_context_is_asked_for_when_a_call_needs_one(declared: Watermarks, job_id: str, call: str) -> None:
    with pytest.raises(TypeError, match="transformation_ctx is missing"):
        CALLS[call](declared, job_id)


@pytest.mark.parametrize("call", ["coverage", "gaps", "unfinished"])
def test_context_is_taken_by_its_place_when_a_call_needs_one(declared: Watermarks, job_id: str, call: str) -> None:
    assert list(getattr(declared, call)(job_id, "rows")) == ([(None, 10)] if call == "gaps" else [])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("progress.state", lambda w, job: w.rows_state(job, "rows")["value"]),
        ("progress.backfills", lambda w, job: w.backfill_record(job, "rows", w.progress.state(job, "rows")).begun),
        ("lookups.state_at", lambda w, job: w.state_at(w.latest(job), "rows")["value"]),
        ("decisions.change_watermark",
         lambda w, job: w.change_watermark(job, lambda _: {"n": 1}, context="rows", why="a test").version),
    ],
)  # fmt: skip
def test_method_of_a_part_is_found_with_a_warning_when_asked_of_the_whole(
    declared: Watermarks, job_id: str, name: str, call: Callable[..., Any]
) -> None:
    with pytest.warns(DeprecationWarning, match=f"is watermarks.{name} now") as warned:
        found = call(declared, job_id)

    assert found in (10, {}, 2)
    assert [one.filename for one in warned] == [__file__]


def test_context_of_a_backfill_is_told_with_a_warning_when_asked_for_by_its_old_name(
    watermarks: Watermarks, job_id: str
) -> None:
    backfill = Backfill(watermarks, job_id, transformation_ctx="loans", low=1, high=2)
    with pytest.warns(DeprecationWarning, match="Backfill.context is called transformation_ctx now") as warned:
        found = backfill.context

    assert (found, backfill.transformation_ctx) == ("loans", "loans")
    assert [one.filename for one in warned] == [__file__]


def test_name_is_unknown_when_it_never_was_one(watermarks: Watermarks) -> None:
    with pytest.raises(AttributeError, match="'Watermarks' object has no attribute 'state'"):
        _ = watermarks.state  # type: ignore[attr-defined]
