"""Calls, each in a process in which no earlier call has added the filter of log lines; everything is logged.

`python -m tests.display.fresh_process FOLDER CALLS` forks for each call and writes its log to the folder. AWS calls go
to AWS_ENDPOINT_URL. The calls use the caller's JVM for Spark, because a new JVM takes seconds to start.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

URL = "jdbc:postgresql://127.0.0.1:1/shop"
"""The URL of a database that does not exist: only the attempts to connect are logged."""


def secret() -> None:
    from scripts.helpers.databases.login import login_of_secret

    login_of_secret("redacted-login")


def connection() -> None:
    from scripts.helpers.glue.catalog import Catalog

    Catalog().connection("redacted")


def connection_with_a_secret() -> None:
    from scripts.helpers.glue.catalog import Catalog

    Catalog().connection("redacted-by-secret")


def secret_by_a_client_of_others() -> None:
    import boto3

    from scripts.helpers.databases.login import login_of_secret

    login_of_secret("redacted-login", boto3.client("secretsmanager"))


def buckets() -> None:
    from scripts.helpers.listing.s3 import make_client

    make_client(1).list_buckets()


def queue() -> None:
    from scripts.helpers.errors import WatermarkError
    from scripts.helpers.listing.events import S3EventQueue
    from scripts.helpers.listing.listing import Location

    with suppress(WatermarkError):
        S3EventQueue(f"{os.environ['AWS_ENDPOINT_URL']}/1/landing").receive(Location.parse("s3://landing/"))


def table() -> None:
    from scripts.helpers.protocol.dynamodb import make_table_client
    from scripts.helpers.protocol.store import Store

    Store("no-table", make_table_client(None, None)).table.exists("no-table")


def table_by_a_client_of_others() -> None:
    import boto3

    from scripts.helpers.watermarks import Watermarks

    Watermarks("no-table", boto3.client("dynamodb")).exists("no-table")


def command_line() -> None:
    from scripts.cli.main import cli
    from scripts.helpers.errors import WatermarkError

    with suppress(WatermarkError, SystemExit):
        cli(["--table", "no-table", "jobs"])


def runs() -> None:
    from scripts.helpers.glue_api.runs import runs_on_glue

    list(runs_on_glue("parking", ["jr_1"]))


def command() -> None:
    from scripts.cli.surroundings import Surroundings

    Surroundings().client("glue").get_databases()


def iceberg_catalog() -> None:
    from scripts.helpers.errors import WatermarkError
    from scripts.helpers.sinks.targets import target_rows

    with suppress(WatermarkError):
        target_rows("lake.shop.repairs", "iceberg", None, None)


def _spark() -> Any:
    """Return a session in the caller's JVM, and log everything from here on."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    spark = gateway.jvm.org.apache.spark
    java = spark.api.java.JavaSparkContext.fromSparkContext(spark.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jvm=gateway.jvm, _jconf=java.getConf()))
    session = SparkSession(context).newSession()
    session.conf.set("fs.s3a.secret.key", os.environ["AWS_SECRET_ACCESS_KEY"])
    session.conf.set("fs.s3a.access.key", "AKID")
    logging.getLogger().setLevel(logging.DEBUG)
    return session


def _glue_context() -> Any:
    from scripts.helpers.glue import GlueContext

    return GlueContext(_spark())


def extract_jdbc_conf() -> None:
    _glue_context().extract_jdbc_conf("redacted")


def read_catalog_table() -> None:
    from scripts.helpers.errors import SourceError

    with suppress(SourceError):
        _glue_context().create_dynamic_frame.from_catalog("redacted", "repairs")


def read_by_connection() -> None:
    from scripts.helpers.errors import SourceError

    options = {"connectionName": "redacted", "dbtable": "repairs"}
    with suppress(SourceError):
        _glue_context().create_dynamic_frame.from_options("postgresql", options)


def write_by_connection() -> None:
    from scripts.helpers.errors import SourceError

    glue_context = _glue_context()
    with suppress(SourceError):
        glue_context.write_dynamic_frame.from_jdbc_conf(
            glue_context.spark_session.range(1), "redacted", {"dbtable": "repairs"}
        )


def write_by_options() -> None:
    from scripts.helpers.errors import SourceError

    glue_context = _glue_context()
    login = {"url": URL, "dbtable": "repairs", "user": "ann", "password": os.environ["AWS_SECRET_ACCESS_KEY"]}
    with suppress(SourceError):
        glue_context.write_dynamic_frame.from_options(glue_context.spark_session.range(1), "postgresql", login)


def keys_of_spark() -> None:
    from scripts.helpers.sinks.places import place_of

    place_of("s3://landing/x/", _spark(), None)


CALLS: dict[str, Callable[[], None]] = {
    "login_of_secret": secret, "login_of_secret with a client": secret_by_a_client_of_others,
    "Catalog.connection": connection, "Catalog.connection with a secret": connection_with_a_secret,
    "make_client": buckets, "S3EventQueue": queue, "make_table_client": table, "runs_on_glue": runs,
    "Surroundings.client": command, "target_rows": iceberg_catalog, "watermarks jobs": command_line,
    "Watermarks with a client": table_by_a_client_of_others,
}  # fmt: skip
"""Calls that send requests to AWS with a session token; some request a password."""
CALLS_WITH_SPARK: dict[str, Callable[[], None]] = {
    "extract_jdbc_conf": extract_jdbc_conf, "create_dynamic_frame.from_catalog": read_catalog_table,
    "create_dynamic_frame.from_options": read_by_connection, "write_dynamic_frame.from_jdbc_conf": write_by_connection,
    "write_dynamic_frame.from_options": write_by_options, "place_of": keys_of_spark,
}  # fmt: skip
"""Calls that pass a password to the JVM or receive one from it."""


USED = (
    "pyspark.sql", "scripts.cli.main", "scripts.helpers.databases.login", "scripts.helpers.glue",
    "scripts.helpers.glue.catalog", "scripts.helpers.glue_api.runs", "scripts.helpers.listing.events",
    "scripts.helpers.listing.s3", "scripts.helpers.protocol.dynamodb", "scripts.helpers.sinks.targets",
    "scripts.helpers.watermarks",
)  # fmt: skip
"""Imported once, before all calls, which need them. boto3 is not imported: its loggers must come after the filter."""


def _logged(name: str, log: Path) -> None:
    """Make a call in this process; redirect all that it prints and logs to a file."""
    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    # Spark's own start is not logged, because the package is not involved in it.
    logging.basicConfig(level=logging.DEBUG if name in CALLS else logging.WARNING)
    {**CALLS, **CALLS_WITH_SPARK}[name]()


def main(folder: str, *names: str) -> None:
    """Make each call in a forked process, and print its exit code."""
    for module in USED:
        import_module(module)
    for name in names:
        if (child := os.fork()) == 0:
            _logged(name, Path(folder, f"{name}.log"))
            return
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
