"""Records: rows as the dictionaries that functions of a script get and return, and which types those have.

As in Glue a field without a value is absent: ``record["x"]`` raises KeyError, and ``record.get("x")`` is None. Spark
does not tell a NULL from a field that is missing, so both are absent here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, F, SparkSession, T
from scripts.helpers.errors import GlueOptionError
from scripts.helpers.glue.choices import MARK, glue_name, is_choice
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.spark.jvm import rdd_of

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)

Record = dict[str, Any]
BITS = {"byte": 7, "short": 15, "int": 31, "long": 63}
"""Of whole numbers, without the sign."""
INT = range(-(2**31), 2**31)
LONG = range(-(2**63), 2**63)
MAX_DIGITS = 38
"""Of a decimal of Spark."""


def record_of(row: Any, schema: T.StructType) -> Record:
    """Return a row of Spark as a record. A choice is its value."""
    found: Record = {}
    for value, part in zip(row, schema.fields, strict=True):
        if value is not None:
            found[part.name] = _plain(value, part)
    return found


def kept(df: DataFrame, f: Callable[[Record], Any]) -> DataFrame:
    """Return the rows for whose record a function is true; a KeyError, ValueError or TypeError of it counts as false.

    The function answers yes or no, and Spark keeps the rows: they do not pass through Python, and lose nothing there.
    """
    schema = df.schema
    answer = F.udf(partial(_holds, f, schema), "boolean")
    return df.where(answer(F.struct(*map(SPARK.quote, df.columns))))


def mapped(df: DataFrame, f: Callable[[Record], Record]) -> DataFrame:
    """Return what a function makes of each record, in the types that it returns.

    The function runs twice, as in Glue: once for the types of what it returns, and again for the rows.

    Raises
    ------
    GlueOptionError
        When the rows are read: it returned something else than a record, or a value of a type that Spark does not have.
    """
    schema = df.schema
    records = rdd_of(df).map(lambda row: _checked(f(record_of(row, schema))))
    return frame_of(df.sparkSession, records, schema)


def frame_of(spark: SparkSession, records: RDD[Record], known: T.StructType | None = None) -> DataFrame:
    """Return records as rows; a field whose values have several types is a choice.

    Parameters
    ----------
    known
        Types that fields keep whose values still fit.
    """
    schema = shape_of(records).schema(known)
    return spark.createDataFrame(records.map(lambda record: _row(record, schema)), schema, verifySchema=False)


def shape_of(records: RDD[Record]) -> RecordShape:
    """Return which types the values of records have."""

    def of_partition(part: Iterable[Record]) -> Iterator[RecordShape]:
        shape = RecordShape()
        for record in part:
            shape.add(record)
        yield shape

    return records.mapPartitions(of_partition).fold(RecordShape(), RecordShape.merged)


@dataclass
class RecordShape:
    """Which types of values were seen at one place.

    Attributes
    ----------
    scalars
        Glue's names of the types without parts.
    low, high
        The smallest and largest whole number.
    digits, places
        Of decimals: digits before and behind the point.
    fields
        Of records, by name; None if there was none.
    element
        Of all lists; None if there was none.
    """

    scalars: set[str] = field(default_factory=set)
    low: int = 0
    high: int = 0
    digits: int = 0
    places: int = 0
    fields: dict[str, RecordShape] | None = None
    element: RecordShape | None = None

    def add(self, value: Any) -> None:
        """See one value."""
        if value is None:
            return
        if isinstance(value, Mapping):
            self.fields = {} if self.fields is None else self.fields
            for name, part in value.items():
                self.fields.setdefault(str(name), RecordShape()).add(part)
        elif isinstance(value, list | tuple):
            self.element = self.element or RecordShape()
            for part in value:
                self.element.add(part)
        else:
            self.scalars.add(_scalar(value))
            if isinstance(value, int):
                self.low, self.high = min(self.low, int(value)), max(self.high, int(value))
            if isinstance(value, Decimal):
                _, digits, exponent = value.as_tuple()
                self.places = max(self.places, -int(exponent), 0)
                self.digits = max(self.digits, len(digits) + int(exponent), 0)

    def merged(self, other: RecordShape) -> RecordShape:
        """Return what either has seen."""
        found = RecordShape(
            self.scalars | other.scalars, min(self.low, other.low), max(self.high, other.high),
            max(self.digits, other.digits), max(self.places, other.places),
        )  # fmt: skip
        if self.fields is not None or other.fields is not None:
            mine, theirs = self.fields or {}, other.fields or {}
            found.fields = {}
            for name in dict.fromkeys((*mine, *theirs)):
                found.fields[name] = mine.get(name, RecordShape()).merged(theirs.get(name, RecordShape()))
        if self.element is not None or other.element is not None:
            found.element = (self.element or RecordShape()).merged(other.element or RecordShape())
        return found

    def schema(self, known: T.StructType | None = None) -> T.StructType:
        """Return the fields of the records that were seen, those that are known first and in their order.

        Raises
        ------
        GlueOptionError
            A whole number beyond 64 bits, or a decimal of more than 38 digits.
        """
        before = {part.name: part for part in known.fields} if known is not None else {}
        fields = self.fields or {}
        names = [name for name in before if name in fields] + [name for name in fields if name not in before]
        return T.StructType([fields[name].named(name, before.get(name)) for name in names])

    def named(self, name: str, known: T.StructField | None = None) -> T.StructField:
        """Return a field for the values that were seen, a choice where they have several types."""
        if known is not None and self.fits(known):
            return known
        kinds = self.kinds(name)
        if not kinds:
            # Nothing but NULLs: text takes whatever comes later, and files have no type of NULL.
            return T.StructField(name, T.StringType())
        if len(kinds) == 1:
            return T.StructField(name, kinds[0])
        parts = [T.StructField(glue_name(kind), kind) for kind in kinds]
        return T.StructField(name, T.StructType(parts), metadata={MARK: True})

    def kinds(self, name: str) -> list[T.DataType]:
        """Return the types that the values need."""
        found: list[T.DataType] = []
        for scalar in sorted(self.scalars):
            if scalar == "int":
                if self.low not in LONG or self.high not in LONG:
                    raise GlueOptionError(name, "has a whole number beyond 64 bits. Make it a text or a Decimal.")
                found.append(T.IntegerType() if self.low in INT and self.high in INT else T.LongType())
            elif scalar == "decimal":
                if self.digits + self.places > MAX_DIGITS:
                    raise GlueOptionError(name, f"has decimals of more than {MAX_DIGITS} digits. Round them.")
                found.append(T.DecimalType(max(self.digits + self.places, 1), self.places))
            else:
                found.append(T._parse_datatype_string(scalar))
        if self.fields is not None:
            found.append(self.schema())
        if self.element is not None:
            inner = self.element.named("element")
            if is_choice(inner.metadata):
                logger.warning("event=mixed_list field=%s: its elements have several types, and become texts", name)
                found.append(T.ArrayType(T.StringType()))
            else:
                found.append(T.ArrayType(inner.dataType))
        return found

    def fits(self, known: T.StructField) -> bool:
        """Tell whether all values that were seen may be of a type."""
        kind = known.dataType
        if is_choice(known.metadata):
            return False
        if isinstance(kind, T.ArrayType):
            element = T.StructField("element", kind.elementType)
            return not self.scalars and self.fields is None and (self.element is None or self.element.fits(element))
        if self.element is not None:
            return False
        if isinstance(kind, T.StructType):
            parts = {part.name: part for part in kind.fields}
            fields = self.fields or {}
            return (
                not self.scalars
                and set(fields) <= set(parts)
                and all(fields[name].fits(parts[name]) for name in fields)
            )
        if isinstance(kind, T.MapType):
            value = T.StructField("value", kind.valueType)
            is_text = kind.keyType.typeName() == "string"
            return is_text and not self.scalars and all(part.fits(value) for part in (self.fields or {}).values())
        return self.fields is None and self._fits_scalar(kind)

    def _fits_scalar(self, kind: T.DataType) -> bool:
        name = glue_name(kind)
        if name in BITS:
            return self.scalars <= {"int"} and -(2 ** BITS[name]) <= self.low and self.high < 2 ** BITS[name]
        if isinstance(kind, T.DecimalType):
            limit = 10 ** (kind.precision - kind.scale)
            is_whole_small = -limit < self.low and self.high < limit
            is_small = self.places <= kind.scale and self.digits <= kind.precision - kind.scale
            return self.scalars <= {"decimal", "int"} and is_whole_small and is_small
        if name == "float":
            return False  # Python has doubles only, which may have more digits.
        return self.scalars <= {"timestamp" if name == "timestamp_ntz" else name}


def _scalar(value: Any) -> str:
    """Return Glue's name of a value's type. The order counts: True is an int, and a datetime a date."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "boolean"), (int, "int"), (float, "double"), (str, "string"), (Decimal, "decimal"),
        ((bytes, bytearray), "binary"), (datetime, "timestamp"), (date, "date"),
    )  # fmt: skip
    for kind, name in kinds:
        if isinstance(value, kind):
            return name
    raise GlueOptionError("f", f"returned a record with a {type(value).__name__}, a type that Spark does not have.")


def _checked(record: Any) -> Record:
    if not isinstance(record, Mapping):
        raise GlueOptionError("f", f"returned {type(record).__name__}. Return the record, changed.")
    return dict(record)


def _holds(f: Callable[[Record], Any], schema: T.StructType, row: Any) -> bool:
    try:
        return bool(f(record_of(row, schema)))
    except (KeyError, ValueError, TypeError):
        return False


def _plain(value: Any, part: T.StructField) -> Any:
    kind = part.dataType
    if is_choice(part.metadata):
        inner = next((i for i, each in enumerate(value) if each is not None), None)
        return None if inner is None else _plain(value[inner], kind.fields[inner])  # type: ignore[attr-defined]
    if isinstance(kind, T.StructType):
        return record_of(value, kind)
    if isinstance(kind, T.ArrayType):
        return [_plain_of(each, kind.elementType) for each in value]
    if isinstance(kind, T.MapType):
        return {key: _plain_of(each, kind.valueType) for key, each in value.items()}
    return value


def _plain_of(value: Any, kind: T.DataType) -> Any:
    return None if value is None else _plain(value, T.StructField("value", kind))


def _row(record: Mapping[str, Any], schema: T.StructType) -> tuple[Any, ...]:
    return tuple(_spark(record.get(part.name), part) for part in schema.fields)


def _spark(value: Any, part: T.StructField) -> Any:
    """Return a value of a record as Spark takes it."""
    kind = part.dataType
    if value is None:
        return None
    if is_choice(part.metadata):
        assert isinstance(kind, T.StructType)
        shape = RecordShape()
        shape.add(value)
        own = next(i for i, each in enumerate(kind.fields) if shape.fits(each))
        return tuple(_spark(value, each) if i == own else None for i, each in enumerate(kind.fields))
    if isinstance(kind, T.StructType):
        return _row(value, kind)
    if isinstance(kind, T.ArrayType):
        return [_spark(each, T.StructField("element", kind.elementType)) for each in value]
    if isinstance(kind, T.MapType):
        return {key: _spark(each, T.StructField("value", kind.valueType)) for key, each in value.items()}
    if isinstance(kind, T.DecimalType) and isinstance(value, int):
        return Decimal(value)
    if isinstance(kind, T.StringType) and not isinstance(value, str):
        return json.dumps(value, default=str)  # of a list whose elements have several types
    if isinstance(value, datetime) and value.tzinfo is None and kind.typeName() == "timestamp":
        # Spark would pass over `fold`: of the hour that clocks go through twice, one would become the other.
        return value.astimezone(timezone.utc)
    return value
