"""What lies behind a Spark session: its JVM where there is one, or Spark Connect, and what works with either.

May not know: rows, files, sinks or jobs, or why somebody asks. No other room reaches for the JVM, the SparkContext or
RDDs by itself: a session of Spark Connect has none of them.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.spark.jvm import is_connect as is_connect
    from scripts.helpers.spark.jvm import is_session as is_session

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "jvm": ["is_connect", "is_session"],
    },
)
