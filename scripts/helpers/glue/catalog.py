"""Tables of the AWS Glue Data Catalog: where their data lie, how they are read, and which partitions they have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from scripts.helpers._lazy import DataFrame, F, SparkSession
from scripts.helpers.databases.login import login_of_secret
from scripts.helpers.display.redaction import aws_client
from scripts.helpers.errors import GlueOptionError, NotOffGlueError, SourceError
from scripts.helpers.glue.choices import typed_analysis
from scripts.helpers.glue.formats import FORMATS
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.listing.paths import folder_columns
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, joined, sql, written_by_hand

DATABASES = ("postgresql", "mysql", "mariadb", "sqlserver", "oracle")
HIVE_SEPARATOR = "\x01"
"""Between the fields of a table whose properties name nothing else."""
LAKES = ("delta", "iceberg")
"""Tables whose rows are not those of their files: a log says which files count."""
PARTITIONS_AT_ONCE = 100
"""As many as BatchCreatePartition takes."""
_SERDES = {
    "ParquetHiveSerDe": "parquet", "OrcSerde": "orc", "JsonSerDe": "json", "AvroSerDe": "avro",
    "LazySimpleSerDe": "csv", "OpenCSVSerde": "csv",
}  # fmt: skip
_KIND = ("table_type", "spark.sql.sources.provider", "classification")
"""Parameters of which any may say what a table is. Its SerDe may be that of Parquet, or of text, all the same."""
_REFUSED = {"hudi": "Hudi", "symlinks": "a symlink manifest"}


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalogue.

    Attributes
    ----------
    location
        Folder in S3, or ``database.schema.table`` of a database.
    format
        One of Glue's formats, of `LAKES`, or the kind of database.
    format_options
        In Glue's spellings.
    exclusions
        Globs of files that a crawler left out, and that Glue's readers leave out for that.
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
    exclusions: str = "[]"

    @property
    def is_database(self) -> bool:
        """Return whether it is one of a database."""
        return self.format in DATABASES

    @property
    def in_database(self) -> str:
        """Return the name of a table of a database, without the database: that the connection names as well."""
        return self.location.partition(".")[2] or self.location

    @property
    def schema(self) -> str | None:
        """Return the columns as Spark's DDL, for formats whose files do not name them."""
        if self.format != "csv" or not self.columns:
            return None
        return joined(", ", (sql("{} {}", SPARK.quote(name), SPARK.type_name(kind)) for name, kind in self.columns))


class Catalog:
    """The Data Catalog of the default account and region, or of `catalog_id`."""

    def __init__(self, catalog_id: str | None = None) -> None:
        self._client = aws_client("glue")
        self._owner = {"CatalogId": catalog_id} if catalog_id else {}

    def table(self, database: str, table_name: str) -> CatalogTable:
        """Look a table up. SourceError if it is not there, or of a kind that is not read here."""
        name = f"{database}.{table_name}"
        found = self._call(name, "get_table", DatabaseName=database, Name=table_name)["Table"]
        storage, parameters = found.get("StorageDescriptor", {}), found.get("Parameters", {})
        serde = storage.get("SerdeInfo", {})
        kind = parameters.get("classification", "").lower()
        library = serde.get("SerializationLibrary", "").rpartition(".")[2]
        lake = _lake(parameters, storage.get("InputFormat", ""))
        if lake in _REFUSED:
            raise NotOffGlueError(
                f"The format of table {name!r}, {_REFUSED[lake]},",
                "Its files alone are not its rows. Read it with a reader of Spark for it.",
            )
        # Crawlers write a classification; tables made in Athena or Spark often have Hive's library alone.
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
            format_options=_format_options(kind, library, serde.get("Parameters", {}), parameters),
            columns=_pairs(storage.get("Columns", [])),
            partition_keys=_pairs(found.get("PartitionKeys", [])),
            connection=parameters.get("connectionName"),
            exclusions=parameters.get("exclusions", "[]"),
        )

    def table_names(self, database: str) -> list[str]:
        """Return the names of a database's tables. SourceError if it is not there."""
        pages = self._pages(database, "get_tables", DatabaseName=database)
        return [table["Name"] for page in pages for table in page["TableList"]]

    def check_database(self, name: str) -> None:
        """Raise SourceError if a database is not there, or cannot be looked at."""
        self._call(name, "get_database", Name=name)

    def described(self, database: str, table_name: str) -> dict[str, Any] | None:
        """Return a table as `make_table` takes it; None if it is not there."""
        from botocore.exceptions import ClientError

        try:
            found = self._call(f"{database}.{table_name}", "get_table", DatabaseName=database, Name=table_name)["Table"]
        except SourceError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response["Error"]["Code"] == "EntityNotFoundException":
                return None
            raise
        # The answer tells more than a request may.
        taken = self._client.meta.service_model.shape_for("TableInput").members
        return {name: value for name, value in found.items() if name in taken}

    def make_table(self, database: str, table: Mapping[str, Any]) -> None:
        """Make a table."""
        self._call(f"{database}.{table['Name']}", "create_table", DatabaseName=database, TableInput=table)

    def replace_table(self, database: str, table: Mapping[str, Any]) -> None:
        """Replace a table's description; the catalogue keeps the one before as a version."""
        self._call(f"{database}.{table['Name']}", "update_table", DatabaseName=database, TableInput=table)

    def add_partitions(self, database: str, table_name: str, partitions: Sequence[Mapping[str, Any]]) -> None:
        """Register partitions; those that are there stay as they are. SourceError for one that is refused."""
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
        """Return url, user and password of a connection. They are never shown."""
        if not name:
            raise SourceError("JDBC", "the table names no connection. Use from_options with url, user and password.")
        found = self._call(name, "get_connection", Name=name)["Connection"]["ConnectionProperties"]
        names = {"JDBC_CONNECTION_URL": "url", "USERNAME": "user", "PASSWORD": "password"}
        known = {ours: found[theirs] for theirs, ours in names.items() if theirs in found}
        # A connection holds its login itself, or names the secret that does.
        return known | (login_of_secret(found["SECRET_ID"]) if "SECRET_ID" in found else {})

    def partitions(self, spark: SparkSession, table: CatalogTable, predicate: str, in_catalog: str = "") -> Partitions:
        """Return the registered partitions that a predicate over the partition keys leaves.

        Parameters
        ----------
        predicate
            In Spark's SQL, as ``push_down_predicate``.
        in_catalog
            For the catalogue itself, as ``catalogPartitionPredicate``.

        Raises
        ------
        GlueOptionError
            A predicate for a table without partition keys.
        SourceError
            A partition lies outside of the table's location.
        """
        if not table.partition_keys:
            raise GlueOptionError("push_down_predicate", f"is given, but {table.name!r} has no partition keys.")
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
    """Return the options of a database with what a named connection of the catalogue, and a secret, hold."""
    left, name = dict(given), given.get("connectionName")
    secret = left.pop("secretId", None)
    connected = Catalog().connection(str(name)) if name and "url" not in given else {}
    return {**connected, **left, **(login_of_secret(str(secret)) if secret else {})}


def _chosen(
    spark: SparkSession, table: CatalogTable, rows: Sequence[tuple[str, ...]], predicate: SQL
) -> list[tuple[str, ...]]:
    """Return the partitions that a predicate leaves. Spark itself is asked, with the keys in their types.

    A column for the place leads back to the row; no key has a name such as its own.
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


def _lake(parameters: Mapping[str, str], reads: str) -> str:
    """Return which of `LAKES` or `_REFUSED` a table is; an empty text for one whose files are its rows."""
    found = {parameters.get(name, "").lower() for name in _KIND}
    if ".Hoodie" in reads:
        found.add("hudi")
    if reads.endswith(".SymlinkTextInputFormat"):
        found.add("symlinks")
    return next((kind for kind in (*LAKES, *_REFUSED) if kind in found), "")


def _format_options(kind: str, library: str, serde: Mapping[str, str], table: Mapping[str, str]) -> dict[str, Any]:
    """Return what a table says of its format, in Glue's spellings."""
    if kind == "csv":
        return _csv_options(library, serde, table)
    tag = serde.get("rowTag") or table.get("rowTag")
    return {"rowTag": tag} if kind == "xml" and tag else {}


def _csv_options(library: str, serde: Mapping[str, str], table: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a table of CSV in Glue's spellings, with the defaults of Hive's two libraries."""
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
        raise GlueOptionError(name, f"is {lines!r} in the catalogue. Spark skips one line at most: read it with Spark.")
    if lines == "1":
        options["withHeader"] = True
    return options


def _below(table: CatalogTable, folder: str) -> str:
    """Return a partition's folder below the table's location."""
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
        Its name, for messages.
    keys
        Pairs of name and type.
    values
        By folder below the table's location, with a slash at its end, the texts of the keys.
    """

    table: str
    keys: Sequence[tuple[str, str]]
    values: Mapping[str, tuple[str, ...]]

    def values_of(self, key: str) -> tuple[str, ...] | None:
        """Return the keys' values for a file; None where Spark reads the same from ``name=value`` folders.

        SourceError for a file of no partition whose folders do not name the keys.
        """
        names = [name.lower() for name, _ in self.keys]
        folder = key.rpartition("/")[0] + "/" if "/" in key else ""
        named = set(names) <= {name.lower() for name in folder_columns(folder)}
        there = folder
        # The innermost folder that is registered: files may lie deeper than their partition.
        while there not in self.values and there:
            there = there.rstrip("/").rpartition("/")[0]
            there = f"{there}/" if there else ""
        values = self.values.get(there)
        if values is None:
            if named:
                return None
            raise SourceError(self.table, f"file {key!r} is not in a partition of the catalogue. Register its folder.")
        pairs = [part.partition("=") for part in there.rstrip("/").split("/")]
        # Hive writes special characters of values into names of folders as %XX, and Spark reads them back.
        found = [(name.lower(), unquote(value)) for name, _, value in pairs]
        return None if named and found == list(zip(names, values, strict=True)) else values

    def typed(self, df: DataFrame, values: tuple[str, ...] | None) -> DataFrame:
        """Return the rows with the keys' columns: the given values, or those of the folders as they are."""
        for index, (name, kind) in enumerate(self.keys):
            if values is None:
                value = F.col(SPARK.quote(name))
            else:
                value = F.lit(None if values[index] == NULL_FOLDER else values[index])
            df = df.withColumn(name, value.cast(kind))
        return df
