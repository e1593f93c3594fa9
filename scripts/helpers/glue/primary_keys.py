"""The primary key of a table, as its database tells it: the bookmark key where a script names none, as in Glue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scripts.helpers.databases.connection import jdbc_connection, typed_errors
from scripts.helpers.databases.dialects import MySQL
from scripts.helpers.databases.table import database_of
from scripts.helpers.errors import GlueOptionError
from scripts.helpers.glue.connection_options import TableRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

REMEDY = "name columns that only grow, or better one that also grows when a row is changed."


def bookmark_key(spark: SparkSession, request: TableRequest, context: str) -> str:
    """Return the one column of a table's primary key, with a WARNING.

    Raises
    ------
    GlueOptionError
        The database tells of no primary key, as for a view, or of one of several columns.
    SourceError
        The database cannot be asked.
    """
    with typed_errors(f"{database_of(request.url).name} table {request.table}"):
        found = _primary_key(spark, request)
    if len(found) != 1:
        told = f"has several columns: {', '.join(found)}" if found else "is not there, or not told"
        raise GlueOptionError("jobBookmarkKeys", f"is missing, and the primary key {told}. In the option, {REMEDY}")
    logger.warning(
        "event=primary_key_taken context=%s table=%s column=%s: rows that are changed, or come in below it, are not "
        "seen. Name them in jobBookmarkKeys, or a column that also grows when a row is changed",
        context, request.table, found[0],
    )  # fmt: skip
    return found[0]


def _primary_key(spark: SparkSession, request: TableRequest) -> list[str]:
    """Ask JDBC's own metadata."""
    database = database_of(request.url)
    with jdbc_connection(spark, {"driver": database.driver, **request.properties, "url": request.url}) as connection:
        if connection is None:
            return []
        *above, table = request.table.split(".")
        if isinstance(database, MySQL):  # What stands before a name is a database, to JDBC a catalogue.
            catalog, schema = (above[-1] if above else connection.getCatalog()), None
        else:
            catalog = above[-2] if len(above) > 1 else connection.getCatalog()
            schema = above[-1] if above else connection.getSchema()
        rows = connection.getMetaData().getPrimaryKeys(catalog, schema, table)
        found = []
        while rows.next():
            found.append(str(rows.getString("COLUMN_NAME")))
        return found
