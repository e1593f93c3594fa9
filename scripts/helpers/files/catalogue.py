"""Tables of Spark's catalogue as sources of partitions: where their files lie, and the types of their columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.helpers._lazy import SparkSession
from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.files.partitions import PartitionColumns
from scripts.helpers.listing.folders import KINDS, folder_values
from scripts.helpers.schemas.spark_frames import struct_of
from scripts.helpers.spark.jvm import check_jvm, java_of, java_session

_TEXTS = re.compile(r"(var)?char\(\d+\)")
_SCHEME = re.compile("^(s3[an]?|file):/*")
NOT_FILES = ("delta", "iceberg", "hudi")
"""Providers whose folders hold also files that are no part of the table any more."""


def located(
    source: str, columns: str | Sequence[str], types: Mapping[str, str] | None, spark: SparkSession | None
) -> tuple[str, PartitionColumns]:
    """Return where a source lies, and its partition columns. A path is what it is; a table is looked up.

    A table's columns have the types of the catalogue, where `types` does not say otherwise. What counts are the folders
    below its location, registered or not.

    Raises
    ------
    SourceError
        There is no such table, it is a view or no plain files, or a partition is registered with a folder that is
        elsewhere or is called otherwise.
    InvalidValueError
        A column is no partition column of the table, or has a type that is none of `folders.KINDS`.
    """
    # A path has a slash in it. `./landing` is a local directory, and a name without a slash is a table.
    if "/" in source or source in ("", ".", ".."):
        return source, PartitionColumns.of(columns, types)
    if spark is None:
        raise SourceError(
            source,
            "a name without a slash is a table of Spark's catalogue, and the job has no Spark session that could be "
            "asked. Give the job spark=, or the path of the folder.",
        )
    check_jvm(
        spark, f"The table {source!r} of Spark's catalogue", "Give the path of its folder instead, with its partition "
        "columns and their types.",
    )  # fmt: skip
    table, partitions = _look_up(spark, source)
    known = {field["name"].lower(): field["type"] for field in table["fields"]}
    wanted = PartitionColumns.of(columns, types)
    given = {name.lower() for name in types or {}}
    found = []
    for name, kind in zip(wanted.names, wanted.types, strict=True):
        if name.lower() not in known:
            raise InvalidValueError(
                f"Table {source!r} has no partition column {name!r}. It has: {', '.join(known) or 'none'}."
            )
        found.append(kind if name.lower() in given else _kind(source, name, known[name.lower()]))
    _check_partitions(source, table["location"], partitions)
    return table["location"], PartitionColumns(wanted.names, tuple(found))


def _look_up(spark: SparkSession, name: str) -> tuple[dict[str, Any], list[tuple[dict[str, str], str]]]:
    """Ask the session's catalogue for a table and its partitions, each with its values and its folder."""
    from py4j.protocol import Py4JJavaError
    from pyspark.sql.utils import AnalysisException, ParseException  # type: ignore[attr-defined]

    session = java_session(spark).sessionState()
    try:
        identifier = session.sqlParser().parseTableIdentifier(name)
        table = session.catalog().getTableMetadata(identifier)
    except (AnalysisException, ParseException, Py4JJavaError) as error:
        raise SourceError(
            name, "Spark's catalogue has no such table. Check database and name; a path has a slash: ./folder."
        ) from error
    provider = table.provider().get() if table.provider().isDefined() else ""
    is_view = table.tableType().name() == "VIEW"
    if is_view or provider.lower() in NOT_FILES:
        what = "a view" if is_view else f"a table of {provider}"
        raise SourceError(name, f"it is {what}, so it has no folder whose files are its rows. Read it as a table.")
    columns = json.loads(table.partitionSchema().json())["fields"]
    fields = struct_of({column["name"]: column["type"] for column in columns}).fields
    shown = [{"name": field.name, "type": field.dataType.simpleString()} for field in fields]
    jvm = java_of(spark)
    path = jvm.org.apache.hadoop.fs.Path
    partitions = []
    if fields:
        listed = session.catalog().listPartitions(identifier, jvm.scala.Option.empty())
        for position in range(listed.size()):
            one = listed.apply(position)
            values = dict(zip(_texts(one.spec().keys()), _texts(one.spec().values()), strict=True))
            partitions.append((values, str(path(one.location()).toString())))
    location = re.sub("^file:/+", "/", str(path(table.location()).toString()))
    return {"location": location.rstrip("/") + "/", "fields": shown}, partitions


def _texts(of_scala: Any) -> list[str]:
    found, texts = of_scala.iterator(), []
    while found.hasNext():
        texts.append(str(found.next()))
    return texts


def _check_partitions(name: str, location: str, partitions: Sequence[tuple[dict[str, str], str]]) -> None:
    """Refuse a table with partitions whose folders are not where, and called what, a listing would find."""
    start = _SCHEME.sub("/", location).lstrip("/")
    wrong = []
    for values, folder in partitions:
        there = _SCHEME.sub("/", folder.rstrip("/") + "/").lstrip("/")
        said = {column.lower(): text for column, text in folder_values(there[len(start) :])}
        asked = {column.lower(): text for column, text in values.items()}
        if not there.startswith(start) or said != asked:
            wrong.append("/".join(f"{column}={text}" for column, text in values.items()))
    if wrong:
        partitions_are = "1 partition is" if len(wrong) == 1 else f"{len(wrong):,} partitions are"
        raise SourceError(
            name,
            f"{partitions_are} registered with a folder that is not the column=value folder below the table's "
            f"location, such as {wrong[0]}. A listing would miss it. Move the files, or give each folder as a source "
            "of its own to new_files.",
        )


def _kind(table: str, name: str, kind: str) -> str:
    found = "string" if _TEXTS.fullmatch(kind) else kind
    if found in ("tinyint", "smallint"):
        found = "int"
    if found not in KINDS:
        raise InvalidValueError(
            f"Partition column {name!r} of table {table!r} is a {kind}. Say how its folders are to be read, such as "
            f"types={{{name!r}: 'string'}}."
        )
    return found
