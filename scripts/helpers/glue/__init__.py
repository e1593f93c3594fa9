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
    from scripts.helpers.glue.frames import DynamicFrame, DynamicFrameCollection, ResolveOption
    from scripts.helpers.glue.importing import FilesAt, ImportReport, RowsBy, import_bookmark
    from scripts.helpers.glue.job import Job
    from scripts.helpers.glue.quality import EvaluateDataQuality
    from scripts.helpers.glue.runtime import getResolvedOptions
    from scripts.helpers.glue.transforms import (
        ApplyMapping,
        Coalesce,
        DropFields,
        DropNullFields,
        ErrorsAsDynamicFrame,
        Filter,
        FlatMap,
        Join,
        Map,
        MapToCollection,
        Relationalize,
        RenameField,
        Repartition,
        ResolveChoice,
        SelectFields,
        SelectFromCollection,
        Spigot,
        SplitFields,
        SplitRows,
        Unbox,
        Union,
        UnnestFrame,
    )
    from scripts.helpers.glue_api.errors import GlueArgumentError, VersionMismatchException

NOT_HERE = ("FillMissingValues", "FindIncrementalMatches", "FindMatches")
"""What Glue's library has besides: it may be imported, so that its use can say what to do instead."""

__all__ = [
    "ApplyMapping",
    "Coalesce",
    "DropFields",
    "DropNullFields",
    "DynamicFrame",
    "DynamicFrameCollection",
    "ErrorsAsDynamicFrame",
    "EvaluateDataQuality",
    "FilesAt",
    "Filter",
    "FlatMap",
    "GlueArgumentError",
    "GlueContext",
    "ImportReport",
    "Job",
    "JobBookmarks",
    "Join",
    "Map",
    "MapToCollection",
    "Relationalize",
    "RenameField",
    "Repartition",
    "ResolveChoice",
    "ResolveOption",
    "RowsBy",
    "SelectFields",
    "SelectFromCollection",
    "Spigot",
    "SplitFields",
    "SplitRows",
    "Unbox",
    "Union",
    "UnnestFrame",
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
        "frames": ["DynamicFrame", "DynamicFrameCollection", "ResolveOption"],
        "importing": ["FilesAt", "ImportReport", "RowsBy", "import_bookmark"],
        "job": ["Job"],
        "quality": ["EvaluateDataQuality"],
        "runtime": ["getResolvedOptions"],
        "transforms": [
            "ApplyMapping",
            "Coalesce",
            "DropFields",
            "DropNullFields",
            "ErrorsAsDynamicFrame",
            "Filter",
            "FlatMap",
            "Join",
            "Map",
            "MapToCollection",
            "Relationalize",
            "RenameField",
            "Repartition",
            "ResolveChoice",
            "SelectFields",
            "SelectFromCollection",
            "Spigot",
            "SplitFields",
            "SplitRows",
            "Unbox",
            "Union",
            "UnnestFrame",
        ],
        ".glue_api.errors": ["GlueArgumentError", "VersionMismatchException"],
    },
)


def __getattr__(name: str) -> Any:
    if name in NOT_HERE:
        from scripts.helpers.glue.transforms import NotHere

        return NotHere(name)
    return _found(name)
