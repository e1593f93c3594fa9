"""AWS Glue's job bookmarks under Glue's own names, built on the other packages in `helpers`.

To move a script written for Glue here, change its imports: ``from awsglue.context import GlueContext`` becomes
``from scripts.helpers.glue import GlueContext``, and likewise for each name below.

Must not depend on `job_runs`, which is Glue's other API.
"""

from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import T, lazy

if TYPE_CHECKING:
    from scripts.helpers.glue.bookmarks import JobBookmarks as JobBookmarks
    from scripts.helpers.glue.context import GlueContext as GlueContext
    from scripts.helpers.glue.frames import DynamicFrame as DynamicFrame
    from scripts.helpers.glue.frames import DynamicFrameCollection as DynamicFrameCollection
    from scripts.helpers.glue.frames import ResolveOption as ResolveOption
    from scripts.helpers.glue.job import Job as Job
    from scripts.helpers.glue.quality import EvaluateDataQuality as EvaluateDataQuality
    from scripts.helpers.glue.records import DynamicRecord as DynamicRecord
    from scripts.helpers.glue.runtime import getResolvedOptions as getResolvedOptions
    from scripts.helpers.glue.sinks import DataSink as DataSink
    from scripts.helpers.glue.transforms import *  # noqa: F403
    from scripts.helpers.glue_api.errors import GlueArgumentError as GlueArgumentError
    from scripts.helpers.glue_api.errors import VersionMismatchException as VersionMismatchException

NOT_HERE = (
    "ArrayType", "AtomicType", "BinaryType", "BooleanType", "ByteType", "ChoiceType", "DataType", "DateType",
    "DecimalType", "DoubleType", "EntityType", "EnumType", "Field", "FillMissingValues", "FindIncrementalMatches",
    "FindMatches", "FloatType", "IntegerType", "LongType", "MapType", "NullType", "SetType", "ShortType", "StringType",
    "StructType", "TimestampNTZType", "TimestampType", "UnknownType", "mergeDataTypes",
)  # fmt: skip
"""Names of Glue's library that have no code here. A type, such as ``LongType``, is Spark's type of that name. Any
other name can be imported too: using it raises an error that says what to do instead."""
NAMES_OUTSIDE_STAR_IMPORTS = {
    "Command", "Connections", "DataFrameReader", "DataFrameWriter", "DataSource", "DynamicFrameReader",
    "DynamicFrameWriter", "ExecutionProperty", "GlueArgumentParser", "GlueJobUtils", "StreamingDataSource", "callsite",
    "describe_transform", "explodeWithIndex", "get_transform", "get_transforms", "iteritems", "iterkeys", "itervalues",
    "makeOptions", "namedStruct", "register", "replaceArrayElement",
}  # fmt: skip
"""More names like those in `NOT_HERE`. They are not in `__all__`, because ``import *`` would replace Spark's names."""
_found, __dir__, __all__ = lazy(
    __name__,
    {
        "bookmarks": ["JobBookmarks"],
        "context": ["GlueContext"],
        "frames": ["DynamicFrame", "DynamicFrameCollection", "ResolveOption"],
        "job": ["Job"],
        "quality": ["EvaluateDataQuality"],
        "records": ["DynamicRecord"],
        "runtime": ["getResolvedOptions"],
        "sinks": ["DataSink"],
        "transforms": [
            "ApplyMapping",
            "Coalesce",
            "DropFields",
            "DropNullFields",
            "ErrorsAsDynamicFrame",
            "Filter",
            "FlatMap",
            "GlueTransform",
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
__all__ += list(NOT_HERE)


def __getattr__(name: str) -> Any:
    if name in {*NOT_HERE, *NAMES_OUTSIDE_STAR_IMPORTS}:
        from scripts.helpers.glue.transforms import NotHere

        return getattr(T, name.replace("Field", "StructField"), None) or NotHere(name)
    return _found(name)
