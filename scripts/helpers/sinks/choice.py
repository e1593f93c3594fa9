"""Choose the sink for a target: by a script's arguments, or by the record of a batch that an earlier run staged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from scripts.helpers._lazy import S3Client, SparkSession
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks.places import place_of_name
from scripts.helpers.sinks.sink import Sink


@dataclass(frozen=True)
class Layout:
    """How to store a batch at a target; see `IncrementalJob.write` and `FileSink`."""

    format: str = "parquet"
    partition_by: Sequence[str] = ()
    batch_folders: bool | None = None
    staging: str | None = None
    beside_others: bool = False
    batch_column: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def check_table(self) -> None:
        """Raise InvalidValueError for an option that only files have, not tables."""
        given = [*self.options]
        given += ["batch_folders"] if self.batch_folders is not None else []
        given += ["beside_others"] if self.beside_others else []
        if given:
            raise InvalidValueError(
                f"format={self.format!r} takes no option {given[0]!r}. Leave it out, or alter the table."
            )


def _kinds() -> Mapping[str, Any]:
    """Return the sink classes by kind. They are imported only here, because a run that writes nothing needs none."""
    from scripts.helpers.sinks.delta import DeltaSink
    from scripts.helpers.sinks.files import FileSink
    from scripts.helpers.sinks.iceberg import IcebergSink

    return {"files": FileSink, "delta": DeltaSink, "iceberg": IcebergSink}


def sink_for(target: str, df: Any, layout: Layout, s3_client: S3Client | None) -> Sink:
    """Return the sink that writes the layout's format to a target; InvalidValueError for an option that it refuses."""
    from scripts.helpers.sinks.files import FileSink, check_options
    from scripts.helpers.sinks.staged_rows import spark_of

    # Check the options before the format, so that an option that no sink takes gets the same error for every format.
    check_options(layout.options)

    given: dict[str, Any] = {
        "spark": spark_of(df), "s3_client": s3_client, "partition_by": layout.partition_by, "staging": layout.staging
    }  # fmt: skip
    kind = str(layout.format).lower()
    if kind in ("delta", "iceberg"):
        layout.check_table()
        return cast("Sink", _kinds()[kind](target, batch_column=layout.batch_column, **given))
    if layout.batch_column is not None:
        raise InvalidValueError(
            f"format={layout.format!r} takes no option 'batch_column': names of files hold their batch. Leave it out; "
            "batch_folders=True adds a column that readers see."
        )
    return FileSink(
        target, format=str(layout.format), batch_folders=layout.batch_folders, beside_others=layout.beside_others,
        **given, **layout.options,
    )  # fmt: skip


def opened(output: Output | Retraction, spark: SparkSession | None, s3_client: S3Client | None) -> Sink | None:
    """Return the sink for the target in a record; None if only the job's own script can reach the target.

    The record is an output or a retraction. InvalidValueError if a later version of this package wrote the record.
    """
    if output.sink == "database":
        return None
    kind = _kinds().get(output.sink)
    if kind is None:
        raise InvalidValueError(
            f"{output.target!r} is a target of kind {output.sink!r}, which this version of the package does not know. "
            "Run the job with the version that wrote there, or a later one."
        )
    return cast("Sink", kind.of(output, spark, s3_client))


def is_sink_of(sink: Sink, record: Output | Retraction) -> bool:
    """Return whether an output or retraction is of a sink's target, even if the two names are spelled differently.

    TargetError if a database has to be asked which table a name means, and does not answer.
    """
    if record.sink == "database":
        from scripts.helpers.sinks.database import DatabaseSink

        return isinstance(sink, DatabaseSink) and sink.is_of(record)
    return place_of_name(record.target) == place_of_name(sink.name)


def sink_of(
    record: Output | Retraction, given: Iterable[Sink], spark: SparkSession | None, s3_client: S3Client | None
) -> Sink | None:
    """Return the sink among `given` whose target the record names; if there is none, `opened` makes one."""
    return next((sink for sink in given if is_sink_of(sink, record)), None) or opened(record, spark, s3_client)
