"""Glue's Job Runs API, on Glue or on any Spark: start, watch and stop runs of jobs.

May not know: bookmarks and Glue's readers; `glue` has those.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.job_runs.client import JobRuns
    from scripts.helpers.job_runs.emr_serverless import EmrServerless
    from scripts.helpers.job_runs.engines import Glue, SparkSubmit

__all__ = [
    "EmrServerless",
    "Glue",
    "JobRuns",
    "SparkSubmit",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "client": ["JobRuns"],
        "emr_serverless": ["EmrServerless"],
        "engines": ["Glue", "SparkSubmit"],
    },
)
