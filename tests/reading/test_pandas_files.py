"""`read_pandas` returns each value as its file holds it, whatever the other files of the batch hold, or raises."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import FileContentError, InvalidValueError, MisfitError, TargetError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks

BIG = 2**53 + 1


def landed(folder: Path, *files: Any) -> FileDelta:
    """Write texts, and tables as Parquet, as files of a folder, and return the delta of these files."""
    for number, file in enumerate(files):
        if isinstance(file, pa.Table):
            body = BytesIO()
            pq.write_table(file, body)
            (folder / f"{number}").write_bytes(body.getvalue())
        else:
            (folder / f"{number}").write_bytes(file.encode() if isinstance(file, str) else file)
    return FileBookmark(str(folder)).new_files()


def at(year: int, unit: str) -> pa.Table:
    return pa.table({"at": pa.array([datetime(year, 1, 1)], pa.timestamp(unit))})


# --- numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "files"),
    [
        ("csv", (f"id,bay\n{BIG},A\n", "id,bay\n1.5,B\n")),
        ("csv", (f"id,bay\n{BIG},A\n1.5,B\n",)),
        ("json", (f'{{"id":{BIG}}}\n{{"id":1.5}}\n',)),
        ("json", (f'{{"id":{BIG}}}\n', '{"id":1.5}\n')),
    ],
)
def test_numbers_are_texts_when_no_type_of_numbers_holds_all_of_them(
    tmp_path: Path, format: str, files: tuple[str, ...]
) -> None:
    found = landed(tmp_path, *files).read_pandas(format)

    assert (str(found["id"].dtype), found["id"].tolist()) == ("string", [str(BIG), "1.5"])


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("number", [10**23 + 1, 2**64, -(2**63) - 1])
def test_number_is_a_text_when_it_has_more_than_64_bits(tmp_path: Path, format: str, number: int) -> None:
    body = f"id\n{number}\n1\n" if format == "csv" else f'{{"id":{number}}}\n{{"id":1}}\n'

    found = landed(tmp_path, body).read_pandas(format)

    assert found["id"].tolist() == [str(number), "1"]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_numbers_are_texts_when_a_float_would_make_one_infinite(tmp_path: Path, format: str) -> None:
    texts = ["1E+400", "-1E+400", "1", "1.5"]
    lines = [f'{{"x":{text}}}' for text in texts] if format == "json" else ["x", *texts]

    found = landed(tmp_path, "\n".join(lines)).read_pandas(format)

    assert (str(found["x"].dtype), found["x"].tolist()) == ("string", texts)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_numbers_are_texts_when_one_is_negative_and_one_too_large_for_a_bigint(tmp_path: Path, format: str) -> None:
    numbers = [2**64 - 1, -1]
    lines = [f'{{"id":{number}}}' if format == "json" else str(number) for number in numbers]

    found = landed(tmp_path, "\n".join(["id"] * (format == "csv") + lines)).read_pandas(format)

    assert found["id"].tolist() == [str(number) for number in numbers]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_numbers_have_one_type_when_they_fit_it(tmp_path: Path, format: str) -> None:
    records = [{"a": 2**64 - 1, "b": 1, "c": 1.5, "d": True}, {"a": 0, "b": 2.5, "c": -2, "d": False}]
    bodies = [json.dumps(record) for record in records]
    if format == "csv":
        bodies = ["\n".join([",".join(record), ",".join(map(str, record.values()))]) for record in records]

    found = landed(tmp_path, *bodies).read_pandas(format)

    assert {name: str(kind) for name, kind in found.dtypes.items()} == {
        "a": "UInt64", "b": "Float64", "c": "Float64", "d": "boolean",
    }  # fmt: skip
    assert found.to_dict("records") == records


def test_zeros_in_front_are_kept_when_another_file_shows_that_the_column_is_text(tmp_path: Path) -> None:
    found = landed(tmp_path, "zip\n01234\n", "zip\nE8\n").read_pandas("csv")

    assert found["zip"].tolist() == ["01234", "E8"]


@pytest.mark.parametrize("texts", [["01234", "500"], ["00", "1"], ["-01", "1"], ["007.5", "1.5"]])
def test_column_of_csv_is_text_when_a_value_has_a_zero_in_front(tmp_path: Path, texts: list[str]) -> None:
    found = landed(tmp_path, "\n".join(["zip", *texts])).read_pandas("csv")

    assert found["zip"].tolist() == texts


@pytest.mark.parametrize(("there", "now"), [("E8", "1.50"), ("1234", "E8")])
@pytest.mark.parametrize("target", ["parquet", "delta", "database"])
def test_error_names_dtype_when_a_column_is_text_at_the_target_or_in_the_batch_alone(
    watermarks: Watermarks, tmp_path: Path, target: str, there: str, now: str
) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    connect().execute(f"CREATE TABLE t (id integer, zip {'integer' if there == '1234' else 'text'})")

    for job_id, text in (("one", there), ("other", now)):
        (tmp_path / job_id).mkdir()
        (tmp_path / job_id / "1.csv").write_text(f"id,zip\n1,{text}\n")

    def run(job_id: str, **options: Any) -> pd.Series[Any]:
        with IncrementalJob(watermarks, job_id) as job:
            found = job.new_files(str(tmp_path / job_id)).read_pandas("csv", **options)
            if target == "database":
                job.write(found, DatabaseSink("t", connect=connect, name="shop"))
            else:
                job.write(found, str(tmp_path / "raw"), format=target)
        return found["zip"]

    run("one")
    with pytest.raises(TargetError, match=re.escape('dtype={"zip": "string"}')):
        run("other")

    if there == "E8":
        assert run("other", dtype={"zip": "string"}).tolist() == [now]


def test_column_has_the_type_of_its_values_when_a_file_has_only_a_header(tmp_path: Path) -> None:
    found = landed(tmp_path, "id,ok,note\n", "id,ok\n1,true\n2,false\n").read_pandas("csv")

    assert found[["id", "ok"]].to_dict("list") == {"id": [1, 2], "ok": [True, False]}
    assert found["note"].isna().all()
    assert {name: str(kind) for name, kind in found.dtypes.items()} == {
        "id": "Int64", "ok": "boolean", "note": "string",
    }  # fmt: skip


MONEY = pa.array([Decimal("123456789012345678.91")], pa.decimal128(20, 2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(pa.array([-1]), pa.array([2**64 - 1], pa.uint64()), id="numbers of either end"),
        pytest.param(MONEY, pa.array([0.5]), id="decimal beside double"),
        pytest.param(MONEY, pa.array([0.5], pa.float32()), id="decimal beside float"),
        pytest.param(
            pa.array([[{"x": MONEY[0].as_py()}]]), pa.array([[{"x": 0.5}]]), id="decimal beside double, in a list"
        ),
        pytest.param(
            pa.array([[("k", MONEY[0].as_py())]], pa.map_("string", MONEY.type)),
            pa.array([[("k", 0.5)]], pa.map_("string", pa.float64())),
            id="decimal beside double, in a map",
        ),
        pytest.param(pa.array(["a"]), pa.array([b"\xff"]), id="text beside bytes"),
    ],
)
def test_read_stops_and_names_the_column_when_files_of_parquet_have_types_that_do_not_fit(
    tmp_path: Path, one: pa.Array, other: pa.Array
) -> None:
    delta = landed(tmp_path, pa.table({"id": one}), pa.table({"id": other}))

    with pytest.raises(MisfitError, match="column 'id'"):
        delta.read_pandas("parquet")


@pytest.mark.parametrize(("kind", "value"), [("int64", BIG), ("uint64", 2**64 - 1)])
def test_value_of_csv_keeps_the_type_of_the_caller_when_another_file_lacks_its_column(
    tmp_path: Path, kind: str, value: Any
) -> None:
    found = landed(tmp_path, f"id,bay\n{value},A\n", "bay\nB\n").read_pandas("csv", dtype={"id": kind})["id"]

    assert (str(found[0]), found.isna().tolist()) == (str(value), [False, True])


def test_index_that_pandas_wrote_is_a_column_when_parquet_is_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": ["x", "y"], "bay": ["A", "B"]}).set_index("id")
    frame.to_parquet(tmp_path / "0")

    found = FileBookmark(str(tmp_path)).new_files().read_pandas("parquet")

    assert sorted(found.columns) == ["bay", "id"]
    assert found["id"].tolist() == ["x", "y"]


# --- times ------------------------------------------------------------------------------------------


def test_times_are_read_when_one_file_has_nanoseconds_and_another_a_year_that_these_cannot_hold(tmp_path: Path) -> None:
    found = landed(tmp_path, at(4000, "us"), at(2026, "ns")).read_pandas("parquet")

    assert [time.year for time in found["at"]] == [4000, 2026]


def test_read_stops_when_no_unit_holds_the_times_of_all_files(tmp_path: Path) -> None:
    one_nanosecond = pa.table({"at": pa.array([1], pa.timestamp("ns"))})

    with pytest.raises(MisfitError, match="column 'at'"):
        landed(tmp_path, at(4000, "us"), one_nanosecond).read_pandas("parquet")


# --- CSV and JSON as Spark's readers take them --------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "id,name\n1,ann,\n2,bob,\n",
        "id,name\n1,ann,x\n2,bob,y\n",
        "id,name\n1,ann\n2,bob,\n",
        "id,name\n1,ann\n2\n",
        "id,name\n1,ann,x,z\n2,bob\n",
        "id,name,town\n,,,\n1,ann,York\n",
        "id,\nid,name,town\n1,ann,York\n",
    ],
    ids=["comma at each end", "one more", "comma at one end", "one less", "both", "commas", "commas in the header"],
)
def test_read_stops_and_names_the_line_when_it_has_another_number_of_values_than_the_header(
    tmp_path: Path, body: str
) -> None:
    with pytest.raises(MisfitError, match=r"key '0' cannot be read as csv: line [23] has [134] values?, and the hea"):
        landed(tmp_path, body).read_pandas("csv")


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ("Report\nid,name\n1,ann,x\n2,bob,y\n", {"skiprows": 1}),
        ("1,ann,York\n", {"names": ["id", "name"]}),
        ("# of today\nid,name\n1,ann,York\n", {"comment": "#"}),
        ("id,name\n1,ann,York\n", {"usecols": ["id"]}),
        ("id,name\n1,ann,York\n", {"engine": "python"}),
        ("id,name\n1,ann,York\n", {"index_col": False}),
    ],
)
def test_read_stops_when_a_line_has_more_values_than_names_and_options_are_given(
    tmp_path: Path, body: str, options: dict[str, Any]
) -> None:
    with pytest.raises(MisfitError, match=r"key '0' cannot be read as csv: .* values.* header names"):
        landed(tmp_path, body).read_pandas("csv", **options)


def test_read_stops_when_the_header_is_a_line_of_commas(tmp_path: Path) -> None:
    with pytest.raises(MisfitError, match="line 1 is the header, and names no column"):
        landed(tmp_path, ",,\nid,name,town\n1,ann,York\n").read_pandas("csv")


def test_read_stops_when_a_file_of_csv_shares_no_column_with_the_others(tmp_path: Path) -> None:
    delta = landed(tmp_path, "id,name\n1,a\n", "name,bay\nb,7\n", "bay\n8\n", "3,c\n4,d\n")

    with pytest.raises(MisfitError, match=r"the header of key '3' shares no column with key '0'\.") as caught:
        delta.read_pandas("csv")

    assert "3, c" not in str(caught.value)


def test_each_member_is_a_file_when_csv_is_packed_as_zip(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, text in (("x.csv", "id,name\n1,ann"), ("y.csv", "name,id\nbob,2\n"), ("__MACOSX/._x.csv", "\0\0")):
            archive.writestr(name, text)

    found = FileBookmark(str(tmp_path)).new_files().read_pandas("csv", path_column="file")

    assert found[["id", "name"]].to_dict("list") == {"id": [1, 2], "name": ["ann", "bob"]}
    assert set(found["file"]) == {f"file://{tmp_path}/x.zip"}


@pytest.mark.parametrize("text", ["NA", "None", "null", "nan", "N/A"])
def test_only_an_empty_field_of_csv_is_missing_when_others_look_so(tmp_path: Path, text: str) -> None:
    found = landed(tmp_path, f'country,id\n{text},1\n,2\n"",3\n').read_pandas("csv")

    assert found["country"].fillna("-").tolist() == [text, "-", "-"]


def test_own_texts_of_csv_are_missing_when_the_caller_names_them(tmp_path: Path) -> None:
    found = landed(tmp_path, "id,bay\n1,-\n2,\n3,NA\n4,B\n").read_pandas("csv", na_values=["-"])

    assert found["bay"].isna().tolist() == [True, True, True, False]


def test_value_of_csv_is_whole_when_it_is_very_long(tmp_path: Path) -> None:
    found = landed(tmp_path, f"id,text\n1,{'x' * 200_000}\n").read_pandas("csv")

    assert found["text"].str.len().tolist() == [200_000]


def test_lines_of_csv_are_counted_as_they_are_cut_when_quotes_hold_separators_and_ends(tmp_path: Path) -> None:
    body = '\ufeffid;name\n1;"a;b\n""c"""\n\n  \n2;x\n'

    found = landed(tmp_path, body).read_pandas("csv", sep=";")

    assert found.to_dict("list") == {"id": [1, 2], "name": ['a;b\n"c"', "x"]}


def test_records_of_json_are_read_when_there_is_a_byte_order_mark_and_more_than_one_on_a_line(tmp_path: Path) -> None:
    found = landed(tmp_path, '\ufeff{"id":1} {"id":2}{"id":3}\n\n[{"id":4}]\n').read_pandas("json")

    assert found["id"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("text", ['{"id":1} xyz', '{"id":', "5", '{"id":1},{"id":2}'])
def test_read_stops_and_names_the_line_when_a_record_is_not_json(tmp_path: Path, text: str) -> None:
    with pytest.raises(MisfitError, match="key '0' cannot be read as json: line 2 "):
        landed(tmp_path, f'{{"id":0}}\n{text}\n').read_pandas("json")


@pytest.mark.parametrize(("format", "text"), [("csv", b"id\n1\n"), ("json", b'{"id":1}\n')])
def test_file_is_named_when_it_is_compressed_and_its_name_does_not_say_so(
    tmp_path: Path, format: str, text: bytes
) -> None:
    delta = landed(tmp_path, text, gzip.compress(text))

    with pytest.raises(FileContentError, match=rf"key '1' cannot be read as {format}: it is a gz file, and its name"):
        delta.read_pandas(format, encoding="ISO-8859-1")


def test_file_is_named_when_a_text_of_json_is_no_unicode(tmp_path: Path) -> None:
    with pytest.raises(FileContentError, match=r"key '1' cannot be read as json: .*surrogates not allowed"):
        landed(tmp_path, '{"a":"b"}', r'{"a":"\ud83d"}').read_pandas("json")


def test_file_is_named_when_pandas_has_no_value_for_one_of_parquet(tmp_path: Path) -> None:
    late = pa.array([[2**60]], pa.list_(pa.timestamp("us")))

    with pytest.raises(FileContentError, match="key '1' cannot be read as parquet: date value out of range"):
        landed(tmp_path, pa.table({"at": late.slice(1)}), pa.table({"at": late})).read_pandas("parquet")


@pytest.mark.parametrize(
    "options",
    [{"dtype": {"id": "int64"}}, {"dtype": {"id": "float64"}}, {"dtype": {"id": "Int64"}}, {"converters": {"id": int}}],
    ids=["int", "float", "nullable", "converter"],
)
def test_no_value_is_shown_when_one_does_not_fit_the_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(FileContentError, match=r"key '0' cannot be read as csv: .*…") as caught:
        landed(tmp_path, "id\n1\nring 0117 496\n").read_pandas("csv", **options)

    assert "0117" not in str(caught.value)


def test_file_is_named_when_options_of_parquet_do_not_go_with_its_types(tmp_path: Path) -> None:
    numbers, texts = pa.table({"id": [1], "note": ["a"]}), pa.table({"id": ["x"], "note": ["b"]})
    delta = landed(tmp_path, numbers, texts)

    with pytest.raises(FileContentError, match=r"key '1' cannot be read as parquet: .*string.*check the options"):
        delta.read_pandas("parquet", filters=[("id", ">", 0)])
    with pytest.raises(MisfitError, match="column 'id' is int64 in key '0', string in key '1'"):
        delta.read_pandas("parquet", columns=["id"])
    with pytest.raises(InvalidValueError, match="columns is one text"):
        delta.read_pandas("parquet", columns="note")
    assert delta.read_pandas("parquet", columns=["note"])["note"].tolist() == ["a", "b"]


def test_reason_is_in_the_error_and_behind_it_when_a_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileContentError, match=r"key '0' cannot be read as csv: 'utf-8' codec can't decode") as caught:
        landed(tmp_path, "id\né\n".encode("latin-1")).read_pandas("csv")

    assert isinstance(caught.value.__cause__, UnicodeDecodeError)
    assert caught.value.key == "0"


# --- options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("csv", {"on_bad_lines": "boom"}),
        ("csv", {"dtype": "boom"}),
        ("csv", {"encoding": "boom"}),
        ("csv", {"usecols": ["nobody"]}),
        ("csv", {"index_col": "id"}),
        ("csv", {"decimal": ","}),
        ("csv", {"thousands": "."}),
        ("csv", {"true_values": ["ja"]}),
        ("json", {"seperator": ";"}),
        ("json", {"typ": "boom"}),
        ("json", {"encoding": "boom"}),
        ("parquet", {"columns": 5, "filters": 5}),
    ],
)
def test_option_is_to_blame_when_pandas_does_not_take_it(tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    bodies: dict[str, Any] = {"csv": "id\n1\n", "json": '{"id":1}\n', "parquet": pa.table({"id": [1]})}
    delta = landed(tmp_path, bodies[format])

    with pytest.raises(InvalidValueError, match=next(iter(options))):
        delta.read_pandas(format, **options)


def test_types_are_those_of_the_caller_when_some_are_given(tmp_path: Path) -> None:
    found = landed(tmp_path, "id,zip,bay\n1,01234,7\n").read_pandas("csv", dtype={"zip": "string"})

    assert found.to_dict("records") == [{"id": 1, "zip": "01234", "bay": 7}]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_types_are_those_of_arrow_when_the_caller_asks_for_them(tmp_path: Path, format: str) -> None:
    file: Any = "id,bay\n1,A\n" if format == "csv" else pa.table({"id": [1], "bay": ["A"]})

    found = landed(tmp_path, file).read_pandas(format, dtype_backend="pyarrow")

    assert str(found["id"].dtype) == "int64[pyarrow]"
