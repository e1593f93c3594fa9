"""Parse records of CSV, JSON and XML with Spark, and mark each record that would lose a value with the reason.

Spark's parsers drop what follows the first object on a line, shift values at an unexpected quote, and replace bytes
that are invalid in the encoding. So each line gets one more value at its end, which Spark returns only if it parses
the whole line. Lines without that value, with misplaced quotes, or with invalid bytes are examined further. Spark's
XML reader reads 12abc as 12 and rounds decimals, so this module reads XML values as text and casts them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

from scripts.helpers._lazy import Column, DataFrame, F, T
from scripts.helpers.errors import MisfitError
from scripts.helpers.reading.dialects import NO_QUOTE
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, joined, sql, whole
from scripts.helpers.schemas.spark_frames import EXACT_TIMES, in_backticks, quoted
from scripts.helpers.spark.inferred import inferred_schema

logger = logging.getLogger(__name__)

RECORD = "_glue_watermarks_record"
"""Column for the text of a record that lost a value."""
REASON = "_glue_watermarks_reason"
"""Column for the reason why the whole record is bad; NULL where only single values do not fit."""
ROW = "_glue_watermarks_row"
WITHIN = "_glue_watermarks_within"
"""Column: whether a line of CSV is part of a quoted value that spans lines."""
UNPARSED, ENCODING, CASE = MisfitError.UNPARSED, MisfitError.ENCODING, MisfitError.CASE
_END = "_glue_watermarks_end"
_OF_FILES = {
    "header", "linesep", "multiline", "encoding", "charset", "enforceschema", "inferschema", "samplingratio",
    "recursivefilelookup", "basepath", "dropfieldifallnull", "primitivesasstring", "prefersdecimal", "preferdate",
    "prefersdate", "wholetext",
}  # fmt: skip
"""Options for files and schemas, which do not change how the text of one record is parsed."""
_OPTIONS_OF_BYTES = {"linesep", "multiline", "encoding", "charset", "enforceschema", "wholetext"}
"""The options in `_OF_FILES` that have no effect on the schema either."""
_REPLACED = "\ufffd"
_EXACT_TO = 2.0**53
"""A double holds every whole number below this one exactly."""
_BLANK = r"[ \t\r\n]*"
_SEVERAL = rf"^{_BLANK}(?:\[|$)|\}}{_BLANK}\{{"
"""Matches JSON text that may hold no object, or several."""
_LIST = rf"^{_BLANK}\[([\s\S]*)\]{_BLANK}$"
_QUOTED = r"""|"(?:[^"\\]++|\\[\s\S])*+"|'(?:[^'\\]++|\\[\s\S])*+'"""
_LONG = r"-?(?=\d+[.eE])(?=[\d.]{17}|[\d.]++[eE])[\d.]++(?:[eE][-+]?\d+)?"
"""Matches a fraction that a double may not hold, or that has an exponent."""
_LONG_FRACTION = rf"\G((?:[^\"'\d-]++{_QUOTED}|(?!{_LONG})[-\d][\d.eE+-]*+)*+)({_LONG})"
"""Matches JSON text up to such a fraction outside strings."""
_MAYBE_ROUNDED = r"^[\[{]|^-?\d+\.\d+(?:E-?\d+)?$|Infinity"
"""Matches the text of a double, and JSON that may have some within."""
_CUT = f"\x1e{_END}\x1e"
"""Separates two objects: JSON allows this control character neither inside strings nor outside them."""
_MIDNIGHT = r"^\s*[^T\s]+(?:[T ](?:0?0(?::0?0){0,2}(?:\.0*)?)?\s*(?:[A-Z]\S*|[+-][\d:]+)?)?\s*$"
"""Matches a date without a time of day, or at midnight, in any zone."""
_FAR = 253_402_300_800
"""Seconds from 1970 to the year 10,000."""
_OVERFLOWS = r"(?<!\d)(?:9[2-9]\d{11}|\d{14})"
"""Matches JSON text that may have a whole number of seconds whose microseconds a long does not hold."""
TIME_OF_DAY = r"^\W*T?\d{1,2}:"
"""Matches a time without a date, to which Spark adds the date on which it reads it."""
_WITHIN_JSON = r"""["'][ \t]*T?(?:\d{0,2}\\[^"\\/]|\d{1,2}:)"""
"""Matches a record that may have such a time, perhaps with escapes. A class of few characters first is fast."""
_WITHIN_CSV = r"(?:^|[^\w .:+/\\-])[ \t]*T?\d{1,2}:"
_COMMA = (r",[\d.]", r"\\u00[23]")
"""Match a record of JSON that may have a comma before a digit in a string, or has characters as escapes."""
_POWER = r"""[:\[, \t\n"'][+-]?\d*\.?\d*[eE][+-]?\d++[\s"',\]}]"""
_WITHOUT_ZONE = r"[T ]\d{1,2}(?::\d{1,2}){0,2}(?:\.\d*)?\s*$"
_IS_FIXED = re.compile(r"(?:Etc/)?(?:UTC|GMT)|Z|[+-]\d\d:\d\d")
"""Matches a time zone, as Spark's session names it, whose clocks never change."""
_DEPTH = 10
"""How deep lists may be nested inside an object of a list. A record with deeper lists counts as unparsable."""


def objects(text: Column) -> Column:
    """Return the objects in a JSON text: the elements of a list, or one after another. Other text stays in one piece.

    The objects are cut out of the text unparsed, because Spark, if it returned them as text, would round fractions.
    """
    lists = ""
    for _ in range(_DEPTH):
        lists = rf"|\[(?:[^\"'\[\]]++{_QUOTED}{lists})*+\]"

    def parts(whole: Column, separator: str) -> Column:
        # `between` matches an object, without backtracking. It starts (\G) where the last match ended: not in a string.
        end = rf"\}}{_BLANK}{separator}\{{"
        between = rf"\G((?:[^\"'\[\]}}]++{_QUOTED}{lists}|(?!{end})\}})*+){end}"
        return F.split(F.regexp_replace(whole, between, f"$1}}{_CUT}{{"), _CUT)

    of_list = parts(F.regexp_extract(text, _LIST, 1), f",{_BLANK}")
    found = F.when(text.rlike(_LIST), of_list).otherwise(parts(text, ""))
    of_several = F.filter(found, lambda one: one.rlike(r"[^ \t\r\n]"))
    return F.when(text.rlike(_SEVERAL), of_several).otherwise(F.array(text))


def columns_of_lines(lines: DataFrame, format: str, options: Mapping[str, Any]) -> T.StructType:
    """Return the columns that Spark infers from the texts in ``record``; for JSON, from all objects in them."""
    text = lines["record"].cast("string")
    texts = lines.select(F.explode(objects(text)) if format == "json" else text)
    return inferred_schema(
        texts, format, {key: one for key, one in lowered(options).items() if key not in _OPTIONS_OF_BYTES}
    )


def plain(lines: DataFrame, format: str, fields: T.StructType, options: Mapping[str, Any]) -> DataFrame:
    """Parse lines as Spark's readers do, even if values are lost. The parameters are those of `parsed`.

    Returns
    -------
    DataFrame
        The columns of `lines` except ``record``, and the struct `ROW` with the columns in `fields`.
    """
    record, asked = lines["record"].cast("string"), record_options(options)
    if format == "json":
        whole = _decoded(lines["record"])
        # Treat a record that is not UTF-8 as invalid JSON, as Spark's reader does.
        record = F.when(_is_utf8(whole, lines["record"]), whole).otherwise(F.lit("{"))
    if format == "text":
        rows = F.array(F.struct(record.alias(fields.names[0])))
    elif not fields.names:
        # Add a column if all files are empty: then no columns are known, and from_csv needs at least one.
        rows = F.array(F.struct(F.lit(None).alias("nothing")))
    elif format == "csv":
        ddl = ", ".join(f"{in_backticks(field.name)} {field.dataType.simpleString()}" for field in fields)
        rows = F.array(F.from_csv(record, ddl, asked or None))
    elif lowered(options).get("mode", "").upper() == "DROPMALFORMED":
        marked = T.StructType([*fields, T.StructField(RECORD, T.StringType())])
        asked |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RECORD}
        rows = F.transform(objects(record), lambda one: F.from_json(one, marked, asked))
        rows = F.filter(rows, lambda row: row.getField(RECORD).isNull())
        rows = F.transform(rows, lambda row: row.dropFields(RECORD))
    else:
        # Pass None for no options: Spark Connect turns an empty map into one without types, which Spark refuses.
        rows = F.transform(objects(record), lambda one: F.from_json(one, fields, asked or None))
    # Explode the rows, because Spark would otherwise parse again for each selected column.
    return lines.select(*(quoted(name) for name in lines.columns if name != "record"), F.explode(rows).alias(ROW))


def record_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the reader options that apply to the text of one record."""
    found = {name: option_text(value) for name, value in options.items() if name.lower() not in _OF_FILES}
    return {name: value or (NO_QUOTE if name.lower() == "quote" else "") for name, value in found.items()}


def lowered(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options with lower-case names and values as text, as Spark ignores the case of option names."""
    return {name.lower(): option_text(value) for name, value in options.items() if value is not None}


def with_long_as_text(record: Column) -> Column:
    """Return a JSON text with long fractions in quotes: Spark rounds unquoted numbers, even for text columns."""
    return F.regexp_replace(record, _LONG_FRACTION, '$1"$2"')


def option_text(value: Any) -> str:
    """Return the value of an option as text, as Spark reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def marker(*, inferred: bool, header: bytes, rescues: bool) -> T.StructField:
    """Return the field `RECORD`. If a schema has it, the read fills it with the text of each record that loses a value.

    `inferred` means that the caller gave no types. `header` is the header line of a CSV file, with one character for
    each byte; empty if unknown. With `rescues`, the read continues after an unclosed quote and marks those lines.
    """
    facts = {"inferred": inferred, "header": header.decode("ISO-8859-1"), "rescues": rescues}
    return T.StructField(RECORD, T.StringType(), metadata=facts)


def parsed(lines: DataFrame, format: str, schema: T.StructType, options: Mapping[str, Any]) -> DataFrame:
    """Parse records of CSV, JSON or XML, and mark those from which a value would be lost.

    Parameters
    ----------
    lines
        The column ``record`` with the bytes of each line in UTF-8, and other columns, which are kept. CSV may have
        `WITHIN` (see `mark_quoted`). XML has, in place of ``record``, the columns of `texts_of`, each element a list.
    schema
        The columns of the records, for CSV in the order of the files, and `RECORD` (see `marker`). If the caller gave
        no types, a whole number that a column of doubles cannot hold exactly counts as lost.
    options
        Options of Spark's reader.

    Returns
    -------
    DataFrame
        The other columns of `lines`, and a struct `ROW`: the fields of `schema`, NULL if lost, and `REASON` (why bad).
    """
    fields = T.StructType([field for field in schema if field.name != RECORD])
    is_inferred = bool(schema[RECORD].metadata["inferred"])
    if format == "xml":
        return _typed(lines, fields, options, is_inferred)
    names = [name for name in lines.columns if name != "record"]
    others = _bundled_columns(names)
    syntax = (_Json if format == "json" else _Csv)(fields, record_options(options), lines)
    to_parse = syntax.to_parse()
    mark = T.StructField(RECORD, T.StringType())
    with_end = T.StructType([*to_parse, T.StructField(_END, T.StringType()), mark])
    # Each step is a select of its own; otherwise Spark would parse again for each column taken from a record.
    frame = lines.select(others, "record", syntax.with_end().alias("bytes"))
    frame = frame.select("*", _decoded(F.col("bytes")).alias("whole"))
    is_utf8 = _is_utf8(F.col("whole"), F.col("bytes"))
    frame = frame.select("others", "record", "whole", is_utf8.alias("is_utf8"))
    frame = frame.select("*", syntax.parse("whole", with_end).alias("parsed"))
    within = F.col("others").getField(WITHIN) if WITHIN in names else F.lit(False)
    ended = F.col("parsed").getField(RECORD).isNull() & F.col("parsed").getField(_END).isNotNull()
    is_fine = ended & F.col("is_utf8") & ~within & ~F.coalesce(syntax.is_doubtful(F.col("parsed")), F.lit(False))
    frame = frame.select("others", "record", "parsed", "is_utf8", is_fine.alias("is_fine"))
    frame = frame.select("*", F.when(~F.col("is_fine"), F.col("record").cast("string")).alias("text"))
    frame = syntax.records(frame)
    again = F.when(F.col("text").isNotNull() & ~within, syntax.parse("text", T.StructType([*to_parse, mark])))
    frame = frame.select("*", again.alias("again"))
    reason = (
        F.when(F.col("is_fine"), F.lit(None))
        .when(~F.col("is_utf8"), ENCODING)
        .when(within | syntax.is_bad("text"), UNPARSED)
        .when(syntax.differs_by_case("text"), CASE)
    )
    values = []
    for index, name in enumerate(fields.names):
        parts = [F.col(struct).getField(name) for struct in ("parsed", "again")]
        values.append(F.when(F.col("is_fine"), parts[0]).otherwise(parts[1]).alias(f"value_{index}"))
    text = F.coalesce("text", F.col("record").cast("string"))
    is_marked = F.coalesce(F.col("again").getField(RECORD).isNotNull(), F.lit(False))
    frame = frame.select("others", text.alias("text"), is_marked.alias("is_marked"), reason.alias(REASON), *values)
    return _marked(frame, syntax, names, is_inferred)


def texts_of(fields: T.StructType, options: Mapping[str, Any]) -> T.StructType:
    """Return the schema to read XML with, including `RECORD` for records that Spark cannot parse; see `_typed`."""
    lists: Any = _Xml(fields, record_options(options)).type_with_lists(fields)
    # Add `_END`: if no file has a valid record, `RECORD` would be the only column, which Spark 4 refuses to read.
    return T.StructType([*lists, T.StructField(_END, T.StringType()), T.StructField(RECORD, T.StringType())])


def _typed(texts: DataFrame, fields: T.StructType, options: Mapping[str, Any], is_inferred: bool) -> DataFrame:
    """Cast XML records, read with the schema of `texts_of`, to their types. Parameters and result are as in `parsed`.

    If a value was lost in the cast, the column `RECORD` gets the record as JSON, in which `Misfits` finds the value.
    """
    syntax = _Xml(fields, record_options(options), texts)
    given = texts_of(fields, options)
    names = [name for name in texts.columns if name not in given.names]
    values, shown = [], []
    for index, field in enumerate(fields):
        shape = (field.dataType, given[field.name].dataType, quoted(field.name))
        value, is_lost = syntax.first(*shape), _is_several(*shape)
        if not isinstance(field.dataType, (T.StringType, T.StructType, T.ArrayType, T.MapType)):
            # An empty element becomes NULL.
            value = F.when(_is_text(value), value)
        values += [value.alias(f"value_{index}"), is_lost.alias(f"lost_{index}")]
        # In the record as JSON, write an element that occurs once as a single value: it was read as a list of one.
        shown.append(F.when(is_lost, _json(*shape[1:])).otherwise(_json(field.dataType, value)).alias(field.name))
    is_marked = F.col(RECORD).isNotNull()
    text = F.coalesce(RECORD, F.to_json(F.struct(*shown, _END)))
    # Look for U+FFFD, with which the spark-xml package of Spark 3 replaces bytes that are invalid in the encoding.
    reason = F.when(is_marked, UNPARSED).when(text.contains(_REPLACED), ENCODING)
    frame = texts.select(
        _bundled_columns(names), text.alias("text"), is_marked.alias("is_marked"), reason.alias(REASON), *values
    )
    return _marked(frame, syntax, names, is_inferred)


def _bundled_columns(names: Sequence[str]) -> Column:
    """Return columns as one struct, so that their names cannot clash with columns that this module adds."""
    return F.struct(F.lit(0).alias(RECORD), *map(quoted, names)).alias("others")


def _marked(frame: DataFrame, syntax: _Syntax, names: Sequence[str], is_inferred: bool) -> DataFrame:
    """Return the columns in `names`, and a struct column `ROW` with the parsed values in the types of `syntax`."""
    columns, lost = [], [F.col("is_marked"), F.col(REASON).isNotNull()]
    found = {index: syntax.converted(index, is_inferred=is_inferred) for index in range(len(syntax.fields))}
    kept = {index: column.alias(f"kept_{index}") for index, column in found.items() if column is not None}
    casts = {index: syntax.cast(index) for index in found}
    # Cast and check in selects of their own, because otherwise Spark would do both twice for each value.
    frame = frame.select("*", *(one.alias(f"cast_{index}") for index, one in casts.items() if one is not None))
    frame = frame.select("*", *kept.values())
    for index, field in enumerate(syntax.fields):
        value = F.col(f"value_{index}")
        if index in kept:
            lost.append(value.isNotNull() & F.col(f"kept_{index}").isNull())
            value = F.col(f"kept_{index}")
        columns.append(value.alias(field.name))
    row = F.struct(*columns, F.when(reduce(or_, lost), F.col("text")).alias(RECORD), REASON)
    # Explode a one-row list. Otherwise Spark moves a filter on values to the start and parses again within the filter.
    rows = F.explode_outer(F.array(row)).alias(ROW)
    return frame.select(*(F.col("others").getField(name).alias(name) for name in names), rows)


def _decoded(data: Column) -> Column:
    """Return bytes as text. In Spark 4 cast them, because its decode() raises an error at invalid UTF-8."""
    return data.cast("string") if hasattr(F, "is_valid_utf8") else F.decode(data, "UTF-8")


def _is_utf8(text: Column, data: Column) -> Column:
    """Return whether `data` is valid UTF-8. `text` is the text that was decoded from `data`."""
    if is_valid := getattr(F, "is_valid_utf8", None):
        found: Column = is_valid(text)
        return found
    # Compare bytes only if the text has the replacement character, which may also be in the file itself.
    return ~text.contains(_REPLACED) | (F.encode(text, "UTF-8") == data)


class _Syntax:
    """The base of the classes that parse CSV, JSON and XML records."""

    as_text: tuple[str, ...] = ()
    """Types with values at which Spark 3's parser raises an error by default: parsed as texts, then cast."""
    time_of_day = _WITHIN_JSON
    """Matches a record that may have a time without a date."""

    def __init__(self, fields: T.StructType, options: Mapping[str, str], frame: DataFrame | None = None) -> None:
        self.fields, self.options = fields, dict(options)
        session = None if frame is None else frame.sparkSession
        # Name the type of instants, whatever spark.sql.timestampType is. Spark 3.3 has no such setting.
        self.instant = sql("timestamp_ltz" if session and session.version >= "3.4" else "timestamp")
        self.zone = str(session.conf.get("spark.sql.session.timeZone")) if session else ""
        given = {name.lower(): value for name, value in options.items()}
        self.option = given.get

    def to_parse(self) -> list[T.StructField]:
        """Return the fields to parse, each with the type for the parser."""
        return [T.StructField(field.name, self.kind_to_parse(field.dataType)) for field in self.fields]

    def kind_to_parse(self, kind: T.DataType) -> T.DataType:
        """Return the type to parse as: one with which the parser does not silently lose values."""
        return _with_each(kind, lambda one: T.StringType() if self._is_as_text(one) else _widened(one))

    def _is_as_text(self, kind: T.DataType) -> bool:
        if isinstance(kind, T.DecimalType) and self.option("locale") is not None:
            return False
        return kind.typeName() in self.as_text and self._is_plain(kind)

    def _is_plain(self, kind: T.DataType) -> bool:
        """Return whether values of a type have Spark's default text format, which no option changes."""
        name = kind.typeName().replace("_", "")
        return self.option(f"{name}format") is None and (name != "timestamp" or self.option("timezone") is None)

    def cast(self, index: int) -> Column | None:
        """Return a parsed value cast to the type in which it is checked; None if it was parsed as that type."""
        kind = self.fields[index].dataType
        checked = self._kind_to_check(kind)
        return None if checked == self.kind_to_parse(kind) else self._cast(index, checked)

    def _kind_to_check(self, kind: T.DataType) -> T.DataType:
        return kind if isinstance(kind, T.DecimalType) or self._is_as_text(kind) else _with_each(kind, _widened)

    def _cast(self, index: int, kind: T.DataType) -> Column:
        return F.expr(sql("try_cast({} AS {})", sql("value_{}", whole(index)), _type_name(kind, self.instant)))

    def converted(self, index: int, *, is_inferred: bool) -> Column | None:
        """Return a parsed value in its column's type, or NULL if it does not fit; None if it needs no conversion."""
        kind, value = self.fields[index].dataType, F.col(f"value_{index}")
        text, doubtful = F.col("text"), [F.lit(False)]
        if "decimal" in kind.simpleString() and self.option("locale") is None:
            doubtful += map(text.rlike, _doubtful_decimals(kind))
        checked = self._kind_to_check(kind)
        has_cast = checked != self.kind_to_parse(kind)
        kept = F.col(f"cast_{index}") if has_cast else value
        if self._is_as_text(kind):
            return F.when(~_any_lost(self._is_inexact, kind, kept, value), kept)
        if isinstance(kind, T.DecimalType):
            # Compare with `value` to find what the cast rounded: the operator % would take ten times as long.
            return F.when((kept == value) & ~self._is_inexact_text(index, kept, doubtful), kept)
        lost = []
        if has_cast:
            lost += [_any_lost(_is_gone, checked, kept, value), _any_lost(self._is_inexact, checked, kept, value)]
            value = kept
        if "timestamp" in kind.simpleString():
            is_of_day = _if(_any_lost(_is_of_today, kind, value, value), text.rlike(self.time_of_day))
            doubtful += [_any_lost(self._is_near_change, kind, value, value), is_of_day]
        if "decimal" in kind.simpleString():
            lost.append(_any_lost(_is_cut, kind, value, value))
        if doubtful[1:]:
            lost.append(self._is_inexact_text(index, value, doubtful))
        if re.search("double|float", kind.simpleString()):
            # Parse the record again to get the text, but only for large or infinite values, which are rare.
            is_rare, is_changed = (_is_large, _is_rounded) if is_inferred else (_is_infinite, _is_overflow)
            changed = _any_lost(is_changed, kind, value, self.value_text("text", index))
            lost.append(_if(_any_lost(is_rare, kind, value, value), changed))
        return F.when(~reduce(or_, lost), value.cast(kind)) if lost else None

    def _is_inexact_text(self, index: int, value: Column, doubtful: Sequence[Column]) -> Column:
        """Return whether a value differs from its text, which takes a second parse; false if no `doubtful` is true."""
        inexact = _any_lost(self._is_inexact, self.fields[index].dataType, value, self.value_text("text", index))
        return _if(reduce(or_, doubtful), inexact)

    def _is_inexact(self, kind: T.DataType, value: Column, text: Column) -> Column | None:
        """Return whether a value differs from its text in the record.

        True for a date with a time of day, a time without a date, a time that the clocks of the session's zone skip,
        and a decimal with more digits than its type. None for types and formats that are not checked.
        """
        text = text.cast("string")
        if isinstance(kind, T.DecimalType):
            return _is_shortened(value, text, kind.scale)
        if isinstance(kind, T.DateType) and self._is_plain(kind):
            return ~text.rlike(_MIDNIGHT)
        if not isinstance(kind, T.TimestampType) or self.option("timestampformat") is not None:
            return None
        is_inexact = text.rlike(TIME_OF_DAY)
        if not self._is_plain(kind):
            return is_inexact
        # To find a time that the session's zone skips, and Spark shifted, compare both texts as UTC, which skips none.
        given, kept = (_try_cast(F.concat(F.trim(one), F.lit("Z")), kind) for one in (text, value.cast("string")))
        return is_inexact | F.when(value.isNotNull() & text.rlike(_WITHOUT_ZONE), given != kept)

    def _is_near_change(self, kind: T.DataType, value: Column, _: Column) -> Column | None:
        """Return whether the session's zone changed clocks in the 24 hours before a time, so may have skipped it."""
        if not isinstance(kind, T.TimestampType) or not self._is_plain(kind) or _IS_FIXED.fullmatch(self.zone):
            return None
        times = (value, value - F.expr("INTERVAL '24' HOUR"))
        now, before = (F.from_utc_timestamp(one, self.zone).cast("long") - one.cast("long") for one in times)
        # Count times before year 2 and after year 9998 as near a change, because the sums of a far time may overflow.
        return F.when(F.year(value).between(2, 9998), now != before).otherwise(value.isNotNull())

    def value_text(self, name: str, index: int) -> Column:
        """Return the text of a value in a record."""
        raise NotImplementedError


class _Json(_Syntax):
    as_text = ("date",)

    def with_end(self) -> Column:
        """Return the line with a field added at its end. Spark reads that field only if the line is a single object."""
        start = F.expr("substring(record, 1, octet_length(record) - 1)")
        with_end = F.concat(start, F.lit(bytearray(f',"{_END}":0}}'.encode())))
        # Replace only a closing brace: any other last byte, such as in a truncated file, would be lost.
        is_closed = F.expr("substring(record, -1, 1)") == F.lit(bytearray(b"}"))
        return F.when(is_closed, with_end).otherwise(F.col("record"))

    def parse(self, name: str, schema: T.StructType) -> Column:
        return F.from_json(name, schema, {**self.options, "columnNameOfCorruptRecord": RECORD})

    def is_doubtful(self, parsed: Column) -> Column:
        """Return whether a record may have a column's name in another case: a column is NULL and such a name occurs."""
        is_absent = reduce(or_, _null_fields(parsed, self.fields), F.lit(False))
        names = sorted({re.escape(name) for name in _names(self.fields)})
        # Match a name also if it is escaped, because many writers of JSON escape each letter outside ASCII.
        written = [re.sub(r"[^\0-\x7f]+", r"(?:\g<0>|(?:\\\\u[0-9a-f]{4})+)", name) for name in names]
        # Also match names that are not in quotes, which Spark's option allowUnquotedFieldNames allows.
        other_case = f"""["'{{,\\s](?!(?:{"|".join(names)})["'\\s:])(?iu:{"|".join(written)})["']?\\s*:"""
        return is_absent & F.col("whole").rlike(other_case) if names else F.lit(False)

    def records(self, frame: DataFrame) -> DataFrame:
        """Return one row for each object on a line: the elements of a list, or several objects one after another."""
        kept = [quoted(name) for name in frame.columns if name != "text"]
        rows = frame.select(*kept, F.explode_outer(F.when(~F.col("is_fine"), objects(F.col("text")))).alias("text"))
        return rows.where(F.col("is_fine") | F.col("text").isNotNull())

    def is_bad(self, name: str) -> Column:
        """Return whether a text is not exactly one JSON object."""
        start, end = F.lit('{"r":['), F.lit(f'],"{_END}":0}}')
        schema = f"r array<map<string,string>>, {_END} int"
        whole = F.from_json(F.concat(start, F.col(name), end), schema, self.options or None)
        found = whole.getField("r")
        wrong = whole.getField(_END).isNull() | (F.size(found) != 1) | found[0].isNull()
        return F.coalesce(wrong, F.lit(True))

    def differs_by_case(self, name: str) -> Column:
        """Return whether a record has, at any depth, a name that differs from a column's name only by case."""
        return F.coalesce(_has_other_case(F.col(name), self.fields, self.options or None), F.lit(False))

    def kind_to_parse(self, kind: T.DataType) -> T.DataType:
        # Spark's parser accepts up to 255 for a byte, and returns 200 as -56.
        wide = super().kind_to_parse(kind)
        return _with_each(wide, lambda one: T.ShortType() if isinstance(one, T.ByteType) else one)

    def converted(self, index: int, *, is_inferred: bool) -> Column | None:
        kind, value, text = self.fields[index].dataType, F.col(f"value_{index}"), F.col("text")
        found = super().converted(index, is_inferred=is_inferred)
        if "timestamp" in kind.simpleString():
            # To save time, parse the text again as seconds only if the value is past year 9999 or may have overflowed.
            is_rare = _any_lost(_is_far, kind, value, value)
            is_lost = _any_lost(_is_far_number, kind, value, self.value_text("text", index))
            return F.when(~_if(is_rare, is_lost), found)
        if not isinstance(kind, T.StringType):
            return found
        schema = T.StructType([self.fields[index]])
        exact = F.from_json(with_long_as_text(text), schema, self.options or None).getField(self.fields[index].name)
        # In lists and objects, `exact` has long numbers in quotes, and otherwise equals `value` unless Spark rounded.
        is_same = F.translate(value, '"', "") == F.translate(exact, '"', "")
        kept = F.when(~value.rlike(r"^[\[{]"), exact).when(is_same, value)
        # Before the slow patterns, search for plain texts: a double has a dot or "Infinity". No number sorts after ":".
        is_within = value.startswith("[") | value.startswith("{") | value.startswith("Infinity")
        may_be = is_within | (value < ":") & (value.contains(".") | value.contains("Infinity"))
        is_rounded = _if(may_be, _if(value.rlike(_MAYBE_ROUNDED), text.rlike(_LONG)))
        return F.when(is_rounded, kept).otherwise(value)

    def value_text(self, name: str, index: int) -> Column:
        """Return field `index` of the JSON in the column `name`, parsed so that its fractions and times stay texts."""
        field, texts = self.fields[index], (T.DecimalType, T.FloatType, T.DoubleType, T.TimestampType)
        as_text = _with_each(field.dataType, lambda kind: T.StringType() if isinstance(kind, texts) else kind)
        schema = T.StructType([T.StructField(field.name, as_text)])
        return F.from_json(with_long_as_text(F.col(name)), schema, self.options or None).getField(field.name)


class _Xml(_Syntax):
    as_text = ("byte", "short", "integer", "long", "float", "double", "decimal", "date", "timestamp", "timestamp_ntz")

    def kind_to_parse(self, kind: T.DataType) -> T.DataType:
        return _with_each(kind, lambda one: T.StringType() if one.typeName() in self.as_text else one)

    def type_with_lists(self, kind: T.DataType) -> T.DataType:
        """Return the type to read XML with. Each element is a list, otherwise Spark keeps only the last of several."""
        if isinstance(kind, T.ArrayType):
            return T.ArrayType(self.type_with_lists(kind.elementType))
        if not isinstance(kind, T.StructType):
            return self.kind_to_parse(kind)
        fields = []
        for field in kind:
            is_beside = field.name == self.option("valuetag", "_VALUE")
            is_beside = is_beside or field.name.startswith(self.option("attributeprefix", "_"))
            found = self.type_with_lists(field.dataType)
            is_list = is_beside or isinstance(found, T.ArrayType)
            fields.append(T.StructField(field.name, found if is_list else T.ArrayType(found)))
        return T.StructType(fields)

    def first(self, kind: T.DataType, given: T.DataType, value: Column) -> Column:
        """Return `value` with each list that is not a list in `kind` replaced by its first element that is not NULL."""
        if isinstance(given, T.StructType) and isinstance(kind, T.StructType):
            parts = [
                self.first(field.dataType, given[field.name].dataType, value.getField(field.name)).alias(field.name)
                for field in kind
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        if not isinstance(given, T.ArrayType):
            return value
        within = given.elementType
        if isinstance(kind, T.ArrayType):
            return F.transform(value, lambda one: self.first(kind.elementType, within, one))
        nothing = F.lit(None).cast(self.kind_to_parse(kind))
        return F.aggregate(value, nothing, lambda found, one: F.coalesce(found, self.first(kind, within, one)))

    def cast(self, index: int) -> Column | None:
        kind = _with_each(self.fields[index].dataType, lambda one: one)
        in_cast = _with_each(kind, lambda one: one if self._is_plain(one) else T.StringType())
        value = self._cast(index, in_cast)
        if in_cast != kind:
            # Use the JSON parser: the XML parser for Spark 3 reads 30.02.2024 as the day before.
            schema = T.StructType([T.StructField(ROW, kind)])
            text_of_all = F.to_json(F.struct(value.alias(ROW)), EXACT_TIMES)
            value = F.from_json(text_of_all, schema, self.options).getField(ROW)
        return value

    def converted(self, index: int, *, is_inferred: bool) -> Column | None:
        kind, text = _with_each(self.fields[index].dataType, lambda one: one), F.col(f"value_{index}")
        value = F.col(f"cast_{index}")
        lost = [F.col(f"lost_{index}"), _any_lost(_is_gone, kind, value, text)]
        lost.append(_any_lost(self._is_inexact, kind, value, text))
        lost.append(_any_lost(_is_rounded if is_inferred else _is_overflow, kind, value, text))
        return F.when(~reduce(or_, lost), value.cast(kind))


def csv_patterns(options: Mapping[str, str]) -> tuple[str, str]:
    """Return two patterns: a CSV line whose quotes are all valid, and a CSV line that ends inside quotes."""
    asked = lowered(options)
    quote = asked.get("quote", '"')
    q, e, sep = map(re.escape, (quote, asked.get("escape", "\\") or quote, csv_separator(asked)))
    ignored = [asked.get(f"ignore{side}whitespace", "").lower() == "true" for side in ("leading", "trailing")]
    before, behind = (rf"(?:(?!{sep})[\x01-\x20])*+" if is_ignored else "" for is_ignored in ignored)
    # Repeat groups possessively: else Java would recurse for each part of a long line. Repeat classes of characters
    # greedily, which is fastest. They need not be possessive: what follows never matches a character of the class.
    begun = f"{before}{q}[^{q}{e}]*(?:{q + q if q == e else e + '.'}[^{q}{e}]*)*+"
    plain, rest = f"(?!{before}{q})", f"[^{sep}]*" if len(csv_separator(asked)) == 1 else f"(?:(?!{sep}).)*+"
    value = f"(?:{begun}{q}{behind}|{plain}{rest})"
    return rf"(?s)^{value}(?:{sep}{value})*+\z", rf"(?s)^(?:(?:{begun}{q}|{plain}){rest}{sep})*+{begun}\z"


def csv_separator(asked: Mapping[str, str]) -> str:
    """Return the separator of CSV values, given options as `lowered` returns them."""
    # Spark options write a tab as backslash t.
    return (asked.get("sep") or asked.get("delimiter") or ",").replace("\\t", "\t")


def mark_quoted(lines: DataFrame, options: Mapping[str, Any], source: str = "") -> DataFrame:
    """Add `WITHIN` to CSV lines: whether a line begins or ends inside quotes. One task examines a whole file.

    Parameters
    ----------
    source
        The name of the source for the log. If given, a Spark job first finds the files with quotes over several lines:
        only they are examined. By default all files are examined, and the column ``path`` must have their names.
    """
    from pyspark.sql import Window

    asked, record = record_options(options), F.col("record").cast("string")
    quote, pattern = F.lit(asked.get("quote", '"')), csv_patterns(asked)[1]
    opens, stays = record.rlike(pattern), F.concat(quote, record).rlike(pattern)
    file, place, turns = (f"{WITHIN}_{number}" for number in range(3))
    placed = lines.withColumn(file, F.input_file_name() if source else F.col("path"))
    placed = placed.withColumn(place, F.struct(F.expr("input_file_block_start()"), F.monotonically_increasing_id()))
    others = None
    if source:
        found = sorted(row[0] for row in placed.where(opens).select(file).distinct().collect())
        if not found:
            return lines
        logger.warning(
            "event=quotes_over_lines source=%s files=%d first=%r: a quoted value spans lines, or a quote is never "
            "closed. All lines up to the closing quote are rescued. To read such values, pass multiLine=True.",
            source, len(found), found[0],
        )  # fmt: skip
        is_found = F.col(file).isin(found)
        placed, others = placed.where(is_found), placed.where(~is_found).withColumn(WITHIN, F.lit(False))
    in_order = Window.partitionBy(file).orderBy(place)
    # `opens`: a line begun outside quotes ends inside. `stays`: one begun inside ends inside. If only `opens` is true,
    # the line toggles between outside and inside. If both are equal, it sets the state: count only toggles after it.
    placed = placed.withColumn(turns, F.sum((opens & ~stays).cast("int")).over(in_order))
    since = F.last(F.when(opens == stays, F.col(turns) + opens.cast("int")), ignorenulls=True).over(in_order)
    placed = placed.withColumn(WITHIN, (F.col(turns) - F.coalesce(since, F.lit(0))) % 2 != 0)
    placed = placed.withColumn(WITHIN, F.col(WITHIN) | F.lag(WITHIN, 1, False).over(in_order)).drop(turns)
    return placed if others is None else placed.unionByName(others)


def csv_texts(record: Column, count: int, options: Mapping[str, str], further: Sequence[str] = ()) -> Column:
    """Return a CSV record as texts: `count` values ``c0``, ``c1``, …, then `further` ones, and `RECORD` if bad."""
    names = [*(f"c{index}" for index in range(count)), *further, RECORD]
    columns = ", ".join(f"{each} string" for each in names)
    return F.from_csv(record, columns, {**options, "columnNameOfCorruptRecord": RECORD})


def value_of(texts: Column, name: str) -> Column:
    """Return a map's value for a key, or NULL for a missing key, where Spark 3.3 would raise an error in ANSI mode."""
    return F.when(F.array_contains(F.map_keys(texts), name), texts[name])


def _with_each(kind: T.DataType, change: Callable[[T.DataType], T.DataType]) -> T.DataType:
    """Return a type with each of its scalar types replaced by what `change` returns."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _with_each(field.dataType, change)) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_with_each(kind.elementType, change))
    return T.MapType(kind.keyType, _with_each(kind.valueType, change)) if isinstance(kind, T.MapType) else change(kind)


def _widened(kind: T.DataType) -> T.DataType:
    """Return a decimal type with room for more digits after the point; other types as they are."""
    return T.DecimalType(38, 38 - kind.precision + kind.scale) if isinstance(kind, T.DecimalType) else kind


def _type_name(kind: T.DataType, instant: SQL) -> SQL:
    """Return a type in Spark SQL, with quoted field names."""
    if isinstance(kind, T.StructType):
        parts = [sql("{}: {}", SPARK.quote(one.name), _type_name(one.dataType, instant)) for one in kind]
        return sql("struct<{}>", joined(", ", parts))
    if isinstance(kind, T.ArrayType):
        return sql("array<{}>", _type_name(kind.elementType, instant))
    if isinstance(kind, T.MapType):
        return sql("map<{}, {}>", _type_name(kind.keyType, instant), _type_name(kind.valueType, instant))
    return instant if isinstance(kind, T.TimestampType) else SPARK.type_name(kind.simpleString())


Lost = Callable[["T.DataType", "Column", "Column"], "Column | None"]
"""Returns whether a value is lost, given its type and text (which some ignore); None if the type cannot lose any."""


def _if(condition: Column, then: Column) -> Column:
    """Return ``condition & then``. An & would make Spark compute `then` for all rows if several columns share it."""
    return F.when(condition, then).otherwise(F.lit(False))


def _any_lost(is_lost: Lost, kind: T.DataType, value: Column, text: Column) -> Column:
    """Return whether `is_lost` is true of a value, or of any value within a nested one."""
    if isinstance(kind, T.StructType):
        parts = [_any_lost(is_lost, one.dataType, value.getField(one.name), text.getField(one.name)) for one in kind]
        return reduce(or_, parts, F.lit(False))
    if isinstance(kind, T.MapType):
        return _any_lost(is_lost, T.ArrayType(kind.valueType), F.map_values(value), F.map_values(text))
    if isinstance(kind, T.ArrayType):
        within = kind.elementType
        each = F.zip_with(value, text, lambda one, its: _any_lost(is_lost, within, one, its))
        return F.coalesce(F.exists(each, lambda one: one), F.lit(False))
    found = is_lost(kind, value, text)
    return F.lit(False) if found is None else F.coalesce(found, F.lit(False))


def _try_cast(text: Any, kind: T.DataType) -> Column:
    """Return a text in another type, or NULL if it does not fit: by default, cast() of Spark 4 would raise an error."""
    found: Column = (text.try_cast if hasattr(type(text), "try_cast") else text.cast)(kind)
    return found


def _is_several(kind: T.DataType, given: T.DataType, value: Column) -> Column:
    """Return whether an XML element occurs several times where its type allows only one."""
    several = F.lit(False)
    if isinstance(given, T.StructType) and isinstance(kind, T.StructType):
        for field in kind:
            several |= _is_several(field.dataType, given[field.name].dataType, value.getField(field.name))
    elif isinstance(given, T.ArrayType):
        one, its, is_list = kind, given.elementType, isinstance(kind, T.ArrayType)
        if isinstance(kind, T.ArrayType):
            one = kind.elementType
        several = F.exists(value, lambda element: _is_several(one, its, element))
        several = F.coalesce(several if is_list else several | (F.size(value) > 1), F.lit(False))
    return several


def _json(kind: T.DataType, value: Column) -> Column:
    """Return the text of a value, which is JSON if the type is nested."""
    return F.to_json(value) if isinstance(kind, (T.StructType, T.ArrayType, T.MapType)) else value.cast("string")


def _is_text(value: Column) -> Column:
    """Return whether the text of a value is more than white space."""
    return value.cast("string").rlike(r"\S")


def _is_gone(_: T.DataType, value: Column, text: Column) -> Column:
    """Return whether a cast returned NULL for a text that is not blank."""
    return value.isNull() & _is_text(text)


def _is_cut(kind: T.DataType, value: Column, _: Column) -> Column | None:
    """Return whether a decimal has more digits after the point than its type keeps."""
    return value % F.lit(Decimal(1).scaleb(-kind.scale)) != 0 if isinstance(kind, T.DecimalType) else None


def _is_shortened(value: Column, text: Column, scale: int) -> Column:
    """Return whether the text of a decimal has more digits after the point than `scale`, or a comma."""
    digits = F.regexp_replace(F.regexp_replace(text, r"[eE].*|\D", ""), "0+$", "")
    places = F.length(digits) - F.length(F.regexp_extract(text, r"^[^\d.]*(\d*)", 1))
    power = F.when(text.rlike("[eE]"), F.regexp_extract(text, r"[eE](\S+)", 1).cast("int")).otherwise(0)
    is_shortened = text.contains(",") | (digits != "") & (places - power > scale)
    return F.when(value.isNotNull() & ~text.rlike(rf"^\s*[+-]?\d*\.?\d{{0,{scale}}}0*\s*$"), is_shortened)


def _doubtful_decimals(kind: T.DataType) -> list[str]:
    """Return regexes that match JSON records in which Spark may drop digits of a decimal, or the comma of ``"1,5"``."""
    of_kind = re.findall(r"decimal\((\d+),(\d+)\)", kind.simpleString())
    # Skip types of up to 18 digits: their values are parsed with 20 more decimal places, and `_is_cut` checks these.
    parsed = [38 - int(digits) + int(scale) for digits, scale in of_kind if int(digits) > 18]
    # Search each pattern by itself: with all joined by `|`, Java would try each one at every character, which is slow.
    return [*_COMMA, *([rf"\.\d{{{min(parsed) + 1}}}", _POWER] if parsed else [])]


def _is_large(kind: T.DataType, value: Column, _: Column) -> Column | None:
    return F.abs(value) >= _EXACT_TO if kind.typeName() == "double" else None


def _is_infinite(kind: T.DataType, value: Column, _: Column) -> Column | None:
    return F.abs(value) == float("inf") if kind.typeName() in ("float", "double") else None


def _is_overflow(kind: T.DataType, value: Column, text: Column) -> Column | None:
    """Return whether a number is too large for its type: Spark reads it as infinite, and its text has digits."""
    found = _is_infinite(kind, value, text)
    return None if found is None else found & text.rlike(r"\d")


def _is_of_today(kind: T.DataType, value: Column, _: Column) -> Column | None:
    """Return whether a time is of today in some zone: Spark adds today's date to a text that has only a time of day."""
    return F.abs(F.datediff(value, F.current_date())) <= 1 if isinstance(kind, T.TimestampType) else None


def _is_far(kind: T.DataType, value: Column, _: Column) -> Column | None:
    """Return whether a time is past the year 9999, or has a fraction that an overflow of too many seconds may leave."""
    if not isinstance(kind, T.TimestampType):
        return None
    seconds = value.cast("long")
    may_overflow = _if(seconds.cast(kind) != value, F.col("text").rlike(_OVERFLOWS))
    return (F.abs(seconds) >= _FAR) | may_overflow


def _is_far_number(kind: T.DataType, value: Column, text: Column) -> Column | None:
    """Return whether a time was read from a number of seconds so large that it means a time past the year 9999.

    Spark multiplies the number by a million, and the long may overflow. False for a formatted time (20230316154500).
    """
    number, range_of_long = text.cast("decimal(20,0)"), F.lit(Decimal(2**64))
    left = (number - value.cast("long")) * 10**6 % range_of_long
    is_number = (F.abs(number) >= _FAR) & ((left + range_of_long) % range_of_long < 10**6)
    return F.when(text.rlike(r"^-?\d{12,19}$"), is_number) if isinstance(kind, T.TimestampType) else None


def _is_rounded(kind: T.DataType, value: Column, text: Column) -> Column | None:
    """Return whether a number became infinite, or a whole number was rounded to a double; None if not a float."""
    is_other = text.cast("decimal(38,0)") != value.cast("decimal(38,0)")
    is_whole, overflow = text.rlike(r"^-?\d{1,37}$"), _is_overflow(kind, value, text)
    return F.when(is_whole, is_other).otherwise(overflow) if kind.typeName() == "double" else overflow


def _names(kind: T.DataType) -> Iterator[str]:
    """Return the names of fields at all depths of a type."""
    if isinstance(kind, T.StructType):
        for field in kind:
            yield field.name
            yield from _names(field.dataType)
    elif isinstance(kind, T.ArrayType):
        yield from _names(kind.elementType)
    elif isinstance(kind, T.MapType):
        yield from _names(kind.valueType)


def _null_fields(value: Column, kind: T.StructType) -> Iterator[Column]:
    """Yield whether each field is NULL, and true for each list or map of structs: a field within them may be NULL."""
    for field in kind:
        one = value.getField(field.name)
        yield one.isNull()
        if isinstance(field.dataType, T.StructType):
            yield from _null_fields(one, field.dataType)
        elif any(True for _ in _names(field.dataType)):
            yield F.lit(True)


def _has_other_case(text: Column, kind: Any, options: dict[str, str] | None) -> Column:
    """Return whether a JSON text has a name that differs only by case from a field of a type."""
    if not any(True for _ in _names(kind)):
        return F.lit(False)
    is_list = isinstance(kind, T.ArrayType)
    found = F.from_json(text, "array<string>" if is_list else "map<string,string>", options)
    if isinstance(kind, T.StructType):
        names, lower = kind.names, [name.lower() for name in kind.names]
        here = F.exists(F.map_keys(found), lambda key: F.lower(key).isin(lower) & ~key.isin(names))
        parts = [_has_other_case(value_of(found, field.name), field.dataType, options) for field in kind]
        return reduce(or_, parts, F.coalesce(here, F.lit(False)))
    values, within = (found, kind.elementType) if is_list else (F.map_values(found), kind.valueType)
    return F.coalesce(F.exists(values, lambda one: _has_other_case(one, within, options)), F.lit(False))


class _Csv(_Syntax):
    as_text = ("date", "timestamp", "decimal")
    time_of_day = _WITHIN_CSV

    def with_end(self) -> Column:
        """Return the line with a value added at its end. Spark reads that value only if all quotes are closed."""
        return F.concat(F.col("record"), F.lit(bytearray(f"{self._separator}0".encode())))

    @property
    def _separator(self) -> str:
        return csv_separator(lowered(self.options))

    def parse(self, name: str, schema: T.StructType, **more: str) -> Column:
        kinds = [re.sub("^timestamp$", self.instant, field.dataType.simpleString()) for field in schema]
        columns = [f"{in_backticks(name)} {kind}" for name, kind in zip(schema.names, kinds, strict=True)]
        return F.from_csv(name, ", ".join(columns), {**self.options, "columnNameOfCorruptRecord": RECORD, **more})

    def is_doubtful(self, parsed: Column) -> Column:
        """Return whether a quote is misplaced, such as a closing quote with text or a blank before the separator."""
        whole = F.col("whole")
        return whole.contains(self.option("quote", '"')) & ~whole.rlike(csv_patterns(self.options)[0])

    def records(self, frame: DataFrame) -> DataFrame:
        """Return the frame. With ``short_lines=take``, first add separators to lines that lack their last values."""
        if self.option("short_lines") != "take":
            return frame
        kept = [name for name in frame.columns if name != "text"]
        names = [*(f"c{index}" for index in range(len(self.fields))), _END]
        frame = frame.select(
            *kept, "text", F.when(F.col("text").isNotNull(), self._texts("text", [_END])).alias("texts")
        )
        # Find `_END`, which `_texts` added after the line's last value. `place` is 0 if an unclosed quote contains it.
        place = F.array_position(F.array(*map(F.col("texts").getField, names)), _END).cast("int")
        frame = frame.select(*kept, "text", place.alias("place"))
        missing = F.array_join(F.array_repeat(F.lit(self._separator), F.lit(len(names)) - F.col("place")), "")
        padded = F.when(F.col("place") > 0, F.concat("text", missing)).otherwise(F.col("text"))
        return frame.select(*kept, padded.alias("text"))

    def is_bad(self, name: str) -> Column:
        """Return whether a record has more or fewer values than columns, or a misplaced quote."""
        texts = self._texts(name, [_END])
        has_its_quotes = F.col(name).rlike(csv_patterns(self.options)[0])
        return texts.getField(RECORD).isNotNull() | texts.getField(_END).isNull() | ~has_its_quotes

    def _texts(self, name: str, further: Sequence[str] = ()) -> Column:
        text = F.concat(F.col(name), F.lit(f"{self._separator}{_END}")) if further else F.col(name)
        return csv_texts(text, len(self.fields), self.options, further)

    def differs_by_case(self, name: str) -> Column:
        """Return false: records of CSV contain no names."""
        return F.lit(False)

    def value_text(self, name: str, index: int) -> Column:
        """Return the text of a value in a record."""
        return self._texts(name).getField(f"c{index}")
