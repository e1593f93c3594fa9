"""`verify`: compare the rows of a source below the watermark with those of the target, interval by interval."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Protocol

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, pa
from scripts.helpers.batch.rows import as_rows
from scripts.helpers.errors import CursorError, InvalidValueError, UnpublishedError
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.cursors import Bound, Cursor, CursorColumn, as_list, decimal_type
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.identity import check_same_source
from scripts.helpers.rows.memory import MemoryRows
from scripts.helpers.rows.sources import UNKNOWN, RowSource
from scripts.helpers.rows.sql import SQL, joined, sql
from scripts.helpers.rows.verification import (
    Choice,
    Compared,
    Difference,
    Span,
    Verification,
    covered_below,
    difference_of,
    is_nested_type,
    verified,
)
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.sinks.targets import target_rows

if TYPE_CHECKING:
    from scripts.helpers.watermarks import Watermarks

logger = logging.getLogger(__name__)


def verify(
    watermarks: Watermarks,
    job_id: str,
    context: str,
    source: Any,
    target: Any,
    *,
    choice: Choice,
    format: str = "parquet",
    columns: Sequence[str] | None = None,
    exact: bool | None = None,
    spark: SparkSession | None = None,
    s3_client: S3Client | None = None,
) -> Verification:
    """Compare the rows of a source below the committed watermark with its target; see `IncrementalJob.verify`."""
    state = watermarks.progress.state(job_id, context)
    head = watermarks.latest(job_id)
    if head.unpublished:
        raise UnpublishedError(job_id, head.version, head.unpublished[0].target)
    first, given = state.columns[0], state.value
    watermark = None if given is None else given[0]
    if given is None or watermark is None:
        raise InvalidValueError(f"Context {context!r} of job {job_id!r} has read no row yet: nothing can be verified.")
    if state.descending:
        raise InvalidValueError(
            f"Context {context!r} of job {job_id!r} reads downwards: rows above its first one come later, and "
            "nothing is frozen. Compare the two sides by hand."
        )
    names = state.names
    rows = as_rows(source, context)
    check_same_source(state.source, rows.identity(), context, job_id)
    ours = rows.columns(names, strings=True)[0]
    engine = _engine_of(rows, ours)
    there = target
    if isinstance(target, (str, PathLike)):
        there = target_rows(fspath(target), format, spark or engine.session, s3_client)
    other = as_rows(there, "target")
    theirs = other.columns(names, strings=True)[0]
    if type(_engine_of(other, theirs)) is not type(engine):
        raise InvalidValueError(
            f"{rows.name} is read by {engine.name}, and the target {other.name} is not. Give both as frames or tables "
            "of Spark, or both as frames of pandas or tables of pyarrow."
        )
    for column in (ours, theirs):
        _as_column_type(column, watermark)
    compared = Compared.of(engine.types(rows, ours), engine.types(other, theirs), columns)
    _warn_of_nulls(rows, ours, watermark, job_id, context)
    covered = covered_below(watermarks.progress.coverage(job_id, context), tuple(given) if given[1:] else watermark)
    if not covered:
        raise InvalidValueError(
            f"No run of context {context!r} of job {job_id!r} has read a range below its watermark, which was set by "
            "hand or by start_from: nothing can be verified."
        )
    is_open = any(low is None for low, _ in covered)
    spans, total = choice.spans(first, covered, _smallest(rows, ours) if is_open else None)
    is_exact = not first.is_time if exact is None else exact
    found = []
    for span in spans:
        # Count the target before the source. A row that is updated, and merged by a run, between the counts leaves this
        # interval. With the target counted last, only the source's count would have the row, which would seem lost.
        target_counts = engine.counts(other, _window(other, names, span), compared.kinds)
        source_counts = engine.counts(rows, _window(rows, names, span), compared.kinds)
        difference = Difference()
        if source_counts != target_counts:
            difference = engine.difference(rows, other, names, span, compared.kinds)
        found.append(verified(span, source_counts[0], target_counts[0], difference, exact=is_exact))
    result = Verification(found, job_id, context, total, compared)
    logger.info(
        "event=verified job=%s context=%s intervals=%d of=%d differing=%d columns=%d left_out=%d",
        job_id, context, len(found), total, len(result.differing), len(compared.kinds), len(compared.left_out),
    )  # fmt: skip
    return result


def _warn_of_nulls(rows: RowSource, column: CursorColumn, watermark: Cursor, job_id: str, context: str) -> None:
    """Log how many rows of the source are not compared because they have no cursor."""
    # Let `facts` begin at the watermark, so that it reads few rows. A database counts the NULLs by its index.
    nulls = rows.facts((column,), (_as_column_type(column, watermark),), descending=False).nulls
    if nulls:
        logger.warning(
            "event=nulls_not_compared job=%s context=%s column=%s rows=%d: rows with NULL as cursor are in no "
            "interval, so they are not compared. Compare them by hand.",
            job_id, context, column.name, nulls,
        )  # fmt: skip


def _smallest(rows: RowSource, column: CursorColumn) -> Cursor | None:
    """Return the smallest cursor of a source, by a single index lookup if the source supports it."""
    # Ask for the last cursor in descending order, which is the smallest one.
    bound = rows.last((column,), True)
    if bound is UNKNOWN:
        bound = rows.facts((column,), None, True).smallest
    return None if bound is None else bound[0]


def _window(rows: RowSource, names: Sequence[str], span: Span) -> RowWindow:
    """Return an interval as a window of `rows`, with their types; CursorError if a bound does not fit these types."""
    ends = [(*as_list(end),) if end is not None else None for end in span]
    used = max(len(end) for end in ends if end is not None)
    columns = tuple(rows.columns(names[:used], strings=True))
    # One bound may have fewer values than the other. `_bound` adds None for the rest, which sorts before all values.
    low, high = (None if end is None else _bound(columns, end) for end in ends)
    return RowWindow(columns, low, high)


def _bound(columns: Sequence[CursorColumn], end: Bound) -> Bound:
    padded = [*end, *[None] * (len(columns) - len(end))]
    return tuple(
        None if value is None else _as_column_type(column, value) for column, value in zip(columns, padded, strict=True)
    )


def _as_column_type(column: CursorColumn, value: Cursor) -> Cursor:
    # Convert the value: a column may be a decimal on one side and a whole number on the other.
    if isinstance(value, int) and decimal_type(column.type)[0]:
        value = Decimal(value)
    elif isinstance(value, Decimal) and not decimal_type(column.type)[0] and value == value.to_integral_value():
        value = int(value)
    try:
        return column.check(value)
    except CursorError:
        raise CursorError(
            column.name,
            f"it is a {column.type} on one side, and the watermark is a {type(value).__name__}. Cast it.",
        ) from None


# --- how rows are counted and compared ------------------------------------------------------------


class Comparer(Protocol):
    """An engine that reads and compares rows: Spark, or pyarrow in memory."""

    name: str
    session: SparkSession | None

    def types(self, rows: RowSource, column: CursorColumn) -> dict[str, str]:
        """Return the types of a source's columns, by Spark's names."""

    def counts(self, rows: RowSource, window: RowWindow, kinds: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of rows in an interval, and a checksum of them that does not depend on their order."""

    def difference(
        self, source: RowSource, target: RowSource, names: Sequence[str], span: Span, kinds: Mapping[str, str]
    ) -> Difference:
        """Compare the rows of an interval, one by one."""


def _engine_of(rows: RowSource, column: CursorColumn) -> Comparer:
    if isinstance(rows, MemoryRows):
        return ArrowEngine()
    nothing = rows.rows(RowWindow((column,), None, None))
    return ArrowEngine() if isinstance(nothing, ArrowStream) else SparkEngine(nothing.sparkSession)


class SparkEngine:
    """Hashes rows on Spark's executors, so that only counts and sums are sent to the driver."""

    name = "Spark"

    def __init__(self, session: SparkSession) -> None:
        self.session: SparkSession | None = session

    def types(self, rows: RowSource, column: CursorColumn) -> dict[str, str]:
        """Return the types of a source's columns."""
        nothing = rows.rows(RowWindow((column,), None, None))
        return {field.name: field.dataType.simpleString() for field in nothing.schema.fields}

    def counts(self, rows: RowSource, window: RowWindow, kinds: Mapping[str, str]) -> tuple[int, int]:
        """Return how many rows there are, and the sum of their hashes."""
        with rows.typed_errors():
            found = self._hashes(rows, window, kinds).selectExpr("count(1)", "sum(CAST(hash AS DECIMAL(38,0)))").head()
        assert found is not None
        return int(found[0]), int(found[1] or 0)

    def difference(
        self, source: RowSource, target: RowSource, names: Sequence[str], span: Span, kinds: Mapping[str, str]
    ) -> Difference:
        """Compare the rows of an interval by their hashes."""
        with source.typed_errors(), target.typed_errors():
            # Read the target now, before the source: otherwise a row that a run merges in between would seem lost.
            there = self._hashes(target, _window(target, names, span), kinds).groupBy("hash").count()
            there = there.withColumnRenamed("count", "there").localCheckpoint(eager=True)
            here = self._hashes(source, _window(source, names, span), kinds).groupBy("hash").count()
            here = here.withColumnRenamed("count", "here")
            found = here.join(there, "hash", "full").selectExpr(
                "sum(greatest(coalesce(here, 0) - coalesce(there, 0), 0))",
                "sum(if(here IS NULL, there, 0))",
                "sum(if(here IS NULL, 0, greatest(coalesce(there, 0) - here, 0)))",
            ).head()  # fmt: skip
        assert found is not None
        return Difference(*(int(count or 0) for count in found))

    def _hashes(self, rows: RowSource, window: RowWindow, kinds: Mapping[str, str]) -> DataFrame:
        parts = []
        for name, kind in kinds.items():
            text = _spark_text(name, kind)
            # Hash whether a value is NULL: xxhash64 ignores NULL, so ('a', NULL) and (NULL, 'a') would be equal.
            parts += [sql("({}) IS NULL", text), sql("coalesce({}, '')", text)]
        hashed: DataFrame = rows.rows(window).selectExpr(sql("xxhash64({}) AS hash", joined(", ", parts)))
        return hashed


def _spark_text(name: str, kind: str) -> SQL:
    """Write a column as text so that equal values have equal texts, whatever its type on either side."""
    quoted = SPARK.quote(name)
    if is_nested_type(kind):
        # Set all options: by default, to_json omits fields that are NULL, and writes times only to the millisecond.
        return sql(
            "to_json({}, map('ignoreNullFields', 'false', 'timeZone', 'UTC', "
            "'timestampFormat', 'G yyyy-MM-dd HH:mm:ss.SSSSSSXXX', "
            "'timestampNTZFormat', 'G yyyy-MM-dd HH:mm:ss.SSSSSS', 'dateFormat', 'G yyyy-MM-dd'))",
            quoted,
        )
    value = sql("CAST({} AS {})", quoted, SPARK.type_name(kind))
    if kind == "double":
        # Adding 0.0 turns -0.0 into 0.0, which equals it but has another text.
        value = sql("{} + 0.0D", value)
    return sql("hex({})", value) if kind == "binary" else SPARK.exact(value, kind)


class ArrowEngine:
    """Hashes rows in memory, in Python."""

    name = "pyarrow"
    session: SparkSession | None = None

    def types(self, rows: RowSource, column: CursorColumn) -> dict[str, str]:
        """Return the types of a source's columns, by Spark's names."""
        nothing = _table(rows.rows(RowWindow((column,), None, None)))
        return {field.name: _kind_of(field.type) for field in nothing.schema}

    def counts(self, rows: RowSource, window: RowWindow, kinds: Mapping[str, str]) -> tuple[int, int]:
        """Return how many rows there are, and the sum of their hashes."""
        found = self._hashes(rows, window, kinds)
        return sum(found.values()), sum(int.from_bytes(digest, "big") * count for digest, count in found.items())

    def difference(
        self, source: RowSource, target: RowSource, names: Sequence[str], span: Span, kinds: Mapping[str, str]
    ) -> Difference:
        """Compare the rows of an interval by their hashes."""
        there = self._hashes(target, _window(target, names, span), kinds)
        return difference_of(self._hashes(source, _window(source, names, span), kinds), there)

    def _hashes(self, rows: RowSource, window: RowWindow, kinds: Mapping[str, str]) -> Counter[bytes]:
        table = _table(rows.rows(window))
        values = [_values(table.column(name), kind) for name, kind in kinds.items()]
        # Use 128 bits, with which two different rows practically never have the same hash.
        return Counter(
            hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            for row in zip(*values, strict=True)
        )


def _table(rows: Any) -> pa.Table:
    if isinstance(rows, ArrowStream):
        return rows.read_all()
    return rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)


def _kind_of(kind: pa.DataType) -> str:
    """Return Spark's name for a type of pyarrow, or pyarrow's name if Spark has no such type."""
    types = pa.types
    if types.is_dictionary(kind):
        return _kind_of(kind.value_type)
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_integer(kind):
        return "decimal(20,0)" if str(kind) == "uint64" else "bigint"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_floating(kind):
        return "double"
    if types.is_date(kind):
        return "date"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "binary"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{_kind_of(kind.value_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{_kind_of(field.type)}' for field in kind)}>"
    return {"bool": "boolean", "null": "void"}.get(str(kind), str(kind))


def _values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    """Return values so that equal values of source and target have the same `repr`, even if their types differ."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind in ("timestamp", "timestamp_ntz"):
        # Sinks write microseconds, so cut off finer digits here, too.
        micros = pa.timestamp("us", column.type.tz)
        return list(column.cast(micros, safe=False).cast(pa.int64()).to_pylist())
    if kind == "double":
        # Adding 0.0 turns -0.0 into 0.0, which equals it but has another `repr`.
        return [None if value is None else value + 0.0 for value in column.cast(pa.float64()).to_pylist()]
    precision, scale = decimal_type(kind)
    if precision:
        return list(column.cast(pa.decimal128(precision, scale)).to_pylist())
    return list(column.to_pylist())
