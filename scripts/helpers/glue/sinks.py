"""What Glue's writer does with files: append, or replace one batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import GlueOptionError, PlanConflictError
from scripts.helpers.glue.formats import spark_format, spark_options
from scripts.helpers.sinks.spark_files import timestamps_with_statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from scripts.helpers.job import IncrementalJob

logger = logging.getLogger(__name__)


def write_files(
    df: DataFrame,
    given: Mapping[str, Any],
    format: str | None,
    format_options: Mapping[str, Any],
    job: IncrementalJob | None,
) -> None:
    """Write a DataFrame into a folder.

    As Glue's, it appends, so rows come twice if a run dies between write and commit. With
    ``perBatch`` among the options they do not: `IncrementalJob.write` writes them, so that readers see each
    row once, after the commit. All sources must then be read before the first write.

    Parameters
    ----------
    given
        ``path``, ``partitionKeys``, ``compression``, and of ours ``perBatch``.
    job
        The running one, if there is one. One that was fenced writes nothing.

    Raises
    ------
    GlueOptionError, NotOffGlueError
        Before anything is written.
    PlanConflictError
        ``perBatch`` without a run, or a second time to a path: it would replace what the first wrote.
    FencedError
        Another run took over; nothing is written.
    """
    left = dict(given)
    path, keys = left.pop("path", None), left.pop("partitionKeys", None) or []
    if not isinstance(path, str) or not path:
        raise GlueOptionError("path", f"is {path!r}. Write a folder such as 's3://bucket/prefix/'.")
    missing = sorted(set(keys) - set(df.columns)) if df.columns else []
    if isinstance(keys, str) or missing:
        raise GlueOptionError("partitionKeys", f"is {keys!r}. Write a list of columns that the frame has.")
    per_batch = str(left.pop("perBatch", False)).lower() == "true"
    name = spark_format(format)
    compression = left.pop("compression", None)
    options, _ = spark_options(name, format_options, writing=True)
    if compression is not None:
        options["compression"] = str(compression)
    if left:
        logger.warning("event=options_unknown sink=s3 options=%s: passed over", ",".join(sorted(left)))
    if per_batch:
        _replace(df, path, name, keys, options, job)
        return
    if not df.columns:
        logger.info("event=nothing_written: the frame has no columns, as nothing was new")
        return
    if job is not None:
        job.run.check()
    with timestamps_with_statistics(df, name):
        df.write.format(name).options(**options).partitionBy(*keys).mode("append").save(path)


def _replace(
    df: DataFrame, path: str, name: str, keys: list[str], options: Mapping[str, str], job: IncrementalJob | None
) -> None:
    if job is None:
        raise PlanConflictError(
            "(none)", "perBatch needs a run with bookmarks enabled. Call Job.init before, or leave the option out."
        )
    if df.columns:
        left: dict[str, Any] = dict(options)
        job.write(df, path, format=name, partition_by=keys, **left)
