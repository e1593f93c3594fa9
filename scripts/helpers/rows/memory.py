"""Rows in memory as a source, without Spark: a pandas DataFrame or a pyarrow table, compared exactly by pyarrow."""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from itertools import chain
from numbers import Integral, Real
from typing import Any, Generic, TypeGuard

from scripts.helpers._lazy import pa, pc, pd
from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.cursors import (
    EPOCH,
    OUTSIDE,
    Bound,
    Cursor,
    CursorColumn,
    as_number,
    decimal_type,
    from_number,
    missing_column,
    unordered,
)
from scripts.helpers.rows.sources import Facts, Rows, RowSource, has_chosen_zone, named_zone
from scripts.helpers.rows.states import check_types
from scripts.helpers.rows.window import RowWindow

logger = logging.getLogger(__name__)

DECIMALS = 76
"""Digits in which decimals are compared: those of Arrow's widest decimal, so that all bounds and values fit."""
OBJECTS = "decimal(38,18)"
"""Type of a column of Python Decimals, which have no type of their own; Spark uses the same."""
NS_PER_US = 1_000
UNREADABLE = "it holds times outside the years 1 to 9999. Fix or filter those rows."
FIRST_DAY = EPOCH.toordinal()
KINDS: dict[str, Any] = {"str": str, "bytes": (bytes, bytearray), "bool": bool, "int": Integral, "float": Real,
                         "dict": dict, "list": (list, tuple)}  # fmt: skip
"""Kinds of Python objects, and the classes of each; the first that fits counts."""
ALIKE = {str, bytes, bool, int, date, time, type(None)}
"""Types whose values all have one kind, so that one value is enough to find it."""
HOW_TO_READ = {"RecordBatchReader": "read_all()", "Dataset": "to_table()", "Scanner": "to_table()"}
"""Methods that turn other pyarrow classes with rows into a table. The rows of these classes are read again each time,
or only once, so a plan and the read after it could see different rows."""


class MemoryRows(RowSource, Generic[Rows]):
    """Rows in memory, whose cursor columns are pyarrow arrays.

    `zone` is the zone of dates and of columns without zone; None if it was not given.
    """

    def __init__(self, zone: str | None, name: str) -> None:
        self.name, self._zone = name, None if zone is None else named_zone(zone, name)
        self._read: dict[str, tuple[str, pa.Array]] = {}
        self._taken: tuple[RowWindow, pa.Array] | None = None

    @abstractmethod
    def _array(self, name: str) -> tuple[pa.Array, bool]:
        """Return a column as an array, and whether its values were Python objects; CursorError if it is missing."""

    @abstractmethod
    def _rows_where(self, taken: pa.Array | None) -> Rows:
        """Return the rows for which a mask of booleans is true; all rows if the mask is None."""

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; raise CursorError if one is missing or has no exact order."""
        found = []
        for name in names:
            kind, _ = self._values(name)
            if kind == "string" and not strings:
                raise unordered(name, kind, as_text=True)
            found.append(CursorColumn(name, kind))
        return tuple(found)

    def zone_is_known(self, now: datetime) -> bool:
        """Return whether the caller or the job's clock gave a zone for dates and for columns without zone."""
        return self._zone is not None or has_chosen_zone(now)

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Count NULLs and find the last cursor value at `low` or past it."""
        nulls = self._nulls(columns)
        taken = pc.invert(nulls)
        if low is not None:
            at_or_past_low = self._past(columns, low, "<=" if descending else ">=")
            # A comparison with NULL is NULL, and Arrow's `and` with NULL is NULL too, so replace NULL by False.
            taken = pc.and_(taken, pc.fill_null(at_or_past_low, False))
        last = self._cursor_at(columns, taken, 0, "ascending" if descending else "descending")
        texts = self._values(columns[0].name)[1].filter(taken) if columns[0].type == "string" else []
        return Facts(
            largest=None if descending else last,
            smallest=last if descending else None,
            nulls=pc.sum(nulls).as_py() or 0,
            zone=self._zone,
            widths=tuple(pc.unique(pc.binary_length(texts)).to_pylist()) if len(texts) else (),
        )

    def rows(self, window: RowWindow) -> Rows:
        """Return the rows of a window; raise CursorError if a column is missing or has another type by now."""
        names = [column.name for column in window.columns]
        check_types(self.columns(names, strings=True), window.columns)
        return self._rows_where(None if window.whole else self._mask(window))

    def writers(self, column: str, longest: timedelta) -> frozenset[str]:
        """Return no open transactions: no database transaction can still add a row to rows that are in memory."""
        return frozenset()

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        """Return the cursor of the row at a position of a window, counted from 0; None if it has fewer rows."""
        order = "descending" if window.descending else "ascending"
        return self._cursor_at(window.columns, self._mask(window), position, order)

    def _mask(self, window: RowWindow) -> pa.Array:
        """Return, for each row, whether a window takes it; the window must not be `whole`, which takes every row."""
        nulls = self._nulls(window.columns)
        taken = pc.and_(nulls, window.nulls == "take")
        if window.high is not None:
            ends = self._past(window.columns, window.high, ">" if window.descending else "<")
            if window.read_low is not None:
                at_or_past_low = self._past(window.columns, window.read_low, "<=" if window.descending else ">=")
                ends = pc.and_(ends, at_or_past_low)
            taken = pc.or_(taken, pc.and_(pc.fill_null(ends, False), pc.invert(nulls)))
        self._taken = (window, taken)
        return taken

    def counts(self, rows: Any, window: RowWindow) -> dict[str, Any]:
        """Count rows that the method `rows` returned, with their smallest and largest cursor if these can be found."""
        try:
            return {"rows": len(rows)} | self._ends(window)
        except Exception as error:
            logger.debug("event=ends_uncounted source=%s error=%s", self.name, type(error).__name__)
            return {"rows": len(rows)}

    def _ends(self, window: RowWindow) -> dict[str, Any]:
        column = window.columns[0]
        if column.type == "string":
            return {}
        values = self._values(column.name)[1]
        if self._taken is not None and self._taken[0] == window:
            values = values.filter(self._taken[1])
        return {name: as_cursor(column, value) for name, value in _ends_of(values).items()}

    def _cursor_at(self, columns: tuple[CursorColumn, ...], taken: pa.Array, position: int, order: str) -> Bound | None:
        """Sort the taken rows and return the cursor at a position, counted from 0; None if there are fewer rows."""
        arrays = [self._values(column.name)[1] for column in columns]
        names = [str(number) for number in range(len(columns))]
        table = pa.table(arrays, names=names).filter(taken)
        if table.num_rows <= position:
            return None
        row = pc.select_k_unstable(table, position + 1, [(name, order) for name in names])[position].as_py()
        pairs = zip(columns, table.columns, strict=True)
        return tuple(as_cursor(column, values[row].as_py()) for column, values in pairs)

    def _nulls(self, columns: tuple[CursorColumn, ...]) -> pa.Array:
        """Return, for each row, whether it has NULL in one of the columns."""
        return reduce(pc.or_, [pc.is_null(self._values(column.name)[1]) for column in columns])

    def _values(self, name: str) -> tuple[str, pa.Array]:
        """Return a column's type, and its values as whole numbers, exact decimals or texts."""
        if name not in self._read:
            array, of_objects = self._array(name)
            self._read[name] = _encoded(name, array, of_objects)
        return self._read[name]

    def _past(self, columns: tuple[CursorColumn, ...], bound: Bound, sign: str) -> pa.Array:
        """Return for each row whether its cursor is on the side of `bound` that `sign` (such as ``>=``) names."""
        known = [(column, value) for column, value in zip(columns, bound, strict=True) if value is not None]
        # (a, b) < (1, 2) means: a < 1, or a = 1 and b < 2.
        choices = []
        equal_before = None
        for position, (column, value) in enumerate(known):
            values = self._values(column.name)[1]
            is_last = position == len(known) - 1
            here = _compared(values, sign if is_last else sign[0], column, value)
            equal_here = _compared(values, "=", column, value)
            if equal_before is None:
                choices.append(here)
                equal_before = equal_here
            else:
                choices.append(pc.and_(equal_before, here))
                equal_before = pc.and_(equal_before, equal_here)
        return reduce(pc.or_, choices)


def ends_of_column(name: str, rows: pa.Table) -> dict[str, Any]:
    """Return ``minimum`` and ``maximum`` of a column, to pass to `as_cursor`; an empty map if it has no value."""
    return _ends_of(_encoded(name, rows[name], of_objects=False)[1])


def _ends_of(values: pa.Array) -> dict[str, Any]:
    ends = pc.min_max(values)
    names = {"minimum": "min", "maximum": "max"} if ends["min"].is_valid else {}
    return {name: ends[end].as_py() for name, end in names.items()}


def _encoded(name: str, array: pa.Array, of_objects: bool) -> tuple[str, pa.Array]:
    """Return Spark's name of a column's type, and its values in a form that compares exactly."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _encoded(name, array.dictionary_decode(), of_objects)
    if pa.types.is_timestamp(kind):
        return ("timestamp" if kind.tz else "timestamp_ntz"), _microseconds(name, array)
    if pa.types.is_date32(kind):
        return "date", array.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_date64(kind):
        return _encoded(name, array.cast(pa.date32()), of_objects)
    whole = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "uint8": "smallint",
             "uint16": "int", "uint32": "bigint"}  # fmt: skip
    if str(kind) in whole:
        return whole[str(kind)], array.cast(pa.int64())
    if str(kind) == "uint64":
        return "decimal(20,0)", array.cast(pa.decimal256(DECIMALS, 0))
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        spark = OBJECTS if of_objects else f"decimal({kind.precision},{kind.scale})"
        precision, scale = decimal_type(spark)
        if kind.scale > scale or (kind.precision - kind.scale) > precision - scale:
            raise CursorError(
                name, f"its values have more digits than a {spark}. Give the column an Arrow decimal type."
            )
        return spark, array.cast(pa.decimal256(DECIMALS, scale))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string", array.cast(pa.large_string())
    if pa.types.is_null(kind):
        raise CursorError(
            name, "it has no value and no type. Give it one, as in df.astype({name: 'datetime64[us, UTC]'})."
        )
    raise unordered(name, "double" if pa.types.is_floating(kind) else str(kind))


def _microseconds(name: str, array: pa.Array) -> pa.Array:
    """Return times as microseconds since 1970, rounded down; raise CursorError if one does not fit 64 bits."""
    units = {"s": 1_000_000, "ms": 1_000, "us": 1}
    values = array.cast(pa.int64())
    if array.type.unit in units:
        try:
            return pc.multiply_checked(values, units[array.type.unit])
        except pa.ArrowInvalid:
            raise CursorError(name, UNREADABLE) from None
    # Round down, so that times equal those read from texts, which are cut to microseconds. Arrow rounds up before 1970.
    towards_zero = pc.divide(values, NS_PER_US)
    above = pc.greater(pc.multiply(towards_zero, NS_PER_US), values)
    return pc.subtract(towards_zero, above.cast(pa.int64()))


def _compared(values: pa.Array, sign: str, column: CursorColumn, value: Cursor) -> pa.Array:
    number: Any = value
    if column.is_time:
        number = as_number(value, column.type) - (FIRST_DAY if column.type == "date" else 0)
    elif column.is_number and pa.types.is_decimal(values.type):
        number = Decimal(number)
    # Arrow cannot hold a bound just outside of 64 bits, so do not compare: all values are on the same side of it.
    if pa.types.is_int64(values.type) and number in OUTSIDE:
        always = sign[0] == ("<" if number > 0 else ">")
        return pc.if_else(pc.is_valid(values), always, pa.scalar(None, pa.bool_()))
    functions = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal, "=": pc.equal}
    return functions[sign](values, pa.scalar(number, values.type))


def as_cursor(column: CursorColumn, value: Any) -> Cursor:
    """Turn a value of `_encoded`, such as microseconds, into a cursor; raise CursorError if Python cannot hold it."""
    if not column.is_time:
        found: Cursor = value
        return found
    try:
        return from_number(value + (FIRST_DAY if column.type == "date" else 0), column.type)
    except (OverflowError, ValueError) as error:
        raise CursorError(
            column.name, "its largest value is outside the years 1 to 9999. Fix or filter that row."
        ) from error


# --- pyarrow ------------------------------------------------------------------------------------


def is_arrow(source: Any) -> TypeGuard[pa.Table | pa.RecordBatch]:
    """Return whether an object is a pyarrow table or record batch, without importing pyarrow.

    Raises
    ------
    SourceError
        The object is a reader, a dataset or a scanner of pyarrow.
    """
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None:
        return False
    for kind in type(source).__mro__:
        if kind.__module__.startswith("pyarrow") and kind.__name__ in HOW_TO_READ:
            raise SourceError(
                kind.__name__, f"its rows could be others at the next look. Give .{HOW_TO_READ[kind.__name__]} of it."
            )
    return isinstance(source, (getattr(pyarrow, "Table", ()), getattr(pyarrow, "RecordBatch", ())))


class ArrowRows(MemoryRows["pa.Table"]):
    """The rows of a pyarrow table or record batch; does not need Spark, and returns pyarrow tables.

    Types are those of `PandasRows`: timestamps with a zone are ``timestamp``, others ``timestamp_ntz``, and both are
    compared in whole microseconds of UTC, whatever their unit.

    Parameters
    ----------
    table
        All rows, or at least those past the watermark.
    zone
        The zone of dates and of columns without zone, as for `DataFrameRows`.
    name
        The name of the source, for messages.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = ArrowRows(pa.table({"id": [3, 1, 2]}))
    >>> rows.facts(rows.columns(["id"], strings=False), None, descending=False).largest
    (3,)
    """

    def __init__(self, table: pa.Table | pa.RecordBatch, *, zone: str | None = None, name: str = "Table") -> None:
        super().__init__(zone, name)
        self.table: pa.Table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])

    def _rows_where(self, taken: pa.Array | None) -> pa.Table:
        return self.table if taken is None else self.table.filter(taken)

    def _array(self, name: str) -> tuple[pa.Array, bool]:
        there = self.table.column_names
        if there.count(name) != 1:
            raise missing_column(name, there)
        column = self.table.column(name)
        # Use 64-bit offsets: all chunks together may be too long for the 32-bit offsets of a string array.
        if pa.types.is_string(column.type):
            column = column.cast(pa.large_string())
        try:
            found = column.combine_chunks()
        except pa.ArrowException:
            raise CursorError(name, "its chunks are too large to be joined. Give the rows in smaller tables.") from None
        return found, False


# --- pandas -------------------------------------------------------------------------------------


def is_pandas(source: Any) -> TypeGuard[pd.DataFrame]:
    """Return whether an object is a pandas DataFrame, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, getattr(pandas, "DataFrame", ()))


class PandasRows(MemoryRows["pd.DataFrame"]):
    """The rows of a pandas DataFrame; requires pyarrow, but not Spark.

    Types are those that pyarrow finds: aware datetimes are ``timestamp``, others ``timestamp_ntz``, and both
    are compared in whole microseconds of UTC, whatever their unit. A column of whole numbers becomes floats
    when pandas adds NaN to it, and is then refused: read it as ``Int64``. A column of Python objects must
    hold objects of one type.

    Parameters
    ----------
    frame
        All rows, or at least those past the watermark.
    zone
        The zone of dates and of columns without zone, as for `DataFrameRows`.
    name
        The name of the source, for messages.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = PandasRows(pd.DataFrame({"id": [3, 1, 2]}))
    >>> rows.facts(rows.columns(["id"], strings=False), None, descending=False).largest
    (3,)
    """

    def __init__(self, frame: pd.DataFrame, *, zone: str | None = None, name: str = "DataFrame") -> None:
        super().__init__(zone, name)
        self.frame = frame

    def _rows_where(self, taken: pa.Array | None) -> pd.DataFrame:
        return self.frame if taken is None else self.frame[taken.to_numpy(zero_copy_only=False)]

    def _array(self, name: str) -> tuple[pa.Array, bool]:
        there = [str(column) for column in self.frame.columns]
        if there.count(name) != 1:
            raise missing_column(name, there)
        series = self.frame.iloc[:, there.index(name)]
        # Refuse mixed types. pyarrow joins some to one type without an error, such as datetimes with and without
        # zone, which would then compare differently than in their source.
        of_objects = str(series.dtype) == "object"
        kinds = {kind_of_object(value) for path, value in values_within(series) if not path} if of_objects else set()
        if len(kinds) > 1:
            raise CursorError(
                name, f"its values are not all of one type ({series.dtype}): {', '.join(sorted(kinds))}. Give it one."
            )
        try:
            array = pa.Array.from_pandas(series)
        except OverflowError:
            raise CursorError(
                name, "it holds numbers of more than 64 bits. Give it an Arrow decimal type, as in df.astype."
            ) from None
        except (pa.ArrowException, TypeError, ValueError):
            raise CursorError(
                name, f"its values are not all of one type ({series.dtype}). Give it one, as in df.astype."
            ) from None
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        return array, of_objects


def values_within(values: Iterable[Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a column of objects that are not NULL, and those within lists and maps, each with its path.

    All values of a type in `ALIKE`, such as str, have the same kind, so yield only the first of them at each path.
    """
    maps, lists, seen = [], [], set()
    is_list, is_null = pd.api.types.is_list_like, pd.isna
    for value in values:
        kind = type(value)
        if kind in seen:
            continue
        if kind in ALIKE:
            seen.add(kind)
        if isinstance(value, dict):
            maps.append(value)
        elif is_list(value):
            # Take only the first value of an array: all its values have the same type, unless they are objects.
            lists.append(value if getattr(value, "dtype", "O") == "O" else value[:1])
        # Keep Decimal("NaN"), which pandas treats as a missing value.
        elif kind is Decimal or not is_null(value):
            yield path, value
    yield from ((path, value) for value in (*maps[:1], *lists[:1]))
    for key in dict.fromkeys(chain.from_iterable(maps)):
        yield from values_within((value[key] for value in maps if key in value), f"{path}.{key}")
    if lists:
        yield from values_within(chain.from_iterable(lists), path + "[]")


def kind_of_object(value: object) -> str:
    """Return a name for the kind of an object; objects of the same kind can be compared."""
    if isinstance(value, datetime):
        return "datetime" if value.tzinfo is None else "aware datetime"
    kinds = (name for name, types in KINDS.items() if isinstance(value, types))
    # Old versions of numpy name a type bool_.
    return next(kinds, type(value).__name__.rstrip("_"))
