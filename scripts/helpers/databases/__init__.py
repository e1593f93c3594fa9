"""Tables of databases as sources of rows: the questions of `rows`, asked in SQL over JDBC.

May not know: the table of watermarks, and files.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.databases.login import login_of_secret
    from scripts.helpers.databases.snapshot import PostgresSnapshot
    from scripts.helpers.databases.table import JdbcTable

__all__ = [
    "JdbcTable",
    "PostgresSnapshot",
    "login_of_secret",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "login": ["login_of_secret"],
        "snapshot": ["PostgresSnapshot"],
        "table": ["JdbcTable"],
    },
)
