"""Each row is at the target once: before and after the commit, after a crash between the two, and beside other jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import FencedError, StagedFilesLostError, TargetError
from scripts.helpers.watermarks import Watermarks
from tests.sinks.contract.targets import IN_A_BUCKET, Copy, Target, every, in_one_format, in_one_place, numbers
from tests.support.steps import KilledError


def problems(copy: Copy) -> list[str]:
    """Return what examining the targets of the job reports."""
    target = copy.target
    sinks = [] if target.is_named else [target.sink()]
    found = examine_targets(copy.watermarks, copy.job_id, sinks=sinks, spark=target.spark, s3_client=target.s3)
    return [f"{one.kind}: {one.detail}" for one in found]


# With Spark, the test of runs that die before their publication finds the same for tables.
@every(slow=("orc-s3", "csv-s3", "json-s3", "delta-spark", "postgres-jdbc"))
def test_rows_of_each_batch_are_there_once_after_their_commit_and_not_before_when_a_run_fails_in_between(
    target: Target, copy: Copy
) -> None:
    target.create(numbers().schema)
    error = ValueError("the script fails")

    job = copy.begin(numbers(1, 2))
    staged = target.read()
    job.__exit__(type(error), error, None)
    failed = target.read()
    copy.run(numbers(3))  # The open plan has only the first batch.
    replayed = target.ids()
    copy.run()

    assert (staged, failed, replayed, target.ids()) == ([], [], [1, 2], [1, 2, 3])
    assert problems(copy) == []


# A batch without rows does not reach the connector of a table, and Spark counts the rows of files in the same way.
@every(where=in_one_place, slow=("delta-spark", *IN_A_BUCKET))
def test_nothing_is_written_and_a_version_is_made_when_a_batch_is_empty(target: Target, copy: Copy) -> None:
    target.create(numbers().schema)
    copy.run(numbers(1))
    before = target.contents()

    copy.run()
    copy.run(numbers())

    assert (target.ids(), target.contents()) == ([1], before)
    assert copy.watermarks.latest(copy.job_id).version == 3


EMPTY = [numbers().set_column(1, "word", pa.array([], kind)) for kind in (pa.null(), pa.float64(), pa.int64())]
EMPTY.append(pa.table({}))


@every(where=lambda kind: not kind.is_lazy, slow=IN_A_BUCKET)
def test_nothing_is_written_and_a_version_is_made_when_a_batch_is_empty_and_its_columns_have_no_types(
    target: Target, copy: Copy
) -> None:
    target.create(numbers().schema)
    before = target.contents()

    for rows in EMPTY:
        copy.run(rows)
    first = target.contents(), copy.watermarks.latest(copy.job_id).version
    copy.run(numbers(1, 2))
    written = target.contents()
    for rows in EMPTY:
        copy.run(rows)

    assert first == (before, len(EMPTY))
    assert (target.ids(), target.contents()) == ([1, 2], written)
    assert copy.watermarks.latest(copy.job_id).version == 2 * len(EMPTY) + 1
    assert problems(copy) == []


@every(where=lambda kind: kind.family != "database" and in_one_place(kind), slow=("delta-spark", *IN_A_BUCKET))
def test_nothing_is_made_and_versions_are_when_the_first_batches_are_empty(target: Target, copy: Copy) -> None:
    copy.run(numbers())
    if "merge" in target.kind.can:
        copy.run(numbers(), keys=["id"], sequence_by=["word"])
    empty = target.contents()
    copy.run(numbers(1))

    assert not empty
    assert target.ids() == [1]
    assert copy.watermarks.latest(copy.job_id).version == (3 if "merge" in target.kind.can else 2)
    assert problems(copy) == []


@every(where=in_one_format, slow=("pyarrow-s3",))
def test_rows_are_there_once_when_runs_die_between_commit_and_publication_and_others_publish_late_and_at_once(
    target: Target, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.create(numbers().schema)
    asleep: list[Any] = []
    publish = target.sink_class.publish

    def die(sink: Any, output: Any) -> None:
        asleep.append((sink, output))
        raise KilledError

    def run_and_die(*ids: int) -> list[int]:
        job = copy.begin(numbers(*ids))
        with monkeypatch.context() as patch:
            patch.setattr(target.sink_class, "publish", die)
            with pytest.raises(KilledError):
                job.commit()
        return target.ids()

    def published(_: int) -> None:
        publish(*asleep[0])

    dead = run_and_die(1, 2)
    with ThreadPoolExecutor(2) as pool:
        outcomes = [pool.submit(published, number) for number in range(2)]
    # A publisher that was overtaken in every attempt may raise TargetError, and can be called again.
    assert all(isinstance(one.exception(), TargetError | None) for one in outcomes)
    at_once = target.ids()
    dead_again = run_and_die(3)
    copy.run(numbers(4))
    for sink, output in asleep:
        publish(sink, output)

    assert (dead, at_once, dead_again) == ([], [1, 2], [1, 2])
    assert target.ids() == [1, 2, 3, 4]
    assert problems(copy) == []


@every(where=in_one_format, slow=("delta-spark", "iceberg-spark", "postgres-jdbc", "deltalake-s3", "pyarrow-s3"))
def test_each_run_reports_the_loss_and_rows_come_once_when_staged_files_are_deleted_before_their_publication(
    target: Target, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.create(numbers().schema)
    copy.run(numbers(1))
    publish = target.sink_class.publish

    def lose(sink: Any, output: Any) -> None:
        sink.drop(output)
        publish(sink, output)

    job = copy.begin(numbers(2, 3))
    with monkeypatch.context() as patch, pytest.raises(StagedFilesLostError):
        patch.setattr(target.sink_class, "publish", lose)
        job.__exit__(None, None, None)
    with pytest.raises(StagedFilesLostError, match=r"rewind .* --to-version 1 --retract"):
        copy.run()
    (found,) = problems(copy)
    copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="staged files are lost")
    copy.run()

    assert found.startswith("staged files lost")
    assert "--to-version 1 --retract" in found
    assert target.ids() == [1, 2, 3]


@every(where=lambda kind: kind.family == "files" and kind.engine == "pandas")
def test_loss_is_named_when_somebody_deletes_what_was_staged_while_its_files_are_moved(
    target: Target, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = type(target.sink().staging.place)
    move = place.move

    def interrupted(staging: Any, moves: Any, sizes: Any, to: Any) -> Any:
        first = next(iter(moves))
        move(staging, {first: moves[first]}, {first: sizes[first]}, to)
        staging.delete(list(staging.files()))
        return move(staging, moves, sizes, to)

    job = copy.begin(numbers(1, 2, 3), partition_by=["word"])
    with monkeypatch.context() as patch, pytest.raises(StagedFilesLostError, match="2 staged files of version 1"):
        patch.setattr(place, "move", interrupted)
        job.__exit__(None, None, None)
    with pytest.raises(StagedFilesLostError, match=r"reset .* --retract"):
        copy.run(partition_by=["word"])
    half = target.ids()
    copy.watermarks.reset(copy.job_id, retract=True, why="staged files are lost")
    copy.run(partition_by=["word"])

    assert (len(half), target.ids()) == (1, [1, 2, 3])


@every(where=in_one_format, slow=("delta-spark", "postgres-jdbc", "deltalake-s3", "pyarrow-s3"))
def test_losers_are_swept_and_other_jobs_keep_theirs_when_a_batch_was_staged_several_times(
    watermarks: Watermarks, target: Target, copy: Copy
) -> None:
    target.create(numbers().schema)
    other = Copy(watermarks, target, "parking")
    other.run(numbers(70))
    waiting = other.begin(numbers(71))

    loser = copy.begin(numbers(1, 2), run_id="jr_1")
    winner = copy.begin(run_id="jr_1")
    outcomes = winner.commit(), loser.commit()
    fenced = copy.begin(numbers(3), run_id="jr_2")
    watermarks.discard_plan(copy.job_id, why="3 was wrong")
    with pytest.raises(FencedError):
        fenced.__exit__(None, None, None)
    copy.batches[-1] = numbers(33)
    copy.run()
    alone = target.ids()
    waiting.__exit__(None, None, None)

    assert (outcomes, alone) == (("done", "already"), [1, 2, 33, 70])
    assert target.ids() == [1, 2, 33, 70, 71]
    assert problems(copy) + problems(other) == []
