"""`BatchWriter`: stages the frames of a batch, once for each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.batch import Batch
from scripts.helpers.errors import InvalidValueError, PlanConflictError, TargetError
from scripts.helpers.rows.pandas_frames import is_pandas
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.spark_files import write_spark

if TYPE_CHECKING:
    import pandas as pd
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Layout:
    """How files lie at a target; see `IncrementalJob.write` and `FileSink`."""

    format: str
    partition_by: Sequence[str] = ()
    batch_folders: bool | None = None
    staging: str | None = None
    beside_others: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.partition_by, str):
            raise InvalidValueError(f"partition_by is a list of columns, not {self.partition_by!r}. Write [...].")


class BatchWriter:
    """Stages the frames of one batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._written: set[str] = set()

    def write(
        self,
        df: DataFrame | pd.DataFrame,
        path: str,
        layout: Layout,
        s3_client: S3Client | None,
        options: Mapping[str, Any],
    ) -> tuple[int, int]:
        """Return how many rows and bytes were staged; see `IncrementalJob.write`."""
        batch = self._batch
        batch.check_open("write")
        missing = [name for name in layout.partition_by if name not in df.columns]
        # A frame without columns is that of a source where nothing is new.
        if missing and list(df.columns):
            raise InvalidValueError(f"partition_by names {missing[0]!r}, which the rows do not have. Name a column.")
        with_pandas = is_pandas(df)
        sink = FileSink(
            path,
            spark=None if with_pandas else df.sparkSession,
            s3_client=s3_client,
            batch_folders=layout.batch_folders,
            staging=layout.staging,
            beside_others=layout.beside_others,
        )
        target = sink.target.uri("")
        # Spark writes s3a:// and pandas s3:// to the same folder.
        place = target.partition("://")[2]
        if place in self._written:
            raise PlanConflictError(
                batch.run.job_id,
                f"this batch was written to {path!r} already, and a second write would replace it. Union the frames, "
                "or give another path.",
            )
        self._check_apart_from_sources(target)
        rows = 0

        def write(place: Place, folder: str) -> None:
            nonlocal rows
            if with_pandas:
                write_pandas(df, place, folder, options, layout.partition_by)
                rows = len(df)  # type: ignore[arg-type]
                return
            with batch.typed_errors():
                rows = write_spark(df, place.uri(folder), layout.format, options, layout.partition_by)

        if with_pandas:
            from scripts.helpers.sinks.pandas_files import check_format, write_pandas

            check_format(layout.format)
        # The plan is frozen (by `batch_id`) before the first byte: what another attempt would write are these rows.
        batch_id = batch.batch_id
        batch.run.check()
        output = sink.stage(batch_id, batch.run.fence, write, columns=df.columns, replaces=not batch.strategy.saves)
        batch.publication.add(sink, output)
        self._written.add(place)
        return rows, output.bytes

    def _check_apart_from_sources(self, target: str) -> None:
        """Raise TargetError for a target below a source of files: the next run would take what this one writes."""
        place = target.partition("://")[2] + "/"
        for source in self._batch.file_sources:
            if place.startswith(source.partition("://")[2]):
                raise TargetError(
                    target, f"it lies below the source {source!r}, whose next run would read it. Write elsewhere."
                )
