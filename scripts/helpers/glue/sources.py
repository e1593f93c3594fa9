"""What Glue's readers read: files and tables, tracked by the running job or whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.glue.connection_options import FileRequest, TableRequest
from scripts.helpers.glue.file_contexts import folder_contexts
from scripts.helpers.glue.formats import spark_format, spark_options
from scripts.helpers.glue.job import Job
from scripts.helpers.glue.partitions import Partitions, texts_of_folders
from scripts.helpers.glue.primary_keys import bookmark_key
from scripts.helpers.listing.paths import folder_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from scripts.helpers.files.bookmark import FileBookmark
    from scripts.helpers.files.delta import FileDelta
    from scripts.helpers.job import IncrementalJob


def read_files(
    spark: SparkSession,
    request: FileRequest,
    format: str | None,
    format_options: Mapping[str, Any],
    context: str,
    schema: str | None = None,
    partitions: Partitions | None = None,
) -> DataFrame:
    """Return the files that are new to a context, or all of them where nothing is tracked.

    Without a new file the DataFrame has no columns unless a schema is given, as Glue's frames have none.
    With `partitions` of a table the keys are columns, in the catalogue's types.
    """
    name = spark_format(format)
    options, path_column = spark_options(name, format_options)
    parts = []
    for delta in _deltas(request, context):
        for (_, values), part in delta.split(lambda key: _layout(key, partitions)).items():
            with nullcontext() if partitions is None else texts_of_folders(spark):
                frame = part.read(spark, name, schema=schema, path_column=path_column, **options)
            parts.append(frame if partitions is None else partitions.typed(frame, values))
    if not parts:
        from pyspark.sql.types import StructType

        empty = spark.createDataFrame([], schema or StructType([]))
        return empty if partitions is None or not schema else partitions.typed(empty, ("",) * len(partitions.keys))
    frames = parts if schema or name != "csv" else [_named_as_by_glue(part) for part in parts]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def read_table(spark: SparkSession, request: TableRequest, context: str) -> DataFrame:
    """Return the rows of a table that are new to a context, or all of them where nothing is tracked."""
    table = JdbcTable(spark, request.url, request.table, properties=request.properties, partitions=request.partitions)
    job = Job.tracking(context)
    if job is None or not context or job.mode.name == "disable":
        return table.toDF()
    keys = [bookmark_key(spark, request, context)] if request.keys is None else list(request.keys)
    found: DataFrame = job.rows_since(table, keys, transformation_ctx=context, **request.options)
    return found


def _deltas(request: FileRequest, context: str) -> list[FileDelta]:
    """Return the new files of each folder; the limits hold for all of them together, the oldest first."""
    job = Job.tracking(context)
    names = folder_contexts(job, context, [folder for folder, _ in request.folders])
    sources = [
        _Source(folder, name, {**request.options, **own})
        for (folder, own), name in zip(request.folders, names, strict=True)
    ]
    given = {"max_files": request.max_files, "max_bytes": request.max_bytes}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if len(sources) == 1:
        return [sources[0].new_files(job, limits)]
    fixed = job is not None and (job.run.replay or job.mode.is_range)
    if not limits or fixed:
        return [source.new_files(job) for source in sources]
    shares = _shares(sources, job, request)
    return [
        source.new_files(job, {"max_files": shares[index]}) for index, source in enumerate(sources) if shares[index]
    ]


@dataclass(frozen=True)
class _Source:
    folder: str
    context: str | None
    options: Mapping[str, Any]

    def new_files(self, job: IncrementalJob | None, limits: Mapping[str, Any] = MappingProxyType({})) -> FileDelta:
        if job is None:
            return self.bookmark(None, limits).new_files()
        return job.new_files(self.folder, transformation_ctx=self.context, **self.options, **limits)

    def bookmark(self, job: IncrementalJob | None, limits: Mapping[str, Any] = MappingProxyType({})) -> FileBookmark:
        from scripts.helpers.files.bookmark import FileBookmark

        state = job.run.state(self.context) if job is not None and self.context else None
        context = self.context or "files"
        return FileBookmark(self.folder, state=state, context=context, saves=False, **self.options, **limits)


def _shares(sources: Sequence[_Source], job: IncrementalJob | None, request: FileRequest) -> Counter[int]:
    """Return how many files of each folder are among the oldest of all, as the limits of a batch admit."""
    import pyarrow as pa

    from scripts.helpers.files.rules import oldest_first

    found = [source.bookmark(job).new_files().table.select(["key", "size", "modified"]) for source in sources]
    numbered = [
        table.append_column("source", pa.array([index] * table.num_rows, pa.int64()))
        for index, table in enumerate(found)
    ]
    first, _ = oldest_first(pa.concat_tables(numbered), request.max_files, request.max_bytes)
    return Counter(first.column("source").to_pylist())


def _layout(key: str, partitions: Partitions | None) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return what the files must have in common that one reader reads: columns of folders, values of a partition."""
    columns = folder_columns(key.rpartition("/")[0] + "/")
    return columns, None if partitions is None else partitions.values_of(key)


def _named_as_by_glue(frame: DataFrame) -> DataFrame:
    """Call columns without a header col0, col1, …, as Glue does."""
    return frame.toDF(*(re.sub(r"^_c(\d+)$", r"col\1", name) for name in frame.columns))
