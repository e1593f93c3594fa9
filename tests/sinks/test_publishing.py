"""A job's output from staging until readers see it: which run publishes it, whatever happens to the attempts."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from datetime import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.errors import (
    FencedError,
    InvalidValueError,
    PlanConflictError,
    TargetError,
    UnpublishedError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.watermarks import Watermarks
from tests.sinks.directory_copy import JOB, DirectoryCopy
from tests.support.outputs import output_of_run
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.steps import KilledError


@pytest.fixture
def world(watermarks: Watermarks, tmp_path: Path) -> DirectoryCopy:
    return DirectoryCopy(watermarks, tmp_path)


def die(*_: Any) -> None:
    raise KilledError


def test_rows_go_to_the_sink_that_the_script_made_when_one_is_given(world: DirectoryCopy) -> None:
    with world.job().__enter__() as job:
        rows = job.rows_since(pd.DataFrame({"id": world.source, "note": "x"}), "id")
        written = job.write(rows, FileSink(str(world.target), partition_by=["id"]))

    assert written == 3
    assert sorted(path.name for path in world.target.glob("*=*")) == ["id=1", "id=2", "id=3"]


def test_option_is_refused_when_the_sink_has_its_own(world: DirectoryCopy) -> None:
    with pytest.raises(InvalidValueError, match="Give it to the sink"), world.job().__enter__() as job:
        rows = job.rows_since(pd.DataFrame({"id": world.source}), "id")
        job.write(rows, FileSink(str(world.target)), partition_by=["id"])

    assert (world.staged, world.watermarks.latest(JOB).plan) == ([], None)


def test_plan_stays_open_to_change_when_a_column_of_partition_by_is_missing(world: DirectoryCopy) -> None:
    with pytest.raises(InvalidValueError, match="partition_by names 'day'"), world.job().__enter__() as job:
        world.stage(job, partition_by=["day"])

    assert world.watermarks.latest(JOB).plan is None


def test_plan_stays_open_to_change_when_a_table_can_never_hold_a_type_of_the_rows(world: DirectoryCopy) -> None:
    with pytest.raises(InvalidValueError, match=r"'at' is of type time64\[us\]"), world.job().__enter__() as job:
        rows = job.rows_since(pd.DataFrame({"id": world.source, "at": time(12, 30)}), "id")
        job.write(rows, str(world.target), format="delta")

    assert world.watermarks.latest(JOB).plan is None


def test_next_run_is_refused_when_a_later_version_staged_what_it_does_not_know(world: DirectoryCopy) -> None:
    run = world.watermarks.begin(JOB, "jr_1")
    run.freeze({"rows": {}}, {"rows": {}})
    run.commit((output_of_run(run, "nowhere", sink="teleporter"),))

    with pytest.raises(InvalidValueError, match="kind 'teleporter'"):
        world.job("jr_2").__enter__()


def test_version_tells_what_it_left_at_the_target_when_it_is_looked_up(world: DirectoryCopy) -> None:
    world.run()

    (entry,) = world.watermarks.history(JOB)
    (output,) = entry.change.outputs
    assert (output.target, output.files, output.version) == (f"file://{world.target}", 1, 1)
    assert world.watermarks.latest(JOB).unpublished == ()


def test_next_run_publishes_before_it_reads_when_a_run_died_after_its_commit(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSink, "publish", die)
    with pytest.raises(KilledError):
        world.run()
    died = world.seen, len(world.watermarks.latest(JOB).unpublished)
    found = world.watermarks.doctor(JOB)
    monkeypatch.undo()

    with IncrementalJob(world.watermarks, JOB, "jr_2"):
        resumed = world.seen

    assert (died, resumed) == (([], 1), [1, 2, 3])
    assert [(finding.kind, finding.detail) for finding in found] == [
        ("unpublished", f"version 1 for file://{world.target}")
    ]
    assert "event=publication_resumed job=repairs version=1" in caplog.text
    world.source = [4]
    world.run("jr_3")
    assert (world.seen, world.staged, world.watermarks.latest(JOB).unpublished) == ([1, 2, 3, 4], [], ())


def test_rows_are_there_once_when_the_older_attempt_goes_on_after_the_newer_has_committed(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture
) -> None:
    older = world.job("jr_1").__enter__()
    rows = older.rows_since(pd.DataFrame({"id": world.source}), "id")
    older.freeze()
    world.run("jr_1")

    with pytest.raises(FencedError):
        older.write(rows, str(world.target))

    assert (world.seen, world.staged) == ([1, 2, 3], [])


def test_loser_publishes_what_the_winner_had_no_time_for_when_it_finds_out(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = world.job("jr_1").__enter__()
    world.stage(older)
    newer = world.job("jr_1").__enter__()
    world.stage(newer)
    monkeypatch.setattr(FileSink, "publish", die)
    with pytest.raises(KilledError):
        newer.commit()
    monkeypatch.undo()

    older.commit()

    assert (world.seen, world.staged) == ([1, 2, 3], [])


def test_staged_folder_goes_when_the_run_fails(world: DirectoryCopy) -> None:
    job = world.job().__enter__()
    world.stage(job)
    staged = len(world.staged)

    job.__exit__(KilledError, KilledError(), None)

    assert (staged, world.staged, world.seen) == (2, [], [])


def test_staged_folder_of_a_dead_attempt_goes_when_a_later_batch_is_published(world: DirectoryCopy) -> None:
    job = world.job("jr_1").__enter__()
    world.stage(job)

    world.run("jr_1")

    assert (world.seen, world.staged) == ([1, 2, 3], [])


@pytest.mark.parametrize("name", ["glue_watermarks_deleted", "Glue_Watermarks_Deleted", "glue_watermarks_row"])
@pytest.mark.parametrize("kind", ["files", "delta", "iceberg", "database"])
def test_rows_are_refused_before_the_plan_is_frozen_when_a_column_has_a_name_of_this_package(
    world: DirectoryCopy, tmp_path: Path, kind: str, name: str
) -> None:
    """Sinks would take such a column for one of their own marks, and leave it out at the target."""
    frame = pd.DataFrame({"id": [1, 2], name: [True, False]})
    target: Any = str(world.target) if kind != "iceberg" else "lake.raw.repairs"
    if kind == "database":
        target = DatabaseSink("repairs", connect=lambda: sqlite3.connect(tmp_path / "shop.db"), name="shop")
    options: dict[str, Any] = {"format": kind} if kind in ("delta", "iceberg") else {}

    with pytest.raises(InvalidValueError, check=because("reserved_name"), match=name.lower()), world.job() as job:
        job.write(job.rows_since(frame, "id"), target, **options)

    assert (world.watermarks.latest(JOB).plan, list(tmp_path.glob("raw*"))) == (None, [])


def test_target_has_the_new_rows_only_when_the_plan_was_discarded_after_the_write(world: DirectoryCopy) -> None:
    """As the text of ChangedObjectError advises. The dropped batch had rows 1 and 2; row 2 has become 22."""
    world.source = [1, 2]
    job = world.job("jr_1").__enter__()
    world.stage(job)
    world.watermarks.discard_plan(JOB, why="2 was wrong")
    world.source = [1, 22]

    world.run("jr_2")

    assert (world.seen, world.staged) == ([1, 22], [])


def test_batch_is_committed_and_the_error_says_so_when_it_cannot_be_published(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sink: FileSink, *_: Any) -> None:
        raise TargetError(sink.target.uri(""), "s3:PutObject: AccessDenied")

    monkeypatch.setattr(FileSink, "publish", refuse)
    with pytest.raises(UnpublishedError, match="version 1 is committed"):
        world.run("jr_1")
    with pytest.raises(UnpublishedError), IncrementalJob(world.watermarks, JOB, "jr_2"):
        raise AssertionError("a run began that left committed rows unseen")
    monkeypatch.undo()

    world.source = [4]
    world.run("jr_3")

    assert (world.seen, world.watermarks.latest(JOB).version) == ([1, 2, 3, 4], 2)


@pytest.mark.parametrize("mode", ["enable", "pause"])
def test_second_commit_publishes_when_the_first_one_could_not(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    def refuse(sink: FileSink, *_: Any) -> None:
        raise TargetError(sink.target.uri(""), "s3:PutObject: AccessDenied")

    with IncrementalJob(world.watermarks, JOB, "jr_1", mode=mode) as job:
        rows = job.rows_since(pd.DataFrame({"id": world.source}), "id")
        job.write(rows, str(world.target.with_name("first")))
        job.write(rows, str(world.target))
        publish = FileSink.publish
        monkeypatch.setattr(
            FileSink, "publish", lambda sink, output: (refuse if "raw" in sink.name else publish)(sink, output)
        )
        for _ in range(2):
            with pytest.raises((UnpublishedError, TargetError)):
                job.commit()
        monkeypatch.undo()
        assert job.commit() == {"enable": "done", "pause": "unsaved"}[mode]

    assert (world.seen, world.staged) == ([1, 2, 3], [])


def test_second_commit_publishes_nothing_when_another_run_has_published(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(sink: FileSink, *_: Any) -> None:
        raise TargetError(sink.target.uri(""), "s3:PutObject: AccessDenied")

    with world.job() as job:
        world.stage(job)
        monkeypatch.setattr(FileSink, "publish", refuse)
        with pytest.raises(UnpublishedError):
            job.commit()
        monkeypatch.undo()
        world.run_with(4)
        caplog.clear()
        assert job.commit() == "done"

    assert (world.seen, [record.getMessage() for record in caplog.records]) == ([1, 2, 3, 4], [])


def test_run_goes_on_and_warns_when_the_staged_folder_cannot_be_cleared(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sink: FileSink, *_: Any) -> None:
        raise TargetError(sink.target.uri(""), "s3:DeleteObject: AccessDenied")

    monkeypatch.setattr(FileSink, "clear", refuse)

    world.run()

    assert world.seen == [1, 2, 3]
    assert "event=staging_left job=repairs" in caplog.text


def test_run_ends_well_and_warns_when_a_person_takes_its_output_back_meanwhile(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = FileSink.publish

    def publish_too_late(sink: FileSink, output: Output) -> None:
        if world.staged:
            world.watermarks.reset(JOB, why="the rows were wrong")
            shutil.rmtree(world.staging)
        publish(sink, output)

    monkeypatch.setattr(FileSink, "publish", publish_too_late)

    world.run()

    assert world.seen == []
    gone = [line for line in caplog.messages if "event=output_gone" in line]
    assert gone == ["event=output_gone job=repairs version=1: an operator retracted it"]


def test_rows_come_once_when_the_job_goes_back_before_a_version_that_nobody_published(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("jr_1")
    monkeypatch.setattr(FileSink, "publish", die)
    world.source = [4]
    with pytest.raises(KilledError):
        world.run("jr_2")
    monkeypatch.undo()
    world.watermarks.rewind(JOB, to_version=1, why="4 was wrong")
    world.source = [5]

    world.run("jr_3")

    assert (world.seen, world.staged) == ([1, 2, 3, 5], [])


@pytest.mark.parametrize("mode", ["pause", "disable"])
def test_retry_replaces_what_it_wrote_when_the_run_saves_nothing(world: DirectoryCopy, mode: Any) -> None:
    world.run("jr_0")
    target = world.target.with_name("by-day")
    for rows in ([7, 8, 9], [7, 8]):
        with IncrementalJob(world.watermarks, JOB, "jr_1", mode=mode) as job:
            frame = pd.DataFrame({"id": rows, "day": rows})
            job.write(job.rows_since(frame, "id"), str(target), partition_by=["day"])

    days = sorted(path.name for path in target.rglob("day=*") if any(path.iterdir()))
    assert days == ["day=7", "day=8"]


@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("landing", "landing/raw", "is below the source"),
        ("landing", "landing", "is below the source"),
        ("landing", "link/raw/", "is below the source"),
        ("link", "other/../landing/raw", "is below the source"),
        ("lake/landing", "lake", "the source .* is below it"),
        ("lake/landing", "lake//", "the source .* is below it"),
        ("link", ".", "the source .* is below it"),
    ],
)
def test_write_is_refused_when_source_and_target_lie_within_each_other(
    world: DirectoryCopy, tmp_path: Path, source: str, target: str, reason: str, format: str
) -> None:
    for folder in ("landing", "lake/landing"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.csv").write_text("id\n1\n")
    (tmp_path / "link").symlink_to(tmp_path / "landing")
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(TargetError, match=reason), world.job() as job:
        rows = job.new_files(f"{tmp_path}/{source}").read_pandas("csv")
        job.new_files(f"{tmp_path}/lake/../landing", transformation_ctx="second")
        job.write(rows, f"{tmp_path}/{target}", format=format)

    assert sorted(tmp_path.rglob("*")) == before
    assert world.watermarks.latest(JOB).plan is None


def test_write_is_refused_when_it_is_staged_below_any_of_its_sources(world: DirectoryCopy, tmp_path: Path) -> None:
    for folder in ("first", "landing"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text("id\n1\n")

    with pytest.raises(TargetError, match="is below the source"), world.job() as job:
        for folder in ("first", "landing"):
            rows = job.new_files(f"{tmp_path}/{folder}", transformation_ctx=folder).read_pandas("csv")
        job.write(rows, str(world.target), staging=str(tmp_path / "landing" / "staging"))

    assert not (tmp_path / "landing" / "staging").exists()


def test_target_is_taken_when_its_name_only_begins_like_that_of_the_source(
    world: DirectoryCopy, tmp_path: Path
) -> None:
    (tmp_path / "ra").mkdir()
    (tmp_path / "ra" / "a.csv").write_text("id\n1\n")

    with world.job() as job:
        job.write(job.new_files(str(tmp_path / "ra")).read_pandas("csv"), str(world.target))

    assert world.seen == [1]


def test_write_is_refused_when_the_target_is_not_ours(world: DirectoryCopy) -> None:
    world.target.mkdir()
    (world.target / "a.parquet").write_bytes(b"x")

    with pytest.raises(TargetError, check=because("taken")):
        world.run()


@pytest.mark.parametrize("columns", ["day", ["week"]])
def test_write_is_refused_when_it_is_to_be_parted_by_no_column(world: DirectoryCopy, columns: Any) -> None:
    with pytest.raises(InvalidValueError, match="partition_by"):
        world.run(partition_by=columns)


VALUES = ["a b", "a/b", "a:b", "50%", "ü", None, "x=y", "{1}"]


@pytest.mark.parametrize("spelled", ["raw/", "./raw", "link"])
def test_second_write_is_refused_when_it_spells_the_target_in_another_way(world: DirectoryCopy, spelled: str) -> None:
    folder = world.target.parent
    (folder / "link").symlink_to(world.target)

    with pytest.raises(PlanConflictError, match=r"was written to .* already"), world.job().__enter__() as job:
        rows = job.rows_since(pd.DataFrame({"id": world.source}), "id")
        job.write(rows[rows["id"] < 3], str(world.target))
        job.write(rows[rows["id"] > 2], f"{folder}/{spelled}")

    assert (world.seen, world.staged) == ([], [])


def test_rows_are_refused_when_readers_pass_over_the_folder_of_their_value(world: DirectoryCopy) -> None:
    rows = pd.DataFrame({"id": [1, 2], "kind": ["a", "b._COPYING_"]})

    told = r"^Target 'file:///.*': a value of partition_by makes the folder 'kind=b\._COPYING_'"
    with pytest.raises(TargetError, match=told), world.job().__enter__() as job:
        job.write(job.rows_since(rows, "id"), str(world.target), partition_by=["kind"])

    assert (world.seen, world.staged) == ([], [])


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "spark"])
def test_rows_are_refused_and_counted_when_readers_would_take_their_empty_text_for_null(
    world: DirectoryCopy, request: pytest.FixtureRequest, kind: str
) -> None:
    values = [(1, 7, "a"), (2, 7, ""), (3, 8, None), (4, 9, "")]
    table = pa.Table.from_pylist([dict(zip(("id", "a.b", "kind"), row, strict=True)) for row in values])
    rows: Any = table.to_pandas() if kind == "pandas" else table
    if kind == "spark":
        rows = request.getfixturevalue("spark").createDataFrame(values, "id long, `a.b` int, kind string")

    with (
        pytest.raises(InvalidValueError, check=because("unfit_partition"), match="'kind': 2 rows have") as caught,
        world.job().__enter__() as job,
    ):
        job.write(job.rows_since(rows, "id"), str(world.target), partition_by=["a.b", "kind"])
    refused = world.seen, world.staged, world.watermarks.latest(JOB).version
    with IncrementalJob(world.watermarks, JOB) as job:
        found = job.rows_since(rows, "id")
        count = job.write(found, str(world.target), partition_by=["a.b"])

    assert (caught.value.column, caught.value.count) == ("kind", 2)
    assert (refused, count, world.seen) == (([], [], 0), 4, [1, 2, 3, 4])


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "spark"])
@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize(
    ("columns", "why"),
    [(["id", "kind"], r"all columns of the rows \(id, kind\)"), (["kind", "kind"], "names 'kind' twice")],
)
def test_rows_are_refused_when_partition_by_leaves_them_no_column_or_names_one_twice(
    world: DirectoryCopy, request: pytest.FixtureRequest, kind: str, format: str, columns: list[str], why: str
) -> None:
    table = pa.table({"id": [1, 2], "kind": ["a", "b"]})
    rows: Any = table.to_pandas() if kind == "pandas" else table
    if kind == "spark":
        spark = request.getfixturevalue("spark_with_tables" if format == "delta" else "spark")
        rows = spark.createDataFrame(table.to_pylist(), "id long, kind string")

    with pytest.raises(InvalidValueError, match=why), world.job().__enter__() as job:
        job.write(job.rows_since(rows, "id"), str(world.target), format=format, partition_by=columns)

    assert (world.seen, world.staged, world.watermarks.latest(JOB).plan) == ([], [], None)


@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([1, 2], "are a list, not a DataFrame"),
        (None, "are a NoneType, not a DataFrame"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "have 2 columns 'id'"),
    ],
)
def test_rows_are_refused_before_the_plan_is_frozen_when_they_are_no_frame_or_have_a_column_twice(
    world: DirectoryCopy, rows: Any, format: str, why: str
) -> None:
    with pytest.raises(InvalidValueError, match=why), world.job().__enter__() as job:
        job.rows_since(pd.DataFrame({"id": world.source}), "id")
        job.write(rows, str(world.target), format=format)

    assert (world.staged, world.watermarks.latest(JOB).plan) == ([], None)


@pytest.mark.parametrize(
    ("rows", "options", "why"),
    [
        (pd.DataFrame({"id": [1j]}), {}, r"for column id .*\. Give one\.$"),
        (pd.DataFrame({"id": [1]}), {"compression": "zap"}, "zap.*check the options compression"),
        (pa.table({"id": [1]}), {"flavour": "gzip"}, "'flavour'.*check the options flavour"),
    ],
)
def test_rows_are_refused_when_pyarrow_does_not_write_them(
    tmp_path: Path, rows: Any, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidValueError, match=why):
        staged_by(FileSink(f"{tmp_path}/raw", **options), BatchId(JOB, "e1", 1), 7, rows)


def test_folders_are_those_of_spark_when_pandas_is_parted_by_a_column(
    world: DirectoryCopy, spark: Any, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"id": range(len(VALUES)), "kind": VALUES})
    spark.createDataFrame(list(zip(range(len(VALUES)), VALUES, strict=True)), "id long, kind string").write.partitionBy(
        "kind"
    ).parquet(str(tmp_path / "by spark"))

    with IncrementalJob(world.watermarks, JOB) as job:
        job.write(job.rows_since(frame, "id"), str(world.target), partition_by=["kind"])

    folders = {path.name for path in world.target.glob("*=*")}
    assert folders == {path.name for path in (tmp_path / "by spark").iterdir() if path.is_dir()}
    found = {(row.id, row.kind) for row in spark.read.parquet(str(world.target)).collect()}
    assert found == set(zip(range(len(VALUES)), VALUES, strict=True))


def test_rows_are_parted_and_read_back_when_spark_writes_them(world: DirectoryCopy, spark: Any) -> None:
    def run(low: int, high: int) -> None:
        rows = spark.range(low, high).selectExpr("id", "date_add(date'2026-11-20', int(id)) AS import_date")
        with IncrementalJob(world.watermarks, JOB) as job:
            job.write(job.rows_since(rows, "id"), str(world.target), partition_by=["import_date"])

    run(0, 3)
    run(2, 5)

    assert sorted(path.name for path in world.target.glob("*=*")) == [
        f"import_date=2026-11-{day}" for day in range(20, 25)
    ]
    assert sorted(row.id for row in spark.read.parquet(str(world.target)).collect()) == [0, 1, 2, 3, 4]


def test_information_of_a_run_is_logged_once_when_it_publishes(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    world.run()

    assert caplog.text.count("event=published job=repairs version=1 files=1") == 1


@pytest.mark.parametrize(("first", "second"), [("t", "t/sub"), ("t/sub", "t"), ("t", "link/sub")])
def test_target_is_refused_when_another_one_of_the_run_is_within_it(
    watermarks: Watermarks, tmp_path: Path, first: str, second: str
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to("t")

    with pytest.raises(TargetError, match="one in the other"), IncrementalJob(watermarks, "parking", "jr_1") as job:
        rows = job.rows_since(pd.DataFrame({"id": [1, 2]}), "id")
        job.write(rows, str(tmp_path / first))
        job.write(rows, str(tmp_path / second))

    assert not list((tmp_path / "t").rglob("*.parquet"))
    with IncrementalJob(watermarks, "parking", "jr_1") as job:
        rows = job.rows_since(pd.DataFrame({"id": [1, 2]}), "id")
        job.write(rows, str(tmp_path / "t"))
        job.write(rows, str(tmp_path / "t2"))
    assert watermarks.latest("parking").version == 1
