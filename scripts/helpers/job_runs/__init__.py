"""Glue's Job Runs API on Glue or on any Spark: start, monitor and stop runs of jobs.

Must not depend on bookmarks or Glue's readers; `glue` has those.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.job_runs.client import JobRuns as JobRuns
    from scripts.helpers.job_runs.engines import Glue as Glue
    from scripts.helpers.job_runs.engines import SparkSubmit as SparkSubmit

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "client": ["JobRuns"],
        "engines": ["Glue", "SparkSubmit"],
    },
)
