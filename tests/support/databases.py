"""Private databases for tests: started in a new directory on a free loopback port, stopped by process id."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE

LINGUISTIC = ("--locale-provider=icu", "--icu-locale=en-US")
"""A collation that sorts "a" before "B", unlike a comparison of bytes."""
_numbers = itertools.count(1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_user(name: str) -> dict[str, Any]:
    """Return how to start a process as another user, because database servers refuse to run as root."""
    if os.getuid() != 0:
        return {}
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def own_directory(user: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"{user}-"))
    if os.getuid() == 0:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
    return folder


class Server:
    """A running database server."""

    url: str
    properties: dict[str, str]
    numbered = "id integer PRIMARY KEY"
    """The definition of an id column for which the database can list the open transactions exactly."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.folder, self.port = own_directory(user), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], is_up: Callable[[], bool]) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **as_user(self.user)
            )
        deadline = time.monotonic() + PATIENCE
        while not is_up():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def run(self, command: Sequence[str]) -> None:
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, **as_user(self.user)
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def log_since(self, before: str) -> str:
        return self.log()[len(before) :]

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(20)


class PostgresServer(Server):
    """PostgreSQL in a time zone that no test expects, so that no test can rely on it; it logs each statement."""

    numbered = "id serial PRIMARY KEY"
    made_tables = 0
    """How many tables `new_table` has made since they were last dropped."""

    @staticmethod
    def binaries() -> Path | None:
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")) or [shutil.which("initdb") or ""]
        return Path(found[-1]).parent if found[-1] else None

    def __init__(self) -> None:
        super().__init__("postgres")
        folder = self.binaries()
        assert folder is not None
        self.data = self.folder / "data"
        self.run(
            [
                str(folder / "initdb"),
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                *LINGUISTIC,
                "--auth=trust",
                "-D",
                str(self.data),
            ]
        )
        self.url = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"
        # Without this the driver gives up after 10 seconds, within which a busy machine may not answer.
        self.properties = {"user": "postgres", "password": "not-a-secret", "connectTimeout": f"{PATIENCE:.0f}"}
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder, "fsync": "off",
            "timezone": "America/New_York", "log_timezone": "UTC", "log_statement": "all", "log_destination": "stderr",
            "autovacuum": "off", "max_connections": 60, "max_prepared_transactions": 4,
            "wal_level": "logical",
            # Compiling the queries for open transactions takes a second, and running them some milliseconds.
            "jit": "off",
        }  # fmt: skip
        options = itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in settings.items())
        self.command = [str(folder / "postgres"), "-D", str(self.data), *options]
        self.start(self.command, self._is_up)

    def _is_up(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def halt(self) -> None:
        """Stop the server together with its open connections; its data stays."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)

    def resume(self) -> None:
        self.start(self.command, self._is_up)

    def connect(self, database: str = "postgres") -> Any:
        """Return a connection outside any transaction; ``with connection.transaction()`` begins one."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            dbname=database,
            autocommit=True,
            connect_timeout=int(PATIENCE),
        )

    def sql(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements, each its own transaction; return the rows of the last."""
        with self.connect(database) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def new_table(self, columns: str) -> str:
        name = f"table_{next(_numbers)}"
        self.made_tables += 1
        self.sql(f"CREATE TABLE {name} ({columns})")
        return name


class MariaServer(Server):
    """MariaDB in a time zone that no test expects."""

    @staticmethod
    def binaries() -> Path | None:
        found = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/bin")
        return Path(found) if found and shutil.which("mariadb-install-db") else None

    def __init__(self) -> None:
        super().__init__("mysql")
        self.data = self.folder / "data"
        # A starting server deletes everything called `#sql…` in its tmpdir, so no two servers may share one.
        common = ["--no-defaults", f"--datadir={self.data}", f"--tmpdir={self.folder}"]
        self.run(
            [
                "mariadb-install-db",
                *common,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ]
        )
        self.url = f"jdbc:mysql://127.0.0.1:{self.port}/shop"
        self.properties = {"user": "reader", "password": "not-a-secret", "driver": "org.mariadb.jdbc.Driver"}
        options = [
            "--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self.folder}/socket", "--skip-log-bin",
            f"--pid-file={self.folder}/pid", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
            "--default-time-zone=-04:00", "--character-set-server=utf8mb4", "--skip-name-resolve",
            "--performance-schema=OFF", "--sql-mode=STRICT_TRANS_TABLES", "--innodb-flush-method=nosync",
            "--skip-sync-frm",
        ]  # fmt: skip
        self.start([str(self.binaries()), *common, *options], self._is_up)
        self.sql("CREATE DATABASE shop", database=None)
        self.sql("CREATE USER reader@'%' IDENTIFIED BY 'not-a-secret'", "GRANT SELECT ON shop.* TO reader@'%'")
        # With PROCESS the reader sees which transactions are open.
        self.sql("GRANT PROCESS ON *.* TO reader@'%'")

    def _connect(self, database: str | None) -> Any:
        import pymysql

        # Return values as the server writes them, so that they can be printed.
        return pymysql.connect(
            unix_socket=f"{self.folder}/socket", user="root", database=database, charset="utf8mb4", autocommit=True,
            conv={}, connect_timeout=int(PATIENCE), ssl_disabled=True,
        )  # fmt: skip

    def _is_up(self) -> bool:
        import pymysql

        try:
            self._connect(None).close()
        except pymysql.OperationalError:
            return False
        return True

    def sql(self, *statements: str, database: str | None = "shop") -> str:
        """Run statements; return the rows of each as tab-separated lines below a line of column names."""
        lines = []
        with closing(self._connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                if cursor.description:
                    found = [[column[0] for column in cursor.description], *cursor.fetchall()]
                    lines += ["\t".join("NULL" if value is None else str(value) for value in row) for row in found]
        return "".join(f"{line}\n" for line in lines)

    def new_table(self, columns: str) -> str:
        name = f"table_{next(_numbers)}"
        self.sql(f"CREATE TABLE {name} ({columns})")
        return name


class SQLiteFile:
    """A database file."""

    properties: dict[str, str] = {}  # noqa: RUF012
    numbered = Server.numbered

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, f"jdbc:sqlite:{path}"

    def sql(self, *statements: str) -> None:
        with sqlite3.connect(self.path) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    def new_table(self, columns: str) -> str:
        name = f"table_{next(_numbers)}"
        self.sql(f"CREATE TABLE {name} ({columns})")
        return name
