"""Small questions to a database, by a connection of the driver's JVM: a Spark job takes three times as long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def jdbc_connection(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    """Open a ``java.sql.Connection`` as Spark's reader opens its own, and close it; None on Spark Connect.

    Parameters
    ----------
    spark
        The session.
    options
        Those of Spark's reader, with ``url`` and ``driver``. A ``sessionInitStatement`` is run.
    """
    from py4j.protocol import Py4JError

    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        yield None
        return
    parameters = jvm.PythonUtils.toScalaMap({"dbtable": "unused", **options})
    found = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(parameters)
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
    connection = dialect.createConnectionFactory(found).apply(-1)
    try:
        if found.sessionInitStatement().isDefined():
            connection.createStatement().execute(found.sessionInitStatement().get())
        yield connection
    finally:
        with suppress(Py4JError):  # A connection that broke off says so again.
            connection.close()


def ask(spark: SparkSession, options: Mapping[str, str], query: str, names: Sequence[str]) -> list[Any]:
    """Return the rows of a query, every value as text: some drivers cannot tell the type of an expression.

    Parameters
    ----------
    spark
        The session.
    options
        As of `jdbc_connection`. A ``queryTimeout`` holds.
    query
        A SELECT whose columns have these names.
    names
        Its columns, in order.
    """
    with jdbc_connection(spark, options) as connection:
        if connection is None:
            schema = ", ".join(f"{name} STRING" for name in names)
            reader = spark.read.format("jdbc").options(**options, query=query, customSchema=schema)
            return [tuple(row) for row in reader.load().collect()]
        statement = connection.createStatement()
        given = {name.lower(): value for name, value in options.items()}
        statement.setQueryTimeout(int(given.get("querytimeout", 0)))
        found = statement.executeQuery(query)
        rows = []
        while found.next():
            rows.append(tuple(found.getString(position + 1) for position in range(len(names))))
        return rows
