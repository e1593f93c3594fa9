"""`purge_s3_path`: delete files below a folder that are older than a number of hours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers._lazy import SparkSession
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.listing.listing import Listing, Location
from scripts.helpers.sinks.places import place_of

logger = logging.getLogger(__name__)

RETENTION_HOURS = 168
"""Glue's default: one week."""
MAX_HOURS = 1_000_000


def purge(spark: SparkSession, path: str, options: Mapping[str, Any] | None) -> int:
    """Delete the files below a folder that are older than the retention period; return how many were deleted.

    Parameters
    ----------
    options
        ``retentionPeriod`` in hours, by default 168, and ``excludeStorageClasses``, whose objects are kept.

    Raises
    ------
    InvalidValueError
        The period is negative or not a number, or an option is unknown. Nothing is deleted.
    SourceError, TargetError
        The folder cannot be listed, or a file cannot be deleted.
    """
    left = dict(options or {})
    hours = left.pop("retentionPeriod", RETENTION_HOURS)
    kept_classes = set(left.pop("excludeStorageClasses", None) or ())
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours <= MAX_HOURS:
        raise glue_option_error(
            "retentionPeriod", f"is {hours!r}. Write a number of hours up to {MAX_HOURS:,}; 0 deletes all files."
        )
    if left:
        # Refuse unknown options, because ignoring a misspelt one would delete more than was asked for.
        raise glue_option_error(sorted(left)[0], "is not here. There are retentionPeriod and excludeStorageClasses.")
    until = datetime.now(timezone.utc) - timedelta(hours=hours)
    folder = path.rstrip("/") + "/"
    old = []
    for part in Listing(Location.parse(folder)):
        for row in part.rows.to_pylist():
            if row["modified"] <= until and row.get("storage_class") not in kept_classes:
                old.append(row["key"])
    place_of(folder, spark, None).delete(old)
    logger.info("event=purged path=%s files=%d hours=%s", folder, len(old), hours)
    return len(old)
