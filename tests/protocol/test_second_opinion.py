"""The tests of `Watermarks` pass on MiniStack too, so they do not depend on peculiarities of moto."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from scripts.helpers.protocol.items import TTL_ATTRIBUTE
from scripts.helpers.watermarks import Watermarks
from tests.support.long import is_long
from tests.support.patience import LONG
from tests.support.watermarks_suite import EVERY_REQUEST, WHOLE, run_watermarks_suite

pytestmark = pytest.mark.if_changed("second-opinion")

ONLY_MOTO = (
    # MiniStack does not end a page of a query after 1 MB, unlike DynamoDB and moto.
    "tests/watermarks/test_history.py::test_page_stays_one_request_when_its_entries_are_more_than_a_megabyte",
    # MiniStack tells when a table was made in whole seconds, unlike DynamoDB and moto.
    "tests/decisions/test_copying.py::test_table_has_another_identity_when_it_is_recreated_under_its_name",
)


@pytest.mark.timeout(LONG)
def test_watermarks_suite_passes_when_run_on_ministack(ministack: str, make_table: Callable[..., Watermarks]) -> None:
    table = make_table(ministack)
    # MiniStack deletes expired items every minute by the real clock; the clock of the tests is months behind it.
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
    """DynamoDB trims numbers (Developer Guide, "Supported data types"); moto returns them as given."""
    table = make_table(ministack)
    client = table.store.client
    key = {"jobName": {"S": "parking"}, "runId": {"S": "r1"}}

    client.put_item(TableName=table.table_name, Item=key | {"n": {"N": sent}})

    assert client.get_item(TableName=table.table_name, Key=key)["Item"]["n"] == {"N": kept}
