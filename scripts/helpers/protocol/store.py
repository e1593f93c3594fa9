"""What is read of a table, and the one conditional write: sent until it is known what came of it."""

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
# DynamoDB keeps all items of a job in one partition, which takes 1,000 write units a second, and a write costs one unit
# per KB of the item, whether it puts, updates or deletes it. Whoever writes 60 MB as fast as the network allows is
# throttled after the first second, and gives up when its retries are used up.

UNITS_PER_SECOND = 900.0
"""Less than a partition takes: heartbeats and other jobs that lie there need some."""

KEY_BYTES = 200
"""About what an item has beside its data: names, keys and format."""


class Pace:
    """Waits before each write until the writes before it are paid for. One or two chunks wait hardly at all.

    Parameters
    ----------
    timer
        Returns seconds; never set back.
    sleep
        Waits so many seconds.
    """

    def __init__(self, timer: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._timer, self._sleep = timer, sleep
        self._paid_at = timer()

    def wait_to_write(self, data_bytes: int) -> None:
        """Wait until a chunk of so many bytes may be written."""
        now = self._timer()
        if self._paid_at > now:
            self._sleep(self._paid_at - now)
        units = math.ceil((data_bytes + KEY_BYTES) / 1024)
        self._paid_at = max(now, self._paid_at) + units / UNITS_PER_SECOND


# --- store ----------------------------------------------------------------------------------------

T = TypeVar("T")

ATTEMPTS = 4
"""Attempts at one write of which it is not known whether it arrived. Each may be three of botocore's, so this is about
half a minute of a store that does not answer: long enough for a failover, short enough for a person."""
BACKOFF_SECONDS = 0.2
"""Longest first pause between them; it doubles. A pause is random, or those that failed together would meet again."""
BUDGET_SECONDS = 30.0
"""Attempts at one head write end after this time; a run's shorter lease ends them sooner."""

_PASSES_SOON = THROTTLES | {"ReplicatedWriteConflictException"}
"""What a chunk is written through: it says that the write did not take effect, and that the store is there."""


class ItemTable(Protocol):
    """What keeps items. Every read is strongly consistent; StoreUnavailableError says that an outcome is unknown."""

    name: str

    @property
    def client(self) -> Any:
        """The client of DynamoDB; None for a file."""

    @property
    def place(self) -> str:
        """Where it is, for people of another table."""

    def get(self, key: Item) -> Item | None:
        """Read one item; None if there is none."""

    def write(self, write: Write) -> bool:
        """Write if the conditions hold. True: it took effect. False: one of them does not."""

    def query(self, wanted: Between) -> ItemPage:
        """Read a page of the items of one job."""

    def walk(self, wanted: Walk) -> ItemPage:
        """Read a page of a segment of the whole table."""

    def exists(self, table_name: str) -> bool:
        """Return whether there is a table of a name."""

    def create(self) -> None:
        """Make the table."""

    def eventual_replicas(self, table_name: str | None = None) -> list[str]:
        """Return where copies are that are not consistent."""


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
        """Read one item; None if there is none."""
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
        """Read what is wanted of a job, each page when it is needed; at most `pages` of them."""
        for number in itertools.count(1):
            page = self.table.query(wanted)
            yield from page.items
            if page.last is None or number == pages:
                return
            wanted = dataclasses.replace(wanted, after=page.last[items.RANGE_KEY]["S"])

    # --- writes ---------------------------------------------------------------------------------

    def swap(self, before: Head | None, after: Head, budget: float = BUDGET_SECONDS) -> Written[Head] | Lost[Head]:
        """Replace the head `before` by `after` in one conditional write.

        JobMovedError where the job is in another table: only a copy replaces that head.

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
        if before is not None and before.elsewhere is not None and before.is_as_far_as(after):
            raise JobMovedError(after.job_id, self.table_name, before.elsewhere)
        return self._settle_head(before, after, requests.put_head(before, after), budget)

    def renew(self, before: Head, after: Head, budget: float = BUDGET_SECONDS) -> Written[Head] | Lost[Head]:
        """Write the later lease of `after`; the outcome is settled as that of `swap`."""
        return self._settle_head(before, after, requests.renew_lease(after), budget)

    def replace(self, before: Item | None, after: Item, budget: float = BUDGET_SECONDS) -> Written[Item] | Lost[Item]:
        """Put an item in place of `before` in one conditional write; the outcome is settled as that of `swap`.

        The attribute `items.TOKEN` distinguishes two writes.
        """
        write = requests.put_in_place_of(before, after)
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
        """Send one conditional write until it is known what came of it; StoreUnavailableError if that stays unknown."""

        def outcome(current: T | None) -> Written[T] | Lost[T]:
            return Written(after) if identity(current) == identity(after) else Lost(current)

        started = self.timer()
        for attempt in range(ATTEMPTS):
            last_error: WatermarkError
            try:
                if self.table.write(write):
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
            self.table.write(requests.put_run(entry))
        self.table.write(requests.put_log(entry))

    # --- chunks ---------------------------------------------------------------------------------

    def write_chunks(self, job_id: str, chunks: Mapping[str, Sequence[bytes]]) -> None:
        """Write all chunks of some references; those that are there already stay as they are.

        It takes a second for each 900 KB (see *pace* above), and takes minutes where others use up the partition.
        """
        pace = self._pace()
        for chunks_id, parts in chunks.items():
            for index, data in enumerate(parts):
                pace.wait_to_write(len(data))
                request = requests.put_chunk(job_id, chunks_id, index, data)
                self._until_taken(partial(self.table.write, request))

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
            self._until_taken(partial(self.table.write, requests.expire(job_id, range_key, at)))

    def delete_chunks(self, job_id: str, reference: Spilled) -> None:
        """Delete the chunks of a reference that nothing holds any more."""
        for range_key in self._paced_keys(reference):
            self._until_taken(partial(self.delete, job_id, range_key))

    def _paced_keys(self, reference: Spilled) -> Iterator[str]:
        """Yield the range keys of a reference's chunks, each when the one before it is paid for."""
        pace = self._pace()
        for index in range(reference.chunks):
            # To change or delete an item costs as much as to write it. All chunks but the last are full, and nothing
            # waits for what the last one costs.
            pace.wait_to_write(CHUNK_BYTES)
            yield items.chunk_key(reference.id, index)

    def _pace(self) -> Pace:
        # A file has no write units that others would wait for.
        return Pace(self.timer, self.sleep if self.client is not None else lambda seconds: None)

    def _until_taken(self, write: Callable[[], object]) -> None:
        """Do a write of a chunk again while it is throttled: to do it twice changes nothing."""
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
        """Let an item expire, if it is there and of that version."""
        self.table.write(requests.expire(job_id, range_key, at, version))

    def put(self, item: Item, *, if_new: bool) -> bool:
        """Write one item as it is. True: it took effect. False: one exists already, and `if_new` leaves it."""
        return self.table.write(requests.put(item, if_new=if_new))
