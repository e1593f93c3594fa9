"""Durable memory of how far a job got, and the deltas computed from it.

Modules here are doors: what users import. Packages are rooms, one concern each; their docstrings say which.
"""

import sys
from pkgutil import extend_path

# As in `scripts`: a job's own helpers and these are found side by side. Before the import below, which needs the path.
__path__ = extend_path(__path__, __name__)

# pip refuses such a Python by itself; `spark-submit --py-files` does not, and the next error would be one of syntax.
if sys.version_info < (3, 10):  # noqa: UP036
    from scripts.helpers.errors import UnsupportedVersionError

    raise UnsupportedVersionError(
        "Python", ".".join(map(str, sys.version_info[:3])), "3.10",
        "Glue 4.0 and newer have it; on EMR, name another one with PYSPARK_PYTHON.",
    )  # fmt: skip
