"""Find keys at which to split a prefix in advance, into ranges for tasks that cannot share work later. Pure.

A ledger shows where most keys are. Without one, pages and probes show it roughly. Cuts need not be keys of objects,
and the ranges between cuts cover all keys, so a bad cut only costs time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from scripts.helpers.listing.cuts import CutFinder, parted
from scripts.helpers.listing.objects import byte_order
from scripts.helpers.listing.ranges import Pages

AT_ONCE = 16
"""Requests to send at once in the search for cuts."""
LEAST_REQUESTS = 512
REQUESTS_PER_RANGE = 4
"""Most requests in the search for cuts: a fixed number, and more for each wanted range. They take some seconds, while a
listing that needs several machines takes minutes.
"""
REQUESTS_PER_CUT = 16
"""Approximate requests to cut a range by names: find the place where names differ, then the characters there."""
RANGES_MORE = 2
"""Up to this many times the wanted ranges are made: sizes are unknown, and small tasks balance the load."""

LARGE = 10
"""Assumed size, in pages, of a range with more than one page: its real size is unknown."""


class _Part(NamedTuple):
    """A range of keys, and what its first page showed."""

    after: str | None
    until: str | None
    shown: int | None = None
    """Number of keys on the page; None if no page was requested."""
    first: str = ""
    last: str = ""
    more: bool = False
    """Whether the range has more keys than the page."""


def places(counts: Sequence[int], step: int) -> list[int]:
    """Return where to start in each file, so that every `step`-th row is taken as if the files were one long file."""
    return [(step // 2 - before) % step for before in accumulate(counts[:-1], initial=0)]


def quantiles(marks: Iterable[str], wanted: int) -> list[str]:
    """Return cuts that split keys into `wanted` equal ranges. `marks` are sample keys: every n-th key."""
    ordered = sorted(marks, key=byte_order)
    cuts: list[str] = []
    for number in range(1, wanted):
        cut = ordered[number * len(ordered) // wanted] if ordered else ""
        # A key that was often overwritten is in `marks` several times. Two equal cuts would make an empty range.
        if cut and (not cuts or cut != cuts[-1]):
            cuts.append(cut)
    return cuts


def find_cuts(pages: Pages, wanted: int) -> list[str]:
    """Find keys that split a prefix into `wanted` ranges, or up to twice as many, by requesting pages of it.

    A range that does not fit on a page is cut at its folders, or where names differ. Then its parts are examined in the
    same way until the allowed requests are used up. So there are most cuts where there are most keys.
    """
    finder = CutFinder(pages)
    room = LEAST_REQUESTS + REQUESTS_PER_RANGE * wanted
    done: list[_Part] = []
    waiting = [_Part(None, None)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Cut all large ranges of this round or none of them, otherwise the ranges would differ in size.
        while waiting and len(waiting) <= room - finder.probes:
            looked = list(pool.map(partial(_looked, pages), waiting))
            room -= len(looked)
            large = [part for part in looked if part.more]
            done += [part for part in looked if not part.more]
            if REQUESTS_PER_CUT * len(large) > room - finder.probes:
                waiting = large
                break
            waiting = []
            for part, cuts in zip(large, pool.map(partial(_cuts, finder), large), strict=True):
                if not cuts:
                    done.append(part)
                    continue
                waiting += [_Part(*ends) for ends in parted(cuts, part.after, part.until)]
    parts = sorted(done + waiting, key=lambda part: byte_order(part.after or ""))
    return _joined(parts, RANGES_MORE * wanted)


def _looked(pages: Pages, part: _Part) -> _Part:
    """Request the first page of a range, and return the range with what the page shows."""
    page = pages.page(part.after, None)
    keys = page.rows.column("key")
    if not len(keys):
        return part._replace(shown=0)  # The range is empty, or the page has only delete markers.
    first, last = keys[0].as_py(), keys[-1].as_py()
    is_whole = page.token is None or (part.until is not None and byte_order(last) >= byte_order(part.until))
    return part._replace(shown=len(keys), first=first, last=last, more=not is_whole)


def _cuts(finder: CutFinder, part: _Part) -> list[str]:
    return finder.find(part.first, part.last, part.until)


def _joined(parts: Sequence[_Part], most: int) -> list[str]:
    """Join neighbouring parts into about `most` ranges of similar estimated size. Return the cuts between these."""
    page = max((part.shown or 0 for part in parts), default=0)
    sizes = [LARGE * page if part.shown is None or part.more else part.shown for part in parts]
    # Make no range smaller than a page: one request lists a page, which is not worth a task.
    each = max(page, sum(sizes) / most)
    cuts: list[str] = []
    size = 0
    for part, count in zip(parts[:-1], sizes, strict=False):
        size += count
        if size >= each and part.until is not None:
            cuts.append(part.until)
            size = 0
    return cuts
