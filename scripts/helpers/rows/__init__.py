"""Find the new rows of a source. The modules cover cursor columns, windows, coverage, and DataFrames as sources.

Must not depend on the table of watermarks. States are passed in and returned as maps; nothing here sends a request to
DynamoDB.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.rows.arrow_streams import ArrowStream as ArrowStream
    from scripts.helpers.rows.coverage import slices as slices
    from scripts.helpers.rows.cursors import CursorColumn as CursorColumn
    from scripts.helpers.rows.date_partitions import DatePartitions as DatePartitions
    from scripts.helpers.rows.memory import ArrowRows as ArrowRows
    from scripts.helpers.rows.memory import PandasRows as PandasRows
    from scripts.helpers.rows.missing import missing_keys as missing_keys
    from scripts.helpers.rows.options import RowOptions as RowOptions
    from scripts.helpers.rows.progress import Spans as Spans
    from scripts.helpers.rows.sources import RowSource as RowSource
    from scripts.helpers.rows.spark_frames import DataFrameRows as DataFrameRows
    from scripts.helpers.rows.window import RowWindow as RowWindow

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "arrow_streams": ["ArrowStream"],
        "coverage": ["slices"],
        "cursors": ["CursorColumn"],
        "date_partitions": ["DatePartitions"],
        "memory": ["ArrowRows", "PandasRows"],
        "missing": ["missing_keys"],
        "options": ["RowOptions"],
        "progress": ["Spans"],
        "sources": ["RowSource"],
        "spark_frames": ["DataFrameRows"],
        "window": ["RowWindow"],
    },
)
