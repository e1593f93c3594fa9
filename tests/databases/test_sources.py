"""Rules for every source of rows, whatever holds the rows: NULLs, the order of cursors, and batches."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError
from scripts.helpers.rows.memory import ArrowRows, PandasRows
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.rows.window import RowWindow
from tests.support.database_fixtures import sql_table
from tests.support.row_windows import plan, replayed, taken

Row = tuple[int, int | None, int | None]
DATABASES = ("postgres", "maria", "sqlite")
BY_DATABASE = [f"{way}-{name}" for way in ("JdbcTable", "SqlTable") for name in DATABASES]
SOURCES = ["DataFrame", "pandas", "pyarrow", *BY_DATABASE]


class Growing:
    """A source that only grows; its rows have an id and the cursor columns `a` and `b`."""

    def __init__(self, request: pytest.FixtureRequest, kind: str) -> None:
        self.kind, _, database = kind.partition("-")
        self.rows: list[Row] = []
        self.server: Any = request.getfixturevalue(database) if database else None
        session = {"DataFrame": "spark", "JdbcTable": "jdbc"}.get(self.kind)
        self.spark: Any = request.getfixturevalue(session) if session else None
        self.table = self.server.new_table("id integer, a integer, b integer") if self.server else ""

    def grow(self, *rows: Row) -> None:
        self.rows += rows
        if self.server is not None:
            listed = ", ".join(str(row).replace("None", "NULL") for row in rows)
            self.server.sql(f"INSERT INTO {self.table} VALUES {listed}")

    @property
    def source(self) -> Any:
        """The source with its current rows."""
        columns = zip(*self.rows, strict=True)
        table = pa.table({name: pa.array(of, pa.int32()) for name, of in zip("iab", columns, strict=True)})
        table = table.rename_columns(["id", "a", "b"])
        return {
            "DataFrame": lambda: DataFrameRows(self.spark.createDataFrame(self.rows, "id int, a int, b int")),
            "pandas": lambda: PandasRows(table.to_pandas(types_mapper=pd.ArrowDtype)),
            "pyarrow": lambda: ArrowRows(table),
            "JdbcTable": lambda: JdbcTable(self.spark, self.server.url, self.table, properties=self.server.properties),
            "SqlTable": lambda: sql_table(self.server, self.table),
        }[self.kind]()

    def take(self, window: RowWindow) -> list[int]:
        """Return the ids of a window that a replay of its plan reads."""
        source, window = self.source, replayed(window)
        if isinstance(source, PandasRows | ArrowRows):
            rows = source.rows(window)
            return sorted(rows["id"].to_list() if isinstance(rows, pd.DataFrame) else rows["id"].to_pylist())
        return taken(source, window)


@pytest.fixture(params=SOURCES)
def growing(request: pytest.FixtureRequest) -> Growing:
    return Growing(request, request.param)


@pytest.mark.parametrize(("cursor", "count"), [(["a"], "1 row has"), (["a", "b"], "2 rows have")], ids=["one", "two"])
def test_rows_are_counted_when_there_is_null_in_any_column_of_the_cursor(
    growing: Growing, cursor: list[str], count: str
) -> None:
    growing.grow((1, 1, 1), (2, 1, None), (3, 2, 1), (4, None, 1))

    with pytest.raises(CursorError, match=f"{', '.join(cursor)}': {count} NULL there"):
        plan(growing.source, cursor)


@pytest.mark.parametrize(("nulls", "runs"), [("take", [[1, 2, 4], [2, 3, 4]]), ("skip", [[1], [3]])])
def test_rows_with_null_go_by_the_policy_when_there_are_some(
    growing: Growing, nulls: str, runs: list[list[int]]
) -> None:
    options: dict[str, Any] = {"nulls": nulls, "write_disposition": "merge"}
    growing.grow((1, 1, 1), (2, 1, None), (4, None, 1))

    first = plan(growing.source, ["a", "b"], **options)
    before = growing.take(first)
    growing.grow((3, 2, 1))
    second = plan(growing.source, ["a", "b"], first, **options)

    assert [before, growing.take(second)] == runs


def test_rows_of_one_cursor_are_split_by_the_next_column_when_there_are_several(growing: Growing) -> None:
    found: list[list[int]] = []
    window: RowWindow | None = None
    for rows in [[(1, 1, 9), (2, 2, 2)], [(3, 2, 3)], [(4, 3, 1)], [(5, 3, 0)]]:  # The last row is below the watermark.
        growing.grow(*rows)
        window = plan(growing.source, ["a", "b"], window)
        found.append(growing.take(window))

    assert found == [[1, 2], [3], [4], []]


def test_falling_numbers_are_taken_once_when_the_cursor_descends(growing: Growing) -> None:
    growing.grow((1, 10, 0), (2, 8, 0))
    first = plan(growing.source, "a", descending=True)
    before = growing.take(first)
    growing.grow((3, 7, 0), (4, -3, 0))
    second = plan(growing.source, "a", first, descending=True)
    third = plan(growing.source, "a", second, descending=True)

    assert (before, growing.take(second), growing.take(third)) == ([1, 2], [3, 4], [])


@pytest.mark.parametrize("descending", [False, True], ids=["rising", "falling"])
def test_rows_are_taken_once_when_batches_are_limited(growing: Growing, descending: bool) -> None:
    growing.grow(*((number, number // 4, number) for number in range(10)))
    batches: list[list[int]] = []
    window: RowWindow | None = None
    while window is None or window.has_more:
        window = plan(growing.source, ["a", "b"], window, max_rows=4, descending=descending)
        batches.append(growing.take(window))

    rising = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches == ([[6, 7, 8, 9], [2, 3, 4, 5], [0, 1]] if descending else rising)
