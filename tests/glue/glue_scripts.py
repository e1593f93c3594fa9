"""The environment of a script written for AWS Glue: buckets, tables of the catalogue, databases, and new rows.

Public scripts are not kept here. `GLUE_SCRIPTS_DIR` names a folder that holds them as ``owner/name/path``; see
`tests.support.fetch_glue_scripts`.
"""

from __future__ import annotations

import csv
import io
import json
import re
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID as ACCOUNT

FOLDER = "GLUE_SCRIPTS_DIR"
"""Environment variable that names the folder of the scripts."""
CATALOGUED = "s3://catalogued"
"""Location of the files of catalogue tables, unless a source names another place."""
SOURCES = "sources"
"""The database on the server with the tables that scripts read."""
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Files:
    """Files that a script reads.

    Attributes
    ----------
    columns
        Names and types as Hive writes them: ``id bigint, name string``.
    batches
        The rows that are new to each run.
    place
        Folder, with a slash at its end. Defaults to the folder of `table`.
    table
        ``database.table`` of the catalogue, where it is read by that.
    keys
        Partition keys with their types; their values come last in each row.
    """

    columns: str
    batches: Sequence[Sequence[Row]]
    format: str = "parquet"
    place: str = ""
    table: str = ""
    keys: str = ""

    @property
    def folder(self) -> str:
        return self.place or f"{CATALOGUED}/{self.table.replace('.', '/')}/"


@dataclass(frozen=True)
class Rows:
    """A table of PostgreSQL that a script reads.

    Attributes
    ----------
    name
        In the schema ``public``.
    columns
        As CREATE TABLE takes them.
    batches
        The rows that are new to each run.
    table
        ``database.table`` of the catalogue, where it is read by that.
    connection
        Name of the connection of the catalogue that leads to it.
    """

    name: str
    columns: str
    batches: Sequence[Sequence[Row]]
    table: str = ""
    connection: str = "source"


@dataclass(frozen=True)
class Holds:
    """What a target must hold after the last run.

    Attributes
    ----------
    place
        A folder; depending on `format`, ``database/table`` of PostgreSQL or ``database.table`` of the catalogue.
    columns
        Names separated by spaces. For a table of the catalogue, `rows` lists the names of its columns: those named
        here, or all columns if none is named.
    rows
        In any order; each row as often as it occurs here.
    """

    place: str
    columns: str
    rows: Sequence[Row] = ()
    format: str = "parquet"


@dataclass(frozen=True)
class Script:
    """A public script, what it reads and what it must write.

    Attributes
    ----------
    repository, commit, path
        Where it is on GitHub.
    arguments
        Job arguments besides ``JOB_NAME``, ``JOB_RUN_ID``, ``TempDir`` and the bookmark option.
    modules
        Files of its repository that it imports; their imports are changed as well.
    databases
        Databases of the catalogue, besides those of the sources.
    buckets
        Buckets besides those that the script, its arguments, sources and targets name by an ``s3://`` URL.
    connections
        PostgreSQL databases by the name of the catalogue connection that leads to them.
    stops
        Part of the error that stops the script here, although Glue may run it to the end.
    why
        Why the outcome differs from Glue's, or from what a reader would expect.
    """

    repository: str
    commit: str
    path: str
    sources: Sequence[Files | Rows]
    targets: Sequence[Holds] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    modules: Sequence[str] = ()
    databases: Sequence[str] = ()
    buckets: Sequence[str] = ()
    connections: Mapping[str, str] = field(default_factory=dict)
    stops: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.repository}/{self.path}"

    @property
    def runs(self) -> int:
        return max(len(source.batches) for source in self.sources)


def moved(text: str) -> str:
    """Return a script with its imports changed, as docs/glue.md says, and nothing else."""
    return re.sub(r"^( *from) awsglue[._a-z]* import", r"\1 scripts.helpers.glue import", text, flags=re.M)


def pairs(columns: str) -> list[tuple[str, str]]:
    """Return names and types of columns. A type that contains commas must not contain spaces."""
    return [(name, kind) for name, kind in (part.strip().rsplit(" ", 1) for part in columns.split(", ") if part)]


class Stage:
    """The environment of one script: built before the first run and taken down after the last.

    Parameters
    ----------
    postgres
        The PostgreSQL server of the tests.
    """

    def __init__(self, script: Script, folder: Path, spark: Any, s3: Any, postgres: Any, tmp_path: Path) -> None:
        self.script, self.spark, self.s3, self.postgres = script, spark, s3, postgres
        self.glue = boto3.client("glue")
        self.text = (folder / script.repository / script.path).read_text()
        self.program = tmp_path / Path(script.path).name
        self.program.write_text(moved(self.text))
        for name in script.modules:
            module = tmp_path / name
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(moved((folder / script.repository / name).read_text()))
        places = " ".join([self.text, *script.arguments.values(), *(each.place for each in script.targets)])
        for source in script.sources:
            places += f" {source.folder}" if isinstance(source, Files) else ""
        self.buckets = sorted({*re.findall(r"s3://([a-z0-9.-]+)", places), *script.buckets, "temporary"})
        found = [each.table.partition(".")[0] for each in script.sources if each.table]
        self.databases = sorted({*found, *script.databases})
        self.servers = sorted({SOURCES, *script.connections.values()})

    # --- building and taking down ------------------------------------------------------------------

    def build(self) -> None:
        region = self.s3.meta.region_name
        for bucket in self.buckets:
            self.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
        for database in self.databases:
            self.glue.create_database(DatabaseInput={"Name": database})
        for server in self.servers:
            self.postgres.sql(f'CREATE DATABASE "{server}"')
        leads = {each.connection: SOURCES for each in self.script.sources if isinstance(each, Rows)}
        for name, server in {**leads, **self.script.connections}.items():
            self._connect(name, server)
        for source in self.script.sources:
            if isinstance(source, Rows):
                self._make_rows(source)
            elif source.table:
                self._describe(source)

    def take_down(self) -> None:
        for bucket in self.buckets:
            held = self.s3.list_objects_v2(Bucket=bucket).get("Contents", [])
            for each in held:
                self.s3.delete_object(Bucket=bucket, Key=each["Key"])
            self.s3.delete_bucket(Bucket=bucket)
        # Reset Moto, which cannot delete a connection: the next script may have one of the same name.
        get_backend("glue")[ACCOUNT][self.glue.meta.region_name].reset()
        for server in self.servers:
            self.postgres.sql(f'DROP DATABASE "{server}" WITH (FORCE)')

    def _connect(self, name: str, server: str) -> None:
        login = {
            "JDBC_CONNECTION_URL": re.sub("/[^/]*$", f"/{server}", self.postgres.url),
            "USERNAME": self.postgres.properties["user"],
            "PASSWORD": self.postgres.properties["password"],
        }
        self.glue.create_connection(
            ConnectionInput={"Name": name, "ConnectionType": "JDBC", "ConnectionProperties": login}
        )

    def _make_rows(self, source: Rows) -> None:
        self.sql(SOURCES, f"CREATE TABLE {source.name} ({source.columns})")
        if source.table:
            database, _, name = source.table.partition(".")
            described = {
                "Name": name,
                "StorageDescriptor": {"Location": f"{SOURCES}.public.{source.name}", "Columns": []},
                "Parameters": {"classification": "postgresql", "connectionName": source.connection},
            }
            self.glue.create_table(DatabaseName=database, TableInput=described)

    def _describe(self, source: Files) -> None:
        """Create a table in the catalogue as a crawler does."""
        database, _, name = source.table.partition(".")
        serde: dict[str, Any] = {}
        parameters = {"classification": source.format}
        if source.format == "csv":
            library = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
            serde = {"SerializationLibrary": library, "Parameters": {"field.delim": ","}}
            parameters["skip.header.line.count"] = "1"
        columns, keys = (
            [{"Name": column, "Type": kind} for column, kind in pairs(each)] for each in (source.columns, source.keys)
        )
        described = {
            "Name": name,
            "StorageDescriptor": {"Location": source.folder, "Columns": columns, "SerdeInfo": serde},
            "PartitionKeys": keys,
            "Parameters": parameters,
        }
        self.glue.create_table(DatabaseName=database, TableInput=described)

    # --- running -----------------------------------------------------------------------------------

    def land(self, number: int) -> None:
        """Add the rows and files that are new to run `number`."""
        for source in self.script.sources:
            rows = source.batches[number] if number < len(source.batches) else ()
            if rows and isinstance(source, Rows):
                for row in rows:
                    texts = ", ".join("%s" for _ in row)
                    self.sql(SOURCES, f"INSERT INTO {source.name} VALUES ({texts})", row)
            elif rows and isinstance(source, Files):
                self._put(source, rows, number)

    def run(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        given = {
            "JOB_NAME": "public",
            "JOB_RUN_ID": f"jr_{number}",
            "TempDir": "s3://temporary/",
            "job-bookmark-option": "job-bookmark-enable",
            **self.script.arguments,
        }
        arguments = [text for name, value in given.items() for text in (f"--{name}", value)]
        monkeypatch.setattr(sys, "argv", [str(self.program), *arguments])
        runpy.run_path(str(self.program), run_name="__main__")

    def _put(self, source: Files, rows: Sequence[Row], number: int) -> None:
        keys = pairs(source.keys)
        columns = pairs(source.columns)
        by_folder: dict[Row, list[Row]] = {}
        for row in rows:
            by_folder.setdefault(row[len(columns) :], []).append(row[: len(columns)])
        for values, some in by_folder.items():
            below = "".join(f"{key}={value}/" for (key, _), value in zip(keys, values, strict=True))
            place = source.folder + below
            bucket, _, prefix = place.removeprefix("s3://").partition("/")
            name = f"{prefix}batch{number}.{source.format}"
            self.s3.put_object(Bucket=bucket, Key=name, Body=_body(source.format, columns, some))
            if keys and source.table:
                database, _, table = source.table.partition(".")
                partition = {"Values": [str(value) for value in values], "StorageDescriptor": {"Location": place}}
                self.glue.batch_create_partition(DatabaseName=database, TableName=table, PartitionInputList=[partition])

    def sql(self, database: str, statement: str, values: Row = ()) -> list[Row]:
        import psycopg

        server: Any = psycopg.connect(
            host="127.0.0.1", port=self.postgres.port, user="postgres", dbname=database, autocommit=True
        )
        with server as connection:
            cursor = connection.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    # --- checking ----------------------------------------------------------------------------------

    def held(self, target: Holds) -> list[Row]:
        """Return what a target holds, sorted."""
        names = target.columns.split()
        if target.format == "postgresql":
            database, _, table = target.place.partition("/")
            quoted = ", ".join(f'"{name}"' for name in names)
            found = self.sql(database, f"SELECT {quoted} FROM {table}")
        elif target.format == "catalogue":
            database, _, name = target.place.partition(".")
            table = self.glue.get_table(DatabaseName=database, Name=name)["Table"]
            columns = [*table["StorageDescriptor"]["Columns"], *table.get("PartitionKeys", [])]
            found = [(column["Name"],) for column in columns if not names or column["Name"] in names]
        else:
            reader = self.spark.read.format(target.format)
            if target.format == "csv":
                reader = reader.option("header", "true")
            df = reader.load(target.place)
            found = [tuple(row) for row in df.select([f"`{name}`" for name in names]).collect()]
        return sorted((tuple(map(_plain, row)) for row in found), key=str)

    def expected(self, target: Holds) -> list[Row]:
        return sorted(target.rows, key=str)


def _plain(value: Any) -> Any:
    """Return a value of Spark or PostgreSQL in the form that the list of scripts uses."""
    from pyspark.sql import Row as SparkRow

    if isinstance(value, SparkRow):
        return value.asDict(recursive=True)
    return value


def _body(format: str, columns: Sequence[tuple[str, str]], rows: Sequence[Row]) -> bytes:
    """Return the bytes of a file with the rows."""
    names = [name for name, _ in columns]
    if format == "json":
        lines = []
        for row in rows:
            record = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            lines.append(json.dumps(record))
        return "\n".join(lines).encode()
    if format == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([names, *rows])
        return text.getvalue().encode()
    import pyarrow as pa
    from pyarrow import orc, parquet

    kinds = {
        "bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string(),
        "timestamp": pa.timestamp("us", "UTC"), "tinyint": pa.int8(), "binary": pa.binary(), "boolean": pa.bool_(),
    }  # fmt: skip
    arrays = [pa.array([row[place] for row in rows], kinds[kind]) for place, (_, kind) in enumerate(columns)]
    table = pa.Table.from_arrays(arrays, names=names)
    buffer = io.BytesIO()
    if format == "orc":
        orc.write_table(table, buffer)
    else:
        parquet.write_table(table, buffer)
    return buffer.getvalue()
