"""FileDelta.read with real Spark reads exactly the files of the delta, whatever their names."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from moto.s3.models import S3Backend

from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.listing.paths import folder_columns, is_hidden
from tests.support.places import REGION

STRANGE_NAMES = [
    "a b.json",
    "100%25.json",
    "50%.json",
    "x+y.json",
    "[z].json",
    "s*.json",
    "{k,l}.json",
    "q?.json",
    "h#1.json",
    "🎉.json",
    "é.json",
    "comma,x.json",
    "^a-b!.json",
    "back\\slash.json",
]
DECOYS = ["sx.json", "z.json", "k.json", "qq.json", "h", "100%.json", "x y.json"]
"""Files that Spark would read instead if it took a strange name for a glob or an escape."""

SCHEMA = "id BIGINT, name STRING"
CONTENTS = {
    "csv": "id,name\n1,one\n2,two\n",
    "json": '{"id": 1, "name": "one"}\n{"id": 2, "name": "two"}\n',
    "text": "1 one\n2 two\n",
}


@pytest.fixture(params=["local", "s3a"])
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return an empty source for FileBookmark: once in a directory, once in S3."""
    if request.param == "local":
        return Local(tmp_path / "landing")
    return Bucket(request.getfixturevalue("s3"), request.getfixturevalue("bucket"), request.param)


class Local:
    """A landing directory."""

    client = None

    def __init__(self, root: Path) -> None:
        self.root, self.source = root, f"file://{root}/"
        root.mkdir()

    def put(self, key: str, body: str | bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body.encode() if isinstance(body, str) else body)


class Bucket:
    """A landing prefix of a bucket."""

    def __init__(self, client: Any, bucket: str, scheme: str) -> None:
        self.client, self.bucket, self.source = client, bucket, f"{scheme}://{bucket}/landing/"

    def put(self, key: str, body: str | bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"landing/{key}", Body=body)


def take(landing: Any, **options: Any) -> FileDelta:
    return FileBookmark(landing.source, s3_client=landing.client, **options).new_files()


def take_only(landing: Any, *keys: str) -> FileDelta:
    delta = take(landing)
    return FileDelta(delta.location, delta.table.filter(pc.is_in(delta.table.column("key"), pa.array(keys))))


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


# --- formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landing", ["local"], indirect=True)  # Formats do not depend on where the file is.
@pytest.mark.parametrize(
    ("format", "options", "expected"),
    [
        ("csv", {"header": True, "inferSchema": True}, [(1, "one"), (2, "two")]),
        ("csv", {"header": True, "schema": "id int, name string"}, [(1, "one"), (2, "two")]),
        ("csv", {}, [("1", "one"), ("2", "two"), ("id", "name")]),
        ("json", {}, [(1, "one"), (2, "two")]),
        ("json", {"schema": "name string"}, [("one",), ("two",)]),
        ("text", {}, [("1 one",), ("2 two",)]),
    ],
    ids=["csv-header", "csv-schema", "csv-plain", "json", "json-schema", "text"],
)
def test_read_gives_rows_of_new_file_when_format_is_text(
    spark: Any, landing: Any, format: str, options: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    landing.put("new", CONTENTS[format])
    landing.put("old", CONTENTS[format].replace("one", "old"))

    frame = take_only(landing, "new").read(spark, format, **options)

    assert rows(frame) == expected


def test_read_gives_rows_of_new_file_when_format_is_parquet(spark: Any, landing: Any) -> None:
    made = pd.DataFrame({"id": [0, 1, 2]}).to_parquet(index=False)
    landing.put("new.parquet", made)
    landing.put("old.parquet", made)

    frame = take_only(landing, "new.parquet").read(spark, "parquet")

    assert rows(frame) == [(0,), (1,), (2,)]


def test_read_gives_rows_of_every_file_once_when_there_are_more_than_spark_lists_serially(
    spark: Any, landing: Any
) -> None:
    for number in range(33):
        landing.put(f"{number}.json", json.dumps({"id": number}))

    frame = take(landing).read(spark, "json", schema="id int")

    assert rows(frame) == [(number,) for number in range(33)]


@pytest.mark.parametrize("header", ["id,name", "naïve,name", "na`me"])
def test_files_with_a_header_are_read_when_the_first_file_has_none(spark: Any, landing: Any, header: str) -> None:
    first, *more = header.split(",")
    line = ",".join(["1", *more])
    landing.put("day=5/1.csv", "\n")
    for number in (2, 3):
        landing.put(f"day=5/{number}.csv", f"{header}\n{line}\n")
    schema = ", ".join(f"`{name.replace('`', '``')}` string" for name in (first, *more))

    found = take(landing).read(spark, "csv", header=True, schema=schema).collect()

    assert [row[first] for row in found] == ["1", "1"]
    assert [row[name] for row in found for name in more] == more * 2


# --- keys ---------------------------------------------------------------------------------------------


def test_read_gives_the_file_of_the_key_when_key_is_strange(spark: Any, landing: Any) -> None:
    for key in [*STRANGE_NAMES, *DECOYS]:
        landing.put(key, json.dumps({"key": key}))

    frame = take_only(landing, *STRANGE_NAMES).read(spark, "json", schema="key string")

    assert rows(frame) == [(name,) for name in sorted(STRANGE_NAMES)]


def test_read_gives_the_file_of_the_key_when_key_has_control_characters(spark: Any, tmp_path: Path) -> None:
    landing, names = Local(tmp_path / "landing"), ["new\nline.json", "return\r.json", "tab\t.json"]
    for name in [*names, "newline.json"]:
        landing.put(name, json.dumps({"key": name}))

    frame = take_only(landing, *names).read(spark, "json", schema="key string")

    assert rows(frame) == [(name,) for name in names]


FOLDERS_WITH_SIGNS = ["sub [x]/", "s*b/", "{a,b}/", "back\\slash/", "year=[2013]/"]


@pytest.fixture(scope="module")
def keys_in_folders(spark: Any, s3: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[str]]:
    """Return a function that reads strange and plain keys of all folders at once, and returns those of one folder."""
    names = [*STRANGE_NAMES, *DECOYS]

    @functools.cache
    def parts(kind: str) -> dict[tuple[str, ...], FileDelta]:
        landing: Any = Local(tmp_path_factory.mktemp("folders") / "landing")
        if kind == "s3a":
            s3.create_bucket(Bucket="keys-in-folders", CreateBucketConfiguration={"LocationConstraint": REGION})
            landing = Bucket(s3, "keys-in-folders", kind)
        for folder in FOLDERS_WITH_SIGNS:
            for name in names:
                landing.put(f"{folder}{name}", json.dumps({"key": f"{folder}{name}"}))
        # Folders that make a column cannot be read together with others.
        return take(landing).split(folder_columns)

    @functools.cache
    def read(kind: str, columns: tuple[str, ...]) -> list[str]:
        return [row.key for row in parts(kind)[columns].read(spark, "json", schema="key string").collect()]

    def of_folder(kind: str, folder: str) -> list[str]:
        found = read(kind, folder_columns(folder))
        return sorted(key.removeprefix(folder) for key in found if key.startswith(folder))

    return of_folder


@pytest.mark.parametrize("folder", FOLDERS_WITH_SIGNS)
@pytest.mark.parametrize("kind", ["local", "s3a"])
def test_read_gives_each_file_once_when_strange_and_plain_keys_are_read_together(
    keys_in_folders: Callable[[str, str], list[str]], kind: str, folder: str
) -> None:
    assert keys_in_folders(kind, folder) == sorted([*STRANGE_NAMES, *DECOYS])


def test_read_gives_the_file_of_the_key_when_an_s3_key_has_a_colon(spark: Any, s3: Any, bucket: str) -> None:
    landing = Bucket(s3, bucket, "s3a")
    landing.put("12:30.json", '{"key": 1}')
    landing.put("at 12:30/a.json", '{"key": 2}')

    frame = take(landing).read(spark, "json")

    assert rows(frame) == [(1,), (2,)]


def test_new_files_raises_source_error_when_a_local_file_name_has_a_colon(tmp_path: Path) -> None:
    landing = Local(tmp_path / "landing")
    landing.put("sub/12:30.json", "{}")

    with pytest.raises(SourceError) as caught:
        take(landing)

    assert caught.value.source == landing.source
    assert "key 'sub/12:30.json' has a colon, which Hadoop cannot read locally, so" in str(caught.value)
    assert "Rename the object." in str(caught.value)


# --- nothing new ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "columns"), [(None, []), ("id int, name string", [("id", "int"), ("name", "string")])]
)
def test_read_gives_no_rows_when_delta_is_empty(spark: Any, landing: Any, schema: str | None, columns: Any) -> None:
    delta = take(Local(Path(landing.source[7:]).parent / "empty") if isinstance(landing, Local) else landing)

    frame = delta.read(spark, "csv", schema=schema, header=True)

    assert frame.dtypes == columns
    assert frame.count() == 0


# --- folders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_read_is_refused_when_spark_would_leave_out_what_it_cannot_read(spark: Any, tmp_path: Path, name: str) -> None:
    landing = Local(tmp_path / "landing")
    landing.put("good.json", '{"id": 1}')
    session = spark.newSession()
    delta = take(landing)

    with pytest.raises(InvalidValueError, match=f"option {name} is true.* they would count as taken"):
        delta.read(session, "json", **dict[str, Any]({name.lower(): True}))
    session.conf.set(f"spark.sql.files.{name}", "true")
    with pytest.raises(InvalidValueError, match=f"spark.sql.files.{name} is true"):
        delta.read(session, "json")
    session.conf.set(f"spark.sql.files.{name}", "false")

    assert rows(delta.read(session, "json")) == [(1,)]


def test_read_makes_columns_of_folders_when_they_are_called_name_equals_value(spark: Any, landing: Any) -> None:
    landing.put("year=2013/month=2/a.json", '{"id": 1}')
    landing.put("year=2014/month=1/b.json", '{"id": 2}')

    frame = take(landing).read(spark, "json")

    assert rows(frame.select("id", "year", "month")) == [(1, 2013, 2), (2, 2014, 1)]


def test_read_makes_columns_of_folders_when_only_one_file_is_new(spark: Any, landing: Any) -> None:
    landing.put("year=2013/a.json", '{"id": 1}')
    landing.put("year=2014/b.json", '{"id": 2}')

    frame = take_only(landing, "year=2014/b.json").read(spark, "json", schema="id int, year int")

    assert rows(frame) == [(2, 2014)]


@pytest.mark.parametrize("other", ["b.json", "plain/b.json", "month=1/b.json", "year=2013/month=1/b.json"])
def test_read_raises_source_error_when_folders_give_different_columns(spark: Any, tmp_path: Path, other: str) -> None:
    landing = Local(tmp_path / "landing")
    landing.put("year=2013/a.json", '{"id": 1}')
    landing.put(other, '{"id": 2}')
    delta = take(landing)

    with pytest.raises(SourceError) as caught:
        delta.read(spark, "json")

    assert caught.value.source == landing.source
    assert "['year']: 1" in str(caught.value)
    assert "and delta.split(folder_columns)." in str(caught.value)
    assert sum(part.read(spark, "json").count() for part in delta.split(folder_columns).values()) == 2


# --- parity with what Spark lists ---------------------------------------------------------------------

NAMES = [
    "seen",
    "_SUCCESS",
    ".x",
    "a._COPYING_",
    "_a",
    "_a=b",
    "a_b",
    ".a=b",
    "_metadata",
    "_metadata_x",
    "_common_metadata",
    "._COPYING_",
    "a.b",
]
FOLDERS = [
    "", "sub", "_temporary", ".hive", "_a=1", "_metadata_dir", "sub/_common_metadata", "x._COPYING_", "sub/_tmp",
]  # fmt: skip


@pytest.mark.parametrize("key", ["dir_$folder$", "sub/dir_$folder$", "sub/"])
def test_key_is_hidden_when_it_marks_an_empty_folder(key: str) -> None:
    assert is_hidden(key)


def test_delta_has_and_reads_what_spark_reads_when_a_tree_has_hidden_files(spark: Any, tmp_path: Path) -> None:
    landing = Local(tmp_path / "landing")
    keys = [f"{folder}/{name}".lstrip("/") for folder in FOLDERS for name in NAMES if f"{folder}/{name}" not in FOLDERS]
    for key in keys:
        landing.put(key, key)
    expected = sorted(row[0] for row in spark.read.option("recursiveFileLookup", True).text(landing.source).collect())
    parts = take(landing).split(folder_columns).values()

    found = [row.value for part in parts for row in part.read(spark, "text").select("value").collect()]

    assert sorted(found) == sorted(key for key in keys if not is_hidden(key)) == expected
    assert not [value for value in found if re.search(r"_SUCCESS|_temporary|_tmp|hive", value)]


@pytest.mark.parametrize(
    ("format", "schema", "times"),
    [("json", None, 2), ("csv", None, 3), ("json", SCHEMA, 1), ("csv", SCHEMA, 1)],
    ids=["json", "csv", "json by schema", "csv by schema"],
)
def test_spark_lists_each_file_again_when_it_has_to_infer_types(
    s3: Any, bucket: str, spark: Any, monkeypatch: pytest.MonkeyPatch, format: str, schema: str | None, times: int
) -> None:
    """Spark lists once for the columns, once for the rows, and for CSV once more for the lines to infer types from."""
    landing, listed = Bucket(s3, bucket, "s3a"), Counter[str]()
    for number in range(2):
        landing.put(f"{number}.{format}", CONTENTS[format].replace("id,name\n", ""))
    delta = FileBookmark(landing.source, s3_client=s3).new_files()
    list_objects: Callable[..., Any] = S3Backend.list_objects_v2

    def counted(self: Any, *given: Any, prefix: str, **more: Any) -> Any:
        listed[prefix.removeprefix("landing/")] += 1
        return list_objects(self, *given, prefix=prefix, **more)

    monkeypatch.setattr(S3Backend, "list_objects_v2", counted)

    frame = delta.read(spark, format, schema=schema)

    assert frame.count() == 4
    assert (listed[f"0.{format}/"], listed[f"1.{format}/"]) == (times, times)
