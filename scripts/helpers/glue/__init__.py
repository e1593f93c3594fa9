"""What AWS Glue's job bookmarks do, under Glue's own names, on top of all other helpers.

A script written for Glue moves here by its imports: ``from awsglue.context import GlueContext`` becomes
``from scripts.helpers.glue import GlueContext``, and so for each name below.
"""

from scripts.helpers.glue.context import GlueContext
from scripts.helpers.glue.frames import DynamicFrame, DynamicFrameCollection
from scripts.helpers.glue.job import Job
from scripts.helpers.glue.runtime import getResolvedOptions
from scripts.helpers.glue.transforms import (
    ApplyMapping,
    DropFields,
    Relationalize,
    RenameField,
    ResolveChoice,
    SelectFields,
)
from scripts.helpers.glue_errors import GlueArgumentError, VersionMismatchException

__all__ = [
    "ApplyMapping",
    "DropFields",
    "DynamicFrame",
    "DynamicFrameCollection",
    "GlueArgumentError",
    "GlueContext",
    "Job",
    "Relationalize",
    "RenameField",
    "ResolveChoice",
    "SelectFields",
    "VersionMismatchException",
    "getResolvedOptions",
]
