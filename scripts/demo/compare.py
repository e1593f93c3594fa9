"""Compare what the jobs wrote with the data set: the rows of each month, in any order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Month:
    """One month of one table, at the source and at the target."""

    table: str
    month: int
    source_rows: int
    target_rows: int
    same_content: bool

    @property
    def is_equal(self) -> bool:
        """Tell whether nothing was lost, doubled or changed."""
        return self.source_rows == self.target_rows and self.same_content


def compare(table: str, source: pa.Table, target: pa.Table) -> list[Month]:
    """Return every month that either side has."""
    target = target.select(source.column_names).cast(source.schema)
    months = pc.unique(pa.chunked_array([*source["month"].chunks, *target["month"].chunks], source["month"].type))
    found = []
    for month in sorted(months.to_pylist()):
        left, right = (_of(side, month) for side in (source, target))
        found.append(Month(table, month, left.num_rows, right.num_rows, left.equals(right)))
    return found


def _of(table: pa.Table, month: int) -> pa.Table:
    rows = table.filter(pc.equal(table["month"], month))
    return rows.sort_by([(name, "ascending") for name in table.column_names])
