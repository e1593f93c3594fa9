"""The requests that carry items to the table and back, with their conditions; `store` sends them. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.items import (
    FORMAT,
    HASH_KEY,
    HEAD_KEY,
    LOG_PREFIX,
    RANGE_KEY,
    TOKEN,
    TTL_ATTRIBUTE,
    Item,
    chunk_key,
    head_to_item,
    key,
    log_key,
    log_to_item,
    number,
    run_to_item,
)
from scripts.helpers.protocol.values import to_utc_string


def put_head(table_name: str, before: Head | None, after: Head) -> dict[str, Any]:
    """Build the one conditional write of a transition: valid only if the head still is `before`.

    Without `before` the head must not exist. Otherwise version, fence and plan must be the same:
    a run that was fenced, or that missed a commit or a plan, changes nothing.
    """
    request: dict[str, Any] = {"TableName": table_name, "Item": head_to_item(after)}
    if before is None:
        # Two first runs may both have read that there is no head. Without the condition the second would
        # overwrite the first one's claim, and both would work.
        return request | {
            "ConditionExpression": "attribute_not_exists(#job)",
            "ExpressionAttributeNames": {"#job": HASH_KEY},
        }
    return request | _unchanged(before)


def renew_lease(table_name: str, head: Head) -> dict[str, Any]:
    """Build the heartbeat: a later end of the lease, valid only while the claim is the same."""
    assert head.claim is not None
    condition = _unchanged(head)
    # An abort lets go of the job and leaves version, fence, epoch and plan as they were. Without the token a late
    # heartbeat would write the end of a lease into a head that nobody holds.
    condition["ConditionExpression"] += " AND #token = :token"
    condition["ExpressionAttributeNames"] |= {"#token": "ownerTok", "#lease": "leaseUntil"}
    condition["ExpressionAttributeValues"] |= {
        ":token": {"S": head.claim.token},
        ":lease": {"S": to_utc_string(head.claim.lease_until)},
    }
    update = {"TableName": table_name, "Key": key(head.job_id, HEAD_KEY), "UpdateExpression": "SET #lease = :lease"}
    return update | condition


def _unchanged(head: Head) -> dict[str, Any]:
    """Build the condition that no transition has happened since `head`."""
    names = {"#version": "version", "#fence": "fence", "#plan": "planId", "#epoch": "epoch"}
    bound: Item = {":version": number(head.version), ":fence": number(head.fence), ":epoch": {"S": head.epoch}}
    same_plan = "attribute_not_exists(#plan)"
    if head.plan:
        same_plan = "#plan = :plan"
        bound[":plan"] = {"S": head.plan.plan_id}
    # The fence keeps out a run whose job another one has taken over. The version refuses what missed a commit, the plan
    # a second freeze, or a commit of a plan that is not the open one. The epoch refuses what was read before the
    # table was restored: version and fence may since have come to the same numbers again.
    # The lease is not compared: a renewal in between would refuse every step of the run that renewed it.
    return {
        "ConditionExpression": f"#version = :version AND #fence = :fence AND #epoch = :epoch AND {same_plan}",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": bound,
    }


def put_log(table_name: str, entry: LogEntry) -> dict[str, Any]:
    """Build the write of a log entry; a second one of the same version is refused by its condition."""
    # The entry of a version is written by the run that committed it and again by the next begin, in case that run
    # died in between. A late writer must not replace an entry that has been given its end meanwhile.
    return {
        "TableName": table_name,
        "Item": log_to_item(entry),
        "ConditionExpression": "attribute_not_exists(#job)",
        "ExpressionAttributeNames": {"#job": HASH_KEY},
    }


def put_run(table_name: str, entry: LogEntry) -> dict[str, Any]:
    """Build the write of a run item; a later version of the same run is never overwritten."""
    # A run id may commit more than once, and a begin repairs the item of the version before it. Without the comparison
    # a delayed repair would put an older version over the newer one. An item of the original class has no version.
    return {
        "TableName": table_name,
        "Item": run_to_item(entry),
        "ConditionExpression": "attribute_not_exists(#version) OR #version < :version",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":version": number(entry.version)},
    }


def put_in_place_of(table_name: str, before: Item | None, after: Item) -> dict[str, Any]:
    """Build the write of an item in place of `before`, by its token; without `before` there must be none."""
    request: dict[str, Any] = {"TableName": table_name, "Item": after}
    if before is None:
        return request | {
            "ConditionExpression": "attribute_not_exists(#job)",
            "ExpressionAttributeNames": {"#job": HASH_KEY},
        }
    # Each write leaves a token of its own, so this refuses to undo a change that was made after `before` was read.
    return request | {
        "ConditionExpression": "#token = :token",
        "ExpressionAttributeNames": {"#token": TOKEN},
        "ExpressionAttributeValues": {":token": before[TOKEN]},
    }


def expire(table_name: str, job_id: str, range_key: str, at: datetime, version: int | None = None) -> dict[str, Any]:
    """Build the write that lets an item expire; with `version` only while the item still is of that version."""
    # An update of an item that is gone would create one that has nothing but its key and an end.
    request: dict[str, Any] = {
        "TableName": table_name,
        "Key": key(job_id, range_key),
        "UpdateExpression": "SET #ttl = :at",
        "ConditionExpression": "attribute_exists(#job)",
        "ExpressionAttributeNames": {"#ttl": TTL_ATTRIBUTE, "#job": HASH_KEY},
        "ExpressionAttributeValues": {":at": number(int(at.timestamp()))},
    }
    if version is not None:
        # A run id that committed again has a newer version in the same item, which must not expire with the old one.
        request["ConditionExpression"] = "#version = :version"
        request["ExpressionAttributeNames"] = {"#ttl": TTL_ATTRIBUTE, "#version": "version"}
        request["ExpressionAttributeValues"][":version"] = number(version)
    return request


def put_chunk(table_name: str, job_id: str, chunks_id: str, index: int, data: bytes) -> dict[str, Any]:
    """Build the write of a chunk; a chunk is immutable, so a second write of it is refused."""
    # Heads and log entries know the hash of what they refer to: other bytes under the same key would make
    # every version that shares the chunk unreadable.
    return {
        "TableName": table_name,
        "Item": key(job_id, chunk_key(chunks_id, index)) | {"fmt": number(FORMAT), "data": {"B": data}},
        "ConditionExpression": "attribute_not_exists(#job)",
        "ExpressionAttributeNames": {"#job": HASH_KEY},
    }


def put_item(table_name: str, item: Item, *, if_new: bool) -> dict[str, Any]:
    """Build the write of one item as it is, as when it is moved from another table."""
    request: dict[str, Any] = {"TableName": table_name, "Item": item}
    if if_new:
        # What is there already was written by an import that died, or by a run that has begun since: both stay.
        request |= {
            "ConditionExpression": "attribute_not_exists(#job)",
            "ExpressionAttributeNames": {"#job": HASH_KEY},
        }
    return request


def get(table_name: str, job_id: str, range_key: str) -> dict[str, Any]:
    """Build a strongly consistent read of one item."""
    return {"TableName": table_name, "Key": key(job_id, range_key), "ConsistentRead": True}


def query_log(table_name: str, job_id: str, *, below: int | None = None, page: int | None = None) -> dict[str, Any]:
    """Build the query for a job's log, newest version first; only versions `below` one."""
    last = log_key(below - 1) if below is not None else LOG_PREFIX + "~"
    request = query_between(table_name, job_id, LOG_PREFIX, last) | {"ScanIndexForward": False}
    return request | {"Limit": page} if page else request


def query_between(table_name: str, job_id: str, first: str, last: str) -> dict[str, Any]:
    """Build the query for a job's items with range keys from `first` to `last`, both included."""
    return {
        "TableName": table_name,
        "KeyConditionExpression": "#job = :job AND #range BETWEEN :first AND :last",
        "ExpressionAttributeNames": {"#job": HASH_KEY, "#range": RANGE_KEY},
        "ExpressionAttributeValues": {":job": {"S": job_id}, ":first": {"S": first}, ":last": {"S": last}},
        "ConsistentRead": True,
    }


def query_job(table_name: str, job_id: str) -> dict[str, Any]:
    """Build the query for everything under a job."""
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
