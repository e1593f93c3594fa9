"""Verify that the target has the loaded rows: choose the intervals to compare, and judge differences. Pure.

A job has taken all rows below its watermark and takes none of them again. So the target must have each row that the
source has there (otherwise it is `missing`), and only once (otherwise it is `doubled`). The reverse does not hold: with
a cursor of times, an update moves a row to a later interval, and a delete removes it. So rows that only the target has
(`extra`) count as a difference for numbers, which never move, but for times only if you ask for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from scripts.helpers.display.tables import Column, Table
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.rows.cursor_ranges import RangeEnd, range_end
from scripts.helpers.rows.cursors import (
    DAY,
    MICROSECOND,
    WHOLE,
    Bound,
    Cursor,
    CursorColumn,
    Tick,
    as_number,
    decimal_type,
    from_number,
)

End = Cursor | Bound
"""A value of the first cursor column, or one for each column if only some rows with the same first value were read."""
Span = tuple[End | None, End]
"""``[low, high)``; a `low` of None is the very beginning."""

RECENT, SAMPLED, PARTS, MOST = 3, 5, 100, 10_000
"""Defaults: the number of newest intervals and of sampled others to compare; the number of intervals of a range of
numbers without `interval`; and the most intervals of one call, each of which is a query on both sides."""
UNORDERED = ("map", "interval", "variant", "void")
"""Types that are not compared, alone or within another type."""


# --- which intervals ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The choice of intervals to compare.

    Attributes
    ----------
    interval
        Width of an interval: a timedelta, or a number for a cursor of numbers. None is a day, or for numbers a
        hundredth of the width of all ranges that were read. Texts and UUIDs are not cut into intervals.
    recent
        How many of the newest intervals to compare.
    sample
        How many of the older intervals to compare, chosen at random.
    everything
        Whether to compare all intervals, at most 10,000.
    seed
        Seed that makes the random choice repeatable.
    """

    interval: Tick | None = None
    recent: int = RECENT
    sample: int = SAMPLED
    everything: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("recent", "sample"):
            count = getattr(self, name)
            # Compare the type, because in Python True is an int.
            if type(count) is not int or not 0 <= count <= MOST:
                raise InvalidValueError(f"{name}={count!r} is not a whole number from 0 to {MOST:,}.")
        if not self.recent and not self.sample and not self.everything:
            raise InvalidValueError(
                "recent=0 and sample=0 compare nothing. Give at least one of them, or everything=True."
            )

    def spans(self, column: CursorColumn, covered: Sequence[Span], smallest: Cursor | None) -> tuple[list[Span], int]:
        """Return the intervals to compare, the newest first, and the total number of intervals.

        Parameters
        ----------
        column
            The first cursor column.
        covered
            The ranges that were read, in order; none of them is empty (see `covered_below`).
        smallest
            The smallest cursor of the source, for a range without a beginning; None if the source has no row.

        Raises
        ------
        InvalidValueError
            The interval does not fit the column, or all are to be compared and there are too many.
        """
        if column.type == "string" or column.is_uuid:
            if self.interval is not None:
                raise InvalidValueError(
                    f"interval= does not fit the cursor {column.name!r}, a {column.type}. Leave it out."
                )
            return list(reversed(covered)), len(covered)
        starts = [as_number(_start(span, smallest), column.type) for span in covered]
        ends = [as_number(first_of(span[1]), column.type) for span in covered]
        width = _width(column, self.interval, sum(ends) - sum(starts))
        cells = [_Cells(start, end, width) for start, end in zip(starts, ends, strict=True)]
        total = sum(piece.count for piece in cells)
        if self.everything and total > MOST:
            raise InvalidValueError(f"{total:,} intervals are more than {MOST:,}. Give a wider interval=.")
        found = []
        for number in self._chosen(total):
            newer = 0
            for piece, (low, high) in zip(reversed(cells), reversed(covered), strict=True):
                within = number - newer
                newer += piece.count
                if within < piece.count:
                    first, last = piece.at(within)
                    # Cut ranges at values of the first cursor column, but keep each range's own `low` and `high`, which
                    # have all columns. A `low` of None includes rows of the target older than all rows of the source.
                    start = low if within == piece.count - 1 else from_number(first, column.type)
                    found.append((start, high if within == 0 else from_number(last, column.type)))
                    break
        return found, total

    def _chosen(self, total: int) -> list[int]:
        """Return the numbers of the intervals to compare, counted from the newest."""
        if self.everything or total <= self.recent + self.sample:
            return list(range(total))
        others = random.Random(self.seed).sample(range(self.recent, total), self.sample)
        return [*range(self.recent), *sorted(others)]


def first_of(end: End) -> Cursor:
    """Return an end's value of the first cursor column, such as ``5`` for ``5`` and for ``(5, 1)``."""
    first = end[0] if isinstance(end, tuple) else end
    assert first is not None
    return first


def _start(span: Span, smallest: Cursor | None) -> Cursor:
    if span[0] is not None:
        return first_of(span[0])
    # If the source has no row below the end, return the end: `spans` then makes one interval, open at its start.
    end: Any = first_of(span[1])
    found: Cursor = end if smallest is None else min(smallest, end)
    return found


@dataclass(frozen=True)
class _Cells:
    """The intervals of one range, cut at multiples of their width, so that they are the same in each call."""

    start: int
    end: int
    width: int

    @property
    def count(self) -> int:
        # Return at least 1, so that there is an interval for rows of the target below the source's smallest row.
        return max(1, (self.end - 1) // self.width - self.start // self.width + 1)

    def at(self, number: int) -> tuple[int, int]:
        """Return the ends of an interval, given its number counted from the newest."""
        cell = (self.end - 1) // self.width - number
        return max(self.start, cell * self.width), min(self.end, (cell + 1) * self.width)


def _width(column: CursorColumn, interval: Tick | None, all_steps: int) -> int:
    """Return an interval's width in smallest units; default: a day, or for numbers all ranges' `all_steps`/`PARTS`."""
    if interval is None and not column.is_time:
        return max(1, -(-all_steps // PARTS))
    interval = DAY if interval is None else interval
    steps = 0
    if isinstance(interval, timedelta) and column.is_time:
        steps = interval // (DAY if column.type == "date" else MICROSECOND)
    elif isinstance(interval, int | Decimal) and not isinstance(interval, bool) and not column.is_time:
        steps = as_number(interval, column.type)
    if steps < 1:
        raise InvalidValueError(
            f"interval={interval!r} does not fit the cursor {column.name!r}, a {column.type}. Give a timedelta from "
            "one step up for times and dates, a number above 0 for numbers."
        )
    return steps


def covered_below(coverage: Sequence[tuple[Any, Any]], watermark: End) -> list[Span]:
    """Return the parts of the covered ranges that are below the watermark.

    A backfill may have read ranges above the watermark. They are left out, because the live job reads them later.
    """
    found: list[Span] = []
    last = range_end(watermark)
    for low, high in coverage:
        start, end = range_end(low), last if high is None else min(range_end(high), last)
        if start < end:
            found.append((_short(start) if start else None, _short(end)))
    return found


def _short(end: RangeEnd) -> End:
    """Return the only value of an end, such as ``(5,) -> 5``; return an end of several values as a tuple."""
    return end[0] if len(end) == 1 else end


# --- which columns --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """`kinds` maps each compared column to the type used for it; `left_out` maps each other column to the reason."""

    kinds: Mapping[str, str]
    left_out: Mapping[str, str]

    @classmethod
    def of(cls, source: Mapping[str, str], target: Mapping[str, str], wanted: Sequence[str] | None) -> Compared:
        """Choose the columns to compare, from Spark's names of their types on both sides.

        Raises
        ------
        InvalidValueError
            A wanted column is not on both sides, or its types cannot be compared; or no column is left.
        """
        kinds, left_out = {}, {}
        for name in [*source, *(name for name in target if name not in source)]:
            if wanted is not None and name not in wanted:
                continue
            if name not in target or name not in source:
                left_out[name] = f"only in the {'target' if name in target else 'source'}"
                continue
            kind = common_kind(source[name], target[name])
            if kind is None:
                left_out[name] = f"{source[name]} in the source, {target[name]} in the target"
            else:
                kinds[name] = kind
        lacking = {name: left_out.get(name, "on neither side") for name in wanted or () if name not in kinds}
        if lacking:
            shown = "; ".join(f"{name!r} is {why}" for name, why in lacking.items())
            raise InvalidValueError(f"Columns cannot be compared: {shown}. Leave them out of columns=, or cast them.")
        if not kinds:
            shown = "; ".join(f"{name!r} is {why}" for name, why in left_out.items()) or "there are none"
            raise InvalidValueError(f"Source and target have no column to compare: {shown}.")
        return cls(kinds, left_out)


def common_kind(one: str, other: str) -> str | None:
    """Return the type in which two columns can be compared without loss; None if there is none.

    >>> common_kind("int", "bigint"), common_kind("decimal(9,2)", "bigint"), common_kind("string", "date")
    ('bigint', 'decimal(21,2)', None)
    """
    one, other = (_plain(kind) for kind in (one, other))
    if any(word in one or word in other for word in UNORDERED):
        return None
    if one in WHOLE and other in WHOLE:
        return "bigint"
    if {one, other} <= {"float", "double"}:
        return "double"
    digits = [_digits(kind) for kind in (one, other)]
    if all(digits):
        whole, scale = (max(pair) for pair in zip(*digits, strict=True))
        return f"decimal({whole + scale},{scale})" if whole + scale <= 38 else None
    return one if one == other else None


def _plain(kind: str) -> str:
    return "string" if kind.startswith(("varchar", "char")) else kind


def _digits(kind: str) -> tuple[int, int]:
    """Return how many digits a type of numbers has before and after the point; ``()`` for other types."""
    if kind in WHOLE:
        return 19, 0
    precision, scale = decimal_type(kind)
    return (precision - scale, scale) if precision else ()  # type: ignore[return-value]


def is_nested_type(kind: str) -> bool:
    """Return whether a type is made of other types."""
    return kind.startswith(("array", "struct"))


# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """How many rows of one interval differ. A row that occurs several times is counted each time."""

    missing: int = 0
    extra: int = 0
    doubled: int = 0


@dataclass(frozen=True)
class VerifiedInterval:
    """One interval ``[low, high)`` that was compared.

    An end is a value of the first cursor column. If only some rows with that value were read, the end is a tuple with
    a value for each column of the compound cursor.
    """

    low: End | None
    high: End
    source_rows: int
    target_rows: int
    missing: int
    extra: int
    doubled: int
    differs: bool


class Verification(Table[VerifiedInterval]):
    """The intervals that were compared, newest first; displayed as a table.

    Attributes
    ----------
    job_id, context
        The job and the context that loaded the rows.
    total
        How many intervals there are below the watermark.
    compared
        The compared columns, and the reasons why others were left out.
    """

    columns = (
        Column("low", lambda one: "the very beginning" if one.low is None else one.low),
        Column("high (not included)", lambda one: one.high),
        Column("source", lambda one: one.source_rows, "count"),
        Column("target", lambda one: one.target_rows, "count"),
        Column("missing", lambda one: one.missing or None, "count"),
        Column("doubled", lambda one: one.doubled or None, "count"),
        Column("extra", lambda one: one.extra or None, "count"),
        Column("", lambda one: "differs" if one.differs else "equal"),
    )
    __repr__ = Table.__repr__

    def __init__(
        self, rows: Sequence[VerifiedInterval], job_id: str, context: str, total: int, compared: Compared
    ) -> None:
        self.job_id, self.context, self.total, self.compared = job_id, context, total, compared
        super().__init__(rows, self._caption(rows))

    def __getitem__(self, index: Any) -> Any:
        """Return one interval, or a list of intervals for a slice."""
        return list.__getitem__(self, index)

    def _caption(self, rows: Sequence[VerifiedInterval]) -> str:
        differing = sum(one.differs for one in rows)
        found = f"{differing:,} differ" if differing else "all equal"
        return f"{self.job_id}, {self.context}: {len(rows):,} of {self.total:,} intervals compared, {found}"

    @property
    def differing(self) -> list[VerifiedInterval]:
        """The intervals that differ."""
        return [one for one in self if one.differs]

    @property
    def is_equal(self) -> bool:
        """Whether none of the compared intervals differs."""
        return not self.differing

    @property
    def is_sampled(self) -> bool:
        """Whether some intervals were not compared."""
        return len(self) < self.total

    def mending(self) -> Iterator[str]:
        """Yield, for each interval that differs, Python code that reads it again; the target has to merge by key."""
        for one in self.differing:
            yield (
                f"Backfill(watermarks, {self.job_id!r}, transformation_ctx={self.context!r}, low={one.low!r}, "
                f"high={one.high!r}, write_disposition='merge', name='verify')"
            )


def verified(
    span: Span, source_rows: int, target_rows: int, difference: Difference, *, exact: bool
) -> VerifiedInterval:
    """Return the result of comparing one interval; with `exact`, rows that only the target has are a difference."""
    differs = bool(difference.missing or difference.doubled or (exact and difference.extra))
    return VerifiedInterval(
        *span, source_rows, target_rows, difference.missing, difference.extra, difference.doubled, differs
    )


def difference_of(source: Mapping[Any, int], target: Mapping[Any, int]) -> Difference:
    """Compare two sides by how often each row occurs.

    >>> difference_of({"a": 1, "b": 2}, {"b": 3, "c": 1})
    Difference(missing=1, extra=1, doubled=1)
    """
    missing = sum(max(0, count - target.get(row, 0)) for row, count in source.items())
    extra = sum(count for row, count in target.items() if row not in source)
    doubled = sum(max(0, count - source[row]) for row, count in target.items() if row in source)
    return Difference(missing, extra, doubled)
