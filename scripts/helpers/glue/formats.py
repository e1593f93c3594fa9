"""Translates Glue's formats and their options to those of Spark's readers and writers. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from scripts.helpers.errors import Advice, NotOffGlueError
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.reading.dialects import glue_names, unknown_options

logger = logging.getLogger(__name__)

FORMATS = {
    "csv": "csv", "json": "json", "parquet": "parquet", "glueparquet": "parquet", "orc": "orc", "avro": "avro",
    "xml": "xml",
}  # fmt: skip
_WRITTEN = {"compression"}
"""Options that Spark's readers do not use, because they detect compression by a file's extension."""
_NEEDLESS = {
    "optimizePerformance", "strictCheckForQuoting", "useGlueParquetWriter", "blockSize", "pageSize", "version",
}  # fmt: skip
_REFUSED = {"skipFirst", "jsonPath"}
ADVICE = Advice(
    keep=(
        "To leave such records out, read with create_dynamic_frame.from_options and the format option "
        "'mode': 'DROPMALFORMED'; to have Spark's NULLs, with 'mode': 'PERMISSIVE'."
    ),
    retype="If the type is that of a table of the catalogue, make it string there, and cast with resolveChoice.",
    csv="If a backslash escapes quotes, pass 'escaper': '\\\\' there; if values have line ends, 'multiLine': True.",
    json="If a record has line ends, pass 'multiLine': True there.",
    decode="Pass the format option 'encoding', such as 'ISO-8859-1'.",
    rename="Rename one.",
    part="Read them apart: name the one in 'paths', and leave it out of the other read by 'exclusions'.",
)
"""What the author of a Glue script can do about files that do not fit."""


def spark_format(name: str | None) -> str:
    """Return Spark's name of a format; raise NotOffGlueError if Spark does not have the format."""
    if name is None:
        raise glue_option_error("format", f"is missing. Name one of {', '.join(FORMATS)}.")
    if name.lower() not in FORMATS:
        raise NotOffGlueError(f"The format {name!r}", f"Use one of {', '.join(FORMATS)}, or read it with Spark.")
    return FORMATS[name.lower()]


def spark_options(name: str, given: Mapping[str, Any], *, writing: bool = False) -> tuple[dict[str, str], str | None]:
    """Return the options of Spark's reader or writer, and the column for file names (``attachFilename``).

    Spark's own options are passed on. Options that neither Glue nor Spark has are logged, and dropped for a reader.

    Raises
    ------
    InvalidValueError
        ``skipFirst`` or ``jsonPath`` is given, for which Spark has no equivalent.
    """
    left = dict(given)
    column = left.pop("attachFilename", None)
    options: dict[str, str] = {}
    if name == "csv" and writing:
        options["header"] = "true"
    for theirs, ours in glue_names(name).items():
        if theirs in left:
            options[ours] = _text(left.pop(theirs))
    if options.get("quote") == "-1":
        options["quote"] = ""
    for option in sorted(_REFUSED & set(left)):
        if _text(left.pop(option)) != "false":
            raise glue_option_error(option, "is not here. Read with Spark and filter or select from the DataFrame.")
    if "multiline" in left:
        options["multiLine"] = _text(left.pop("multiline"))
    for option in (_NEEDLESS if writing else _NEEDLESS | _WRITTEN) & set(left):
        del left[option]
    unknown = set(unknown_options(name, left)) - _WRITTEN
    if unknown:
        logger.warning("event=format_options_unknown format=%s options=%s", name, ",".join(sorted(unknown)))
    options |= {option: _text(value) for option, value in left.items() if writing or option not in unknown}
    return options, None if column is None else str(column)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
