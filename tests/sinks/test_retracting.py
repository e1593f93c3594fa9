"""Decisions that take back the output of a job at its targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.batch.publishing import COPY_DURATION
from scripts.helpers.errors import InvalidValueError, TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import Sink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.watermarks import Watermarks
from tests.sinks.directory_copy import JOB, DirectoryCopy
from tests.sinks.shops import Shop
from tests.support.clock import Clock
from tests.support.dynamodb import FakeDynamoDB
from tests.support.outputs import output_of_run
from tests.support.reasons import because
from tests.support.steps import KilledError

WHY: Any = {"why": "rows of a test were among them"}


@pytest.fixture
def world(watermarks: Watermarks, tmp_path: Path) -> DirectoryCopy:
    world = DirectoryCopy(watermarks, tmp_path)
    world.source = []
    for row in (1, 2, 3):
        world.run_with(row)
    return world


def test_rows_are_at_the_target_once_when_a_reset_took_them_back(world: DirectoryCopy) -> None:
    world.watermarks.reset(JOB, retract=True, **WHY)
    decided = world.seen

    with world.job("jr_again"):
        begun = world.seen
    world.run_with(4)

    assert (decided, begun, world.seen) == ([1, 2, 3], [], [1, 2, 3, 4])


@pytest.mark.parametrize("context", [None, "rows"], ids=["job", "context"])
@pytest.mark.parametrize(
    ("version", "seen"), [(1, [1, 2, 2, 3, 3, 4]), (0, [1, 1, 2, 2, 3, 3, 4])], ids=["rewind", "reset"]
)
def test_rows_stay_and_their_target_is_named_when_nothing_is_taken_back(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, version: int, seen: list[int], context: str | None
) -> None:
    if version:
        world.watermarks.rewind(JOB, to_version=version, transformation_ctx=context, **WHY)
    else:
        world.watermarks.reset(JOB, transformation_ctx=context, **WHY)
    world.run_with(4)

    assert world.seen == seen
    assert f"event=output_kept job=repairs versions={version + 1}-3 targets=file://{world.target}" in caplog.text


def test_target_is_named_when_a_version_that_waits_there_holds_rows_that_one_context_reads_again(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KilledError

    monkeypatch.setattr(FileSink, "publish", die)
    with pytest.raises(KilledError):
        world.run_with(4)
    monkeypatch.undo()

    world.watermarks.rewind(JOB, to_version=3, transformation_ctx="rows", **WHY)
    world.run("jr_again")

    assert world.seen == [1, 2, 3, 4, 4]
    assert f"event=output_kept job=repairs versions=4-4 targets=file://{world.target}" in caplog.text


def test_next_run_takes_back_when_the_process_died_after_the_decision(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.watermarks.rewind(JOB, to_version=1, retract=True, **WHY)

    def die(*_: Any) -> None:
        raise KilledError

    monkeypatch.setattr(FileSink, "retract", die)
    with pytest.raises(KilledError), world.job("jr_again"):
        raise AssertionError("it has begun")
    monkeypatch.undo()
    world.run("jr_again")

    assert world.seen == [1, 2, 3]


def test_no_run_plans_when_what_was_taken_back_cannot_be_deleted(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.watermarks.rewind(JOB, to_version=1, retract=True, **WHY)

    def refuse(sink: FileSink, *_: Any) -> None:
        raise TargetError(sink.name, "s3:DeleteObject is not allowed.")

    monkeypatch.setattr(FileSink, "retract", refuse)
    with (
        pytest.raises(TargetError, check=because("retraction"), match="versions 2 to 3 could not be deleted") as raised,
        world.job("jr_again"),
    ):
        raise AssertionError("it has begun")
    monkeypatch.undo()
    head = world.watermarks.latest(JOB)

    assert isinstance(raised.value.__cause__, TargetError)
    assert (head.claim, head.plan, world.seen) == (None, None, [1, 2, 3])


def test_file_is_deleted_again_when_a_late_copy_brought_it_back(world: DirectoryCopy, clock: Clock) -> None:
    late = {path.name: path.read_bytes() for path in world.target.glob("part-*")}
    world.watermarks.reset(JOB, retract=True, **WHY)
    world.run("jr_again")
    for name, data in late.items():
        (world.target / name).write_bytes(data)

    world.run_with(4)
    again, listed = world.seen, len(world.watermarks.latest(JOB).retracting)
    clock.move(seconds=COPY_DURATION.total_seconds() + 1)
    world.run_with(5)

    assert (again, listed) == ([1, 2, 3, 4], 1)
    assert (world.seen, world.watermarks.latest(JOB).retracting) == ([1, 2, 3, 4, 5], ())


def test_rewind_is_refused_when_the_output_of_the_version_was_taken_back(world: DirectoryCopy) -> None:
    world.watermarks.rewind(JOB, to_version=1, retract=True, **WHY)
    world.run("jr_again")

    for version in (2, 3):
        with pytest.raises(
            InvalidValueError,
            check=because("retracted"),
            match=rf"^Version {version} of job .* Rewind to version 1 or before",
        ):
            world.watermarks.rewind(JOB, to_version=version, **WHY)
    world.watermarks.rewind(JOB, to_version=1, retract=True, **WHY)
    world.run_with(4)

    assert world.seen == [1, 2, 3, 4]


def test_versions_are_refused_for_one_context_as_well_when_their_output_is_gone(world: DirectoryCopy) -> None:
    world.watermarks.reset(JOB, retract=True, **WHY)

    with pytest.raises(InvalidValueError, check=because("retracted"), match="Reset the job"):
        world.watermarks.rewind(JOB, to_version=2, transformation_ctx="rows", **WHY)


def test_half_published_batch_is_taken_back_when_the_job_goes_back_before_it(
    world: DirectoryCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds without retract, too: the rows come again, and nothing shows which of them were published."""
    publish = FileSink.publish

    def published_and_died(sink: FileSink, output: Output) -> None:
        publish(sink, output)
        raise KilledError

    monkeypatch.setattr(FileSink, "publish", published_and_died)
    with pytest.raises(KilledError):
        world.run_with(4)
    monkeypatch.undo()

    world.watermarks.rewind(JOB, to_version=3, **WHY)
    world.run("jr_again")

    assert world.seen == [1, 2, 3, 4]
    with pytest.raises(InvalidValueError, check=because("retracted")):
        world.watermarks.rewind(JOB, to_version=4, **WHY)


class TwoTargets:
    """A job that copies pandas rows to two targets; a run may die before it publishes at one of them."""

    def __init__(self, watermarks: Watermarks, first: Sink, second: Sink) -> None:
        self.watermarks = watermarks
        self.sinks: list[Sink] = [first, second]
        self.source = [1]

    def run(self, *new: int, dies_at: Sink | None = None) -> None:
        """Copy new rows to both targets; with `dies_at`, the run dies before it publishes at that target."""
        self.source += new

        def die(*_: Any) -> None:
            raise KilledError

        job = IncrementalJob(self.watermarks, JOB, f"jr_{self.source}").__enter__()
        rows = job.rows_since(pd.DataFrame({"id": self.source}), "id")
        for sink in self.sinks:
            job.write(rows, sink)
        with pytest.MonkeyPatch.context() as patch:
            if dies_at is None:
                job.__exit__(None, None, None)
                return
            patch.setattr(type(dies_at), "publish", die)
            with pytest.raises(KilledError):
                job.__exit__(None, None, None)


def test_version_is_taken_back_at_each_target_when_it_waits_at_one_of_them(
    watermarks: Watermarks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop, files = Shop(tmp_path / "shop.db", "plain", told="told"), FileSink(str(tmp_path / "raw"))
    world = TwoTargets(watermarks, files, shop.sink("told"))
    world.run()
    world.run(2, dies_at=shop.sink("told"))

    watermarks.rewind(JOB, to_version=1, **WHY)
    world.run(3)

    seen = sorted(row for path in (tmp_path / "raw").glob("*.parquet") for row in pd.read_parquet(path)["id"])
    assert (seen, shop.seen("told")) == ([1, 2, 3], [1, 2, 3])
    assert "event=output_kept" not in caplog.text


def test_version_is_taken_back_at_each_target_when_later_ones_were_published_meanwhile(
    watermarks: Watermarks, tmp_path: Path
) -> None:
    shop, files = Shop(tmp_path / "shop.db", "plain", told="told"), FileSink(str(tmp_path / "raw"))
    world = TwoTargets(watermarks, files, shop.sink("told"))
    world.run()
    world.run(2, dies_at=shop.sink("told"))
    world.sinks = [files]
    world.run(3)
    world.sinks = [files, shop.sink("told")]

    watermarks.rewind(JOB, to_version=1, **WHY)
    world.run(4)

    seen = sorted(row for path in (tmp_path / "raw").glob("*.parquet") for row in pd.read_parquet(path)["id"])
    assert (seen, shop.seen("told")) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_rows_stay_with_a_warning_when_a_version_waits_elsewhere_and_no_column_holds_their_batch(
    watermarks: Watermarks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop, files = Shop(tmp_path / "shop.db", "plain", told="told"), FileSink(str(tmp_path / "raw"))
    world = TwoTargets(watermarks, shop.sink("plain"), files)
    world.run()
    world.run(2, dies_at=files)

    watermarks.rewind(JOB, to_version=1, **WHY)
    world.run(3)

    assert "event=output_kept job=repairs versions=2-2 targets=database://shop/plain:" in caplog.text
    assert shop.seen("plain") == [1, 2, 2, 3]


def test_other_jobs_and_other_files_stay_when_one_job_takes_back(world: DirectoryCopy) -> None:
    with IncrementalJob(world.watermarks, "parking", "jr_1") as other:
        other.write(other.rows_since(pd.DataFrame({"id": [70]}), "id"), str(world.target))
    pd.DataFrame({"id": [80]}).to_parquet(world.target / "by-hand.parquet")

    world.watermarks.reset(JOB, retract=True, **WHY)
    with world.job("jr_again"):
        pass

    assert world.seen == [70, 80]


def test_all_targets_give_back_their_rows_when_the_history_is_longer_than_a_page_of_dynamodb(tmp_path: Path) -> None:
    watermarks = Watermarks("table", FakeDynamoDB())  # type: ignore[arg-type]
    raw, rejects, source = tmp_path / "raw", tmp_path / "rejects", list[int]()

    def run(row: int) -> None:
        source.append(row)
        with IncrementalJob(watermarks, JOB, f"jr_{row}") as job:
            rows = job.rows_since(pd.DataFrame({"id": source}), "id", settled=True)
            job.write(rows, str(raw))
            if row == 2:
                job.write(rows, str(rejects))

    run(1)
    watermarks.set_watermark(JOB, {"note": "x" * 60_000}, **WHY)
    for row in range(2, 22):
        run(row)
    watermarks.rewind(JOB, to_version=2, retract=True, **WHY)
    run(22)

    def ids(folder: Path) -> list[int]:
        return sorted(row for path in folder.rglob("*.parquet") for row in pd.read_parquet(path)["id"])

    assert (ids(raw), ids(rejects)) == (list(range(1, 23)), [])


def test_retraction_is_refused_when_it_is_of_one_context(world: DirectoryCopy) -> None:
    for decide in (
        lambda **given: world.watermarks.reset(JOB, **given),
        lambda **given: world.watermarks.rewind(JOB, to_version=1, **given),
    ):
        with pytest.raises(InvalidValueError, match="rows of all contexts"):
            decide(transformation_ctx="rows", retract=True, **WHY)

    assert world.watermarks.latest(JOB).version == 3


def test_retraction_is_refused_when_a_target_cannot_give_back_what_it_has(world: DirectoryCopy) -> None:
    run = world.watermarks.begin(JOB, "jr_4")
    run.freeze({"rows": {}}, {"rows": {}})
    table = output_of_run(run, "file:///lake/repairs", sink="delta")
    run.commit((table,))
    run.published((table,))

    with pytest.raises(InvalidValueError, match="'file:///lake/repairs' is not a folder of files"):
        world.watermarks.rewind(JOB, to_version=1, retract=True, **WHY)

    world.watermarks.rewind(JOB, to_version=4, retract=True, **WHY)


def test_batch_column_is_refused_when_the_target_has_files(world: DirectoryCopy) -> None:
    with (
        pytest.raises(InvalidValueError, match="names of files hold their batch"),
        IncrementalJob(world.watermarks, JOB, "jr_9") as job,
    ):
        job.write(pd.DataFrame({"id": [1]}), str(world.target), batch_column="batch")

    assert world.seen == [1, 2, 3]


def test_nothing_is_logged_when_nothing_was_taken_back(world: DirectoryCopy, caplog: pytest.LogCaptureFixture) -> None:
    world.watermarks.rewind(JOB, to_version=3, retract=True, **WHY)

    world.run_with(4)

    assert (caplog.text, world.watermarks.latest(JOB).retracting) == ("", ())
