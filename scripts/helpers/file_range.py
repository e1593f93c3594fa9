"""The files that runs of the past took: those not known before, and taken when the last of them ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.file_diff import Known, compare
from scripts.helpers.file_ledger import FileLedger
from scripts.helpers.file_memory import ExactMemory, WindowMemory
from scripts.helpers.identities import LISTED, TAKEN, Interval


class RangeMemory(ExactMemory):
    """What was known before a range of runs, which lets in only what was taken when the range ended.

    An object is what it is now: one that was overwritten since was not taken then.

    Parameters
    ----------
    before
        What was known when the range started.
    until, ledger
        The state when it ended, and what that remembers.
    by_time
        As for `file_diff.compare`.
    """

    keeps_gone = False

    def __init__(
        self, before: ExactMemory | WindowMemory, until: Mapping[str, Any], ledger: FileLedger, by_time: bool
    ) -> None:
        super().__init__(ledger)
        self._before, self._by_time = before, by_time
        self._floor: datetime | None = until.get("floor")
        self._then: Known | None = None

    def within(self, after: str | None, until: str | None) -> None:
        """Look only at keys above one and not above another."""
        self._then = self._ledger.known(after, until)

    def candidates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the listed objects that were taken when the range ended, and may not have been known before."""
        rows = self._before.candidates(rows)
        if not rows.num_rows:
            return rows
        if self._then is None:
            self._then = self._ledger.known()
        keys = rows.column("key")
        there = self._then.between(keys[0].as_py()[:-1], keys[-1].as_py())
        taken = there.filter(pc.equal(there.column("status"), TAKEN))
        found = compare(Interval(None, None, rows), rows, taken, self._by_time)
        others = pa.concat_tables([found.new, found.modified]).column("key")
        chosen = pc.invert(pc.is_in(keys, value_set=others.combine_chunks()))
        if self._floor is not None:
            chosen = pc.or_(
                chosen, pc.less_equal(rows.column("modified"), pa.scalar(self._floor, LISTED.field("modified").type))
            )
        return rows.filter(chosen)

    def known(self) -> Known:
        """Return what was known before the range."""
        return self._before.known()
