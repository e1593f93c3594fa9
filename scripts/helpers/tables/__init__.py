"""Delta Lake and Iceberg tables as sources: which commits are new, and which rows they appended or changed.

Must not depend on the table of watermarks or how a batch is stored. States are passed in and returned as maps.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.tables.delta import DeltaTable as DeltaTable
    from scripts.helpers.tables.iceberg import IcebergTable as IcebergTable
    from scripts.helpers.tables.sources import TableSource as TableSource
    from scripts.helpers.tables.spans import TableOptions as TableOptions
    from scripts.helpers.tables.spans import TableSpan as TableSpan

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "delta": ["DeltaTable"],
        "iceberg": ["IcebergTable"],
        "sources": ["TableSource"],
        "spans": ["TableOptions", "TableSpan"],
    },
)
