"""Rows of pandas and pyarrow as Parquet files: one file, or one in the folder of each partition value."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import InvalidValueError, TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.files import FileSink, file_rows, partition_folder, write_arrow
from scripts.helpers.sinks.given_frames import given_rows
from scripts.helpers.sinks.places import LocalPlace
from tests.support.staging import staged_by

NULL = "__HIVE_DEFAULT_PARTITION__"
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "rate": [0.5, float("nan"), 0.5, None],
        "is_new": [True, True, True, False],
        "kind": ["a", "", None, "a"],
    }
)


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(str(tmp_path / "raw"))


def write(rows: Any, place: LocalPlace, **options: Any) -> None:
    """Write pandas or pyarrow rows to a place."""
    table = file_rows(given_rows(rows, "t"), options.get("partition_by", ()))
    write_arrow(table, place, "staged", options.pop("options", {}), **options)


def read(place: LocalPlace, name: str) -> pa.Table:
    data = place.read(name)
    assert data is not None
    return pq.ParquetFile(BytesIO(data)).read()


CATEGORIES = ROWS.to_pandas().astype({"kind": pd.CategoricalDtype(["", "a", "in no row"])})


@pytest.mark.parametrize("rows", [ROWS, ROWS.to_pandas(), CATEGORIES], ids=["pyarrow", "pandas", "categories"])
@pytest.mark.parametrize(
    ("columns", "folders"),
    [
        (["rate"], {"rate=0.5": [1, 3], f"rate={NULL}": [2, 4]}),
        (["is_new"], {"is_new=true": [1, 2, 3], "is_new=false": [4]}),
        (["kind"], {"kind=a": [1, 4], f"kind={NULL}": [2, 3]}),
        (
            ["is_new", "kind"],
            {"is_new=true/kind=a": [1], f"is_new=true/kind={NULL}": [2, 3], "is_new=false/kind=a": [4]},
        ),
    ],
)
def test_each_folder_has_all_rows_of_its_values_without_their_columns(
    place: LocalPlace, rows: Any, columns: list[str], folders: dict[str, list[int]]
) -> None:
    write(rows, place, partition_by=columns)

    found: dict[str, list[int]] = {}
    for name in place.files():
        part = read(place, name)
        found.setdefault(str(Path(name).parent), []).extend(part["id"].to_pylist())
        assert part.column_names == [name for name in ROWS.column_names if name not in columns]
    assert {folder: sorted(ids) for folder, ids in found.items()} == {
        f"staged/{folder}": ids for folder, ids in folders.items()
    }


@pytest.mark.parametrize("kind", ["pyarrow", "pandas"])
def test_times_are_in_microseconds_and_the_index_is_left_out_when_rows_are_written(
    place: LocalPlace, kind: str
) -> None:
    frame = pd.DataFrame({"at": pd.to_datetime(["2026-03-16 15:45:00Z"]).as_unit("ns")}, index=["x"])
    rows: Any = pa.Table.from_pandas(frame, preserve_index=False) if kind == "pyarrow" else frame

    write(rows, place, options={"compression": "gzip"})

    found = read(place, "staged/part-00000.parquet")
    assert found.to_pylist() == [{"at": datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)}]
    data = place.read("staged/part-00000.parquet")
    assert pq.ParquetFile(BytesIO(data or b"")).metadata.row_group(0).column(0).compression == "GZIP"


DAY, NOON = date(2026, 6, 1), datetime(2026, 6, 1, 12)
IN_UTC = NOON.replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([DAY, NOON], "'v' has values of several types: date, datetime"),
        ([NOON, IN_UTC], "'v' has values of several types: aware datetime, datetime"),
        ([IN_UTC, None, NOON], "'v' has values of several types: aware datetime, datetime"),
        ([NOON, 20260601], "'v' has values of several types: datetime, int"),
        (["a", b"b"], "'v' has values of several types: bytes, str"),
        ([[IN_UTC], [NOON, NOON]], r"'v\[\]' has values of several types: aware datetime, datetime"),
        ([{"at": DAY}, {"id": 1, "at": NOON}], r"'v\.at' has values of several types: date, datetime"),
        ([[Decimal("1.5"), Decimal("NaN")]], r"'v' has Decimal\('NaN'\)"),
        ([pd.Timestamp(1_000_000_001)], "'v' has times with nanoseconds"),
        (pd.Categorical([DAY, NOON]), "'v' has values of several types: date, datetime"),
    ],
    ids=["dates", "plain-aware", "aware-plain", "time-number", "bytes", "lists", "maps", "nan", "nanos", "category"],
)
def test_objects_are_refused_when_their_column_would_change_them(place: LocalPlace, values: Any, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        write(pd.DataFrame({"v": pd.Series(values, dtype="category" if hasattr(values, "dtype") else "object")}), place)

    assert place.files() == {}


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, float("nan")], [1, Decimal("1.5"), None], ["a", float("nan"), pd.NA], [IN_UTC, pd.NaT],
        [True, np.bool_(False)], [0.5, np.float64(1)], [[1], np.array([2]), [2.5]], [{"a": 1}, {"a": 2.5, "b": "x"}],
    ],
    ids=["floats", "decimals", "texts", "times", "booleans", "numpy", "lists", "maps"],
)  # fmt: skip
def test_objects_are_written_when_one_type_holds_all_of_them(place: LocalPlace, values: Any) -> None:
    write(pd.DataFrame({"v": pd.Series(values, dtype="object")}), place)

    assert read(place, "staged/part-00000.parquet").num_rows == len(values)


@pytest.mark.parametrize("rows", [pa.table({}), pd.DataFrame()], ids=["pyarrow", "pandas"])
def test_no_file_is_written_when_rows_have_no_columns(place: LocalPlace, rows: Any) -> None:
    write(rows, place, partition_by=["day"])

    assert place.files() == {}


@pytest.mark.parametrize("columns", [[], ["is_new"]])
def test_rows_are_counted_when_a_table_is_written(place: LocalPlace, columns: list[str]) -> None:
    assert write_arrow(ROWS, place, "staged", {}, columns).rows == 4
    assert write_arrow(pa.table({}), place, "staged", {}, columns).rows == 0


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("a b", "a b"), ("a/b:c", "a%2Fb%3Ac"), ("\x1f", "%1F"), ("\x7f", "%7F"), ("~", "~"), ("ü", "ü"),
        (0, "0"), (False, "false"), (date(2026, 3, 16), "2026-03-16"), (None, NULL), ("", NULL), (float("nan"), NULL),
        (pd.NaT, NULL),
    ],
)  # fmt: skip
def test_folder_is_named_as_spark_names_it_when_a_value_is_strange(value: Any, folder: str) -> None:
    assert partition_folder("day", value) == f"day={folder}"


@pytest.mark.parametrize("column", ["a=b", "a%41", "a/b", "a b", "ä", "a:b"])
def test_column_has_its_name_when_spark_reads_folders_that_were_written_without_it(
    spark: Any, tmp_path: Path, column: str
) -> None:
    sink = FileSink(str(tmp_path / "t"), partition_by=[column])
    rows = pd.DataFrame({"id": [1, 2], column: ["x=y", "z"]})

    sink.publish(staged_by(sink, BatchId("repairs", "e1", 1), 1, rows))

    found = spark.read.parquet(str(tmp_path / "t"))
    assert set(found.columns) == {"id", column}
    assert sorted(tuple(row) for row in found.select("id", f"`{column}`").collect()) == [(1, "x=y"), (2, "z")]


def test_decimal_is_written_with_all_digits_when_rows_are_parted_by_it(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "t"), partition_by=["price"])

    sink.publish(staged_by(sink, BatchId("repairs", "e1", 1), 1, pd.DataFrame({"id": [1], "price": [Decimal("1E+2")]})))

    assert [path.name for path in (tmp_path / "t").glob("*=*")] == ["price=100"]


@pytest.mark.parametrize(("first", "second"), [([], ["d"]), (["d", "e"], ["e", "d"])])
@pytest.mark.parametrize("engine", ["pandas", "spark"])
def test_batch_is_refused_when_its_folders_are_not_those_of_the_batches_before(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str, first: list[str], second: list[str]
) -> None:
    rows: Any = pd.DataFrame({"id": [1, 2], "d": ["x", "y"], "e": ["v", "w"]})
    if engine == "spark":
        rows = request.getfixturevalue("spark").createDataFrame(rows)
    target, batches = str(tmp_path / "t"), [BatchId("repairs", "e1", version) for version in (1, 2, 3)]
    sink = FileSink(target, partition_by=first)
    sink.publish(staged_by(sink, batches[0], 1, rows))

    with pytest.raises(TargetError, match="Give partition_by="):
        staged_by(FileSink(target, partition_by=second), batches[1], 1, rows)

    again = FileSink(target, partition_by=first)
    again.publish(staged_by(again, batches[2], 1, rows))
    assert len(list((tmp_path / "t").rglob("*.parquet"))) in (2, 4)
