"""Appends without Spark: staged files are copied into the table's folder and added to its log, not written again."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType, StringType

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import DeltaSink, IcebergSink, arrow_files
from scripts.helpers.sinks.merging import Merge, Versions
from scripts.helpers.sinks.places import LocalPlace
from tests.support.patience import PATIENCE
from tests.support.staging import staged_by
from tests.support.steps import KilledError

JOB = "repairs"
PROVIDER = "pyiceberg.table.locations.SimpleLocationProvider"
SINCE = datetime(2026, 11, 29, tzinfo=timezone.utc)


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "word": [f"w{number}" for number in ids]})


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return a database that the tests of this process share, because DuckDB takes long to open one."""
    made = duckdb.connect()
    made.execute("SET GLOBAL TimeZone = 'UTC'")
    return made


def asked(rows: Any, where: str) -> list[dict[str, Any]]:
    """Return the rows of a pyarrow table or dataset that satisfy a condition."""
    with database().cursor() as connection:
        connection.register("rows_there", rows)
        found: list[dict[str, Any]] = (
            connection.sql(f"SELECT * FROM rows_there WHERE {where}").fetch_arrow_table().to_pylist()
        )
        return found


class Lake:
    """A Delta or Iceberg table in a folder, and attempts to append to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sink(self, **options: Any) -> Any:
        raise NotImplementedError

    def rows(self, where: str = "TRUE") -> list[dict[str, Any]]:
        raise NotImplementedError

    def files(self) -> dict[str, Path]:
        """Return the files with the rows that readers see now."""
        raise NotImplementedError

    def append(self, rows: pa.Table) -> None:
        """Append as another writer does."""
        raise NotImplementedError

    def maintain(self) -> None:
        """Delete what the format's maintenance deletes by default."""
        raise NotImplementedError

    def stage(self, version: int, rows: Any, fence: int = 7, **options: Any) -> Output:
        return staged_by(self.sink(**options), BatchId(JOB, "e1", version), fence, rows)

    def publish(self, version: int, rows: Any, **options: Any) -> None:
        output = self.stage(version, rows, **options)
        self.sink(**options).publish(output)
        self.sink(**options).clear(output)

    @property
    def seen(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def staged(self) -> dict[int, bytes]:
        """Return the contents of the staged files by inode."""
        place = self.sink().staging.place
        paths = [Path(place.root, name) for name in place.files() if name.endswith(".parquet")]
        return {path.stat().st_ino: path.read_bytes() for path in paths}


class DeltaLake(Lake):
    @property
    def path(self) -> str:
        return str(self.folder / "repairs")

    def sink(self, **options: Any) -> DeltaSink:
        return DeltaSink(self.path, **options)

    def rows(self, where: str = "TRUE") -> list[dict[str, Any]]:
        found = DeltaTable(self.path).to_pyarrow_dataset()
        return asked(found, where)

    def files(self) -> dict[str, Path]:
        return {uri: Path(uri.removeprefix("file://")) for uri in DeltaTable(self.path).file_uris()}

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.path, rows, mode="append")

    def maintain(self) -> None:
        if DeltaTable.is_deltatable(self.path):
            DeltaTable(self.path).vacuum(full=True, dry_run=False)


class IcebergLake(Lake):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.catalog().create_namespace("raw")

    def catalog(self) -> SqlCatalog:
        return SqlCatalog("lake", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{self.folder}")

    def table(self) -> Any:
        return self.catalog().load_table("raw.repairs")

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink("lake.raw.repairs", catalog=self.catalog(), **options)

    def rows(self, where: str = "TRUE") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table().scan(row_filter=where).to_arrow().to_pylist()
        return found

    def files(self) -> dict[str, Path]:
        uris = [task.file.file_path for task in self.table().scan().plan_files()]
        return {uri: Path(uri.removeprefix("file://")) for uri in uris}

    def append(self, rows: pa.Table) -> None:
        self.table().append(rows)

    def maintain(self) -> None:
        if self.catalog().table_exists("raw.repairs"):
            self.table().maintenance.expire_snapshots().older_than(
                datetime.now(timezone.utc) - timedelta(days=5)
            ).commit()


LAKES: Mapping[str, Callable[[Path], Lake]] = {"delta": DeltaLake, "iceberg": IcebergLake}


@pytest.fixture(params=LAKES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return LAKES[request.param](tmp_path)


@contextmanager
def after_copy(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> Iterator[None]:
    """Run `action` after a publisher has copied its files and before it commits them."""
    copy = LocalPlace.copy

    def copy_and_act(*given: Any) -> Any:
        gone = copy(*given)
        action()
        return gone

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "copy", copy_and_act)
        yield


VALUES = {
    "id": pa.array([-(2**63), 2**63 - 1, None, 7]),
    "small": pa.array([1, None, -3, 2], pa.int32()),
    "word": pa.array(["", "\U0001f600", None, "x" * 33]),
    "short": pa.array(["b", "a\u0000", "\u00e9", None]),
    "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None, date(2026, 11, 29)]),
    "moment": pa.array([
        datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc), None,
        datetime(2026, 11, 29, 12, 0, 0, 999_999, timezone.utc),
    ], pa.timestamp("us", "UTC")),
    "wall": pa.array(
        [datetime(2026, 11, 29, 0, 0, 0, 1), None, datetime(1969, 1, 1), datetime(1, 1, 1)], pa.timestamp("us")
    ),
    "price": pa.array([Decimal("-99999999999999.9"), None, Decimal("0.1"), Decimal("5.0")], pa.decimal128(15, 1)),
    "rate": pa.array([float("nan"), float("-inf"), None, -0.0]),
    "part": pa.array([{"x": 1}, {"x": None}, None, {"x": 3}]),
    "list": pa.array([[1], [None], None, []]),
    "map": pa.array([[("k", 1)], [], None, [("j", None)]], pa.map_(pa.string(), pa.int64())),
    "yes": pa.array([True, None, False, True]),
    "raw": pa.array([b"", b"\x00\xff", None, b"a" * 100]),
}  # fmt: skip


def told(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row).replace("Etc/UTC", "UTC") for row in rows)


def test_files_of_a_table_are_those_that_an_attempt_has_staged_when_rows_are_appended(lake: Lake) -> None:
    rows = pa.table(VALUES)

    output = lake.stage(1, rows)
    staged = lake.staged()
    lake.sink().publish(output)
    found = {path.stat().st_ino: path.read_bytes() for path in lake.files().values()}
    lake.sink().clear(output)

    assert found == staged
    assert told(lake.rows()) == told(rows.to_pylist())


FILTERS = [
    "id = 7", "id > 9000000000000000000", "small < 0", "word = ''", "word > 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
    "short >= '\u00e9'", "day = '2026-11-29'", "moment >= '2026-11-29T12:00:00.999999+00:00'",
    "wall < '1969-01-02T00:00:00'", "price < 0", "yes = false", "id IS NULL", "small IS NULL", "word IS NULL",
]  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lake]:
    """Return a function that returns a table of either kind with each row of VALUES in a file of its own.

    It has no column of doubles, because Delta's log has no bounds of any column of such a table.
    """

    @cache
    def fill(kind: str) -> Lake:
        lake, rows = LAKES[kind](tmp_path_factory.mktemp(kind)), pa.table(VALUES).drop_columns("rate")
        for version in range(1, len(rows) + 1):
            lake.publish(version, rows.slice(version - 1, 1))
        return lake

    return fill


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("kind", LAKES)
def test_reader_that_skips_files_by_their_statistics_finds_each_row(
    filled: Callable[[str], Lake], kind: str, where: str
) -> None:
    expected, found = asked(pa.table(VALUES).drop_columns("rate"), where), filled(kind).rows(where)

    assert expected
    assert told(found) == told(expected)


def test_spark_finds_each_row_by_a_filter_when_deltalake_appended_it(
    filled: Callable[[str], Lake], spark_with_tables: Any
) -> None:
    wheres = [*FILTERS, "part.x = 3"]

    there = spark_with_tables.read.format("delta").load(str(filled("delta").folder / "repairs"))
    # One query for all filters; Delta skips files for each filter.
    by_filter = [there.where(where).selectExpr(f"{number} AS filter") for number, where in enumerate(wheres)]
    found = Counter(wheres[row[0]] for row in reduce(lambda one, other: one.unionAll(other), by_filter).collect())

    assert found == {where: len(asked(pa.table(VALUES), where)) for where in wheres}
    assert set(found) == set(wheres)


def test_log_has_bounds_of_each_column_when_readers_can_rely_on_them(filled: Callable[[str], Lake]) -> None:
    """Otherwise the tests of filters would show nothing."""
    added = pa.table(DeltaTable(str(filled("delta").folder / "repairs")).get_add_actions(flatten=True))

    # The second file has none, because no time of the log is above its last microsecond.
    assert set(added["min.id"].to_pylist()) == {-(2**63), 7, None}
    for name in ("small", "word", "short", "day", "moment", "wall", "price", "part.x", "yes"):
        assert set(added[f"min.{name}"].to_pylist()) > {None}, name


HIGHEST = "\U0010ffff"
BOUNDS: dict[str, tuple[pa.DataType, list[Any], str, int]] = {
    "zero": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("9.99"), Decimal("12.50")], "odd > 5", 2),
    "at most zero": (pa.decimal128(10, 2), [Decimal("-9.99"), Decimal("0.00")], "odd < -5", 1),
    "small": (pa.decimal128(8, 8), [Decimal("0.00000001")], "odd > 0", 1),
    "long": (pa.decimal128(18, 0), [Decimal(123456789012345678)], "odd > 123456789012345677", 1),
    "all digits": (pa.decimal128(38, 0), [Decimal(10**38 - 1)], "odd > 5", 1),
    "fifteen digits": (pa.decimal128(15, 2), [Decimal("9999999999999.99")], "odd > 9999999999999.98", 1),
    "double": (pa.float64(), [1.5, 3.5], "odd > 3", 1),
    "private letter": (pa.string(), ["\U00100000"], "odd = '\U00100000'", 1),
    "highest letters": (pa.string(), [HIGHEST * 34], f"odd = '{HIGHEST * 34}'", 1),
}
"""For each kind of bound: a type, the values of a file, a condition on them, and how many rows it has."""


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("kind", LAKES)
def test_reader_finds_rows_when_bounds_are_hard_to_write(tmp_path: Path, kind: str, name: str) -> None:
    of, values, where, rows = BOUNDS[name]
    lake = LAKES[kind](tmp_path)
    lake.publish(1, pa.table({"id": pa.array(range(len(values)), pa.int64()), "odd": pa.array(values, of)}))

    found = lake.rows(where)
    assert len(found) == rows
    assert len(lake.rows(f"NOT ({where})")) == len(values) - rows


@pytest.mark.parametrize("kind", LAKES)
def test_reader_finds_each_row_when_one_row_group_has_texts_too_long_for_bounds(tmp_path: Path, kind: str) -> None:
    """Parquet stores no bound of more than 4,096 bytes, and pyiceberg takes those of the other row groups."""
    lake, long = LAKES[kind](tmp_path), "z" * 5_000
    with_long = pa.table({"id": [1, 2, 3], "word": ["a", long, None], "raw": [b"a", long.encode(), None]})
    short = pa.table({"id": [4, 5], "word": ["m", "m"], "raw": [b"m", b"m"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_files, "GROUP", 1)  # each chunk becomes a row group
        lake.publish(1, pa.concat_tables([with_long, short]))

    assert [row["id"] for row in lake.rows("word = 'a'")] == [1]
    assert [row["id"] for row in lake.rows("word > 'y'")] == [2]
    assert [row["id"] for row in lake.rows("word = 'm'")] == [4, 5]


def test_delete_of_one_value_leaves_other_rows_when_a_row_group_has_no_bounds(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    rows = [pa.table({"id": [1, 2], "word": ["a", "z" * 5_000]}), pa.table({"id": [3], "word": ["m"]})]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_files, "GROUP", 1)
        lake.publish(1, pa.concat_tables(rows))

    lake.table().delete("word = 'm'")

    assert lake.seen == [1, 2]


@pytest.mark.parametrize(
    ("version", "least", "most", "expected"),
    [("17.0.0", "a", "", False), ("17.0.0", "", "b", True), ("18.0.0", "", "", True)],
)
def test_bound_counts_as_missing_when_an_older_pyarrow_shows_it_as_empty(
    monkeypatch: pytest.MonkeyPatch, version: str, least: str, most: str, expected: bool
) -> None:
    monkeypatch.setattr(pa, "__version__", version)

    assert arrow_files.has_both_bounds(SimpleNamespace(num_values=1, has_min_max=True, min=least, max=most)) is expected


def test_batch_is_published_when_a_dot_in_a_name_makes_two_paths_equal(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    inner = pa.array([{"b": {"c": 1}}, None], pa.struct([("b", pa.struct([("c", pa.int64())]))]))
    rows = pa.table({"id": [1, 2], "a": inner, "a.b": [None, {"c": "text"}]})

    lake.publish(1, rows)

    assert told(lake.rows()) == told(rows.to_pylist())


def test_spark_finds_least_and_greatest_when_doubles_were_appended(tmp_path: Path, spark_with_tables: Any) -> None:
    """Spark answers these from the bounds in the log, and takes NaN for the largest number."""
    lake = DeltaLake(tmp_path)
    lake.publish(
        1, pa.table({"id": [1, 2, 3], "rate": [1.5, 3.5, 2.0], "small": pa.array([1.5, None, 2.5], pa.float32())})
    )
    rows = spark_with_tables.read.format("delta").load(lake.path)
    ends = [*rows.selectExpr("min(rate)", "max(rate)", "min(small)", "max(small)", "min(id)", "max(id)").first()]

    lake.publish(2, pa.table({"id": [4, 5], "rate": [float("nan"), 9.5], "small": pa.array([-0.5, 0.0], pa.float32())}))
    rows = spark_with_tables.read.format("delta").load(lake.path)

    assert ends == [1.5, 3.5, 1.5, 2.5, 1, 3]
    assert sorted(row.id for row in rows.where("rate > 9.5 OR small < 0").collect()) == [4]
    assert repr(rows.selectExpr("max(rate)").first()[0]) == "nan"


def test_batch_is_there_once_when_two_publishers_have_copied_it_before_either_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(1, numbers(1))
    output, gate = lake.stage(2, numbers(2, 3)), threading.Barrier(2, timeout=PATIENCE)
    waited = threading.local()

    def wait_once() -> None:
        if not getattr(waited, "did", False):
            waited.did = True
            gate.wait()

    with after_copy(monkeypatch, wait_once), ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: lake.sink().publish(output), range(2)))

    assert (lake.seen, len(lake.files())) == ([1, 2, 3], 2)


def test_next_publisher_commits_the_same_files_when_one_dies_after_the_copy(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(1, numbers(1))
    output = lake.stage(2, numbers(2, 3))

    def die() -> None:
        raise KilledError

    with after_copy(monkeypatch, die), pytest.raises(TargetError, match="KilledError"):
        lake.sink().publish(output)
    there = {path.name for path in lake.folder.rglob("*.parquet") if "_staging" not in str(path)}
    seen_meanwhile = lake.seen
    lake.sink().publish(output)
    lake.sink().clear(output)

    assert seen_meanwhile == [1]
    assert lake.seen == [1, 2, 3]
    assert {path.name for path in lake.files().values()} <= there


def test_rows_of_another_writer_stay_when_they_come_between_copy_and_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(1, numbers(1))
    output, did = lake.stage(2, numbers(2)), list[int]()

    def append_once() -> None:
        if not did:
            did.append(1)
            lake.append(numbers(10))

    with after_copy(monkeypatch, append_once):
        lake.sink().publish(output)

    assert lake.seen == [1, 2, 10]


def test_batch_stays_away_when_a_decision_takes_it_back_between_copy_and_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(1, numbers(1))
    output = lake.stage(2, numbers(2))

    def take_back() -> None:
        lake.sink().retract(lake.sink().retraction(JOB, "e1", 2, 2, SINCE))

    with after_copy(monkeypatch, take_back):
        lake.sink().publish(output)

    assert lake.seen == [1]


def test_maintenance_between_any_two_steps_loses_no_row(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.publish(1, numbers(1))
    output = lake.stage(2, numbers(2))
    lake.maintain()
    with after_copy(monkeypatch, lake.maintain):
        lake.sink().publish(output)
    lake.maintain()
    lake.sink().clear(output)
    lake.maintain()

    assert lake.seen == [1, 2]
    assert all(path.exists() for path in lake.files().values())


def test_copy_is_as_young_as_its_commit_when_the_batch_was_staged_long_ago(lake: Lake) -> None:
    """VACUUM deletes files that no commit names, once they are old enough."""
    lake.publish(1, numbers(1))
    output = lake.stage(2, numbers(2))
    place = lake.sink().staging.place
    for name in place.files():
        os.utime(Path(place.root, name), (0, 0))

    lake.sink().publish(output)

    assert all(path.stat().st_mtime > 10**9 for path in lake.files().values())


def test_batch_is_published_when_its_files_belong_to_another_user(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    lake.publish(1, numbers(1))
    output = lake.stage(2, numbers(2))
    monkeypatch.setattr("scripts.helpers.sinks.places.os.utime", refuse)

    lake.sink().publish(output)

    assert (lake.seen, len(lake.files())) == ([1, 2], 2)


# --- tables that need the writer ------------------------------------------------------------------------


def files_are_copied(lake: Lake, staged: Mapping[int, bytes]) -> bool:
    return bool({path.stat().st_ino for path in lake.files().values()} & staged.keys())


def add_column(lake: DeltaLake) -> None:
    DeltaTable(lake.path).alter.add_columns(Field("later", PrimitiveType("long")))


def constrain(lake: DeltaLake) -> None:
    DeltaTable(lake.path).alter.add_constraint({"small": "id < 100"})


@pytest.mark.parametrize("change", [add_column, constrain])
def test_rows_are_written_again_when_a_delta_table_has_changed_since_they_were_staged(
    tmp_path: Path, change: Callable[[DeltaLake], None]
) -> None:
    lake = DeltaLake(tmp_path)
    lake.publish(1, numbers(1))
    output, staged = lake.stage(2, numbers(2)), lake.staged()
    change(lake)

    lake.sink().publish(output)

    assert (lake.seen, files_are_copied(lake, staged)) == ([1, 2], False)


def test_rows_are_written_again_when_a_delta_table_is_partitioned(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    output = lake.stage(1, numbers(1, 2), partition_by=["word"])
    staged = lake.staged()

    lake.sink().publish(output)

    assert (lake.seen, files_are_copied(lake, staged)) == ([1, 2], False)
    assert DeltaTable(lake.path).metadata().partition_columns == ["word"]


def partition(lake: IcebergLake) -> None:
    with lake.table().update_spec() as spec:
        spec.add_identity("word")


def make_anew(lake: IcebergLake) -> None:
    with lake.table().update_schema() as schema:
        schema.delete_column("word")
    with lake.table().update_schema() as schema:
        schema.add_column("word", StringType())


def widen(lake: IcebergLake) -> None:
    with lake.table().update_schema() as schema:
        schema.add_column("later", LongType())


def keep_elsewhere(lake: IcebergLake) -> None:
    with lake.table().transaction() as transaction:
        transaction.set_properties({"write.data.path": f"file://{lake.folder}/elsewhere"})


def require(lake: IcebergLake) -> None:
    with lake.table().update_schema(allow_incompatible_changes=True) as schema:
        schema.update_column("word", required=True)


def keep_by_provider(lake: IcebergLake) -> None:
    with lake.table().transaction() as transaction:
        transaction.set_properties({"write.py-location-provider.impl": PROVIDER})


@pytest.mark.parametrize("change", [partition, make_anew, widen, keep_elsewhere, require, keep_by_provider])
def test_rows_are_written_again_when_an_iceberg_table_has_changed_since_they_were_staged(
    tmp_path: Path, change: Callable[[IcebergLake], None]
) -> None:
    lake = IcebergLake(tmp_path)
    lake.publish(1, numbers(1))
    output, staged = lake.stage(2, numbers(2)), lake.staged()
    change(lake)

    lake.sink().publish(output)

    assert (lake.seen, files_are_copied(lake, staged)) == ([1, 2], False)
    assert [row["word"] for row in lake.rows("id = 2")] == ["w2"]


def test_name_of_a_column_may_change_after_its_files_were_copied(tmp_path: Path) -> None:
    """A reader matches columns of files without field ids by name, and would read the renamed column as NULL."""
    lake = IcebergLake(tmp_path)
    lake.publish(1, numbers(1))

    with lake.table().update_schema() as schema:
        schema.rename_column("word", "text")

    assert lake.rows() == [{"id": 1, "text": "w1"}]


def test_batch_is_written_when_only_the_catalog_may_write_into_the_folder_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = IcebergLake(tmp_path)
    lake.publish(1, numbers(1))
    output = lake.stage(2, numbers(2))

    def refuse(place: LocalPlace, *_: object) -> None:
        raise TargetError(place.uri(""), "no right to write there.")

    monkeypatch.setattr(LocalPlace, "copy", refuse)
    lake.sink().publish(output)

    assert lake.seen == [1, 2]


def test_batch_is_written_when_the_catalog_does_not_see_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if `pyiceberg` read the folder at another address than the client of S3 that copies."""
    lake = IcebergLake(tmp_path)
    lake.publish(1, numbers(1))
    output, there = lake.stage(2, numbers(2)), set(tmp_path.glob("raw/repairs/data/*"))

    def hide() -> None:
        for path in set(tmp_path.glob("raw/repairs/data/*")) - there:
            path.unlink()

    with after_copy(monkeypatch, hide):
        lake.sink().publish(output)

    assert lake.seen == [1, 2]


def test_history_of_a_key_is_closed_when_a_file_has_no_bounds_of_the_key(tmp_path: Path) -> None:
    """Writers may leave out bounds. `deltalake` reads a missing bound as NULL, and pyarrow then skips the file."""
    lake = DeltaLake(tmp_path)
    rules = Merge(("id",), ("seen",), history=Versions("since", "until"))
    for version in (1, 2):
        rows = pa.table({"id": [1], "seen": [version]}).to_pandas(types_mapper=pd.ArrowDtype)
        lake.publish(version, rows, merge=rules)
        for log in Path(lake.path, "_delta_log").glob("*.json"):
            log.write_text("\n".join(without_bounds(line) for line in log.read_text().splitlines()))

    assert sorted((row["since"], row["until"]) for row in lake.rows()) == [(1, 2), (2, None)]


def without_bounds(line: str) -> str:
    action = json.loads(line)
    if "add" in action:
        stats = json.loads(action["add"]["stats"])
        action["add"]["stats"] = json.dumps(stats | {"minValues": {}, "maxValues": {}})
    return json.dumps(action)
