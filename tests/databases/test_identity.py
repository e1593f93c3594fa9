"""A source table must stay the same: another, recreated or reset table is refused, and the remedies work."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.databases.table import JdbcTable, server_of
from scripts.helpers.errors import CorruptItemError, CursorError, PlanConflictError, SourceError, SourceLostError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.watermarks import Watermarks
from tests.support.database_fixtures import BOTH
from tests.support.reasons import because, behind
from tests.support.steps import commit

Maker = Callable[..., JdbcTable]


def run(watermarks: Watermarks, source: JdbcTable, run_id: str, **options: Any) -> list[int]:
    with IncrementalJob(watermarks, "repairs", run_id) as job:
        found = job.rows_since(source, "id", transformation_ctx="repairs", **options)
        rows = found.read_all().to_pylist() if isinstance(found, ArrowStream) else found.collect()
        return sorted(row["id"] for row in rows)


def identity(watermarks: Watermarks) -> Any:
    return json.loads(watermarks.get_watermark_values("repairs")["repairs"]["source"])


def numbered(postgres: Any, last: int) -> str:
    name: str = postgres.new_table(postgres.numbered)
    postgres.sql(f"INSERT INTO {name} SELECT generate_series(1, {last})")
    return name


@BOTH
def test_state_holds_server_database_schema_table_and_numbers_when_postgres_is_read(
    watermarks: Watermarks, postgres: Any, table_in: Maker
) -> None:
    name = numbered(postgres, 2)
    ((oid, cluster),) = postgres.sql(
        f"SELECT '{name}'::regclass::oid::text, system_identifier::text FROM pg_control_system()"
    )

    run(watermarks, table_in(name), "jr_1")

    kept = identity(watermarks)
    assert kept.pop("server") in postgres.url
    assert kept == {"database": "postgres", "schema": "public", "table": name, "oid": oid, "cluster": cluster}


@BOTH
def test_run_is_refused_when_the_context_is_given_another_table(
    watermarks: Watermarks, postgres: Any, table_in: Maker
) -> None:
    first, second = numbered(postgres, 5), numbered(postgres, 3)
    run(watermarks, table_in(first), "jr_1")

    with pytest.raises(SourceLostError, check=because("replaced")) as caught:
        run(watermarks, table_in(second), "jr_2")

    assert first in caught.value.before
    assert second in caught.value.source
    assert "`watermarks reset repairs --context repairs --why TEXT`" in str(caught.value)
    assert "`watermarks set repairs --context repairs source:null= --why TEXT`" in str(caught.value)


@pytest.mark.parametrize("remade", [False, True])
def test_table_that_was_made_anew_is_refused_unless_it_is_known_by_its_name_when_postgres_is_read(
    watermarks: Watermarks, postgres: Any, table_in: Maker, remade: bool
) -> None:
    name = numbered(postgres, 3)
    run(watermarks, table_in(name, remade=remade), "jr_1")
    postgres.sql(f"DROP TABLE {name}", f"CREATE TABLE {name} ({postgres.numbered})", f"INSERT INTO {name} VALUES (9)")

    if remade:
        assert run(watermarks, table_in(name, remade=True), "jr_2") == [9]
    else:
        with pytest.raises(SourceLostError, check=because("replaced"), match="oid"):
            run(watermarks, table_in(name), "jr_2")


def test_table_is_the_same_when_it_is_named_with_its_schema_and_through_another_host(
    watermarks: Watermarks, postgres: Any, table_in: Maker, jdbc: Any
) -> None:
    name = numbered(postgres, 3)
    run(watermarks, table_in(name), "jr_1")
    postgres.sql(f"INSERT INTO {name} VALUES (4)")

    elsewhere = JdbcTable(
        jdbc, postgres.url.replace("127.0.0.1", "localhost"), f"public.{name}", properties=postgres.properties
    )

    assert run(watermarks, elsewhere, "jr_2") == [4]


def test_state_without_identity_takes_the_present_one_when_it_is_of_an_earlier_version(
    watermarks: Watermarks, postgres: Any, table_in: Maker
) -> None:
    first, second = numbered(postgres, 3), numbered(postgres, 5)
    run(watermarks, table_in(first), "jr_1")
    watermarks.set_watermark("repairs", {"source": None}, transformation_ctx="repairs", why="moved")

    assert run(watermarks, table_in(second), "jr_2") == [4, 5]
    assert identity(watermarks)["table"] == second


@pytest.mark.parametrize(
    "kept", ["text", "[" * 9_999, 7, [], {}, '{"table": 7}', '{"server": 0, "oid": "' + "x" * 5_000 + '"}']
)
def test_identity_that_somebody_altered_is_refused_when_the_state_is_read(
    watermarks: Watermarks, postgres: Any, table_in: Maker, kept: Any
) -> None:
    name = numbered(postgres, 3)
    run(watermarks, table_in(name), "jr_1")
    state = watermarks.get_watermark_values("repairs")["repairs"]
    commit(watermarks, "repairs", "jr_2", {"repairs": state | {"source": kept}})

    error = SourceLostError if isinstance(kept, str) and kept.startswith("{") else CorruptItemError
    with pytest.raises(error) as caught:
        run(watermarks, table_in(name), "jr_3")

    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("is_old", [False, True])
def test_plan_is_replayed_on_its_own_table_only_when_it_says_which(
    watermarks: Watermarks, postgres: Any, table_in: Maker, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    name = numbered(postgres, 3)
    if is_old:  # A plan of an earlier version has no identity of its source.
        monkeypatch.setattr(JdbcTable, "identity", lambda self: None)
    with pytest.raises(ZeroDivisionError), IncrementalJob(watermarks, "repairs", "jr_1") as job:
        job.rows_since(table_in(name), "id", transformation_ctx="repairs")
        job.freeze()
        raise ZeroDivisionError
    monkeypatch.undo()
    other = numbered(postgres, 2)

    if is_old:
        assert run(watermarks, table_in(other), "jr_2") == [1, 2]
    else:
        with pytest.raises(PlanConflictError, match=f"{name}.*{other}"):
            run(watermarks, table_in(other), "jr_2")
        assert run(watermarks, table_in(name), "jr_3") == [1, 2, 3]


@pytest.mark.parametrize("database", ["maria", "sqlite"])
def test_run_is_refused_when_another_table_is_given_in_other_databases(
    watermarks: Watermarks, jdbc: Any, request: pytest.FixtureRequest, database: str
) -> None:
    server = request.getfixturevalue(database)
    first, second = (server.new_table("id integer PRIMARY KEY") for _ in range(2))
    tables = [JdbcTable(jdbc, server.url, name, properties=server.properties) for name in (first, second)]
    run(watermarks, tables[0], "jr_1")

    with pytest.raises(SourceLostError, check=because("replaced"), match=f"{second}.*{first}"):
        run(watermarks, tables[1], "jr_2")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("jdbc:postgresql://h1:5432,h2/shop?user=me", {"server": "h1:5432,h2"}),
        ("jdbc:mysql://me:secret@db.example/shop", {"server": "db.example"}),
        ("jdbc:sqlserver://db.example:1433;databaseName=shop;password=secret", {"server": "db.example:1433"}),
        ("jdbc:oracle:thin:@//db.example:1521/shop", {"server": "db.example:1521"}),
        ("jdbc:oracle:thin:me/secret@db.example:1521:shop", {"server": "db.example:1521:shop"}),
        ("jdbc:oracle:thin:@(DESCRIPTION=(secret))", {}),
        ("jdbc:mysql:aws:secret", {}),
        ("jdbc:sqlite:shop.db?password=secret", {"database": "shop.db"}),
    ],
)
def test_place_holds_no_login_when_a_url_has_one(url: str, place: dict[str, str]) -> None:
    assert server_of(url) == place


# --- a table that went back ---------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
def test_truncated_table_is_a_warning_while_empty_and_an_error_once_it_has_rows_when_nothing_is_new(
    watermarks: Watermarks, jdbc: Any, request: pytest.FixtureRequest, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(server.numbered)
    server.sql(f"INSERT INTO {name} VALUES (1), (2), (900)")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)
    before = run(watermarks, source, "jr_1")
    server.sql(f"DELETE FROM {name}")

    empty = run(watermarks, source, "jr_2")
    server.sql(f"INSERT INTO {name} VALUES (1), (2)")
    with pytest.raises(
        SourceError,
        check=behind,
        match="watermarks reset repairs --context repairs",
    ):
        run(watermarks, source, "jr_3")
    watermarks.reset("repairs", transformation_ctx="repairs", why="truncated")

    assert (before, empty) == ([1, 2, 900], [])
    assert "event=source_empty" in caplog.text
    assert run(watermarks, source, "jr_4") == [1, 2]


def test_rows_after_an_outlier_are_taken_when_the_watermark_is_set_just_past_the_last_row(
    watermarks: Watermarks, postgres: Any, table_in: Maker
) -> None:
    name = numbered(postgres, 3)
    postgres.sql(f"INSERT INTO {name} VALUES (1000000)")
    run(watermarks, table_in(name), "jr_1")
    postgres.sql(f"DELETE FROM {name} WHERE id = 1000000")
    with pytest.raises(SourceError, check=behind):
        run(watermarks, table_in(name), "jr_2")

    watermarks.set_watermark("repairs", {"value": 4}, transformation_ctx="repairs", why="an outlier")
    nothing = run(watermarks, table_in(name), "jr_3")
    postgres.sql(f"INSERT INTO {name} VALUES (4)")

    assert (nothing, run(watermarks, table_in(name), "jr_4")) == ([], [4])


# --- a table that went back and has grown past the watermark -------------------------------------------

NOTE = "note varchar(20)"


def noted(server: Any, name: str, numbers: Any, note: str) -> None:
    server.sql(f"INSERT INTO {name} VALUES " + ", ".join(f"({number}, '{note}')" for number in numbers))


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
@pytest.mark.parametrize("on_changed", ["warn", "raise"])
def test_table_that_was_restored_and_has_grown_is_announced_when_its_numbers_are_given_out_again(
    watermarks: Watermarks, jdbc: Any, request: pytest.FixtureRequest, database: str, on_changed: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    server = request.getfixturevalue(database)
    name = server.new_table(f"{server.numbered}, {NOTE}")
    noted(server, name, range(1, 11), "first")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)
    run(watermarks, source, "jr_1")
    untouched = run(watermarks, source, "jr_2")
    assert "last_row_changed" not in caplog.text
    server.sql(f"DELETE FROM {name} WHERE id > 7")
    noted(server, name, range(8, 13), "again")

    if on_changed == "raise":
        with pytest.raises(
            SourceError,
            check=behind,
            match="the last row that was taken is gone or has other values",
        ) as caught:
            run(watermarks, source, "jr_3", on_changed=on_changed)
        assert caught.value.reason == "last_row_changed"
        return
    found = run(watermarks, source, "jr_3")

    assert (untouched, found) == ([], [11, 12])
    assert "event=last_row_changed context=repairs" in caplog.text


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
def test_rows_below_an_outlier_that_is_still_there_are_refused_when_they_come(
    watermarks: Watermarks, jdbc: Any, request: pytest.FixtureRequest, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"{server.numbered}, {NOTE}")
    noted(server, name, [*range(1, 11), 1_000_000], "first")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)
    run(watermarks, source, "jr_1")
    noted(server, name, range(11, 14), "late")

    with pytest.raises(
        SourceError,
        check=behind,
        match="rows came below the watermark after it had passed them",
    ) as caught:
        run(watermarks, source, "jr_2")
    assert run(watermarks, source, "jr_3", on_late="warn") == []
    watermarks.set_watermark("repairs", {"edge": None}, transformation_ctx="repairs", why="not needed")

    assert caught.value.reason == "rows_behind"
    assert "event=rows_below context=repairs source=" in caplog.text
    assert " rows=3:" in caplog.text
    assert run(watermarks, source, "jr_4") == []


def test_last_rows_are_kept_as_digests_when_numbers_are_read(
    watermarks: Watermarks, postgres: Any, table_in: Maker
) -> None:
    name = postgres.new_table(f"{postgres.numbered}, note text, at timestamptz, other jsonb")
    postgres.sql(f"INSERT INTO {name} SELECT n, 'a secret', now(), '{{}}' FROM generate_series(1, 9) n")

    run(watermarks, table_in(name), "jr_1")

    kept = watermarks.get_watermark_values("repairs")["repairs"]["edge"]
    assert (kept["start"], len(kept["rows"].split())) == (5, 5)
    assert "secret" not in str(kept)


@BOTH
@pytest.mark.parametrize("kinds", [("timestamp", "timestamp(0)"), ("timestamp(0)", "timestamp(6)")], ids=" to ".join)
def test_run_is_refused_when_a_time_column_was_altered_to_other_decimal_places(
    watermarks: Watermarks, postgres: Any, table_in: Any, kinds: tuple[str, str]
) -> None:
    """Fewer decimal places would round the values, and rows that were read would be read again."""
    before, after = kinds
    name = postgres.new_table(f"id int, at {before} NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (1, '2026-01-01 00:00:00.6')")

    def run_once(run_id: str) -> None:
        with IncrementalJob(watermarks, "repairs", run_id) as job:
            job.rows_since(table_in(name, zone="UTC"), "at", transformation_ctx="repairs", delay=timedelta(0))

    run_once("jr_1")
    postgres.sql(f"ALTER TABLE {name} ALTER at TYPE {after}")
    with pytest.raises(CursorError, match="its decimal places were altered"):
        run_once("jr_2")
    # A state that predates stored ticks adopts the current ticks.
    watermarks.set_watermark("repairs", {"tick": None}, transformation_ctx="repairs", why="as it was")
    run_once("jr_3")
    assert watermarks.get_watermark_values("repairs")["repairs"]["tick"] == [1_000_000 if after[-2] == "0" else 1]
