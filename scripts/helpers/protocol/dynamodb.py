"""Calls of DynamoDB for one table, with its errors translated; no other module calls DynamoDB."""

from __future__ import annotations

import logging
from datetime import timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from scripts.helpers.display.redaction import aws_client, redact_logs
from scripts.helpers.errors import (
    AccessRefusedError,
    ConfigurationError,
    CredentialsError,
    StoreUnavailableError,
    TableNotFoundError,
    TableSchemaError,
    WatermarkError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.requests import Between, Delete, Expected, ItemPage, Put, Update, Walk, Write

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

logger = logging.getLogger(__name__)

CLIENT_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
"""DynamoDB answers within milliseconds, so a request that takes seconds is lost. botocore makes only three attempts,
because it cannot check whether an attempt took effect; the attempts of `store.ATTEMPTS` do check."""

_CREDENTIAL_ERRORS = (
    CredentialRetrievalError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
SHORT = {
    items.HASH_KEY: "job", "planId": "plan", "ownerTok": "token", items.TOKEN: "token", "leaseUntil": "lease",
    items.TTL_ATTRIBUTE: "ttl",
}  # fmt: skip
"""Short names of attributes in expressions; other attributes keep their names."""
_CONFLICT = "ConditionalCheckFailedException"
_CREDENTIALS = {
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "ExpiredTokenException",
    "ExpiredToken",
}
THROTTLES = {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
_TRANSIENT = {
    *THROTTLES,
    "InternalServerError",
    "ServiceUnavailable",
    "TransactionConflictException",
    # In a global table with strong consistency, another region wrote the same item at the same moment.
    "ReplicatedWriteConflictException",
}


def make_table_client(region_name: str | None, endpoint_url: str | None) -> DynamoDBClient:
    """Make a client with explicit retries and time-outs; raise CredentialsError without a region or credentials."""
    try:
        return aws_client("dynamodb", region_name=region_name, endpoint_url=endpoint_url, config=CLIENT_CONFIG)  # type: ignore[no-any-return]
    except NoRegionError as error:
        raise CredentialsError(reason="no_region") from error
    except _CREDENTIAL_ERRORS as error:
        said = str(error).rstrip(".")
        raise CredentialsError(f"The AWS credentials cannot be used: {said}. Fix the profile or variables.") from error


class DynamoTable:
    """One DynamoDB table. Every read is strongly consistent."""

    def __init__(self, name: str, client: DynamoDBClient) -> None:
        redact_logs()  # Hide secrets before a client that the caller passed logs its first request.
        self.name, self.client = name, client

    # --- items ----------------------------------------------------------------------------------

    @cached_property
    def place(self) -> str:
        """The ARN of the table and its creation time, because a table that is created later may have the same ARN."""
        found = self._call("describe_table", {"TableName": self.name})["Table"]
        return f"{found['TableArn']}, made {found['CreationDateTime'].astimezone(timezone.utc):%Y-%m-%d %H:%M:%S.%fZ}"

    def get(self, key: Item) -> Item | None:
        """Read one item; None if there is none."""
        found: Item | None = self._call("get_item", get_item(self.name, key)).get("Item")
        return found

    def write(self, write: Write) -> bool:
        """Send a conditional write. True: the write took effect. False: a condition failed."""
        action = {Put: "put_item", Update: "update_item", Delete: "delete_item"}[type(write)]
        try:
            getattr(self.client, action)(**write_item(self.name, write))
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] == _CONFLICT:
                return False
            raise self.translate(error, action) from error
        return True

    def query(self, wanted: Between) -> ItemPage:
        """Read a page of the items of one job."""
        answer = self._call("query", query(self.name, wanted))
        return ItemPage(answer["Items"], answer.get("LastEvaluatedKey"))

    def walk(self, wanted: Walk) -> ItemPage:
        """Read a page of a segment of the whole table."""
        answer = self._call("scan", scan(self.name, wanted))
        units = float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0))
        return ItemPage(answer["Items"], answer.get("LastEvaluatedKey"), units)

    # --- the table ------------------------------------------------------------------------------

    def exists(self, table_name: str) -> bool:
        """Return whether a table of this name exists in the client's account and region."""
        try:
            replicas = self.eventual_replicas(table_name)
        except TableNotFoundError:
            return False
        if replicas:
            logger.warning(
                "event=global_table table=%s replicas=%s: it is eventually consistent, so runs in two regions can both "
                "commit. Use it from one region only, or make it strongly consistent (MRSC)",
                table_name, ",".join(replicas),
            )  # fmt: skip
        return True

    def eventual_replicas(self, table_name: str | None = None) -> list[str]:
        """Return the regions to which a table is copied with eventual consistency (MREC); needs DescribeTable.

        DynamoDB checks a condition only against the copy in its own region: two runs in two regions can both pass it,
        and the later write silently wins. With strong consistency (MRSC) conditions hold in all regions, and the list
        is empty. A normal run does not call this: it would cost every run a request for a setting that changes at most
        once in the life of a table.
        """
        table = self._call("describe_table", {"TableName": table_name or self.name})["Table"]
        # Tables from before strong consistency existed do not state their consistency. The older global tables of
        # version 2017.11.29 are eventually consistent too, and may not list their replicas.
        if table.get("MultiRegionConsistency") == "STRONG":
            return []
        found = [str(replica.get("RegionName", "unknown")) for replica in table.get("Replicas") or []]
        return found or (["unknown"] if table.get("GlobalTableVersion") == "2017.11.29" else [])

    def create(self) -> None:
        """Create the table with TTL and point-in-time recovery, and wait until it can be used."""
        self._call_once("create_table", create_table(self.name), "ResourceInUseException")
        # Wait, because DynamoDB refuses TTL and backups for a table that is still being created.
        self.client.get_waiter("table_exists").wait(TableName=self.name)
        ttl = {"Enabled": True, "AttributeName": items.TTL_ATTRIBUTE}
        request: dict[str, Any] = {"TableName": self.name, "TimeToLiveSpecification": ttl}
        self._call_once("update_time_to_live", request, "ValidationException")
        recovery = {"PointInTimeRecoveryEnabled": True}
        self._call("update_continuous_backups", {"TableName": self.name, "PointInTimeRecoverySpecification": recovery})

    # --- failures -------------------------------------------------------------------------------

    def _call_once(self, action: str, request: dict[str, Any], refused_again: str) -> None:
        """Call an action that succeeds only once; ignore the error `refused_again` if botocore repeated the request."""
        try:
            self._call(action, request)
        except ConfigurationError as error:
            answer = error.__cause__.response if isinstance(error.__cause__, ClientError) else {}
            # Ignore the error only after a retry: the first request, whose answer was lost, may have taken effect.
            sent_again = bool(answer.get("ResponseMetadata", {}).get("RetryAttempts"))
            if not (sent_again and answer["Error"]["Code"] == refused_again):
                raise

    def _call(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            response: dict[str, Any] = getattr(self.client, action)(**request)
            return response
        except (ClientError, BotoCoreError) as error:
            raise self.translate(error, action, request.get("TableName")) from error

    def translate(
        self, error: ClientError | BotoCoreError, action: str, table_name: str | None = None
    ) -> WatermarkError:
        """Return the error of this package for a botocore error; `table_name` defaults to this table."""
        table_name = table_name or self.name
        if isinstance(error, NoCredentialsError):
            return CredentialsError(
                "No AWS credentials were found. Set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run where a role is attached."
            )
        if isinstance(error, _CREDENTIAL_ERRORS):
            return CredentialsError(f"The AWS credentials cannot be used ({type(error).__name__}). Renew them.")
        if isinstance(error, ParamValidationError):
            return ConfigurationError(f"{action} on table {table_name!r} is not a valid request. Check the name.")
        if isinstance(error, BotoCoreError):
            remedy = f"{self.client.meta.endpoint_url} gave no answer. Check the region and the network, or try later."
            return StoreUnavailableError(table_name, action, type(error).__name__, remedy)
        code = error.response["Error"]["Code"]
        message = error.response["Error"].get("Message", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "ResourceNotFoundException":
            return TableNotFoundError(table_name, self.client.meta.region_name)
        if code in _CREDENTIALS:
            return CredentialsError(f"AWS does not accept the credentials ({code}). Renew them.")
        if code == "AccessDeniedException":
            return AccessRefusedError(f"dynamodb:{self.client.meta.method_to_api_mapping[action]}", table_name)
        if code in _TRANSIENT or status >= 500:
            return StoreUnavailableError(table_name, action, code)
        # Search the message, because DynamoDB has no separate code for a table with other keys.
        if code == "ValidationException" and "key" in message.lower():
            return TableSchemaError(table_name)
        return ConfigurationError(f"DynamoDB refused {action} on table {table_name!r}: {code}.")


# --- requests -----------------------------------------------------------------------------------


def get_item(table_name: str, key: Item) -> dict[str, Any]:
    """Build a strongly consistent read of one item."""
    return {"TableName": table_name, "Key": key, "ConsistentRead": True}


def write_item(table_name: str, write: Write) -> dict[str, Any]:
    """Build the PutItem, UpdateItem or DeleteItem of a write."""
    names = {f"#{_short(one.attribute)}": one.attribute for one in write.only_if}
    values = {f":{_short(one.attribute)}": one.expected for one in write.only_if if one.expected is not None}
    request: dict[str, Any] = {"TableName": table_name}
    if isinstance(write, Put):
        request["Item"] = write.item
    elif isinstance(write, Delete):
        request["Key"] = write.key
    else:
        short = _short(write.attribute)
        request |= {"Key": write.key, "UpdateExpression": f"SET #{short} = :{short}"}
        names[f"#{short}"], values[f":{short}"] = write.attribute, write.value
    # Add each parameter only if it is not empty, because DynamoDB refuses an empty one.
    if write.only_if:
        terms = [_expression(condition) for condition in write.only_if]
        # Allow a term with OR only if it is the only term, because AND binds more closely than OR.
        assert len(terms) == 1 or not any(" OR " in term for term in terms)
        request["ConditionExpression"] = " AND ".join(terms)
    if names:
        request["ExpressionAttributeNames"] = names
    if values:
        request["ExpressionAttributeValues"] = values
    return request


def _short(attribute: str) -> str:
    return SHORT.get(attribute, attribute)


def _expression(condition: Expected) -> str:
    name, value = f"#{_short(condition.attribute)}", f":{_short(condition.attribute)}"
    return {
        "absent": f"attribute_not_exists({name})",
        "present": f"attribute_exists({name})",
        "equal": f"{name} = {value}",
        "absent or below": f"attribute_not_exists({name}) OR {name} < {value}",
    }[condition.comparison]


def query(table_name: str, wanted: Between) -> dict[str, Any]:
    """Build the query for items of one job."""
    request: dict[str, Any] = {
        "TableName": table_name,
        "KeyConditionExpression": "#job = :job",
        "ExpressionAttributeNames": {"#job": items.HASH_KEY},
        "ExpressionAttributeValues": {":job": {"S": wanted.job_id}},
        "ConsistentRead": True,
    }
    if wanted.first is not None:
        request["KeyConditionExpression"] += " AND #range BETWEEN :first AND :last"
        request["ExpressionAttributeNames"]["#range"] = items.RANGE_KEY
        request["ExpressionAttributeValues"] |= {":first": {"S": wanted.first}, ":last": {"S": wanted.last}}
    if wanted.newest_first:
        request["ScanIndexForward"] = False
    if wanted.limit is not None:
        request["Limit"] = wanted.limit
    if wanted.after is not None:
        request["ExclusiveStartKey"] = items.key(wanted.job_id, wanted.after)
    return request


def scan(table_name: str, wanted: Walk) -> dict[str, Any]:
    """Build the read of a page of the whole table."""
    request: dict[str, Any] = {
        "TableName": table_name,
        "ConsistentRead": True,
        "ReturnConsumedCapacity": "TOTAL",
        "Segment": wanted.segment,
        "TotalSegments": wanted.segments,
        "Limit": wanted.limit,
    }
    return request | ({"ExclusiveStartKey": wanted.after} if wanted.after else {})


def create_table(table_name: str) -> dict[str, Any]:
    """Build the request that creates a table for this package: the same keys as terraform/main.tf, billed on demand."""
    return {
        "TableName": table_name,
        "AttributeDefinitions": [
            {"AttributeName": items.HASH_KEY, "AttributeType": "S"},
            {"AttributeName": items.RANGE_KEY, "AttributeType": "S"},
        ],
        "KeySchema": [
            {"AttributeName": items.HASH_KEY, "KeyType": "HASH"},
            {"AttributeName": items.RANGE_KEY, "KeyType": "RANGE"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
