"""Read many small planned objects: executors fetch them in parallel, and Spark parses them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, T
from scripts.helpers.errors import SourceError
from scripts.helpers.reading.fetch import WORKERS, WORKERS_HERE, Planned, fetcher_of, planned_of
from scripts.helpers.reading.fetched_lines import Fetching, LineRules, decompressed, pack, unmarked, unpacked
from scripts.helpers.reading.misfits import folder_column
from scripts.helpers.reading.records import REASON, RECORD, ROW, columns_of_lines, lowered, mark_quoted, parsed, plain
from scripts.helpers.reading.spark import check_folders, check_new_column
from scripts.helpers.spark.jvm import check_jvm
from scripts.helpers.spark.settings import parse_times_strictly
from scripts.helpers.spark.tasks import slots_of, spread

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

OnChanged = Literal["raise", "skip"]
PlannedIn = Callable[[pa.RecordBatch], Iterable[Planned]]
FORMATS = ("json", "csv", "text")
_TASK_BYTES = 64 * 1024 * 1024
"""About how many bytes one task fetches of a large batch, so that a failed task has little to repeat."""
_TASKS_PER_SLOT = 4
"""Enough to even out slow tasks; each task has an overhead."""
_JAVA_BLANK = bytes(range(33))
"""The characters that Java's `trim` removes. Spark's CSV reader drops lines that have no others."""


@dataclass(frozen=True)
class SmallFiles:
    """Reads many small objects: one request for each object, many requests at once in every task.

    Spark's own readers send S3 about five requests for each object, one after the other. The rows
    are those of Spark's reader with the same schema: `from_json` and `from_csv` parse the lines.
    An object is read only if it is still the planned one: by If-Match with its ETag, or by version.

    Parameters
    ----------
    format
        json (one object on each line, or in each file with ``multiLine``), csv or text. For others use `read_files`.
    path_column
        Name of a column to add, with the URI of each row's file. The key in it is not URL-encoded.
    on_changed
        ``raise`` fails the Spark job at the first object that was overwritten or deleted since; ``skip``
        leaves it out. Call `unchanged.check_unchanged` before the commit to find out whether any was left out.
    request_payer
        Pay for the requests, as another account's bucket may require.
    client_options
        For boto3's S3 client on the executors, such as ``endpoint_url`` and ``region_name``. By default
        botocore's session there provides everything: environment, profile or instance role.
    """

    spark: SparkSession
    location: Location
    format: str
    path_column: str | None = None
    on_changed: OnChanged = "raise"
    request_payer: bool = False
    client_options: Mapping[str, Any] | None = None

    def __call__(self, table: pa.Table, schema: T.StructType | None, options: Mapping[str, Any]) -> DataFrame:
        """Return the rows of some objects, for a `by_schema.SchemaReader`.

        Without a schema the objects are fetched an additional time, and Spark infers a schema from their records. Then
        folder columns are texts, because Spark would guess their types again in each batch.
        """
        if schema is None and self.format != "text":
            schema = self._inferred(table, options) if table.num_rows else T.StructType([])
        return self.read(table, schema, options)

    def read(self, table: pa.Table, schema: T.StructType | str | None, options: Mapping[str, Any]) -> DataFrame:
        """Read objects with a schema.

        Parameters
        ----------
        table
            The planned objects: key, etag, version_id, size.
        schema
            StructType or DDL text; required except for text, because no file is read to infer it. It also names the
            columns of ``name=value`` folders, which are returned last as in Spark's readers.
        options
            Reader options. Not supported: the mode DROPMALFORMED, csv's ``multiLine`` and ``enforceSchema=False``,
            and encodings other than UTF-8.

        Returns
        -------
        DataFrame
            Lazy: each action fetches the objects again.

        Raises
        ------
        SourceError
            This reader does not support the format, an option or the schema. While Spark reads, `typed_fetch_errors`
            turns the errors of executors back into ChangedObjectError and SourceError.
        """
        check_small_files(self.location, self.format, schema, self.on_changed, options)
        keys: list[str] = table.column("key").to_pylist()
        names = check_folders(self.location, keys) if keys else ()
        return self.read_shares(_packed(self.spark, table), unpacked, names, schema, options)

    def read_shares(
        self, shares: DataFrame, planned: PlannedIn, names: Sequence[str], schema: T.StructType | str | None,
        options: Mapping[str, Any], header: bytes | None = None,
    ) -> DataFrame:  # fmt: skip
        """Read objects as `read` does, where each task gets its objects from its share of a plan.

        Parameters
        ----------
        shares
            A DataFrame with one binary column, in which each value is a share of the plan, packed.
        planned
            A function that returns the objects in a batch of shares; executors receive it by pickle.
        names
            The columns that the folders of all keys add.
        header
            The header that each file must have; None skips the comparison.
        """
        asked = lowered(options or {})
        fields, folders = _split_schema(self.spark, self.location, "value string" if schema is None else schema, names)
        if self.path_column is not None:
            check_new_column(self.location, [*fields.names, *names], self.path_column)
        if self.format == "text" and len(fields) != 1:
            raise SourceError(
                str(self.location), f"text has one column, and the schema names {len(fields)}: {fields.names}."
            )
        parse_times_strictly(self.spark)
        fetching = self._fetching(line_rules(self.format, asked), len(names), planned, header)
        columns = ["record binary", "path string", *(f"folder_{index} string" for index in range(len(names)))]
        fetched = shares.mapInArrow(fetching, ", ".join(columns))
        is_strict = RECORD in fields.names
        if self.format == "csv" and is_strict and fields[RECORD].metadata.get("rescues"):
            fetched = mark_quoted(fetched, asked)
        rows = (parsed if is_strict else plain)(fetched, self.format, fields, asked)
        selected = [rows[ROW].getField(name).alias(name) for name in (*fields.names, *([REASON] if is_strict else []))]
        for index, (name, kind) in enumerate(folders):
            selected.append(folder_column(str(self.location), rows[f"folder_{index}"], name, kind))
        if self.path_column is not None:
            selected.append(rows["path"].alias(self.path_column))
        return rows.select(*selected)

    def _inferred(self, table: pa.Table, options: Mapping[str, Any]) -> T.StructType:
        check_small_files(self.location, self.format, "inferred", self.on_changed, options)
        what = f"read_small of {self.format} without a schema, or with on_schema_change,"
        check_jvm(self.spark, what, "Pass schema= and leave out on_schema_change, or use read.")
        asked = lowered(options or {})
        # Keep each CSV file's header line: Spark takes the first line as the header, and drops the lines equal to it.
        rules = replace(line_rules(self.format, asked), header=False)
        fetching = self._fetching(rules, 0, unpacked)
        fetched = _packed(self.spark, table).mapInArrow(fetching, "record binary, path string")
        # This runs a Spark job, which fetches the records.
        with typed_fetch_errors():
            schema = columns_of_lines(fetched, self.format, options)
        for name in check_folders(self.location, table.column("key").to_pylist()):
            schema = schema.add(name, "string")
        return schema

    def _fetching(self, rules: LineRules, folders: int, planned: PlannedIn, header: bytes | None = None) -> Fetching:
        for_client = tuple(sorted((self.client_options or {}).items()))
        skip = self.on_changed == "skip"
        return Fetching(self.location, rules, folders, skip, for_client, self.request_payer, planned, header)


def header_of(
    location: Location, one: Planned, options: Mapping[str, Any], client: S3Client | None, request_payer: bool
) -> bytes | None:
    """Fetch a planned CSV file; return its header, the first line as executors split lines, or None if it has none."""
    fetcher = fetcher_of(location, client, 1, request_payer)
    lines = line_rules("csv", lowered(options)).lines(decompressed(location, one.key, fetcher.fetch(one)))
    return lines[0] if lines else None


def try_small_files(location: Location, table: pa.Table, *, request_payer: bool = False) -> None:
    """Fetch and decompress planned objects in this process, as executors do; raise the first error."""
    fetcher = fetcher_of(location, None, WORKERS, request_payer)

    def fetch(one: Planned) -> None:
        decompressed(location, one.key, fetcher.fetch(one))

    with ThreadPoolExecutor(WORKERS_HERE) as pool:
        for _ in pool.map(fetch, planned_of(table)):
            pass


@contextmanager
def typed_fetch_errors() -> Iterator[None]:
    """Raise the errors of `SmallFiles` on executors, such as ChangedObjectError, in place of Spark's errors.

    Examples
    --------
    >>> with typed_fetch_errors():
    ...     written = True  # frame.write.parquet(...)
    """
    try:
        yield
    except Exception as error:
        found = unmarked(error)
        if found is None or isinstance(error, SourceError):
            raise
        raise found from error


def check_small_files(
    location: Location, format: str, schema: Any, on_changed: str, options: Mapping[str, Any] | None
) -> None:
    """Raise SourceError for arguments with which Spark's reader would return other rows; see `SmallFiles.read`."""
    asked = lowered(options or {})
    reason = None
    if not location.is_local and not location.is_s3:
        reason = f"{location.scheme}:// is not fetched here."
    elif format not in FORMATS:
        reason = f"the format {format!r} is not one of {', '.join(FORMATS)}."
    elif schema is None and format != "text":
        reason = f"{format} needs a schema here: no object is read to infer one."
    elif on_changed not in ("raise", "skip"):
        reason = f"on_changed is {on_changed!r}, and it can be 'raise' or 'skip'."
    elif asked.get("mode", "").upper() == "DROPMALFORMED":
        reason = "the mode DROPMALFORMED is not known to from_json and from_csv."
    elif format == "csv" and asked.get("multiline") == "true":
        reason = "csv with multiLine is not cut into lines."
    elif format == "csv" and asked.get("enforceschema") == "false":
        reason = "enforceSchema=False compares the header, which is not done here."
    elif asked.get("encoding", asked.get("charset", "utf-8")).lower() not in ("utf-8", "utf8"):
        reason = "the encoding is not UTF-8."
    if reason is not None:
        raise SourceError(str(location), f"read_small cannot read it so: {reason} Spark's own reader can: read.")


def line_rules(format: str, asked: Mapping[str, str]) -> LineRules:
    """Return how Spark's reader splits files, given its options as `lowered` returns them."""
    separator = asked["linesep"].encode() if "linesep" in asked else None
    if format == "text":
        return LineRules(asked.get("wholetext") == "true", separator)
    if format == "json":
        return LineRules(asked.get("multiline") == "true", separator, blank=b" \t\r\n")
    comment = asked.get("comment", "").strip("\0").encode() or None
    return LineRules(False, separator, _JAVA_BLANK, comment, asked.get("header") == "true")


def _split_schema(
    spark: SparkSession, location: Location, schema: T.StructType | str, names: Sequence[str]
) -> tuple[T.StructType, list[tuple[str, Any]]]:
    """Split a schema into the columns of the files and those of the folders, which Spark puts last."""
    whole = spark.createDataFrame([], schema).schema
    kinds = {field.name.lower(): field for field in whole}
    missing = [name for name in names if name.lower() not in kinds]
    if missing:
        raise SourceError(
            str(location), f"its folders give columns that the schema has no type for: {', '.join(missing)}. Add them."
        )
    lower = [name.lower() for name in names]
    in_files = T.StructType([field for field in whole if field.name.lower() not in lower])
    return in_files, [(kinds[name].name, kinds[name].dataType) for name in lower]


def _packed(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return the planned objects divided among Spark tasks: a few for each slot, or more if there are many bytes."""
    planned = table.select(list(Planned._fields))
    total = pc.sum(planned.column("size")).as_py() or 0
    each = files_per_task(spark, table.num_rows, total)
    parts = [pack(planned.slice(start, each)) for start in range(0, table.num_rows, each)]
    return spread(spark, parts)


def files_per_task(spark: SparkSession, count: int, total: int) -> int:
    """Return how many objects one task fetches, of `count` objects with `total` bytes."""
    tasks = max(_TASKS_PER_SLOT * slots_of(spark), math.ceil(total / _TASK_BYTES))
    # Return at least 1: the result is a step of range(), which cannot be 0, and an empty plan would give 0.
    return max(1, math.ceil(count / tasks))
