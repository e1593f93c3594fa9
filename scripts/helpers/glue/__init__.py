"""What AWS Glue's job bookmarks do, under Glue's own names, on top of all other helpers.

A script written for Glue moves here by its imports: ``from awsglue.context import GlueContext`` becomes
``from scripts.helpers.glue import GlueContext``, and so for each name below.
"""

from typing import Any

from scripts.helpers.glue.context import GlueContext
from scripts.helpers.glue.frames import DynamicFrame, DynamicFrameCollection
from scripts.helpers.glue.job import Job
from scripts.helpers.glue.runtime import getResolvedOptions
from scripts.helpers.glue.transforms import (
    NOT_HERE,
    ApplyMapping,
    DropFields,
    DropNullFields,
    Filter,
    Join,
    NotHere,
    Relationalize,
    RenameField,
    ResolveChoice,
    SelectFields,
    SelectFromCollection,
)
from scripts.helpers.glue_errors import GlueArgumentError, VersionMismatchException

__all__ = [
    "ApplyMapping",
    "DropFields",
    "DropNullFields",
    "DynamicFrame",
    "DynamicFrameCollection",
    "Filter",
    "GlueArgumentError",
    "GlueContext",
    "Job",
    "Join",
    "Relationalize",
    "RenameField",
    "ResolveChoice",
    "SelectFields",
    "SelectFromCollection",
    "VersionMismatchException",
    "getResolvedOptions",
]
__all__ += list(NOT_HERE)


def __getattr__(name: str) -> Any:
    """Let what is not here be imported, so that its use can say what to do instead."""
    if name in NOT_HERE:
        return NotHere(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
