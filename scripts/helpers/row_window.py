"""Windows over a cursor column: which rows of a DataFrame are new, and the filter that takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from dateutil.parser import isoparse

from scripts.helpers.errors import CursorError, SourceChangedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Cursor = datetime | date | int | Decimal

DEFAULT_DELAY = timedelta(minutes=5)
"""How far the upper bound of times stays behind the clock: a transaction that commits up to five
minutes after the time it stamped on its rows is not missed. Kafka's JDBC source defaults to none,
and its issues #172, #915 and #1015 are the rows that were lost."""

EXACT = Context(prec=76)
"""Room for the sum of two of Spark's decimals; the default context would round at 28 digits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class RowWindow:
    """The half-open window ``[low, high)`` of one batch, both ends fixed before the rows are read.

    `low` is None on a first run: everything below `high`. `high` is None while there is no row at
    all; then the window is empty and the watermark stays as it is.

    Examples
    --------
    >>> window = RowWindow(column="id", type="bigint", low=5, high=9)
    >>> window.predicate
    '`id` >= 5 AND `id` < 9'
    >>> RowWindow.from_plan(window.to_plan(), "id", "repairs") == window
    True
    """

    column: str
    type: str
    low: Cursor | None
    high: Cursor | None

    @property
    def is_empty(self) -> bool:
        """Tell whether the window can hold no row."""
        return self.high is None or self.high == self.low

    def apply(self, df: DataFrame) -> DataFrame:
        """Return the rows of the window, lazily; the predicate reaches the source.

        CursorError if the column is gone or its type is not the one that the bounds were made for.
        """
        from pyspark.sql import functions as F  # noqa: N812

        _check_type(self.column, self.type, cursor_type(df, self.column))
        if self.high is None:
            return df.where(F.lit(False))
        return df.where(F.expr(self.predicate))

    @property
    def predicate(self) -> str:
        """The filter in Spark SQL, of typed literals only."""
        return " AND ".join(comparison(self.column, sign, bound, self.type) for sign, bound in self._bounds())

    def _bounds(self) -> list[tuple[str, Cursor]]:
        pairs = ((">=", self.low), ("<", self.high))
        return [(sign, bound) for sign, bound in pairs if bound is not None]

    def to_plan(self) -> dict[str, Any]:
        """Return what the frozen plan stores."""
        return {"kind": "rows", "cursor_column": self.column, "type": self.type, "low": self.low, "high": self.high}

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any], cursor_column: str, context: str) -> RowWindow:
        """Return the window of a frozen plan; SourceChangedError if it is that of another column."""
        _check_source(plan, cursor_column, context)
        return cls(plan["cursor_column"], plan["type"], plan["low"], plan["high"])

    @property
    def state_after(self) -> dict[str, Any]:
        """What the watermark of this context is once the window is processed."""
        value = self.low if self.high is None else self.high
        return {"kind": "rows", "cursor_column": self.column, "type": self.type, "value": value}


def plan_window(
    df: DataFrame,
    cursor_column: str,
    *,
    now: datetime,
    state: Mapping[str, Any] | None = None,
    delay: timedelta = DEFAULT_DELAY,
    context: str = "rows",
) -> RowWindow:
    """Find the window of rows that are new, by one aggregate over the rows past the watermark.

    The upper bound is just above the largest cursor value there is; for times and dates it is also
    no later than `now` less `delay`, so a stamp that is still being written to is left for later.

    Parameters
    ----------
    df
        The source. Its cursor column holds no NULL.
    cursor_column
        Name of a timestamp (with or without zone), date, integer or decimal column.
    now
        The source's time, aware.
    state
        What an earlier `RowWindow.state_after` returned; None on a first run.
    delay
        Longest time between a row's stamp and the moment others can see the row.
    context
        Name of the source inside its job, for error texts.

    Raises
    ------
    CursorError
        No such column, NULLs in it, a type that has no exact order, or another type than before.
    SourceChangedError
        The state is that of another column or of files.
    """
    kind = cursor_type(df, cursor_column)
    low: Cursor | None = None
    if state is not None:
        low = _check_state(state, cursor_column, kind, context)
    largest = _largest(df, cursor_column, kind, low)
    if largest is None:
        return RowWindow(cursor_column, kind, low, low)
    high: Any = _upper_bound(largest, kind, now - delay)
    if low is not None and high < low:
        high = low
    return RowWindow(cursor_column, kind, low, high)


def cursor_type(df: DataFrame, column: str) -> str:
    """Return the Spark SQL type of a cursor column; CursorError where there is no exact order."""
    found = [name for name in df.columns if name == column] or [c for c in df.columns if c.lower() == column.lower()]
    if len(found) != 1:
        raise CursorError(column, f"the source has no such column. It has: {', '.join(df.columns)}.")
    kind = df.schema[found[0]].dataType.simpleString()
    if kind in (*_WHOLE, "timestamp", "timestamp_ntz", "date") or kind.startswith("decimal("):
        return kind
    raise CursorError(
        column, f"a {kind} has no exact order to resume from. Use a timestamp, date, integer or decimal column."
    )


def _check_source(stored: Mapping[str, Any], column: str, context: str) -> None:
    fields = stored if isinstance(stored, Mapping) else {}
    if fields.get("kind") != "rows" or fields.get("cursor_column") != column:
        before = str(fields.get("cursor_column", f"a source of kind {fields.get('kind')}"))
        raise SourceChangedError(context, before, column)


def _check_type(column: str, before: str | None, now: str) -> None:
    if before != now:
        raise CursorError(
            column, f"its type was {before} and is {now} now. Cast it, or give it a transformation_ctx of its own."
        )


def _check_state(state: Mapping[str, Any], column: str, kind: str, context: str) -> Cursor | None:
    _check_source(state, column, context)
    _check_type(column, state.get("type"), kind)
    value: Cursor | None = state.get("value")
    if value is not None:
        comparison(column, ">=", value, kind)
    return value


def _largest(df: DataFrame, column: str, kind: str, low: Cursor | None) -> Cursor | None:
    """Ask the source for NULLs and for the largest cursor value not below `low`, as exact text."""
    name = quote(column)
    new = f"{name} IS NULL OR " + (comparison(column, ">=", low, kind) if low is not None else "true")
    exact = f"cast(unix_micros(max({name})) as string)" if kind == "timestamp" else f"cast(max({name}) as string)"
    row = df.where(new).selectExpr(f"count_if({name} IS NULL)", exact).head()
    assert row is not None
    if row[0]:
        raise CursorError(
            column, f"{row[0]:,} rows have NULL there and no window would ever take them. Fill it or filter them out."
        )
    if row[1] is None:
        return None
    try:
        return _from_text(row[1], kind)
    except (ValueError, OverflowError) as error:
        raise CursorError(
            column, "its largest value is outside the years 1 to 9999. Mend or filter that row."
        ) from error


def _from_text(text: str, kind: str) -> Cursor:
    if kind == "timestamp":
        return _EPOCH + timedelta(microseconds=int(text))
    if kind == "timestamp_ntz":
        return isoparse(text.replace(" ", "T")).replace(tzinfo=timezone.utc)
    if kind == "date":
        return date.fromisoformat(text)
    return int(text) if kind in _WHOLE else Decimal(text)


def _next_above(value: Cursor, kind: str) -> Any:
    """Return the smallest value above this one that the column's type can hold."""
    if isinstance(value, datetime):
        return value + timedelta(microseconds=1)
    if isinstance(value, date):
        return value + timedelta(days=1)
    if isinstance(value, int):
        return value + 1
    _, scale = _decimal_type(kind)
    return EXACT.add(value, Decimal(1).scaleb(-scale))


def _upper_bound(largest: Any, kind: str, ceiling: datetime) -> Any:
    """Return what is just above the largest value; for times and dates no later than the ceiling.

    A stamp past the ceiling, such as the sentinel 9999-12-31, has nothing above it and needs nothing.
    """
    if not isinstance(largest, date):
        return _next_above(largest, kind)
    moment = ceiling.astimezone(timezone.utc)
    limit = moment if isinstance(largest, datetime) else moment.date()
    return limit if largest >= limit else _next_above(largest, kind)


def _decimal_type(kind: str) -> tuple[int, int]:
    """Return precision and scale of ``decimal(p,s)``; none of any other type."""
    found = re.fullmatch(r"decimal\((\d{1,2}),(\d{1,2})\)", kind)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def quote(column: str) -> str:
    """Quote a column name for Spark SQL."""
    return "`" + column.replace("`", "``") + "`"


def comparison(column: str, sign: str, bound: Cursor, kind: str) -> str:
    """Write ``column >= bound`` or ``column < bound``.

    Just above the largest decimal of 38 digits Spark has no literal, and it compares with NULL
    what it cannot hold: there every value is below.
    """
    precision, scale = _decimal_type(kind)
    if precision and bound == Decimal(1).scaleb(precision - scale):
        return f"{quote(column)} IS NOT NULL" if sign == "<" else "false"
    return f"{quote(column)} {sign} {literal(bound, kind)}"


def literal(value: Cursor, kind: str) -> str:
    """Write a bound as a typed literal. Watermarks come from a table others can write to: only checked types pass."""
    if kind == "timestamp" and isinstance(value, datetime):
        return f"timestamp_micros({(value - _EPOCH) // timedelta(microseconds=1)}L)"
    if kind == "timestamp_ntz" and isinstance(value, datetime):
        return f"TIMESTAMP_NTZ '{value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(' ', 'microseconds')}'"
    if kind == "date" and isinstance(value, date) and not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    if kind in _WHOLE and isinstance(value, int) and not isinstance(value, bool):
        return f"{value}"
    precision, scale = _decimal_type(kind)
    if isinstance(value, Decimal) and value.is_finite() and value.copy_abs() < Decimal(1).scaleb(precision - scale):
        unscaled = EXACT.scaleb(value, scale)
        if precision and unscaled == unscaled.to_integral_value():
            return f"{value:f}BD"
    raise CursorError(kind, f"a stored bound is a {type(value).__name__}, not a {kind}. Reset the watermark by hand.")
