"""Find keys (cuts) that split a range of a listing, so that several workers can list its parts. Pure.

A cut need not be the key of an object. A badly placed cut costs time, but no object is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Protocol

from scripts.helpers.listing.objects import byte_order

Ends = tuple[str | None, str | None]
"""A range of keys: above the first, up to and including the second; None is the start or the end of all keys."""
LAST = "\U0010ffff"
"""The last character in UTF-8: sorts after every other one."""

MOST_CUTS = 32
"""Most cuts by names: enough for all workers of a listing. Each further one costs a request."""
_WAVE = 9
"""Characters to try at once: as many as there are digits above 0."""


class Probes(Protocol):
    """The requests that find cuts, keys at which to divide the listing of a prefix. Keys are relative to the prefix."""

    def folders(self, folder: str, after: str) -> list[str] | None:
        """Return the direct subfolders of a folder that have keys above `after`, such as ``["a/b/", "a/c/"]``.

        Send one request only. Return None if its answer cannot hold all subfolders.
        """

    def first_key(self, after: str) -> str | None:
        """Return the first key above `after`."""


class CutFinder:
    """Finds cuts, keys at which a listing is divided between workers, and counts its requests in `probes`.

    Parameters
    ----------
    wanted
        Called before each request; returns whether cuts are still useful.
    """

    def __init__(self, pages: Probes, wanted: Callable[[], bool] = lambda: True) -> None:
        self.probes = 0
        self._pages, self._wanted = pages, wanted
        self._folders: dict[str, list[str] | None] = {}

    def find(self, start: str, position: str, until: str | None, at_once: int = 1) -> list[str]:
        """Find cuts, keys at which to divide the listing, above `position` and below `until`, in order.

        Parameters
        ----------
        start
            A key at or before `position`, such as the first one of its page. Later keys often share the prefix of both.
        at_once
            Requests to send at the same time.
        """
        # Prefer folders as cuts: one request finds many of them, but each cut at another key takes several requests.
        cuts = self._folder_cuts(start, position, until)
        if cuts:
            return cuts
        return between(self._name_cuts(start, position, until, at_once), position, until)

    def _folder_cuts(self, start: str, position: str, until: str | None) -> list[str]:
        parts = position.split("/")[:-1]
        for depth in range(len(parts) + 1):
            folder = "".join(f"{part}/" for part in parts[:depth])
            if depth == len(parts) and start != position and start.rpartition("/")[0] == "/".join(parts):
                return []  # `start` and `position` are directly in this folder: probably files follow, no subfolders.
            # Request each folder once: subfolders after this `position` were in the answer for any earlier position.
            if folder not in self._folders and self._wanted():
                self.probes += 1
                self._folders[folder] = self._pages.folders(folder, position)
            names = self._folders.get(folder)
            if names is None:
                return []  # Too many subfolders for one request: `find` splits the keys by letters, in fewer requests.
            if inside := between(names, position, until):
                return inside
        return []

    def _name_cuts(self, start: str, position: str, until: str | None, at_once: int) -> list[str]:
        """Return keys to divide the listing at, by the first character in which a later key differs from `position`.

        A binary search (between the local variables `low` and `high`) finds how many first characters of `position` all
        later keys share. Each step tries `at_once` lengths in parallel.
        """
        likely = _shared(start, position) + 1
        low, high = _shared(position, until or ""), len(position)
        following: str | None = None  # First key after all that begin with `position[:high]`.
        while low + 1 < high and self._wanted():
            # First try only lengths up to `likely`: most later keys share no more of `position` than `start` does.
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
        """Return key prefixes from `first` on that differ in the last letter: ``"a/1" -> ["a/1", "a/2", "a/5"]``."""
        shared, cuts, more = first[:-1], [first], True
        while more and len(cuts) < MOST_CUTS and self._wanted():
            tried = [shared + character for character in _upwards(cuts[-1][-1], min(at_once, _WAVE))]
            keys = self._first_keys(tried, until)
            new = {key[: len(first)] for key in keys if key is not None and key.startswith(shared)} - set(cuts)
            cuts += sorted(new)
            # Continue from the last cut. No letter is missed: if no key has a tried letter, S3 returned the next key.
            more = bool(new) and keys[-1] is not None
        return cuts

    def _first_keys(self, parts: Sequence[str], until: str | None) -> list[str | None]:
        """Return for each text in `parts` the first key after all keys that begin with it; None if there is none."""
        self.probes += len(parts)
        after = [part + LAST for part in parts]  # This text sorts after all keys that begin with `part`.
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
    """Return the length of the common prefix of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def between(cuts: Sequence[str], position: str, until: str | None) -> list[str]:
    """Return cuts (keys to split a listing at) between `position` and `until`: others make empty or repeated ranges."""
    above = [cut for cut in cuts if byte_order(cut) > byte_order(position)]
    if until is None:
        return above
    return [cut for cut in above if byte_order(cut) < byte_order(until)]


def parted(cuts: Sequence[str], after: str | None = None, until: str | None = None) -> list[Ends]:
    """Split the keys above `after`, up to and including `until`, at cuts: ``["b"] -> [(None, "b"), ("b", None)]``."""
    inside = between(cuts, after or "", until)
    return list(zip([after, *inside], [*inside, until], strict=True))


def _spread(lengths: range, count: int) -> list[int]:
    """Return up to `count` evenly spaced values of a range."""
    count = min(count, len(lengths))
    return [lengths[(2 * index + 1) * len(lengths) // (2 * count)] for index in range(count)]


def _upwards(first: str, count: int) -> list[str]:
    """Return up to `count` characters from `first` on, of the same kind: ``("7", 9) -> ["7", "8", "9"]``."""
    # Above z no other character is likely in a key, so return `first` alone.
    last = next((end for end in "9Zz" if first <= end), first)
    return [chr(code) for code in range(ord(first), min(ord(first) + count, ord(last) + 1))]
