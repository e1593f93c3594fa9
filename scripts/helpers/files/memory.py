"""What a bookmark remembers: every object, or what runs of the past took."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.files.diff import Known, compare
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.states import FilesState
from scripts.helpers.listing.objects import TAKEN, Interval, is_status


class Memory:
    """The identities of all objects, in segments of which each batch adds one."""

    keeps_gone = True

    def __init__(self, ledger: FileLedger) -> None:
        self.ledger = ledger

    def candidates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the listed objects that can be new: all."""
        return rows

    def known(self, keys: Collection[str] | None = None) -> Known:
        """Return what is remembered, of all objects or of some."""
        return self.ledger.known() if keys is None else self.ledger.known_of(keys)


class RangeMemory(Memory):
    """What was known before a range of runs, which lets in only what was taken when the range ended.

    An object is what it is now: one that was overwritten since was not taken then.

    Parameters
    ----------
    before
        What was known when the range started.
    until, ledger
        The state when it ended, and what that remembers.
    """

    keeps_gone = False

    def __init__(self, before: Memory, until: FilesState, ledger: FileLedger, by_time: bool) -> None:
        super().__init__(before.ledger)
        self._until, self._by_time = ledger, by_time
        self._then: Known | None = None

    def within(self, after: str | None, until: str | None) -> None:
        """Look only at keys above one and not above another."""
        self._then = self._until.known(after, until)

    def candidates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the listed objects that were taken when the range ended."""
        if not rows.num_rows:
            return rows
        if self._then is None:
            self._then = self._until.known()
        keys = rows.column("key")
        # A key without its last character sorts before it, and no key of the rows lies between.
        there = self._then.between(keys[0].as_py()[:-1], keys[-1].as_py())
        taken = there.filter(is_status(there, TAKEN))
        found = compare(Interval(None, None, rows), rows, taken, self._by_time)
        # What had not been taken at the end of the range, or is another object by now.
        others = pa.concat_tables([found.new, found.modified]).column("key")
        return rows.filter(pc.invert(pc.is_in(keys, value_set=others.combine_chunks())))
