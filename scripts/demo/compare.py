"""Compare what the jobs wrote with the data set: rows and an order-free checksum per month."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


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


def compare(table: str, source: DataFrame, target: DataFrame) -> list[Month]:
    """Return every month that either side has."""
    columns = source.columns
    left, right = _sums(source, columns), _sums(target.select(columns), columns)
    nothing = (0, None)
    return [
        Month(
            table, month, left.get(month, nothing)[0], right.get(month, nothing)[0], left.get(month) == right.get(month)
        )
        for month in sorted(left.keys() | right.keys())
    ]


def _sums(df: DataFrame, columns: list[str]) -> dict[int, tuple[int, int | None]]:
    """Count rows and sum a hash over all columns; a decimal sum has no order and does not overflow."""
    hashed = F.xxhash64(*[F.coalesce(F.col(name).cast("string"), F.lit("\0")) for name in columns])
    grouped = df.groupBy("month").agg(F.count(F.lit(1)).alias("n"), F.sum(hashed.cast("decimal(38,0)")).alias("sum"))
    return {row["month"]: (row["n"], int(row["sum"])) for row in grouped.collect()}
