"""Look-ups for lists and pages of many jobs, bounded so that none of them takes long or much memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scripts.helpers.errors import TooLargeError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import CHUNK_BYTES
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.packed_json import unpacked_size
from scripts.helpers.protocol.values import Spilled

MOST_SHOWN = 4 * 1024 * 1024
"""Bytes that the states of one job may unpack to on a page of many jobs. One head may refer to 256 MB hundreds of
times, and the page must not wait for it."""


class BoundedLookups(Lookups):
    """Look-ups of one job for pages and lists of many jobs. They raise TooLargeError past a limit on unpacked bytes.

    Parameters
    ----------
    most
        Bytes that all states together may unpack to, including the packed lists in them. A state that is stored in
        items of its own (chunks) counts once, even if several contexts refer to it.
    """

    def __init__(self, lookups: Lookups, most: int = MOST_SHOWN) -> None:
        super().__init__(lookups.store, lookups.clock, lookups.job_id_rule)
        self.check = lookups.check
        self._left, self._known = most, dict[tuple[str, Any], Any]()

    def opened(self, head: Head) -> Head:
        """Return a head with states in place of references, the smallest first, until the limit on bytes is reached."""
        found = dict(head.watermarks)
        lengths = {}
        for name, state in found.items():
            lengths[name] = state.length if isinstance(state, Spilled) else self._packed(state)
        for name in sorted(lengths, key=lambda name: lengths[name]):
            try:
                found[name] = self.state_at(head, name)
            except TooLargeError:
                # Replace a large state, even one in the head itself, by an empty reference, which readers never follow.
                found[name] = Spilled("", 0, lengths[name], "")
        return replace(head, watermarks=found)

    def checked(self, job_id: str, place: str, context: str, stored: Any, range_key: str = items.HEAD_KEY) -> Any:
        """Check a state or plan, and return it. Its unpacked size counts towards `most` bytes once for each context."""
        if (job_id, context) not in self._known:
            self._count(job_id, self._packed(stored))
            self._known[job_id, context] = None
        return super().checked(job_id, place, context, stored, range_key)

    def _packed(self, stored: Any) -> int:
        """Return the number of bytes that the packed fields of a state unpack to."""
        fields = stored.values() if isinstance(stored, Mapping) else ()
        return sum(unpacked_size(value, self._left) for value in fields if isinstance(value, bytes))

    def _count(self, job_id: str, size: int) -> None:
        if size > self._left:
            raise TooLargeError(f"A state of {job_id!r}", size, self._left, "Look at this job alone.")
        self._left -= size

    def _read(self, job_id: str, reference: Spilled) -> Any:
        key = job_id, reference
        if key not in self._known:
            # Do not trust a length that is too small for the number of chunks: all chunks but the last are full.
            self._count(job_id, max(reference.length, (reference.chunks - 1) * CHUNK_BYTES))
            self._known[key] = super()._read(job_id, reference)
        return self._known[key]
