"""Conditions hold in only one region of an eventually consistent global table: the doctor warns, runs do not check."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import FakeDynamoDB
from tests.support.steps import commit

JOB = "parking"
REPLICAS = [{"RegionName": "eu-west-2"}, {"RegionName": "eu-north-1"}]


class Described(FakeDynamoDB):
    """A table with the given description; without one, DescribeTable is denied."""

    def __init__(self, table: dict[str, Any] | None) -> None:
        super().__init__()
        self.table = table
        self.conflicts = 0

    def _describe_table(self, given: dict[str, Any]) -> dict[str, Any]:
        if self.table is None:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeTable")
        return {"Table": {"TableStatus": "ACTIVE", **self.table}}

    def _put_item(self, given: dict[str, Any]) -> dict[str, Any]:
        if self.conflicts:
            self.conflicts -= 1
            raise ClientError({"Error": {"Code": "ReplicatedWriteConflictException", "Message": "no"}}, "PutItem")
        return super()._put_item(given)


def made(table: dict[str, Any] | None) -> tuple[Described, Watermarks]:
    client: Any = Described(table)
    watermarks = Watermarks("table", client)
    watermarks.store.sleep = lambda seconds: None
    commit(watermarks, JOB, "r1", {"n": 1})
    return client, watermarks


@pytest.mark.parametrize(
    ("table", "replicas"),
    [
        ({"Replicas": REPLICAS}, "eu-west-2,eu-north-1"),
        (
            {"Replicas": REPLICAS, "GlobalTableVersion": "2019.11.21", "MultiRegionConsistency": "EVENTUAL"},
            "eu-west-2,eu-north-1",
        ),
        ({"GlobalTableVersion": "2017.11.29"}, "unknown"),
    ],
    ids=["unsaid", "eventual", "2017"],
)
def test_table_is_found_and_warned_of_when_its_replicas_are_eventually_consistent(
    table: dict[str, Any], replicas: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, watermarks = made(table)

    [finding] = watermarks.doctor(JOB)
    there = watermarks.exists()

    assert (finding.kind, finding.repaired, there) == ("global table", False, True)
    assert "one region only" in finding.remedy
    assert f"event=global_table table=table replicas={replicas}: " in caplog.text


@pytest.mark.parametrize(
    "table",
    [{}, {"Replicas": []}, {"Replicas": REPLICAS, "MultiRegionConsistency": "STRONG"}, None],
    ids=["single", "empty", "strong", "refused"],
)
def test_nothing_is_found_when_conditions_hold_or_the_table_may_not_be_described(table: dict[str, Any] | None) -> None:
    _, watermarks = made(table)

    assert watermarks.doctor(JOB) == []


def test_no_run_describes_the_table_when_it_begins_and_commits() -> None:
    client, watermarks = made({"Replicas": REPLICAS})
    commit(watermarks, JOB, "r2", {"n": 2})
    watermarks.reset(JOB, why="a test")

    assert "describe_table" not in {method for method, _ in client.requests}


@pytest.mark.parametrize("conflicts", [1, 3])
def test_write_is_tried_again_when_another_region_wrote_at_that_moment(conflicts: int) -> None:
    client, watermarks = made({"Replicas": REPLICAS, "MultiRegionConsistency": "STRONG"})
    run = watermarks.begin(JOB, "r2")
    run.freeze({}, {"n": 2})
    client.conflicts = conflicts

    assert run.commit() == "done"
    watermarks.store.write_chunks(JOB, {"s#t-0": [b"x"]})
    assert watermarks.get_watermark_values(JOB) == {"n": 2}
