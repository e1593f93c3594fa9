"""Keys at which a prefix is parted beforehand, into ranges for tasks that cannot help each other. Pure.

What a ledger remembers tells where keys are many. Without one, pages and probes show it roughly. Cuts need not be
keys of objects, and ranges between cuts tile all keys: a bad cut costs time only.
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
"""Requests sent at the same time while cuts are looked for."""
LEAST_REQUESTS = 512
REQUESTS_PER_RANGE = 4
"""Requests for cuts that are allowed, in all and for each range that is wanted: some seconds, where a listing that
needs several machines takes minutes.
"""
REQUESTS_PER_CUT = 16
"""About what it takes to cut a range by names: the place where they differ is searched, then the characters there."""
RANGES_MORE = 2
"""How many times the ranges that are wanted there may be: where sizes are not known, small tasks even them out."""

LARGE = 10
"""Pages that a range counts for of which more than a page is known: how many more, nobody knows yet."""


class _Part(NamedTuple):
    """A range of keys, and what the first page of it showed."""

    after: str | None
    until: str | None
    shown: int | None = None
    """Keys on the page; None where none was asked for."""
    first: str = ""
    last: str = ""
    more: bool = False
    """The page does not hold all of them."""


def places(counts: Sequence[int], step: int) -> list[int]:
    """Return where to begin in each of several files, one after another, so as to take every so many-th row of all."""
    return [(step // 2 - before) % step for before in accumulate(counts[:-1], initial=0)]


def quantiles(marks: Iterable[str], wanted: int) -> list[str]:
    """Return cuts that part keys into so many ranges of equal size; each mark stands for as many of the keys."""
    ordered = sorted(marks, key=byte_order)
    cuts: list[str] = []
    for number in range(1, wanted):
        cut = ordered[number * len(ordered) // wanted] if ordered else ""
        # A key that was overwritten often is a mark more than once, and two equal cuts would make an empty range.
        if cut and (not cuts or cut != cuts[-1]):
            cuts.append(cut)
    return cuts


def find_cuts(pages: Pages, wanted: int) -> list[str]:
    """Find keys that part a prefix into so many ranges, or up to twice as many, by looking at it.

    A range that a page does not hold is cut at its folders, or where names differ, and its parts are looked at in turn,
    as long as the requests last. So it is where keys are many that cuts are many.
    """
    finder = CutFinder(pages)
    room = LEAST_REQUESTS + REQUESTS_PER_RANGE * wanted
    done: list[_Part] = []
    waiting = [_Part(None, None)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # All parts of a level or none: where some are cut and others not, ranges would be of unlike size.
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
    """Ask for the first page of a range."""
    page = pages.page(part.after, None)
    keys = page.rows.column("key")
    if not len(keys):
        return part._replace(shown=0)  # Nothing is there to cut, or a page of delete markers alone.
    first, last = keys[0].as_py(), keys[-1].as_py()
    is_whole = page.token is None or (part.until is not None and byte_order(last) >= byte_order(part.until))
    return part._replace(shown=len(keys), first=first, last=last, more=not is_whole)


def _cuts(finder: CutFinder, part: _Part) -> list[str]:
    return finder.find(part.first, part.last, part.until)


def _joined(parts: Sequence[_Part], most: int) -> list[str]:
    """Join neighbours to about so many ranges, of equal size as far as it is known; return the cuts between them."""
    page = max((part.shown or 0 for part in parts), default=0)
    sizes = [LARGE * page if part.shown is None or part.more else part.shown for part in parts]
    # Less than a page is not worth a task: its request shows that many.
    each = max(page, sum(sizes) / most)
    cuts: list[str] = []
    size = 0
    for part, count in zip(parts[:-1], sizes, strict=False):
        size += count
        if size >= each and part.until is not None:
            cuts.append(part.until)
            size = 0
    return cuts
