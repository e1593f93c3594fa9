"""Every target that a job can write to: how rows are written, what it supports, and a reader outside this package."""

from __future__ import annotations

import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from inspect import signature
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.sinks import DatabaseSink, DeltaSink, FileSink, IcebergSink
from scripts.helpers.sinks.connectors import deltalake_place
from scripts.helpers.watermarks import Watermarks
from tests.support.staging import staged_by
from tests.support.written import Written

Rows = list[dict[str, Any]]
E = TypeVar("E", bound=WatermarkError)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Kind:
    """One kind of target.

    Attributes
    ----------
    family
        The sink that writes it: that of files, Delta, Iceberg or a database.
    engine
        The type of the rows: a Spark or pandas frame, a pyarrow table, or a stream of pyarrow batches.
    form
        The file format, or the database system.
    on_s3
        Whether the target is in a bucket.
    """

    family: str
    engine: str
    form: str = "parquet"
    on_s3: bool = False

    @property
    def is_lazy(self) -> bool:
        """Whether the types of the rows are checked before the first row exists."""
        return self.engine in ("spark", "stream")

    @property
    def is_a_further_format(self) -> bool:
        """Whether it is a format beyond Parquet and Delta; those are tested only after a change."""
        return self.family == "iceberg" or self.form in ("orc", "csv", "json")

    @property
    def can(self) -> frozenset[str]:
        """What it supports: partition_by, merge (with and without a history), batch_column, roll_back, constrain."""
        lake = {"partition_by", "merge", "batch_column", "roll_back"}
        # Partitioning into folders needs all rows in memory.
        able = {
            "files": set() if self.engine == "stream" else {"partition_by"},
            "delta": lake | {"constrain"}, "iceberg": lake,
            "database": {"merge", "batch_column", "constrain"},
        }[self.family]  # fmt: skip
        # Deletes can be marked only in Spark and pandas frames.
        return frozenset(able - ({"merge"} if self.engine in ("pyarrow", "stream") else set()))


TARGETS: Mapping[str, Kind] = {
    "parquet": Kind("files", "spark"),
    "orc": Kind("files", "spark", "orc"),
    "csv": Kind("files", "spark", "csv"),
    "json": Kind("files", "spark", "json"),
    "pandas": Kind("files", "pandas"),
    "pyarrow": Kind("files", "pyarrow"),
    "stream": Kind("files", "stream"),
    "parquet-s3": Kind("files", "spark", on_s3=True),
    "orc-s3": Kind("files", "spark", "orc", on_s3=True),
    "csv-s3": Kind("files", "spark", "csv", on_s3=True),
    "json-s3": Kind("files", "spark", "json", on_s3=True),
    "pandas-s3": Kind("files", "pandas", on_s3=True),
    "pyarrow-s3": Kind("files", "pyarrow", on_s3=True),
    "delta-spark": Kind("delta", "spark"),
    "deltalake": Kind("delta", "pandas"),
    "deltalake-s3": Kind("delta", "pyarrow", on_s3=True),
    "deltalake-stream": Kind("delta", "stream"),
    "iceberg-spark": Kind("iceberg", "spark"),
    "pyiceberg": Kind("iceberg", "pandas"),
    "pyiceberg-stream": Kind("iceberg", "stream"),
    "postgres": Kind("database", "pandas", "postgres"),
    "maria": Kind("database", "pandas", "maria"),
    "sqlite": Kind("database", "pandas", "sqlite"),
    "sqlite-stream": Kind("database", "stream", "sqlite"),
    "postgres-jdbc": Kind("database", "spark", "postgres"),
}


def every(
    able: str = "", where: Callable[[Kind], bool] = lambda kind: True, slow: tuple[str, ...] = ()
) -> pytest.MarkDecorator:
    """Run a test on every target that has an ability; `slow` ones only in the long tests."""
    names = [name for name, kind in TARGETS.items() if (not able or able in kind.can) and where(kind)]
    marked = [pytest.param(name, marks=[pytest.mark.long] if name in slow else []) for name in names]
    return pytest.mark.parametrize("target", marked, indirect=True)


IN_A_BUCKET = ("pandas-s3", "pyarrow-s3", "deltalake-s3")
"""Slow targets of tests that do not depend on the place: the same code writes the same files to a local folder."""


def in_one_place(kind: Kind) -> bool:
    """Return False for Spark's formats in a bucket: this package treats them as it treats local ones."""
    return not (kind.on_s3 and kind.engine == "spark")


def in_one_format(kind: Kind) -> bool:
    """Return False for Spark's further formats too, for tests that do not depend on what the files hold."""
    return in_one_place(kind) and not (kind.engine == "spark" and kind.form in ("orc", "csv", "json"))


class Target(ABC):
    """One target, empty at first."""

    sink_class: Any
    """The sink class; a test may kill a run in its `publish`."""
    is_named = True
    """Whether its name is enough to reach it, without an object that only the script has."""

    def __init__(self, kind: Kind, spark: Any = None, s3: Any = None) -> None:
        self.kind, self.spark, self.s3 = kind, spark, s3

    def frame(self, rows: pa.Table) -> Any:
        """Return rows as the type that is written to this target."""
        if self.kind.engine == "pyarrow":
            return rows
        if self.kind.engine == "stream":
            return ArrowStream(rows.schema, partial(rows.to_batches, max_chunksize=1))
        if self.kind.engine == "pandas":
            return rows.to_pandas(types_mapper=pd.ArrowDtype)
        schema = spark_schema(rows.schema)
        values = [tuple(_for_spark(value) for value in row.values()) for row in rows.to_pylist()]
        return self.spark.createDataFrame(values, schema)

    def create(self, schema: pa.Schema, **more: pa.DataType) -> None:  # noqa: B027
        """Make the table if the sink does not make one; `more` adds columns that the rows lack."""

    def constrain(self, name: str, check: str) -> None:
        """Add a check constraint to an existing table."""
        raise NotImplementedError

    @abstractmethod
    def write(self, job: IncrementalJob, rows: pa.Table, **options: Any) -> None:
        """Write a batch by the public method of the job."""

    @abstractmethod
    def sink(self, **options: Any) -> Any:
        """Return a sink for this target."""

    @abstractmethod
    def read(self) -> Rows:
        """Return all rows that a reader sees, in any order; an empty list if there is no target."""

    @abstractmethod
    def contents(self) -> Any:
        """Return all that is stored at the target and next to it, in a form that can be compared."""

    def newest(self) -> int:
        """Return the current version or snapshot of a table."""
        raise NotImplementedError

    def roll_back(self, to: int) -> None:
        """Roll a table back to a version or snapshot with a command of its format."""
        raise NotImplementedError

    def changed_at(self) -> datetime:
        """Return when the current version of a table was committed."""
        raise NotImplementedError

    def roll_back_to_time(self, to: datetime) -> None:
        """Roll a table back to its state at a time, with a command of its format."""
        raise NotImplementedError

    def added(self) -> int:
        """Return how many rows the last commit added, by the table's own count if it keeps one."""
        return len(self.read())

    def ids(self) -> list[int]:
        """Return the ids that a reader sees."""
        return sorted(row["id"] for row in self.read())

    def another(self, name: str) -> Target:
        """Return an empty target of the same kind next to this one, with the given name."""
        raise NotImplementedError

    def stage(self, batch: BatchId, *ids: int, fence: int = 7, **options: Any) -> Output:
        """Stage rows by an attempt that belongs to no job."""
        return staged_by(self.sink(**options), batch, fence, self.frame(numbers(*ids)))


def spark_schema(schema: pa.Schema) -> Any:
    """Return the schema of a pyarrow table as Spark's schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # Spark 3.3 only has times with a zone.
    has_wall_clocks = "prefer_timestamp_ntz" in signature(from_arrow_schema).parameters
    return from_arrow_schema(schema, **({"prefer_timestamp_ntz": True} if has_wall_clocks else {}))


def _for_spark(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_for_spark(inner) for inner in value.values())
    return value


# --- files ----------------------------------------------------------------------------------------------


class Folder:
    """A local folder, as file names and contents."""

    def __init__(self, path: Path) -> None:
        self.path, self.uri = path, str(path)

    def all(self) -> dict[str, bytes]:
        """Return the contents of its files, by name."""
        files = [path for path in self.path.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.path)): path.read_bytes() for path in files}

    def beside(self, name: str) -> Folder:
        return Folder(self.path.parent / name)

    def around(self) -> Folder:
        return Folder(self.path.parent)


class Prefix:
    """A prefix of a bucket, as object names and contents."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self._s3, self._bucket, self._prefix = s3, bucket, prefix
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")

    def all(self) -> dict[str, bytes]:
        """Return the contents of its files, by name."""
        start = f"{self._prefix}/" if self._prefix else ""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=start)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {
            key.removeprefix(start): self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
            for key in keys
            if not key.endswith("/")
        }

    def beside(self, name: str) -> Prefix:
        return Prefix(self._s3, self._bucket, f"{self._prefix.rpartition('/')[0]}/{name}")

    def around(self) -> Prefix:
        return Prefix(self._s3, self._bucket, self._prefix.rpartition("/")[0])


Place = Folder | Prefix


def is_hidden(name: str) -> bool:
    """Return whether readers such as Spark and Athena ignore a file."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in name.split("/"))


class Files(Target):
    """Files below one folder."""

    sink_class = FileSink

    def __init__(self, kind: Kind, place: Place, spark: Any = None, s3: Any = None) -> None:
        super().__init__(kind, spark, s3)
        self.place = place
        self.schema: pa.Schema | None = None

    def another(self, name: str) -> Files:
        return Files(self.kind, self.place.beside(name), self.spark, self.s3)

    def write(self, job: IncrementalJob, rows: pa.Table, **options: Any) -> None:
        if self.kind.form == "csv":
            options = {"header": True} | options
        job.write(self.frame(rows), self.place.uri, format=self.kind.form, **options)
        # Text formats do not store the types of their columns.
        self.schema = self.schema or rows.schema

    def sink(self, **options: Any) -> FileSink:
        return FileSink(self.place.uri, spark=self.spark, s3_client=self.s3, format=self.kind.form, **options)

    def read(self) -> Rows:
        found = {name: data for name, data in self.place.all().items() if not is_hidden(name) and data}
        if not found:
            return []
        if self.kind.form in ("csv", "json", "orc"):
            return self._by_spark()
        rows = []
        for name, data in found.items():
            folders = [part.split("=", 1) for part in name.split("/")[:-1]]
            values = {unquote(column): _of_folder(value) for column, value in folders}
            rows += [row | values for row in pq.ParquetFile(BytesIO(data)).read().to_pylist()]
        return rows

    def _by_spark(self) -> Rows:
        assert self.schema is not None
        reader = self.spark.read.format(self.kind.form).option("multiLine", self.kind.form == "csv")
        if self.kind.form == "csv":
            reader = reader.option("escape", '"')
        schema = spark_schema(self.schema)
        # Read as users do, with a new option each time: otherwise Spark would reuse its cached list of files.
        found = reader.schema(schema).options(header=True, unused=next(_numbers)).load(literal(self.place.uri))
        exact = {"timestamp": "unix_micros({})", "timestamp_ntz": "CAST({} AS STRING)", "date": "CAST({} AS STRING)"}
        named = [exact.get(kind, "{}").format(f"`{name.replace('`', '``')}`") for name, kind in found.dtypes]
        rows = [row.asDict(recursive=True) for row in found.selectExpr(
            *(f"{one} AS `{name.replace('`', '``')}`" for one, name in zip(named, found.columns, strict=True))
        ).collect()]  # fmt: skip
        kinds = {field.name: field.type for field in self.schema}
        return [{name: _exact(value, kinds[name]) for name, value in row.items()} for row in rows]

    def contents(self) -> Any:
        return self.place.around().all().keys()


def literal(path: str) -> str:
    """Escape the characters that Spark's reader would read as a glob pattern."""
    return "".join(f"\\{sign}" if sign in "\\*?[]{}" else sign for sign in path)


def _of_folder(value: str) -> str | None:
    return None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)


def _exact(value: Any, kind: pa.DataType) -> Any:
    """Convert a value that Spark returned as a number or a text to its type."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return (
            EPOCH.replace(tzinfo=timezone.utc) + timedelta(microseconds=value)
            if kind.tz
            else datetime.fromisoformat(value)
        )
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    return bytes(value) if isinstance(value, bytearray) else value


# --- Delta and Iceberg ----------------------------------------------------------------------------------


class Delta(Target):
    """A Delta table at a path."""

    sink_class = DeltaSink

    def __init__(self, kind: Kind, place: Place, spark: Any = None, s3: Any = None) -> None:
        super().__init__(kind, spark, s3)
        self.place = place

    def another(self, name: str) -> Delta:
        return Delta(self.kind, self.place.beside(name), self.spark, self.s3)

    def write(self, job: IncrementalJob, rows: pa.Table, **options: Any) -> None:
        job.write(self.frame(rows), self.place.uri, format="delta", **options)

    def sink(self, **options: Any) -> DeltaSink:
        return DeltaSink(self.place.uri, spark=self.spark, s3_client=self.s3, **options)

    def read(self) -> Rows:
        # Follow the log by hand: opening a table by its path is what is tested.
        files, rows = self.place.all(), list[dict[str, Any]]()
        added, kinds = dict[str, dict[str, str | None]](), dict[str, Any]()
        for name in sorted(name for name in files if name.startswith("_delta_log/") and name.endswith(".json")):
            for line in files[name].decode().splitlines():
                action = json.loads(line)
                if "metaData" in action:
                    fields = json.loads(action["metaData"]["schemaString"])["fields"]
                    kinds = {field["name"]: field["type"] for field in fields}
                if "add" in action:
                    added[unquote(action["add"]["path"])] = action["add"]["partitionValues"]
                if "remove" in action:
                    added.pop(unquote(action["remove"]["path"]), None)
        for name, values in added.items():
            found = pq.ParquetFile(BytesIO(files[name]), coerce_int96_timestamp_unit="us").read().to_pylist()
            rows += [
                {column: _of_delta(value, kinds[column]) for column, value in (row | values).items()} for row in found
            ]
        return rows

    def contents(self) -> Any:
        return self.place.around().all().keys()

    def newest(self) -> int:
        return max(int(name[11:31]) for name in self.place.all() if re.match(r"_delta_log/\d{20}\.json", name))

    def roll_back(self, to: int) -> None:
        if self.spark is not None:
            self.spark.sql(f"RESTORE TABLE delta.`{self.place.uri}` TO VERSION AS OF {to}")
        else:
            self._opened().restore(to)

    def added(self) -> int:
        newest = self.place.all()[f"_delta_log/{self.newest():020d}.json"].decode()
        found = [json.loads(line)["add"]["stats"] for line in newest.splitlines() if '"add":' in line]
        return sum(json.loads(stats)["numRecords"] for stats in found)

    def changed_at(self) -> datetime:
        newest = Path(self.place.uri, "_delta_log", f"{self.newest():020d}.json")
        return EPOCH + timedelta(milliseconds=newest.stat().st_mtime_ns // 10**6)

    def roll_back_to_time(self, to: datetime) -> None:
        if self.spark is not None:
            self.spark.sql(f"RESTORE TABLE delta.`{self.place.uri}` TO TIMESTAMP AS OF '{to.isoformat()}'")
        else:
            self._opened().restore(to)

    def constrain(self, name: str, check: str) -> None:
        if self.spark is not None:
            self.spark.sql(f"ALTER TABLE delta.`{self.place.uri}` ADD CONSTRAINT {name} CHECK ({check})")
        else:
            self._opened().alter.add_constraint({name: check})

    def _opened(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.place.uri, storage_options=deltalake_place(self.sink().target)[1])


def without_spark(target: Target) -> Target:
    """Return a table of Spark as `deltalake` writes it, because Spark takes seconds for a commit; else the target."""
    if isinstance(target, Delta) and target.spark is not None:
        return Delta(TARGETS["deltalake"], target.place)
    return target


def _of_delta(value: Any, kind: Any) -> Any:
    """Convert a value of a file or of a partition to the type in the log."""
    if kind == "timestamp" and value is not None:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.replace(tzinfo=timezone.utc)
    of_text = {"long": int, "double": float}.get(kind) if isinstance(kind, str) else None
    return of_text(value) if of_text and value is not None else value


class Iceberg(Target):
    """An Iceberg table in a catalog."""

    sink_class = IcebergSink

    def __init__(self, kind: Kind, name: str, catalog: Any = None, spark: Any = None) -> None:
        super().__init__(kind, spark)
        self.is_named = spark is not None
        self.name, self.catalog = name, catalog

    def another(self, name: str) -> Iceberg:
        return Iceberg(self.kind, f"{self.name.rpartition('.')[0]}.{name}", self.catalog, self.spark)

    def write(self, job: IncrementalJob, rows: pa.Table, **options: Any) -> None:
        if self.spark is not None:
            job.write(self.frame(rows), self.name, format="iceberg", **options)
        else:
            job.write(self.frame(rows), self.sink(**options))

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink(self.name, spark=self.spark, catalog=self.catalog, **options)

    @property
    def table(self) -> Any:
        """The table as a pyiceberg object; None if it does not exist."""
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table import StaticTable

        _, namespace, name = self.name.split(".", 2)
        if self.spark is None:
            try:
                return self.catalog.load_table((namespace, name))
            except NoSuchTableError:
                return None
        metadata = Path(self.spark.conf.get("spark.sql.catalog.lake.warehouse"), namespace, name, "metadata")
        if not (metadata / "version-hint.text").exists():
            return None
        newest = (metadata / "version-hint.text").read_text().strip()
        return StaticTable.from_metadata(str(metadata / f"v{newest}.metadata.json"))

    def read(self) -> Rows:
        table = self.table
        found: Rows = [] if table is None else table.scan().to_arrow().to_pylist()
        return found

    def contents(self) -> Any:
        table = self.table
        if table is None:
            return None
        return [one.snapshot_id for one in table.snapshots()], str(table.schema()), sorted(table.refs())

    def newest(self) -> int:
        return int(self.table.current_snapshot().snapshot_id)

    def added(self) -> int:
        return int(self.table.current_snapshot().summary["added-records"])

    def roll_back(self, to: int) -> None:
        if self.spark is not None:
            self.spark.sql(f"CALL lake.system.set_current_snapshot('{self.name.partition('.')[2]}', {to})")
        else:
            self.table.manage_snapshots().set_current_snapshot(to).commit()


# --- databases ------------------------------------------------------------------------------------------

DECLARED: Mapping[str, Mapping[str, str]] = {
    "postgres": {
        "int64": "bigint", "int32": "integer", "double": "double precision", "string": "text", "binary": "bytea",
        "bool": "boolean", "date32[day]": "date", "timestamp[us]": "timestamp", "timestamp[us, tz=UTC]": "timestamptz",
    },
    "maria": {
        "int64": "bigint", "int32": "integer", "double": "double", "binary": "longblob", "bool": "boolean",
        "string": "varchar(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "date32[day]": "date",
        "timestamp[us]": "datetime(6)", "timestamp[us, tz=UTC]": "timestamp(6) NULL",
    },
    "sqlite": {
        "int64": "integer", "int32": "integer", "double": "real", "string": "text", "binary": "blob",
        "bool": "boolean", "date32[day]": "text", "timestamp[us]": "text", "timestamp[us, tz=UTC]": "text",
    },
}  # fmt: skip


class Database(Target):
    """A database table."""

    sink_class = DatabaseSink
    is_named = False

    def __init__(self, kind: Kind, written: Written, name: str, spark: Any = None) -> None:
        super().__init__(kind, spark)
        self.written, self.name = written, name
        self.schema: pa.Schema | None = None

    def another(self, name: str) -> Database:
        return Database(self.kind, self.written, name, self.spark)

    def quoted(self, name: str) -> str:
        sign = "`" if self.kind.form == "maria" else '"'
        return sign + name.replace(sign, sign * 2) + sign

    def _declared(self, kind: pa.DataType) -> str:
        if pa.types.is_decimal(kind):
            return "text" if self.kind.form == "sqlite" else f"numeric({kind.precision},{kind.scale})"
        return DECLARED[self.kind.form][str(kind)]

    def create(self, schema: pa.Schema, **more: pa.DataType) -> None:
        self.schema = schema
        columns = {field.name: field.type for field in schema} | more
        listed = ", ".join(f"{self.quoted(name)} {self._declared(kind)}" for name, kind in columns.items())
        with self._cursor() as cursor:
            cursor.execute(f"CREATE TABLE {self.quoted(self.name)} ({listed})")

    def constrain(self, name: str, check: str) -> None:
        table = self.quoted(self.name)
        with self._cursor() as cursor:
            if self.kind.form != "sqlite":
                cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({check})")
                return
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = ?", (self.name,))
            ((made,),) = cursor.fetchall()
            cursor.execute(f"ALTER TABLE {table} RENAME TO {self.quoted(f'{self.name}_before')}")
            cursor.execute(f"{made.removesuffix(')')}, CONSTRAINT {name} CHECK ({check}))")
            cursor.execute(f"INSERT INTO {table} SELECT * FROM {self.quoted(f'{self.name}_before')}")

    def declare(self, schema: pa.Schema, **declared: str) -> None:
        """Make the table with a database type for each column."""
        self.schema = schema
        with self._cursor() as cursor:
            listed = ", ".join(f"{self.quoted(name)} {kind}" for name, kind in declared.items())
            cursor.execute(f"CREATE TABLE {self.quoted(self.name)} ({listed})")

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with closing(self.written.connect()) as connection:
            cursor = connection.cursor()
            if self.kind.form != "sqlite":
                cursor.execute("SET TIME ZONE 'UTC'" if self.kind.form == "postgres" else "SET time_zone = '+00:00'")
            yield cursor
            connection.commit()

    def write(self, job: IncrementalJob, rows: pa.Table, **options: Any) -> None:
        job.write(self.frame(rows), self.sink(**options))

    def sink(self, **options: Any) -> DatabaseSink:
        if self.spark is None:
            return DatabaseSink([self.name], connect=self.written.connect, name="shop", **options)
        written = self.written
        return DatabaseSink([self.name], spark=self.spark, url=written.url, properties=written.properties, **options)

    def read(self) -> Rows:
        with self._cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.quoted(self.name)}")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        kinds = {field.name: field.type for field in self.schema or ()}
        return [{name: _of_database(value, kinds.get(name)) for name, value in row.items()} for row in rows]

    def contents(self) -> Any:
        query = {
            "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
            "maria": "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'",
            "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
        }[self.kind.form]
        with self._cursor() as cursor:
            cursor.execute(query)
            # Staging tables of all targets, without the table of batches, which the first batch of any target makes.
            tables = sorted(name for (name,) in cursor.fetchall() if name.startswith("gw_"))
            cursor.execute(f"SELECT COUNT(*) FROM {self.quoted(self.name)}")
            return tables, cursor.fetchone()


def _of_database(value: Any, kind: pa.DataType | None) -> Any:
    """Convert a value to the type that was written: SQLite has no times, and MariaDB neither booleans nor zones."""
    if value is None or kind is None:
        return value
    if pa.types.is_boolean(kind):
        return bool(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind) and isinstance(value, str):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.replace(tzinfo=timezone.utc) if kind.tz and moment.tzinfo is None else moment
    return bytes(value) if isinstance(value, memoryview) else value


# --- a job ----------------------------------------------------------------------------------------------


class Copy:
    """A job that writes batches to a target.

    Its source has one number for each batch so far, so the replay of a plan reads the batches of that plan and no
    later one.

    Attributes
    ----------
    batches
        The batches of the source.
    """

    def __init__(self, watermarks: Watermarks, target: Target, job_id: str = "repairs", **options: Any) -> None:
        self.watermarks, self.target, self.job_id, self.options = watermarks, target, job_id, options
        self.batches: list[pa.Table] = []

    def job(self, run_id: str = "") -> IncrementalJob:
        """Return a run that has not started yet."""
        run_id = run_id or f"jr_{next(_numbers)}"
        return IncrementalJob(self.watermarks, self.job_id, run_id, spark=self.target.spark, s3_client=self.target.s3)

    def begin(self, *batches: pa.Table, run_id: str = "", **options: Any) -> IncrementalJob:
        """Add batches to the source, start a run and stage what is new."""
        self.batches += batches
        job = self.job(run_id).__enter__()
        try:
            self.stage(job, **options)
        except BaseException as error:
            job.__exit__(type(error), error, None)
            raise
        return job

    def stage(self, job: IncrementalJob, **options: Any) -> None:
        """Read what is new and write it to the target."""
        numbers = job.rows_since(pd.DataFrame({"number": range(1, len(self.batches) + 1)}), "number")
        taken = [self.batches[number - 1] for number in numbers["number"]]
        rows = pa.concat_tables(taken) if taken else self.batches[-1].schema.empty_table()
        self.put(job, rows, **{**self.options, **options})

    def put(self, job: IncrementalJob, rows: pa.Table, **options: Any) -> None:
        """Append rows, or merge them if keys are given."""
        if "keys" not in options:
            self.target.write(job, rows, **options)
            return
        made = {name: options.pop(name) for name in ("partition_by", "staging") if name in options}
        job.merge(self.target.frame(rows), self.target.sink(**made), **options)

    def run(self, *batches: pa.Table, **options: Any) -> None:
        """Stage, commit and publish what is new."""
        self.begin(*batches, **options).__exit__(None, None, None)

    def prepare(self, *batches: pa.Table) -> None:
        """Run once for each batch, without Spark if the target allows both: the runs of the test come later."""
        target, self.target = self.target, without_spark(self.target)
        for batch in batches:
            self.run(batch)
        self.target = target

    def refused(self, batch: pa.Table, error: type[E], match: str = "", **options: Any) -> E:
        """Check that a batch is refused before its commit, and remove it from the source. Return the error."""
        with pytest.raises(error, match=match) as caught:
            self.begin(batch, **options)
        self.batches.pop()
        if self.watermarks.latest(self.job_id).plan is not None:
            self.watermarks.discard_plan(self.job_id, why="it was refused")
        return caught.value


def numbers(*ids: int) -> pa.Table:
    """Return rows that differ in their ids."""
    return pa.table({"id": pa.array(ids, pa.int64()), "word": pa.array([f"w{one}" for one in ids], pa.string())})


def shown(rows: Rows) -> list[str]:
    """Return rows in the order of their ids, as texts, which compare equal even for NaN."""
    return [repr(sorted((name, _plain(value)) for name, value in row.items())) for row in sorted(rows, key=_by_id)]


def _by_id(row: Mapping[str, Any]) -> Any:
    return row["id"]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
