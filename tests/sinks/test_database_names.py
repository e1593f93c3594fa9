"""`DatabaseSink`: names of jobs, tables and columns that contain special characters of SQL or of a driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks.database import BATCHES, TAKEN_BACK, DatabaseSink
from scripts.helpers.sinks.merging import Merge
from scripts.helpers.sinks.outputs import mark_of, value_of_batch
from tests.support.database_fixtures import written_as
from tests.support.staging import staged_by
from tests.support.written import Written

ODD = """'"`\\ %s %(x)s %% {0} {} ? :x $1 é"""
TABLE, ID, WORD, AT, BATCH = (name + ODD for name in ("table", "id", "word", "at", "batch"))
JOB = f"job{ODD}"
EPOCH, SAME_EPOCH = "E.1-_a", "e.1-_a"
"""All that the name of an epoch may hold; many collations take the two for the same."""
ANY_CASE = {"postgres": "COLLATE any_case", "maria": "COLLATE utf8mb4_general_ci", "sqlite": "COLLATE NOCASE"}


class Unescaped(Written):
    """MariaDB with sessions in which a backslash is an ordinary character."""

    kind = "maria"

    def __init__(self, escaped: Written) -> None:
        super().__init__(escaped.server)
        self._escaped = escaped

    @property
    def properties(self) -> dict[str, str]:
        return {**self._escaped.properties, "sessionVariables": "sql_mode='NO_BACKSLASH_ESCAPES'"}

    def connect(self) -> Any:
        connection = self._escaped.connect()
        connection.cursor().execute("SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'")
        return connection


class Reached:
    """A database that is written to by its Python driver, or over JDBC if there is a Spark session."""

    def __init__(self, written: Written, spark: Any) -> None:
        self.written, self._spark = written, spark

    def quoted(self, name: str) -> str:
        sign = "`" if self.written.kind == "maria" else '"'
        return sign + name.replace(sign, sign * 2) + sign

    def new_table(self, *columns: str) -> None:
        statements = [
            f"DROP TABLE IF EXISTS {self.quoted(TABLE)}",
            f"CREATE TABLE {self.quoted(TABLE)} ({', '.join(columns)})",
        ]
        if self.written.kind == "postgres":
            collation = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
            statements = [f"CREATE COLLATION IF NOT EXISTS any_case {collation}", *statements]
        connection = self.written.connect()
        for statement in statements:
            connection.cursor().execute(statement)  # Without values, drivers do not look for placeholders.
        connection.commit()
        connection.close()

    def sink(self, **options: Any) -> DatabaseSink:
        written = self.written
        if self._spark is None:
            return DatabaseSink([TABLE], connect=written.connect, name="shop", **options)
        return DatabaseSink([TABLE], spark=self._spark, url=written.url, properties=written.properties, **options)

    def frame(self, columns: Sequence[str], *rows: tuple[Any, ...]) -> Any:
        if self._spark is None:
            return pd.DataFrame(rows, columns=list(columns))
        return self._spark.createDataFrame(rows, list(columns))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.written.rows(f"SELECT {', '.join(map(self.quoted, columns))} FROM {self.quoted(TABLE)} ORDER BY 1")

    def batches(self, job: str) -> list[int]:
        """Return the versions of a job that the table of batches records as published."""
        found = self.written.rows(f"SELECT target, job_name, version, staged FROM {BATCHES}")
        return sorted(row[2] for row in found if row[:2] == (TABLE, job) and row[3] != TAKEN_BACK)


@pytest.fixture(params=["postgres", "maria", "maria unescaped", "sqlite"])
def database(request: pytest.FixtureRequest) -> Written:
    kind, _, mode = request.param.partition(" ")
    found = written_as(request, kind)
    return Unescaped(found) if mode else found


@pytest.fixture(params=["driver", "jdbc"])
def reached(request: pytest.FixtureRequest, database: Written) -> Reached:
    return Reached(database, request.getfixturevalue("jdbc") if request.param == "jdbc" else None)


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """Return a job name that no other test uses, of at most 255 characters."""
    return f"{JOB}{request.node.name}"


def taken_back(output: Output, last: int, batch_column: str = BATCH) -> Retraction:
    """Return the decision to take back an output's batch and the later ones up to `last`."""
    since = datetime(2026, 11, 23, tzinfo=timezone.utc)
    return Retraction(
        "database", output.target, output.staging, output.job, output.epoch, output.version, last, since,
        batch_column, job_id=output.job_id,
    )  # fmt: skip


def test_batch_is_there_once_and_goes_alone_when_names_hold_signs_of_sql(reached: Reached, job: str) -> None:
    columns = (f"{reached.quoted(ID)} bigint", f"{reached.quoted(WORD)} varchar(99)")
    reached.new_table(*columns, f"{reached.quoted(BATCH)} varchar(150) {ANY_CASE[reached.written.kind]}")
    sink, other = reached.sink(batch_column=BATCH), f"{job}%"
    batches = [BatchId(job, EPOCH, 1), BatchId(job, EPOCH, 2), BatchId(job, SAME_EPOCH, 1), BatchId(other, EPOCH, 1)]
    rows = [(number, f"{number}{ODD}", value_of_batch(batch)) for number, batch in enumerate(batches)]

    outputs = [
        staged_by(sink, batch, 1, reached.frame([ID, WORD], row[:2])) for batch, row in zip(batches, rows, strict=True)
    ]
    loser = staged_by(sink, batches[0], 2, reached.frame([ID, WORD], (7, "lost")))
    staged = sink.staged(mark_of(job)) + sink.staged(mark_of(other))
    for output in [*outputs, loser, *outputs]:
        sink.publish(output)
        sink.clear(output)
    published, recorded = reached.rows(ID, WORD, BATCH), (reached.batches(job), reached.batches(other))
    shown = sink.to_retract(taken_back(outputs[0], 1))
    counts = [sink.retract(taken_back(outputs[0], 1)) for _ in range(2)]
    sink.publish(outputs[0])

    assert sorted(staged) == sorted(output.folder for output in [*outputs, loser])
    assert (published, recorded) == (rows, ([1, 1, 2], [1]))
    assert (shown, counts) == ([f"1 row in {sink.name}"], [1, 0])
    assert (reached.rows(ID, WORD, BATCH), reached.batches(job), reached.batches(other)) == (rows[1:], [1, 2], [1])
    assert sink.staged(mark_of(job)) + sink.staged(mark_of(other)) == []


# A merge that keeps versions reads the staging table by the same SQL, whether a driver or JDBC has filled it.
@pytest.mark.parametrize(
    ("reached", "history"),
    [
        pytest.param(
            way,
            history,
            id=f"{way}-{'history' if history else 'newest'}",
            marks=[pytest.mark.long] if (way, history) == ("jdbc", True) else [],
        )
        for way in ("driver", "jdbc")
        for history in (False, True)
    ],
    indirect=["reached"],
)
def test_newest_row_of_a_key_is_there_when_names_hold_signs_of_sql(reached: Reached, job: str, history: bool) -> None:
    ends = ["valid_from bigint", "valid_to bigint"] if history else []
    columns = (f"{reached.quoted(ID)} varchar(99)", f"{reached.quoted(AT)} bigint", f"{reached.quoted(WORD)} text")
    reached.new_table(*columns, *ends)
    sink = reached.sink(merge=Merge.of(ID, AT, history))
    batches = [[(ODD, 1, "old"), ("b", 1, ODD)], [(ODD, 3, "newest"), (ODD, 2, "late")]]

    for version, rows in enumerate(batches, 1):
        output = staged_by(sink, BatchId(job, EPOCH, version), 1, reached.frame([ID, AT, WORD], *rows))
        sink.publish(output)
        sink.publish(output)
        sink.clear(output)

    newest = {(ODD, 3, "newest"), ("b", 1, ODD)}
    assert sorted(reached.rows(ID, AT, WORD)) == sorted(
        newest | {(ODD, 1, "old"), (ODD, 2, "late")} if history else newest
    )


def test_all_batches_go_when_they_are_more_than_the_values_of_a_statement(request: pytest.FixtureRequest) -> None:
    written, most = written_as(request, "postgres"), 70_000
    table = written.new_table("id bigint, batch varchar(150)")
    sink, job = written.sink(table, batch_column="batch"), f"many{ODD}"
    outputs = [
        staged_by(sink, BatchId(job, EPOCH, version), 1, pd.DataFrame({"id": [version]})) for version in (1, most)
    ]
    for output in outputs:
        sink.publish(output)
    columns = "target, job, epoch, job_name, staged"
    written.sql(
        f"INSERT INTO {BATCHES} (version, {columns}) SELECT number, {columns} FROM {BATCHES}, "
        f"generate_series(2, {most - 1}) number WHERE target = '{table}' AND version = 1"
    )
    taken = taken_back(outputs[0], most, "batch")

    shown, count = sink.to_retract(taken), sink.retract(taken)

    assert f"2 rows in {sink.name}" in shown
    assert (count, written.rows(f"SELECT id FROM {table}")) == (2, [])
