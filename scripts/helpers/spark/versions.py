"""Check that a job runs on a supported version of Spark."""

from __future__ import annotations

import re

from scripts.helpers._lazy import SparkSession
from scripts.helpers.errors import UnsupportedVersionError

OLDEST = (3, 3)
"""The first version that counts rows while they are read (Observation), and that Glue runs with Python 3.10."""


def check_version(spark: SparkSession | None) -> None:
    """Raise UnsupportedVersionError for a session of a Spark that is too old.

    Parameters
    ----------
    spark
        The session, classic or of Spark Connect; None, for a job without Spark, is accepted.

    Raises
    ------
    UnsupportedVersionError
        Spark is older than `OLDEST`.
    """
    if spark is None:
        return
    # Vendors append a suffix to the version, as in 3.5.2-amzn-1.
    found = re.match(r"(\d+)\.(\d+)", spark.version)
    # Accept a version that does not begin with two numbers: it is not a release, and may be newer than all releases.
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        raise UnsupportedVersionError("Spark", spark.version, "3.3", "Use Glue 4.0, EMR 6.9, or a newer release.")
