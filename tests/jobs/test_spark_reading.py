"""read_files reads exactly the planned files, adds the file as a column, and restores Spark's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import MisfitError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.listing.listing import Location
from scripts.helpers.reading.spark import LISTING_TASKS, TASKS_PER_SLOT, check_folders, read_files
from tests.support.landing import Landing

STRANGE = [
    "a b", "100%25", "50%", "%41", "x+y", "%2B", "[z]", "s*", "{k,l}", "q?", "h#1", "🎉", "é", "back\\slash", "a&b=c",
    "~", "comma,x", "^a-b!", "tilde~'\"<>|`;@$",
]  # fmt: skip


@pytest.fixture(params=["local", "s3a", "s3"])
def landing(request: pytest.FixtureRequest, tmp_path: Path, spark: Any) -> Any:
    """Return an empty source: in a directory, and in S3 as s3a:// and as s3://."""
    if request.param == "local":
        return Read(spark, f"{tmp_path}/landing/")
    return Read(spark, f"{request.param}://{request.getfixturevalue('bucket')}/land é%/", request.getfixturevalue("s3"))


@pytest.fixture
def local(tmp_path: Path, spark: Any) -> Any:
    return Read(spark, f"{tmp_path}/landing/")


class Read(Landing):
    """A place for files that is read by a list of keys."""

    def read(self, keys: list[str], format: str, **options: Any) -> Any:
        return read_files(self.spark, self.location, pa.table({"key": pa.array(keys, pa.string())}), format, **options)


@pytest.fixture
def listing_tasks(spark: Any) -> Any:
    """Return a function that sets the user's value of the setting that `read_files` changes; unset it afterwards."""

    def set_to(value: str | None) -> None:
        if value is None:
            spark.conf.unset(LISTING_TASKS)
        else:
            spark.conf.set(LISTING_TASKS, value)

    yield set_to
    spark.conf.unset(LISTING_TASKS)


# --- the file as a column -------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", "year=2013/sub [x] %2F/"])
def test_path_column_is_the_uri_of_each_rows_file_when_keys_are_strange(landing: Read, folder: str) -> None:
    keys = [f"{folder}{name}.json" for name in STRANGE]
    for number, key in enumerate(keys):
        landing.put(key, b'{"id": %d}' % number)
    landing.put(f"{folder}decoy.json", b'{"id": -1}')

    frame = landing.read(keys, "json", schema="id int", path_column="from file")

    found = {row["id"]: row["from file"] for row in frame.collect()}
    assert found == {number: landing.location.uri(key) for number, key in enumerate(keys)}


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "orc", "text", "binaryFile"])
def test_path_column_is_added_when_format_is(local: Read, spark: Any, tmp_path: Path, format: str) -> None:
    made = tmp_path / "made"
    writer = "text" if format == "binaryFile" else format
    spark.createDataFrame([("one",)], "value string").coalesce(1).write.format(writer).save(str(made))
    (part,) = made.glob("part-*")
    local.put("a b%.file", part.read_bytes())

    frame = local.read(["a b%.file"], format, path_column="file")

    plain = local.read(["a b%.file"], format)
    assert frame.columns == [*plain.columns, "file"]
    assert [row.file for row in frame.collect()] == [local.location.uri("a b%.file")]
    assert frame.drop("file").collect() == plain.collect()


def test_path_column_stays_when_rows_are_joined_and_sorted(local: Read) -> None:
    for key in ("a b", "c+d"):
        local.put(key, b'{"id": 1}\n{"id": 2}\n')

    frame = local.read(["a b", "c+d"], "json", schema="id int", path_column="file")

    joined = frame.join(frame.groupBy("id").count(), "id").orderBy("file", "id")
    assert [(row.file, row["count"]) for row in joined.collect()] == [
        (local.location.uri(key), 2) for key in ("a b", "a b", "c+d", "c+d")
    ]


def test_path_column_is_there_when_nothing_is_planned(local: Read) -> None:
    frame = local.read([], "json", schema="id int", path_column="file")

    assert frame.dtypes == [("id", "int"), ("file", "string")]
    assert frame.collect() == []


def test_read_raises_source_error_when_path_column_is_there_already(local: Read) -> None:
    local.put("a", b'{"File": 1}')

    with pytest.raises(SourceError, match="have a column 'file' already") as caught:
        local.read(["a"], "json", path_column="file")

    assert caught.value.source == str(local.location)


# --- Spark's setting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [None, "10000", "2"])
def test_setting_is_the_users_again_when_files_were_read(
    local: Read, spark: Any, listing_tasks: Any, before: str | None
) -> None:
    local.put("a", b'{"id": 1}')
    unset = spark.conf.get(LISTING_TASKS, None)
    listing_tasks(before)

    local.read(["a"], "json").collect()

    assert spark.conf.get(LISTING_TASKS, None) == (before or unset)


@pytest.mark.parametrize("before", [None, "10000"])
def test_setting_is_the_users_again_when_reading_fails(
    local: Read, spark: Any, listing_tasks: Any, before: str | None
) -> None:
    unset = spark.conf.get(LISTING_TASKS, None)
    listing_tasks(before)

    with pytest.raises(Exception, match=r"PATH_NOT_FOUND|Path does not exist"):
        local.read(["gone"], "json")

    assert spark.conf.get(LISTING_TASKS, None) == (before or unset)


@pytest.mark.parametrize(("before", "tasks"), [(None, None), ("10000", None), ("3", 3)])
def test_paths_are_listed_in_few_tasks_when_there_are_many(
    local: Read, spark: Any, listing_tasks: Any, before: str | None, tasks: int | None
) -> None:
    keys = [f"{number}.json" for number in range(60)]
    for key in keys:
        local.put(key, b"{}")
    listing_tasks(before)
    context = spark.sparkContext
    context.setJobGroup(f"listing-{before}", "listing")

    local.read(keys, "json", schema="id int")

    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(f"listing-{before}")]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    context.setLocalProperty("spark.jobGroup.id", None)
    assert [stage.numTasks for stage in stages] == [tasks or TASKS_PER_SLOT * context.defaultParallelism]


# --- folders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "columns"),
    [
        ([], ()),
        (["a", "b/c"], ()),
        (["year=1/a", "year=2/b"], ("year",)),
        (["x/year=1/day=2/a", "y/year=2/day=3/b"], ("year", "day")),
    ],
)
def test_folder_columns_are_returned_when_all_keys_have_the_same(keys: list[str], columns: tuple[str, ...]) -> None:
    assert check_folders(Location.parse("s3://b/"), keys) == columns


def test_source_error_counts_files_when_folders_give_different_columns() -> None:
    with pytest.raises(SourceError) as caught:
        check_folders(Location.parse("s3://b/"), ["year=1/a", "year=2/b", "c", "d/e", "month=1/f"])

    assert "different columns (files with each: ['month']: 1, ['year']: 2, []: 2)" in str(caught.value)
    assert "and delta.split(folder_columns)." in str(caught.value)


# --- what was read ---------------------------------------------------------------------------------------


def test_delta_knows_that_the_latest_versions_were_read_when_sparks_reader_or_paths_were_used(
    local: Read, spark: Any
) -> None:
    local.put("a.json", b'{"id": 1}')
    delta = FileBookmark(local.location.uri("")).new_files()
    before = set(delta.unpinned)

    next(iter(delta.split(len).values())).read(spark, "json")

    assert (before, delta.unpinned) == (set(), {"read"})


# --- what Spark cannot take -----------------------------------------------------------------------------


def test_read_stops_and_names_the_column_when_a_folder_has_no_value_of_its_type(local: Any) -> None:
    for key in ("zip=007/1.csv", "zip=E8/2.csv"):
        local.put(key, b"1\n")

    with pytest.raises(
        MisfitError, match=r"a folder's value of column 'zip' is not of type (?i:int).*schema="
    ) as caught:
        local.read(["zip=007/1.csv", "zip=E8/2.csv"], "csv", schema="id INT, zip INT")

    assert caught.value.column == "zip"


def test_read_stops_and_says_how_to_go_on_when_parquet_has_nanoseconds(local: Any, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir(exist_ok=True)
    rows = pa.table({"at": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(rows, tmp_path / "landing" / "1.parquet", version="2.6")

    with pytest.raises(SourceError, match=r"NANOS.* Pass nanoseconds='microseconds'"):
        local.read(["1.parquet"], "parquet")
