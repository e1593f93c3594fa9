"""Write a batch to a target exactly once: each attempt stages its rows, and the head names the attempt to publish.

These modules must not depend on how a batch was chosen, or what a head is. A sink gets rows and the id of their batch.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.sinks.database import DatabaseSink as DatabaseSink
    from scripts.helpers.sinks.delta import DeltaSink as DeltaSink
    from scripts.helpers.sinks.files import FileSink as FileSink
    from scripts.helpers.sinks.iceberg import IcebergSink as IcebergSink
    from scripts.helpers.sinks.merging import Merge as Merge
    from scripts.helpers.sinks.merging import Versions as Versions
    from scripts.helpers.sinks.sink import Sink as Sink

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "delta": ["DeltaSink"],
        "files": ["FileSink"],
        "iceberg": ["IcebergSink"],
        "database": ["DatabaseSink"],
        "merging": ["Versions", "Merge"],
        "sink": ["Sink"],
    },
)
