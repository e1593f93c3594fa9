"""A prefix in memory that answers page by page, as a bucket does, and lets threads race."""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable

import pyarrow as pa

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.objects import LISTED, byte_order
from scripts.helpers.listing.ranges import Page


class ListedPages:
    """Implements `ranges.Pages`. Each answer waits for one of `pauses`, chosen at random, so that threads interleave.

    `refused_page` and `refused_probe` are the numbers of the requests that are refused.
    """

    def __init__(
        self,
        keys: Iterable[str],
        size: int,
        seed: int = 0,
        pauses: tuple[float, ...] = (0, 0, 0.0002),
        refused_page: int | None = None,
        refused_probe: int | None = None,
        in_order: bool = True,
    ) -> None:
        self.keys = sorted(keys, key=byte_order) if in_order else list(keys)
        self.size, self._refused = size, {"page": refused_page, "probe": refused_probe}
        self.most_at_once = 0
        self._asked = {"page": 0, "probe": 0}
        self._order = [byte_order(key) for key in self.keys]
        self._random, self._pauses = random.Random(seed), pauses
        self._lock, self._now = threading.Lock(), 0

    @property
    def pages(self) -> int:
        """Return the number of requests for pages."""
        return self._asked["page"]

    @property
    def probes(self) -> int:
        """Return the number of other requests."""
        return self._asked["probe"]

    def page(self, after: str | None, token: str | None) -> Page:
        """Return the first page of keys above `after`, or the page that a token stands for."""
        self._ask("page")
        first = int(token) if token else self._above(after or "")
        shown = self.keys[first : first + self.size]
        columns = [pa.array(shown, pa.string()), *(pa.nulls(len(shown), each.type) for each in list(LISTED)[1:])]
        rows = pa.RecordBatch.from_arrays(columns, schema=LISTED)
        return Page(rows, str(first + self.size) if first + self.size < len(self.keys) else None)

    def folders(self, folder: str, after: str) -> list[str] | None:
        """Return the subfolders of a folder that hold keys above `after`; None if they do not fit into one page."""
        self._ask("probe")
        shown: dict[str, None] = {}
        for key in self.keys[self._above(after) :]:
            if key.startswith(folder):
                name, slash, _ = key[len(folder) :].partition("/")
                shown[folder + name + slash] = None
        return [name for name in shown if name.endswith("/")] if len(shown) <= self.size else None

    def first_key(self, after: str) -> str | None:
        """Return the first key above `after`."""
        self._ask("probe")
        first = self._above(after)
        return self.keys[first] if first < len(self.keys) else None

    def _above(self, after: str) -> int:
        return bisect_right(self._order, byte_order(after)) if after else 0

    def _ask(self, kind: str) -> None:
        with self._lock:
            self._asked[kind] += 1
            refused = self._asked[kind] == self._refused[kind]
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            pause = self._random.choice(self._pauses)
        time.sleep(pause)
        with self._lock:
            self._now -= 1
        if refused:
            raise SourceError("s3://bucket/", f"{kind} refused.")
