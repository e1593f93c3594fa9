"""One table in one SQLite file, for a laptop, a notebook or a single host. For a table in AWS see `dynamodb`.

Any number of threads and processes of one machine may use a file. Each write is one transaction. It locks the file
before it checks its conditions, so no other process can change the item between the check and the write.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

from scripts.helpers.errors import (
    DAMAGE,
    AccessRefusedError,
    ConfigurationError,
    InvalidValueError,
    StoreUnavailableError,
    TableNotFoundError,
    TableSchemaError,
    WatermarkError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.attributes import item_from_text, item_to_text
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.names import SCHEME
from scripts.helpers.protocol.requests import Between, Delete, Expected, ItemPage, Put, Walk, Write

BUSY_SECONDS = 20.0
"""How long a write waits for other writers. Each takes milliseconds, but SQLite gives the lock to any process that asks
at the right moment, so with many writers one of them may wait for seconds."""
APPLICATION, FORMAT = 0x67775731, 1
"""The application id in the header of a SQLite file that is such a table, and the format of its rows."""
NETWORK = re.compile(
    r"nfs|cifs|smb|9p|afs|ceph|lustre|gluster|beegfs|gpfs|virtiofs|vboxsf|vmhgfs|fuse\.(?!gocryptfs|encfs|mergerfs)"
)
"""File systems of other machines, where SQLite's locks do not hold, so two runs could both commit."""
YEARS = 5 * 366 * 24 * 3600
"""Five years in seconds. An expiry further in the past is ignored, as DynamoDB does: it is 0 or in a wrong unit."""
TABLE = """
CREATE TABLE items (job TEXT NOT NULL, key TEXT NOT NULL, item TEXT NOT NULL, expires INTEGER, PRIMARY KEY (job, key))
WITHOUT ROWID
"""
INDEX = "CREATE INDEX expiring ON items (expires) WHERE expires IS NOT NULL"
CREATE_STATEMENTS = (TABLE, INDEX, f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}")
OF_JOB = "SELECT job, key, item FROM items WHERE job = ? AND key >= ? AND key <= ? AND key > ? ORDER BY key"
SELECT_JOB_NEWEST_FIRST = OF_JOB.replace("key > ?", "key < ?").replace("ORDER BY key", "ORDER BY key DESC")
SELECT_ALL = "SELECT job, key, item FROM items WHERE (job, key) > (?, ?) ORDER BY job, key"
PAST_ALL_TEXT = b""
"""In SQLite any blob is greater than any text."""

_tables_lock = threading.RLock()
_tables: weakref.WeakSet[SqliteTable] = weakref.WeakSet()
"""The open tables of this process. A thread holds `_tables_lock` while it uses one, so no two threads do at once."""


def _close_all() -> None:
    """Close all connections before this process forks.

    SQLite tracks its locks per process. A child that inherits a connection would act as if it held the locks of its
    parent, and two runs could both commit.
    """
    _tables_lock.acquire()
    for table in list(_tables):
        table.close()


@cache
def _register_fork_hooks() -> None:
    """Register `_close_all` to run before each fork. Does nothing on systems without fork, such as Windows."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_close_all, after_in_parent=_tables_lock.release, after_in_child=_tables_lock.release
        )


class SqliteTable:
    """A table in a file. The file is opened at the first access.

    Raises
    ------
    InvalidValueError
        The name contains no path, or the file is on a network drive.
    """

    client = None

    def __init__(self, name: str) -> None:
        # Refuse a name with a host, such as //host/file: read as a path, it would mean /host/file on this machine.
        if re.match(rf"{SCHEME}(//[^/]|\s*$)", name) or "\0" in name:
            raise InvalidValueError(f"{name!r} names no file. Write {SCHEME}watermarks.db, or {SCHEME}/folder/name.db.")
        # Resolve the path now, so that it stays valid if the process changes its folder. All links give the same path.
        self.name, self.path = name, Path(os.path.realpath(os.path.expanduser(name.removeprefix(SCHEME))))
        self.place = f"{SCHEME}{self.path}"
        self._kept: tuple[int, sqlite3.Connection] | None = None
        # Cache the item of the head that was last read or written; the next read returns it if the row is the same.
        self._head: tuple[tuple[Any, ...], Item] = ((), {})
        kind = _file_system(self.path)
        if NETWORK.match(kind):
            raise InvalidValueError(
                f"{str(self.path)!r} lies on a drive of another machine ({kind}), where SQLite's locks do not hold. "
                "Use a local file, or a DynamoDB table."
            )

    # --- items ----------------------------------------------------------------------------------

    def get(self, key: Item) -> Item | None:
        """Read one item; None if there is none."""
        with self._connected("read") as db:
            return self._found(db, key)

    def write(self, write: Write) -> bool:
        """Check the conditions and write, in one transaction. True: written. False: a condition failed."""
        key = write.item if isinstance(write, Put) else write.key
        with self._connected("write") as db:
            db.execute("BEGIN IMMEDIATE")
            found = self._found(db, key) or {}
            if not all(_holds(condition, found) for condition in write.only_if):
                db.execute("ROLLBACK")
                return False
            if isinstance(write, Delete):
                db.execute("DELETE FROM items WHERE job = ? AND key = ?", _names(key))
                db.execute("COMMIT")
                return True
            item = write.item if isinstance(write, Put) else {**key, **found, write.attribute: write.value}
            row = (*_names(item), item_to_text(item))
            db.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)", (*row, _expiry(item)))
            # Delete expired items, as DynamoDB does in the background.
            now = int(time.time())
            db.execute("DELETE FROM items WHERE expires BETWEEN ? AND ?", (now - YEARS, now - 1))
            db.execute("COMMIT")
            if row[1] == items.HEAD_KEY:
                self._head = row, item
        return True

    def query(self, wanted: Between) -> ItemPage:
        """Read the items of one job, all on one page unless `wanted` has a limit."""
        first = "" if wanted.first is None else wanted.first
        last = PAST_ALL_TEXT if wanted.last is None else wanted.last
        behind = wanted.after or (PAST_ALL_TEXT if wanted.newest_first else "")
        text = SELECT_JOB_NEWEST_FIRST if wanted.newest_first else OF_JOB
        return self._page(text, (wanted.job_id, first, last, behind), wanted.limit)

    def walk(self, wanted: Walk) -> ItemPage:
        """Read a page of one segment of the table. Segment 0 has all items, and every other segment is empty."""
        if wanted.segment > 0:
            return ItemPage([], None)
        return self._page(SELECT_ALL, ("", "") if wanted.after is None else _names(wanted.after), wanted.limit)

    def _page(self, text: str, values: Sequence[Any], limit: int | None) -> ItemPage:
        found: list[Item] = []
        last = None
        # Close the cursor here: while a read is open, SQLite cannot clear its log of later writes, and the log grows.
        with self._connected("read") as db, closing(db.execute(text, tuple(values))) as rows:
            for number, (job, key, item) in enumerate(rows):
                if number == limit:
                    return ItemPage(found, last)
                if isinstance(job, str) and isinstance(key, str):
                    found.append(_item(job, key, item))
                    last = items.key(job, key)
                elif not isinstance(job, str):
                    # Another program wrote a job name that is not text. List it as a damaged job, escaped to ASCII.
                    found.append(_item(ascii(job), key if isinstance(key, str) else ascii(key), ""))
        return ItemPage(found, None)

    def _found(self, db: sqlite3.Connection, key: Item) -> Item | None:
        row = db.execute("SELECT job, key, item FROM items WHERE job = ? AND key = ?", _names(key)).fetchone()
        if row == self._head[0]:
            return self._head[1]
        found = _item(*row) if row else None
        if found and row[1] == items.HEAD_KEY:
            self._head = row, found
        return found

    # --- the file -------------------------------------------------------------------------------

    def exists(self, table_name: str) -> bool:
        """Return whether a table of this name exists; TableSchemaError if its file is not a table of this package."""
        other = self if table_name == self.name else SqliteTable(table_name)
        with suppress(TableNotFoundError), other._connected("read"):
            return True
        return False

    def eventual_replicas(self, table_name: str | None = None) -> list[str]:
        """Return no region, because a file has no replicas."""
        return []

    def create(self) -> None:
        """Create the file, readable by its owner only. ConfigurationError if it exists and is not empty."""
        try:
            # Create the file before SQLite opens it: SQLite gives the files beside it the same mode. An existing empty
            # file is used, because a process may have died here.
            self.path.touch(0o600)
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"Table {self.name!r}: the folder {str(self.path.parent)!r} does not exist. Make it first."
            ) from error
        except OSError as error:
            raise AccessRefusedError("write", str(self.path)) from error
        with _tables_lock, _errors(self, "write"), closing(self._at_path()) as db:
            db.execute("BEGIN IMMEDIATE")
            if not _is_empty(db):
                raise ConfigurationError(f"Table {self.name!r}: the file {str(self.path)!r} exists already.")
            for statement in CREATE_STATEMENTS:
                db.execute(statement)
            db.execute("COMMIT")

    @contextmanager
    def _connected(self, action: str) -> Iterator[sqlite3.Connection]:
        with _tables_lock, _errors(self, action):
            db = self._connection()
            try:
                yield db
            except BaseException:
                if db.in_transaction:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                raise

    def _connection(self) -> sqlite3.Connection:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise TableNotFoundError(self.name, None, str(self.path)) from error
        # Refuse a second hard link: SQLite names its log of writes after the file, so each link would have a log.
        if found.st_nlink > 1 and self.path.is_file():
            raise TableSchemaError(self.name, "has another name: a hard link leads to its file. Delete one of the two")
        # If another file now has this path, open that one: writes to the replaced file would be lost.
        if self._kept is None or self._kept[0] != found.st_ino:
            self.close()
            self._kept = found.st_ino, self._opened()
            _tables.add(self)
        return self._kept[1]

    def close(self) -> None:
        """Close the connection to the file. The next read or write opens a new one."""
        with _tables_lock:
            if self._kept is not None:
                self._kept[1].close()
            self._kept = None

    def _opened(self) -> sqlite3.Connection:
        db = self._at_path()
        try:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION:
                if _is_empty(db):
                    raise TableNotFoundError(self.name, None, str(self.path))
                raise TableSchemaError(self.name, "is a file of something else. Choose another name")
            if version > FORMAT:
                raise TableSchemaError(
                    self.name, f"is of format {version}, and this version knows {FORMAT}. Upgrade glue-watermarks"
                )
            made = {" ".join(sql.split()) for sql in (TABLE, INDEX)}
            without_quotes = "SELECT name, replace(sql, char(34), '') FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'"
            there = dict(db.execute(without_quotes))
            others = [name for name, sql in there.items() if " ".join(str(sql).split()) not in made]
            if others or "items" not in there:
                # Refuse views and triggers: they would run inside each call, and might hang or change what is written.
                raise TableSchemaError(
                    self.name, f"was altered by another program: {', '.join(map(repr, others)) or 'items is gone'}. "
                    "Restore the file from a backup, or drop what was added to it",
                )  # fmt: skip
            db.execute("PRAGMA journal_mode = WAL")
            # Write each commit to the disk before it returns, so that it survives a power failure.
            db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            db.close()
            raise
        return db

    def _at_path(self) -> sqlite3.Connection:
        _register_fork_hooks()
        if not self.path.is_file():
            raise TableSchemaError(self.name, "is a folder, a pipe or a device. Choose another name")
        # Use mode=rw, which never creates a file. If a wrong name created an empty table, jobs would read all again.
        db = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
        db.execute("PRAGMA trusted_schema = OFF")
        db.text_factory = _text
        return db


def _text(found: bytes) -> str | bytes:
    """Return a text, or its bytes if another program stored a text that is not UTF-8."""
    try:
        return found.decode()
    except UnicodeDecodeError:
        return found


def _is_empty(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()


@contextmanager
def _errors(table: SqliteTable, action: str) -> Iterator[None]:
    """Translate errors of SQLite into errors of this package."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # Catch UnicodeDecodeError, too: SQLite's message quotes the schema, which another program may have altered.
        raise _translated(table, action, str(error)) from error


def _translated(table: SqliteTable, action: str, said: str) -> WatermarkError:
    if "readonly" in said or "unable to open" in said or "authoriz" in said:
        return AccessRefusedError(action, str(table.path))
    if re.search("not a database|malformed|no such table|can't decode", said):
        return TableSchemaError(table.name, f"is damaged, or a file of something else ({said})")
    # The file was locked for too long, or the disk is full or failed. Whether a write took effect is unknown.
    remedy = "Free space on its disk." if "full" in said else "Try again later."
    if "locked" in said:
        who = f"`lsof {quote(str(table.path))}`"
        remedy = f"For {BUSY_SECONDS:g} s others wrote, or one kept its lock: {who} names those that have it open."
    return StoreUnavailableError(table.name, action, said, remedy)


def _holds(condition: Expected, found: Item) -> bool:
    value = found.get(condition.attribute)
    if condition.comparison == "absent":
        return value is None
    if condition.comparison == "present":
        return value is not None
    if condition.comparison == "equal":
        expected = condition.expected
        return value is not None and (value == expected or _comparable(value) == _comparable(expected))
    return value is None or _comparable(value) < _comparable(condition.expected)


def _comparable(value: Any) -> tuple[str, Any]:
    ((tag, content),) = value.items()
    return tag, Decimal(content) if tag == "N" else content


def _names(item: Item) -> tuple[str, str]:
    return item[items.HASH_KEY]["S"], item[items.RANGE_KEY]["S"]


def _item(job: str, key: str, text: str) -> Item:
    """Return an item. If another program altered its text, return only the key: readers then report it as damaged."""
    found: Item = {}
    with suppress(*DAMAGE):
        found = item_from_text(text)
    return found | items.key(job, key)


def _expiry(item: Item) -> int | None:
    """Return when an item expires, in seconds since 1970 UTC; None for a value that DynamoDB would ignore."""
    if items.TTL_ATTRIBUTE not in item:
        return None
    try:
        found = int(Decimal(item[items.TTL_ATTRIBUTE].get("N", "NaN")))
    except (ArithmeticError, ValueError):
        return None
    return found if 0 < found < 2**40 else None


def _file_system(path: Path) -> str:
    """Return the type of the file system of a path, such as "ext4", from Linux's /proc/mounts; "" if unknown."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    kinds = {}
    for line in lines:
        at, kind = line.split(" ")[1:3]
        # Let a later line replace an earlier one, because a later mount hides an earlier one at the same place.
        kinds[re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), at)] = kind
    within = [at for at in kinds if os.path.commonpath([path, at]) == at]
    return kinds[max(within, key=len)] if within else ""
