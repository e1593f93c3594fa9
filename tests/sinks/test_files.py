"""`FileSink`: what readers of a target see, and when."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import InvalidValueError, StagedFilesLostError, TargetError, TargetSchemaError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks import arrow_files
from scripts.helpers.sinks.file_schema import COLUMNS
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.outputs import MANIFEST, NOTE, final_name, mark_of, staging_beside
from scripts.helpers.sinks.places import HadoopPlace, Place
from scripts.helpers.sinks.staging import Staging
from tests.sinks.rights import RIGHTS, refusing, staged_in
from tests.support.reasons import because
from tests.support.staging import FilledSink, staged_by

OTHER = "f" * 32
"""The mark of another job."""
BATCH = BatchId("repairs", "e1", 3)
FILES = {"part-00000-u-c000.csv": b"1\n2\n", "import_date=2026-11-23/part-00001-u-c000.csv": b"3\n"}


@pytest.fixture(params=["directory", "bucket"])
def make(request: pytest.FixtureRequest, tmp_path: Path, s3: Any, bucket: str) -> Callable[..., FilledSink]:
    """Return a function that makes sinks for one target, in a directory or a bucket."""
    target = str(tmp_path / "raw") if request.param == "directory" else f"s3://{bucket}/raw"
    return lambda **options: FilledSink(target, s3_client=s3, **options)


def fill(place: Place, folder: str) -> None:
    for name, data in FILES.items():
        place.write(f"{folder}/{name}", data)
    for hidden in ("_SUCCESS", "_temporary/0/part-00009.csv", ".part-00000-u-c000.csv.crc"):
        place.write(f"{folder}/{hidden}", b"x")


def seen(sink: FileSink) -> list[bytes | None]:
    """Return the contents of the files that readers of the target see."""
    return [sink.target.read(name) for name in sink.visible()]


def left(sink: FileSink) -> list[str]:
    """Return the names of all files that attempts have staged."""
    return [name for name in sink.staging.place.files() if not name.endswith(f"/{NOTE}")]


def test_nothing_is_seen_when_an_attempt_has_staged(make: Callable[..., FilledSink]) -> None:
    sink = make()

    output = sink.stage_files(BATCH, 7, fill)

    assert seen(sink) == []
    assert (output.files, output.bytes, output.version, output.fence) == (2, 6, 3, 7)


def test_each_file_is_seen_once_when_published_as_often_as_one_likes(make: Callable[..., FilledSink]) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)

    sink.publish(output)
    first = sink.visible()
    sink.publish(output)
    sink.clear(output)
    sink.publish(output)

    assert sink.visible() == first
    assert sorted(filter(None, seen(sink))) == [b"1\n2\n", b"3\n"]
    assert sorted(first) == [
        f"import_date=2026-11-23/part-00000-{output.job}-e1-0000000003.csv",
        f"part-00001-{output.job}-e1-0000000003.csv",
    ]
    assert left(sink) == []


def test_record_is_what_was_staged_when_read_back(make: Callable[..., FilledSink]) -> None:
    output = make().stage_files(BATCH, 7, fill)

    assert Output.from_record(output.record() | {"of a later version": 1}, "one", BATCH.job_id) == output
    assert json.loads(json.dumps(output.record())) == output.record()


def test_output_has_no_files_and_replaces_none_when_its_record_has_no_word_of_them(
    make: Callable[..., FilledSink],
) -> None:
    record = make().stage_files(BATCH, 7, fill).record()
    left_out = ("files", "bytes", "batch_folders", "replaces")

    output = Output.from_record({name: record[name] for name in record if name not in left_out}, "one", BATCH.job_id)

    assert (output.files, output.bytes, output.batch_folders, output.replaces) == (0, 0, False, False)


def test_attempts_share_nothing_when_both_stage_one_batch(make: Callable[..., FilledSink]) -> None:
    sink = make()
    first, second = sink.stage_files(BATCH, 7, fill), sink.stage_files(BATCH, 8, fill)

    sink.publish(second)
    sink.clear(second)
    sink.drop(first)

    assert len(seen(sink)) == 2
    assert left(sink) == []


def test_late_file_is_not_seen_when_its_task_ends_after_the_manifest(make: Callable[..., FilledSink]) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)
    sink.staging.place.write(f"{output.folder}/part-00002-u-c000.csv", b"1\n2\n")

    sink.publish(output)
    sink.clear(output)

    assert sorted(filter(None, seen(sink))) == [b"1\n2\n", b"3\n"]
    # On S3 an attempt deletes the files that it listed, and a later run deletes the rest.
    make().sweep(output, [])
    assert left(sink) == []


def test_publication_goes_on_when_another_process_died_half_way(make: Callable[..., FilledSink]) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)
    name = "part-00000-u-c000.csv"
    sink.staging.place.move(
        {f"{output.folder}/{name}": final_name(output, 1, name)}, {f"{output.folder}/{name}": 4}, sink.target
    )

    make().publish(output)

    assert sorted(filter(None, seen(sink))) == [b"1\n2\n", b"3\n"]


class LikeHdfs:
    """A file system of Hadoop whose `rename` returns False if the new name exists, as on HDFS."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def rename(self, old: Any, new: Any) -> bool:
        return not self._system.exists(new) and bool(self._system.rename(old, new))


@pytest.mark.parametrize(
    ("before", "after"), [([1, 1, 1], [1, 2]), ([1, 2], [1, 1, 1]), ([3], [3])], ids=["fewer", "more", "as many"]
)
def test_files_of_an_unsaved_run_are_replaced_on_hdfs_when_its_retry_splits_rows_in_another_way(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[int], after: list[int]
) -> None:
    monkeypatch.setattr(arrow_files, "GROUP", 1)
    monkeypatch.setattr(arrow_files, "FILE_BYTES", 1)  # each chunk becomes a file
    target, staging = (HadoopPlace(f"file://{tmp_path}/{name}", spark) for name in ("raw", "_raw.staging"))
    target._system = staging._system = LikeHdfs(target._system)
    sink = FileSink(str(tmp_path / "raw"))
    sink.target, sink.staging = target, Staging(staging)

    for word, sizes in (("old", before), ("new", after)):
        rows = pa.table({"id": [1, 2, 3], "word": [word] * 3})
        ends = list(accumulate(sizes))
        parts = [rows.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]
        output = staged_by(sink, BatchId("repairs", "pause-jr_1", 1), 0, pa.concat_tables(parts), replaces=True)
        sink.publish(output)
        sink.clear(output)

    found = [row for path in tmp_path.glob("raw/part-*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted((row["id"], row["word"]) for row in found) == [(1, "new"), (2, "new"), (3, "new")]


def test_loss_is_told_when_something_else_emptied_the_staging_place(make: Callable[..., FilledSink]) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)
    sink.staging.place.delete([f"{output.folder}/part-00000-u-c000.csv"])

    with pytest.raises(StagedFilesLostError, match=r"1 staged files of version 3 are gone \(.*part-00000"):
        sink.publish(output)


def test_loss_is_told_when_the_manifest_is_gone_and_the_target_lacks_files(make: Callable[..., FilledSink]) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)
    sink.staging.place.delete([f"{output.folder}/{MANIFEST}"])

    with pytest.raises(StagedFilesLostError, match=rf"version 3 are gone \({MANIFEST}\)") as caught:
        make().publish(output)

    assert caught.value.target == output.target


def test_nothing_is_staged_when_partition_by_names_no_column_of_the_rows(make: Callable[..., FilledSink]) -> None:
    sink = make(partition_by=["day"])

    with pytest.raises(InvalidValueError, match="partition_by names 'day'"):
        staged_by(sink, BATCH, 7, pd.DataFrame({"id": [1]}))

    assert left(sink) == []


def test_rows_without_columns_are_staged_when_the_target_is_partitioned(make: Callable[..., FilledSink]) -> None:
    output = staged_by(make(partition_by=["day"]), BATCH, 7, pd.DataFrame())

    assert (output.rows, output.files, output.replaces) == (0, 0, False)


@pytest.mark.parametrize(("rows", "told"), [(1, "1 row has"), (2, "2 rows have")])
def test_attempt_fails_before_its_manifest_when_rows_were_written_where_nobody_here_sees_them(
    make: Callable[..., FilledSink], rows: int, told: str
) -> None:
    """For example, a Spark Connect server writes to its own disk: the batch would be committed without these rows."""
    sink = make()

    told = rf"{told} been written to .*raw.*, and this process finds no file there"
    with pytest.raises(TargetError, match=told) as caught:
        sink.stage_files(BATCH, 7, lambda place, folder: rows)

    assert (caught.value.target, sink.staging.place.files()) == (sink.staging.place.uri(""), {})


def test_folders_of_attempts_alone_are_found_when_a_file_lies_beside_them(make: Callable[..., FilledSink]) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)
    sink.staging.place.write(f"{output.job}/by-hand.csv", b"4\n")

    assert sink.staged(output.job) == [output.folder]


def test_manifest_is_gone_when_a_folder_can_only_be_dropped_in_part(s3: Any, bucket: str) -> None:
    """If the manifest stayed, the missing files would count as lost."""
    sink = FilledSink(f"s3://{bucket}/raw", s3_client=s3)
    output = sink.stage_files(BATCH, 7, fill)

    with refusing(s3, "ListObjectsV2"), pytest.raises(TargetError, match="s3:ListBucket"):
        sink.drop(output)

    assert sink.staging.listed(output) is None


def test_retraction_leaves_other_batches_when_one_goes(make: Callable[..., FilledSink]) -> None:
    sink = make()
    kept, gone, waiting = (sink.stage_files(BatchId("repairs", "e1", version), 1, fill) for version in (1, 2, 3))
    for output in (kept, gone):
        sink.publish(output)

    retracted = sink.retract(
        Retraction(
            "files", gone.target, gone.staging, gone.job, "e1", 2, 3, datetime(2026, 11, 23, tzinfo=timezone.utc)
        )
    )

    assert retracted == 2
    assert len(sink.published(kept)) == len(seen(sink)) == 2
    assert not any(name.startswith((gone.folder, waiting.folder)) for name in sink.staging.place.files())


def test_batch_has_a_folder_when_asked_for(make: Callable[..., FilledSink]) -> None:
    sink = make(batch_folders=True)

    sink.publish(sink.stage_files(BATCH, 7, fill))

    assert {name.split("/")[0] for name in sink.visible()} == {"batch_id=e1-0000000003"}


def test_layout_stays_when_no_option_is_set(make: Callable[..., FilledSink], caplog: pytest.LogCaptureFixture) -> None:
    sink = make(batch_folders=True)
    sink.publish(sink.stage_files(BATCH, 7, fill))

    make().publish(make().stage_files(BatchId("repairs", "e1", 4), 8, fill))

    assert {name.split("/")[0] for name in sink.visible()} == {"batch_id=e1-0000000003", "batch_id=e1-0000000004"}
    assert "event=batch_folders_kept" in caplog.text


@pytest.mark.parametrize("first", [True, False])
def test_write_is_refused_when_the_target_is_laid_out_in_the_other_way(
    make: Callable[..., FilledSink], first: bool
) -> None:
    sink = make(batch_folders=first)
    sink.publish(sink.stage_files(BATCH, 7, fill))

    with pytest.raises(TargetError, match=f"/raw': batch_folders={not first}"):
        make(batch_folders=not first).stage_files(BatchId("repairs", "e1", 4), 8, fill)

    assert sink.staging.place.files(sink.stage_files(BATCH, 9, fill).job) != {}


def test_files_without_the_mark_of_the_job_stay_when_a_batch_is_published_into_their_folder(
    make: Callable[..., FilledSink],
) -> None:
    sink = make()
    sink.target.write("batch_id=e1-0000000003/part-00000-old.csv", b"1\n2\n")
    sink.target.write("batch_id=e1-0000000002/part-00000-old.csv", b"0\n")

    sink.publish(sink.stage_files(BATCH, 7, fill))

    assert sorted(filter(None, seen(sink))) == [b"0\n", b"1\n2\n", b"1\n2\n", b"3\n"]


def test_write_is_refused_when_the_target_holds_files_of_others(make: Callable[..., FilledSink]) -> None:
    sink = make()
    sink.target.write("_SUCCESS", b"")
    sink.stage_files(BATCH, 7, fill)
    sink.target.write("somebody/part-00000.parquet", b"x")

    with pytest.raises(TargetError, check=because("taken"), match=r"/raw': it holds 'somebody/part-00000\.parquet'"):
        make().stage_files(BATCH, 7, fill)
    beside = make(beside_others=True)
    beside.publish(beside.stage_files(BATCH, 8, fill))

    assert len(seen(sink)) == 3


def test_column_is_refused_when_the_batch_folder_would_hide_it(make: Callable[..., FilledSink]) -> None:
    rows = pa.table({"id": [1], "Batch_Id": [1]})
    with pytest.raises(InvalidValueError, check=because("reserved_name"), match="'batch_id' is a reserved name"):
        make(batch_folders=True).stage_files(BATCH, 7, fill, rows=rows)

    assert make().stage_files(BATCH, 7, fill, rows=rows).files == 2


@pytest.mark.parametrize(
    ("target", "staging", "why"),
    [
        ("s3://raw", None, "is a whole bucket"),
        ("s3://raw/repairs", "s3://other/staging", "bucket 'other'"),
        ("s3://raw/repairs", "/tmp/staging", "another kind of storage"),
        ("s3://raw/repairs", "s3://raw/repairs/_staging", "overlap"),
        ("s3://raw/repairs", "s3://raw", "overlap"),
        ("s3a://raw/repairs", "s3://raw/repairs/staging", "overlap"),
        ("/data/raw", "/data/raw", "overlap"),
    ],
)
def test_sink_is_refused_when_its_paths_do_not_go_together(s3: Any, target: str, staging: str | None, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        FileSink(target, s3_client=s3, staging=staging)


@pytest.mark.parametrize(
    ("target", "staging"),
    [
        ("s3://raw/repairs", "s3://raw/_repairs.staging"),
        ("s3a://raw/a/b", "s3a://raw/a/_b.staging"),
        ("file:///data/raw", "file:///data/_raw.staging"),
        ("s3://raw", ""),
        ("file:///", ""),
    ],
)
def test_staging_place_is_hidden_and_beside_the_target_when_none_is_given(target: str, staging: str) -> None:
    assert staging_beside(target) == staging


def test_sink_is_refused_when_partition_by_is_a_text() -> None:
    with pytest.raises(InvalidValueError, match="partition_by is a list of columns, not 'kind'"):
        FileSink("/data/raw", partition_by="kind")


def test_files_are_published_when_only_the_attempt_itself_has_the_list(make: Callable[..., FilledSink]) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)
    sink.staging.place.delete([f"{output.folder}/{MANIFEST}"])

    sink.publish(output)

    assert sorted(filter(None, seen(sink))) == [b"1\n2\n", b"3\n"]


def test_loss_is_told_when_a_person_took_the_files_back_before_the_attempt_published(
    make: Callable[..., FilledSink],
) -> None:
    sink = make()
    output = sink.stage_files(BATCH, 7, fill)
    retraction = sink.retraction(BATCH.job_id, output.epoch, 3, 3, datetime.now(timezone.utc))
    make().retract(retraction)

    with pytest.raises(StagedFilesLostError, match="version 3 are gone"):
        sink.publish(output)

    assert seen(sink) == []


def test_records_of_earlier_batches_are_deleted_when_those_before_are_swept(
    make: Callable[..., FilledSink],
) -> None:
    sink, kept = make(), []
    for version in range(1, 14):
        recorded = sink.recorded(mark_of(BATCH.job_id))
        output = sink.stage_files(BatchId("repairs", "e1", version), 7, fill)
        sink.publish(output)
        if version % 10 == 0:
            sink.sweep(output, [], recorded)
        kept.append(sink.recorded(output.job))

    assert [len(one.files) for one in kept] == [*range(1, 10), 1, 2, 3, 4]
    assert [one.epochs for one in kept] == [{"e1": version} for version in range(1, 14)]


def test_requests_are_as_documented_when_a_batch_goes_to_s3(own_s3: Any, bucket: str) -> None:
    """docs/cost.md lists the requests of a whole run."""
    sink = FilledSink(f"s3://{bucket}/raw", s3_client=own_s3)
    operations: list[str] = []
    own_s3.meta.events.register("before-call.s3", lambda model, **_: operations.append(model.name))

    output = sink.stage_files(BATCH, 7, lambda _place, _folder: None)
    rights = ["PutObject", "CopyObject", "DeleteObjects"]
    assert operations == ["ListObjectsV2", *rights, "ListObjectsV2", "PutObject"]
    operations.clear()
    sink.drop(output)
    output = sink.stage_files(BATCH, 8, fill)
    operations.clear()
    sink.publish(output)
    assert operations == ["PutObject", "CopyObject", "CopyObject"]
    operations.clear()
    sink.clear(output)
    sink.sweep(output, [])
    assert operations == ["DeleteObjects", "ListObjectsV2"]


@pytest.mark.parametrize(
    ("change", "column", "types"),
    [
        ({"id": ["1"]}, "id", ("string", "bigint")),
        ({"at": [pd.Timestamp("2026-11-23")]}, "at", ("timestamp_ntz", "timestamp")),
    ],
)
def test_rows_are_refused_when_a_column_has_another_type_than_at_the_target(
    make: Callable[..., FilledSink], change: dict[str, Any], column: str, types: tuple[str, str]
) -> None:
    there = {"id": [1], "at": [pd.Timestamp("2026-11-23", tz="UTC")], "note": ["x"]}
    sink = make()
    sink.publish(staged_by(sink, BATCH, 7, pd.DataFrame(there)))
    later = BatchId("repairs", "e1", 4)

    with pytest.raises(TargetSchemaError) as raised:
        staged_by(sink, later, 8, pd.DataFrame(there | change))

    assert (raised.value.target, raised.value.changed) == (sink.name, {column: types})
    assert [name for name in sink.staging.place.files() if "0000000004" in name] == []


def test_rows_are_taken_when_columns_come_go_or_have_no_value(make: Callable[..., FilledSink]) -> None:
    sink = make()
    sink.publish(staged_by(sink, BATCH, 7, pd.DataFrame({"id": [1], "note": ["x"], "kind": pd.Categorical(["a"])})))

    output = staged_by(sink, BatchId("repairs", "e1", 4), 8, pd.DataFrame({"id": [2], "note": [None], "more": [0.5]}))
    again = staged_by(sink, BatchId("repairs", "e1", 5), 9, pd.DataFrame({"id": [2], "kind": ["b"]}))
    indexed = pd.DataFrame({"id": [3]}, index=[7])
    without_index = staged_by(sink, BatchId("repairs", "e1", 6), 9, indexed)

    assert (output.files, again.files, without_index.files) == (1, 1, 1)


def test_rows_of_spark_are_refused_when_a_field_has_another_type(spark: Any, tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "raw"), spark=spark)
    shown = "id AS id, named_struct('at', id, 'tags', array(named_struct('n', id))) AS inner, map('k', id) AS more"
    other = shown.replace("('n', id)", "('n', string(id))").replace("'k', id", "'k', 0.5")
    sink.publish(staged_by(sink, BATCH, 7, spark.sql(f"SELECT {shown} FROM range(2)")))
    fits, changed = spark.sql(f"SELECT {shown}, 1 AS new FROM range(2)"), spark.sql(f"SELECT {other} FROM range(2)")

    staged_by(sink, BatchId("repairs", "e1", 4), 8, fits)
    with pytest.raises(TargetSchemaError) as raised:
        staged_by(sink, BatchId("repairs", "e1", 5), 9, changed)

    assert raised.value.changed == {
        "inner.tags[].n": ("string", "bigint"),
        "more{value}": ("decimal(1,1)", "bigint"),
    }


HAD = "id, string(id) AS note, date'2026-11-23' AS day"


MOVED = {
    "string(id) AS note, id, date'2026-11-23' AS day": "'column 1' is note in the rows and id in the table",
    "id, string(id) AS note, 'x' AS new, date'2026-11-23' AS day": "the table lacks 'new'",
    "id, date'2026-11-23' AS day": "the rows lack 'note'",
    "string(id) AS id, string(id) AS note, date'2026-11-23' AS day": "'id' is string in the rows and bigint",
}


@pytest.mark.parametrize("header", [True, False], ids=["with header", "without header"])
def test_csv_is_refused_when_its_values_would_move_to_other_columns(spark: Any, tmp_path: Path, header: bool) -> None:
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format="csv", partition_by=["day"], header=header)
    sink.publish(staged_by(sink, BATCH, 7, spark.sql(f"SELECT {HAD} FROM range(2)")))
    left = sink.staging.place.files()

    for shown, found in MOVED.items():
        with pytest.raises(TargetSchemaError, match=found):
            staged_by(sink, BatchId("repairs", "e1", 4), 8, spark.sql(f"SELECT {shown} FROM range(2)"))

    assert sink.staging.place.files() == left
    moved = spark.sql("SELECT date'2026-11-23' AS day, id, string(id) AS note FROM range(2)")
    assert staged_by(sink, BatchId("repairs", "e1", 5), 9, moved).files > 0


def test_rows_are_counted_as_they_are_written_when_no_reader_of_csv_would_find_them(spark: Any, tmp_path: Path) -> None:
    """A row without any value is an empty line, which Spark does not read as a row."""
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format="csv")

    output = staged_by(sink, BATCH, 7, spark.sql("SELECT string(NULL) AS note FROM range(2)"))

    assert output.rows == 2


@pytest.mark.parametrize(
    ("zone", "format", "kind", "warns"),
    [
        ("Europe/London", "orc", "timestamp", True), ("UTC", "orc", "timestamp", False),
        ("Europe/London", "orc", "timestamp_ntz", False), ("Europe/London", "parquet", "timestamp", False),
    ],
)  # fmt: skip
def test_job_warns_when_java_in_another_zone_would_read_other_times(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, zone: str, format: str, kind: str, warns: bool
) -> None:
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format=format)
    rows = spark.sql(f"SELECT array(named_struct('at', CAST('2026-06-01 10:00:00' AS {kind}))) AS seen")
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    try:
        zones.setDefault(zones.getTimeZone(zone))
        sink.publish(staged_by(sink, BATCH, 7, rows))
    finally:
        zones.setDefault(before)

    assert ("event=orc_zone" in caplog.text, "zone=Europe/London" in caplog.text) == (warns, warns)


@pytest.mark.parametrize("format", ["json", "orc"])
def test_rows_are_refused_when_a_column_of_another_format_has_another_type(
    spark: Any, tmp_path: Path, format: str
) -> None:
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format=format)
    had = ["id, named_struct('n', id) AS inner", "1.5 AS more, id"]
    for version, rows in enumerate(had, 1):
        sink.publish(staged_by(sink, BatchId("repairs", "e1", version), 7, spark.sql(f"SELECT {rows} FROM range(1)")))
    left = sink.staging.place.files()

    with pytest.raises(
        TargetSchemaError, match=r"'inner.n' is string in the rows and bigint.*'more' is string"
    ) as caught:
        staged_by(sink, BATCH, 8, spark.sql("SELECT id, named_struct('n', 'x') AS inner, 'x' AS more FROM range(1)"))

    assert set(caught.value.changed) == {"inner.n", "more"}
    assert sink.staging.place.files() == left
    assert spark.read.format(format).load(str(tmp_path / "raw")).count() == 2


@pytest.mark.parametrize(
    ("had", "given", "found"),
    [
        ({}, {"header": True}, "'header' is 'true', and 'false' in the files there"),
        ({"sep": ";"}, {"Sep": ",", "compression": "gzip"}, "'sep' is ',', and ';' in the files there"),
        ({"header": "true", "delimiter": "|"}, {"HEADER": True, "sep": "|", "compression": "gzip"}, ""),
    ],
)
def test_csv_is_refused_when_readers_would_need_other_options(
    spark: Any, tmp_path: Path, had: dict[str, Any], given: dict[str, Any], found: str
) -> None:
    before = FileSink(str(tmp_path / "raw"), spark=spark, format="csv", **had)
    before.publish(staged_by(before, BATCH, 7, spark.range(1)))
    left = before.staging.place.files()
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format="csv", **given)

    if found:
        with pytest.raises(TargetError, match=f"/raw': the option {found}"):
            staged_by(sink, BatchId("repairs", "e1", 4), 8, spark.range(1))
        assert sink.staging.place.files() == left
    else:
        assert staged_by(sink, BatchId("repairs", "e1", 4), 8, spark.range(1)).rows == 1


def test_other_columns_are_taken_when_all_of_the_target_was_taken_back(spark: Any, tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format="csv")
    output = staged_by(sink, BATCH, 7, spark.range(2))
    sink.publish(output)
    sink.target.delete(sink.published(output))

    sink.publish(staged_by(sink, BatchId("repairs", "e1", 4), 8, spark.sql("SELECT 'a' AS note, 1 AS id")))
    with pytest.raises(TargetSchemaError, match="the rows lack 'note'"):
        staged_by(sink, BatchId("repairs", "e1", 5), 9, spark.sql("SELECT 1 AS id"))


@pytest.mark.parametrize(
    ("format", "shown", "found"),
    [
        ("csv", "string(id) AS note, id", "'column 1' is note in the rows and id in the table"),
        ("csv", "id, string(id) AS note, 1 AS new", "the table lacks 'new'"),
        ("csv", "id", "the rows lack 'note'"),
        (
            "json",
            "string(id) AS id, id AS note",
            "'id' is string in the rows and number in the table; 'note' is bigint",
        ),
        ("json", "array(id) AS id", "'id' is array in the rows and number in the table"),
    ],
)
def test_texts_are_compared_with_the_newest_file_when_no_hidden_file_remembers_columns(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, format: str, shown: str, found: str
) -> None:
    options: dict[str, Any] = {"header": True, "sep": "|", "compression": "gzip"} if format == "csv" else {}
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format=format, partition_by=["day"], **options)
    # A file of an older batch, whose columns no longer count.
    sink.target.write(f"day=9/part-00000-{OTHER}-e1-0000000002.{format}.gz", b"other")
    day = "date'2026-11-23' AS day"
    sink.publish(staged_by(sink, BATCH, 7, spark.sql(f"SELECT id, string(id) AS note, {day} FROM range(1)")))
    sink.target.delete([COLUMNS])
    caplog.clear()

    with pytest.raises(TargetSchemaError, match=re.escape(found)):
        staged_by(sink, BatchId("repairs", "e1", 4), 8, spark.sql(f"SELECT {shown}, {day} FROM range(1)"))
    for version in (5, 6):
        rows = spark.sql(f"SELECT {day}, id, string(id) AS note FROM range(1)")
        sink.publish(staged_by(sink, BatchId("repairs", "e1", version), 9, rows))

    said = [record.getMessage() for record in caplog.records if "columns_not_remembered" in record.getMessage()]
    # One warning for the rows that are refused, and one for the first rows that are written.
    assert ["Not read: 1 of 2" in text for text in said] == [True, True]


@pytest.mark.parametrize(
    ("format", "options", "line", "unread"),
    [
        ("csv", {}, "a,b", 1),
        ("json", {}, '{"id":1}', 1),
        ("json", {}, '{"id":1,"inner":{"n":1},"note":null,"rate":"NaN"}', 1),
        ("json", {}, '["no object"', 2),
        ("json", {"lineSep": "|"}, '{"id":1}|{"id":"1"}', 1),
    ],
)
def test_rows_are_taken_with_a_warning_when_the_newest_file_does_not_tell_its_columns(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    format: str, options: dict[str, Any], line: str, unread: int,
) -> None:  # fmt: skip
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format=format, **options)
    sink.target.write(f"batch_id=e9-0000000001/part-00000-{OTHER}-e9-0000000001.{format}", b"older")
    sink.target.write(f"batch_id=e1-0000000002/part-00000-{OTHER}-e1-0000000002.{format}", line.encode())
    sink.target.write(f"batch_id=e1-0000000003/part-00000-{OTHER}-e1-0000000003.{format}", b"")
    inner = "named_struct('n', id) AS inner, " if format == "json" else ""
    rows = spark.sql(f"SELECT id, {inner}'x' AS note, 0.5D AS rate FROM range(1)")

    staged_by(sink, BatchId("repairs", "e1", 4), 8, rows)

    assert f"Not read: {unread} of 2. Not checked: " in caplog.text


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("true", {"boolean"}),
        ("1", {"double", "bigint"}),
        ("0.5", {"double", "bigint"}),
        ('"NaN"', {"boolean", "double", "bigint", "string", "array<bigint>", "struct<n:bigint>", "map<string,bigint>"}),
        ('"a"', {"string"}),
        ("[1]", {"array<bigint>"}),
        ('{"n": 1}', {"struct<n:bigint>", "map<string,bigint>"}),
    ],
)
def test_value_of_json_is_taken_for_one_of_the_types_that_spark_writes_so(
    spark: Any, tmp_path: Path, value: str, fits: set[str]
) -> None:
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format="json")
    kinds = ["boolean", "double", "bigint", "string", "array<bigint>", "struct<n:bigint>", "map<string,bigint>"]
    there = ", ".join(f'"c{at}": {value}' for at in range(len(kinds)))
    sink.target.write(f"batch_id=e1-0000000002/part-00000-{OTHER}-e1-0000000002.json", f"{{{there}}}".encode())
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    changed: set[str] = set()

    try:
        staged_by(sink, BATCH, 7, spark.createDataFrame([], columns))
    except TargetSchemaError as error:
        changed |= {name.partition(".")[0].partition("{")[0].partition("[")[0] for name in error.changed}

    assert {kind for at, kind in enumerate(kinds) if f"c{at}" not in changed} == fits


def test_rows_are_refused_when_the_target_has_another_format(spark: Any, tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "raw"))
    sink.publish(staged_by(sink, BATCH, 7, pd.DataFrame({"id": [1]})))

    with pytest.raises(TargetError, match=r"/raw': format='csv', but '\S+' is parquet"):
        staged_by(FileSink(str(tmp_path / "raw"), spark=spark, format="csv"), BATCH, 8, spark.range(1))


def test_nothing_is_compared_when_the_rows_have_no_columns(make: Callable[..., FilledSink]) -> None:
    """A source without new rows returns such a frame."""
    sink = make()
    sink.publish(sink.stage_files(BATCH, 7, fill))

    output = staged_by(make(), BatchId("repairs", "e1", 4), 8, pd.DataFrame())

    assert (output.rows, output.files) == (0, 0)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_no_file_is_written_by_spark_when_the_rows_have_no_columns(spark: Any, tmp_path: Path, format: str) -> None:
    sink = FileSink(str(tmp_path / "raw"), spark=spark, format=format, partition_by=["day"])

    output = staged_by(sink, BATCH, 7, spark.range(0).select())
    sink.publish(output)

    assert (output.rows, output.files, sink.target.files()) == (0, 0, {})


@pytest.mark.parametrize(("action", "named"), RIGHTS)
def test_action_is_named_before_anything_is_staged_when_it_is_not_allowed(
    s3: Any, bucket: str, action: str, named: str
) -> None:
    with refusing(s3, action), pytest.raises(TargetError) as raised:
        staged_by(FileSink(f"s3://{bucket}/raw", s3_client=s3), BATCH, 7, pd.DataFrame({"id": [1]}))

    assert named.format(bucket=bucket) in str(raised.value)
    assert staged_in(s3, bucket) == []


@pytest.mark.parametrize("other", ["a link as target", "staging="])
def test_other_disk_is_named_before_anything_is_staged_when_files_could_not_be_renamed(
    tmp_path: Path, other: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        assert os.stat(memory).st_dev != os.stat(tmp_path).st_dev
        target, elsewhere = tmp_path / "raw", Path(memory, "new")
        if other == "staging=":
            sink = FileSink(str(target), staging=str(elsewhere))
        else:
            target.symlink_to(memory)
            sink = FileSink(str(target))

        with pytest.raises(TargetError, match=r"on another disk.*Give staging="):
            staged_by(sink, BATCH, 7, pd.DataFrame({"id": [1]}))

        assert list(Path(memory).iterdir()) == []
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_directory_is_named_before_anything_is_staged_when_it_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so the answer of the system is faked.
    monkeypatch.setattr("scripts.helpers.sinks.places.os.access", lambda path, _mode: path != str(tmp_path))

    with pytest.raises(
        TargetError, match=rf"/_raw\.staging': write below file://.*: '{tmp_path}' is not writable by this"
    ):
        staged_by(FileSink(str(tmp_path / "raw")), BATCH, 7, pd.DataFrame({"id": [1]}))

    assert list(tmp_path.iterdir()) == []
