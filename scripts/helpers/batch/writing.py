"""`BatchWriter`: writes a batch below a folder of its own, once to each path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.batch import Batch
from scripts.helpers.errors import PlanConflictError, ReservedNameError
from scripts.helpers.rows.pandas_frames import is_pandas
from scripts.helpers.sinks.spark_files import write_spark

if TYPE_CHECKING:
    import pandas as pd
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame

BATCH_COLUMN = "batch_id"


class BatchWriter:
    """Writes the frames of one batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._written: set[str] = set()

    def write(
        self,
        df: DataFrame | pd.DataFrame,
        path: str,
        format: str,
        s3_client: S3Client | None,
        options: Mapping[str, Any],
    ) -> tuple[int, int | None]:
        """Return how many rows and bytes were written, None for bytes nobody knows; see `IncrementalJob.write`."""
        # A reader takes a column of that name from the folders: one in the rows would be hidden by it, or clash.
        if BATCH_COLUMN in (str(name).lower() for name in df.columns):
            raise ReservedNameError(BATCH_COLUMN, [BATCH_COLUMN])
        batch = self._batch
        batch.check_open("write")
        # Spark writes s3a:// and pandas s3:// to the same folder.
        place = re.sub("^s3[an]:", "s3:", path.rstrip("/"))
        if place in self._written:
            raise PlanConflictError(
                batch.run.job_id,
                f"this batch was written to {path!r} already, and a second write would replace it. Union the frames, "
                "or give another path.",
            )
        # The plan is frozen (by `batch_id`) and the lease looked at before the first byte: what a fenced run
        # writes would replace what the run that took over has written under the same id.
        folder = f"{path.rstrip('/')}/{BATCH_COLUMN}={batch.batch_id}"
        batch.run.check()
        if is_pandas(df):
            from scripts.helpers.sinks.pandas_files import write_pandas

            size: int | None = write_pandas(df, folder, format, s3_client, options)
            rows = len(df)
        else:
            with batch.typed_errors():
                rows, size = write_spark(df, folder, format, options)
        self._written.add(place)
        return rows, size
