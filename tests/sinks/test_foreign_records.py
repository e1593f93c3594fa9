"""Who may write the items of one job can spoil that job, and nothing at the targets of another one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import WatermarkError
from scripts.helpers.sinks import FileSink
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.watermarks import Watermarks
from tests.support.neighbours import (
    KINDS,
    PLANTED,
    PLANTER,
    VICTIM,
    FileNeighbours,
    Made,
    Neighbours,
    as_own_of_their_epoch,
    as_theirs,
    both,
    check_that_the_other_one_goes_on,
    folders_of_others,
    record_of,
    retraction_of,
)
from tests.support.table_items import plant

MANY = 1_000_000_000


@pytest.fixture(params=list(KINDS))
def two(request: pytest.FixtureRequest, watermarks: Watermarks, tmp_path: Path) -> Neighbours:
    """Return two jobs that have each written two batches; one of them has a third one that no reader sees yet."""
    return both(watermarks, tmp_path, request.param)


def planted(two: Neighbours, make: Made, kind: str) -> None:
    own = record_of(two.watermarks, PLANTER)
    record = make(own, record_of(two.watermarks, VICTIM))
    last = {} if record["job"] == own["job"] else {"last": MANY}
    plant(two.watermarks, PLANTER, {kind: [retraction_of(record, **last) if kind == "retracting" else record]})


@pytest.mark.parametrize("make", PLANTED)
@pytest.mark.parametrize("kind", ["retracting", "unpublished"])
def test_target_of_another_job_stays_when_an_item_names_it(
    two: Neighbours, make: Made, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    planted(two, make, kind)
    before = two.of_others()

    with suppress(WatermarkError):  # Its own run may end with one.
        two.run(PLANTER, 3)

    assert two.rows(VICTIM) == [1, 2]
    if make in (as_theirs, as_own_of_their_epoch):
        assert "event=unproven_record job=planter" in caplog.text
    check_that_the_other_one_goes_on(two, before)


@pytest.mark.parametrize("number", range(4))
def test_what_is_elsewhere_stays_when_an_output_names_it_as_its_folder(two: Neighbours, number: int) -> None:
    record = folders_of_others(two)[number]
    plant(two.watermarks, PLANTER, {"unpublished": [record]})
    before = two.of_others()

    with suppress(WatermarkError):
        two.run(PLANTER, 3)

    check_that_the_other_one_goes_on(two, before)
    assert set(two.rows(PLANTER)) <= {1, 2, 3}


def test_prefix_of_a_bucket_stays_when_an_output_names_it(watermarks: Watermarks, s3: Any) -> None:
    s3.create_bucket(Bucket="lakes", CreateBucketConfiguration={"LocationConstraint": "eu-west-2"})
    s3.put_object(Bucket="lakes", Key="other/team/2024/1.csv", Body=b"id\n1\n")

    class Bucket(FileNeighbours):
        def sink(self, job: str) -> Sink:
            return FileSink(f"s3://lakes/{job}", s3_client=s3)

    two = Bucket(watermarks, Path())
    two.run(PLANTER, 1, s3_client=s3)
    record = record_of(watermarks, PLANTER)
    plant(watermarks, PLANTER, {"unpublished": [{**record, "staging": "s3://lakes/other", "folder": "team"}]})

    with suppress(WatermarkError):
        two.run(PLANTER, 2, s3_client=s3)

    assert s3.get_object(Bucket="lakes", Key="other/team/2024/1.csv")["Body"].read() == b"id\n1\n"
