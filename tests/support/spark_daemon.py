"""PySpark's daemon for tests: its workers start with the modules that they need, and keep them.

Without it, a worker forgets all zips on its path before each task and reads their thousands of names again, and
after each task collects garbage among all that it has imported. Both took most of the time of small tasks.
"""

from __future__ import annotations

import gc
import zipimport

import boto3  # noqa: F401 - each worker would import these three
import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]
    manager()
