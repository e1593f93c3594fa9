"""Lines of CSV and JSON parsed by Spark, strictly: a record from which anything would be lost is marked with a reason.

Spark's own parsers drop what follows the first object of a line, shift values at a quote that they do not expect, and
replace bytes that are not of the encoding. All of this is found in the same parse: each line gets one more value at its
end, which arrives only if the parser came that far. Only lines for which it did not are looked at more closely.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import MisfitError
from scripts.helpers.rows.sql import SQL, sql, whole
from scripts.helpers.schemas.spark_frames import in_backticks, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

RECORD = "_glue_watermarks_record"
"""Where the text of a record is kept from which a value was lost."""
REASON = "_glue_watermarks_reason"
"""Why such a record is bad as a whole; NULL where single values of it do not fit."""
ROW = "_glue_watermarks_row"
UNPARSED, ENCODING, CASE = MisfitError.UNPARSED, MisfitError.ENCODING, MisfitError.CASE
_END = "_glue_watermarks_end"
_OF_FILES = {
    "header", "linesep", "multiline", "encoding", "charset", "enforceschema", "inferschema", "samplingratio", "mode",
    "columnnameofcorruptrecord", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath",
    "compression", "dropfieldifallnull", "primitivesasstring", "prefersdecimal", "preferdate", "prefersdate",
    "wholetext",
}  # fmt: skip
"""Options that are about files and their schemas, not about the text of one record."""
_REPLACED = "\ufffd"
_EXACT_TO = 2.0**53
"""Whole numbers up to here are doubles without loss."""


def of_records(options: Mapping[str, Any]) -> dict[str, str]:
    """Return those of a reader's options that are about the text of one record."""
    return {name: option_text(value) for name, value in options.items() if name.lower() not in _OF_FILES}


def asked_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as they are compared: Spark does not tell capitals in their names."""
    return {name.lower(): option_text(value) for name, value in options.items()}


def option_text(value: Any) -> str:
    """Write an option as Spark reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def marker(*, inferred: bool) -> StructField:
    """Return the field of `RECORD` in a schema that is read strictly; `inferred` if nobody asked for its types."""
    from pyspark.sql.types import StringType, StructField

    return StructField(RECORD, StringType(), metadata={"inferred": inferred})


def is_inferred(schema: StructType) -> bool:
    """Return what `marker` was made with."""
    return bool(schema[RECORD].metadata.get("inferred"))


def parsed(
    lines: DataFrame, format: str, fields: StructType, options: Mapping[str, Any], *, is_inferred: bool = False
) -> DataFrame:
    """Parse lines of CSV or JSON, and mark those from which a value would be lost.

    Parameters
    ----------
    lines
        The column ``record`` with the bytes of each line, in UTF-8, and others that stay.
    fields
        The columns of the records, in the order of the files for CSV.
    options
        Of Spark's reader.
    is_inferred
        Nobody asked for the types: a whole number that its column of doubles does not hold is lost.

    Returns
    -------
    DataFrame
        The other columns of `lines`, and the struct `ROW` of `fields`, `RECORD` and `REASON`. A value that was lost is
        NULL.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    # As one column, so that none of them is called as a step here is.
    names = [name for name in lines.columns if name != "record"]
    others = F.struct(F.lit(0).alias(RECORD), *map(quoted, names)).alias("others")
    # Times that are instants, whatever spark.sql.timestampType is. Spark 3.3 has no others.
    instant = sql("timestamp") if lines.sparkSession.version < "3.4" else sql("timestamp_ltz")
    syntax = (_Json if format == "json" else _Csv)(fields, of_records(options), instant)
    kinds = [syntax.kind_to_parse(field.dataType) for field in fields]
    to_parse = [StructField(field.name, kind) for field, kind in zip(fields, kinds, strict=True)]
    mark = StructField(RECORD, StringType())
    with_end = StructType([*to_parse, StructField(_END, StringType()), mark])
    is_old = int(lines.sparkSession.version.partition(".")[0]) < 4
    # One step each, or Spark would parse again for each column that is taken from a record.
    frame = lines.select(others, "record", syntax.with_end().alias("bytes"))
    # The decode of Spark 4 raises at bytes that are not UTF-8.
    frame = frame.select("*", F.expr("decode(bytes, 'UTF-8')" if is_old else "cast(bytes AS string)").alias("whole"))
    frame = frame.select("*", syntax.parse("whole", with_end).alias("parsed"))
    # Bytes are compared only where a sign says that some were replaced, or that the file has this sign itself.
    as_it_was = ~F.col("whole").contains(_REPLACED) | (F.encode("whole", "UTF-8") == F.col("bytes"))
    is_utf8 = as_it_was if is_old else F.expr("is_valid_utf8(whole)")
    ended = F.col("parsed").getField(RECORD).isNull() & F.col("parsed").getField(_END).isNotNull()
    is_fine = ended & is_utf8 & ~F.coalesce(syntax.is_doubtful(F.col("parsed")), F.lit(False))
    frame = frame.select("others", "record", "parsed", is_utf8.alias("is_utf8"), is_fine.alias("is_fine"))
    frame = frame.select("*", F.when(~F.col("is_fine"), F.col("record").cast("string")).alias("text"))
    frame = syntax.records(frame)
    again = F.when(F.col("text").isNotNull(), syntax.parse("text", StructType([*to_parse, mark])))
    frame = frame.select("*", again.alias("again"))
    reason = (
        F.when(F.col("is_fine"), F.lit(None))
        .when(~F.col("is_utf8"), ENCODING)
        .when(syntax.is_bad("text"), UNPARSED)
        .when(syntax.differs_by_case("text"), CASE)
    )
    values = []
    for index, name in enumerate(fields.names):
        parts = [F.col(struct).getField(name) for struct in ("parsed", "again")]
        values.append(F.when(F.col("is_fine"), parts[0]).otherwise(parts[1]).alias(f"value_{index}"))
    text = F.coalesce("text", F.col("record").cast("string"))
    is_marked = F.coalesce(F.col("again").getField(RECORD).isNotNull(), F.lit(False))
    frame = frame.select("others", text.alias("text"), is_marked.alias("is_marked"), reason.alias(REASON), *values)
    columns, lost = [], [F.col("is_marked"), F.col(REASON).isNotNull()]
    for index, field in enumerate(fields):
        value, kept = F.col(f"value_{index}"), syntax.converted(index, is_inferred=is_inferred)
        columns.append((value if kept is None else kept).alias(field.name))
        if kept is not None:
            lost.append(value.isNotNull() & kept.isNull())
    row = F.struct(*columns, F.when(reduce(or_, lost), F.col("text")).alias(RECORD), REASON)
    # As a list of one: Spark would push a filter by a value to before all steps, with each step in it many times.
    rows = F.explode_outer(F.array(row)).alias(ROW)
    return frame.select(*(F.col("others").getField(name).alias(name) for name in names), rows)


class _Syntax:
    """What both formats have in common."""

    as_text: tuple[str, ...] = ()
    """Types at whose values Spark 3's parser raises, by default: parsed as texts, and cast."""

    def __init__(self, fields: StructType, options: Mapping[str, str], instant: SQL) -> None:
        self.fields, self.options, self.instant = fields, dict(options), instant
        given = {name.lower(): value for name, value in options.items()}
        self.option = given.get

    def kind_to_parse(self, kind: DataType) -> DataType:
        """Return the type that the parser is asked for: one in which it loses nothing silently."""
        from pyspark.sql.types import DecimalType, StringType

        if self._is_as_text(kind):
            return StringType()
        if isinstance(kind, DecimalType):
            return DecimalType(38, 38 - kind.precision + kind.scale)
        return kind

    def _is_as_text(self, kind: DataType) -> bool:
        name = kind.typeName()
        is_plain = self.option(f"{name}format") is None and (name == "date" or self.option("timezone") is None)
        return name in self.as_text and is_plain

    def converted(self, index: int, *, is_inferred: bool) -> Column | None:
        """Return a parsed value in its own type, NULL if that does not hold it; None if it always does."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import DecimalType, DoubleType

        kind, name = self.fields[index].dataType, f"value_{index}"
        value = sql("value_{}", whole(index))
        if self._is_as_text(kind):
            return F.expr(sql("try_cast({} AS {})", value, sql("date") if kind.typeName() == "date" else self.instant))
        if isinstance(kind, DecimalType):
            written = sql("try_cast({} AS decimal({},{}))", value, whole(kind.precision), whole(kind.scale))
            return F.when(F.expr(written) == F.col(name), F.expr(written))
        if isinstance(kind, DoubleType) and is_inferred:
            text = self.value_text("text", index)
            digits = F.when(text.rlike(r"^-?\d{1,38}$"), text).cast("decimal(38,0)")
            # A value so large is rare: only then the record is parsed for its text.
            rounded = F.expr(sql("try_cast({} AS decimal(38,0))", value))
            is_exact = F.coalesce(digits == rounded, F.lit(True))
            return F.when((F.abs(F.col(name)) < _EXACT_TO) | is_exact, F.col(name))
        return None

    def value_text(self, name: str, index: int) -> Column:
        """Return the text of a value in a record."""
        raise NotImplementedError


class _Json(_Syntax):
    as_text = ("date",)

    def with_end(self) -> Column:
        """Return a line whose object has one more field: it is found only if nothing follows the object."""
        from pyspark.sql import functions as F  # noqa: N812

        start = F.expr("substring(record, 1, octet_length(record) - 1)")
        return F.concat(start, F.lit(bytearray(f',"{_END}":0}}'.encode())))

    def parse(self, name: str, schema: StructType) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        return F.from_json(name, schema, {**self.options, "columnNameOfCorruptRecord": RECORD})

    def is_doubtful(self, parsed: Column) -> Column:
        """Return whether a name may be one of the columns but for its case: some column has no value."""
        from pyspark.sql import functions as F  # noqa: N812

        is_absent = reduce(or_, _absent(parsed, self.fields), F.lit(False))
        names = sorted({re.escape(name) for name in _names(self.fields)})
        other_case = f'"(?!(?:{"|".join(names)})")(?i:{"|".join(names)})"\\s*:'
        return is_absent & F.col("whole").rlike(other_case) if names else F.lit(False)

    def records(self, frame: DataFrame) -> DataFrame:
        """Make rows of the objects on a line: those of a list, or several one after the other."""
        from pyspark.sql import functions as F  # noqa: N812

        text = F.col("text")
        trimmed = F.expr("trim(BOTH ' \t\r\n' FROM text)")
        elements = F.from_json(text, "array<string>")
        parts = F.split(text, r"(?<=\})\s*(?=\{)")
        several = (F.size(parts) > 1) & ~F.exists(parts, self._is_no_object)
        texts = (
            F.when(trimmed == "", F.array().cast("array<string>"))
            .when(trimmed.startswith("[") & ~self._is_no_object(trimmed), elements)
            .when(several, parts)
            .otherwise(F.array(text))
        )
        kept = [quoted(name) for name in frame.columns if name != "text"]
        rows = frame.select(*kept, F.explode_outer(F.when(~F.col("is_fine"), texts)).alias("text"))
        return rows.where(F.col("is_fine") | F.col("text").isNotNull())

    def is_bad(self, name: str) -> Column:
        """Return whether a text is anything but one object."""
        from pyspark.sql import functions as F  # noqa: N812

        return self._is_no_object(F.col(name)) | ~F.col(name).rlike(r"^\s*\{")

    def _is_no_object(self, text: Column) -> Column:
        """Return whether a text is neither one object nor a list of objects."""
        from pyspark.sql import functions as F  # noqa: N812

        is_list = text.rlike(r"^\s*\[")
        start, end = F.when(is_list, '{"r":').otherwise('{"r":['), F.when(is_list, "").otherwise("]")
        whole = F.from_json(
            F.concat(start, text, end, F.lit(f',"{_END}":0}}')),
            f"r array<map<string,string>>, {_END} int", self.options or None,
        )  # fmt: skip
        found = whole.getField("r")
        has_null = F.exists(found, lambda each: each.isNull())
        wrong = whole.getField(_END).isNull() | found.isNull() | has_null | (~is_list & (F.size(found) != 1))
        return F.coalesce(wrong, F.lit(True))

    def differs_by_case(self, name: str) -> Column:
        """Return whether a name in a record is that of a column but for its case, at any depth."""
        from pyspark.sql import functions as F  # noqa: N812

        return F.coalesce(_differs(F.col(name), self.fields), F.lit(False))

    def value_text(self, name: str, index: int) -> Column:
        """Return the text of a value in a record."""
        from pyspark.sql import functions as F  # noqa: N812

        return value_of(F.from_json(name, "map<string,string>", self.options or None), self.fields.names[index])


def value_of(texts: Column, name: str) -> Column:
    """Return the value of a key of a map, NULL without it: Spark 3.3 raises an error for that in ANSI mode."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(F.array_contains(F.map_keys(texts), name), texts[name])


def _names(kind: DataType) -> Iterator[str]:
    """Return the names of fields at all depths of a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for field in kind:
            yield field.name
            yield from _names(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _names(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _names(kind.valueType)


def _absent(value: Column, kind: StructType) -> Iterator[Column]:
    """Return what is true if a field has no value. Lists and maps of structs are always looked at."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    for field in kind:
        one = value.getField(field.name)
        yield one.isNull()
        if isinstance(field.dataType, StructType):
            yield from _absent(one, field.dataType)
        elif any(True for _ in _names(field.dataType)):
            yield F.lit(True)


def _differs(text: Column, kind: DataType) -> Column:
    """Return whether a text of JSON has a name that differs by case only from one of a type."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not any(True for _ in _names(kind)):
        return F.lit(False)
    if isinstance(kind, ArrayType):
        elements, within = F.from_json(text, "array<string>"), kind.elementType
        return F.coalesce(F.exists(elements, lambda one: _differs(one, within)), F.lit(False))
    found = F.from_json(text, "map<string,string>")
    if isinstance(kind, MapType):
        within = kind.valueType
        return F.coalesce(F.exists(F.map_values(found), lambda one: _differs(one, within)), F.lit(False))
    assert isinstance(kind, StructType)
    names = list(kind.names)

    def is_other(key: Column) -> Column:
        return F.lower(key).isin([name.lower() for name in names]) & ~key.isin(names)

    here = F.coalesce(F.exists(F.map_keys(found), is_other), F.lit(False))
    return reduce(or_, [_differs(value_of(found, field.name), field.dataType) for field in kind], here)


class _Csv(_Syntax):
    as_text = ("date", "timestamp")

    def with_end(self) -> Column:
        """Return a line with one more value: it is lost within quotes that are not closed."""
        from pyspark.sql import functions as F  # noqa: N812

        return F.concat(F.col("record"), F.lit(bytearray(f"{self._separator}0".encode())))

    @property
    def _separator(self) -> str:
        # As Spark writes a tabulator in its options.
        return (self.option("sep") or self.option("delimiter") or ",").replace("\\t", "\t")

    def parse(self, name: str, schema: StructType, **more: str) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        kinds = [re.sub("^timestamp$", self.instant, field.dataType.simpleString()) for field in schema]
        columns = [f"{in_backticks(name)} {kind}" for name, kind in zip(schema.names, kinds, strict=True)]
        return F.from_csv(name, ", ".join(columns), {**self.options, "columnNameOfCorruptRecord": RECORD, **more})

    def is_doubtful(self, parsed: Column) -> Column:
        """Return whether a value begins with a quote, as one does that ended before its closing quote."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StringType

        quote = self.option("quote", '"')
        if quote in ("", "\0"):
            return F.lit(False)
        fields = [field for field in self.fields if isinstance(self.kind_to_parse(field.dataType), StringType)]
        starts = [F.coalesce(parsed.getField(field.name).startswith(quote), F.lit(False)) for field in fields]
        return F.col("whole").contains(quote) & reduce(or_, starts, F.lit(False))

    def records(self, frame: DataFrame) -> DataFrame:
        """Return the frame, as a line is one record; with NULL for values that are missing at its end, if asked for."""
        from pyspark.sql import functions as F  # noqa: N812

        if self.option("short_lines") != "take":
            return frame
        kept = [name for name in frame.columns if name != "text"]
        names = [*(f"c{index}" for index in range(len(self.fields))), _END]
        frame = frame.select(
            *kept, "text", F.when(F.col("text").isNotNull(), self._texts("text", [_END])).alias("texts")
        )
        # It comes in the place of the first value that is missing; in none if it is lost within a quote.
        place = F.array_position(F.array(*map(F.col("texts").getField, names)), _END).cast("int")
        frame = frame.select(*kept, "text", place.alias("place"))
        missing = F.array_join(F.array_repeat(F.lit(self._separator), F.lit(len(names)) - F.col("place")), "")
        padded = F.when(F.col("place") > 0, F.concat("text", missing)).otherwise(F.col("text"))
        return frame.select(*kept, padded.alias("text"))

    def is_bad(self, name: str) -> Column:
        """Return whether a record has more or fewer values than columns, or a quote where none may be."""
        texts = self._texts(name, [_END])
        skipped = self._texts(name, [_END], unescapedQuoteHandling="SKIP_VALUE")
        is_bad = texts.getField(RECORD).isNotNull() | texts.getField(_END).isNull()
        for index in range(len(self.fields)):
            one = f"c{index}"
            is_bad = is_bad | (texts.getField(one).isNotNull() & skipped.getField(one).isNull())
        return is_bad

    def _texts(self, name: str, further: Sequence[str] = (), **more: str) -> Column:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StringType, StructField, StructType

        names = [*(f"c{index}" for index in range(len(self.fields))), *further, RECORD]
        schema = StructType([StructField(each, StringType()) for each in names])
        text = F.concat(F.col(name), F.lit(f"{self._separator}{_END}")) if further else F.col(name)
        columns = ", ".join(f"{each} string" for each in schema.names)
        return F.from_csv(text, columns, {**self.options, "columnNameOfCorruptRecord": RECORD, **more})

    def differs_by_case(self, name: str) -> Column:
        """Return that no name is in a record."""
        from pyspark.sql import functions as F  # noqa: N812

        return F.lit(False)

    def value_text(self, name: str, index: int) -> Column:
        """Return the text of a value in a record."""
        return self._texts(name).getField(f"c{index}")
