"""The JVM behind a Spark session. A session of Spark Connect has none, and is refused by name where one is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession
from scripts.helpers.errors import NoJvmError, SourceError

if TYPE_CHECKING:
    from pyspark import RDD

CONNECT = "pyspark.sql.connect."
"""Where PySpark has the classes of Spark Connect; those of Databricks Connect are the same."""


def is_connect(session_or_frame: Any) -> bool:
    """Tell whether a session or a DataFrame is one of Spark Connect. None, and what is not Spark's, is not."""
    return type(session_or_frame).__module__.startswith(CONNECT)


def is_session(found: Any) -> bool:
    """Tell a Spark session, also one of Spark Connect, from a SparkContext: by its methods.

    The session of Spark Connect is no subclass of `pyspark.sql.SparkSession`.
    """
    return hasattr(type(found), "createDataFrame")


def check_jvm(session_or_frame: Any, what: str, remedy: str) -> None:
    """Refuse a session, or a DataFrame, of Spark Connect.

    Parameters
    ----------
    session_or_frame
        What was given; None, for a job without Spark, passes.
    what
        What needs the JVM, as the beginning of a sentence.
    remedy
        What to do instead, as a sentence.

    Raises
    ------
    NoJvmError
        It is one of Spark Connect.
    """
    if is_connect(session_or_frame):
        raise NoJvmError(what, remedy)


def has_jvm(spark: SparkSession | None) -> bool:
    """Tell whether there is a session, and a JVM behind it."""
    return spark is not None and not is_connect(spark)


def java_of(spark: SparkSession) -> Any:
    """Return Py4J's view of the JVM, whose attributes are Java's packages. To be called where `has_jvm`."""
    return spark._jvm


def java_session(spark: SparkSession) -> Any:
    """Return the session's own object of Java."""
    return spark._jsparkSession


def java_context(spark: SparkSession) -> Any:
    """Return the JavaSparkContext."""
    return spark.sparkContext._jsc


def java_frame(df: DataFrame) -> Any:
    """Return a DataFrame's own object of Java."""
    return df._jdf


def frame_of_java(of_java: Any, spark: SparkSession) -> DataFrame:
    """Return an object of Java as a DataFrame."""
    from pyspark.sql import DataFrame

    return DataFrame(of_java, spark)


def hadoop_settings(spark: SparkSession) -> Any:
    """Return Hadoop's configuration with the settings of the session: where Spark reads and writes, and as whom."""
    return java_session(spark).sessionState().newHadoopConf()


def without_code(df: DataFrame, source: str) -> DataFrame:
    """Return a frame of files, unless their schema names a type of Python, which PySpark unpickles or imports.

    Spark writes its schema into the metadata of a Parquet file, where whoever writes the file may name such a type.
    Call this before anything asks the frame for its schema or columns. The vectors of MLlib are types of the JVM, and
    pass.

    Raises
    ------
    SourceError
        The schema names a type of Python.
    """
    if is_connect(df):
        frame: Any = df
        client = frame._session.client
        shown = client._analyze(method="tree_string", plan=frame._plan.to_proto(client), level=None).tree_string
    else:
        shown = java_frame(df).schema().json()
    if ": pythonuserdefined" in shown or '"serializedClass":' in shown:
        what = "the schema in a file names a type of Python, for which PySpark would run code that the file chooses."
        raise SourceError(source, f"{what} Pass schema= with another type, or leave the file out with exclude=.")
    return df


def analysed_plan(df: DataFrame) -> Any:
    """Return the plan of a DataFrame, which no job runs for; None for one of Spark Connect, whose plan is elsewhere."""
    return None if is_connect(df) else java_frame(df).queryExecution().analyzed()


def rdd_of(df: DataFrame) -> RDD[Any]:
    """Return the rows of a DataFrame as an RDD. To be called where `has_jvm`."""
    return df.rdd
