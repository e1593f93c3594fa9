"""With `request_payer=True`, every request to the bucket names the requester as its payer."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing import listing
from scripts.helpers.watermarks import Watermarks


@pytest.mark.parametrize("looked_at_one_by_one", [1_000, 0], ids=["heads", "listing"])
def test_all_requests_of_a_run_are_paid_for_when_the_option_says_so(
    watermarks: Watermarks, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, looked_at_one_by_one: int
) -> None:
    monkeypatch.setattr(listing, "APART", looked_at_one_by_one)
    monkeypatch.setattr(listing, "PAYS", 1)
    client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
    payers: list[tuple[str, str | None]] = []
    client.meta.events.register(
        "before-call.s3.*",
        lambda model, params, **_: payers.append((model.name, params["headers"].get("x-amz-request-payer"))),
    )
    for day in (1, 2):
        s3.put_object(Bucket=bucket, Key=f"landing/day={day}/1.csv", Body=b"x")

    with IncrementalJob(watermarks, "parking", "jr_1", s3_client=client) as job:
        delta = job.new_files(f"s3://{bucket}/landing/", request_payer=True)
        parts = delta.split(lambda key: key[:5])

    assert {name for name, _ in payers} == {"ListObjectsV2", "HeadObject"}
    assert {payer for _, payer in payers} == {"requester"}
    assert [part.request_payer for part in parts.values()] == [True, True]


def test_explaining_is_paid_for_when_the_option_says_so(s3: Any, bucket: str) -> None:
    client = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
    payers: list[str | None] = []
    client.meta.events.register(
        "before-call.s3.*", lambda model, params, **_: payers.append(params["headers"].get("x-amz-request-payer"))
    )

    FileBookmark(f"s3://{bucket}/landing/", s3_client=client, request_payer=True).explain("1.csv")

    assert set(payers) == {"requester"}
