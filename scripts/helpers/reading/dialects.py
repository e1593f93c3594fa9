"""Options of file formats, with the same name, default and meaning in every reader and writer. Pure.

`TABLE` is the table in `docs/files.md`, and also translates Glue's names of options. Glue's names and defaults are from
AWS' page "Format options".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scripts.helpers.display.options import nearest
from scripts.helpers.errors import InvalidValueError

MERGING = ("parquet", "orc")
"""Formats for which Spark by default takes the columns of one file only."""
NO_QUOTE = "\uffff"
"""A character that no text contains, to turn quotes off. Without a quote, Spark's CSV parser uses NUL as one."""


@dataclass(frozen=True)
class Option:
    """One option of a format.

    Attributes
    ----------
    name, default, meaning
        The option's name in Spark and in `read`, `read_small` and `job.write`; its default value; its effect.
    glue, glue_default
        Glue's name and default; empty if Glue has none. With Glue's names, this package uses Glue's default, too.
    here
        What this package does differently from Glue, and why, if Glue's names are used.
    """

    format: str
    name: str
    default: str
    meaning: str
    glue: str = ""
    glue_default: str = ""
    here: str = ""


TABLE = (
    Option("csv", "sep", ",", "between two values", "separator", ","),
    Option("csv", "quote", '"', "around a value; an empty text for none", "quoteChar", '"', "-1 is an empty text"),
    Option(
        "csv", "escape", "the quote",
        'before a quote within quotes: `""` is one quote, as in RFC 4180. For files of Spark\'s own writer it is `\\`',
        "escaper", "none",
    ),
    Option(
        "csv", "header", "false", "the first line has the names of the columns, by which they are found",
        "withHeader", "false",
    ),
    Option("csv", "header", "false", "when writing", "writeHeader", "true"),
    Option("csv", "encoding", "UTF-8", "of the bytes; others in a file are an error", "encoding", "UTF-8"),
    Option(
        "csv", "multiLine", "false",
        "a value within quotes may have line ends. Each file is then read by one task, without the checks of lines",
        "multiLine", "false",
    ),
    Option("csv", "nullValue", "empty", "a text that is NULL; an empty value always is"),
    Option("csv", "comment", "none", "starts lines that are left out"),
    Option(
        "csv", "short_lines", "an error", "lines with fewer values than columns: `take` reads NULL for the others",
        here="take, for a table of the catalogue",
    ),
    Option("csv", "lineSep", "line feed, carriage return or both", "between two lines"),
    Option("csv", "dateFormat", "2026-11-24", "of dates", "dateFormat"),
    Option("csv", "timestampFormat", "ISO 8601", "of times", "timestampFormat"),
    Option(
        "parquet", "nanoseconds", "an error in `read`",
        "times in nanoseconds: `microseconds` refuses parts of a microsecond, `bigint` reads nanoseconds since 1970",
    ),
    Option(
        "parquet", "mergeSchema", "true", "reads the columns of all files; if false, those of one file",
    ),
    Option("parquet", "datetimeRebaseMode", "CORRECTED", "dates and times before 1900; LEGACY for those of Hive 2"),
    Option("parquet", "int96RebaseMode", "CORRECTED", "the same, of times in INT96"),
    Option("orc", "mergeSchema", "true", "reads the columns of all files; if false, those of one file"),
    Option("avro", "avroSchema", "those of all files", "the columns to read, as a schema of Avro"),
    Option("avro", "datetimeRebaseMode", "CORRECTED", "dates and times before 1900; LEGACY for those of Spark 2"),
    Option("xml", "rowTag", "an error", "the element that is a row", "rowTag"),
    Option("xml", "charset", "UTF-8", "of the bytes; others in a file are an error", "encoding", "UTF-8"),
    Option("xml", "dateFormat", "2026-11-24", "of dates", "dateFormat"),
    Option("xml", "timestampFormat", "ISO 8601", "of times", "timestampFormat"),
    Option("json", "multiLine", "false", "a file is one text of up to 2 GB, not a text a line", "multiLine", "false"),
    Option("json", "encoding", "UTF-8", "of the bytes; others in a file are an error", "encoding", "UTF-8"),
    Option("json", "lineSep", "line feed, carriage return or both", "between two lines"),
    Option("json", "dateFormat", "2026-11-24", "of dates", "dateFormat"),
    Option("json", "timestampFormat", "ISO 8601", "of times", "timestampFormat"),
)  # fmt: skip
# pathGlobFilter, modifiedBefore and modifiedAfter are left out: the files that they skip would count as read.
_FILES = "recursiveFileLookup basePath ignoreCorruptFiles ignoreMissingFiles"
_TEXTS = (
    "mode columnNameOfCorruptRecord samplingRatio charset encoding lineSep multiLine locale timeZone "
    "timestampNTZFormat timeFormat enableDateTimeParsingFallback singleVariantColumn"
)
READERS = {
    "csv": (
        f"{_TEXTS} delimiter inferSchema preferDate prefersDate enforceSchema ignoreLeadingWhiteSpace "
        "ignoreTrailingWhiteSpace nanValue positiveInf negativeInf maxColumns maxCharsPerColumn columnPruning "
        "charToEscapeQuoteEscaping emptyValue unescapedQuoteHandling inputBufferSize"
    ),
    "json": (
        f"{_TEXTS} primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes "
        "allowNumericLeadingZeros allowNonNumericNumbers allowBackslashEscapingAnyCharacter allowUnquotedControlChars "
        "dropFieldIfAllNull inferTimestamp maxNestingDepth maxNumLen maxStringLen"
    ),
    "xml": (
        f"{_TEXTS} timezone excludeAttribute treatEmptyValuesAsNulls inferSchema attributePrefix valueTag nullValue "
        "ignoreSurroundingSpaces rowValidationXSDPath ignoreNamespace wildcardColName prefersDecimal validateName "
        "rootTag"
    ),
    "text": "wholetext lineSep encoding charset",
    "avro": (
        "avroSchemaUrl ignoreExtension mode positionalFieldMatching recursiveFieldMaxDepth "
        "enableStableIdentifiersForUnionType stableIdentifierPrefixForUnionType"
    ),
    "parquet": "",
    "orc": "",
    "binaryfile": "",
}
"""Options of the readers in Spark 3.3 to 4.1 that are not in `TABLE`."""


def format_name(format: str) -> str:
    """Return a format's name in this package: ``csv`` for ``CSV`` and ``com.databricks.spark.csv``, as in Spark."""
    if not isinstance(format, str):
        raise InvalidValueError(f"format is {format!r}. Name one, such as 'csv', 'json' or 'parquet'.")
    name = format.lower().removeprefix("com.databricks.spark.")
    return name if name in READERS else format


def reader_options(format: str) -> list[str]:
    """Return the options of a format's reader; an empty list for a format whose options are unknown here."""
    if format.lower() not in READERS:
        return []
    named = [option.name for option in TABLE if option.format == format.lower()]
    return [*named, *READERS[format.lower()].split(), *_FILES.split()]


def unknown_options(format: str, options: Iterable[str]) -> list[str]:
    """Return options that the reader of a format does not use. Names with a dot are Hadoop settings, and allowed."""
    known = {name.lower() for name in reader_options(format)}
    return [name for name in options if known and name.lower() not in known and "." not in name]


def check_reader_options(format: str, options: Iterable[str]) -> None:
    """Raise InvalidValueError for an option that the reader of a format does not use, with the nearest known name.

    Also raise it for XML without ``rowTag``, the element of a row: the package for Spark 3 would look for ``ROW``.
    """
    for name in unknown_options(format, options):
        why = nearest([*reader_options(format), *glue_names(format)], name) or "Leave it out."
        for theirs, ours in glue_names(format).items():
            why = why.replace(f" {theirs}", f" {ours}")
        raise InvalidValueError(f"{name!r} is no option of the reader of {format}. {why}")
    if format == "xml" and "rowtag" not in map(str.lower, options):
        raise InvalidValueError("rowTag is missing, and XML does not say what a row is. Name the element of a row.")


def with_dialect(format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a reader or writer. If a default in `TABLE` differs from Spark's, add it unless it is set."""
    asked = {name.lower(): value for name, value in options.items()}
    if format.lower() in MERGING:
        return {**({} if "mergeschema" in asked else {"mergeSchema": "true"}), **options}
    if format.lower() != "csv" or "escape" in asked:
        return dict(options)
    quote = str(asked.get("quote", '"'))
    return {**options, "escape": quote} if len(quote) == 1 else dict(options)


def nanoseconds_of(format: str, options: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the value of ``nanoseconds``, or None, and the other options. InvalidValueError for a wrong value."""
    found = {name: value for name, value in options.items() if name.lower() == "nanoseconds"}
    for value in found.values():
        if format != "parquet" or value not in ("microseconds", "bigint"):
            raise InvalidValueError(
                f"nanoseconds={value!r} does not go with {format}. Of parquet it is 'microseconds' or 'bigint'."
            )
    return next(iter(found.values()), None), {name: value for name, value in options.items() if name not in found}


def glue_names(format: str) -> dict[str, str]:
    """Return a map from Glue's option names to Spark's."""
    return {option.glue: option.name for option in TABLE if option.format == format and option.glue}
