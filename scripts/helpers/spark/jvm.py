"""The JVM behind a Spark session. Spark Connect has none, and `check_jvm` names the feature that needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession
from scripts.helpers.errors import NoJvmError, SourceError

if TYPE_CHECKING:
    from pyspark import RDD

CONNECT = "pyspark.sql.connect."
"""The package in which PySpark has the classes of Spark Connect, which Databricks Connect uses too."""


def is_connect(session_or_frame: Any) -> bool:
    """Return whether a session or a DataFrame belongs to Spark Connect; False for None and for other objects."""
    return type(session_or_frame).__module__.startswith(CONNECT)


def is_session(found: Any) -> bool:
    """Return whether an object is a Spark session, classic or of Spark Connect, and not a SparkContext.

    The check looks for a method, as the session of Spark Connect is not a subclass of `pyspark.sql.SparkSession`.
    """
    return hasattr(type(found), "createDataFrame")


def check_jvm(session_or_frame: Any, what: str, remedy: str) -> None:
    """Raise NoJvmError for a session, or a DataFrame, of Spark Connect.

    Parameters
    ----------
    session_or_frame
        The session or DataFrame; None, for a job without Spark, is accepted.
    what
        The feature that needs the JVM, as the beginning of a sentence.
    remedy
        What to do instead, as a sentence.

    Raises
    ------
    NoJvmError
        The session or DataFrame belongs to Spark Connect.
    """
    if is_connect(session_or_frame):
        raise NoJvmError(what, remedy)


def has_jvm(spark: SparkSession | None) -> bool:
    """Return whether a session has a JVM: False for None, and for Spark Connect."""
    return spark is not None and not is_connect(spark)


def java_of(spark: SparkSession) -> Any:
    """Return Py4J's view of the JVM, whose attributes are Java packages. Call this only if `has_jvm`."""
    return spark._jvm


def java_session(spark: SparkSession) -> Any:
    """Return the Java object of a session."""
    return spark._jsparkSession


def java_context(spark: SparkSession) -> Any:
    """Return the JavaSparkContext of a session."""
    return spark.sparkContext._jsc


def java_frame(df: DataFrame) -> Any:
    """Return the Java object of a DataFrame."""
    return df._jdf


def frame_of_java(of_java: Any, spark: SparkSession) -> DataFrame:
    """Return a DataFrame for a Java object."""
    from pyspark.sql import DataFrame

    return DataFrame(of_java, spark)


def hadoop_settings(spark: SparkSession) -> Any:
    """Return Hadoop's configuration with the session's settings, such as file systems and credentials."""
    return java_session(spark).sessionState().newHadoopConf()


def without_code(df: DataFrame, source: str) -> DataFrame:
    """Return a frame of files, unless their schema names a Python type, which PySpark would unpickle or import.

    Spark stores its schema in the metadata of a Parquet file, and anyone who writes a file may name such a type there.
    Call this before any code asks the frame for its schema or columns. The vectors of MLlib are JVM types, and are
    accepted.

    Raises
    ------
    SourceError
        The schema names a Python type.
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
    """Return the plan of a DataFrame without running a job; None for Spark Connect, whose plan is on the server."""
    return None if is_connect(df) else java_frame(df).queryExecution().analyzed()


def rdd_of(df: DataFrame) -> RDD[Any]:
    """Return the rows of a DataFrame as an RDD. Call this only if `has_jvm`."""
    return df.rdd
