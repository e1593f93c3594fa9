"""`PartitionDelta`: the partitions of one batch, and their files to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.partitions import PartitionColumns, PartitionRule, sort_key
from scripts.helpers.files.readable import Readable
from scripts.helpers.listing.folders import Value
from scripts.helpers.listing.objects import no_rows
from scripts.helpers.reading.by_schema import Asked
from scripts.helpers.reading.small_files import OnChanged
from scripts.helpers.reading.spark_partitions import read_partitions, with_folders


@dataclass(frozen=True)
class Partition:
    """One partition of a batch.

    Attributes
    ----------
    values : dict
        The values of the partition by column: text, int or date, None for NULL.
    files : FileDelta
        The files to read. Empty if all files of the partition are gone.
    """

    values: dict[str, Value]
    files: FileDelta

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"<Partition {shown}: {self.files.count:,} files, {self.files.bytes:,} bytes>"


@dataclass(frozen=True, eq=False)
class PartitionDelta(Readable):
    """The partitions of one batch. A delta without partitions is not an error: no partition has changed.

    `read` returns all ``name=value`` folders as columns, and keeps them in the schema. The type of a column is taken
    from `schema`, else from `types`, else it is string: the text of the folder. If Spark chose, it would guess other
    types in each batch. A folder whose value does not fit its type raises SourceError. `read` raises InvalidValueError
    if `schema` has a partition column of another type than string, int, bigint or date.

    Attributes
    ----------
    files : FileDelta
        All files to read: the new ones, or with ``whole=True`` all of each changed partition.
    rule : PartitionRule
        The columns, their types, and the options of the batch.
    gone : pyarrow.Table
        Known files in the partitions of this batch that do not exist any more.
    """

    files: FileDelta
    rule: PartitionRule
    gone: pa.Table = field(default_factory=no_rows)

    def __repr__(self) -> str:
        return (
            f"<PartitionDelta {str(self.files.location)!r}: {len(self.partitions):,} partitions, {self.count:,} files>"
        )

    @property
    def columns(self) -> PartitionColumns:
        """The partition columns and their types."""
        return self.rule.columns

    @property
    def partitions(self) -> list[Partition]:
        """The partitions of the batch, smallest first and NULL before all values.

        If partitions are read whole, one whose files are all gone is listed without files: empty it at the target.
        """
        numbers = self.rule.numbers(self.files.table.column("key"))
        found = set(numbers.unique().to_pylist())
        if self.rule.whole:
            found |= set(self.rule.numbers(self.gone.column("key"), known=True).unique().drop_null().to_pylist())
        partitions = []
        for number, values in zip(found, self.rule.partitions(found), strict=True):
            mask = pc.equal(numbers, pa.scalar(number, pa.int64()))
            # Share `unpinned`: if one part reads latest versions, `unchanged` must refuse newer versions in all parts.
            part = replace(self.files, table=self.files.table.filter(mask), has_more=False, gone=0)
            partitions.append((sort_key(values), Partition(self.columns.named(values), part)))
        return [partition for _, partition in sorted(partitions, key=lambda pair: pair[0])]

    @property
    def emptied(self) -> list[dict[str, Value]]:
        """Values of the partitions whose files are all gone: empty them at the target. ``[]`` unless ``whole=True``."""
        return [partition.values for partition in self.partitions if not partition.files.count]

    @property
    def count(self) -> int:
        """Number of files to read."""
        return self.files.count

    @property
    def bytes(self) -> int:
        """Sum of the sizes of the files to read, in bytes."""
        return self.files.bytes

    @property
    def has_more(self) -> bool:
        """Whether `max_partitions` left partitions for the next batch."""
        return self.files.has_more

    def _read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        self.files.unpinned.add("read")
        types = dict(zip(self.columns.names, self.columns.types, strict=True))
        if asked.schema is not None:
            asked = replace(asked, schema=with_folders(spark, self.files.table, asked.schema, types))

        def read(table: pa.Table, schema: Any, options: Mapping[str, Any]) -> DataFrame:
            return read_partitions(
                spark, self.files.location, table, asked.format, types,
                schema=schema, path_column=asked.path_column, options=options,
            )  # fmt: skip

        return self.files.read_with(spark, asked, read)

    def unchanged(self, on_changed: OnChanged = "raise", s3_client: S3Client | None = None) -> PartitionDelta:
        """Check at the source whether the files to read are still as planned; see `FileDelta.unchanged`."""
        return replace(self, files=self.files.unchanged(on_changed, s3_client))

    def without_files(self) -> PartitionDelta:
        """Return the same delta without its partitions and files."""
        empty = no_rows()
        return PartitionDelta(replace(self.files, table=empty), self.rule, empty)
