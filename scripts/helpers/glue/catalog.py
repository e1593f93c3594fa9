"""Tables of the AWS Glue Data Catalog: where their data lie, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import GlueOptionError, NotOffGlueError, SourceError
from scripts.helpers.glue.formats import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASES = ("postgresql", "mysql", "mariadb", "sqlserver", "oracle")
MAX_PARTITIONS = 2_000
"""Folders that a predicate may leave; more make one pattern too long to match each key with."""
_SERDES = {
    "ParquetHiveSerDe": "parquet", "OrcSerde": "orc", "JsonSerDe": "json", "AvroSerDe": "avro",
    "LazySimpleSerDe": "csv", "OpenCSVSerde": "csv",
}  # fmt: skip


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalogue.

    Attributes
    ----------
    location
        Folder in S3, or ``database.schema.table`` of a database.
    format
        One of Glue's formats, or the kind of database.
    format_options
        In Glue's spellings.
    columns, partition_keys
        Pairs of name and type, as Hive writes it.
    connection
        Name of the connection of a database.
    """

    name: str
    location: str
    format: str
    format_options: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[tuple[str, str]] = ()
    partition_keys: Sequence[tuple[str, str]] = ()
    connection: str | None = None

    @property
    def is_database(self) -> bool:
        """Tell a table of a database from files."""
        return self.format in DATABASES

    @property
    def schema(self) -> str | None:
        """Return the columns as Spark's DDL, for formats whose files do not name them."""
        if self.format != "csv" or not self.columns:
            return None
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)


class Catalog:
    """The Data Catalog of the default account and region, or of `catalog_id`."""

    def __init__(self, catalog_id: str | None = None) -> None:
        import boto3

        self._client = boto3.client("glue")
        self._owner = {"CatalogId": catalog_id} if catalog_id else {}

    def table(self, database: str, table_name: str) -> CatalogTable:
        """Look a table up. SourceError if it is not there, or of a kind that is not read here."""
        name = f"{database}.{table_name}"
        found = self._call(name, "get_table", DatabaseName=database, Name=table_name)["Table"]
        storage, parameters = found.get("StorageDescriptor", {}), found.get("Parameters", {})
        serde = storage.get("SerdeInfo", {})
        kind = parameters.get("classification", "").lower()
        if kind not in (*FORMATS, *DATABASES):
            library = serde.get("SerializationLibrary", "").rpartition(".")[2]
            kind = _SERDES.get(library, "")
        if not kind:
            raise NotOffGlueError(f"The format of table {name!r}", "Read it with spark.table or with Spark's reader.")
        if not storage.get("Location"):
            raise SourceError(name, "the catalogue gives no location for it. Mend the table.")
        return CatalogTable(
            name,
            storage["Location"],
            kind,
            _csv_options(serde.get("Parameters", {}), parameters) if kind == "csv" else {},
            _pairs(storage.get("Columns", [])),
            _pairs(found.get("PartitionKeys", [])),
            parameters.get("connectionName"),
        )

    def connection(self, name: str | None) -> dict[str, str]:
        """Return url, user and password of a connection. They are never shown."""
        if not name:
            raise SourceError("JDBC", "the table names no connection. Use from_options with url, user and password.")
        found = self._call(name, "get_connection", Name=name)["Connection"]["ConnectionProperties"]
        names = {"JDBC_CONNECTION_URL": "url", "USERNAME": "user", "PASSWORD": "password"}
        return {ours: found[theirs] for theirs, ours in names.items() if theirs in found}

    def folders(self, spark: SparkSession, table: CatalogTable, predicate: str, in_catalog: str = "") -> list[str]:
        """Return the globs of the partitions that a predicate over the partition keys leaves.

        Parameters
        ----------
        predicate
            In Spark's SQL, as ``push_down_predicate``.
        in_catalog
            For the catalogue itself, as ``catalogPartitionPredicate``.
        """
        if not table.partition_keys:
            raise GlueOptionError("push_down_predicate", f"is given, but {table.name!r} has no partition keys.")
        database, _, name = table.name.partition(".")
        rows = list(self._partitions(database, name, in_catalog))
        if predicate and rows:
            names = [key for key, _ in table.partition_keys]
            texts = ", ".join(f"`{key}` string" for key in [*names, "a folder"])
            casts = [f"CAST(`{key}` AS {kind}) AS `{key}`" for key, kind in table.partition_keys]
            frame = spark.createDataFrame(rows, texts).selectExpr(*casts, "`a folder`")
            kept = [row["a folder"] for row in frame.where(predicate).collect()]
        else:
            kept = [row[-1] for row in rows]
        if len(kept) > MAX_PARTITIONS:
            raise GlueOptionError(
                "push_down_predicate", f"leaves {len(kept):,} partitions; the limit is {MAX_PARTITIONS:,}. Narrow it."
            )
        return [_below(table, folder) for folder in kept]

    def _partitions(self, database: str, name: str, expression: str) -> Iterator[tuple[str, ...]]:
        further = {"Expression": expression} if expression else {}
        token: dict[str, str] = {}
        while True:
            page = self._call(
                f"{database}.{name}", "get_partitions", DatabaseName=database, TableName=name, **further, **token
            )
            for found in page["Partitions"]:
                yield (*found["Values"], found["StorageDescriptor"]["Location"])
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def _call(self, name: str, operation: str, **request: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, operation)(**self._owner, **request)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            raise SourceError(name, f"{operation} of the Glue catalogue says {code}. Check name and rights.") from error
        except BotoCoreError as error:
            raise SourceError(
                name, f"the Glue catalogue cannot be asked ({type(error).__name__}). Check region and credentials."
            ) from error


def _pairs(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(column["Name"], column.get("Type", "string")) for column in columns]


def _csv_options(serde: Mapping[str, str], table: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    separator = serde.get("field.delim") or serde.get("separatorChar") or table.get("delimiter")
    if separator:
        options["separator"] = separator
    if serde.get("quoteChar"):
        options["quoteChar"] = serde["quoteChar"]
    if serde.get("skip.header.line.count", table.get("skip.header.line.count", "0")) != "0":
        options["withHeader"] = True
    return options


def _below(table: CatalogTable, folder: str) -> str:
    start = re.sub("^s3[an]?://", "", table.location.rstrip("/") + "/")
    rest = re.sub("^s3[an]?://", "", folder.rstrip("/") + "/")
    if not rest.startswith(start):
        raise SourceError(table.name, "a partition lies outside of the table's location. Read it with from_options.")
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", rest[len(start) :]) + "**"
