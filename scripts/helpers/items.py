"""Records <-> table items, and the requests that carry them with their conditions. Pure.

Range keys sort so that the original class, which takes the last item of a job, finds the head:
``!`` (log, chunks) < run ids < ``~latest``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from scripts.helpers import values
from scripts.helpers.errors import CorruptItemError, NewerFormatError, ReservedNameError
from scripts.helpers.records import Change, Claim, Head, LogEntry, Plan
from scripts.helpers.values import Attribute, from_utc_string, to_utc_string

Item = dict[str, Attribute]
T = TypeVar("T")

HASH_KEY, RANGE_KEY, TTL_ATTRIBUTE = "jobName", "runId", "expiresAt"
HEAD_KEY = "~latest"
LOG_PREFIX = "!c#"
FORMAT = 1
MAX_METRICS_BYTES = 8 * 1024


def log_key(version: int) -> str:
    """Return the range key of a version's log entry; keys sort as versions do."""
    return f"{LOG_PREFIX}{version:019d}"


def key(job_id: str, range_key: str) -> Item:
    """Return the primary key of an item."""
    return {HASH_KEY: {"S": job_id}, RANGE_KEY: {"S": range_key}}


# --- records -> items ---------------------------------------------------------------------------


def head_to_item(head: Head) -> Item:
    """Write a head; ValueErrors of `values.encode` name what cannot be stored."""
    item = key(head.job_id, HEAD_KEY)
    item["watermarks"], item["types"] = values.encode(head.watermarks)
    item |= {
        "fmt": _number(FORMAT),
        "epoch": {"S": head.epoch},
        "version": _number(head.version),
        "fence": _number(head.fence),
    }
    if head.last:
        item["last"] = {"M": _change_to_map(head.last)}
    if head.claim:
        item |= {
            "owner": {"S": head.claim.run_id},
            "ownerTok": {"S": head.claim.token},
            "attempt": _number(head.claim.attempt),
            "leaseUntil": {"S": to_utc_string(head.claim.lease_until)},
        }
    if head.plan:
        item["planId"] = {"S": head.plan.plan_id}
        item["plan"] = {"M": _plan_to_map(head.plan)}
    return item


def log_to_item(entry: LogEntry) -> Item:
    """Write the immutable log entry of one version."""
    item = key(entry.job_id, log_key(entry.version))
    item["watermarks"], item["types"] = values.encode(entry.watermarks)
    return item | {"fmt": _number(FORMAT), "version": _number(entry.version)} | _change_to_map(entry.change)


def run_to_item(entry: LogEntry) -> Item:
    """Write the playbook's run item: what `get_watermark(job_id, run_id)` reads."""
    assert entry.change.run_id is not None
    item = key(entry.job_id, entry.change.run_id)
    item["watermarks"], item["types"] = values.encode(entry.watermarks)
    item["metrics"], item["metricTypes"] = encode_metrics(entry.change.metrics, {})
    return item | {
        "version": _number(entry.version),
        "status": {"S": "COMMITTED"},
        "committedAt": {"S": to_utc_string(entry.change.at)},
    }


def encode_metrics(metrics: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> tuple[Attribute, Attribute]:
    """Write the counts of a run; a name that is a watermark's too is refused (the watermark must win)."""
    for name in metrics:
        if name in next_watermarks:
            raise ReservedNameError(name, sorted(next_watermarks))
    return values.encode(metrics, what="metric", limit=MAX_METRICS_BYTES)


def _change_to_map(change: Change) -> Item:
    item: Item = {
        "op": {"S": change.op},
        "commitId": {"S": change.commit_id},
        "at": {"S": to_utc_string(change.at)},
        "attempt": _number(change.attempt),
    }
    item["metrics"], item["metricTypes"] = encode_metrics(change.metrics, {})
    for name, text in (("byRun", change.run_id), ("planId", change.plan_id), ("why", change.why)):
        if text is not None:
            item[name] = {"S": text}
    return item


def _plan_to_map(plan: Plan) -> Item:
    contexts, context_types = values.encode(plan.contexts, what="plan")
    following, next_types = values.encode(plan.next)
    return {"contexts": contexts, "contextTypes": context_types, "next": following, "nextTypes": next_types}


def _number(value: int) -> Attribute:
    return {"N": str(value)}


# --- items -> records ---------------------------------------------------------------------------


def head_from_item(item: Item) -> Head:
    """Read a head. NewerFormatError for a later format, CorruptItemError for an altered item."""
    _check_format(item)
    return _reading(item, _head)


def log_from_item(item: Item) -> LogEntry:
    """Read a log entry."""
    _check_format(item)
    return _reading(item, _log_entry)


def run_from_item(item: Item) -> dict[str, Any]:
    """Read a run item, ours or one of the original class, as the playbook's dict."""
    return _reading(item, _run)


def _reading(item: Item, read: Callable[[Item], T]) -> T:
    try:
        return read(item)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        job_id, range_key = item[HASH_KEY]["S"], item[RANGE_KEY]["S"]
        raise CorruptItemError(job_id, range_key, f"{type(error).__name__} while reading it") from error


def _check_format(item: Item) -> None:
    found = item.get("fmt", {}).get("N", "0")
    if found.isdigit() and int(found) > FORMAT:
        raise NewerFormatError(item[HASH_KEY]["S"], int(found), FORMAT)


def _head(item: Item) -> Head:
    claim = plan = None
    if "ownerTok" in item or "owner" in item:
        claim = Claim(
            run_id=item["owner"]["S"],
            token=item["ownerTok"]["S"],
            attempt=int(item["attempt"]["N"]),
            lease_until=from_utc_string(item["leaseUntil"]["S"]),
        )
    if "planId" in item or "plan" in item:
        stored = item["plan"]["M"]
        plan = Plan(
            plan_id=item["planId"]["S"],
            contexts=values.decode(stored["contexts"], stored["contextTypes"]),
            next=values.decode(stored["next"], stored["nextTypes"]),
        )
    return Head(
        job_id=item[HASH_KEY]["S"],
        epoch=item["epoch"]["S"],
        version=int(item["version"]["N"]),
        fence=int(item["fence"]["N"]),
        watermarks=values.decode(item["watermarks"], item["types"]),
        last=_change(item["last"]["M"]) if "last" in item else None,
        claim=claim,
        plan=plan,
    )


def _log_entry(item: Item) -> LogEntry:
    return LogEntry(
        job_id=item[HASH_KEY]["S"],
        version=int(item["version"]["N"]),
        watermarks=values.decode(item["watermarks"], item["types"]),
        change=_change(item),
    )


def _change(item: Item) -> Change:
    return Change(
        op=item["op"]["S"],
        commit_id=item["commitId"]["S"],
        at=from_utc_string(item["at"]["S"]),
        run_id=_text(item, "byRun"),
        plan_id=_text(item, "planId"),
        attempt=int(item["attempt"]["N"]),
        why=_text(item, "why"),
        metrics=values.decode(item["metrics"], item["metricTypes"]),
    )


def _run(item: Item) -> dict[str, Any]:
    found: dict[str, Any] = {
        HASH_KEY: item[HASH_KEY]["S"],
        RANGE_KEY: item[RANGE_KEY]["S"],
        "watermarks": values.decode(item["watermarks"], item.get("types")),
    }
    if "version" in item:
        found["version"] = int(item["version"]["N"])
        found["status"] = item["status"]["S"]
        found["committedAt"] = datetime_of(item, "committedAt")
        found["metrics"] = values.decode(item["metrics"], item["metricTypes"])
    return found


def datetime_of(item: Item, name: str) -> datetime:
    """Read a stored time: aware, in UTC."""
    return from_utc_string(item[name]["S"])


def _text(item: Item, name: str) -> str | None:
    return item[name]["S"] if name in item else None


# --- requests -----------------------------------------------------------------------------------


def put_head(table_name: str, before: Head | None, after: Head) -> dict[str, Any]:
    """Build the one conditional write of a transition: valid only if the head still is `before`.

    Without `before` the head must not exist. Otherwise version, fence and plan must be the same:
    a run that was fenced, or that missed a commit or a plan, changes nothing.
    """
    request: dict[str, Any] = {"TableName": table_name, "Item": head_to_item(after)}
    if before is None:
        return request | {
            "ConditionExpression": "attribute_not_exists(#job)",
            "ExpressionAttributeNames": {"#job": HASH_KEY},
        }
    names = {"#version": "version", "#fence": "fence", "#plan": "planId", "#epoch": "epoch"}
    bound: Item = {
        ":version": _number(before.version),
        ":fence": _number(before.fence),
        ":epoch": {"S": before.epoch},
    }
    same_plan = "attribute_not_exists(#plan)"
    if before.plan:
        same_plan = "#plan = :plan"
        bound[":plan"] = {"S": before.plan.plan_id}
    return request | {
        "ConditionExpression": f"#version = :version AND #fence = :fence AND #epoch = :epoch AND {same_plan}",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": bound,
    }


def put_log(table_name: str, entry: LogEntry) -> dict[str, Any]:
    """Build the write of a log entry; a second one of the same version is refused by its condition."""
    return {
        "TableName": table_name,
        "Item": log_to_item(entry),
        "ConditionExpression": "attribute_not_exists(#job)",
        "ExpressionAttributeNames": {"#job": HASH_KEY},
    }


def put_run(table_name: str, entry: LogEntry) -> dict[str, Any]:
    """Build the write of a run item; a later version of the same run is never overwritten."""
    return {
        "TableName": table_name,
        "Item": run_to_item(entry),
        "ConditionExpression": "attribute_not_exists(#version) OR #version < :version",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":version": _number(entry.version)},
    }


def get(table_name: str, job_id: str, range_key: str) -> dict[str, Any]:
    """Build a strongly consistent read of one item."""
    return {"TableName": table_name, "Key": key(job_id, range_key), "ConsistentRead": True}


def query_log(table_name: str, job_id: str) -> dict[str, Any]:
    """Build the query for a job's log, newest version first."""
    return {
        "TableName": table_name,
        "KeyConditionExpression": "#job = :job AND begins_with(#range, :log)",
        "ExpressionAttributeNames": {"#job": HASH_KEY, "#range": RANGE_KEY},
        "ExpressionAttributeValues": {":job": {"S": job_id}, ":log": {"S": LOG_PREFIX}},
        "ScanIndexForward": False,
        "ConsistentRead": True,
    }


def query_legacy(table_name: str, job_id: str) -> dict[str, Any]:
    """Build the query for everything under a job that has no head."""
    return {
        "TableName": table_name,
        "KeyConditionExpression": "#job = :job",
        "ExpressionAttributeNames": {"#job": HASH_KEY},
        "ExpressionAttributeValues": {":job": {"S": job_id}},
        "ConsistentRead": True,
    }


def create_table(table_name: str) -> dict[str, Any]:
    """Build the request for a table of our shape: the same keys as terraform/main.tf, on demand."""
    return {
        "TableName": table_name,
        "AttributeDefinitions": [
            {"AttributeName": HASH_KEY, "AttributeType": "S"},
            {"AttributeName": RANGE_KEY, "AttributeType": "S"},
        ],
        "KeySchema": [
            {"AttributeName": HASH_KEY, "KeyType": "HASH"},
            {"AttributeName": RANGE_KEY, "KeyType": "RANGE"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
