"""List the jobs of a table, without an index and without reading their histories."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from scripts.helpers.errors import CorruptItemError, InvalidValueError, NewerFormatError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.requests import Between, ItemPage, Walk
from scripts.helpers.protocol.store import Store

SEGMENTS = 4
"""Parts of the table that are read in parallel. Each waits for its requests one by one, so four take a quarter of the
time. Each also learns its own page size, which with more segments costs more requests than it saves."""
MIN_PAGE, FIRST_PAGE, MAX_PAGE = 2, 64, 4_000
"""Items per page. The smallest page holds the head of one job and the first item of the next. The first page is
longer than a history that is worth reading through, so it reaches the end of such a history. The largest is more
than the 1 MB that DynamoDB returns at a time."""
PROBE_EVERY = 16
"""Requests of the smallest page size, after which one larger page checks whether histories have become short."""
ITEM_BYTES = 512
"""Approximate size of an item of a history."""
GROW_BELOW, SHRINK_ABOVE = 24, 48
"""Pages grow if at most `GROW_BELOW` other items were read per head, and shrink if more than `SHRINK_ABOVE` were.
One more request takes as long as some dozens of items more in a page."""
BEFORE_HEAD = "~"
LAST = "\U0010ffff" * 256
"""The largest range key that DynamoDB accepts, of 1,024 bytes. Any item after it belongs to another job."""
LEGACY_RANGES = (("\x00", "!"), ('"', BEFORE_HEAD), ("\x7f", LAST))
"""Range keys that the original class may have used, from first to last: those that start with neither '!' nor '~'."""


@dataclass(frozen=True)
class ListedJob:
    """One job of a table.

    `head` is None if the job has no readable head; `problem` then has the reason and what to do. Both are None for a
    job that has only records of the Job Runs API, such as one whose script has no bookmark.
    """

    job_id: str
    head: Head | None
    problem: str | None = None


@dataclass(frozen=True)
class ListCost:
    """The cost of a list: requests, items that DynamoDB read, and read units that it charged."""

    requests: int = 0
    items: int = 0
    units: float = 0.0


@dataclass(frozen=True)
class JobList:
    """The jobs of a watermark table by name, and what listing them cost; `is_whole` is False if a limit stopped it."""

    jobs: list[ListedJob]
    cost: ListCost
    is_whole: bool


def list_jobs(
    store: Store,
    *,
    segments: int = SEGMENTS,
    max_requests: int | None = None,
    on_page: Callable[[int, ListCost], None] | None = None,
) -> JobList:
    """List all jobs of a table; the cost depends on the number of jobs, not on the length of their histories.

    A job's head is its last item. If a page ends inside a history, the next page starts just before that job's head,
    because DynamoDB accepts a start key that no item has (AWS Database Blog, "Generate a distinct set of partition keys
    for an Amazon DynamoDB table efficiently"). Short histories are read through, in larger pages, which costs less than
    another request. Heads are read consistently. A job whose first run begins during the listing may be missing.

    Parameters
    ----------
    segments
        Number of parts into which the table is divided, which are read in parallel.
    max_requests
        Number of requests after which the list ends.
    on_page
        Called with the number of jobs found and the cost so far, after each request, from any thread.

    Raises
    ------
    AccessRefusedError
        The role has no ``dynamodb:Scan``. A team's role should not have it: LeadingKeys cannot restrict a Scan.
    """
    if type(segments) is not int or segments < 1:
        raise InvalidValueError(f"segments is {segments!r}; it must be a whole number above 0.")
    tally = _Tally(max_requests, on_page)
    walks = [_Walk(store, tally, number, segments) for number in range(segments)]
    with ThreadPoolExecutor(segments) as pool:
        try:
            list(pool.map(_Walk.run, walks))
        except BaseException:
            # Stop the other threads: the pool waits for them before it raises, and they would read to the table's end.
            tally.stopped = True
            raise
    found = sorted((job for walk in walks for job in walk.found), key=lambda job: job.job_id)
    return JobList(found, tally.cost, not tally.stopped)


class _Tally:
    """The cost and the number of jobs of all parallel scans (`_Walk`) together. `stopped` ends all of them."""

    def __init__(self, max_requests: int | None, on_page: Callable[[int, ListCost], None] | None) -> None:
        self.cost, self.jobs, self.stopped = ListCost(), 0, False
        self._max, self._on_page, self._lock = max_requests, on_page, threading.Lock()

    def may_ask(self) -> bool:
        """Count one request before it is sent; return False if the limit is reached."""
        with self._lock:
            if self.stopped or (self._max is not None and self.cost.requests >= self._max):
                self.stopped = True
                return False
            self.cost = ListCost(self.cost.requests + 1, self.cost.items, self.cost.units)
            return True

    def count_request(self, items_read: int) -> None:
        """Count a request that reads items of a single job, and not a page of the scan that lists heads."""
        with self._lock:
            before = self.cost
            self.cost = ListCost(before.requests + 1, before.items + items_read, before.units + 1)

    def add(self, page: ItemPage, new_jobs: int) -> None:
        with self._lock:
            self.jobs += new_jobs
            before = self.cost
            self.cost = ListCost(before.requests, before.items + len(page.items), before.units + page.units)
            if self._on_page is not None:
                self._on_page(self.jobs, self.cost)


class _Walk:
    """Reads one segment of the table page by page, and collects its jobs in `found`."""

    def __init__(self, store: Store, tally: _Tally, segment: int, segments: int) -> None:
        self.found: list[ListedJob] = []
        self._store, self._tally = store, tally
        self._segment, self._segments = segment, segments
        self._job: str | None = None
        self._head: items.Item | None = None
        self._first = self._last = ""
        self._has_ours = False
        self._limit, self._pages_since_probe = FIRST_PAGE, 0

    def run(self) -> None:
        start: items.Item | None = None
        while self._tally.may_ask():
            page = self._store.table.walk(Walk(self._segment, self._segments, self._limit, start))
            known, last = len(self.found), page.last
            for item in page.items:
                self._take(item)
            if last is None:
                self._leave()
            self._tally.add(page, len(self.found) - known)
            if last is None:
                return
            self._adapt(page.items, jumped=start is not None and start[items.RANGE_KEY]["S"] == BEFORE_HEAD)
            start = _next_start(last)
        # The limit of requests ended the walk inside a job. Omit the job if no head was read: its head may come later.
        if self._head is not None:
            self._leave()

    def _take(self, item: items.Item) -> None:
        job_id = item[items.HASH_KEY]["S"]
        if job_id != self._job:
            self._leave()
            self._job = job_id
        range_key = item[items.RANGE_KEY]["S"]
        self._first, self._last = self._first or range_key, range_key
        if _is_head(item):
            self._head = item
        self._has_ours = self._has_ours or (items.is_ours(item) and not items.is_job_runs_key(range_key))

    def _leave(self) -> None:
        """Add the job read last to `found`. If it has no head, query the keys that the scan skipped to find a head."""
        if self._job is not None:
            self.found.append(_listed(self._job, self._head) if self._head else self._listed_without_head(self._job))
        self._job, self._head, self._first, self._last, self._has_ours = None, None, "", "", False

    def _listed_without_head(self, job_id: str) -> ListedJob:
        """Return the entry of a job without a head. Its `problem` says whether the head is gone or never existed."""
        found: list[items.Item] = []
        for first, last in LEGACY_RANGES:
            # Skip ranges outside the keys that the scan read of the job or jumped over (up to `BEFORE_HEAD`).
            if self._first <= last and first <= max(self._last, BEFORE_HEAD):
                page = list(self._store.query(Between(job_id, first, last, limit=2), pages=1))
                self._tally.count_request(len(page))
                found += page
        if self._has_ours or any(map(items.is_ours, found)):
            return ListedJob(job_id, None, "its head is gone; see doctor")
        if not found:
            return ListedJob(job_id, None)
        problem = "one item of the original class; the next run takes it over"
        return ListedJob(job_id, None, problem if len(found) == 1 else "items of the original class; see adopt")

    def _adapt(self, page: Sequence[items.Item], jumped: bool) -> None:
        """Choose the next page size: larger if this page had few items besides its heads, smaller if it had many."""
        # Do not count a head whose history was skipped (`jumped`): it shows nothing about the length of histories.
        heads = sum(map(_is_head, page)) - (jumped and bool(page) and _is_head(page[0]))
        # Count a chunk by its size, because it is as large as hundreds of log entries.
        waste = sum(1 + len(item.get("data", {}).get("B", b"")) // ITEM_BYTES for item in page if not _is_head(item))
        # Shrink pages faster than they grow: a large page reads many items besides heads, a small one adds a request.
        if waste <= GROW_BELOW * heads:
            self._limit = min(MAX_PAGE, self._limit * 2)
        elif waste > SHRINK_ABOVE * heads:
            self._limit = max(MIN_PAGE, self._limit // 16)
        self._pages_since_probe = self._pages_since_probe + 1 if self._limit == MIN_PAGE else 0
        if self._pages_since_probe > PROBE_EVERY:
            self._limit, self._pages_since_probe = FIRST_PAGE, 0


def _next_start(last: items.Item) -> items.Item:
    """Return where the scan continues after a page that ended at the key `last`, so that it skips all items but heads.

    Before the job's head, jump to the head; past it, to the next job. The start never moves back, so each scan ends.
    """
    job_id, range_key = last[items.HASH_KEY]["S"], last[items.RANGE_KEY]["S"]
    if range_key < BEFORE_HEAD:
        return items.key(job_id, BEFORE_HEAD)
    return items.key(job_id, LAST) if range_key > items.HEAD_KEY else last


def _is_head(item: items.Item) -> bool:
    return bool(item[items.RANGE_KEY]["S"] == items.HEAD_KEY)


def _listed(job_id: str, item: items.Item) -> ListedJob:
    try:
        return ListedJob(job_id, items.head_from_item(item))
    except NewerFormatError as error:
        return ListedJob(job_id, None, f"format {error.found}: upgrade glue-watermarks")
    except CorruptItemError as error:
        return ListedJob(job_id, None, f"damaged: its head is not readable ({error.detail}); see doctor")
