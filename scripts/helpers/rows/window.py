"""The window of rows that one batch takes: its bounds, its filter, and the watermark after it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

from scripts.helpers.errors import CursorError, SourceChangedError
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.rows.cursors import MICROSECOND, Bound, CursorColumn, Tick, as_list, widened
from scripts.helpers.rows.dialect import Dialect
from scripts.helpers.rows.identity import as_text, remembered
from scripts.helpers.rows.sql import SQL, joined, sql

Nulls = Literal["raise", "take", "skip"]
NOTHING, EVERYTHING = sql("1 = 0"), sql("1 = 1")
_NULLS: Mapping[str, Nulls] = {"raise": "raise", "include": "take", "exclude": "skip"}
"""What to do with rows of NULL, by the words that plans keep."""
COMPLETE = "complete"
"""Key of a state: the value below which all rows were taken, where that is past its watermark."""
UNDECIDED = "undecided"
"""Key of a state: rows that were seen and left, with what they wait for."""
EDGE = "edge"
"""Key of a state: what tells the last rows below its watermark."""


@dataclass(frozen=True)
class RowWindow:
    """The half-open window ``[low - lookback, high)`` of one batch, all fixed before the rows are read.

    `low` is None on a first run: everything before `high`. `high` is None while there is no row at
    all; then the watermark stays as it is. A compound cursor has a value for each column and
    compares from the first on. `descending` mirrors all: rows at `low` or below it, and above `high`.
    `start` is where the first run was told to start: a lookback goes no further. `whole` takes every
    row, whatever its cursor. `source` is what the source says of itself (see `identity`). `last` is the last row
    that was seen, `undecided` is what the next run has to look at first (see `open_writers`), and `complete` is where
    rows below may come no more though the last one is further down; the plan keeps none of them, as the state that
    follows is frozen beside it. `has_more` says that a limit left rows for the next batch.

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
    undecided: Mapping[str, Any] | None = field(default=None, compare=False)
    complete: Bound | None = field(default=None, compare=False)
    edge: Mapping[str, Any] | None = field(default=None, compare=False)
    has_more: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether the window can hold no row."""
        # Rows without a cursor are in no place: where they are wanted, a window between equal bounds takes them too.
        if self.whole or self.nulls == "take":
            return False
        # A lookback reads below `low`, so equal bounds still hold rows.
        return self.high is None or (self.high == self.low and not self.lookback)

    @property
    def read_low(self) -> Bound | None:
        """Where reading starts: `low` less the lookback, but not before `start`. None is the very beginning."""
        if self.low is None or not self.lookback:
            return self.low
        low, first = self.low[0], self.columns[0]
        assert low is not None
        try:
            moved = first.shifted(low, self.lookback, 1 if self.descending else -1)
        except OverflowError:
            # Past the first value of the type: there is nothing to read further back.
            return self.start
        # The other columns of a compound cursor have no bound: their order says nothing about the lateness of a row.
        bound: Bound = (moved, *[None] * (len(self.columns) - 1))
        if self.start is not None and precedes(bound, self.start, descending=self.descending):
            return self.start
        return bound

    def predicate(self, dialect: Dialect) -> SQL:
        """Return the filter, of typed literals only."""
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
            # Below every value, so nothing else leaves it out where the window has no lower end.
            conditions.append(dialect.has(self.columns[0]))
        conditions.append(self._compare(high, ">" if self.descending else "<", dialect))
        # The first column is compared in any case, which NULL fails. Another one is not where the first decides,
        # and a row with NULL there would be taken although `nulls` says otherwise.
        conditions += map(dialect.has, self.columns[1:])
        return joined(" AND ", conditions)

    def at_or_past(self, bound: Bound, dialect: Dialect) -> SQL:
        """Return the filter that takes a bound and what follows it."""
        return self._compare(bound, "<=" if self.descending else ">=", dialect)

    def null_predicate(self, dialect: Dialect) -> SQL:
        """Return the filter that takes rows with NULL, or what stands for it, in any cursor column."""
        return joined(" OR ", map(dialect.lacks, self.columns))

    def _compare(self, bound: Bound, sign: str, dialect: Dialect) -> SQL:
        """Compare from the first column on; alone, the first column's part lets an index and Parquet prune."""
        values = [value for value in bound if value is not None]
        columns = self.columns[: len(values)]
        if len(values) == 1:
            return dialect.comparison(columns[0], sign, values[0])
        # (a, b) < (1, 2) is: a < 1, or a = 1 and b < 2. Only the last column may be equal, and only where the sign
        # says so. Row values such as (a, b) < (1, 2) are not used: SQL Server and Oracle have none.
        strict = sign[0]
        choices = []
        equal_before: list[SQL] = []
        for position, (column, value) in enumerate(zip(columns, values, strict=True)):
            is_last = position == len(values) - 1
            here = dialect.comparison(column, sign if is_last else strict, value)
            choices.append(sql("({})", joined(" AND ", [*equal_before, here])))
            equal_before.append(dialect.comparison(column, "=", value))
        return sql("{} AND ({})", dialect.comparison(columns[0], strict + "=", values[0]), joined(" OR ", choices))

    # --- what is stored -------------------------------------------------------------------------

    def to_plan(self) -> dict[str, Any]:
        """Return what the frozen plan stores."""
        plan = {**self._identity, "low": stored_bound(self.low), "high": stored_bound(self.high), **self._begun}
        # Defaults are left out, as a plan holds few entries and plans of many contexts share one item.
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
        SourceChangedError
            It is that of other columns.
        ImplausibleError
            It does not say what `to_plan` writes.
        """
        check_same_cursor(plan, names, context)
        fields = Fields(plan, context)
        columns = columns_in(fields)
        return cls(
            columns,
            low=bound_in(fields, "low", columns),
            high=bound_in(fields, "high", columns),
            lookback=_lookback_in(fields, columns[0]),
            nulls=_NULLS[fields.one_of("nulls", tuple(_NULLS), "raise")],
            descending=descends_in(fields, columns),
            start=bound_in(fields, "start", columns),
            source=remembered(plan, context),
            has_more=fields.flag("has_more"),
        )

    @property
    def state_after(self) -> dict[str, Any]:
        """What the watermark of this context is once the window is processed."""
        # Without a row there is no upper bound, and the watermark stays where it is: it must not be lost.
        value = stored_bound(self.low if self.high is None else self.high)
        seen = {} if self.last is None else {"last": stored_bound(self.last)}
        left = {} if self.undecided is None else {UNDECIDED: dict(self.undecided)}
        # Kept where it says more than the watermark does.
        past = {} if self.complete is None else {COMPLETE: stored_bound(self.complete)}
        edge = {} if self.edge is None else {EDGE: dict(self.edge)}
        return {**self._identity, "value": value, **self._begun, **seen, **left, **past, **edge}

    @property
    def _begun(self) -> dict[str, Any]:
        return {} if self.start is None else {"start": stored_bound(self.start)}

    @property
    def _identity(self) -> dict[str, Any]:
        names: Any = [column.name for column in self.columns]
        types: Any = [column.type for column in self.columns]
        if len(self.columns) == 1:
            names, types = names[0], types[0]
        identity = {"kind": "rows", "cursor_column": names, "type": types}
        if self.descending:
            identity["descending"] = True
        if self.source:
            identity["source"] = as_text(self.source)
        return identity


def precedes(one: Bound, other: Bound, *, descending: bool = False) -> bool:
    """Tell whether one bound comes before another in the order of reading."""
    left: Any
    right: Any
    for left, right in zip(one, other, strict=True):
        if left == right:
            continue
        # None is before everything, in either direction.
        if right is None:
            return False
        if left is None:
            return True
        return bool(left > right if descending else left < right)
    return False


def check_same_cursor(stored: Mapping[str, Any], names: Sequence[str], context: str) -> None:
    """Raise SourceChangedError if a state or plan is that of other columns, or of files."""
    fields = stored if isinstance(stored, Mapping) else {}
    before = fields.get("cursor_column")
    if fields.get("kind") != "rows":
        raise SourceChangedError(context, f"a source of kind {fields.get('kind')}", ", ".join(names))
    if as_list(before) != list(names):
        hint = " If a column was renamed, see `watermarks rename-cursor`."
        raise SourceChangedError(context, ", ".join(map(str, as_list(before))), ", ".join(names), hint)


def check_types(columns: Sequence[CursorColumn], before: object) -> None:
    """Raise CursorError if a column has another type than it had, unless that type has room for all of the old one."""
    for column, was in zip(columns, as_list(before), strict=True):
        if column.type != was and not widened(was, column.type):
            raise CursorError(
                column.name,
                f"its type was {was} and is {column.type} now. Cast it, or give it a transformation_ctx of its own.",
            )


def columns_in(fields: Fields) -> tuple[CursorColumn, ...]:
    """Return the cursor columns of a stored state or plan."""
    names, types = as_list(fields.any("cursor_column")), as_list(fields.any("type"))
    if len(names) != len(types) or not all(isinstance(text, str) and text for text in [*names, *types]):
        raise fields.wrong("cursor_column", "a name, or a list of names, with a type for each")
    try:
        return tuple(map(CursorColumn, names, types))
    except CursorError:
        raise fields.wrong("type", "a type that has an exact order") from None


def descends_in(fields: Fields, columns: Sequence[CursorColumn]) -> bool:
    """Return whether a stored state or plan reads downwards, as `RowOptions` allows for numbers only."""
    descends = fields.flag("descending")
    if descends and not all(column.is_number for column in columns):
        raise fields.wrong("descending", "False, and only numbers are read downwards")
    return descends


def stored_bound(bound: Bound | None) -> Any:
    """Return an end of a window as states and plans keep it; `bound_in` reads it."""
    return bound[0] if bound is not None and len(bound) == 1 else bound and list(bound)


def bound_in(fields: Fields, name: str, columns: Sequence[CursorColumn]) -> Bound | None:
    """Return an end of a window that a state or plan has under a name; None where it has none."""
    stored = fields.any(name)
    if stored is None:
        return None
    values = as_list(stored) if len(columns) > 1 else [stored]
    # Only the last columns may have no value; the first always has one, and None is refused by its check.
    known = values.index(None, 1) if None in values[1:] else len(values)
    try:
        found = [column.check(value) for column, value in zip(columns, values[:known], strict=False)]
    except CursorError:
        found = []
    if len(found) != known or len(values) != len(columns) or any(value is not None for value in values[known:]):
        raise fields.wrong(name, f"a value of type {', '.join(column.type for column in columns)}")
    return (*found, *[None] * (len(columns) - known))


def _lookback_to_store(lookback: Tick) -> Any:
    # The table of watermarks holds no durations: whole microseconds, read again by the type of the column.
    return lookback // MICROSECOND if isinstance(lookback, timedelta) else lookback


def _lookback_in(fields: Fields, column: CursorColumn) -> Tick | None:
    if not column.is_number:
        # Texts have no lookback.
        longest = timedelta.max // MICROSECOND if column.tick or column.is_uuid else 0
        micros = fields.whole("lookback", None, most=longest)
        return None if micros is None else micros * MICROSECOND
    found: int | Decimal | None = fields.of("lookback", (int, Decimal), "a number", None)
    if found is not None and (isinstance(found, bool) or found < 0):
        raise fields.wrong("lookback", "a number from 0")
    return found
