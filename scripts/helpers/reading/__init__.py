"""Reading exactly the objects that were planned: by Spark, by many small fetches, or by pandas.

May not know: why they were planned. A key, its ETag and its version come in; rows, or an error that names the
key, go out.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.reading.fetch import ObjectFetcher as ObjectFetcher
    from scripts.helpers.reading.pandas_files import read_pandas as read_pandas
    from scripts.helpers.reading.spark import read_files as read_files

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "fetch": ["ObjectFetcher"],
        "pandas_files": ["read_pandas"],
        "spark": ["read_files"],
    },
)
