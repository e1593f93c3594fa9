"""Derives from a request on the wire what IAM checks: actions, resources and the keys that conditions see.

From the Service Authorization Reference: "Actions, resources, and condition keys" of DynamoDB, S3, SQS, Glue and KMS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from scripts.helpers.protocol import items
from tests.support.iam_policies import Request

ACCOUNT = "123456789012"
_TLS = {"aws:SecureTransport": "true"}
_BATCHES = {"DeleteMessageBatch": "DeleteMessage", "ChangeMessageVisibilityBatch": "ChangeMessageVisibility"}
_OF_TRANSACTIONS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "Get": "GetItem"}
_OF_KEYS = {
    "dynamodb:DeleteItem": ("Decrypt", "GenerateDataKey"),
    "dynamodb:GetItem": ("Decrypt",),
    "dynamodb:PutItem": ("Decrypt", "GenerateDataKey"),
    "dynamodb:Query": ("Decrypt",),
    "dynamodb:Scan": ("Decrypt",),
    "dynamodb:UpdateItem": ("Decrypt", "GenerateDataKey"),
    "s3:GetObject": ("Decrypt",),
    "s3:GetObjectVersion": ("Decrypt",),
    "s3:PutObject": ("Decrypt", "GenerateDataKey"),
    "sqs:ReceiveMessage": ("Decrypt",),
}
"""The KMS calls that a service makes for its caller; S3 decrypts for multipart uploads."""
_KEY_EQUALS = re.compile(r"(#?\w+)\s*=\s*(:\w+)")


def asked(
    service: str, region: str, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> list[Request]:
    """Return everything that a request must be allowed to do; `target` is the path with its query."""
    operation = headers.get("x-amz-target", "").rpartition(".")[2]
    if service == "dynamodb":
        return _dynamodb(region, operation, json.loads(body or b"{}"))
    if service == "sqs":
        queue = json.loads(body or b"{}").get("QueueUrl", "").rpartition("/")[2]
        action = f"sqs:{_BATCHES.get(operation, operation)}"
        return [Request(action, f"arn:aws:sqs:{region}:{ACCOUNT}:{queue}", _TLS)]
    if service == "s3":
        return list(_s3(method, target, headers, body))
    if service == "glue":
        return list(_glue(f"arn:aws:glue:{region}:{ACCOUNT}", operation, json.loads(body or b"{}")))
    if service == "kms":
        key = json.loads(body or b"{}").get("KeyId", "")
        alias = {"kms:RequestAlias": key[key.index("alias/") :]} if "alias/" in key else {}
        arn = key if key.startswith("arn:") and not alias else f"arn:aws:kms:{region}:{ACCOUNT}:key/{key}"
        return [Request(f"kms:{operation}", arn, _TLS | alias)]
    action = operation or parse_qs(body.decode()).get("Action", ["?"])[0]
    return [Request(f"{service}:{action}", "*", _TLS)]


def through_keys(request: Request, region: str, keys: Mapping[str, str]) -> list[Request]:
    """Return the KMS requests of the service behind a request; `keys` maps ARN prefixes of resources to their keys."""
    service = request.action.partition(":")[0]
    context = {**_TLS, "kms:ViaService": f"{service}.{region}.amazonaws.com"}
    found = [key for start, key in keys.items() if request.resource.startswith(start)]
    return [Request(f"kms:{name}", key, context) for key in found for name in _OF_KEYS.get(request.action, ())]


def leading_keys(operation: str, body: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the hash keys that a request to one table names; None if it names none."""
    name, keys = items.HASH_KEY, body.get("Item") or body.get("Key")
    if keys:
        return (keys[name]["S"],)
    if operation != "Query":
        return None
    names, values = body.get("ExpressionAttributeNames", {}), body["ExpressionAttributeValues"]
    named = {names.get(left, left): right for left, right in _KEY_EQUALS.findall(body["KeyConditionExpression"])}
    return (values[named[name]]["S"],)


def _dynamodb(region: str, operation: str, body: Mapping[str, Any]) -> list[Request]:
    def request(action: str, table: str, keys: tuple[str, ...] | None) -> Request:
        arn = table if table.startswith("arn:") else f"arn:aws:dynamodb:{region}:{ACCOUNT}:table/{table}"
        return Request(f"dynamodb:{action}", arn, _TLS | ({"dynamodb:LeadingKeys": keys} if keys else {}))

    if operation in ("BatchGetItem", "BatchWriteItem"):
        found = []
        for table, wanted in body["RequestItems"].items():
            parts = wanted["Keys"] if operation == "BatchGetItem" else [next(iter(put.values())) for put in wanted]
            keys = [part.get("Item") or part.get("Key") or part for part in parts]
            found.append(request(operation, table, tuple(sorted({key[items.HASH_KEY]["S"] for key in keys}))))
        return found
    if operation in ("TransactWriteItems", "TransactGetItems"):
        return [
            request(_OF_TRANSACTIONS[kind], part["TableName"], leading_keys(kind, part))
            for entry in body["TransactItems"]
            for kind, part in entry.items()
        ]
    resource = body.get("TableName") or body.get("ResourceArn") or "*"
    return [request(operation, resource, leading_keys(operation, body))]


def _glue(start: str, operation: str, body: Mapping[str, Any]) -> Iterator[Request]:
    """Yield what a request to Glue needs: calls about tables also the catalogue and the database, others any one."""
    of_tables = {"GetTable": "Name", "GetPartitions": "TableName"}
    resources = ["*"]
    if operation in of_tables:
        database = body["DatabaseName"]
        resources = ["catalog", f"database/{database}", f"table/{database}/{body[of_tables[operation]]}"]
    elif operation == "GetConnection":
        resources = ["catalog", f"connection/{body['Name']}"]
    for resource in resources:
        yield Request(f"glue:{operation}", "*" if resource == "*" else f"{start}:{resource}", _TLS)


def _s3(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Iterator[Request]:
    """Yield what a request in path style needs."""
    path = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(path.query, keep_blank_values=True).items()}
    bucket, _, key = unquote(path.path).lstrip("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    if not bucket:
        yield Request("s3:ListAllMyBuckets", "*", _TLS)
    elif not key and method == "POST" and "delete" in query:
        for name in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            yield Request("s3:DeleteObject", f"{arn}/{name}", _TLS)
    elif not key:
        yield _of_bucket(method, query, arn)
    else:
        source = headers.get("x-amz-copy-source")
        if source:
            yield Request("s3:GetObject", f"arn:aws:s3:::{unquote(source).lstrip('/')}", _TLS)
        yield _of_object(method, query, f"{arn}/{key}")


def _of_bucket(method: str, query: Mapping[str, str], arn: str) -> Request:
    names = {"prefix": "s3:prefix", "delimiter": "s3:delimiter", "max-keys": "s3:max-keys"}
    context = _TLS | {condition: query[name] for name, condition in names.items() if name in query}
    if method in ("GET", "HEAD") and not set(query) - {
        *names, "list-type", "start-after", "continuation-token", "encoding-type", "fetch-owner", "marker",
        "versions", "key-marker", "version-id-marker",
    }:  # fmt: skip
        return Request("s3:ListBucketVersions" if "versions" in query else "s3:ListBucket", arn, context)
    what = next((name for name in query if not query[name]), "bucket")
    return Request(f"s3:{method.title()}Bucket{what.title()}", arn, _TLS)


def _of_object(method: str, query: Mapping[str, str], arn: str) -> Request:
    verb = {"GET": "Get", "HEAD": "Get", "PUT": "Put", "POST": "Put", "DELETE": "Delete"}[method]
    if "uploadId" in query and method == "DELETE":
        return Request("s3:AbortMultipartUpload", arn, _TLS)
    if "versionId" in query:
        return Request(f"s3:{verb}ObjectVersion", arn, {**_TLS, "s3:VersionId": query["versionId"]})
    return Request(f"s3:{verb}Object", arn, _TLS)
