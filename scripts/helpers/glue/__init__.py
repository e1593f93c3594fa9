"""What AWS Glue's job bookmarks do, under Glue's own names, on top of all other rooms.

A script written for Glue moves here by its imports: ``from awsglue.context import GlueContext`` becomes
``from scripts.helpers.glue import GlueContext``, and so for each name below.

May not know: `job_runs`, which is Glue's other API.
"""

from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.glue.bookmarks import JobBookmarks
    from scripts.helpers.glue.context import GlueContext
    from scripts.helpers.glue.frames import DynamicFrame, DynamicFrameCollection
    from scripts.helpers.glue.importing import FilesAt, ImportReport, RowsBy, import_bookmark
    from scripts.helpers.glue.job import Job
    from scripts.helpers.glue.runtime import getResolvedOptions
    from scripts.helpers.glue.transforms import (
        ApplyMapping,
        DropFields,
        DropNullFields,
        Filter,
        Join,
        Relationalize,
        RenameField,
        ResolveChoice,
        SelectFields,
        SelectFromCollection,
    )
    from scripts.helpers.glue_api.errors import GlueArgumentError, VersionMismatchException

NOT_HERE = (
    "EvaluateDataQuality", "ErrorsAsDynamicFrame", "FillMissingValues", "FindIncrementalMatches", "FindMatches",
    "FlatMap", "Map", "MapToCollection", "Spigot", "SplitFields", "SplitRows", "Unbox", "UnnestFrame",
)  # fmt: skip
"""What Glue's library has besides: it may be imported, so that its use can say what to do instead."""

__all__ = [
    "ApplyMapping",
    "DropFields",
    "DropNullFields",
    "DynamicFrame",
    "DynamicFrameCollection",
    "FilesAt",
    "Filter",
    "GlueArgumentError",
    "GlueContext",
    "ImportReport",
    "Job",
    "JobBookmarks",
    "Join",
    "Relationalize",
    "RenameField",
    "ResolveChoice",
    "RowsBy",
    "SelectFields",
    "SelectFromCollection",
    "VersionMismatchException",
    "getResolvedOptions",
    "import_bookmark",
]
__all__ += list(NOT_HERE)

_found, __dir__ = lazy(
    __name__,
    {
        "bookmarks": ["JobBookmarks"],
        "context": ["GlueContext"],
        "frames": ["DynamicFrame", "DynamicFrameCollection"],
        "importing": ["FilesAt", "ImportReport", "RowsBy", "import_bookmark"],
        "job": ["Job"],
        "runtime": ["getResolvedOptions"],
        "transforms": [
            "ApplyMapping",
            "DropFields",
            "DropNullFields",
            "Filter",
            "Join",
            "Relationalize",
            "RenameField",
            "ResolveChoice",
            "SelectFields",
            "SelectFromCollection",
        ],
        ".glue_api.errors": ["GlueArgumentError", "VersionMismatchException"],
    },
)


def __getattr__(name: str) -> Any:
    if name in NOT_HERE:
        from scripts.helpers.glue.transforms import NotHere

        return NotHere(name)
    return _found(name)
