"""One head item per job, and one conditional write for each step of a run.

May not know: what a source is. Rows, files, Spark and S3 are for the rooms above; a plan is a map here,
whatever is in it.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.protocol.head import Change, Head, LogEntry, Plan
    from scripts.helpers.protocol.history import History
    from scripts.helpers.protocol.jobs import ListedJob, ListedJobs
    from scripts.helpers.protocol.names import BatchId
    from scripts.helpers.protocol.run import Run

__all__ = [
    "BatchId",
    "Change",
    "Head",
    "History",
    "ListedJob",
    "ListedJobs",
    "LogEntry",
    "Plan",
    "Run",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "head": ["Change", "Head", "LogEntry", "Plan"],
        "history": ["History"],
        "jobs": ["ListedJob", "ListedJobs"],
        "names": ["BatchId"],
        "run": ["Run"],
    },
)
