"""Database tables as sources of rows, which are examined and read with SQL, over JDBC or a Python driver.

Must not depend on the table of watermarks or files.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.databases.login import login_of_secret as login_of_secret
    from scripts.helpers.databases.snapshot import PostgresSnapshot as PostgresSnapshot
    from scripts.helpers.databases.sql_table import SqlTable as SqlTable
    from scripts.helpers.databases.table import JdbcTable as JdbcTable

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "login": ["login_of_secret"],
        "snapshot": ["PostgresSnapshot"],
        "sql_table": ["SqlTable"],
        "table": ["JdbcTable"],
    },
)
