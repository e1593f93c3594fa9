"""Items and requests: which values are stored under which key and condition, and how altered items are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import CorruptItemError, InvalidValueError, NewerFormatError
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.dynamodb import create_table, query, write_item
from scripts.helpers.protocol.head import Change, Claim, Head, LogEntry, Plan
from scripts.helpers.protocol.outputs import MergeColumns, Retraction
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.values import MAX_BYTES, size_of
from scripts.helpers.sinks.outputs import mark_of
from tests.support.outputs import output_of
from tests.support.reasons import because

NOW = datetime(2026, 3, 16, 15, 45, 0, 250, tzinfo=timezone.utc)
MARKS = {"latest_data": "", "id": 0, "flag": False, "share": 0.5, "sum": Decimal(2), "seen": NOW, "none": None}
CHANGE = Change("COMMIT", "c1", NOW, run_id="jr_1", plan_id="p1", attempt=2, why="asked", metrics={"rows": 0, "s": 1.5})
CLAIM = Claim("jr_2", "t2", 3, NOW + timedelta(minutes=15), NOW)
PLAN = Plan("p2", {"repairs": {"low": NOW, "high": NOW, "lookback": 1.5}}, {"repairs": {"value": NOW}}, NOW)
ENTRY = LogEntry("parking", 3, MARKS, CHANGE)
IDLE = Head("parking", "e1", 3, 7, MARKS, last=CHANGE)
CLAIMED = replace(IDLE, claim=CLAIM)
PLANNED = replace(CLAIMED, plan=PLAN)
ABORTED = replace(IDLE, plan=PLAN)
MERGED = output_of("shop.a", 3, sink="iceberg", engine="spark", snapshot=2**63 - 1, table="u", batch_column="batch",
                   partition_by=("day",), merge=MergeColumns(("id",), ("at",), ("from", "to")))  # fmt: skip
OUTPUTS = (output_of("s3://raw/", 3, rows=5, files=2, bytes=7, columns=True, beside_others=True), MERGED)
RETRACTION = Retraction(
    "delta", "s3://raw", "s3://_raw", mark_of("parking"), "e1", 2, 3, NOW, "batch", {2: 5}, "parking"
)
PUBLISHING = replace(
    IDLE,
    unpublished=OUTPUTS,
    retracting=(RETRACTION,) * 2,
    retracted=((1, 2), (3, 3)),
    epochs={"e0": 7},
    answers={"e0": {"0123456789ab": 9, "ba9876543210": 8}, "e00": {"0123456789ab": 1}},
    at_targets=(OUTPUTS[0], replace(MERGED, lacks_after=0)),
    failure="TargetError: it is full.",
)
COMMITTED = replace(IDLE, last=replace(CHANGE, outputs=OUTPUTS), version=10**15)
FIRST = Head.first("parking")
FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=timezone.utc)
LAST_MOMENT = datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)
TOO_EARLY, TOO_LATE = "1969-12-31T23:59:59.999999+00:00", "2200-01-01T00:00:00.000001+00:00"


def changed(item: items.Item, path: str, value: Any) -> items.Item:
    """Return a copy of an item with the attribute at `path` replaced, or removed if the value is None."""
    name, _, rest = path.partition(".")
    if rest:
        return item | {name: {"M": changed(item[name]["M"], rest, value)}}
    kept = {key: attribute for key, attribute in item.items() if key != name}
    return kept if value is None else kept | {name: value}


@pytest.mark.parametrize(
    "head", [FIRST, IDLE, CLAIMED, PLANNED, ABORTED, PUBLISHING, COMMITTED, replace(IDLE, version=10**15)]
)
def test_head_comes_back_equal_when_stored(head: Head) -> None:
    back = items.head_from_item(items.head_to_item(head))

    assert back == head
    assert [type(value) for value in back.watermarks.values()] == [type(value) for value in head.watermarks.values()]


@pytest.mark.parametrize("change", [CHANGE, *(Change("RESET", "c2", at) for at in (NOW, FIRST_MOMENT, LAST_MOMENT))])
def test_log_entry_comes_back_equal_when_stored(change: Change) -> None:
    entry = replace(ENTRY, change=change)

    assert items.log_from_item(items.log_to_item(entry)) == entry


def test_run_item_reads_as_the_playbooks_dict_when_stored() -> None:
    assert items.run_from_item(items.run_to_item(ENTRY)) == {
        "jobName": "parking",
        "runId": "jr_1",
        "watermarks": MARKS,
        "version": 3,
        "status": "COMMITTED",
        "committedAt": NOW,
        "metrics": {"rows": 0, "s": 1.5},
    }


def test_error_of_a_run_is_cut_when_somebody_made_it_longer() -> None:
    item = changed(items.head_to_item(IDLE), "failure", {"S": "x" * 300_000})

    assert items.head_from_item(item).failure == "x" * 1_000


def test_head_has_the_agreed_attributes_only_when_a_batch_is_open() -> None:
    committed = {"jobName", "runId", "watermarks", "types", "fmt", "epoch", "version", "fence", "last"}

    assert set(items.head_to_item(IDLE)) == committed
    assert set(items.head_to_item(PLANNED)) == committed | {
        "owner", "ownerTok", "attempt", "leaseUntil", "claimedAt", "planId", "plan",
    }  # fmt: skip


def test_largest_head_fits_a_dynamodb_item_when_everything_is_at_its_limit() -> None:
    full = {"x": "x" * (MAX_BYTES - 50)}
    change = replace(CHANGE, metrics={"x": "x" * (items.MAX_METRICS_BYTES - 50)})
    head = replace(PLANNED, watermarks=full, plan=Plan("p2", full, full, NOW), last=change)

    assert MAX_BYTES * 3 < size_of({"M": items.head_to_item(head)}) < 400_000


def test_range_keys_sort_log_then_runs_then_head_when_queried() -> None:
    run_ids = ['"', "#run", "0", "Zz", "jr_" + "0" * 64, "jr_" + "f" * 64, "}" * 255]

    ordered = [items.log_key(0), items.log_key(10**19 - 1), *run_ids, items.HEAD_KEY]

    assert sorted(ordered, key=str.encode) == ordered


def test_log_keys_sort_as_versions_when_digits_grow() -> None:
    keys = [items.log_key(version) for version in (0, 1, 9, 10, 99, 100, 10**18, 10**19 - 1)]

    assert sorted(keys) == keys
    assert {len(key) for key in keys} == {len("!c#") + 19}


@pytest.mark.parametrize("name", ["fence", "runs", "failed"])
def test_entry_is_refused_when_a_count_is_missing(name: str) -> None:
    item = items.log_to_item(ENTRY)
    del item[name]

    with pytest.raises(CorruptItemError, match=f"{name} is missing"):
        items.log_from_item(item)


# --- refused before anything is built ----------------------------------------------------------


def test_metrics_are_refused_when_one_has_the_name_of_a_watermark() -> None:
    with pytest.raises(
        InvalidValueError,
        check=because("reserved_name"),
        match=r"'rows' is a reserved name \(as are latest, rows\). Rename it",
    ):
        items.encode_metrics({"rows": 1}, {"rows": 5, "latest": 2})


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ({"rows": float("nan")}, "metric 'rows' is NaN"),
        ({"note": "x" * 9_000}, "metric map, most of it in 'note': .* the limit is 8,192[.]"),
    ],
)
def test_metrics_are_refused_when_they_cannot_be_stored(metrics: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValueError, match=text):
        items.encode_metrics(metrics, {})


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (replace(PLAN, contexts={"repairs": {"high": float("nan")}}), "The plan 'repairs.high' is NaN"),
        (replace(PLAN, next={"repairs": object()}), "The watermark 'repairs' is a object"),
    ],
)
def test_head_write_is_refused_when_the_plan_cannot_be_stored(plan: Plan, text: str) -> None:
    with pytest.raises(InvalidValueError, match=text):
        write_item("t", requests.put_head(CLAIMED, replace(CLAIMED, plan=plan)))


# --- altered items -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "item"),
    [
        (items.head_from_item, items.head_to_item(IDLE)),
        (items.log_from_item, items.log_to_item(ENTRY)),
        (items.start_of_run, items.key("parking", "!r#jr_1") | {"startedOn": {"S": "2026-03-16T15:45:00+00:00"}}),
    ],
)
def test_reading_refuses_naming_both_formats_when_the_item_is_newer(
    read: Callable[[items.Item], Any], item: items.Item
) -> None:
    newer = item | {"fmt": {"N": "2"}, "watermarks": {"S": "another shape"}}

    with pytest.raises(NewerFormatError) as caught:
        read(newer)

    assert "Job 'parking' is stored in format 2; this version knows up to 1" in str(caught.value)
    assert "Upgrade glue-watermarks" in str(caught.value)


ALTERED_HEAD: list[tuple[str, Any]] = [
    ("watermarks", None),
    ("watermarks", {"S": "x"}),
    ("watermarks.share", {"S": "x"}),
    ("types", None),
    ("types.seen", {"S": "float"}),
    ("types.seen", {"M": {}}),
    ("epoch", None),
    ("version", None),
    ("version", {"N": "1.5"}),
    ("version", {"S": "3"}),
    ("version", {"N": "-1"}),
    ("version", {"N": str(10**15 + 1)}),
    ("fence", None),
    ("fence", {"N": "x"}),
    ("owner", None),
    ("ownerTok", None),
    ("attempt", None),
    ("leaseUntil", {"S": "soon"}),
    ("leaseUntil", {"S": "2026-03-16T15:45:00"}),
    ("leaseUntil", {"S": "0001-01-01T00:00:00.000000+05:00"}),
    ("planId", None),
    ("plan", None),
    ("plan", {"L": []}),
    ("plan.next", None),
    ("plan.contexts", {"S": ""}),
    ("last", {"S": "x"}),
    ("last.commitId", None),
    ("last.at", {"S": "yesterday"}),
    ("last.at", {"S": TOO_EARLY}),
    ("last.at", {"S": TOO_LATE}),
    ("last.metrics", {"NULL": True}),
    ("unpublished", {"S": "{}"}),
    ("unpublished", {"S": "[1]"}),
]


@pytest.mark.parametrize(("path", "value"), ALTERED_HEAD)
def test_head_is_refused_naming_job_and_key_when_an_attribute_was_altered(path: str, value: Any) -> None:
    with pytest.raises(CorruptItemError) as caught:
        items.head_from_item(changed(items.head_to_item(PLANNED), path, value))

    assert "Item '~latest' of job 'parking' is not readable" in str(caught.value)
    assert "from a backup" in str(caught.value)
    assert (caught.value.job_id, caught.value.range_key) == ("parking", "~latest")


@pytest.mark.parametrize(
    ("lasts", "counts"),
    [
        (timedelta(days=732), timedelta(days=732)),
        (timedelta(days=732, microseconds=1), timedelta(0)),
    ],
    ids=["longest", "longer"],
)
def test_lease_counts_as_ended_when_it_lasts_more_than_732_days(lasts: timedelta, counts: timedelta) -> None:
    head = replace(CLAIMED, claim=replace(CLAIM, lease_until=NOW + lasts))

    found = items.head_from_item(items.head_to_item(head))

    assert found.claim is not None
    assert found.claim.lease_until == NOW + counts


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((path, None) for path in
          ("version", "watermarks", "types", "op", "commitId", "at", "metrics", "metricTypes")),
        ("version", {"N": "4"}),
    ],
)  # fmt: skip
def test_log_entry_is_refused_naming_job_and_key_when_an_attribute_was_altered(path: str, value: Any) -> None:
    with pytest.raises(CorruptItemError) as caught:
        items.log_from_item(changed(items.log_to_item(ENTRY), path, value))

    assert (caught.value.job_id, caught.value.range_key) == ("parking", items.log_key(3))


@pytest.mark.parametrize("path", ["watermarks", "status", "committedAt", "metrics", "metricTypes"])
def test_run_item_is_refused_naming_job_and_run_when_an_attribute_is_gone(path: str) -> None:
    with pytest.raises(CorruptItemError) as caught:
        items.run_from_item(changed(items.run_to_item(ENTRY), path, None))

    assert (caught.value.job_id, caught.value.range_key) == ("parking", "jr_1")


def test_item_of_the_original_class_is_refused_when_a_name_stands_in_it_twice() -> None:
    item = items.key("parking", "jr_1") | {"watermarks": {"M": {"rows": {"N": "808"}}}, "rows": {"N": "809"}}

    with pytest.raises(CorruptItemError, match="ValueError while reading it"):
        items.run_from_item(item)


# --- requests ------------------------------------------------------------------------------------

TRANSITIONS = [(FIRST, CLAIMED), (IDLE, CLAIMED), (CLAIMED, PLANNED), (PLANNED, IDLE), (PLANNED, ABORTED)]


@pytest.mark.parametrize(("before", "after"), TRANSITIONS)
def test_head_write_is_bound_to_version_fence_epoch_and_plan_when_a_head_exists(before: Head, after: Head) -> None:
    request = write_item("t", requests.put_head(before, after))

    terms = request["ConditionExpression"].split(" AND ")
    assert terms[:3] == ["#version = :version", "#fence = :fence", "#epoch = :epoch"]
    assert terms[3:] == ["#plan = :plan" if before.plan else "attribute_not_exists(#plan)"]
    assert request["ExpressionAttributeNames"]["#version"] == "version"
    assert request["ExpressionAttributeNames"]["#fence"] == "fence"
    assert request["ExpressionAttributeNames"]["#plan"] == "planId"
    assert request["ExpressionAttributeValues"][":version"] == {"N": str(before.version)}
    assert request["ExpressionAttributeValues"][":fence"] == {"N": str(before.fence)}
    assert request["ExpressionAttributeValues"][":epoch"] == {"S": before.epoch}
    assert request["ExpressionAttributeValues"].get(":plan") == ({"S": "p2"} if before.plan else None)


def test_log_write_never_replaces_an_entry_when_one_exists() -> None:
    assert write_item("t", requests.put_log(ENTRY))["ConditionExpression"] == "attribute_not_exists(#job)"


REQUESTS = {
    "put_head": write_item("t", requests.put_head(IDLE, CLAIMED)),
    "put_head with a plan": write_item("t", requests.put_head(PLANNED, IDLE)),
    "put_head first": write_item("t", requests.put_head(None, CLAIMED)),
    "put_log": write_item("t", requests.put_log(ENTRY)),
    "put_run": write_item("t", requests.put_run(ENTRY)),
    "put_chunk": write_item("t", requests.put_chunk("parking", "p#1", 0, b"x")),
    "renew_lease": write_item("t", requests.renew_lease(CLAIMED)),
    "expire": write_item("t", requests.expire("parking", "jr_1", NOW)),
    "expire of a version": write_item("t", requests.expire("parking", "jr_1", NOW, 3)),
    "query_log": query("t", requests.log_query("parking")),
    "query_job": query("t", Between("parking")),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_expression_holds_placeholders_only_and_each_is_bound_when_built(name: str) -> None:
    request = REQUESTS[name]
    expression = request.get("ConditionExpression") or request["KeyConditionExpression"]

    expression += request.get("UpdateExpression", "").removeprefix("SET")

    rest = re.sub(r"[#:]\w+|attribute_not_exists|attribute_exists|\b(AND|OR|BETWEEN)\b|[()=<, ]", "", expression)
    assert rest == ""
    assert set(re.findall(r"#\w+", expression)) == set(request["ExpressionAttributeNames"])
    assert set(re.findall(r":\w+", expression)) == set(request.get("ExpressionAttributeValues", {}))


def test_table_has_two_text_keys_and_no_index_when_created() -> None:
    request = create_table("t")

    assert request["KeySchema"] == [
        {"AttributeName": "jobName", "KeyType": "HASH"},
        {"AttributeName": "runId", "KeyType": "RANGE"},
    ]
    assert {entry["AttributeType"] for entry in request["AttributeDefinitions"]} == {"S"}
    assert request["BillingMode"] == "PAY_PER_REQUEST"
    assert not any("Index" in name for name in request)
