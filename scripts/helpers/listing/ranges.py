"""A listing by many requests at once: ranges of keys that idle workers part further. Pure.

A listing shows one page after another, and each page waits for the one before. So the key space is
parted into ranges, each listed by a worker of its own. A worker that is done takes a part of the range
that has shown most pages so far. No balance need be known beforehand, and no split can lose a key: a range
ends where the next one begins, whatever lies there.
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
"""Pages that may wait for the consumer; bounds the memory of a listing."""

MEASURED_PAGES = 2
ALONE = 4.0
"""Pages that are timed to choose the number of workers, and how many times the work on a page its time may be for
one worker to be as good: threads that parse pages cost each other time. One page that is late decides nothing.
"""

FREE_PROBES = 32
PAGES_PER_PROBE = 4
"""Requests spent on finding splits: a few at first, then one for so many pages that were listed."""


class Page(NamedTuple):
    """Objects in order of keys, and the token of the next page; None after the last."""

    rows: pa.RecordBatch
    token: str | None


class Pages(Probes, Protocol):
    """What can list a prefix; all keys are relative to it."""

    def page(self, after: str | None, token: str | None) -> Page:
        """Return the first page of keys above `after`, or the page that a token stands for."""


@dataclass(eq=False)
class _Range:
    position: str | None
    """All keys up to here have been shown."""
    until: str | None
    pages: int = 0
    open: bool = True
    splitting: bool = False
    start: str = ""
    """The first key of the latest page."""
    stuck: int = 0
    """Number of pages up to which no other split is tried."""


@dataclass
class RangeListing:
    """Lists ranges by several workers. Iterate once: intervals come as pages arrive.

    The first page is asked for by `start`, in the caller's thread; a prefix that fits into it needs
    no other request and no thread.
    """

    pages: Pages
    source: str
    workers: int
    unordered: bool = False
    """The server promises no order: one worker, and the caller sorts."""
    measured: bool = False
    """Start no more workers than the next pages show to be of use: more would wait for this process, not for S3."""
    first: Page | None = None
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _ranges: list[_Range] = field(default_factory=list)
    _waiting: list[_Range] = field(default_factory=list)
    _out: queue.Queue[Interval | BaseException | None] = field(default_factory=lambda: queue.Queue(WAITING_PAGES))
    _listed = 0
    _unfinished = 1
    """Ranges of which not all intervals are on their way to the caller."""
    _stop = False

    def __post_init__(self) -> None:
        self._finder = CutFinder(self.pages, lambda: not self._stop)

    def start(self, after: str | None = None, until: str | None = None) -> None:
        """Ask for the first page of keys above `after` and not above `until`."""
        self._ranges = [_Range(after, until)]
        self.first = self.pages.page(after, None)

    def __iter__(self) -> Iterator[Interval]:
        """Yield every key exactly once, in intervals that touch."""
        assert self.first is not None
        whole, token = self._ranges[0], self.first.token
        interval = self._advance(whole, self.first)
        if interval is not None:
            yield interval
        if not whole.open:
            return
        if self.measured and self.workers > 1 and not self.unordered:
            ratio = math.inf
            while whole.open and ratio > ALONE and whole.pages <= MEASURED_PAGES:
                interval, token, times = self._measured_page(whole, token)
                ratio = min(ratio, times)
                if interval is not None:
                    yield interval
            if ratio > ALONE:
                # Twice as many as keep this process busy: some wait for S3 or look for cuts meanwhile.
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
            # Also when the caller stops early. A worker may wait for room in the queue or for a range, and sees
            # `_stop` only when it gets on: so make room until each of them has ended, and leave no thread behind.
            with self._lock:
                self._stop = True
                self._lock.notify_all()
            for thread in threads:
                while thread.is_alive():
                    self._drain()
                    thread.join(0.01)

    def _behind(self, token: str | None) -> Page:
        """Return the page that a token stands for; SourceError if that is where it goes on, too."""
        page = self.pages.page(None, token)
        # The order of keys shows it, too. Pages without keys, or a listing without an order, would go on for ever.
        if page.token is not None and page.token == token:
            raise SourceError(
                self.source, "its server returns the token of the page before again, so pages could repeat for ever. "
                "Use S3Inventory.",
            )  # fmt: skip
        return page

    def _measured_page(self, whole: _Range, token: str | None) -> tuple[Interval | None, str | None, float]:
        """Ask for the next page, and see what the time of a page is beside that spent on it in this process."""
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
        # A range counts as finished when its last interval is in the queue, and no earlier: the end that the last
        # worker sends could otherwise overtake an interval, and the caller would miss its keys.
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
            # The time-out lets a worker see `_stop`: without it, it would wait for ever for a caller who is gone.
            with suppress(queue.Full):
                self._out.put(interval, timeout=0.1)
                waiting = False

    def _finish(self, last: BaseException | None) -> None:
        """Send the end, or the error, behind all intervals. The first error wins; its listing is no listing."""
        with self._lock:
            if self._stop:
                return
            if last is not None:
                self._stop = True
            self._lock.notify_all()
        if last is not None:
            # Pages of a listing that failed are of no use, and in a full queue the error would wait behind them.
            self._drain()
        self._out.put(last)

    def _advance(self, range_: _Range, page: Page) -> Interval | None:
        """Take a page into its range, cut where the range ends by now."""
        rows = page.rows
        if self.unordered:
            range_.open = page.token is not None
            return Interval(range_.position, range_.until, rows)
        keys = rows.column("key")
        with self._lock:
            # The end is read under the lock: another worker may have split the range while the page was on its way.
            # What lies above the end belongs to the next range, and would come twice if it were left in.
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
            return None  # A page without keys that has a next one: of delete markers or old versions only.
        return Interval(before, range_.position, rows)

    def _check_order(self, keys: pa.Array, before: str | None) -> None:
        rising = len(keys) < 2 or pc.all(pc.less(keys[:-1], keys[1:])).as_py()
        if not rising or (len(keys) and before is not None and byte_order(keys[0].as_py()) <= byte_order(before)):
            raise SourceError(
                self.source, "its server lists keys out of their byte order, so pages could hide some. Use S3Inventory."
            )

    def _next_range(self) -> _Range | None:
        """Wait for a range: one that is waiting, or a part of one that is being listed."""
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
            # Without the lock: these are requests, and meanwhile all others list on. So the range may have moved, or
            # ended, when the cuts are known; `_split` looks again.
            cuts = self._finder.find(*seen, at_once=idle)
            with self._lock:
                self._split(victim, cuts)

    def _idle(self) -> int:
        return max(1, self.workers - sum(known.open for known in self._ranges))

    def _victim(self) -> _Range | None:
        if self._finder.probes > FREE_PROBES + self._listed // PAGES_PER_PROBE:
            return None  # Keys that cannot be cut well would otherwise cost more requests than their pages.
        large = [known for known in self._ranges if known.open and not known.splitting and known.pages > known.stuck]
        return max(large, key=lambda known: known.pages, default=None)

    def _split(self, victim: _Range, cuts: list[str]) -> None:
        victim.splitting = False
        # Only cuts ahead of what was listed meanwhile: keys below the position would be listed again.
        cuts = between(cuts, victim.position or "", victim.until)
        if not victim.open or not cuts:
            victim.stuck = victim.pages * 2  # Nothing to cut here. Try again when as much again has been listed.
            return
        parts = min(self._idle(), len(cuts))
        step = len(cuts) / parts
        chosen = [cuts[int(step * part + step / 2)] for part in range(parts)]
        ends = [*chosen[1:], victim.until]
        victim.until = chosen[0]  # Each range ends where the next begins, so no key can fall between two.
        created = [_Range(start, end) for start, end in zip(chosen, ends, strict=True)]
        self._ranges = [known for known in self._ranges if known.open] + created
        self._waiting += created
        self._unfinished += len(created)
        self._lock.notify(len(created))
