"""IncrementalJob end to end, with and without Spark: plan, write, commit, and the same again after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest

from scripts.helpers.batch.batch import METRICS
from scripts.helpers.errors import (
    CommitUnknownError,
    FencedError,
    InvalidValueError,
    PlanConflictError,
    SourceError,
    UnknownJobError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.steps import KilledError

JOB = "parking"


class Load:
    """One job that loads a growing table of repairs and a growing landing directory into a target.

    Rows are pandas rows when there is no Spark.
    """

    def __init__(self, spark: Any, watermarks: Watermarks, clock: Any, root: Path) -> None:
        self.spark, self.watermarks, self.clock, self.root = spark, watermarks, clock, root
        self.last_id = 0
        self.landing, self.target = root / "landing", root / "target"
        self.landing.mkdir()

    def grow(self, rows: int = 1) -> None:
        self.last_id += rows

    def land(self, *names: str) -> None:
        for name in names:
            (self.landing / name).write_text(f'{{"file": "{name}"}}\n')

    def job(self, run_id: str | None = None, **options: Any) -> IncrementalJob:
        return IncrementalJob(self.watermarks, JOB, run_id, spark=self.spark, **({"clock": self.clock} | options))

    def repairs(self, job: IncrementalJob, context: str = "repairs") -> Any:
        ids = range(1, self.last_id + 1)
        rows = pd.DataFrame({"id": ids}) if self.spark is None else self.spark.range(1, self.last_id + 1)
        return job.rows_since(rows, "id", transformation_ctx=context)

    def run(self, *, die: bool = False) -> tuple[list[int], list[str]]:
        """Run the job over both sources; return what it took. `die` kills the run after the writes."""
        with self.job() as job:
            repairs, files = self.repairs(job), job.new_files(str(self.landing), transformation_ctx="files")
            job.write(repairs, f"{self.target}/repairs")
            if self.spark is None:
                job.write(files.read_pandas("json"), f"{self.target}/files")
            else:
                job.write(files.read(self.spark, "json", schema="file string"), f"{self.target}/files")
            if die:
                raise KilledError
            taken = list(repairs.id) if self.spark is None else [row.id for row in repairs.collect()]
            return sorted(taken), [file.key for file in files.files]

    def written(self, name: str = "repairs") -> list[tuple[Any, ...]]:
        return sorted(tuple(row)[:1] for row in self.spark.read.parquet(f"{self.target}/{name}").collect())

    def files(self, name: str = "repairs") -> list[Path]:
        """Return the files of a target that its readers see."""
        return sorted(path for path in (self.target / name).rglob("part-*") if path.is_file())

    @property
    def version(self) -> int:
        return self.watermarks.latest(JOB).version


@pytest.fixture
def load(request: pytest.FixtureRequest, watermarks: Watermarks, clock: Any, tmp_path: Path) -> Load:
    spark = request.getfixturevalue("spark") if getattr(request, "param", "") == "spark" else None
    return Load(spark, watermarks, clock, tmp_path)


ON_SPARK = pytest.mark.parametrize("load", ["spark"], indirect=True)
"""For tests that need Spark. Plans, contexts and leases behave the same without it."""


def kill_after_write(load: Load) -> None:
    with pytest.raises(KilledError):
        load.run(die=True)


# --- one run after the other -----------------------------------------------------------------------------


@ON_SPARK
def test_each_row_and_file_is_written_once_when_sources_grow_and_a_run_dies_after_its_writes(load: Load) -> None:
    load.grow(3)
    load.land("a.json", "b.json")
    taken = [load.run()]
    written = {path: path.stat().st_mtime_ns for path in [*load.files(), *load.files("files")]}
    values = load.watermarks.get_watermark_values(JOB)
    load.grow(2)
    load.land("c.json")
    kill_after_write(load)
    seen, version = [*load.files(), *load.files("files")], load.version
    load.grow(1)
    load.land("0.json")

    taken += [load.run() for _ in range(3)]

    assert (values["repairs"]["value"], [part["count"] for part in values["files"]["segments"]]) == (4, [2])
    assert (seen, version) == (list(written), 1)
    assert taken == [([1, 2, 3], ["a.json", "b.json"]), ([4, 5], ["c.json"]), ([6], ["0.json"]), ([], [])]
    assert load.version == 4
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert load.written() == [(number,) for number in range(1, 7)]
    assert load.written("files") == [(name,) for name in ("0.json", "a.json", "b.json", "c.json")]
    counts = [entry.change.metrics for entry in load.watermarks.history(JOB)]
    assert [(one.get("rows_written", 0), one["files_read"]) for one in counts] == [(0, 0), (2, 1), (3, 1), (5, 2)]


def test_run_warns_that_it_reads_everything_when_it_is_the_first(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load.run()
        load.run()

    assert [record.levelname for record in caplog.records if "event=first_run" in record.getMessage()] == ["WARNING"]


def test_run_leaves_the_other_context_as_it_was_when_it_asks_for_one_only(load: Load) -> None:
    load.grow(1)
    load.land("a.json")
    load.run()
    load.grow(1)
    with load.job() as job:
        load.repairs(job)

    taken = load.run()

    assert taken == ([], [])
    assert load.version == 3


@ON_SPARK
def test_run_keeps_batches_apart_when_source_and_target_are_in_s3(load: Load, s3: Any, bucket: str, spark: Any) -> None:
    def run() -> int:
        with load.job(s3_client=s3) as job:
            delta = job.new_files(f"s3a://{bucket}/landing/", transformation_ctx="parking")
            rows = delta.read(spark, "json", schema="file string")
            return job.write(rows, f"s3a://{bucket}/raw/", batch_folders=True)

    s3.put_object(Bucket=bucket, Key="landing/a [1]+%20.json", Body=b'{"file": "a"}')
    first = run()
    s3.put_object(Bucket=bucket, Key="landing/b.json", Body=b'{"file": "b"}\n{"file": "c"}')
    second = run()

    epoch = load.watermarks.latest(JOB).epoch
    found = spark.read.parquet(f"s3a://{bucket}/raw/").collect()
    assert (first, second) == (1, 2)
    assert sorted((row.file, row.batch_id) for row in found) == [
        ("a", f"{epoch}-0000000001"),
        ("b", f"{epoch}-0000000002"),
        ("c", f"{epoch}-0000000002"),
    ]


# --- what is counted -----------------------------------------------------------------------------------


@ON_SPARK
@pytest.mark.parametrize("rows", [0, 1_000])
def test_write_returns_the_rows_written_when_there_are_some_or_none(load: Load, rows: int) -> None:
    load.grow(rows)

    with load.job() as job:
        returned = job.write(load.repairs(job), str(load.target))

    assert returned == rows
    # A batch without rows writes no files, so the first batch creates no target.
    assert load.target.exists() == bool(rows)
    assert not rows or load.spark.read.parquet(str(load.target)).count() == rows


def test_counts_are_those_of_one_run_when_its_commit_is_tried_again(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.grow(3)
    load.land("a.json")
    with load.job("jr_1") as job:
        rows, files = load.repairs(job), job.new_files(str(load.landing), transformation_ctx="files")
        job.write(rows, f"{load.target}/repairs")
        with monkeypatch.context() as patch, pytest.raises(CommitUnknownError):
            patch.setattr(job.run, "commit", Mock(side_effect=CommitUnknownError(JOB, "jr_1")))
            job.commit()

    (entry,) = load.watermarks.history(JOB)
    assert {name: entry.change.metrics[name] for name in ("rows_collected", "files_read", "bytes_read")} == {
        "rows_collected": 3, "files_read": 1, "bytes_read": files.bytes
    }  # fmt: skip
    assert job.metrics.items() >= entry.change.metrics.items()


# --- runs that go wrong ----------------------------------------------------------------------------------


def test_run_plans_anew_when_the_error_came_before_the_plan_was_frozen(load: Load) -> None:
    load.grow(3)

    def die_early() -> None:
        with load.job() as job:
            load.repairs(job)
            raise KilledError

    with pytest.raises(KilledError):
        die_early()
    load.grow(1)

    taken, _ = load.run()

    assert taken == [1, 2, 3, 4]


def test_batch_id_is_the_same_when_a_plan_is_replayed(load: Load) -> None:
    ids: list[BatchId] = []
    for end in (KilledError, KilledError, None):
        try:
            with load.job() as job:
                load.repairs(job)
                ids.append(job.freeze().id)
                if end:
                    raise end
        except KilledError:
            pass

    assert ids == [ids[0]] * 3
    assert (ids[0].job_id, ids[0].version) == (JOB, 1)


@pytest.mark.parametrize("frozen", [True, False], ids=["after freeze", "before freeze"])
def test_fenced_run_writes_nothing_when_another_run_took_over(load: Load, frozen: bool) -> None:
    load.grow(3)

    def sleep_over_the_lease() -> None:
        with load.job("jr_old", lease=timedelta(minutes=1)) as job:
            repairs = load.repairs(job)
            if frozen:
                job.freeze()
            load.clock.move(minutes=2)
            load.watermarks.begin(JOB, "jr_new")
            job.write(repairs, f"{load.target}/repairs")

    with pytest.raises(FencedError) as caught:
        sleep_over_the_lease()

    assert (caught.value.run_id, caught.value.fence, caught.value.current_fence) == ("jr_old", 1, 2)
    assert "another run took over, or somebody released the job. Stop this run" in str(caught.value)
    assert load.files() == []
    assert load.version == 0


# --- refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [False, True], ids=["first attempt", "replay"])
@pytest.mark.parametrize("name", ["repairs", "new in a replay"])
def test_context_is_refused_when_its_name_is_taken(load: Load, replay: bool, name: str) -> None:
    load.grow(3)
    if replay:
        kill_after_write(load)

    def ask_twice() -> None:
        with load.job() as job:
            load.repairs(job, name)
            load.repairs(job, name)

    with pytest.raises(PlanConflictError) as caught:
        ask_twice()

    assert str(caught.value) == f"Job 'parking': context {name!r} is planned already. Give each source its own."
    assert load.version == 0


@pytest.mark.parametrize("name", METRICS)
def test_context_is_refused_when_its_name_is_that_of_a_count(load: Load, name: str) -> None:
    with pytest.raises(InvalidValueError, check=because("reserved_name")) as caught, load.job() as job:
        load.repairs(job, name)

    assert (caught.value.name, caught.value.reserved) == (name, tuple(METRICS))
    assert load.version == 0


@pytest.mark.parametrize("column", ["batch_id", "Batch_ID"])
def test_write_is_refused_when_a_column_is_called_batch_id(load: Load, column: str) -> None:
    load.grow(1)

    with pytest.raises(InvalidValueError, check=because("reserved_name"), match="'batch_id'"), load.job() as job:
        job.write(load.repairs(job).rename(columns={"id": column}), f"{load.target}/repairs", batch_folders=True)

    assert load.files() == []
    assert load.watermarks.latest(JOB).version == 0


def test_context_takes_nothing_now_and_everything_next_when_it_is_not_in_the_inherited_plan(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    load.grow(3)
    kill_after_write(load)
    load.land("a.json")
    taken = []

    for _ in range(2):
        with load.job() as job:
            load.repairs(job)
            job.new_files(str(load.landing), transformation_ctx="files")
            more_rows = len(load.repairs(job, "more rows"))
            more_files = job.new_files(str(load.landing), transformation_ctx="more files").count
            taken.append((more_rows, more_files))

    assert taken == [(0, 0), (3, 1)]
    assert "context=more rows: the next run reads it" in caplog.text
    assert load.version == 2


@pytest.mark.parametrize("asked", ["repairs", "renamed"])
def test_commit_is_refused_when_a_planned_context_was_not_asked_for(load: Load, asked: str) -> None:
    load.grow(3)
    kill_after_write(load)
    before = load.watermarks.latest(JOB).plan

    with pytest.raises(PlanConflictError) as caught, load.job() as job:
        load.repairs(job, asked)

    missing = {"repairs": "files", "renamed": "files, repairs"}[asked]
    assert f"the frozen plan holds {missing}, which this run did not ask for" in str(caught.value)
    assert "Run the code that made the plan, or discard the plan." in str(caught.value)
    head = load.watermarks.latest(JOB)
    assert (head.version, head.plan, head.claim) == (0, before, None)


def test_nothing_is_committed_and_it_is_warned_when_no_source_was_asked_for(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    with load.job("jr_1"):
        pass

    assert "event=not_committed job=parking run=jr_1: nothing was saved" in caplog.text
    head = load.watermarks.latest(JOB)
    assert (head.version, head.claim, head.plan) == (0, None, None)


@pytest.mark.parametrize("act", ["write", "freeze", "commit", "batch_id"])
def test_job_is_refused_when_no_source_is_planned(load: Load, act: str) -> None:
    acts: dict[str, Callable[[IncrementalJob], Any]] = {
        "write": lambda job: job.write(pd.DataFrame({"id": [1]}), f"{load.target}/repairs"),
        "freeze": lambda job: job.freeze(),
        "commit": lambda job: job.commit(),
        "batch_id": lambda job: job.freeze().id,
    }

    with pytest.raises(PlanConflictError, match=r"no source is planned\. Call rows_since"), load.job() as job:
        acts[act](job)

    assert load.files() == []
    assert (load.version, load.watermarks.latest(JOB).plan) == (0, None)


def test_job_is_refused_when_it_is_used_outside_the_with_statement(load: Load) -> None:
    with pytest.raises(
        PlanConflictError, match=r"the run has not begun\. Use the job in a `with` statement, or call init"
    ):
        load.repairs(load.job())

    with pytest.raises(UnknownJobError):
        load.watermarks.latest(JOB)


def test_context_is_refused_when_its_name_is_that_of_a_value_stored_by_hand(load: Load) -> None:
    item = load.watermarks.create_watermark_item(job_id=JOB, run_id="jr_1", repairs="2023-03-16 15:45:00")
    load.watermarks.add_watermark(item)

    with pytest.raises(SourceError, check=because("changed"), match="context 'repairs' remembers"), load.job() as job:
        load.repairs(job)

    assert load.version == 1
