"""The target reports what it recorded of a job, so restoring, losing or mixing up a table never doubles rows."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from scripts.cli.main import cli
from scripts.helpers.batch import after_restore
from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import FencedError, InvalidValueError, NothingThereError, RowsMissingError, TargetAheadError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import derived_id
from scripts.helpers.protocol.run import Run
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.watermarks import Watermarks
from tests.sinks.contract.targets import TARGETS, Copy, Database, Delta, Files, Iceberg, Kind, Target, every, numbers
from tests.support.reasons import because
from tests.support.steps import KilledError
from tests.support.table_items import all_items, item_of, put_item

SLOW = ("delta-spark", "iceberg-spark")
ALIKE = (*SLOW, "pandas-s3", "deltalake-stream", "postgres", "maria")
"""Slow targets of tests of what a run does with the answer of its target.

These targets answer by the same code as `pandas`, `deltalake` and `sqlite`. The tests that run on all targets show
that each answers, names other jobs, and takes batches back.
"""


def with_records_of_its_own(kind: Kind) -> bool:
    """Select one target for each way to record batches; the type of the rows makes no difference there."""
    if kind.family in ("files", "database"):
        return kind.engine == "pandas"
    return not kind.on_s3


def marked(target: Target) -> dict[str, Any]:
    """Return the options that let rows be taken back."""
    return {"batch_column": "batch"} if "batch_column" in target.kind.can else {}


@pytest.fixture
def copy(watermarks: Watermarks, target: Target) -> Copy:
    """Return a job that writes to the target, with a batch column if the target can have one."""
    target.create(numbers().schema, batch=pa.string())
    return Copy(watermarks, target, **marked(target))


def restore(watermarks: Watermarks, backup: Mapping[Any, Any]) -> None:
    """Restore the table of watermarks from a backup."""
    for job_id, key in all_items(watermarks):
        watermarks.store.delete(job_id, key)
    for item in backup.values():
        put_item(watermarks, item)


def restored(copy: Copy) -> None:
    """Load two rows and then one more, and restore the table of watermarks from a backup between the two."""
    copy.run(numbers(1, 2))
    backup = all_items(copy.watermarks)
    copy.run(numbers(3))
    restore(copy.watermarks, backup)


def answer(copy: Copy, target: Target | None = None, **options: Any) -> None:
    """Confirm that a backup was restored, and decide about the batches that only the target knows."""
    target = target or copy.target
    after_restore(
        copy.watermarks, copy.job_id, sinks=[target.sink(**marked(target))], why="a backup came back",
        spark=target.spark, s3_client=target.s3, **options,
    )  # fmt: skip


def found_at(copy: Copy) -> list[str]:
    """Return what examining the target reports."""
    target = copy.target
    found = examine_targets(
        copy.watermarks, copy.job_id, sinks=[target.sink(**marked(target))], spark=target.spark, s3_client=target.s3
    )
    return [f"{one.kind}: {one.detail}" for one in found]


@every(where=with_records_of_its_own, slow=SLOW)
def test_no_run_writes_when_the_table_came_back_from_a_backup(copy: Copy) -> None:
    restored(copy)

    # If the name alone leads to the target, the run fails before it starts.
    with pytest.raises(TargetAheadError, match="version 2 of job 'repairs'") as caught, copy.job() as job:
        assert not copy.target.is_named
        copy.stage(job)

    assert list(caught.value.ahead.values()) == [(2, 2)]
    assert copy.target.ids() == [1, 2, 3]
    head = copy.watermarks.latest(copy.job_id)
    assert (head.version, head.claim, head.plan) == (1, None, None)
    (found,) = [one for one in found_at(copy) if one.startswith("target ahead")]
    assert "versions 2 to 2" in found


@every(where=with_records_of_its_own, slow=SLOW)
def test_rows_are_there_once_when_the_batches_are_taken_back(copy: Copy) -> None:
    restored(copy)

    answer(copy, retract=True)
    copy.run(numbers(4))
    copy.run(numbers(5))

    assert copy.target.ids() == [1, 2, 3, 4, 5]
    assert {one.partition(":")[0] for one in found_at(copy)} == {"retraction"}


@every("batch_column", where=with_records_of_its_own, slow=ALIKE)
def test_nothing_is_changed_when_rows_that_nothing_marks_were_to_be_taken_back(copy: Copy) -> None:
    copy.options = {}
    restored(copy)
    before = copy.watermarks.latest(copy.job_id)

    with pytest.raises(InvalidValueError, match="the rows of versions 2 to 2 cannot be taken back"):
        after_restore(
            copy.watermarks, copy.job_id, sinks=[copy.target.sink()], retract=True, why="a backup came back",
            spark=copy.target.spark, s3_client=copy.target.s3,
        )  # fmt: skip

    assert copy.watermarks.latest(copy.job_id) == before


@every(where=with_records_of_its_own, slow=ALIKE)
def test_rows_come_again_and_nothing_is_asked_twice_when_the_batches_are_kept(copy: Copy) -> None:
    restored(copy)
    before = copy.watermarks.latest(copy.job_id)
    with pytest.raises(TargetAheadError):
        answer(copy)
    unanswered = copy.watermarks.latest(copy.job_id)

    answer(copy, retract=False)
    copy.run(numbers(4))
    copy.run(numbers(5))

    assert unanswered == before
    assert copy.target.ids() == [1, 2, 3, 3, 4, 5]


@pytest.mark.parametrize("retract", [True, False], ids=["taken back", "kept"])
@every(where=with_records_of_its_own, slow=ALIKE)
def test_first_run_stops_until_somebody_answers_when_the_table_is_another_one(
    copy: Copy, make_watermarks: Callable[..., Watermarks], retract: bool
) -> None:
    copy.run(numbers(1, 2))
    copy.watermarks = make_watermarks()

    with pytest.raises(TargetAheadError, match="version 1 of job"):
        copy.run()
    stopped = copy.target.ids(), copy.watermarks.latest(copy.job_id).version
    answer(copy, retract=retract)
    copy.run(numbers(3))

    assert stopped == ([1, 2], 0)
    assert copy.target.ids() == ([1, 2, 3] if retract else [1, 1, 2, 2, 3])


@every(where=with_records_of_its_own, slow=ALIKE)
def test_an_attempt_is_fenced_when_another_one_has_published_meanwhile(copy: Copy) -> None:
    copy.run(numbers(1))

    with pytest.raises(FencedError), copy.job("jr_2") as slow:
        copy.run(numbers(2), run_id="jr_2")
        copy.stage(slow)

    assert copy.target.ids() == [1, 2]


@pytest.mark.parametrize("target", ["pandas"], indirect=True)
def test_an_attempt_is_fenced_at_its_start_when_another_one_publishes_while_the_target_answers(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.run(numbers(1))
    kind = type(copy.target.sink())

    def recorded(sink: Any, *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        copy.run(numbers(2), run_id="jr_2")
        return kind.recorded(sink, *arguments, **options)

    monkeypatch.setattr(kind, "recorded", recorded)
    with pytest.raises(FencedError), copy.job("jr_2"):
        pytest.fail("The fenced attempt has begun.")

    assert copy.target.ids() == [1, 2]


@every(where=with_records_of_its_own, slow=ALIKE)
def test_runs_go_on_when_earlier_epochs_were_retracted(copy: Copy) -> None:
    copy.run(numbers(1, 2))
    copy.run(numbers(3))
    answer(copy)
    copy.run(numbers(4))

    copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="once more")
    copy.run()
    copy.run(numbers(5))

    assert copy.target.ids() == [1, 2, 3, 4, 5]


# --- rows that went after the backup --------------------------------------------------------------------


def rewound_meanwhile(copy: Copy, *, loads: bool = True) -> None:
    """Restore a backup from before rows 3 and 4 were taken back; if the job `loads`, they came again with 5."""
    copy.run(numbers(1, 2))
    copy.run(numbers(3))
    copy.run(numbers(4))
    backup = all_items(copy.watermarks)
    copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="once more")
    for retraction in copy.watermarks.latest(copy.job_id).retracting:
        copy.target.sink(**marked(copy.target)).retract(retraction)
    if loads:
        copy.run(numbers(5))
    restore(copy.watermarks, backup)


@pytest.mark.parametrize("loads", [True, False], ids=["loaded again", "gone"])
@every(where=with_records_of_its_own, slow=ALIKE)
def test_rows_are_read_again_when_they_were_taken_back_after_the_backup(copy: Copy, loads: bool) -> None:
    rewound_meanwhile(copy, loads=loads)
    before = copy.watermarks.latest(copy.job_id)

    with pytest.raises(RowsMissingError, match=r"versions 2 to 3 .* --back-to 1") as caught:
        answer(copy, retract=True)
    for unknown in (-1, 4):
        with pytest.raises(NothingThereError, check=because("unknown_version")):
            answer(copy, retract=True, back_to=unknown)
    unanswered = copy.watermarks.latest(copy.job_id)
    answer(copy, retract=True, back_to=caught.value.back_to)
    copy.run(numbers(6))
    answer(copy)
    copy.run(numbers(7))

    assert unanswered == before
    assert copy.target.ids() == ([1, 2, 3, 4, 5, 6, 7] if loads else [1, 2, 3, 4, 6, 7])


@every(where=with_records_of_its_own, slow=ALIKE)
def test_all_rows_are_read_again_when_none_is_left_of_the_versions_before_the_backup(copy: Copy) -> None:
    copy.run(numbers(1, 2))
    backup = all_items(copy.watermarks)
    copy.watermarks.reset(copy.job_id, retract=True, why="once more")
    copy.run(numbers(3))
    restore(copy.watermarks, backup)

    with pytest.raises(RowsMissingError, match="version 1 "):
        answer(copy, retract=True)
    answer(copy, retract=True, back_to=0)
    copy.run(numbers(4))

    assert copy.target.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("target", ["pandas"], indirect=True)
def test_rows_do_not_come_again_when_a_person_says_that_they_are_there_under_other_names(copy: Copy) -> None:
    copy.run(numbers(1, 2))
    copy.run(numbers(3))
    root = Path(copy.target.sink().target.root)
    for number, file in enumerate(sorted(root.glob("*.parquet"))):
        file.rename(root / f"compacted-{number}.parquet")
    with pytest.raises(RowsMissingError, match="--back-to 2"):
        answer(copy)

    answer(copy, back_to=2)
    copy.run(numbers(4), beside_others=True)

    assert copy.target.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("target", ["pandas"], indirect=True)
def test_nothing_is_missed_when_the_restored_watermark_was_reset_before(copy: Copy) -> None:
    copy.run(numbers(1, 2))
    copy.watermarks.reset(copy.job_id, why="the files are deleted by hand")
    for file in Path(copy.target.sink().target.root).glob("*.parquet"):
        file.unlink()

    answer(copy)
    copy.run(numbers(3))

    assert copy.target.ids() == [1, 2, 3]


# --- tables that were rolled back -----------------------------------------------------------------------

MERGE = {"keys": ["id"], "sequence_by": ["word"]}


def rolled_back(copy: Copy, *, to_time: bool = False) -> None:
    """Load four batches, and roll the table back to the state after the second."""
    load = copy.run if "keys" in copy.options else copy.prepare
    load(numbers(1))
    load(numbers(2))
    version, at = copy.target.newest(), copy.target.changed_at() if to_time else None
    load(numbers(3))
    load(numbers(4))
    if at is None:
        copy.target.roll_back(version)
    else:
        copy.target.roll_back_to_time(at)


# Merges are slow, and a target records them as it records other batches. The test that pastes commands has merges too.
ROLLED_BACK = [
    pytest.param(
        name, options, id=f"{name}-{shown}",
        marks=[pytest.mark.long] if shown == "merge" else [],
    )
    for name, one in TARGETS.items()
    if "roll_back" in one.can and one.engine in ("spark", "pandas")
    for shown, options in (("append", None), ("merge", MERGE))
]  # fmt: skip


@pytest.mark.parametrize(("target", "options"), ROLLED_BACK, indirect=["target"])
def test_a_warning_names_the_version_to_go_back_to_when_a_table_was_rolled_back(
    copy: Copy, options: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    copy.options = copy.options if options is None else options
    rolled_back(copy)
    found = found_at(copy)

    caplog.clear()
    copy.run(numbers(5))
    after = copy.target.ids(), found_at(copy)
    copy.watermarks.rewind(copy.job_id, to_version=2, why="it was rolled back")
    copy.run()
    again = copy.target.ids(), found_at(copy)

    assert [one.partition(":")[0] for one in found] == ["target behind"]
    assert "version 4" in found[0]
    (warning,) = warnings_of(caplog, "target_behind")
    # A merge cannot be deleted by its batch, so --retract is refused.
    retract = "--retract " if options is None else ""
    assert f"run `watermarks rewind repairs --to-version 2 {retract}--why TEXT`" in warning
    assert after == ([1, 2, 5], [])
    assert again[0] == ([1, 2, 3, 4, 5, 5] if options is None else [1, 2, 3, 4, 5])
    assert again[1] == []


@every("roll_back", where=lambda kind: kind.family == "delta" and not kind.on_s3, slow=SLOW)
def test_a_warning_names_the_version_to_go_back_to_when_a_delta_table_was_taken_back_to_a_time(
    copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    rolled_back(copy, to_time=True)
    found = found_at(copy)

    copy.run(numbers(5))

    assert [one.partition(":")[0] for one in found] == ["target behind"]
    (warning,) = warnings_of(caplog, "target_behind")
    assert "run `watermarks rewind repairs --to-version 2 --retract --why TEXT`" in warning
    assert copy.target.ids() == [1, 2, 5]


@pytest.mark.parametrize("by_time", [False, True], ids=["version", "time"])
@pytest.mark.parametrize("target", ["deltalake"], indirect=True)
def test_a_warning_is_the_same_when_others_have_changed_the_delta_table_before_it_was_taken_back(
    copy: Copy, by_time: bool, caplog: pytest.LogCaptureFixture
) -> None:
    copy.run(numbers(1))
    to, at = copy.target.newest(), copy.target.changed_at()
    copy.run(numbers(2))
    copy.run(numbers(3))
    table = DeltaTable(copy.target.sink().name)
    table.optimize.compact()
    table.delete("id = 1")
    table.create_checkpoint()

    if by_time:
        copy.target.roll_back_to_time(at)
    else:
        copy.target.roll_back(to)
    table.update_incremental()
    table.create_checkpoint()
    write_deltalake(table, copy.target.frame(numbers(70)).assign(batch=""), mode="append")
    copy.run(numbers(4))

    (warning,) = warnings_of(caplog, "target_behind")
    assert "run `watermarks rewind repairs --to-version 1 --retract --why TEXT`" in warning
    assert copy.target.ids() == [1, 4, 70]


@every("roll_back", where=lambda kind: not kind.on_s3, slow=("delta-spark",))
def test_nothing_is_reported_when_a_table_was_rolled_back_and_then_forward_again(
    copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    copy.run(numbers(1))
    before = copy.target.newest()
    copy.run(numbers(2))
    last = copy.target.newest()

    copy.target.roll_back(before)
    behind = [one.partition(":")[0] for one in found_at(copy)]
    copy.target.roll_back(last)
    found = found_at(copy)
    caplog.clear()
    copy.run(numbers(3))

    assert (behind, found) == (["target behind"], [])
    assert warnings_of(caplog, "target_behind") == []
    assert copy.target.ids() == [1, 2, 3]


# --- targets that lost batches while no run wrote there -------------------------------------------------

TAKEN_BACK = pytest.mark.parametrize("target", ["pandas", "deltalake", "pyiceberg", "sqlite"], indirect=True)


def backup_of(target: Target) -> Callable[[], None]:
    """Return a function that restores a target's present state, including what the target has recorded."""
    if isinstance(target, Iceberg):
        return partial(target.roll_back, target.newest())
    if isinstance(target, Database):
        last = max(target.ids())
        own = f"target LIKE '%{target.name}'"
        ((version,),) = target.written.rows(f"SELECT MAX(version) FROM glue_watermarks_batches WHERE {own}")
        return lambda: target.written.sql(
            f'DELETE FROM "{target.name}" WHERE id > {last}',
            f"DELETE FROM glue_watermarks_batches WHERE {own} AND version > {version}",
        )
    assert isinstance(target, Files | Delta)
    place = Path(target.place.uri)
    saved = place.with_name(f"saved-{place.name}")
    shutil.copytree(place, saved)

    def bring_back() -> None:
        shutil.rmtree(place)
        shutil.copytree(saved, place)

    return bring_back


def commit_only(copy: Copy, batch: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit a batch in a run that dies before readers see the batch."""

    def die(*_: Any) -> None:
        raise KilledError

    job = copy.begin(batch)
    with monkeypatch.context() as patch:
        patch.setattr(copy.target.sink_class, "publish", die)
        with pytest.raises(KilledError):
            job.commit()


def reported(copy: Copy) -> list[str]:
    """Return the lost batches that are reported at the target and in the items of the job."""
    items = [f"{one.kind}: {one.detail}" for one in copy.watermarks.doctor(copy.job_id)]
    return [one for one in [*found_at(copy), *items] if one.startswith("target behind")]


@TAKEN_BACK
def test_the_lost_version_is_named_until_its_rows_are_read_again_when_runs_without_rows_came_after_it(
    copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    copy.run(numbers(1))
    bring_back = backup_of(copy.target)
    copy.run(numbers(2))
    copy.run()
    copy.watermarks.set_watermark(copy.job_id, {"note": 1}, why="a decision, too")
    bring_back()

    (before,) = reported(copy)
    copy.run()
    copy.run(numbers())
    without_rows = warnings_of(caplog, "target_behind")
    copy.run(numbers(3))
    copy.run(numbers(4))
    (after,) = reported(copy)
    lost = copy.target.ids()
    copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="as the warning says")
    copy.run()

    assert without_rows == []
    (warning,) = warnings_of(caplog, "target_behind")
    assert "version=2: " in warning
    assert "run `watermarks rewind repairs --to-version 1 --retract --why TEXT`" in warning
    assert f"{copy.target.sink().name} does not have version 2, which was published" in before
    assert f"{copy.target.sink().name} had lost what was published after version 1" in after
    assert (lost, copy.target.ids()) == ([1, 3, 4], [1, 2, 3, 4])
    assert reported(copy) == []


@TAKEN_BACK
def test_the_lost_version_is_named_when_the_next_one_waited_to_be_published(
    copy: Copy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.run(numbers(1))
    bring_back = backup_of(copy.target)
    copy.run(numbers(2))
    commit_only(copy, numbers(3), monkeypatch)
    bring_back()

    (before,) = reported(copy)
    copy.run(numbers(4))
    (after,) = reported(copy)

    (warning,) = warnings_of(caplog, "target_behind")
    assert "version=2: " in warning
    assert "--to-version 1 " in warning
    assert "does not have version 2" in before
    assert "after version 1 " in after
    assert copy.target.ids() == [1, 3, 4]


@TAKEN_BACK
def test_the_lost_version_is_named_when_the_job_went_back_to_it(
    copy: Copy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.run(numbers(1))
    bring_back = backup_of(copy.target)
    copy.run(numbers(2))
    copy.run(numbers(3))
    bring_back()
    copy.watermarks.rewind(copy.job_id, to_version=2, why="only the third one, as somebody believes")

    copy.run()

    (warning,) = warnings_of(caplog, "target_behind")
    assert "version=2: " in warning
    assert copy.target.ids() == [1, 3]
    assert "after version 1 " in reported(copy)[0]


@TAKEN_BACK
def test_the_lost_version_is_named_when_a_run_without_rows_deletes_what_a_decision_took_back(
    copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    copy.run(numbers(1))
    bring_back = backup_of(copy.target)
    copy.run(numbers(2))
    copy.run(numbers(3))
    bring_back()
    copy.watermarks.rewind(copy.job_id, to_version=2, retract=True, why="only the third one, as somebody believes")

    (before,) = reported(copy)
    copy.batches.pop()  # The source does not have this row any more.
    copy.run()
    without_rows = reported(copy)[-1]
    copy.run(numbers(4))
    (after,) = reported(copy)
    copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="as the warning says")
    copy.run()

    for warning in warnings_of(caplog, "target_behind"):
        assert "run `watermarks rewind repairs --to-version 1 --retract --why TEXT`" in warning
    assert "does not have version 2" in before
    assert "after version 1 " in without_rows + after
    assert copy.target.ids() == [1, 2, 4]
    assert reported(copy) == []


@pytest.mark.parametrize("dies", ["when it deletes", "after it"])
@pytest.mark.parametrize("waits", [False, True], ids=["taken back", "published"])
@pytest.mark.parametrize("target", ["deltalake"], indirect=True)
def test_the_lost_version_is_named_when_the_run_died_that_hid_the_loss_at_the_target(
    copy: Copy, waits: bool, dies: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.run(numbers(1))
    bring_back = backup_of(copy.target)
    copy.run(numbers(2))
    if waits:
        commit_only(copy, numbers(3), monkeypatch)
    else:
        copy.run(numbers(3))
    bring_back()
    if not waits:
        copy.watermarks.rewind(copy.job_id, to_version=2, retract=True, why="the third one is read again")
    done = getattr(DeltaSink, "publish" if waits else "retract")

    def die(sink: DeltaSink, record: Any) -> None:
        if dies == "after it":
            done(sink, record)
        raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(DeltaSink, done.__name__, die)
        # The killed run keeps its lease.
        patch.setattr(Run, "abort", lambda *_, **__: None)
        copy.job().__enter__()
    copy.watermarks.release(copy.job_id, why="it is dead")
    copy.run()

    assert (
        "run `watermarks rewind repairs --to-version 1 --retract --why TEXT`" in warnings_of(caplog, "target_behind")[0]
    )
    assert "version 1" in reported(copy)[0]
    assert copy.target.ids() == [1, 3]


@TAKEN_BACK
def test_the_lost_version_is_named_when_the_job_went_back_to_one_without_rows(
    copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    copy.run(numbers(1))
    bring_back = backup_of(copy.target)
    copy.run(numbers(2))
    copy.run(numbers(3))
    copy.watermarks.rewind(copy.job_id, to_version=2, retract=True, why="the third one is read again")
    copy.run()
    copy.run()
    copy.run(numbers(4))
    bring_back()

    # First a run without rows, then a decision; the versions that the decision skipped do not count.
    found = []
    for version in (6, 4):
        copy.watermarks.rewind(copy.job_id, to_version=version, retract=True, why="the later ones are read again")
        found += reported(copy)
    copy.run()

    assert [re.findall("does not have version .", one) for one in found] == [
        ["does not have version 5"],
        ["does not have version 2"],
    ]
    (warning,) = warnings_of(caplog, "target_behind")
    assert "run `watermarks rewind repairs --to-version 1 --retract --why TEXT`" in warning
    assert copy.target.ids() == [1, 3, 4]


@pytest.mark.parametrize("target", ["pandas", "deltalake", "pyiceberg"], indirect=True)
def test_the_command_goes_back_to_a_version_that_still_counts_when_the_copy_has_batches_that_were_taken_back(
    copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    copy.run(numbers(1))
    copy.run(numbers(2))
    bring_back = backup_of(copy.target)
    copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="the second one is read again")
    copy.run(numbers(3))
    bring_back()

    copy.run(numbers(4))
    (warning,) = warnings_of(caplog, "target_behind")
    (version,) = re.findall(r"run `watermarks rewind repairs --to-version (\d) --retract --why TEXT`", warning)
    copy.watermarks.rewind(copy.job_id, to_version=int(version), retract=True, why="as the warning says")
    copy.run()

    # The Iceberg copy has version 3 recorded: the decision that took version 2 back.
    assert version == ("3" if copy.target.kind.family == "iceberg" else "1")
    assert copy.target.ids() == [1, 2, 3, 4]
    assert reported(copy) == []


@TAKEN_BACK
def test_nothing_is_lost_when_the_version_was_never_published_or_is_read_again(
    copy: Copy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.run(numbers(1))
    commit_only(copy, numbers(2), monkeypatch)
    copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="it is read again")
    found = reported(copy)
    copy.run()
    copy.run(numbers(3))
    copy.watermarks.reset(copy.job_id, retract=True, why="all is read again")
    copy.run(numbers(4))

    assert found + reported(copy) + warnings_of(caplog, "target_behind") == []
    assert copy.target.ids() == [1, 2, 3, 4]


PASTED = [
    pytest.param(name, options, answer, id=f"{name}-{shown}-{answer}")
    for answer in ("read again", "forgotten")
    for name in ("pandas", "deltalake", "pyiceberg", "sqlite")
    for shown, options in (("append", None), ("append without a column", {}), ("merge", MERGE))
    # Appended rows without a batch column are forgotten in the same way as those with one.
    if options is None or (name != "pandas" and answer == "read again")
]


@pytest.mark.parametrize(("target", "options", "answer"), PASTED, indirect=["target"])
def test_target_is_complete_or_forgotten_when_the_commands_of_the_warning_are_pasted(
    copy: Copy,
    options: dict[str, Any] | None,
    answer: str,
    endpoint: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("WATERMARKS_TABLE", copy.watermarks.table_name)
    copy.options = copy.options if options is None else options
    if isinstance(copy.target, Database) and options == MERGE:
        table = copy.target.quoted(copy.target.name)
        copy.target.written.sql(
            f"ALTER TABLE {table} DROP COLUMN batch", f"CREATE UNIQUE INDEX one_of_each ON {table} (id)"
        )
    copy.run(numbers(1))
    bring_back = backup_of(copy.target)
    copy.run(numbers(2))
    copy.run(numbers(3))
    bring_back()
    copy.run(numbers(4))

    (warning,) = warnings_of(caplog, "target_behind")
    again, forget = re.findall(r"`watermarks (.*?)`", warning)
    command = shlex.split(again if answer == "read again" else forget)
    before = CliRunner().invoke(cli, ["doctor", "repairs", "--no-targets"], prog_name="watermarks")
    done = CliRunner().invoke(cli, [*command, "--yes"], prog_name="watermarks")
    copy.run()

    assert "target behind" in before.output
    # If only the job's script can reach the target, the doctor says so after it has forgotten the target.
    assert done.exit_code == 0 or "target not seen" in done.output
    twice = [4] if options == {} else []
    assert copy.target.ids() == ([1, 2, 3, 4, *twice] if answer == "read again" else [1, 4])
    assert reported(copy) == []


# --- tables of a database of which the records stay ------------------------------------------------------


def lose_alone(copy: Copy, fill: str) -> None:
    """Replace the table of two batches by another table; the database keeps its records of the batches."""
    target = copy.target
    assert isinstance(target, Database)
    table, saved = target.quoted(target.name), target.quoted(f"{target.name}_saved")
    copy.run(numbers(1))
    target.written.sql(f"CREATE TABLE {saved} AS SELECT * FROM {table}")
    copy.run(numbers(2))
    if target.kind.form == "maria":
        time.sleep(1.1)  # MariaDB records the creation time of a table in whole seconds.
    target.written.sql(f"DROP TABLE {table}")
    target.create(numbers().schema, batch=pa.string())
    if fill:
        target.written.sql(fill.format(table, saved))


@pytest.mark.parametrize("fill", ["", "INSERT INTO {} SELECT * FROM {}"], ids=["made again", "restored"])
@every(where=lambda kind: kind.family == "database" and kind.engine == "pandas")
def test_the_lost_version_is_named_until_it_is_read_again_when_only_the_table_of_a_database_was_replaced(
    copy: Copy, fill: str, caplog: pytest.LogCaptureFixture
) -> None:
    lose_alone(copy, fill)
    kept = 1 if fill else 0

    (before,) = reported(copy)
    copy.run()
    without_rows = warnings_of(caplog, "target_behind")
    copy.run(numbers(3))
    copy.run(numbers(4))
    (after,) = reported(copy)
    lost = copy.target.ids()
    if kept:
        copy.watermarks.rewind(copy.job_id, to_version=1, retract=True, why="as the warning says")
    else:
        copy.watermarks.reset(copy.job_id, retract=True, why="as the warning says")
    copy.run()

    assert without_rows == []
    (warning,) = warnings_of(caplog, "target_behind")
    command = "rewind repairs --to-version 1" if kept else "reset repairs"
    assert "version=2: the target lacks this version" in warning
    assert f"run `watermarks {command} --retract --why TEXT`" in warning
    assert "does not have version 2, which was published" in before
    assert "had lost" in after
    assert (lost, copy.target.ids()) == ([1, 3, 4][1 - kept :], [1, 2, 3, 4])
    assert reported(copy) == []


@every(where=lambda kind: kind.family == "database" and kind.engine == "pandas")
def test_nothing_is_reported_when_the_new_table_of_a_database_has_the_same_rows_or_no_batch_column(
    copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    target = copy.target
    assert isinstance(target, Database)
    table, saved = target.quoted(target.name), target.quoted(f"{target.name}_saved")
    copy.run(numbers(1))
    copy.run(numbers(2))
    target.written.sql(f"ALTER TABLE {table} RENAME TO {saved}")
    target.create(numbers().schema, batch=pa.string())
    target.written.sql(f"INSERT INTO {table} SELECT * FROM {saved}")
    same = reported(copy)
    copy.run(numbers(3))
    copy.options = {}
    copy.run(numbers(4))
    target.written.sql(f"DROP TABLE {saved}", f"DELETE FROM {table} WHERE id > 2")
    copy.run(numbers(5))

    assert same + reported(copy) + warnings_of(caplog, "target_behind") == []


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_the_lost_version_is_named_when_the_next_one_waited_for_another_table(
    copy: Copy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.run(numbers(1))
    commit_only(copy, numbers(2), monkeypatch)
    target = copy.target
    assert isinstance(target, Database)
    target.written.sql(f"DROP TABLE {target.quoted(target.name)}")
    target.create(numbers().schema, batch=pa.string())

    copy.run(numbers(3))

    (warning,) = warnings_of(caplog, "target_behind")
    assert "version=1: " in warning
    assert copy.target.ids() == [2, 3]
    assert "had lost all that was published" in reported(copy)[0]


# --- two targets ----------------------------------------------------------------------------------------


class Both(Copy):
    """A job that writes its batches to a second target as well, once `second` is set."""

    second: Target | None = None

    def put(self, job: IncrementalJob, rows: pa.Table, **options: Any) -> None:
        super().put(job, rows, **options)
        if self.second is not None:
            self.second.write(job, rows, **options)


@pytest.fixture
def both(copy: Copy) -> Both:
    """Return a job whose backup has two rows, at the first target; after the backup, both targets got a third."""
    made = Both(copy.watermarks, copy.target, **copy.options)
    made.run(numbers(1, 2))
    backup = all_items(made.watermarks)
    made.second = made.target.another(f"{made.target.sink().name.rpartition('/')[2].rpartition('.')[2]}_second")
    made.second.create(numbers().schema, batch=pa.string())
    made.run(numbers(3))
    restore(made.watermarks, backup)
    return made


@every(where=with_records_of_its_own, slow=ALIKE)
def test_a_target_stops_the_run_until_it_is_answered_for_when_only_another_one_was(both: Both) -> None:
    assert both.second is not None
    answer(both, retract=True)

    with pytest.raises(TargetAheadError, match="version 2 of job 'repairs'") as caught:
        both.run(numbers(4))
    stopped = both.second.ids()
    answer(both, both.second, retract=True)
    both.run()
    both.run(numbers(5))

    assert caught.value.target == both.second.sink().name
    assert stopped == [3]
    assert (both.target.ids(), both.second.ids()) == ([1, 2, 3, 4, 5], [3, 4, 5])


@pytest.mark.parametrize("target", ["pandas", "sqlite"], indirect=True)
def test_a_target_stops_the_run_when_another_one_was_answered_for_and_then_the_job_was_reset(both: Both) -> None:
    assert both.second is not None
    answer(both, retract=True)
    second, both.second = both.second, None
    both.run(numbers(4))
    both.watermarks.reset(both.job_id, retract=True, why="once more")
    both.run()

    both.second = second
    with pytest.raises(TargetAheadError):
        both.run(numbers(5))

    assert (both.target.ids(), second.ids()) == ([1, 2, 3, 4], [3])


@pytest.mark.parametrize("target", ["pandas"], indirect=True)
def test_an_answer_counts_for_all_targets_when_the_item_does_not_say_which(both: Both) -> None:
    assert both.second is not None
    answer(both, retract=False)
    item = {name: value for name, value in item_of(both.watermarks, both.job_id).items() if name != "answers"}
    (former,) = item["epochs"]["M"]
    put_item(both.watermarks, item | {"epochs": {"M": {former: {"N": "2"}}}})

    both.run(numbers(4))

    assert (both.target.ids(), both.second.ids()) == ([1, 2, 3, 3, 4], [3, 3, 4])


# --- other jobs -----------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if f"event={event} " in record.getMessage()]


@every(where=with_records_of_its_own, slow=SLOW)
def test_first_run_names_the_other_jobs_once_when_their_batches_are_at_its_target(
    watermarks: Watermarks, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    others = [Copy(watermarks, copy.target, name, **copy.options) for name in ("parking", "libraries")]
    for number, other in enumerate(others):
        other.run(numbers(70 + number))
        other.run(numbers(80 + number))
    caplog.clear()

    copy.run(numbers(1))
    copy.run(numbers(2))

    (warning,) = warnings_of(caplog, "target_shared")
    digits = 8 if copy.target.kind.family == "database" else 32
    assert f"job={copy.job_id} " in warning
    assert all(mark_of(other.job_id)[:digits] in warning for other in others)
    assert copy.target.ids() == [1, 2, 70, 71, 80, 81]


@every(where=with_records_of_its_own, slow=ALIKE)
def test_nothing_is_said_when_the_other_batches_are_of_a_job_that_is_this_one_in_part_or_saves_nothing(
    watermarks: Watermarks, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    target = copy.target

    def run(job_id: str, batch: pa.Table, run_id: str, **options: Any) -> None:
        made = Copy(watermarks, target, job_id, **copy.options)
        made.batches.append(batch)
        given = {"spark": target.spark, "s3_client": target.s3} | options
        with IncrementalJob(watermarks, job_id, run_id, **given) as job:
            made.stage(job)

    run("parking", numbers(70), "jr_1", mode="pause")
    run(copy.job_id, numbers(74), "jr_0", mode="disable")
    copy.run(numbers(1))
    answer(copy)
    copy.run(numbers(2))
    run(copy.job_id, numbers(71), "jr_2", namespace="north")
    run(copy.job_id, numbers(72), "jr_3", namespace="south")
    run(derived_id(copy.job_id, "backfill", "rows"), numbers(73), "jr_4")
    run(copy.job_id, numbers(75), "jr_5", mode="disable")
    copy.run(numbers(3))

    assert warnings_of(caplog, "target_shared") + warnings_of(caplog, "target_behind") == []
    assert found_at(copy) == []
    assert target.ids() == [1, 2, 3, 70, 71, 72, 73, 74, 75]


# --- some targets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["pyiceberg"], indirect=True)
def test_the_call_in_python_is_named_when_only_the_script_has_the_catalog(copy: Copy) -> None:
    restored(copy)

    with pytest.raises(TargetAheadError, match=r"after_restore\(…, sinks=\[…\], retract=True"):
        copy.run()


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_target_is_named_once_when_only_its_script_can_ask_it(copy: Copy, caplog: pytest.LogCaptureFixture) -> None:
    copy.run(numbers(1))
    copy.run(numbers(2))
    restored(copy)

    after_restore(copy.watermarks, copy.job_id, why="a backup came back")

    (warning,) = warnings_of(caplog, "target_not_asked")
    assert f"job={copy.job_id} target={copy.target.sink().name}" in warning
    with pytest.raises(TargetAheadError, match=r"after_restore\(…, sinks="):
        copy.run()


@pytest.mark.parametrize("target", ["pandas"], indirect=True)
def test_a_warning_names_the_target_when_it_was_emptied(
    copy: Copy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy.run(numbers(1))
    Path(copy.target.sink().target.root).rename(tmp_path / "old")
    (found,) = found_at(copy)

    with caplog.at_level(logging.WARNING):
        copy.run(numbers(2))
        copy.run(numbers(3))

    assert found.startswith("target behind")
    (warning,) = warnings_of(caplog, "target_behind")
    assert "run `watermarks reset repairs --retract --why TEXT`" in warning
    assert copy.target.ids() == [2, 3]


def test_requests_to_s3_are_as_many_when_the_target_has_a_thousand_batches_or_another_job(
    watermarks: Watermarks, own_s3: Any, bucket: str
) -> None:
    target, prefix = f"s3://{bucket}/lake/t", "lake/t/"
    sent: list[tuple[str, str]] = []

    def run(last: int, job_id: str = "parking") -> tuple[list[str], int]:
        """Return the S3 requests of a run, and how many of them read what the target has recorded."""
        sent.clear()
        with IncrementalJob(watermarks, job_id, f"jr_{last}", s3_client=own_s3) as job:
            job.write(job.rows_since(pd.DataFrame({"id": range(1, last + 1)}), "id"), target)
        asked = [name for name, asked_for in sent if asked_for.startswith(f"{prefix}_glue_watermarks/")]
        return sorted(name for name, _ in sent), asked.count("ListObjectsV2")

    def fill(first: int, last: int) -> None:
        """Store the file of the first batch under the names of further batches, without a request for each."""
        (start,) = [
            one["Key"] for one in own_s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}part-")["Contents"][:1]
        ]
        data = own_s3.get_object(Bucket=bucket, Key=start)["Body"].read()
        for number in range(first, last):
            key = start.replace("-0000000001.", f"-{10**6 + number:010d}.")
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, key, data)

    own_s3.meta.events.register(
        "provide-client-params.s3",
        lambda params, model, **_: sent.append((model.name, params.get("Prefix", params.get("Key", "")))),
    )
    first, second, third = run(1), run(2), run(3)
    fill(3, 100)
    hundredth = run(4)
    fill(100, 1_000)
    thousandth = run(5)
    of_another = run(6, "libraries")

    assert second == third == hundredth == thousandth
    assert of_another[0].count("ListObjectsV2") == first[0].count("ListObjectsV2")
    assert (first[1], second[1], of_another[1]) == (1, 1, 1)
    records = own_s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}_glue_watermarks/")["Contents"]
    assert sorted(one["Key"][-2:] for one in records) == ["01", "01", "02", "03", "04", "05"]
