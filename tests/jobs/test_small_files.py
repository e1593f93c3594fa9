"""SmallFiles returns the same rows as Spark's own readers, whatever is in the files."""

from __future__ import annotations

import bz2
import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.errors import ChangedObjectError, SourceError
from scripts.helpers.listing.listing import Listing, Location
from scripts.helpers.listing.objects import LISTED
from scripts.helpers.reading.small_files import SmallFiles, typed_fetch_errors
from scripts.helpers.reading.spark import read_files
from tests.jobs.held_bucket import serve_held_bucket
from tests.support.landing import Landing

JSON = "id long, name string, tags array<string>, nested struct<a: int, b: date>"
BODIES = {
    "plain": b'{"id": 1, "name": "one"}\n{"id": 2, "name": "two"}\n',
    "empty": b"",
    "only-a-newline": b"\n",
    "no-newline-at-the-end": b'{"id": 1}\n{"id": 2}',
    "crlf": b'{"id": 1}\r\n{"id": 2}\r\n',
    "cr": b'{"id": 1}\r{"id": 2}\r',
    "crcrlf": b'{"id": 1}\r\r\n{"id": 2}\n\r{"id": 3}',
    "blank-lines": b'\n\n{"id": 1}\n \t \n{"id": 2}\n\n',
    "bom": b'\xef\xbb\xbf{"id": 1}\n{"id": 2}\n',
    "malformed": b'{"id": 1}\n{"id": \nnot json\n1\n"x"\nnull\n{"id": "z"}\n',
    "arrays": b'[{"id": 1}, {"id": 2}]\n[]\n  [{"id": 3}]\n[1]\n[{"id": 4}, null]\n[{"id": 5}\n',
    "nested": b'{"id": 1, "tags": ["a", null], "nested": {"a": 3, "b": "2024-02-29"}}\n{"nested": null}\n{}\n',
    "unicode": '{"id": 1, "name": "🎉 é \\u00e9 \u2028 \x85 end"}\n'.encode(),
}
CSV = "id int, name string, at timestamp"
CSV_BODIES = {
    "plain": b"id,name,at\n1,one,2024-02-29 12:00:00\n2,two,\n",
    "empty": b"",
    "header-alone": b"id,name,at",
    "no-newline-at-the-end": b"id,name,at\n1,one,",
    "crlf": b"id,name,at\r\n1,one,\r\n\r\n2,two,\r\n",
    "blank-lines": b"\n  \nid,name,at\n\n1,one,\n \t\n2,two,",
    "quotes": b'id,name,at\n1,"one, two",\n2,"say ""hi""",\n3,"a\\"b",\n',
    "too-few-and-too-many": b"id,name,at\n1\n2,two\n3,three,,4,5\n",
    "malformed": b"id,name,at\nx,one,\n1,one,yesterday\n",
    "comments": b"# first\nid,name,at\n# second\n1,one,\n #2,two,\n",
    "bom": b"\xef\xbb\xbfid,name,at\n1,one,\n",
    "spaces": b"id,name,at\n 1 , one ,\n",
    "latin": b"id,name,at\n1,\xe9,\n",
    "comma-alone": b"id,name,at\n,,\n",
}
TEXT_BODIES = {
    "plain": b"one\ntwo\n",
    "empty": b"",
    "blank-lines": b"\n\n one \r\n\r\n\n",
    "bom": b"\xef\xbb\xbfone\ntwo",
    "bytes": b"\xff\x00\x85 x",
}


@pytest.fixture(params=["local", "s3a"])
def landing(request: pytest.FixtureRequest, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an empty source that executors can read: once in a directory, once in S3."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    if request.param == "local":
        return Read(spark, f"{tmp_path}/landing/")
    return Read(spark, f"s3a://{request.getfixturevalue('bucket')}/landing/", request.getfixturevalue("s3"))


ON_DISK = pytest.mark.parametrize("landing", ["local"], indirect=True)
"""For tests of file contents and read options, which do not depend on where the file is."""


class Read(Landing):
    """A place for files, and both ways to read it: SmallFiles and Spark's reader."""

    def plan(self) -> pa.Table:
        return pa.Table.from_batches([part.rows for part in Listing(self.location, self.client)], LISTED)

    def small(self, format: str, schema: str | None = None, table: pa.Table | None = None, **options: Any) -> Any:
        if self.client is not None:
            options["client_options"] = {"endpoint_url": self.client.meta.endpoint_url}
        given = {name: options.pop(name) for name in ("path_column", "on_changed", "client_options") if name in options}
        reader = SmallFiles(self.spark, self.location, format, **given)
        return reader.read(self.plan() if table is None else table, schema, options.get("options", {}))

    def spark_reader(self, format: str, schema: str | None = None, **options: Any) -> Any:
        return read_files(self.spark, self.location, self.plan(), format, schema=schema, **options)


def rows(frame: Any) -> Counter[str]:
    """Return the rows in no order, as text because some values cannot be hashed."""
    return Counter(map(repr, frame.collect()))


def assert_same(small: Any, spark_reader: Any) -> None:
    assert small.schema == spark_reader.schema
    assert rows(small) == rows(spark_reader)


# --- the same rows ------------------------------------------------------------------------------------


@ON_DISK
@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (JSON, {}),
        (f"{JSON}, _corrupt_record string", {}),
        (JSON, {"multiLine": True}),
        (JSON, {"primitivesAsString": True, "lineSep": "\n"}),
        ("nested struct<b: date>, id string", {"dateFormat": "yyyy-MM-dd", "allowSingleQuotes": False}),
    ],
    ids=["plain", "corrupt-record", "multi-line", "separator", "other-types"],
)
def test_rows_are_those_of_spark_when_files_are_json(landing: Read, schema: str, options: dict[str, Any]) -> None:
    for name, body in BODIES.items():
        # With lineSep the whole "cr" file is one line of several objects, of which Spark reads only the first.
        if name != "cr" or "lineSep" not in options:
            landing.put(f"{name}.json", body)

    small = landing.small("json", schema, path_column="file", options=options)

    assert_same(small, landing.spark_reader("json", schema, path_column="file", options=options))


@ON_DISK
@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (CSV, {"header": True}),
        (CSV, {}),
        (f"{CSV}, _corrupt_record string", {"header": True}),
        (CSV, {"header": True, "comment": "#"}),
        ("`odd name` string, `b``t` string", {"sep": ",", "ignoreLeadingWhiteSpace": True, "nullValue": "one"}),
        (CSV, {"lineSep": "\n", "header": "true"}),
    ],
    ids=["header", "no-header", "corrupt-record", "comment", "odd-names", "separator"],
)
def test_rows_are_those_of_spark_when_files_are_csv(landing: Read, schema: str, options: dict[str, Any]) -> None:
    for name, body in CSV_BODIES.items():
        landing.put(f"{name}.csv", body)

    small = landing.small("csv", schema, path_column="file", options=options)

    assert_same(small, landing.spark_reader("csv", schema, path_column="file", options=options))


@pytest.mark.parametrize(
    ("schema", "options"), [(None, {}), ("line string", {}), (None, {"wholetext": True}), (None, {"lineSep": "n"})]
)
def test_rows_are_those_of_spark_when_files_are_text(
    landing: Read, schema: str | None, options: dict[str, Any]
) -> None:
    for name, body in TEXT_BODIES.items():
        landing.put(f"{name}.txt", body)

    small = landing.small("text", schema, path_column="file", options=options)

    assert_same(small, landing.spark_reader("text", schema, path_column="file", options=options))


@ON_DISK
@pytest.mark.parametrize("multi_line", [False, True])
def test_rows_are_those_of_spark_when_json_is_not_utf_8(landing: Read, multi_line: bool) -> None:
    landing.put("one-line.json", b'{"id": 1, "name": "\xff\xfe"}\n{"id": 2}')
    landing.put("after-the-root.json", b'{"id": 3} \xff\n{"id": 4}')
    landing.put("alone.json", b"\xff")

    small = landing.small("json", JSON, options={"multiLine": multi_line})

    assert_same(small, landing.spark_reader("json", JSON, options={"multiLine": multi_line}))


@ON_DISK
@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("deflate", zlib.compress)])
def test_rows_are_those_of_spark_when_files_are_compressed(landing: Read, ending: str, pack: Any) -> None:
    landing.put(f"a.json.{ending}", pack(BODIES["crlf"]))
    landing.put("b.json", BODIES["plain"])

    small = landing.small("json", "id long")

    assert_same(small, landing.spark_reader("json", "id long"))
    assert small.count() == 4


def test_rows_are_those_of_spark_when_folders_are_columns(landing: Read) -> None:
    for folder in (
        "year=2013/day=01",
        "year=2014/day=a%3Ab",
        "year=__HIVE_DEFAULT_PARTITION__/day=x y",
        "year=7/day=é",
    ):
        landing.put(f"{folder}/a.json", b'{"id": 1, "year": 5}\n')
    schema = "day string, id int, YEAR int"

    small = landing.small("json", schema)

    assert rows(small) == rows(landing.spark_reader("json", schema))
    assert [name.lower() for name in small.columns] == ["id", "year", "day"]


def test_rows_are_those_of_spark_when_keys_are_strange(landing: Read) -> None:
    names = ["a b", "100%25", "50%", "x+y", "[z]", "s*", "{k,l}", "q?", "h#1", "🎉", "é", "back\\slash", "~", "a&b=c"]
    for name in names:
        landing.put(f"{name}.json", b'{"id": 1}')

    small = landing.small("json", "id int", path_column="file")

    assert_same(small, landing.spark_reader("json", "id int", path_column="file"))
    assert sorted(row.file for row in small.collect()) == sorted(landing.location.uri(f"{name}.json") for name in names)


def test_there_are_no_rows_when_nothing_is_planned(landing: Read) -> None:
    small = landing.small("json", "id int, year int", LISTED.empty_table(), path_column="file")

    assert small.dtypes == [("id", "int"), ("year", "int"), ("file", "string")]
    assert small.collect() == []


@pytest.mark.parametrize("name", ["tab\t.json", "a//b.json", "dir/../x.json", "./x.json"])
def test_object_is_read_when_obstore_cannot_name_its_key(
    spark: Any, s3: Any, bucket: str, name: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    landing = Read(spark, f"s3://{bucket}/landing/", s3)
    etag = s3.put_object(Bucket=bucket, Key=f"landing/{name}", Body=b'{"id": 1}')["ETag"].strip('"')
    table = pa.Table.from_pylist([{"key": name, "etag": etag, "size": 9}], LISTED)

    small = landing.small("json", "id int", table, path_column="file")

    assert [tuple(row) for row in small.collect()] == [(1, f"s3://{bucket}/landing/{name}")]


# --- what changed since the plan ------------------------------------------------------------------------


def test_read_raises_error_with_the_key_when_an_object_was_overwritten(landing: Read) -> None:
    landing.put("a.json", b'{"id": 1}')
    landing.put("b é.json", b'{"id": 2}')
    table = landing.plan()
    landing.put("b é.json", b'{"id": 3}')

    with pytest.raises(ChangedObjectError) as caught, typed_fetch_errors():
        landing.small("json", "id int", table).collect()

    assert caught.value.overwritten == ("b é.json",)
    assert caught.value.deleted == ()
    assert "overwritten: 'b é.json'" in str(caught.value)
    assert "on_changed='skip'" in str(caught.value)


def test_read_raises_error_with_the_key_when_an_object_was_deleted_and_rows_are_written(
    landing: Read, tmp_path: Path
) -> None:
    landing.put("a.json", b'{"id": 1}')
    table = landing.plan()
    landing.delete("a.json")

    with pytest.raises(ChangedObjectError) as caught, typed_fetch_errors():
        landing.small("json", "id int", table).write.parquet(f"{tmp_path}/out")

    assert caught.value.deleted == ("a.json",)
    assert str(caught.value.source) == str(landing.location)


def test_read_leaves_changed_objects_out_when_told_to_skip_them(landing: Read) -> None:
    for number in range(4):
        landing.put(f"{number}.json", b'{"id": %d}' % number)
    table = landing.plan()
    landing.put("1.json", b'{"id": 9}')
    landing.delete("2.json")

    small = landing.small("json", "id int", table, on_changed="skip")

    assert sorted(row.id for row in small.collect()) == [0, 3]


def test_next_reads_work_when_spark_kills_a_task_whose_sibling_met_a_changed_object(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    location = Location.parse("s3://bucket/landing/")

    def read(*keys: str) -> int:
        table = pa.Table.from_pylist([{"key": key, "etag": "1", "size": 9} for key in keys], LISTED)
        with typed_fetch_errors():
            reader = SmallFiles(spark, location, "json", client_options={"endpoint_url": bucket.url})
            return reader.read(table, "id int", {}).count()

    with serve_held_bucket() as bucket:
        read("a.json", "b.json")  # starts the workers, so that Spark's monitors of the workers run in step
        with pytest.raises(ChangedObjectError) as caught:
            read("changed.json", "held.json")
        during_the_kill = read("late.json")
        after_the_kill = read("a.json", "b.json")

    assert caught.value.overwritten == ("changed.json",)
    assert bucket.hung_up.is_set()
    assert (during_the_kill, after_the_kill) == (1, 2)


def test_read_gives_the_planned_version_when_the_bucket_keeps_versions(
    spark: Any, s3: Any, bucket: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    landing = Read(spark, f"s3://{bucket}/landing/", s3)
    put = s3.put_object(Bucket=bucket, Key="landing/a.json", Body=b'{"id": 1}')
    planned = {"key": "a.json", "etag": put["ETag"].strip('"'), "version_id": put["VersionId"], "size": 9}
    landing.put("a.json", b'{"id": 2}')
    landing.delete("a.json")

    small = landing.small("json", "id int", pa.Table.from_pylist([planned], LISTED))

    assert [row.id for row in small.collect()] == [1]


# --- refused ----------------------------------------------------------------------------------------------


@ON_DISK
@pytest.mark.parametrize(
    ("format", "schema", "options", "reason"),
    [
        ("parquet", "id int", {}, "the format 'parquet' is not one of json, csv, text"),
        ("json", None, {}, "json needs a schema here"),
        ("csv", "id int", {"multiLine": True}, "csv with multiLine"),
        ("csv", "id int", {"mode": "dropMalformed"}, "the mode DROPMALFORMED"),
        ("csv", "id int", {"header": True, "enforceSchema": False}, "enforceSchema=False"),
        ("json", "id int", {"encoding": "UTF-16"}, "the encoding is not UTF-8"),
    ],
)
def test_read_raises_source_error_when_rows_would_differ_from_sparks(
    landing: Read, format: str, schema: str | None, options: dict[str, Any], reason: str
) -> None:
    landing.put("a", b"1\n")

    with pytest.raises(SourceError) as caught:
        landing.small(format, schema, options=options)

    assert reason in str(caught.value)
    assert "Spark's own reader can: read." in str(caught.value)


@ON_DISK
def test_read_raises_source_error_when_a_folder_column_has_no_type(landing: Read) -> None:
    landing.put("year=2013/a.json", b"{}")

    with pytest.raises(SourceError, match="the schema has no type for: year"):
        landing.small("json", "id int")


@ON_DISK
def test_read_raises_source_error_when_path_column_is_there_already(landing: Read) -> None:
    landing.put("a.json", b"{}")

    with pytest.raises(SourceError, match="have a column 'ID' already"):
        landing.small("json", "id int", path_column="ID")


@ON_DISK
@pytest.mark.parametrize("ending", ["gz", "bz2", "deflate"])
def test_read_raises_source_error_with_the_key_when_a_compressed_file_is_cut_off(landing: Read, ending: str) -> None:
    packs: dict[str, Callable[..., bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "deflate": zlib.compress}
    landing.put(f"cut.{ending}", packs[ending](b'{"id": 1}' * 100)[:-4])

    with pytest.raises(SourceError, match=f"key 'cut.{ending}' cannot be read as {ending}: "), typed_fetch_errors():
        landing.small("json", "id int").collect()
