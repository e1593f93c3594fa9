"""PySpark's daemon for tests: its workers do not read Spark's own zips again at each task.

A worker forgets what it knows of all zips on its path before each task, and reads their thousands of names anew.
Nothing changes them here, and that was half the time of tests with small tasks.
"""

from __future__ import annotations

import zipimport

from pyspark.daemon import manager

if __name__ == "__main__":
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]
    manager()
