"""List a prefix with many requests at once, which the caller's `Pages` sends: each worker lists a range. Pure.

The pages of one listing come one after another, because each request needs the token of the page before. So
the keys are split into ranges, each listed by one worker. A worker without a range takes a part of the range
with the most pages so far. The sizes need not be known in advance, and no split can lose a key, because each
range ends exactly where the next one begins.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.cuts import CutFinder, Probes, between
from scripts.helpers.listing.objects import Interval, byte_order

WAITING_PAGES = 64
"""The most pages that may wait for the consumer, which limits the memory of a listing."""

MEASURED_PAGES = 2
RATIO_FOR_ONE_WORKER = 4.0
"""The number of workers is chosen after timing `MEASURED_PAGES`, so that one slow page does not decide. If a page took
at most `RATIO_FOR_ONE_WORKER` times its CPU time, one worker is as fast as several: threads that parse pages slow each
other down."""

FREE_PROBES = 32
PAGES_PER_PROBE = 4
"""The most requests for finding splits: a fixed number at first, then one for every so many listed pages."""


class Page(NamedTuple):
    """Objects in order of keys, and the token of the next page; the last page has the token None."""

    rows: pa.RecordBatch
    token: str | None


class Pages(Probes, Protocol):
    """Requests that list a prefix; all keys are relative to it."""

    def page(self, after: str | None, token: str | None) -> Page:
        """Return the page that a token of an earlier page names; without a token, the first page above `after`."""


@dataclass(eq=False)
class _Range:
    position: str | None
    """All keys up to this one have been listed."""
    until: str | None
    pages: int = 0
    open: bool = True
    splitting: bool = False
    start: str = ""
    """The first key of the latest page."""
    stuck: int = 0
    """The number of pages that the range has to list before another split is tried."""


@dataclass
class RangeListing:
    """Lists ranges of keys with several workers. Iterate only once; each page that arrives becomes an `Interval`.

    `start` requests the first page in the caller's thread. A prefix that fits on it needs no other request or thread.
    """

    pages: Pages
    source: str
    workers: int
    unordered: bool = False
    """Whether the server promises no order. Then one worker lists, and the caller sorts."""
    measured: bool = False
    """Whether to time pages and start only as many workers as help: more would wait for this process, not for S3."""
    first: Page | None = None
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _ranges: list[_Range] = field(default_factory=list)
    _waiting: list[_Range] = field(default_factory=list)
    _out: queue.Queue[Interval | BaseException | None] = field(default_factory=lambda: queue.Queue(WAITING_PAGES))
    _listed = 0
    _unfinished = 1
    """The number of ranges whose intervals are not all in the queue yet."""
    _stop = False

    def __post_init__(self) -> None:
        self._finder = CutFinder(self.pages, lambda: not self._stop)

    def start(self, after: str | None = None, until: str | None = None) -> None:
        """Request the first page of keys above `after`, up to and including `until`."""
        self._ranges = [_Range(after, until)]
        self.first = self.pages.page(after, None)

    def __iter__(self) -> Iterator[Interval]:
        """Yield intervals that together have each key exactly once. With several workers, they come in any order."""
        assert self.first is not None
        whole, token = self._ranges[0], self.first.token
        interval = self._advance(whole, self.first)
        if interval is not None:
            yield interval
        if not whole.open:
            return
        if self.measured and self.workers > 1 and not self.unordered:
            ratio = math.inf
            while whole.open and ratio > RATIO_FOR_ONE_WORKER and whole.pages <= MEASURED_PAGES:
                interval, token, times = self._measured_page(whole, token)
                ratio = min(ratio, times)
                if interval is not None:
                    yield interval
            if ratio > RATIO_FOR_ONE_WORKER:
                # `ratio` workers would keep this process busy. Start twice as many: some wait or seek keys to split at.
                self.workers = min(self.workers, math.ceil(2 * ratio))
            else:
                self.workers = 1
            if not whole.open:
                return
        if self.workers == 1 or self.unordered:
            yield from self._sequential(whole, token)
            return
        threads = [threading.Thread(target=self._work, args=(whole, token), daemon=True)]
        threads += [threading.Thread(target=self._work, daemon=True) for _ in range(self.workers - 1)]
        for thread in threads:
            thread.start()
        try:
            while (found := self._out.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            # End all threads, even if the caller stops early. A worker may be waiting for room in the full queue, so
            # empty the queue until each worker has seen `_stop` and ended.
            with self._lock:
                self._stop = True
                self._lock.notify_all()
            for thread in threads:
                while thread.is_alive():
                    self._drain()
                    thread.join(0.01)

    def _behind(self, token: str | None) -> Page:
        """Return the page of a token; SourceError if the next page has the same token."""
        page = self.pages.page(None, token)
        # `_check_order` cannot stop an endless loop if pages have no keys or the listing is unordered: check tokens.
        if page.token is not None and page.token == token:
            raise SourceError(
                self.source, "its server returns the token of the page before again, so pages could repeat for ever. "
                "Use S3Inventory.",
            )  # fmt: skip
        return page

    def _measured_page(self, whole: _Range, token: str | None) -> tuple[Interval | None, str | None, float]:
        """Request the page of a token. Return its `Interval`, the next token, and elapsed time / thread CPU time."""
        wall, cpu = time.perf_counter(), time.thread_time()
        page = self._behind(token)
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        return self._advance(whole, page), page.token, wall / max(cpu, 1e-6)

    def _sequential(self, whole: _Range, token: str | None) -> Iterator[Interval]:
        while whole.open:
            page = self._behind(token)
            token = page.token
            interval = self._advance(whole, page)
            if interval is not None:
                yield interval

    def _drain(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._out.get_nowait()

    def _work(self, range_: _Range | None = None, token: str | None = None) -> None:
        try:
            while range_ is not None or (range_ := self._next_range()) is not None:
                self._list(range_, token)
                range_, token = None, None
        except BaseException as error:
            self._finish(error)

    def _list(self, range_: _Range, token: str | None) -> None:
        while range_.open and not self._stop:
            page = self._behind(token) if token else self.pages.page(range_.position, None)
            token = page.token
            interval = self._advance(range_, page)
            if interval is not None:
                self._put(interval)
        # A range counts as finished only when its last interval is in the queue. Otherwise the end marker of the last
        # worker could overtake an interval, and the caller would miss its keys.
        with self._lock:
            if not range_.open:
                self._unfinished -= 1
            done = not self._unfinished
            if done:
                self._lock.notify_all()
            else:
                self._lock.notify()
        if done:
            self._finish(None)

    def _put(self, interval: Interval) -> None:
        waiting = True
        while waiting and not self._stop:
            # The timeout lets the worker check `_stop` again. Otherwise the worker would wait for ever after a stop.
            with suppress(queue.Full):
                self._out.put(interval, timeout=0.1)
                waiting = False

    def _finish(self, last: BaseException | None) -> None:
        """Put None (the end) or an error into the queue, as its last item. Only the first error is put there."""
        with self._lock:
            if self._stop:
                return
            if last is not None:
                self._stop = True
            self._lock.notify_all()
        if last is not None:
            # After an error the intervals in the queue are useless. Drop them, so that the queue has room.
            self._drain()
        self._out.put(last)

    def _advance(self, range_: _Range, page: Page) -> Interval | None:
        """Add a page to its range; return the page's keys up to the range's current end; None if it has no keys."""
        rows = page.rows
        if self.unordered:
            range_.open = page.token is not None
            return Interval(range_.position, range_.until, rows)
        keys = rows.column("key")
        with self._lock:
            # Another worker may have split the range during the request, so read its end under the lock. Drop keys
            # above the end, because they belong to the next range, which lists them again.
            before, until = range_.position, range_.until
            self._check_order(keys, before)
            last = before
            if len(keys):
                range_.start, last = keys[0].as_py(), keys[-1].as_py()
            beyond = until is not None and last is not None and byte_order(last) > byte_order(until)
            if beyond:
                rows = rows.slice(0, bisect_right(keys.to_pylist(), byte_order(until or ""), key=byte_order))
            reached = until is not None and last == until
            range_.open = page.token is not None and not beyond and not reached
            range_.position = last if range_.open else until
            range_.pages += 1
            self._listed += 1
            self._lock.notify()
        if range_.open and last == before:
            return None  # No keys: the page has only delete markers or old versions.
        return Interval(before, range_.position, rows)

    def _check_order(self, keys: pa.Array, before: str | None) -> None:
        rising = len(keys) < 2 or pc.all(pc.less(keys[:-1], keys[1:])).as_py()
        if not rising or (len(keys) and before is not None and byte_order(keys[0].as_py()) <= byte_order(before)):
            raise SourceError(
                self.source, "its server lists keys out of their byte order, so pages could hide some. Use S3Inventory."
            )

    def _next_range(self) -> _Range | None:
        """Return the next range to list: a waiting one, or a part of one that is being listed. None if none is left."""
        while True:
            with self._lock:
                victim = None
                while not (self._waiting or victim):
                    if self._stop or not self._unfinished:
                        return None
                    victim = self._victim()
                    if victim is None:
                        self._lock.wait()
                if self._waiting:
                    return self._waiting.pop()
                assert victim is not None
                victim.splitting = True
                seen = victim.start, victim.position or "", victim.until
                idle = max(1, self._idle() // sum(known.splitting for known in self._ranges))
            # Hold no lock while `find` requests keys to split at (cuts), so that other workers continue. Meanwhile the
            # range may advance or end, so `_split` leaves out the cuts that the range has passed.
            cuts = self._finder.find(*seen, at_once=idle)
            with self._lock:
                self._split(victim, cuts)

    def _idle(self) -> int:
        return max(1, self.workers - sum(known.open for known in self._ranges))

    def _victim(self) -> _Range | None:
        if self._finder.probes > FREE_PROBES + self._listed // PAGES_PER_PROBE:
            return None  # Many requests have looked for keys to split at: more could cost more than listing the pages.
        large = [known for known in self._ranges if known.open and not known.splitting and known.pages > known.stuck]
        return max(large, key=lambda known: known.pages, default=None)

    def _split(self, victim: _Range, cuts: list[str]) -> None:
        victim.splitting = False
        # Use only cuts above the current position, because the keys below it are already listed.
        cuts = between(cuts, victim.position or "", victim.until)
        if not victim.open or not cuts:
            victim.stuck = victim.pages * 2  # No key to split at: try again once the range has twice as many pages.
            return
        parts = min(self._idle(), len(cuts))
        step = len(cuts) / parts
        chosen = [cuts[int(step * part + step / 2)] for part in range(parts)]
        ends = [*chosen[1:], victim.until]
        victim.until = chosen[0]  # Each range ends where the next begins, so no key is missed.
        created = [_Range(start, end) for start, end in zip(chosen, ends, strict=True)]
        self._ranges = [known for known in self._ranges if known.open] + created
        self._waiting += created
        self._unfinished += len(created)
        self._lock.notify(len(created))
