"""The window of rows that one batch reads: its bounds, its filter, and the watermark after it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

from scripts.helpers.protocol.fields import Fields
from scripts.helpers.rows.cursors import MICROSECOND, Bound, CursorColumn, Tick
from scripts.helpers.rows.dialect import Dialect
from scripts.helpers.rows.identity import remembered
from scripts.helpers.rows.sql import SQL, joined, sql
from scripts.helpers.rows.states import (
    Edge,
    RowsState,
    Undecided,
    bound_in,
    check_same_cursor,
    columns_in,
    descends_in,
    stored_bound,
    stored_identity,
)

Nulls = Literal["raise", "take", "skip"]
NOTHING, EVERYTHING = sql("1 = 0"), sql("1 = 1")
_NULLS: Mapping[str, Nulls] = {"raise": "raise", "include": "take", "exclude": "skip"}
"""The values of `nulls`, by the words that plans store for them."""


@dataclass(frozen=True)
class RowWindow:
    """The half-open window ``[low - lookback, high)`` of one batch; its bounds are fixed before rows are read.

    `low` is None on a first run, which reads everything before `high`. `high` is None while the source has no row; the
    watermark then stays as it is. A compound cursor has a value for each column, and its columns are compared in order.
    A `descending` window has the rows at `low` or below it, and above `high`. `start` is where the first run was to
    start, and a lookback reads no further. `whole` takes every row, whatever its cursor. `source` is the identity of
    the source (see `identity`). `has_more` means that a limit left rows for the next batch. Four fields are not in the
    plan, because the next state, which is frozen with it, has them: `last`, the last row seen; `undecided`, rows that
    the next run must check first (see `open_writers`); `complete`, the bound below which no row can still appear, or
    None if that is not past the last row; and `edge`, digests of the last rows before `high`, to detect a restore.

    Examples
    --------
    >>> from scripts.helpers.rows.dialect import SPARK
    >>> window = RowWindow((CursorColumn("id", "bigint"),), low=(5,), high=(9,))
    >>> window.predicate(SPARK)
    '`id` >= 5 AND `id` < 9'
    >>> RowWindow.from_plan(window.to_plan(), ["id"], "repairs") == window
    True
    """

    columns: tuple[CursorColumn, ...]
    low: Bound | None
    high: Bound | None
    lookback: Tick | None = None
    nulls: Nulls = "raise"
    descending: bool = False
    start: Bound | None = None
    whole: bool = False
    source: Mapping[str, Any] | None = field(default=None, hash=False)
    last: Bound | None = field(default=None, compare=False)
    undecided: Undecided | None = field(default=None, compare=False)
    complete: Bound | None = field(default=None, compare=False)
    edge: Edge | None = field(default=None, compare=False)
    has_more: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the window cannot contain any row."""
        # With ``nulls="take"`` every window has the rows without a cursor, even a window between equal bounds.
        if self.whole or self.nulls == "take":
            return False
        # A lookback reads below `low`, so a window between equal bounds can still have rows.
        return self.high is None or (self.high == self.low and not self.lookback)

    @property
    def read_low(self) -> Bound | None:
        """The bound where reading starts: `low` minus the lookback, but not before `start`; None is the beginning."""
        if self.low is None or not self.lookback:
            return self.low
        low, first = self.low[0], self.columns[0]
        assert low is not None
        try:
            moved = first.shifted(low, self.lookback, 1 if self.descending else -1)
        except OverflowError:
            # The lookback reaches past the first value of the type, so there is nothing further back.
            return self.start
        # Shift the bound's first value by the lookback. Leave the others None: only the first shows how late a row is.
        bound: Bound = (moved, *[None] * (len(self.columns) - 1))
        if self.start is not None and precedes(bound, self.start, descending=self.descending):
            return self.start
        return bound

    def predicate(self, dialect: Dialect) -> SQL:
        """Return the filter of the window. Every value in it is a typed literal."""
        if self.whole:
            return EVERYTHING
        taken = NOTHING if self.high is None else self._between(self.high, dialect)
        if self.nulls == "take":
            return sql("{} OR ({})", self.null_predicate(dialect), taken)
        return taken

    def _between(self, high: Bound, dialect: Dialect) -> SQL:
        conditions = []
        if self.read_low is not None:
            conditions.append(self.at_or_past(self.read_low, dialect))
        elif dialect.has_void(self.columns[0]):
            # Skip rows with a placeholder for no value (MySQL's zero date): as the lowest date, it would pass `< high`.
            conditions.append(dialect.has(self.columns[0]))
        conditions.append(self._compare(high, ">" if self.descending else "<", dialect))
        # The comparison leaves out rows with NULL in the first column. The other columns are compared only if the first
        # one is equal, so leave out rows with NULL in them explicitly.
        conditions += map(dialect.has, self.columns[1:])
        return joined(" AND ", conditions)

    def at_or_past(self, bound: Bound, dialect: Dialect) -> SQL:
        """Return the filter for rows at a bound or past it, in the order of reading."""
        return self._compare(bound, "<=" if self.descending else ">=", dialect)

    def null_predicate(self, dialect: Dialect) -> SQL:
        """Return the filter for rows with NULL, or a placeholder for it, in any cursor column."""
        return joined(" OR ", map(dialect.lacks, self.columns))

    def _compare(self, bound: Bound, sign: str, dialect: Dialect) -> SQL:
        """Compare cursor and bound in SQL; repeat the first column as its own condition, for indexes and Parquet."""
        values = [value for value in bound if value is not None]
        columns = self.columns[: len(values)]
        if len(values) == 1:
            return dialect.comparison(columns[0], sign, values[0])
        # SQL Server and Oracle cannot compare row values such as (a, b) <= (1, 2). So compare column by column: a < 1,
        # or a = 1 and b <= 2. Only the comparison of the last column has the `=` of the sign.
        strict = sign[0]
        choices = []
        equal_before: list[SQL] = []
        for position, (column, value) in enumerate(zip(columns, values, strict=True)):
            is_last = position == len(values) - 1
            here = dialect.comparison(column, sign if is_last else strict, value)
            choices.append(sql("({})", joined(" AND ", [*equal_before, here])))
            equal_before.append(dialect.comparison(column, "=", value))
        return sql("{} AND ({})", dialect.comparison(columns[0], strict + "=", values[0]), joined(" OR ", choices))

    # --- stored form ----------------------------------------------------------------------------

    def to_plan(self) -> dict[str, Any]:
        """Return the window as the frozen plan stores it."""
        plan = stored_identity(self.columns, self.descending, self.source)
        plan |= {"low": stored_bound(self.low), "high": stored_bound(self.high)}
        # Leave out defaults: the plans of all contexts are in one item, with at most `MAX_ENTRIES` fields together.
        if self.start is not None:
            plan["start"] = stored_bound(self.start)
        if self.lookback:
            plan["lookback"] = _lookback_to_store(self.lookback)
        if self.nulls != "raise":
            plan["nulls"] = next(stored for stored, nulls in _NULLS.items() if nulls == self.nulls)
        if self.has_more:
            plan["has_more"] = True
        return plan

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any], names: Sequence[str], context: str) -> RowWindow:
        """Return the window of a frozen plan.

        Raises
        ------
        SourceError
            The plan is for other columns.
        ImplausibleError
            The plan is not one that `to_plan` wrote.
        """
        check_same_cursor(plan, names, context)
        return cls.read(plan, context)

    @classmethod
    def read(cls, plan: Mapping[str, Any], context: str) -> RowWindow:
        """Read what `to_plan` wrote, whatever its columns are; raise ImplausibleError for anything else."""
        fields = Fields(plan, context)
        columns = columns_in(fields)
        return cls(
            columns,
            low=bound_in(fields, "low", columns),
            high=bound_in(fields, "high", columns),
            lookback=_read_lookback(fields, columns[0]),
            nulls=_NULLS[fields.one_of("nulls", tuple(_NULLS), "raise")],
            descending=descends_in(fields, columns),
            start=bound_in(fields, "start", columns),
            source=remembered(plan, context),
            has_more=fields.flag("has_more"),
        )

    @property
    def state(self) -> RowsState:
        """The state of this context after the window is processed, without the ranges that were read (coverage)."""
        # If the source had no row, there is no upper bound, and the state keeps the former watermark.
        reached = self.low if self.high is None else self.high
        return RowsState(
            self.columns, reached, self.descending, self.source, self.start, self.last, self.undecided, self.complete,
            self.edge,
        )  # fmt: skip

    @property
    def state_after(self) -> dict[str, Any]:
        """The state after the window, as it is stored."""
        return self.state.to_store()


def precedes(one: Bound, other: Bound, *, descending: bool = False) -> bool:
    """Return whether one bound comes before another in the order of reading."""
    left: Any
    right: Any
    for left, right in zip(one, other, strict=True):
        if left == right:
            continue
        # None is before all values, in whatever order the window is read.
        if right is None:
            return False
        if left is None:
            return True
        return bool(left > right if descending else left < right)
    return False


def _lookback_to_store(lookback: Tick) -> Any:
    # The table of watermarks cannot store durations, so store microseconds. The column's type shows how to read them.
    return lookback // MICROSECOND if isinstance(lookback, timedelta) else lookback


def _read_lookback(fields: Fields, column: CursorColumn) -> Tick | None:
    if not column.is_number:
        # For texts allow only 0, because they have no lookback.
        longest = timedelta.max // MICROSECOND if column.tick or column.is_uuid else 0
        micros = fields.whole("lookback", None, most=longest)
        return None if micros is None else micros * MICROSECOND
    found: int | Decimal | None = fields.of("lookback", (int, Decimal), "a number", None)
    if found is not None and (isinstance(found, bool) or found < 0):
        raise fields.wrong("lookback", "a number from 0")
    return found
