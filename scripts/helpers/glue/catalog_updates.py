"""Updates of the Glue Data Catalog by a sink: the table, its columns, and new partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.helpers._lazy import DataFrame, F
from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.catalog import Catalog, options_of_table
from scripts.helpers.glue.formats import spark_options
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.sinks.files import partition_folder
from scripts.helpers.sinks.places import is_same_folder

logger = logging.getLogger(__name__)

BEHAVIOURS = ("UPDATE_IN_DATABASE", "LOG")
_HIVE = "org.apache.hadoop.hive.ql.io"
_TEXT = ("org.apache.hadoop.mapred.TextInputFormat", f"{_HIVE}.HiveIgnoreKeyTextOutputFormat")
_PARQUET = f"{_HIVE}.parquet.MapredParquet"
STORAGE: Mapping[str, tuple[tuple[str, str], str]] = {
    "parquet": ((f"{_PARQUET}InputFormat", f"{_PARQUET}OutputFormat"), f"{_HIVE}.parquet.serde.ParquetHiveSerDe"),
    "orc": ((f"{_HIVE}.orc.OrcInputFormat", f"{_HIVE}.orc.OrcOutputFormat"), f"{_HIVE}.orc.OrcSerde"),
    "json": (_TEXT, "org.openx.data.jsonserde.JsonSerDe"),
    "csv": (_TEXT, "org.apache.hadoop.hive.serde2.OpenCSVSerde"),
}
"""What Hive and Athena need to read each format: input and output classes, and the SerDe."""
CSV = {"header": "false", "sep": ",", "quote": '"'}
"""Options of Spark's CSV that a table describes, with the values that Spark takes by default."""


@dataclass(frozen=True)
class CatalogUpdate:
    """A table of the catalogue that a sink keeps up to date.

    Parameters
    ----------
    database, table
        The names of the table and of its database, which must exist.
    behaviour
        ``UPDATE_IN_DATABASE`` creates the table and adds columns and partitions. ``LOG`` only adds partitions to an
        existing table, and logs a WARNING with the columns that differ.
    catalog_id
        The id of another account's catalogue; by default the catalogue of this account.

    Raises
    ------
    InvalidValueError
        The behaviour is unknown.
    """

    database: str
    table: str
    behaviour: str = "UPDATE_IN_DATABASE"
    catalog_id: str | None = None

    def __post_init__(self) -> None:
        if self.behaviour not in BEHAVIOURS:
            raise glue_option_error("updateBehavior", f"is {self.behaviour!r}. Write one of {', '.join(BEHAVIOURS)}.")

    def check(self, path: str, format: str, keys: Sequence[str], options: Mapping[str, str]) -> list[str]:
        """Return the columns of the table, none if it is new. Call this before the write.

        Parameters
        ----------
        options
            The options of Spark's writer.

        Raises
        ------
        InvalidValueError, NotOffGlueError
            The table has another location, other partition keys, or is read with other options of CSV; or the
            catalogue cannot describe this format here.
        SourceError
            The catalogue cannot be read, or does not have the database.
        """
        if format not in STORAGE:
            raise NotOffGlueError(f"A table of {format!r} in the catalogue", f"Use one of {', '.join(STORAGE)}.")
        catalog = Catalog(self.catalog_id)
        catalog.check_database(self.database)
        there = catalog.described(self.database, self.table)
        if there is None:
            return []
        known = [key["Name"].lower() for key in there.get("PartitionKeys", [])]
        if known != [key.lower() for key in keys]:
            raise glue_option_error(
                "partitionKeys",
                f"are {list(keys)}, but table {self.table!r} has {known}. Write the same, in order.",
            )
        location = there["StorageDescriptor"]["Location"]
        # Refuse another path: `apply` registers partitions below the table's folder, where no rows would be.
        if not is_same_folder(path, location):
            raise glue_option_error("path", f"is {path!r}, but table {self.table!r} is at {location!r}. Write there.")
        if format == "csv":
            read = {**CSV, **spark_options(format, options_of_table(format, there))[0]}
            for option, written in {**CSV, **options}.items():
                if option in CSV and written != read[option]:
                    raise glue_option_error(
                        option,
                        f"is {written!r}, but table {self.table!r} is read with {read[option]!r}. Write the same.",
                    )
        return [column["Name"] for column in there["StorageDescriptor"]["Columns"]]

    def apply(self, df: DataFrame, path: str, format: str, keys: Sequence[str], options: Mapping[str, str]) -> None:
        """Create or update the table, and register the partitions of the rows."""
        catalog = Catalog(self.catalog_id)
        location = path.replace("s3a://", "s3://", 1).rstrip("/") + "/"
        there = catalog.described(self.database, self.table)
        columns, partition_keys = _columns(df, keys)
        if there is None:
            if self.behaviour == "LOG":
                logger.warning("event=no_table database=%s table=%s: no table is created", self.database, self.table)
                return
            there = _new_table(self.table, location, format, columns, partition_keys, {**CSV, **options})
            catalog.make_table(self.database, there)
        else:
            self._update_columns(catalog, there, columns)
        storage = there["StorageDescriptor"]
        partitions = [
            {
                "Values": values,
                "StorageDescriptor": {**storage, "Location": f"{storage['Location'].rstrip('/')}/{folder}/"},
            }
            for values, folder in _partitions(df, keys)
        ]
        catalog.add_partitions(self.database, self.table, partitions)

    def _update_columns(self, catalog: Catalog, there: dict[str, Any], columns: Sequence[Mapping[str, str]]) -> None:
        """Add columns that the table lacks; log columns whose type differs."""
        known = {column["Name"].lower(): column["Type"] for column in there["StorageDescriptor"]["Columns"]}
        new = [column for column in columns if column["Name"].lower() not in known]
        other = [c["Name"] for c in columns if known.get(c["Name"].lower(), c["Type"]).lower() != c["Type"].lower()]
        if other or (new and self.behaviour == "LOG"):
            names = ",".join([*other, *(column["Name"] for column in new)])
            logger.warning(
                "event=catalog_differs database=%s table=%s columns=%s: the catalog's columns stay as they are",
                self.database, self.table, names,
            )  # fmt: skip
        if new and self.behaviour != "LOG":
            there["StorageDescriptor"]["Columns"] += new
            catalog.replace_table(self.database, there)


def _columns(df: DataFrame, keys: Sequence[str]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the columns and the partition keys, in the form that the catalogue requires."""
    wanted = [key.lower() for key in keys]
    columns, found = [], {}
    for part in df.schema.fields:
        kind = part.dataType.simpleString().replace("timestamp_ntz", "timestamp")
        column = {"Name": part.name.lower(), "Type": kind}
        if part.name.lower() in wanted:
            found[part.name.lower()] = column
        else:
            columns.append(column)
    return columns, [found[key] for key in wanted]


def _new_table(
    name: str, location: str, format: str, columns: Sequence[Any], partition_keys: Sequence[Any],
    options: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    (reads, writes), library = STORAGE[format]
    parameters, further = dict[str, str](), dict[str, str]()
    if format == "csv":
        parameters = {"separatorChar": options["sep"], "quoteChar": options["quote"]}
        further = {"skip.header.line.count": "1"} if options["header"] == "true" else {}
    storage = {
        "Columns": list(columns), "Location": location, "InputFormat": reads, "OutputFormat": writes,
        "SerdeInfo": {"SerializationLibrary": library, "Parameters": parameters},
    }  # fmt: skip
    return {
        "Name": name, "TableType": "EXTERNAL_TABLE", "StorageDescriptor": storage,
        "PartitionKeys": list(partition_keys), "Parameters": {"classification": format, **further},
    }  # fmt: skip


def _partitions(df: DataFrame, keys: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Yield each partition's values and its folder below the table as Spark writes it: ``["1"], "day=1"``."""
    if not keys:
        return
    texts = [F.col(f"`{key}`").cast("string").alias(key) for key in keys]
    for row in df.select(texts).distinct().collect():
        values = [NULL_FOLDER if value is None or value == "" else value for value in row]
        yield values, "/".join(partition_folder(key, value) for key, value in zip(keys, row, strict=True))
