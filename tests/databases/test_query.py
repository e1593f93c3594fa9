"""A query in place of a table: which queries are accepted, how a query is identified, and how its rows stay exact."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from scripts.helpers.databases import table as tables
from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, SourceError, SourceLostError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sql.query_text import MYSQL, ORACLE, POSTGRESQL, SQL_SERVER, SQLITE, QueryText
from scripts.helpers.watermarks import Watermarks
from tests.support.database_fixtures import sql_table
from tests.support.reasons import because
from tests.support.row_windows import plan, taken


def of(server: Any, jdbc: Any, query: str, **options: Any) -> JdbcTable:
    return JdbcTable(jdbc, server.url, query=query, properties=server.properties, **options)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("SELECT id FROM t;", "holds a semicolon"),
        ("SELECT id FROM t; DROP TABLE t", "holds a semicolon"),
        ("SELECT ';' AS a, id FROM t ;  -- all", "holds a semicolon"),
        ("DELETE FROM t", "is not a SELECT"),
        ("EXPLAIN SELECT 1", "is not a SELECT"),
        ("-- SELECT 1", "is not a SELECT"),
        ("SELECTED", "is not a SELECT"),
        ("SELECT 'it''s", "opens ' and never closes it"),
        ("SELECT 1 /* all", "opens /* and never closes it"),
        ("SELECT (1", "brackets in query= or where= do not match"),
        ("SELECT 1) q, (SELECT 2", "brackets in query= or where= do not match"),
        ("SELECT '\0'", "contains NUL"),
        ("SELECT id FROM t LIMIT 5", "takes a number of rows only"),
        ("SELECT id FROM t OFFSET 5", "takes a number of rows only"),
        ("SELECT id INTO other FROM t", "is not a SELECT that only reads"),
        (7, "is empty"),
    ],
)
def test_query_is_refused_when_it_is_no_single_select(query: Any, text: str) -> None:
    with pytest.raises(SourceError, match=text.replace("*", r"\*")):
        QueryText(query, POSTGRESQL, "PostgreSQL query")


GRAMMARS = {
    "postgres": POSTGRESQL, "mysql": MYSQL, "sqlite": SQLITE, "sqlserver": SQL_SERVER, "oracle": ORACLE,
}  # fmt: skip


@pytest.mark.parametrize(
    ("database", "query"),
    [
        ("postgres", "SELECT id FROM t ORDER BY id LIMIT least(2, 3)"),
        ("postgres", "SELECT id FROM t LIMIT '5'"),
        ("postgres", "SELECT id FROM t LIMIT +5"),
        ("postgres", "SELECT id FROM t LIMIT CAST(5 AS int)"),
        ("postgres", "SELECT id FROM t LIMIT/**/(SELECT 5)"),
        ("postgres", "SELECT id FROM t OFFSET '2'"),
        ("postgres", "SELECT id FROM t FETCH FIRST 5 ROWS ONLY"),
        ("postgres", "SELECT id FROM t TABLESAMPLE SYSTEM (50)"),
        ("mysql", "SELECT id FROM t LIMIT @n"),
        ("mysql", "SELECT id FROM t /*!50000 LIMIT 5 */"),
        ("mysql", "SELECT id FROM t OFFSET 2 ROWS"),
        ("mysql", "SELECT id FROM t ORDER BY id FETCH FIRST 5 ROWS WITH TIES"),
        ("mysql", "SELECT 'it\\'s', id FROM t LIMIT 5 -- '"),
        ("sqlite", "SELECT id FROM t LIMIT abs(5)"),
        ("sqlserver", "SELECT ALL TOP 5 id FROM t"),
        ("sqlserver", "select distinct\n top (5) id FROM t"),
        ("sqlserver", "SELECT id FROM t TABLESAMPLE (50 PERCENT)"),
        ("oracle", "SELECT id FROM t OFFSET 2 ROWS FETCH NEXT ROW ONLY"),
        ("sqlite", "SELECT id FROM t LIMIT 5 OFFSET 2"),
        ("sqlserver", "SELECT id FROM t ORDER BY id OFFSET 2 ROWS"),
        ("sqlserver", "SELECT id FROM t ORDER BY id OFFSET 0 ROWS FETCH NEXT 5 ROWS ONLY"),
        ("oracle", "SELECT id FROM t FETCH FIRST 5 PERCENT ROWS ONLY"),
        ("oracle", "SELECT id FROM t OFFSET :n ROWS"),
        ("oracle", "SELECT id FROM t WHERE ROWNUM <= 5"),
        ("oracle", "SELECT id FROM t SAMPLE BLOCK (10)"),
        ("postgres", "SELECT id FROM t FOR UPDATE SKIP LOCKED"),
        ("postgres", "SELECT id FROM t FOR NO KEY UPDATE OF t\nSKIP  LOCKED"),
        ("mysql", "select id from t for share skip locked"),
        ("oracle", "SELECT id FROM t FOR UPDATE OF id SKIP LOCKED"),
        ("sqlserver", "SELECT id FROM t WITH (READPAST)"),
        ("sqlserver", "SELECT id FROM t AS u WITH\n(INDEX(ix), rowlock, readpast) JOIN v ON v.id = u.id"),
        ("sqlserver", "SELECT id FROM [t] (ReadPast)"),
        ("sqlserver", "SELECT id FROM (SELECT * FROM t WITH (READPAST, UPDLOCK)) q"),
        ("sqlserver", "SELECT id FROM (SELECT * FROM t TABLESAMPLE (5 ROWS)) q"),
        ("postgres", "SELECT id FROM (SELECT * FROM t FOR UPDATE SKIP LOCKED) q"),
        ("postgres", "WITH q AS (SELECT * FROM t TABLESAMPLE BERNOULLI (10)) SELECT id FROM q"),
        ("mysql", "SELECT id FROM u WHERE t_id IN (SELECT id FROM t FOR SHARE SKIP LOCKED)"),
        ("oracle", "SELECT id FROM (SELECT * FROM t SAMPLE (10))"),
    ],
)
def test_query_is_refused_when_a_clause_takes_some_of_its_rows(database: str, query: str) -> None:
    with pytest.raises(SourceError, match="takes a number of rows only"):
        QueryText(query, GRAMMARS[database], "query")


@pytest.mark.parametrize(
    ("url", "where"),
    [("sqlite:shop.db", "id > 0 LIMIT 2"), ("postgresql://db.example/shop", "id > 0 ORDER BY id FETCH FIRST ROW ONLY"),
     ("mysql://db.example/shop", "id > 0 LIMIT 2, 5")],
)  # fmt: skip
def test_condition_is_refused_when_it_ends_in_a_clause_that_takes_some_of_the_rows(url: str, where: str) -> None:
    with pytest.raises(SourceError, match="where= takes a number of rows only"):
        SqlTable(url, "t", where=where)

    within = f"id IN (SELECT id FROM u WHERE {where}) AND note <> 'LIMIT'"
    assert SqlTable(url, "t", where=within).name.endswith("table t")


@pytest.mark.parametrize("where", ["id > 0 FOR SHARE SKIP LOCKED", "id IN (SELECT id FROM u FOR SHARE SKIP LOCKED)"])
def test_condition_is_refused_when_it_skips_rows_that_are_locked(where: str) -> None:
    with pytest.raises(SourceError, match="where= takes a number of rows only"):
        SqlTable("postgresql://db.example/shop", "t", where=where)


@pytest.mark.parametrize(
    ("database", "query"),
    [
        ("postgres", "SELECT id FROM t LIMIT ALL OFFSET NULL"),
        ("postgres", 'SELECT t.limit, a AS limit, "offset", top FROM t'),
        ("postgres", "SELECT E'it\\'s', name'LIMIT' /* a /* b */ ; */ FROM t"),
        ("postgres", "SELECT a[1], js ? 'k' FROM t"),
        ("postgres", "SELECT skip locked, 'for', 'skip locked' FROM t"),
        ("mysql", "SELECT 'it\\'s; ', \"it\\\"s; \", id, offset, `limit` FROM t WHERE offset > 1 # ; LIMIT 5"),
        ("sqlite", "SELECT [limit; ], offset, top FROM t"),
        ("sqlserver", "SELECT [it's; ]]top], limit /* a /* b */ ; */ FROM t"),
        ("sqlserver", "SELECT id, readpast, u.readpast FROM t WITH (NOLOCK) JOIN u ON readpast = 'WITH (READPAST)'"),
        ("postgres", "SELECT id FROM (SELECT id, skip locked FROM t FOR UPDATE) q"),
        ("postgres", "SELECT id, (SELECT p FROM prices p WHERE p.id = t.id ORDER BY at DESC LIMIT 1) FROM t"),
        ("oracle", "SELECT limit, offset, top, sample FROM t WHERE sample = 1"),
        ("oracle", "SELECT id, q'[it's; ROWNUM]', nq'!it's; !' FROM (SELECT * FROM t WHERE rownum < 5)"),
    ],
)
def test_query_is_taken_when_a_column_has_the_name_of_a_clause_or_the_database_quotes_so(
    database: str, query: str
) -> None:
    assert query in QueryText(query, GRAMMARS[database], "query").relation


def test_digest_differs_when_two_dashes_start_no_comment_in_mysql() -> None:
    texts = ["SELECT id FROM t WHERE id < 0--2", "SELECT id FROM t WHERE id < 0--99"]

    assert len({QueryText(text, MYSQL, "query").digest for text in texts}) == 2
    assert len({QueryText(text, POSTGRESQL, "query").digest for text in texts}) == 1


def test_text_in_double_quotes_is_a_text_when_the_url_is_of_mariadb(maria: Any) -> None:
    name = maria.new_table("id int PRIMARY KEY, region varchar(20), north varchar(20)")
    maria.sql(f"INSERT INTO {name} VALUES (1, 'north', ''), (2, 'south', ''), (3, 'north', '')")
    login = {key: maria.properties[key] for key in ("user", "password")}
    url = maria.url.removeprefix("jdbc:").replace("mysql:", "mariadb:")

    asked: list[dict[str, Any]] = [
        {"query": f'SELECT id, region FROM {name} WHERE region = "north"'},
        {"query": f"SELECT * FROM {name}", "where": 'region = "north"'},
    ]
    for options in asked:
        source = SqlTable(url, properties=login, **options)
        assert taken(source, plan(source, "id")) == [1, 3]


def test_double_quotes_are_refused_when_spark_reads_mariadb_and_takes_them_for_names() -> None:
    spark: Any = object()
    url = "jdbc:mariadb://db.example/shop"

    asked: list[dict[str, Any]] = [
        {"query": 'SELECT id FROM t WHERE region = "north"'},
        {"table": "t", "where": 'region = "north"'},
    ]
    for options in asked:
        with pytest.raises(SourceError, match=r"has double quotes.*Write texts in single quotes"):
            JdbcTable(spark, url, **options)
        within: dict[str, Any] = {what: text.replace('"north"', "'\"'") for what, text in options.items()}
        assert JdbcTable(spark, url, **within).name.startswith("MariaDB")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t",
        "with x as (select 1 as id) select id from x",
        "SELECT ';--/*(' AS a, \"b;\" FROM t",
        'SELECT $x$;$x$ AS a, $$;("$$ AS b',
        "/* first; */ SELECT id -- all; (\nFROM t",
        "SELECT id FROM (SELECT * FROM t ORDER BY id LIMIT 5) u",
        "SELECT a - -1 / 2 AS limits, `limit` FROM t",
    ],
)
def test_query_is_taken_when_what_looks_bad_is_quoted_or_within(query: str) -> None:
    assert query in QueryText(query, POSTGRESQL, "query").relation


@pytest.mark.parametrize("query", ["SELECT id FROM t ORDER  BY id", "WITH x AS (SELECT 1 AS id) SELECT id FROM x"])
def test_order_is_refused_when_the_database_takes_none_in_a_subquery(jdbc: Any, query: str) -> None:
    QueryText(query, POSTGRESQL, "PostgreSQL query")

    with pytest.raises(SourceError, match="ORDER BY at its end or starts with WITH"):
        JdbcTable(jdbc, "jdbc:sqlserver://db.example;databaseName=shop", query=query)


def test_query_is_the_same_when_spaces_and_comments_differ_and_another_when_a_text_does() -> None:
    digests = [
        QueryText(query, POSTGRESQL, "query").digest
        for query in (
            "SELECT id, 'a  b' FROM t", "SELECT  id,\n 'a  b' /* x */FROM t -- y", "SELECT id, 'a b' FROM t",
        )
    ]  # fmt: skip

    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("table", "query", "text"),
    [("t", "SELECT 1 AS id", "a table is named as well"), ((), None, "its name has an empty part")],
)
def test_table_is_refused_when_both_or_neither_are_named(jdbc: Any, table: Any, query: str | None, text: str) -> None:
    with pytest.raises(SourceError, match=text):
        JdbcTable(jdbc, "jdbc:sqlite:shop.db", table, query=query)


@pytest.mark.parametrize("kind", [JdbcTable, SqlTable])
@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
def test_rows_of_a_join_are_taken_once_when_they_are_read_by_a_query(
    jdbc: Any, request: pytest.FixtureRequest, database: str, kind: Any
) -> None:
    server = request.getfixturevalue(database)
    repairs, bays = server.new_table("id integer PRIMARY KEY, bay integer"), server.new_table("bay integer, name text")
    server.sql(f"INSERT INTO {bays} VALUES (1, 'north'), (2, 'south')", f"INSERT INTO {repairs} VALUES (1, 1), (2, 2)")
    query = f"SELECT r.id, b.name FROM {repairs} r LEFT JOIN {bays} b ON b.bay = r.bay -- each once"
    options: Any = {"query": query, "where": "name <> 'south'"}
    source = sql_table(server, **options) if kind is SqlTable else of(server, jdbc, **options)

    first = plan(source, "id")
    server.sql(f"INSERT INTO {repairs} VALUES (3, 1), (4, 1)")
    second = plan(source, "id", first)

    assert (taken(source, first), taken(source, second), taken(source, second, "name")) == ([1], [3, 4], ["north"] * 2)
    if isinstance(source, JdbcTable):
        assert sorted(row.id for row in source.toDF().collect()) == [1, 3, 4]
    assert source.name == f"{source.name.split()[0]} query {source.identity()['query']}"


def test_warning_is_given_once_when_nothing_would_show_that_ids_are_given_out_again(
    jdbc: Any, postgres: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name, view = postgres.new_table("id int PRIMARY KEY"), postgres.new_table("nothing int")
    postgres.sql(f"INSERT INTO {name} VALUES (1)", f"DROP TABLE {view}", f"CREATE VIEW {view} AS SELECT * FROM {name}")
    warned = []

    for source in (
        of(postgres, jdbc, f"SELECT id FROM {name}"),
        JdbcTable(jdbc, postgres.url, view, properties=postgres.properties),
        JdbcTable(jdbc, postgres.url, name, properties=postgres.properties),
    ):
        for before in (None, plan(source, "id")):
            caplog.clear()
            plan(source, "id", before)
            warned.append("event=no_edge" in caplog.text)

    assert warned == [True, False, True, False, False, False]


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
@pytest.mark.parametrize("again", ["id", "ID"])
def test_query_is_refused_when_a_column_is_there_twice_or_no_cursor(
    jdbc: Any, request: pytest.FixtureRequest, database: str, again: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id integer PRIMARY KEY, other integer")
    quote = "`" if database == "maria" else '"'

    with pytest.raises(SourceError, match=f"it has the column '{again}' twice"):
        plan(of(server, jdbc, f"SELECT id, other AS {quote}{again}{quote} FROM {name}"), "id")
    with pytest.raises(CursorError, match=r"the source has no such column\. It has: other"):
        plan(of(server, jdbc, f"SELECT other FROM {name}"), "id")
    with pytest.raises(SourceError, match=r"it has no column no\. It has: id"):
        plan(of(server, jdbc, f"SELECT id FROM {name}", columns=["no"]), "id")


def test_query_is_refused_when_the_driver_does_not_know_its_columns(
    jdbc: Any, sqlite: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = of(sqlite, jdbc, "SELECT 1 AS id")
    monkeypatch.setattr(tables, "columns_of_query", lambda *_: None)

    with pytest.raises(SourceError) as caught:
        source.columns(["id"], strings=False)

    assert str(caught.value) == (
        f"Source '{source.name}': its driver cannot report its columns. Create a view and read it."
    )


def test_types_of_a_query_are_those_of_its_table_when_databases_are_asked(jdbc: Any, postgres: Any, maria: Any) -> None:
    declared = {
        postgres: "a bigserial, b smallint, c timestamptz(3), d timestamp, e numeric(10,2), f varchar(9), g date,"
        " h timestamp(0)",
        maria: "a bigint unsigned primary key auto_increment, b mediumint unsigned, c timestamp(3) null, d datetime(6),"
        " e decimal(10,2), f varchar(9), g date, h datetime",
    }
    for server, columns in declared.items():
        name, names = server.new_table(columns), list("abcdefgh")
        table = JdbcTable(jdbc, server.url, name, properties=server.properties)
        text = f"SELECT * FROM {name}"
        of_table = table.columns(names, strings=True)

        for query in (of(server, jdbc, text), sql_table(server, query=text)):
            of_query = query.columns(names, strings=True)
            assert of_table == of_query
            # ADBC reports digits for numbers, but not for times, so a query's times have ticks of a microsecond.
            if server is maria or query.__class__ is JdbcTable:
                assert [column.tick for column in of_table] == [column.tick for column in of_query]


def test_nulls_of_an_outer_join_are_counted_when_the_table_has_none(jdbc: Any, postgres: Any) -> None:
    one, other = postgres.new_table("id int"), postgres.new_table("id int PRIMARY KEY, at timestamptz NOT NULL")
    postgres.sql(f"INSERT INTO {one} VALUES (1), (2)", f"INSERT INTO {other} VALUES (1, '2026-01-01Z')")

    with pytest.raises(CursorError, match="1 row has NULL there"):
        plan(of(postgres, jdbc, f"SELECT o.id, r.at FROM {one} o LEFT JOIN {other} r USING (id)"), "at")


def test_ids_of_a_query_wait_for_the_delay_when_nobody_tells_the_open_transactions(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int PRIMARY KEY")
    postgres.sql(f"INSERT INTO {name} VALUES (1)")
    source = of(postgres, jdbc, f"SELECT id FROM {name}")

    first = plan(source, "id", delay=timedelta(hours=1))

    assert first.is_empty
    assert first.undecided is not None
    assert first.undecided.writers is None


def test_another_query_is_refused_when_the_context_remembers_one(
    watermarks: Watermarks, jdbc: Any, postgres: Any
) -> None:
    name = postgres.new_table("id int PRIMARY KEY, at timestamptz")
    postgres.sql(f"INSERT INTO {name} VALUES (1, '2026-01-01Z')")

    def run(source: JdbcTable, run_id: str) -> list[int]:
        with IncrementalJob(watermarks, "repairs", run_id, clock=lambda: datetime.now(timezone.utc)) as job:
            return [row.id for row in job.rows_since(source, "at").collect()]

    first = run(of(postgres, jdbc, f"SELECT id, at FROM {name}"), "jr_1")
    again = run(of(postgres, jdbc, f"SELECT id,\n  at FROM {name}"), "jr_2")
    with pytest.raises(SourceLostError, check=because("replaced"), match=r"query [0-9a-f]{16}, database postgres"):
        run(of(postgres, jdbc, f"SELECT id, at FROM {name} WHERE id > 0"), "jr_3")

    assert (first, again) == ([1], [])
    assert name not in str(watermarks.get_watermark_values("repairs"))


def test_window_reaches_the_index_when_the_query_lets_it_through(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int PRIMARY KEY, at timestamptz NOT NULL")
    postgres.sql(
        f"INSERT INTO {name} SELECT n, timestamptz '2020-01-01Z' + make_interval(hours => n)"
        " FROM generate_series(1, 9999) n",
        f"CREATE INDEX ON {name} (at)",
    )
    source = of(postgres, jdbc, f"SELECT id, at FROM {name}")
    first = plan(source, "at", high=datetime(2020, 12, 1, tzinfo=timezone.utc))
    second = plan(source, "at", first, high=datetime(2020, 12, 2, tzinfo=timezone.utc))

    explained = postgres.sql(
        f"EXPLAIN SELECT * FROM (SELECT id, at FROM {name}) t WHERE {second.predicate(source.dialect)}"
    )

    assert "Index" in str(explained)
    assert len(taken(source, second)) == 24


def test_question_mark_is_an_operator_when_a_query_or_condition_of_postgresql_has_one(postgres: Any, jdbc: Any) -> None:
    name = postgres.new_table("id int PRIMARY KEY, doc jsonb")
    postgres.sql(f"""INSERT INTO {name} VALUES (1, '{{"a?": 1}}'), (2, '{{"b": 1}}'), (3, '{{"b": 1, "a?": 2}}')""")
    condition = "doc ? 'a?' AND doc ?| array['b', 'c']"
    query = f"SELECT id, doc FROM {name} WHERE {condition} -- why?"
    sources = [
        of(postgres, jdbc, query),
        sql_table(postgres, query=query),
        JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, where=condition),
        sql_table(postgres, name, where=condition),
    ]

    assert [taken(source, plan(source, "id")) for source in sources] == [[3]] * 4
