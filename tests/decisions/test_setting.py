"""Values that are set by hand or by the playbook's calls leave the states of sources unchanged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import FakeDynamoDB
from tests.support.reasons import because
from tests.support.steps import add, large

pytestmark = pytest.mark.both_stores

WHY: dict[str, Any] = {"why": "loaded by hand"}
MARCH, MAY = (datetime(2026, month, 1, tzinfo=timezone.utc) for month in (3, 5))
REPAIRS = {"kind": "rows", "cursor_column": "last_modified", "type": "timestamp", "value": MARCH, "start": MARCH}
PARKING = {"kind": "files", "source": "s3://landing/parking/", "files": ["a.csv"]}


@pytest.fixture
def sources(watermarks: Watermarks, job_id: str) -> Watermarks:
    """Return `Watermarks` with a job that has two sources and a value."""
    run = watermarks.begin(job_id, "r1")
    run.freeze({}, {"repairs": REPAIRS, "parking": PARKING, "seen": 3})
    run.commit()
    return watermarks


# --- set_watermark -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_name", [False, True])
def test_state_of_a_source_keeps_the_rest_when_its_value_is_set(
    sources: Watermarks, job_id: str, by_name: bool
) -> None:
    if by_name:
        sources.set_watermark(job_id, {"repairs": {"value": MAY}}, **WHY)
    else:
        sources.set_watermark(job_id, {"value": MAY}, transformation_ctx="repairs", **WHY)

    found = sources.get_watermark_values(job_id)
    assert found["repairs"].pop("covered")
    assert found == {"repairs": REPAIRS | {"value": MAY}, "parking": PARKING, "seen": 3}
    assert sources.gaps(job_id, "repairs") == [(MARCH, MAY)]


def test_sources_stay_when_a_value_of_the_job_is_set(sources: Watermarks, job_id: str) -> None:
    sources.set_watermark(job_id, {"seen": 4, "latest_data": "2026-05-01"}, **WHY)

    found = sources.get_watermark_values(job_id)
    assert found == {"repairs": REPAIRS, "parking": PARKING, "seen": 4, "latest_data": "2026-05-01"}


def test_whole_state_is_replaced_when_it_says_its_kind(sources: Watermarks, job_id: str) -> None:
    other = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 7}

    sources.set_watermark(job_id, other, transformation_ctx="repairs", **WHY)

    found = sources.get_watermark_values(job_id)["repairs"]
    del found["covered"]
    assert found == other


def test_state_is_refused_when_it_is_whole_and_has_no_value(sources: Watermarks, job_id: str, stored: Any) -> None:
    before = stored()

    with pytest.raises(InvalidValueError, match="'repairs' has no 'value': the next run would read everything again"):
        sources.set_watermark(
            job_id, {"kind": "rows", "cursor_column": "id", "type": "bigint"}, transformation_ctx="repairs", **WHY
        )

    assert stored() == before


def test_value_is_refused_without_a_request_when_it_cannot_be_stored() -> None:
    client: Any = FakeDynamoDB()

    with pytest.raises(InvalidValueError, match="seen"):
        Watermarks("table", client).set_watermark("parking", {"seen": object()}, **WHY)

    assert client.requests == []


def test_value_is_refused_when_it_would_replace_a_source(sources: Watermarks, job_id: str, stored: Any) -> None:
    before = stored()

    with pytest.raises(InvalidValueError, match=r"'repairs' of job .* is the state of a source"):
        sources.set_watermark(job_id, {"repairs": "2026-05-01"}, **WHY)

    assert stored() == before


def test_value_is_set_in_what_is_there_then_when_a_run_commits_meanwhile(sources: Watermarks, job_id: str) -> None:
    run = sources.begin(job_id, "r2")
    run.freeze({}, {"repairs": REPAIRS | {"lookback": 60}})
    run.commit()

    sources.set_watermark(job_id, {"value": MAY}, transformation_ctx="repairs", **WHY)

    assert sources.get_watermark_values(job_id)["repairs"]["lookback"] == 60


# --- add_watermark -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        lambda w, job: None,
        lambda w, job: w.set_watermark(job, {"value": MAY}, transformation_ctx="repairs", **WHY),
        lambda w, job: w.rewind(job, to_version=1, **WHY),
    ],
    ids=["run", "set", "rewind"],
)
def test_one_shot_is_refused_and_nothing_written_when_the_job_has_sources(
    sources: Watermarks, job_id: str, stored: Any, before: Callable[[Watermarks, str], object]
) -> None:
    before(sources, job_id)
    found = stored()

    with pytest.raises(
        InvalidValueError, check=because("contexts_exist"), match=r"2 sources \(.*\), which add_watermark would delete"
    ) as caught:
        add(sources, job_id, "r2", latest_data="2026-05-01")

    assert set(caught.value.contexts) == {"repairs", "parking"}
    assert stored() == found


@pytest.mark.parametrize("state", [{"n": 3}, large(1)], ids=["small", "in-chunks"])
def test_one_shot_is_refused_when_a_run_left_maps_of_its_own(
    watermarks: Watermarks, job_id: str, state: dict[str, Any]
) -> None:
    run = watermarks.begin(job_id, "r1")
    run.freeze({"repairs": {"to": 3}}, {"repairs": state})
    run.commit()

    with pytest.raises(InvalidValueError, check=because("contexts_exist"), match="repairs"):
        add(watermarks, job_id, "r2", n=4)


def test_one_shot_is_taken_when_the_maps_are_its_own(watermarks: Watermarks, job_id: str) -> None:
    add(watermarks, job_id, "r1", partitions={"a": 1})
    add(watermarks, job_id, "r2", partitions={"b": 1})

    assert watermarks.get_watermark_values(job_id) == {"partitions": {"b": 1}}


def test_one_shot_is_taken_when_the_job_was_reset(sources: Watermarks, job_id: str) -> None:
    sources.reset(job_id, why="sources are jobs of their own now")

    add(sources, job_id, "r2", latest_data="2026-05-01")

    assert sources.get_watermark_values(job_id) == {"latest_data": "2026-05-01"}
