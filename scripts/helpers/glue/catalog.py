"""Tables of the AWS Glue Data Catalog: where their data is, how to read it, and which partitions are registered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from scripts.helpers._lazy import DataFrame, F, SparkSession
from scripts.helpers.databases.login import login_of_secret
from scripts.helpers.display.redaction import aws_client
from scripts.helpers.errors import NotOffGlueError, SourceError
from scripts.helpers.glue.choices import typed_analysis
from scripts.helpers.glue.formats import FORMATS
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.listing.paths import folder_columns
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, joined, sql, written_by_hand

DATABASES = ("postgresql", "mysql", "mariadb", "sqlserver", "oracle")
HIVE_SEPARATOR = "\x01"
"""Separates the fields of a LazySimpleSerDe table whose properties name no separator."""
LAKES = ("delta", "iceberg")
"""Table formats whose files alone do not give the rows: a log records which files count."""
PARTITIONS_AT_ONCE = 100
"""The most partitions that one BatchCreatePartition request accepts."""
_SERDES = {
    "ParquetHiveSerDe": "parquet", "OrcSerde": "orc", "JsonSerDe": "json", "AvroSerDe": "avro",
    "LazySimpleSerDe": "csv", "OpenCSVSerde": "csv",
}  # fmt: skip
_KIND = ("table_type", "spark.sql.sources.provider", "classification")
"""Parameters of a table that may name its format. They override the SerDe, which may be that of Parquet or text."""
_REFUSED = {"hudi": "Hudi", "symlinks": "a symlink manifest"}


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalogue.

    Attributes
    ----------
    location
        Folder in S3, or ``database.schema.table`` for a table in a database.
    format
        A format of files such as ``csv``, a table format of `LAKES`, or a database such as ``postgresql``.
    format_options
        Options of the format, in Glue's spellings.
    exclusions
        A JSON list of globs, which a crawler stored. Glue's readers skip the files that match.
    columns, partition_keys
        Pairs of a name and a Hive type, such as ``("day", "string")``.
    connection
        The catalogue's name for the connection to the database; None for files.
    """

    name: str
    location: str
    format: str
    format_options: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[tuple[str, str]] = ()
    partition_keys: Sequence[tuple[str, str]] = ()
    connection: str | None = None
    exclusions: str = "[]"

    @property
    def is_database(self) -> bool:
        """Return whether the rows are in a database such as PostgreSQL, and not in files."""
        return self.format in DATABASES

    @property
    def name_in_database(self) -> str:
        """Return the location without its database, such as ``public.bays``: the connection names the database."""
        return self.location.partition(".")[2] or self.location

    @property
    def schema(self) -> str | None:
        """Return a CSV table's columns as Spark's DDL, because the files may have no header; None for other formats."""
        if self.format != "csv" or not self.columns:
            return None
        return joined(", ", (sql("{} {}", SPARK.quote(name), SPARK.type_name(kind)) for name, kind in self.columns))


class Catalog:
    """The Data Catalog of the account `catalog_id`, by default this account, in the default region."""

    def __init__(self, catalog_id: str | None = None) -> None:
        self._client = aws_client("glue")
        self._owner = {"CatalogId": catalog_id} if catalog_id else {}

    def table(self, database: str, table_name: str) -> CatalogTable:
        """Return a table. Raise SourceError if it does not exist, NotOffGlueError if its format cannot be read here."""
        name = f"{database}.{table_name}"
        found = self._call(name, "get_table", DatabaseName=database, Name=table_name)["Table"]
        storage, parameters = found.get("StorageDescriptor", {}), found.get("Parameters", {})
        serde = storage.get("SerdeInfo", {})
        kind = parameters.get("classification", "").lower()
        library = _library(serde)
        lake = _lake_format(parameters, storage.get("InputFormat", ""))
        if lake in _REFUSED:
            raise NotOffGlueError(
                f"The format of table {name!r}, {_REFUSED[lake]},",
                "Its files alone are not its rows. Read it with a reader of Spark for it.",
            )
        # Crawlers store the format as a classification. Many tables of Athena or Spark have none: use their Hive SerDe.
        if lake or kind not in (*FORMATS, *DATABASES):
            kind = lake or _SERDES.get(library, "")
        if not kind:
            raise NotOffGlueError(f"The format of table {name!r}", "Read it with spark.table or with Spark's reader.")
        if not storage.get("Location"):
            raise SourceError(name, "the catalogue gives no location for it. Fix the table.")
        return CatalogTable(
            name=name,
            location=storage["Location"],
            format=kind,
            format_options=options_of_table(kind, found),
            columns=_pairs(storage.get("Columns", [])),
            partition_keys=_pairs(found.get("PartitionKeys", [])),
            connection=parameters.get("connectionName"),
            exclusions=parameters.get("exclusions", "[]"),
        )

    def table_names(self, database: str) -> list[str]:
        """Return the names of a database's tables; raise SourceError if the database does not exist."""
        pages = self._pages(database, "get_tables", DatabaseName=database)
        return [table["Name"] for page in pages for table in page["TableList"]]

    def check_database(self, name: str) -> None:
        """Raise SourceError if a database does not exist or cannot be read."""
        self._call(name, "get_database", Name=name)

    def described(self, database: str, table_name: str) -> dict[str, Any] | None:
        """Return a table's description in the form that `make_table` accepts; None if the table does not exist."""
        from botocore.exceptions import ClientError

        try:
            found = self._call(f"{database}.{table_name}", "get_table", DatabaseName=database, Name=table_name)["Table"]
        except SourceError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response["Error"]["Code"] == "EntityNotFoundException":
                return None
            raise
        # Drop members that `create_table` and `update_table` refuse, such as CreateTime.
        taken = self._client.meta.service_model.shape_for("TableInput").members
        return {name: value for name, value in found.items() if name in taken}

    def make_table(self, database: str, table: Mapping[str, Any]) -> None:
        """Create a table from its description."""
        self._call(f"{database}.{table['Name']}", "create_table", DatabaseName=database, TableInput=table)

    def replace_table(self, database: str, table: Mapping[str, Any]) -> None:
        """Replace a table's description; the catalogue keeps the previous one as a version."""
        self._call(f"{database}.{table['Name']}", "update_table", DatabaseName=database, TableInput=table)

    def add_partitions(self, database: str, table_name: str, partitions: Sequence[Mapping[str, Any]]) -> None:
        """Register partitions and leave existing ones unchanged; raise SourceError if one is refused."""
        name = f"{database}.{table_name}"
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
            some = partitions[start : start + PARTITIONS_AT_ONCE]
            answer = self._call(
                name, "batch_create_partition", DatabaseName=database, TableName=table_name, PartitionInputList=some
            )
            for refused in answer.get("Errors", []):
                code = refused["ErrorDetail"]["ErrorCode"]
                if code != "AlreadyExistsException":
                    raise SourceError(name, f"partition {refused['PartitionValues']} was refused: {code}.")

    def connection(self, name: str | None) -> dict[str, str]:
        """Return the url, user and password of a connection. They are never logged or put into errors."""
        if not name:
            raise SourceError("JDBC", "the table names no connection. Use from_options with url, user and password.")
        found = self._call(name, "get_connection", Name=name)["Connection"]["ConnectionProperties"]
        names = {"JDBC_CONNECTION_URL": "url", "USERNAME": "user", "PASSWORD": "password"}
        known = {ours: found[theirs] for theirs, ours in names.items() if theirs in found}
        # A connection contains user and password, or names a secret that contains them.
        return known | (login_of_secret(found["SECRET_ID"]) if "SECRET_ID" in found else {})

    def partitions(self, spark: SparkSession, table: CatalogTable, predicate: str, in_catalog: str = "") -> Partitions:
        """Return the registered partitions that match a predicate on the partition keys.

        Parameters
        ----------
        predicate
            Glue's ``push_down_predicate``, in Spark's SQL; an empty text selects all partitions.
        in_catalog
            Glue's ``catalogPartitionPredicate``, which the catalogue itself evaluates.

        Raises
        ------
        InvalidValueError
            The table has no partition keys.
        SourceError
            A partition is outside the table's location.
        """
        if not table.partition_keys:
            raise glue_option_error("push_down_predicate", f"is given, but {table.name!r} has no partition keys.")
        database, _, name = table.name.partition(".")
        rows = list(self._partitions(database, name, in_catalog))
        if predicate and rows:
            rows = _chosen(spark, table, rows, written_by_hand(predicate))
        values = {_below(table, folder): tuple(texts) for *texts, folder in rows}
        return Partitions(table.name, table.partition_keys, values)

    def _partitions(self, database: str, name: str, expression: str) -> Iterator[tuple[str, ...]]:
        further = {"Expression": expression} if expression else {}
        pages = self._pages(f"{database}.{name}", "get_partitions", DatabaseName=database, TableName=name, **further)
        for page in pages:
            for found in page["Partitions"]:
                yield (*found["Values"], found["StorageDescriptor"]["Location"])

    def _pages(self, name: str, operation: str, **request: Any) -> Iterator[Any]:
        while True:
            page = self._call(name, operation, **request)
            yield page
            if not page.get("NextToken"):
                return
            request["NextToken"] = page["NextToken"]

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


def with_login(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a database's options, with the url and login from the connection or secret that the options name."""
    left, name = dict(given), given.get("connectionName")
    secret = left.pop("secretId", None)
    connected = Catalog().connection(str(name)) if name and "url" not in given else {}
    return {**connected, **left, **(login_of_secret(str(secret)) if secret else {})}


def _chosen(
    spark: SparkSession, table: CatalogTable, rows: Sequence[tuple[str, ...]], predicate: SQL
) -> list[tuple[str, ...]]:
    """Return the partitions that match a predicate. Spark evaluates it, with the keys cast to their types.

    The added column `a place` holds the index of each partition in `rows`; no partition key can have that name.
    """
    keys = [(SPARK.quote(key), SPARK.type_name(kind)) for key, kind in table.partition_keys]
    schema = joined(", ", (sql("{} string", name) for name in [*(key for key, _ in keys), sql("`a place`")]))
    casts = [sql("CAST({0} AS {1}) AS {0}", key, kind) for key, kind in keys]
    numbered = [(*row[:-1], str(index)) for index, row in enumerate(rows)]
    frame = spark.createDataFrame(numbered, schema).selectExpr(*casts, "`a place`")
    remedy = f"Write Spark's SQL over the partition keys: {', '.join(key for key, _ in table.partition_keys)}."
    with typed_analysis("push_down_predicate", remedy):
        return [rows[int(row["a place"])] for row in frame.where(predicate).collect()]


def _pairs(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(column["Name"], column.get("Type", "string")) for column in columns]


def _lake_format(parameters: Mapping[str, str], reads: str) -> str:
    """Return the table's format if it is in `LAKES` or `_REFUSED`; an empty text for a table of plain files."""
    found = {parameters.get(name, "").lower() for name in _KIND}
    if ".Hoodie" in reads:
        found.add("hudi")
    if reads.endswith(".SymlinkTextInputFormat"):
        found.add("symlinks")
    return next((kind for kind in (*LAKES, *_REFUSED) if kind in found), "")


def _library(serde: Mapping[str, Any]) -> str:
    return str(serde.get("SerializationLibrary", "").rpartition(".")[2])


def options_of_table(kind: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format options that a table's description defines, in Glue's spellings."""
    info, table = described.get("StorageDescriptor", {}).get("SerdeInfo", {}), described.get("Parameters", {})
    serde = info.get("Parameters", {})
    if kind == "csv":
        return _csv_options(_library(info), serde, table)
    tag = serde.get("rowTag") or table.get("rowTag")
    return {"rowTag": tag} if kind == "xml" and tag else {}


def _csv_options(library: str, serde: Mapping[str, str], table: Mapping[str, str]) -> dict[str, Any]:
    """Return the format options of a CSV table in Glue's spellings, with the defaults of Hive's two SerDes."""
    default = HIVE_SEPARATOR if library == "LazySimpleSerDe" else None
    found = {
        "separator": serde.get("field.delim") or serde.get("separatorChar") or table.get("delimiter") or default,
        "quoteChar": serde.get("quoteChar"),
        "escaper": serde.get("escapeChar") or serde.get("escape.delim"),
        "encoding": serde.get("serialization.encoding"),
    }
    options: dict[str, Any] = {name: text for name, text in found.items() if text}
    name = "skip.header.line.count"
    lines = serde.get(name, table.get(name, "0")).strip()
    if lines not in ("0", "1"):
        raise glue_option_error(
            name, f"is {lines!r} in the catalogue. Spark skips one line at most: read it with Spark."
        )
    if lines == "1":
        options["withHeader"] = True
    return options


def _below(table: CatalogTable, folder: str) -> str:
    """Return a partition's folder relative to the table's location; raise SourceError if it is outside."""
    start, rest = (re.sub("^(s3[an]?|file)://", "", place.rstrip("/") + "/") for place in (table.location, folder))
    if not rest.startswith(start):
        raise SourceError(table.name, "a partition lies outside of the table's location. Read it with from_options.")
    return rest[len(start) :]


# --- partitions --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partitions:
    """The registered partitions of a table.

    Attributes
    ----------
    table
        The table's name, for messages.
    keys
        Pairs of name and type.
    values
        For each folder, relative to the table's location, the keys' values as texts: ``{"day=1/": ("1",)}``.
    """

    table: str
    keys: Sequence[tuple[str, str]]
    values: Mapping[str, tuple[str, ...]]

    def values_of(self, key: str) -> tuple[str, ...] | None:
        """Return the partition values of the file `key`; None if Spark reads them from its ``name=value`` folders.

        Raise SourceError if the file is in no partition and its folders do not name the partition columns.
        """
        names = [name.lower() for name, _ in self.keys]
        folder = key.rpartition("/")[0] + "/" if "/" in key else ""
        named = set(names) <= {name.lower() for name in folder_columns(folder)}
        there = folder
        # Find the innermost registered folder: a file may be in a subfolder of its partition.
        while there not in self.values and there:
            there = there.rstrip("/").rpartition("/")[0]
            there = f"{there}/" if there else ""
        values = self.values.get(there)
        if values is None:
            if named:
                return None
            raise SourceError(self.table, f"file {key!r} is not in a partition of the catalogue. Register its folder.")
        pairs = [part.partition("=") for part in there.rstrip("/").split("/")]
        # Hive writes special characters of values as %XX in folder names, and Spark decodes them.
        found = [(name.lower(), unquote(value)) for name, _, value in pairs]
        return None if named and found == list(zip(names, values, strict=True)) else values

    def typed(self, df: DataFrame, values: tuple[str, ...] | None) -> DataFrame:
        """Return the rows with the keys as typed columns: cast from `values` or, if None, from the columns in `df`."""
        for index, (name, kind) in enumerate(self.keys):
            if values is None:
                value = F.col(SPARK.quote(name))
            else:
                value = F.lit(None if values[index] == NULL_FOLDER else values[index])
            df = df.withColumn(name, value.cast(kind))
        return df
