"""Keys at which a range of a listing can be cut: its folders, or where later names differ. Pure.

Cuts need not be keys of objects, and a bad one costs time only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Protocol

from scripts.helpers.listing.objects import byte_order

Ends = tuple[str | None, str | None]
"""The ends of a range of keys: above the first and not above the second; None is the start or the end of all."""
LAST = "\U0010ffff"
"""Sorts after every character, in UTF-8."""

MOST_CUTS = 32
"""Enough for all workers of a listing. Each further one is a request."""
_WAVE = 9
"""Characters tried at once: as many as there are digits above 0."""


class Probes(Protocol):
    """What can look into a prefix; all keys are relative to it."""

    def folders(self, folder: str, after: str) -> list[str] | None:
        """Return the folders in a folder, each with its slash, that hold keys above `after`: one request.

        None, if one answer does not hold them all.
        """

    def first_key(self, after: str) -> str | None:
        """Return the first key above `after`."""


class CutFinder:
    """Finds cuts, and counts the requests.

    Parameters
    ----------
    wanted
        Asked before each request: whether cuts are of use still.
    """

    def __init__(self, pages: Probes, wanted: Callable[[], bool] = lambda: True) -> None:
        self.probes = 0
        self._pages, self._wanted = pages, wanted
        self._folders: dict[str, list[str] | None] = {}

    def find(self, start: str, position: str, until: str | None, at_once: int = 1) -> list[str]:
        """Find cuts above `position` and below `until`, in order.

        Parameters
        ----------
        start
            A key not after `position`, such as the first of its page: what both share, later keys may share too.
        at_once
            Requests that may be sent at the same time.
        """
        # Folders first: one request shows them all, and names take a request for each character or more.
        cuts = self._folder_cuts(start, position, until)
        if cuts:
            return cuts
        return between(self._name_cuts(start, position, until, at_once), position, until)

    def _folder_cuts(self, start: str, position: str, until: str | None) -> list[str]:
        parts = position.split("/")[:-1]
        for depth in range(len(parts) + 1):
            folder = "".join(f"{part}/" for part in parts[:depth])
            if depth == len(parts) and start != position and start.rpartition("/")[0] == "/".join(parts):
                return []  # A page of files in one folder: more of them are likely.
            # Asked once for each folder. What an earlier position was shown holds all folders behind a later one.
            if folder not in self._folders and self._wanted():
                self.probes += 1
                self._folders[folder] = self._pages.folders(folder, position)
            names = self._folders.get(folder)
            if names is None:
                return []  # More folders than one answer holds: cutting by names takes fewer requests.
            if inside := between(names, position, until):
                return inside
        return []

    def _name_cuts(self, start: str, position: str, until: str | None, at_once: int) -> list[str]:
        """Cut at the first character in which a later key differs from the present one.

        A search by halves, or by more parts where more requests may be sent at once: behind the keys that share
        `low` characters with the position the range has none, and the difference is sought from there to `high`.
        """
        likely = _shared(start, position) + 1
        low, high = _shared(position, until or ""), len(position)
        following: str | None = None  # The first key above all that share `high - 1` characters with this one.
        while low + 1 < high and self._wanted():
            # What a whole page shares, later keys mostly share too, so look there first.
            end = likely + 1 if low < likely < high else high
            lengths = _spread(range(low + 1, end), at_once)
            keys = self._first_keys([position[:length] for length in lengths], until)
            for length, key in zip(lengths, keys, strict=True):
                differs = length if key is None else min(length, _shared(key, position) + 1)
                if key is None:
                    low = max(low, length)
                elif differs < high:
                    high, following = differs, key
        if following is None and self._wanted():
            (following,) = self._first_keys([position[:high]], until)
        return self._next_characters(following[:high], until, at_once) if following is not None else []

    def _next_characters(self, first: str, until: str | None, at_once: int) -> list[str]:
        """Find the cuts that differ from this one in their last character, and sort after it."""
        shared, cuts, more = first[:-1], [first], True
        while more and len(cuts) < MOST_CUTS and self._wanted():
            tried = [shared + character for character in _upwards(cuts[-1][-1], min(at_once, _WAVE))]
            keys = self._first_keys(tried, until)
            new = {key[: len(first)] for key in keys if key is not None and key.startswith(shared)} - set(cuts)
            cuts += sorted(new)
            # Go on above the last character, until a wave finds none: several that were tried may lead to one key.
            more = bool(new) and keys[-1] is not None
        return cuts

    def _first_keys(self, parts: Sequence[str], until: str | None) -> list[str | None]:
        """Return the first key above all that begin with each of these, if it is in the range."""
        self.probes += len(parts)
        after = [part + LAST for part in parts]  # S3 starts after a key: LAST sorts behind all that begin with a part.
        if len(after) == 1:
            keys = [self._pages.first_key(after[0])]
        else:
            with ThreadPoolExecutor(len(after)) as pool:
                keys = list(pool.map(self._pages.first_key, after))
        if until is None:
            return keys
        high = byte_order(until)
        return [key if key is not None and byte_order(key) <= high else None for key in keys]


def _shared(one: str, other: str) -> int:
    """Return with how many characters both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def between(cuts: Sequence[str], position: str, until: str | None) -> list[str]:
    """Return the cuts above `position` and below `until`: others would make an empty range, or one that lists again."""
    above = [cut for cut in cuts if byte_order(cut) > byte_order(position)]
    if until is None:
        return above
    return [cut for cut in above if byte_order(cut) < byte_order(until)]


def parted(cuts: Sequence[str], after: str | None = None, until: str | None = None) -> list[Ends]:
    """Return the ranges that cuts make of the keys above `after` and not above `until`, in order."""
    inside = between(cuts, after or "", until)
    return list(zip([after, *inside], [*inside, until], strict=True))


def _spread(lengths: range, count: int) -> list[int]:
    """Choose so many of them, evenly."""
    count = min(count, len(lengths))
    return [lengths[(2 * index + 1) * len(lengths) // (2 * count)] for index in range(count)]


def _upwards(first: str, count: int) -> list[str]:
    """Return a character and some that follow it, of digits or letters."""
    # Behind z no character is likely, so nothing but the first is tried.
    last = next((end for end in "9Zz" if first <= end), first)
    return [chr(code) for code in range(ord(first), min(ord(first) + count, ord(last) + 1))]
