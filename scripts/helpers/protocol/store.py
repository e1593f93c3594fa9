"""Read items from a table, and replace a head by a conditional write, retried until its outcome is known."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scripts.helpers.errors import CorruptItemError, JobMovedError, StoreUnavailableError, WatermarkError
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.chunks import CHUNK_BYTES, join
from scripts.helpers.protocol.dynamodb import THROTTLES, DynamoTable, make_table_client
from scripts.helpers.protocol.head import SUCCESS, Head, LogEntry
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.names import is_file
from scripts.helpers.protocol.races import TO_WRITE_CHUNKS, Lost, Written
from scripts.helpers.protocol.requests import Between, ItemPage, Walk, Write
from scripts.helpers.protocol.values import Spilled

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


# --- pace -----------------------------------------------------------------------------------------
# How fast chunks are written, expired and deleted.
#
# DynamoDB keeps all items of a job in one partition, which accepts 1,000 write units a second. A put, an update or a
# delete costs one unit per KB of the item. A run that writes 60 MB as fast as the network allows is throttled after
# the first second, and fails when its retries are used up.

UNITS_PER_SECOND = 900.0
"""Less than a partition accepts, because heartbeats and other jobs in the same partition need some."""

KEY_BYTES = 200
"""Approximate size of an item besides its data: names, keys and format."""


class Pace:
    """Slows writes down to the capacity of a partition, `UNITS_PER_SECOND`. One or two chunks hardly wait.

    Parameters
    ----------
    timer
        Returns seconds, and never goes backwards.
    sleep
        Waits for the given number of seconds.
    """

    def __init__(self, timer: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._timer, self._sleep = timer, sleep
        self._paid_at = timer()

    def wait_to_write(self, data_bytes: int) -> None:
        """Wait until a chunk of `data_bytes` may be written."""
        now = self._timer()
        if self._paid_at > now:
            self._sleep(self._paid_at - now)
        units = math.ceil((data_bytes + KEY_BYTES) / 1024)
        self._paid_at = max(now, self._paid_at) + units / UNITS_PER_SECOND


# --- store ----------------------------------------------------------------------------------------

T = TypeVar("T")

ATTEMPTS = 4
"""Attempts at one write whose outcome is unknown. Each may be three attempts of botocore, so this lasts about half a
minute if the store does not answer: long enough for a failover, short enough for an operator who waits."""
BACKOFF_SECONDS = 0.2
"""Upper limit of the first pause between attempts; it doubles. Pauses are random so that writers do not meet again."""
BUDGET_SECONDS = 30.0
"""Time after which no further attempt at a head write is made; a run with a shorter lease uses its lease."""

_PASSES_SOON = THROTTLES | {"ReplicatedWriteConflictException"}
"""Errors after which a chunk is written again: the write did not take effect, and the store is reachable."""


class ItemTable(Protocol):
    """A table of items. Every read is strongly consistent; StoreUnavailableError means that an outcome is unknown."""

    name: str

    @property
    def client(self) -> Any:
        """The client of DynamoDB; None for a file."""

    @property
    def place(self) -> str:
        """The table's location, as stored in the head of a job that was copied from or to this table."""

    def get(self, key: Item) -> Item | None:
        """Read one item; None if there is none."""

    def write(self, write: Write) -> bool:
        """Send a write. True: it took effect. False: one of its conditions failed, and nothing was changed."""

    def query(self, wanted: Between) -> ItemPage:
        """Read a page of the items of one job."""

    def walk(self, wanted: Walk) -> ItemPage:
        """Read one page of one of the segments into which a scan divides the whole table."""

    def exists(self, table_name: str) -> bool:
        """Return whether a table of that name exists."""

    def create(self) -> None:
        """Create the table."""

    def eventual_replicas(self, table_name: str | None = None) -> list[str]:
        """Return the regions with copies of the table that are only eventually consistent."""


class Store:
    """One table. Every read is strongly consistent; every head write is conditional."""

    def __init__(self, table_name: str, client: DynamoDBClient | None = None) -> None:
        self.table_name = table_name
        if is_file(table_name):
            from scripts.helpers.protocol.sqlite import SqliteTable

            self.table: ItemTable = SqliteTable(table_name)
        else:
            self.table = DynamoTable(table_name, client or make_table_client(None, None))
        self.sleep: Callable[[float], None] = time.sleep
        self.timer: Callable[[], float] = time.monotonic

    @property
    def client(self) -> Any:
        """The client of DynamoDB; None for a file."""
        return self.table.client

    # --- reads ----------------------------------------------------------------------------------

    def read(self, job_id: str, range_key: str) -> Item | None:
        """Read the item with a range key; None if there is none."""
        return self.table.get(items.key(job_id, range_key))

    def read_head(self, job_id: str) -> Head | None:
        """Read a job's head; None before its first run."""
        item = self.read(job_id, items.HEAD_KEY)
        return items.head_from_item(item) if item else None

    def read_log(self, job_id: str, version: int) -> LogEntry | None:
        """Read the log entry of one version."""
        item = self.read(job_id, items.log_key(version))
        return items.log_from_item(item) if item else None

    def query(self, wanted: Between, pages: int | None = None) -> Iterator[Item]:
        """Yield the items that `wanted` selects, reading each page when it is needed, and at most `pages` pages."""
        for number in itertools.count(1):
            page = self.table.query(wanted)
            yield from page.items
            if page.last is None or number == pages:
                return
            wanted = dataclasses.replace(wanted, after=page.last[items.RANGE_KEY]["S"])

    # --- writes ---------------------------------------------------------------------------------

    def swap(self, before: Head | None, after: Head, budget: float = BUDGET_SECONDS) -> Written[Head] | Lost[Head]:
        """Replace the head `before` by `after` in one conditional write.

        JobMovedError if the job was moved to another table: then only code that copies jobs may change its head here.

        If the condition fails or the answer is lost, this write may still have taken effect. So the head is read
        and its identity compared with `after`; a write that did not arrive is sent again (it can apply only once).

        Parameters
        ----------
        budget
            Seconds after which no further attempt is made; a run passes at most its lease.

        Returns
        -------
        Written or Lost
            Written with `after` if this write took effect; Lost with the stored head if another writer's did.

        Raises
        ------
        StoreUnavailableError
            After all attempts it is unknown whether the write took effect.
        """
        if before is not None and before.elsewhere is not None and before.is_as_far_as(after):
            raise JobMovedError(after.job_id, self.table_name, before.elsewhere)
        return self._settle_head(before, after, requests.put_head(before, after), budget)

    def renew(self, before: Head, after: Head, budget: float = BUDGET_SECONDS) -> Written[Head] | Lost[Head]:
        """Replace the lease end of `before` by the later one of `after`; return what `swap` returns."""
        return self._settle_head(before, after, requests.renew_lease(after), budget)

    def replace(self, before: Item | None, after: Item, budget: float = BUDGET_SECONDS) -> Written[Item] | Lost[Item]:
        """Replace the item `before` by `after` in one conditional write; return what `swap` returns.

        Two items are compared by their attribute `items.TOKEN`, of which each write has a new one.
        """
        write = requests.put_replacement(before, after)
        job_id, range_key = after[items.HASH_KEY]["S"], after[items.RANGE_KEY]["S"]

        def token(item: Item | None) -> Any:
            return item.get(items.TOKEN) if item else None

        def read() -> Item | None:
            return self.read(job_id, range_key)

        return self._settle(read, token, before, after, write, budget)

    def _settle_head(self, before: Head | None, after: Head, write: Write, budget: float) -> Written[Head] | Lost[Head]:
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
        write: Write,
        budget: float,
    ) -> Written[T] | Lost[T]:
        """Send one conditional write until its outcome is known; StoreUnavailableError if it stays unknown."""

        def outcome(current: T | None) -> Written[T] | Lost[T]:
            return Written(after) if identity(current) == identity(after) else Lost(current)

        started = self.timer()
        for attempt in range(ATTEMPTS):
            last_error: WatermarkError
            try:
                if self.table.write(write):
                    return Written(after)
                # The condition also fails if an earlier attempt at this same write took effect and its answer was
                # lost. That may be an attempt of this loop, or of botocore, which retries too.
                return outcome(read())
            except StoreUnavailableError as error:
                last_error = error
            try:
                current = read()
                # If the head is unchanged, the write has not arrived, and is sent again. The first one may still be
                # on its way, but only one of the two can meet the condition.
                if identity(current) != identity(before):
                    return outcome(current)
            except StoreUnavailableError as error:
                last_error = error
            pause = random.uniform(0, BACKOFF_SECONDS * 2**attempt)
            # Stop at the budget: once a run's lease has ended, another run may already have claimed the job.
            if attempt + 1 == ATTEMPTS or self.timer() - started + pause > budget:
                break
            self.sleep(pause)
        raise last_error

    def write_log(self, entry: LogEntry) -> None:
        """Write the run item and then the log entry of a version; a second call changes nothing.

        The log entry is written last, so that its presence means that the run item exists too.
        """
        # Write the run item first: a begin looks only for the log entry, so it would not notice a missing run item.
        if entry.change.run_id is not None and entry.change.op in SUCCESS:
            self.table.write(requests.put_run(entry))
        self.table.write(requests.put_log(entry))

    # --- chunks ---------------------------------------------------------------------------------

    def write_chunks(self, job_id: str, chunks: Mapping[str, Sequence[bytes]]) -> None:
        """Write the chunks of large values, given by the value's id; chunks that already exist are left unchanged.

        This takes a second per 900 KB, near DynamoDB's limit for a partition; minutes if other writers use it up.
        """
        pace = self._pace()
        for chunks_id, parts in chunks.items():
            for index, data in enumerate(parts):
                pace.wait_to_write(len(data))
                request = requests.put_chunk(job_id, chunks_id, index, data)
                self._retry_throttled(partial(self.table.write, request))

    def read_spilled(self, job_id: str, reference: Spilled) -> Any:
        """Read a large value from its chunks; CorruptItemError if a chunk is missing or altered."""
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
        """Set the time when the chunks of a large value expire."""
        for range_key in self._paced_keys(reference):
            self._retry_throttled(partial(self.table.write, requests.expire(job_id, range_key, at)))

    def delete_chunks(self, job_id: str, reference: Spilled) -> None:
        """Delete the chunks of a large value to which no head and no log entry refers any more."""
        for range_key in self._paced_keys(reference):
            self._retry_throttled(partial(self.delete, job_id, range_key))

    def _paced_keys(self, reference: Spilled) -> Iterator[str]:
        """Yield the range keys of a large value's chunks, each as soon as the partition has capacity for a write."""
        pace = self._pace()
        for index in range(reference.chunks):
            # To change or delete a chunk costs as much capacity as to write all of it. Count each chunk as full: only
            # the last one may be smaller, and to count too much for it delays nothing, because no write follows.
            pace.wait_to_write(CHUNK_BYTES)
            yield items.chunk_key(reference.id, index)

    def _pace(self) -> Pace:
        # Without a client, the table is an SQLite file, which does not limit writes, so never sleep.
        return Pace(self.timer, self.sleep if self.client is not None else lambda seconds: None)

    def _retry_throttled(self, write: Callable[[], object]) -> None:
        """Repeat the write of a chunk while it is throttled. The write is idempotent, so repeating it is safe."""
        for _ in TO_WRITE_CHUNKS.races(self.sleep):
            try:
                write()
                return
            except StoreUnavailableError as error:
                if error.cause not in _PASSES_SOON:
                    raise
                throttled = error
        raise throttled

    # --- single items ---------------------------------------------------------------------------

    def delete(self, job_id: str, range_key: str) -> None:
        """Delete one item; it may be gone already."""
        self.table.write(requests.Delete(items.key(job_id, range_key)))

    def expire(self, job_id: str, range_key: str, at: datetime, version: int | None = None) -> None:
        """Set the time when an item expires, if the item exists and, with `version`, still has that version."""
        self.table.write(requests.expire(job_id, range_key, at, version))

    def put(self, item: Item, *, if_new: bool) -> bool:
        """Write one item unchanged. True: it was written. False: `if_new` is set and the key already has an item."""
        return self.table.write(requests.put(item, if_new=if_new))
