"""Settings of a Spark session that change what is read or written, and what this package does about each.

| setting, after the prefix `spark.sql` | what this package does |
|---|---|
| `files.ignoreCorruptFiles`, `files.ignoreMissingFiles` | refuses them: `check_all_is_read` |
| `legacy.timeParserPolicy` | replaces EXCEPTION, the default, with CORRECTED: `parse_times_strictly` |
| `sources.partitionColumnTypeInference.enabled` | turns it off while folders are read as text; otherwise keeps it |
| `sources.parallelPartitionDiscovery.parallelism` | lowers it while planned files are listed |
| `legacy.parquet.nanosAsLong` | turns it on while the schema of files is inferred, if `nanoseconds` is requested |
| `parquet.mergeSchema`, `orc.mergeSchema` | passes the reader option, which overrides the setting |
| `parquet.datetimeRebaseModeInRead`, `parquet.int96RebaseModeInRead`, `avro.datetimeRebaseModeInRead` | uses \
CORRECTED where the user left them unset: `times_as_written` |
| `parquet.outputTimestampType`, `parquet.datetimeRebaseModeInWrite`, `parquet.int96RebaseModeInWrite` | sets what the \
user left unset, and replaces EXCEPTION with CORRECTED, while it writes |
| `parquet.inferTimestampNTZ.enabled`, `timestampType` | keeps them: times have another type and the same value |
| `parquet.binaryAsString`, `parquet.int96AsTimestamp`, `session.timeZone` | keeps them: they define what files mean |
| `caseSensitive`, `ansi.enabled`, `parquet.enableVectorizedReader`, `csv.parser.columnPruning.enabled`, \
`jsonGenerator.ignoreNullFields`, `sources.partitionOverwriteMode`, and `spark.speculation` | works with any value |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scripts.helpers._lazy import SparkSession
from scripts.helpers.errors import InvalidValueError

TEXTS_OF_FOLDERS = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}
"""Settings with which Spark reads the values of ``name=value`` folders as texts."""
NANOSECONDS = "spark.sql.legacy.parquet.nanosAsLong"
"""Lets Spark infer BIGINT for nanoseconds. Spark can read with the inferred schema without this setting."""
REBASING = {
    "parquet": {
        "datetimeRebaseMode": "parquet.datetimeRebaseModeInRead",
        "int96RebaseMode": "parquet.int96RebaseModeInRead",
    },
    "avro": {"datetimeRebaseMode": "avro.datetimeRebaseModeInRead"},
}
"""By format: reader options, and the names of their settings after ``spark.sql.`` or ``spark.sql.legacy.``."""
TIME_PARSER = "spark.sql.legacy.timeParserPolicy"


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Apply settings inside the block, then restore the previous values."""
    conf = spark.conf
    before = {name: conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                conf.unset(name)
            else:
                conf.set(name, own)


def parse_times_strictly(spark: SparkSession) -> None:
    """Make Spark 3 treat a date that does not exist as a malformed value, for the rest of the session.

    By default Spark 3 raises an error that asks for this setting, even in a read that keeps malformed values
    (``rescue=True``). Spark parses lazily, so the setting must stay. A session that is set to LEGACY is not changed.
    """
    if spark.conf.get(TIME_PARSER) == "EXCEPTION":
        spark.conf.set(TIME_PARSER, "CORRECTED")


def times_as_written(spark: SparkSession, format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return reader options that keep old dates as in the file, unless the caller or the session sets the options.

    By default Spark 3 raises an error for dates before 1582 and times before 1900 that it did not write itself.
    """
    asked, conf = {name.lower() for name in options}, spark.conf
    left = {}
    for option, name in REBASING.get(format.lower(), {}).items():
        names = (f"spark.sql.{name}", f"spark.sql.legacy.{name}")
        if option.lower() not in asked and all(conf.get(each, None) is None for each in names):
            left[option] = "CORRECTED"
    return {**left, **options}


def check_all_is_read(spark: SparkSession, options: Mapping[str, Any] | None = None) -> None:
    """Refuse options that make Spark skip corrupt or missing files: the files would count as read."""
    for name in ("ignoreCorruptFiles", "ignoreMissingFiles"):
        setting = f"spark.sql.files.{name}"
        asked = {f"option {name}": value for key, value in (options or {}).items() if key.lower() == name.lower()}
        for where, value in {**asked, setting: spark.conf.get(setting, "false")}.items():
            if str(value).lower() == "true":
                raise InvalidValueError(
                    f"{where} is true: Spark would leave out the rows of files that it cannot read, and they would "
                    "count as taken. Set it to false, and leave such files out by exclude."
                )
