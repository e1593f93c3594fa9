"""What Glue's readers read: files and tables, tracked by the running job or whole."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import GlueOptionError
from scripts.helpers.glue.connection_options import FileRequest, TableRequest
from scripts.helpers.glue.formats import spark_format, spark_options
from scripts.helpers.glue.job import Job
from scripts.helpers.jdbc_rows import JdbcTable
from scripts.helpers.spark_paths import folder_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from scripts.helpers.file_delta import FileDelta
    from scripts.helpers.job import IncrementalJob


def read_files(
    spark: SparkSession,
    request: FileRequest,
    format: str | None,
    format_options: Mapping[str, Any],
    context: str,
    schema: str | None = None,
) -> DataFrame:
    """Return the files that are new to a context, or all of them where nothing is tracked.

    Without a new file the DataFrame has no columns unless a schema is given, as Glue's frames have none.
    """
    name = spark_format(format)
    options, path_column = spark_options(name, format_options)
    parts = []
    for delta in _deltas(request, context):
        for part in delta.split(lambda key: folder_columns(key.rpartition("/")[0] + "/")).values():
            parts.append(part.read(spark, name, schema=schema, path_column=path_column, **options))
    if not parts:
        from pyspark.sql.types import StructType

        return spark.createDataFrame([], schema or StructType([]))
    frames = parts if schema or name != "csv" else [_named_as_by_glue(part) for part in parts]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def read_table(spark: SparkSession, request: TableRequest, context: str) -> DataFrame:
    """Return the rows of a table that are new to a context, or all of them where nothing is tracked."""
    table = JdbcTable(spark, request.url, request.table, properties=request.properties, partitions=request.partitions)
    job = Job.tracking(context)
    if job is None or not context or job.mode.name == "disable":
        return table.toDF()
    if request.keys is None:
        raise GlueOptionError(
            "jobBookmarkKeys",
            "is missing. Glue would take the primary key: name its columns, or better a column that also grows when a "
            "row is changed.",
        )
    found: DataFrame = job.rows_since(table, list(request.keys), transformation_ctx=context, **request.options)
    return found


def _deltas(request: FileRequest, context: str) -> list[FileDelta]:
    """Return the new files of each folder; the limits hold for all of them together."""
    job = Job.tracking(context)
    found: list[FileDelta] = []
    names = _contexts(job, context, [folder for folder, _ in request.folders])
    for (folder, own), name in zip(request.folders, names, strict=True):
        options = {**request.options, **own}
        limits = {
            "max_files": _rest(request.max_files, sum(delta.count for delta in found)),
            "max_bytes": _rest(request.max_bytes, sum(delta.bytes for delta in found)),
        }
        if 0 in limits.values():
            break
        options |= {limit: value for limit, value in limits.items() if value is not None}
        if job is not None:
            found.append(job.new_files(folder, transformation_ctx=name, **options))
        else:
            from scripts.helpers.file_bookmark import FileBookmark

            found.append(FileBookmark(folder, **options).new_files())
    return found


def _rest(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(limit - used, 0)


def _contexts(job: IncrementalJob | None, context: str, folders: list[str]) -> Sequence[str | None]:
    """Name the state of each folder: one keeps the context's own name, the others have a hash behind it.

    The first folder of the first run keeps it, wherever it stands later in the list.
    """
    if job is None or len(folders) == 1 or not context:
        return [context or None] * len(folders)
    from scripts.helpers.object_listing import Location

    places = [Location.parse(folder).name for folder in folders]
    state = job.run.state(context)
    first = state.get("source") if isinstance(state, Mapping) else None
    owner = places.index(first) if first in places else 0
    return [
        context if position == owner else f"{context}#{hashlib.sha256(place.encode()).hexdigest()[:8]}"
        for position, place in enumerate(places)
    ]


def _named_as_by_glue(frame: DataFrame) -> DataFrame:
    """Call columns without a header col0, col1, …, as Glue does."""
    return frame.toDF(*(re.sub(r"^_c(\d+)$", r"col\1", name) for name in frame.columns))
