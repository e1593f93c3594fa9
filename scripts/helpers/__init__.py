"""Store durably how far each job got, and compute from it what is new.

Users import the modules here ("doors"). Each package ("room") has one concern, which its docstring describes.
"""

import sys
from pkgutil import extend_path

# Let Python also find modules of a job's own package `scripts.helpers`. Do this first: the import below needs it.
__path__ = extend_path(__path__, __name__)

# pip refuses an older Python, but `spark-submit --py-files` does not, and the run would end with a SyntaxError.
if sys.version_info < (3, 10):  # noqa: UP036
    from scripts.helpers.errors import UnsupportedVersionError

    raise UnsupportedVersionError(
        "Python", ".".join(map(str, sys.version_info[:3])), "3.10",
        "Glue 4.0 and newer have it; on EMR, name another one with PYSPARK_PYTHON.",
    )  # fmt: skip
