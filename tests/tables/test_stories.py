"""What a job without Spark reads of a Delta or Iceberg table, for each turn of its history and each option."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaFiles
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.errors import InvalidValueError, PlanConflictError, SourceError, SourceLostError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks.places import place_of
from scripts.helpers.tables import DeltaTable, IcebergTable
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.steps import KilledError
from tests.support.versioned_tables import DeltaByHand, IcebergByHand, rows_of

Take = Callable[..., list[int]]


@pytest.fixture(params=[DeltaByHand, IcebergByHand], ids=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


@pytest.fixture
def take(watermarks: Watermarks, table: Any) -> Take:
    """Return a function that runs the job once and returns the ids that it reads."""

    def run(**options: Any) -> list[int]:
        with IncrementalJob(watermarks, "sales") as job:
            rows = job.rows_since(options.pop("source", None) or table.source(), **options)
            return sorted(rows["id"].to_list())

    return run


def state_of(watermarks: Watermarks) -> dict[str, Any]:
    return dict(watermarks.get_watermark_values("sales")["rows"])


def test_appended_rows_are_taken_once_when_runs_follow_commits(table: Any, take: Take, watermarks: Watermarks) -> None:
    table.append(1, 2)
    first = take()
    table.append(3)
    table.append(4)
    second, third = take(), take()

    assert (first, second, third) == ([1, 2], [3, 4], [])
    assert state_of(watermarks)["value"] == table.newest
    assert watermarks.history("sales")[1].change.metrics["rows_collected"] == 2


def test_rows_that_were_only_moved_are_not_taken_again_when_a_table_is_compacted(
    tmp_path: Path, watermarks: Watermarks
) -> None:
    table = DeltaByHand(tmp_path)
    table.append(1)
    table.append(2)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
    table.append(3)
    table.compact()

    with IncrementalJob(watermarks, "sales") as job:
        rows = job.rows_since(table.source(returns="arrow"))

    assert rows["id"].to_pylist() == [3]


@pytest.mark.parametrize(
    ("start", "found"), [(None, [1, 2, 3]), ("now", [3]), ("version", [2, 3])], ids=["everything", "now", "a version"]
)
def test_first_run_starts_where_the_user_says_when_there_is_no_watermark(
    table: Any, take: Take, start: Any, found: list[int]
) -> None:
    table.append(1)
    version = table.newest
    table.append(2)

    first = take(start_from=version if start == "version" else start)
    table.append(3)

    assert [*first, *take()] == found


def test_first_rows_are_read_when_the_table_was_empty_at_the_first_run(table: Any, take: Take) -> None:
    first = take(start_from="now")
    table.append(1)
    table.append(2)

    assert (first, take()) == ([], [1, 2])


def test_start_that_is_no_commit_of_the_table_is_refused_when_it_runs_first(table: Any, take: Take) -> None:
    table.append(1)

    with pytest.raises(InvalidValueError, check=because("option"), match="'start_from'"):
        take(start_from=10**15)


@pytest.mark.parametrize("change", ["delete", "overwrite"])
def test_option_decides_about_a_commit_that_removes_rows_when_appends_are_read(
    table: Any, take: Take, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    table.append(1, 2)
    take()
    table.append(3)
    getattr(table, change)(1)
    table.append(4)

    with pytest.raises(SourceError, check=because("rewritten"), match="since the watermark"):
        take()
    with caplog.at_level(logging.WARNING):
        skipped = take(on_overwrite="skip")
    table.delete(4)
    again = take(on_overwrite="take", write_disposition="merge")

    assert skipped[-2:] == [3, 4]
    assert "event=overwrites_skipped" in caplog.text
    assert again == table.ids


def test_expired_start_is_an_error_or_everything_again_when_its_history_is_gone(table: Any, take: Take) -> None:
    table.append(1)
    take()
    for number in (2, 3, 4):
        table.append(number)
    table.expire()

    with pytest.raises(SourceLostError, check=because("expired"), match="on_loss='take'"):
        take()

    assert take(on_loss="take", write_disposition="merge") == [1, 2, 3, 4]
    assert take() == []


def test_files_that_were_vacuumed_are_an_error_or_everything_again_when_they_were_appended(
    tmp_path: Path, watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    table = DeltaByHand(tmp_path)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
    table.append(1)
    table.append(2)
    table.compact()
    table.vacuum()

    with pytest.raises(SourceLostError, check=because("expired")), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
    with IncrementalJob(watermarks, "sales") as job:
        rows = job.rows_since(table.source(), on_loss="take", write_disposition="merge")

    assert sorted(rows["id"]) == [1, 2]
    assert "event=table_reread" in caplog.text


def test_table_that_was_set_back_is_an_error_or_everything_again_when_the_watermark_is_past_it(
    table: Any, take: Take, watermarks: Watermarks
) -> None:
    table.append(1)
    before = table.newest
    table.append(2)
    take()
    table.set_back(before)
    table.append(3)

    with pytest.raises(SourceLostError, check=because("rolled_back"), match="on_loss='take'"):
        take()

    assert take(on_loss="take", write_disposition="merge") == [1, 3]
    assert take() == []


def test_job_goes_on_from_the_last_common_commit_when_the_error_of_a_rollback_names_it(
    tmp_path: Path, watermarks: Watermarks
) -> None:
    table = IcebergByHand(tmp_path)
    table.append(1)
    before = table.newest
    table.append(2)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
    table.set_back(before)
    table.append(3)

    with (
        pytest.raises(SourceLostError, check=because("rolled_back")) as raised,
        IncrementalJob(watermarks, "sales") as job,
    ):
        job.rows_since(table.source())
    watermarks.set_watermark("sales", {"value": raised.value.common}, transformation_ctx="rows", why="rolled back")
    with IncrementalJob(watermarks, "sales") as job:
        rows = job.rows_since(table.source())

    assert raised.value.common == before
    assert list(rows["id"]) == [3]


def test_folder_restored_from_a_copy_is_found_when_its_versions_have_gone_past_the_watermark(
    tmp_path: Path, watermarks: Watermarks
) -> None:
    table = DeltaByHand(tmp_path)
    table.append(1)
    table.append(2)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
    # A copy from before the last commit lacks it; new commits to the copy get the same version numbers again.
    Path(table.path, "_delta_log", f"{table.newest:020d}.json").unlink()
    table.append(3)
    table.append(4)

    with pytest.raises(SourceLostError, check=because("rolled_back")), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())


@pytest.mark.parametrize("table", [IcebergByHand], ids=["iceberg"], indirect=True)
def test_source_has_expired_and_was_not_set_back_when_a_tag_keeps_the_snapshot_that_was_read(
    table: Any, take: Take
) -> None:
    table.append(1)
    take()
    read = table.newest
    table.files.manage_snapshots().create_tag(read, "month_end").commit()
    table.append(2)
    between = table.newest
    table.append(3)
    table.files.maintenance.expire_snapshots().by_ids([between]).commit()

    with pytest.raises(SourceLostError, check=because("expired"), match="on_loss='take'"):
        take()
    assert take(on_loss="take", write_disposition="merge") == [1, 2, 3]


def test_table_made_anew_is_an_error_or_everything_again_when_its_name_is_the_same(table: Any, take: Take) -> None:
    table.append(1)
    table.append(2)
    take()
    table.make()
    table.append(3)

    with pytest.raises(SourceLostError, check=because("replaced"), match="uuid"):
        take()

    assert take(on_loss="take", write_disposition="merge") == [3]
    table.append(4)
    assert take() == [4]


def test_batches_hold_whole_commits_when_their_number_is_limited(table: Any, watermarks: Watermarks) -> None:
    found = []
    for number in range(6):
        table.append(2 * number, 2 * number + 1)
        if number == 0:
            with IncrementalJob(watermarks, "sales") as job:
                job.rows_since(table.source(), max_versions=2)
                assert not job.has_more

    has_more = True
    while has_more:
        with IncrementalJob(watermarks, "sales") as job:
            found.append(sorted(job.rows_since(table.source(), max_versions=2)["id"]))
            has_more = job.has_more

    assert found == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11]]


def test_replay_reads_the_same_rows_when_the_run_died_and_the_table_has_moved_on(
    table: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    table.append(1)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
    table.append(2)
    with pytest.raises(KilledError), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
        job.freeze()
        raise KilledError
    table.append(3)
    table.delete(2)

    with IncrementalJob(watermarks, "sales") as job:
        replayed = sorted(job.rows_since(table.source())["id"])
    with pytest.raises(SourceError, check=because("rewritten")), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())

    assert replayed == [2]


def test_replay_is_refused_when_what_its_plan_takes_has_expired(table: Any, watermarks: Watermarks) -> None:
    table.append(1)
    with pytest.raises(KilledError), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
        job.freeze()
        raise KilledError
    table.overwrite(2)
    table.expire()
    if isinstance(table, DeltaByHand):
        table.vacuum()

    with (
        pytest.raises(SourceLostError, check=because("expired_plan"), match="discard-plan sales"),
        IncrementalJob(watermarks, "sales") as job,
    ):
        job.rows_since(table.source())
    watermarks.discard_plan("sales", why="expired")
    with IncrementalJob(watermarks, "sales") as job:
        rows = job.rows_since(table.source())

    assert list(rows["id"]) == [2]


def test_replay_is_refused_when_the_table_was_made_anew(table: Any, watermarks: Watermarks) -> None:
    table.append(1)
    with pytest.raises(KilledError), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
        job.freeze()
        raise KilledError
    table.make()
    table.append(2)

    with pytest.raises(PlanConflictError, match="uuid"), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())


def test_feed_is_refused_without_spark_when_the_table_or_the_reader_keeps_none(
    table: Any, take: Take, watermarks: Watermarks
) -> None:
    table.append(1)
    take()
    if isinstance(table, DeltaByHand):
        table.files.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    table.append(2)

    with pytest.raises(SourceError, check=because("change_feed"), match="changes='append'"):
        take(changes="feed")

    assert watermarks.latest("sales").plan is None
    assert take() == [2]


def test_appended_rows_have_all_columns_when_they_are_of_partitions_and_of_older_files(
    watermarks: Watermarks, tmp_path: Path
) -> None:
    path, day = f"{tmp_path}/days", datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    rows = pa.table(
        {"id": pa.array([1], pa.int32()), "day": [day.date()], "at": pa.array([day], pa.timestamp("us", "UTC"))}
    )
    write_deltalake(path, rows, partition_by=["day", "at"])
    write_deltalake(path, rows, mode="append")
    write_deltalake(path, rows.append_column("note", pa.array(["x"])), mode="append", schema_mode="merge")

    with IncrementalJob(watermarks, "days") as job:
        found = job.rows_since(DeltaTable(path, returns="arrow"), start_from=0)

    first = {"id": 1, "day": day.date(), "at": day}
    assert sorted(found.to_pylist(), key=lambda row: row["note"] or "") == [
        {**first, "note": None}, {**first, "note": "x"},
    ]  # fmt: skip
    assert found.schema == pa.schema(DeltaFiles(path).schema().to_arrow())


VECTOR = '"deletionVector":{"storageType":"u","pathOrInlineDv":"x","offset":1,"sizeInBytes":1,"cardinality":1}'
FEED = '"delta.enableChangeDataFeed":"true"'


@pytest.mark.parametrize(
    ("version", "text", "replaced", "told"),
    [
        (1, '{"add":{', f'{{"add":{{{VECTOR},', "deletionVectors"),
        (1, '"path":"', '"path":"file:///original/', "files outside its folder, as a shallow clone has them"),
        (0, FEED, f'{FEED},"delta.columnMapping.mode":"NAME"', "columnMapping"),
    ],
    ids=["deletion vectors", "shallow clone", "column mapping"],
)
def test_appended_rows_are_read_by_spark_only_when_files_do_not_hold_them_as_they_are(
    watermarks: Watermarks, tmp_path: Path, version: int, text: str, replaced: str, told: str
) -> None:
    table = DeltaByHand(tmp_path)
    table.append(1)
    log = Path(table.path, "_delta_log", f"{version:020d}.json")
    assert text in log.read_text()
    log.write_text(log.read_text().replace(text, replaced))

    with pytest.raises(SourceError) as raised, IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source(), start_from=0)

    assert str(raised.value) == (
        f"Source {table.name!r}: appended rows of a table with {told} are read by Spark only. Give spark=."
    )


def test_table_in_a_bucket_is_read_by_the_login_of_its_client_when_it_is_given(
    watermarks: Watermarks, s3: Any, bucket: str
) -> None:
    place: Any = place_of(f"s3://{bucket}/sales", None, s3)
    login = {**place.login(), "aws_conditional_put": "etag"}
    for number in (1, 2):
        write_deltalake(
            f"s3://{bucket}/sales", rows_of((number,)), mode="append", storage_options=login, partition_by=["kind"]
        )

    with IncrementalJob(watermarks, "sales") as job:
        rows = job.rows_since(DeltaTable(f"s3a://{bucket}/sales/", s3_client=s3, returns="arrow"), start_from=0)

    assert rows.to_pylist() == [{"id": 2, "kind": "k2"}]
    assert f'"folder":"s3://{bucket}/sales"' in state_of(watermarks)["source"]


def test_context_of_rows_is_not_taken_for_one_of_a_table_when_the_source_changes(
    table: Any, take: Take, watermarks: Watermarks
) -> None:
    table.append(1)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(_frame(table), "id")

    with pytest.raises(SourceError, check=because("changed"), match="a source of kind rows"):
        take()
    watermarks.reset("sales", why="by its versions now")
    take()
    with (
        pytest.raises(SourceError, check=because("changed"), match="a source of kind table"),
        IncrementalJob(watermarks, "sales") as job,
    ):
        job.rows_since(_frame(table), "id")


def _frame(table: Any) -> Any:
    found = table.files.to_pyarrow_table() if isinstance(table, DeltaByHand) else table.files.scan().to_arrow()
    return found.to_pandas()


def test_lists_and_maps_of_structs_stay_null_or_empty_when_pyiceberg_reads_a_table(
    tmp_path: Path, watermarks: Watermarks
) -> None:
    inner = pa.struct([("n", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("many", pa.list_(inner)), ("by_name", pa.map_(pa.string(), inner))])
    rows = [
        {"id": 1, "many": None, "by_name": None},
        {"id": 2, "many": [], "by_name": []},
        {"id": 3, "many": [None, {"n": 1}], "by_name": [("a", {"n": None})]},
    ]
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("raw")
    file = f"{tmp_path}/rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    catalog.create_table("raw.sales", schema).add_files([file])

    with IncrementalJob(watermarks, "sales") as job:
        found = job.rows_since(IcebergTable("lake.raw.sales", catalog=catalog, returns="arrow"))

    assert found.to_pylist() == rows
