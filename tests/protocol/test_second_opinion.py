"""The tests of `Watermarks` pass on MiniStack as well: what they show is not a habit of moto."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from scripts.helpers.protocol.items import TTL_ATTRIBUTE
from scripts.helpers.watermarks import Watermarks
from tests.support.long import is_long
from tests.support.patience import LONG
from tests.support.watermarks_suite import EVERY_REQUEST, WHOLE, run_watermarks_suite

ONLY_MOTO = (
    # MiniStack does not end a page of a query after 1 MB, as DynamoDB and moto do.
    "tests/watermarks/test_history.py::test_page_stays_one_request_when_its_entries_are_more_than_a_megabyte",
)


@pytest.mark.timeout(LONG)
def test_watermarks_suite_passes_when_run_on_ministack(ministack: str, make_table: Callable[..., Watermarks]) -> None:
    table = make_table(ministack)
    # It deletes what has expired every minute, by the real clock: that of the tests stands months before it.
    table.store.client.update_time_to_live(
        TableName=table.table_name, TimeToLiveSpecification={"AttributeName": TTL_ATTRIBUTE, "Enabled": False}
    )

    suite = WHOLE if is_long() else EVERY_REQUEST
    done = run_watermarks_suite(ministack, table.table_name, *suite, *(f"--deselect={test}" for test in ONLY_MOTO))

    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert re.search(r"\b[1-9]\d* passed", text), text
    assert not re.search(r"\b\d+ (skipped|xfailed|failed|error)", text), text


@pytest.mark.parametrize(("sent", "kept"), [("1.50", "1.5"), ("0010", "10"), ("1E+2", "100")])
def test_number_is_trimmed_when_ministack_stores_it(
    ministack: str, make_table: Callable[..., Watermarks], sent: str, kept: str
) -> None:
    """The Developer Guide says so of DynamoDB ("Supported data types"); moto returns what it was given."""
    table = make_table(ministack)
    client = table.store.client
    key = {"jobName": {"S": "parking"}, "runId": {"S": "r1"}}

    client.put_item(TableName=table.table_name, Item=key | {"n": {"N": sent}})

    assert client.get_item(TableName=table.table_name, Key=key)["Item"]["n"] == {"N": kept}
