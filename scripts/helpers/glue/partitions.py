"""The partitions of a table of the catalogue: what its keys are for each file, in the catalogue's types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.paths import folder_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"
NULL = "__HIVE_DEFAULT_PARTITION__"


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
        while there not in self.values and there:
            there = there.rstrip("/").rpartition("/")[0]
            there = f"{there}/" if there else ""
        values = self.values.get(there)
        if values is None:
            if named:
                return None
            raise SourceError(self.table, f"file {key!r} lies in no partition of the catalogue. Register its folder.")
        pairs = [part.partition("=") for part in there.rstrip("/").split("/")]
        found = [(name.lower(), unquote(value)) for name, _, value in pairs]
        return None if named and found == list(zip(names, values, strict=True)) else values

    def typed(self, df: DataFrame, values: tuple[str, ...] | None) -> DataFrame:
        """Return the rows with the keys' columns: the given values, or those of the folders as they are."""
        from pyspark.sql import functions

        for index, (name, kind) in enumerate(self.keys):
            if values is None:
                value = functions.col(f"`{name}`")
            else:
                value = functions.lit(None if values[index] == NULL else values[index])
            df = df.withColumn(name, value.cast(kind))
        return df


@contextmanager
def texts_of_folders(spark: SparkSession) -> Iterator[None]:
    """Let Spark read the values of ``name=value`` folders as texts, and give the user's setting back."""
    before = spark.conf.get(INFERENCE, None)
    spark.conf.set(INFERENCE, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(INFERENCE)
        else:
            spark.conf.set(INFERENCE, before)
