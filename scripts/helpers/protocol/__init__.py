"""One head item per job, and one conditional write for each step of a run.

May not know: what a source is. Rows, files, Spark and S3 are for the rooms above; a plan is a map here,
whatever is in it.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.protocol.head import Change as Change
    from scripts.helpers.protocol.head import Head as Head
    from scripts.helpers.protocol.head import LogEntry as LogEntry
    from scripts.helpers.protocol.head import Plan as Plan
    from scripts.helpers.protocol.history import History as History
    from scripts.helpers.protocol.jobs import ListedJob as ListedJob
    from scripts.helpers.protocol.jobs import ListedJobs as ListedJobs
    from scripts.helpers.protocol.names import BatchId as BatchId
    from scripts.helpers.protocol.run import Run as Run

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "head": ["Change", "Head", "LogEntry", "Plan"],
        "history": ["History"],
        "jobs": ["ListedJob", "ListedJobs"],
        "names": ["BatchId"],
        "run": ["Run"],
    },
)
