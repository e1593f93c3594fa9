"""The only module that calls DynamoDB: reads, the one conditional write, and what their failures mean."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import boto3
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

from scripts.helpers import items
from scripts.helpers.errors import (
    AccessRefusedError,
    ConfigurationError,
    CredentialsError,
    StoreUnavailableError,
    TableNotFoundError,
    TableSchemaError,
    WatermarkError,
)
from scripts.helpers.items import Item
from scripts.helpers.records import Head, LogEntry

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CLIENT_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
ATTEMPTS = 4
BACKOFF_SECONDS = 0.2

_CREDENTIAL_ERRORS = (
    CredentialRetrievalError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
_CONFLICT = "ConditionalCheckFailedException"
_CREDENTIALS = {
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "ExpiredTokenException",
    "ExpiredToken",
}
_TRANSIENT = {
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "InternalServerError",
    "ServiceUnavailable",
    "TransactionConflictException",
}


def make_client(region_name: str | None, endpoint_url: str | None) -> DynamoDBClient:
    """Make a client with explicit retries and time-outs; CredentialsError without a region."""
    try:
        return boto3.client("dynamodb", region_name=region_name, endpoint_url=endpoint_url, config=CLIENT_CONFIG)
    except NoRegionError as error:
        raise CredentialsError(
            "No AWS region is set. Pass region_name, or set AWS_DEFAULT_REGION or a profile's region."
        ) from error
    except _CREDENTIAL_ERRORS as error:
        raise CredentialsError(f"The AWS credentials cannot be used: {error} Mend the profile or variables.") from error


class Store:
    """One DynamoDB table. Every read is strongly consistent; every head write is conditional."""

    def __init__(self, table_name: str, client: DynamoDBClient, sleep: Callable[[float], None] = time.sleep) -> None:
        self.table_name = table_name
        self.client = client
        self.sleep = sleep

    # --- reads ----------------------------------------------------------------------------------

    def read(self, job_id: str, range_key: str) -> Item | None:
        """Read one item; None if there is none."""
        request = items.get(self.table_name, job_id, range_key)
        return self._call("get_item", request).get("Item")

    def read_head(self, job_id: str) -> Head | None:
        """Read a job's head; None before its first run."""
        item = self.read(job_id, items.HEAD_KEY)
        return items.head_from_item(item) if item else None

    def read_log(self, job_id: str, version: int) -> LogEntry | None:
        """Read the log entry of one version."""
        item = self.read(job_id, items.log_key(version))
        return items.log_from_item(item) if item else None

    def query(self, request: dict[str, Any]) -> Iterator[Item]:
        """Read all pages of a query, each when it is needed."""
        while True:
            page = self._call("query", request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request = request | {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    # --- writes ---------------------------------------------------------------------------------

    def swap(self, before: Head | None, after: Head) -> Head | None:
        """Replace the head `before` by `after` in one conditional write.

        A failed condition or a lost answer says nothing by itself: the head is read and its
        identity compared, and a write that did not arrive is sent again (it can only apply once).

        Returns
        -------
        Head or None
        The head as it is now. Equal identity to `after`: the write took effect. Otherwise
        somebody else's did.

        Raises
        ------
        StoreUnavailableError
            After all attempts it is not known whether the write took effect.
        """
        request = items.put_head(self.table_name, before, after)
        expected = before.identity if before else None
        for attempt in range(ATTEMPTS):
            last_error: WatermarkError
            try:
                if self._put(request):
                    return after
                return self.read_head(after.job_id)
            except StoreUnavailableError as error:
                last_error = error
            try:
                current = self.read_head(after.job_id)
                if (current.identity if current else None) != expected:
                    return current
            except StoreUnavailableError as error:
                last_error = error
            self.sleep(random.uniform(0, BACKOFF_SECONDS * 2**attempt))
        raise last_error

    def write_log(self, entry: LogEntry) -> None:
        """Write the run item and then the log entry of a version; doing it again changes nothing.

        The log entry comes last: where it is, the run item is too.
        """
        if entry.change.run_id is not None:
            self._put(items.put_run(self.table_name, entry))
        self._put(items.put_log(self.table_name, entry))

    def _put(self, request: dict[str, Any]) -> bool:
        """Send a conditional PutItem. True: it took effect. False: its condition failed."""
        try:
            self.client.put_item(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] == _CONFLICT:
                return False
            raise self.translate(error, "put_item") from error
        except BotoCoreError as error:
            raise self.translate(error, "put_item") from error
        return True

    # --- the table ------------------------------------------------------------------------------

    def table_exists(self, table_name: str) -> bool:
        """Tell whether a table of this name exists in the client's account and region."""
        try:
            self._call("describe_table", {"TableName": table_name})
        except TableNotFoundError:
            return False
        return True

    def create_table(self) -> None:
        """Create the table and its TTL, and wait until it can be used."""
        self._call("create_table", items.create_table(self.table_name))
        self.client.get_waiter("table_exists").wait(TableName=self.table_name)
        ttl = {"Enabled": True, "AttributeName": items.TTL_ATTRIBUTE}
        self._call("update_time_to_live", {"TableName": self.table_name, "TimeToLiveSpecification": ttl})
        recovery = {"PointInTimeRecoveryEnabled": True}
        self._call(
            "update_continuous_backups",
            {"TableName": self.table_name, "PointInTimeRecoverySpecification": recovery},
        )

    # --- failures -------------------------------------------------------------------------------

    def _call(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            response: dict[str, Any] = getattr(self.client, action)(**request)
            return response
        except (ClientError, BotoCoreError) as error:
            raise self.translate(error, action) from error

    def translate(self, error: ClientError | BotoCoreError, action: str) -> WatermarkError:
        """Say what a botocore error means for the caller."""
        if isinstance(error, NoCredentialsError):
            return CredentialsError(
                "No AWS credentials were found. Set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run where a role is attached."
            )
        if isinstance(error, _CREDENTIAL_ERRORS):
            return CredentialsError(f"The AWS credentials cannot be used ({type(error).__name__}). Renew them.")
        if isinstance(error, ParamValidationError):
            return ConfigurationError(f"{action} on table {self.table_name!r} is not a valid request. Check the name.")
        if isinstance(error, BotoCoreError):
            return StoreUnavailableError(self.table_name, action, type(error).__name__)
        code = error.response["Error"]["Code"]
        message = error.response["Error"].get("Message", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "ResourceNotFoundException":
            return TableNotFoundError(self.table_name, self.client.meta.region_name)
        if code in _CREDENTIALS:
            return CredentialsError(f"AWS does not accept the credentials ({code}). Renew them.")
        if code == "AccessDeniedException":
            return AccessRefusedError(f"dynamodb:{self.client.meta.method_to_api_mapping[action]}", self.table_name)
        if code in _TRANSIENT or status >= 500:
            return StoreUnavailableError(self.table_name, action, code)
        if code == "ValidationException" and "key" in message.lower():
            return TableSchemaError(self.table_name)
        return ConfigurationError(f"DynamoDB refused {action} on table {self.table_name!r}: {code}.")
