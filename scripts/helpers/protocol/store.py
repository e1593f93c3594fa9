"""The only module that calls DynamoDB: reads, the one conditional write, and what their failures mean."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

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
    CorruptItemError,
    CredentialsError,
    StoreUnavailableError,
    TableNotFoundError,
    TableSchemaError,
    WatermarkError,
)
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.chunks import CHUNK_BYTES, join
from scripts.helpers.protocol.head import SUCCESS, Head, LogEntry
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.pace import Pace
from scripts.helpers.protocol.races import TO_WRITE_CHUNKS, Lost, Written
from scripts.helpers.protocol.values import Spilled

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLIENT_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
"""DynamoDB answers within milliseconds: what takes seconds is lost. botocore sends again by itself only three times, as
it cannot look whether an attempt took effect, which `ATTEMPTS` do."""
ATTEMPTS = 4
"""Attempts at one write of which it is not known whether it arrived. Each may be three of botocore's, so this is about
half a minute of a store that does not answer: long enough for a failover, short enough for a person."""
BACKOFF_SECONDS = 0.2
"""Longest first pause between them; it doubles. A pause is random, or those that failed together would meet again."""
BUDGET_SECONDS = 30.0
"""Attempts at one head write end after this time; a run's shorter lease ends them sooner."""

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
_THROTTLES = {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
_TRANSIENT = {
    *_THROTTLES,
    "InternalServerError",
    "ServiceUnavailable",
    "TransactionConflictException",
    # Of a global table with strong consistency: the same item was written in another region at this moment.
    "ReplicatedWriteConflictException",
}
_PASSES_SOON = _THROTTLES | {"ReplicatedWriteConflictException"}
"""What a chunk is written through: it says that the write did not take effect, and that the store is there."""


def make_table_client(region_name: str | None, endpoint_url: str | None) -> DynamoDBClient:
    """Make a client with explicit retries and time-outs; CredentialsError without a region."""
    try:
        return aws_client("dynamodb", region_name=region_name, endpoint_url=endpoint_url, config=CLIENT_CONFIG)  # type: ignore[no-any-return]
    except NoRegionError as error:
        raise CredentialsError(
            "No AWS region is set. Pass region_name, or set AWS_DEFAULT_REGION or a profile's region."
        ) from error
    except _CREDENTIAL_ERRORS as error:
        said = str(error).rstrip(".")
        raise CredentialsError(f"The AWS credentials cannot be used: {said}. Fix the profile or variables.") from error


class Store:
    """One DynamoDB table. Every read is strongly consistent; every head write is conditional."""

    def __init__(self, table_name: str, client: DynamoDBClient) -> None:
        redact_logs()  # Before a client that was given logs the first request.
        self.table_name, self.client = table_name, client
        self.sleep: Callable[[float], None] = time.sleep
        self.timer: Callable[[], float] = time.monotonic

    # --- reads ----------------------------------------------------------------------------------

    def read(self, job_id: str, range_key: str) -> Item | None:
        """Read one item; None if there is none."""
        request = requests.get(self.table_name, job_id, range_key)
        return self._call("get_item", request).get("Item")

    def read_head(self, job_id: str) -> Head | None:
        """Read a job's head; None before its first run."""
        item = self.read(job_id, items.HEAD_KEY)
        return items.head_from_item(item) if item else None

    def read_log(self, job_id: str, version: int) -> LogEntry | None:
        """Read the log entry of one version."""
        item = self.read(job_id, items.log_key(version))
        return items.log_from_item(item) if item else None

    def query(self, request: dict[str, Any], pages: int | None = None) -> Iterator[Item]:
        """Read the pages of a query, each when it is needed; at most `pages` of them."""
        for number in itertools.count(1):
            page = self._call("query", request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page or number == pages:
                return
            request = request | {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def page_of_table(self, request: dict[str, Any]) -> dict[str, Any]:
        """Read one page of the whole table; return the answer as it came, with what it cost."""
        return self._call("scan", {"TableName": self.table_name} | request)

    # --- writes ---------------------------------------------------------------------------------

    def swap(self, before: Head | None, after: Head, budget: float = BUDGET_SECONDS) -> Written[Head] | Lost[Head]:
        """Replace the head `before` by `after` in one conditional write.

        A failed condition or a lost answer says nothing by itself: the head is read and its
        identity compared, and a write that did not arrive is sent again (it can only apply once).

        Parameters
        ----------
        budget
            Seconds after which no further attempt is made; a run gives no more than its lease.

        Returns
        -------
        Written or Lost
            Whether the write took effect, or that of somebody else, with the head as it is now.

        Raises
        ------
        StoreUnavailableError
            After all attempts it is not known whether the write took effect.
        """
        request = requests.put_head(self.table_name, before, after)
        return self._settle_head(before, after, lambda: self._put(request), budget)

    def renew(self, before: Head, after: Head, budget: float = BUDGET_SECONDS) -> Written[Head] | Lost[Head]:
        """Write the later lease of `after`; the outcome is settled as that of `swap`."""
        request = requests.renew_lease(self.table_name, after)
        return self._settle_head(before, after, lambda: self._update(request), budget)

    def replace(self, before: Item | None, after: Item, budget: float = BUDGET_SECONDS) -> Written[Item] | Lost[Item]:
        """Put an item in place of `before` in one conditional write; the outcome is settled as that of `swap`.

        Which of two writes it was tells their attribute `items.TOKEN`.
        """
        request = requests.put_in_place_of(self.table_name, before, after)
        job_id, range_key = after[items.HASH_KEY]["S"], after[items.RANGE_KEY]["S"]

        def token(item: Item | None) -> Any:
            return item.get(items.TOKEN) if item else None

        def read() -> Item | None:
            return self.read(job_id, range_key)

        return self._settle(read, token, before, after, lambda: self._put(request), budget)

    def _settle_head(
        self, before: Head | None, after: Head, write: Callable[[], bool], budget: float
    ) -> Written[Head] | Lost[Head]:
        def identity(head: Head | None) -> Any:
            return head.identity if head else None

        def read() -> Head | None:
            return self.read_head(after.job_id)

        return self._settle(read, identity, before, after, write, budget)

    def _settle(
        self,
        read: Callable[[], T | None],
        identity: Callable[[T | None], Any],
        before: T | None,
        after: T,
        write: Callable[[], bool],
        budget: float,
    ) -> Written[T] | Lost[T]:
        """Send one conditional write until it is known what came of it; StoreUnavailableError if that stays unknown."""

        def outcome(current: T | None) -> Written[T] | Lost[T]:
            return Written(after) if identity(current) == identity(after) else Lost(current)

        started = self.timer()
        for attempt in range(ATTEMPTS):
            last_error: WatermarkError
            try:
                if write():
                    return Written(after)
                # The condition failed. That may be the work of an earlier attempt of this very write, whose
                # answer was lost: here, or within botocore, which sends again on its own.
                return outcome(read())
            except StoreUnavailableError as error:
                last_error = error
            try:
                current = read()
                # As before: the write has not arrived so far, and is sent again. It may still be on its way, but
                # of the two only one meets the condition.
                if identity(current) != identity(before):
                    return outcome(current)
            except StoreUnavailableError as error:
                last_error = error
            pause = random.uniform(0, BACKOFF_SECONDS * 2**attempt)
            # Not past the budget: a run whose lease is over when its write arrives has kept nobody away meanwhile.
            if attempt + 1 == ATTEMPTS or self.timer() - started + pause > budget:
                break
            self.sleep(pause)
        raise last_error

    def write_log(self, entry: LogEntry) -> None:
        """Write the run item and then the log entry of a version; doing it again changes nothing.

        The log entry comes last: where it is, the run item is too.
        """
        # A begin looks for the log entry only. Written first, it would hide that the run item is missing.
        if entry.change.run_id is not None and entry.change.op in SUCCESS:
            self._put(requests.put_run(self.table_name, entry))
        self._put(requests.put_log(self.table_name, entry))

    # --- chunks ---------------------------------------------------------------------------------

    def write_chunks(self, job_id: str, chunks: Mapping[str, Sequence[bytes]]) -> None:
        """Write all chunks of some references; those that are there already stay as they are.

        It takes a second for each 900 KB (see `pace`), and goes on for minutes where others use up the partition.
        """
        pace = Pace(self.timer, self.sleep)
        for chunks_id, parts in chunks.items():
            for index, data in enumerate(parts):
                pace.wait_to_write(len(data))
                request = requests.put_chunk(self.table_name, job_id, chunks_id, index, data)
                self._until_taken(partial(self._put, request))

    def read_spilled(self, job_id: str, reference: Spilled) -> Any:
        """Read a spilled value back; CorruptItemError if a chunk is missing or altered."""
        try:
            parts = []
            for index in range(reference.chunks):
                range_key = items.chunk_key(reference.id, index)
                item = self.read(job_id, range_key)
                if item is None:
                    raise ValueError(f"chunk {index + 1} of {reference.chunks} is gone")
                parts.append(item["data"]["B"])
            range_key = items.chunk_key(reference.id, 0)
            return join(reference, parts)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptItemError(job_id, range_key, f"its chunks: {error}") from error

    def expire_chunks(self, job_id: str, reference: Spilled, at: datetime) -> None:
        """Let the chunks of a reference expire."""
        for range_key in self._paced_keys(reference):
            request = requests.expire(self.table_name, job_id, range_key, at)
            self._until_taken(partial(self._update, request))

    def delete_chunks(self, job_id: str, reference: Spilled) -> None:
        """Delete the chunks of a reference that nothing holds any more."""
        for range_key in self._paced_keys(reference):
            self._until_taken(partial(self.delete, job_id, range_key))

    def _paced_keys(self, reference: Spilled) -> Iterator[str]:
        """Yield the range keys of a reference's chunks, each when the one before it is paid for."""
        pace = Pace(self.timer, self.sleep)
        for index in range(reference.chunks):
            # To change or delete an item costs as much as to write it. All chunks but the last are full, and nothing
            # waits for what the last one costs.
            pace.wait_to_write(CHUNK_BYTES)
            yield items.chunk_key(reference.id, index)

    def _until_taken(self, write: Callable[[], object]) -> None:
        """Do a write of a chunk again while it is throttled: to do it twice changes nothing."""
        for _ in TO_WRITE_CHUNKS.races(self.sleep):
            try:
                write()
                return
            except StoreUnavailableError as error:
                if error.reason not in _PASSES_SOON:
                    raise
                throttled = error
        raise throttled

    # --- single items ---------------------------------------------------------------------------

    def delete(self, job_id: str, range_key: str) -> None:
        """Delete one item; it may be gone already."""
        self._call("delete_item", {"TableName": self.table_name, "Key": items.key(job_id, range_key)})

    def expire(self, job_id: str, range_key: str, at: datetime, version: int | None = None) -> None:
        """Let an item expire, if it is there and of that version."""
        self._update(requests.expire(self.table_name, job_id, range_key, at, version))

    def put(self, item: Item, *, if_new: bool) -> bool:
        """Write one item as it is. True: it took effect. False: one is there already, and `if_new` leaves it."""
        return self._put(requests.put_item(self.table_name, item, if_new=if_new))

    def _put(self, request: dict[str, Any]) -> bool:
        """Send a conditional PutItem. True: it took effect. False: its condition failed."""
        return self._conditional("put_item", request)

    def _update(self, request: dict[str, Any]) -> bool:
        """Send a conditional UpdateItem. True: it took effect. False: its condition failed."""
        return self._conditional("update_item", request)

    def _conditional(self, action: str, request: dict[str, Any]) -> bool:
        try:
            getattr(self.client, action)(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] == _CONFLICT:
                return False
            raise self.translate(error, action) from error
        except BotoCoreError as error:
            raise self.translate(error, action) from error
        return True

    # --- the table ------------------------------------------------------------------------------

    def table_exists(self, table_name: str) -> bool:
        """Tell whether a table of this name exists in the client's account and region."""
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

        A condition is checked against the copy of its own region only: two runs in two regions both pass it, and the
        later write silently wins. With strong consistency (MRSC) conditions hold in all regions, and nothing is
        returned. A normal run never asks: it would cost each of them a request to be told what changes once in the
        life of a table.
        """
        table = self._call("describe_table", {"TableName": table_name or self.table_name})["Table"]
        # Tables from before strong consistency was there do not say which they are. The older global tables of version
        # 2017.11.29 are eventually consistent too, and may not list their replicas.
        if table.get("MultiRegionConsistency") == "STRONG":
            return []
        found = [str(replica.get("RegionName", "unknown")) for replica in table.get("Replicas") or []]
        return found or (["unknown"] if table.get("GlobalTableVersion") == "2017.11.29" else [])

    def create_table(self) -> None:
        """Create the table and its TTL, and wait until it can be used."""
        self._call_once("create_table", requests.create_table(self.table_name), "ResourceInUseException")
        # TTL and backups of a table that is still being created are refused.
        self.client.get_waiter("table_exists").wait(TableName=self.table_name)
        ttl = {"Enabled": True, "AttributeName": items.TTL_ATTRIBUTE}
        request = {"TableName": self.table_name, "TimeToLiveSpecification": ttl}
        self._call_once("update_time_to_live", request, "ValidationException")
        recovery = {"PointInTimeRecoveryEnabled": True}
        self._call(
            "update_continuous_backups",
            {"TableName": self.table_name, "PointInTimeRecoverySpecification": recovery},
        )

    # --- failures -------------------------------------------------------------------------------

    def _call_once(self, action: str, request: dict[str, Any], refused_again: str) -> None:
        """Call what DynamoDB refuses the second time, with the code of that refusal."""
        try:
            self._call(action, request)
        except ConfigurationError as error:
            told = error.__cause__.response if isinstance(error.__cause__, ClientError) else {}
            # botocore sends a request again whose answer was lost: it had arrived, and did what it should.
            sent_again = bool(told.get("ResponseMetadata", {}).get("RetryAttempts"))
            if not (sent_again and told["Error"]["Code"] == refused_again):
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
        """Say what a botocore error means for the caller; the table is this one, or that which was asked for."""
        table_name = table_name or self.table_name
        if isinstance(error, NoCredentialsError):
            return CredentialsError(
                "No AWS credentials were found. Set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run where a role is attached."
            )
        if isinstance(error, _CREDENTIAL_ERRORS):
            return CredentialsError(f"The AWS credentials cannot be used ({type(error).__name__}). Renew them.")
        if isinstance(error, ParamValidationError):
            return ConfigurationError(f"{action} on table {table_name!r} is not a valid request. Check the name.")
        if isinstance(error, BotoCoreError):
            return StoreUnavailableError(table_name, action, type(error).__name__)
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
        # DynamoDB has no code of its own for a table with other keys.
        if code == "ValidationException" and "key" in message.lower():
            return TableSchemaError(table_name)
        return ConfigurationError(f"DynamoDB refused {action} on table {table_name!r}: {code}.")
