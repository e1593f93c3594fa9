"""A job is copied to another table: it continues there, and nowhere else, even if a process dies half-way."""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.decisions.copying import Copied, copy_job
from scripts.helpers.errors import (
    AmbiguousHistoryError,
    CorruptItemError,
    FencedError,
    InvalidValueError,
    JobMovedError,
    RunInProgressError,
    StaleError,
    UnknownJobError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.requests import Between, Delete, Write
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.reasons import because
from tests.support.steps import add, commit, frozen, large

JOB = "parking"
NextTo = Callable[[], Watermarks]


@pytest.fixture
def new_file(tmp_path: Path, clock: Clock) -> Callable[[], Watermarks]:
    """Return a builder of tables that are files."""
    numbers = itertools.count(1)

    def make() -> Watermarks:
        made = Watermarks(f"sqlite:{tmp_path}/{next(numbers)}.db", clock=clock)
        made.store.sleep = lambda seconds: None
        made.create_table()
        return made

    return make


@pytest.fixture(params=["sqlite-dynamodb", "dynamodb-sqlite", "dynamodb-dynamodb", "sqlite-sqlite"])
def pair(
    request: pytest.FixtureRequest, new_file: NextTo, dynamodb: Any, clock: Clock
) -> tuple[Watermarks, Watermarks]:
    """Return a table to copy from and one to copy to."""

    def new_table() -> Watermarks:
        made = Watermarks(f"copy-{next(_numbers)}", dynamodb, clock=clock)
        made.store.sleep = lambda seconds: None
        made.create_table()
        return made

    one, other = (new_file() if kind == "sqlite" else new_table() for kind in request.param.split("-"))
    return one, other


_numbers = itertools.count(1)


@pytest.fixture
def two(new_file: NextTo) -> tuple[Watermarks, Watermarks]:
    return new_file(), new_file()


def copy(source: Watermarks, target: Watermarks, job_id: str = JOB) -> Copied:
    return copy_job(Changes(source.lookups), target.store, job_id)


def contents(marks: Watermarks, job_id: str = JOB) -> dict[str, Any]:
    """Return all items of a job except its head."""
    found = {item[items.RANGE_KEY]["S"]: item for item in marks.store.query(Between(job_id))}
    return {key: item for key, item in found.items() if key != items.HEAD_KEY}


def with_a_history(marks: Watermarks) -> Watermarks:
    """Give a table a job with a history, values of all types, chunks and an open plan."""
    commit(marks, JOB, "jr_1", {"n": 1, "blob": b"\x00\xff", "none": None, "yes": True, "share": 0.5})
    commit(marks, JOB, "jr_2", {"large": large(1), "n": 2}, rows_collected=3)
    marks.reset(JOB, transformation_ctx="large", why="too large", who="sam")
    commit(marks, JOB, "jr_3", {"large": large(2), "n": 3})
    frozen(marks, JOB, "jr_4", plan={"n": {"from": 3}}, following={"n": 4}).abort()
    return marks


# --- what arrives ---------------------------------------------------------------------------------


def test_every_item_arrives_as_it_is_when_a_job_is_copied(pair: tuple[Watermarks, Watermarks]) -> None:
    source, target = with_a_history(pair[0]), pair[1]
    before, versions = contents(source), [repr(entry) for entry in source.history(JOB)]

    done = copy(source, target)

    assert contents(target) == before
    assert done == (len(before) + 1, 0)
    assert target.get_watermark_values(JOB) == source.get_watermark_values(JOB)
    assert target.get_watermark_values(JOB, "jr_2") == {"large": large(1), "n": 2}
    assert [repr(entry) for entry in target.history(JOB)] == versions
    assert [finding.kind for finding in target.doctor(JOB)] == ["open plan"]


def test_open_plan_is_replayed_under_its_batch_id_when_a_job_was_copied(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = with_a_history(two[0]), two[1]
    expected = source.latest(JOB).next_batch
    copy(source, target)

    run = target.begin(JOB, "jr_5")

    assert (run.replay, run.batch_id, run.planned("n")) == (True, expected, {"from": 3})
    run.commit()
    assert target.get_watermark_values(JOB) == {"n": 4}


def test_item_of_the_original_class_is_adopted_when_its_job_is_copied(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = two
    source.store.put(items.key(JOB, "jr_old") | {"watermarks": {"M": {"n": {"N": "808"}}}}, if_new=True)

    copy(source, target)

    assert target.get_watermark_values(JOB) == {"n": 808}
    with pytest.raises(JobMovedError):
        source.begin(JOB, "jr_1")


def test_records_of_job_runs_stay_when_a_job_is_copied(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    for marks in two:
        for key in (items.run_record_key("jr_1"), items.JOB_RECORD_KEY):
            marks.store.put(items.key(JOB, key) | {"state": {"S": marks.table_name}}, if_new=True)

    done = copy(source, target)

    assert done.left_out == 2
    assert {item["state"]["S"] for item in contents(target).values() if "state" in item} == {target.table_name}


# --- what stays -----------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Watermarks], object]] = {
    "begin": lambda marks: marks.begin(JOB, "jr_9"),
    "take over": lambda marks: marks.begin(JOB, "jr_9", take_over=True),
    "add_watermark": lambda marks: add(marks, JOB, "jr_9", n=9),
    "rewind": lambda marks: marks.rewind(JOB, to_version=1, why="a test"),
    "reset": lambda marks: marks.reset(JOB, why="a test"),
    "set": lambda marks: marks.set_watermark(JOB, {"n": 9}, why="a test"),
    "discard": lambda marks: marks.discard_plan(JOB, why="a test"),
    "after a restore": lambda marks: marks.decisions.restore(JOB, {}, why="a test"),
}


@pytest.mark.parametrize("call", CALLS)
def test_call_is_refused_and_names_the_new_place_when_the_job_has_moved(
    two: tuple[Watermarks, Watermarks], call: str
) -> None:
    source, target = with_a_history(two[0]), two[1]
    if call == "add_watermark":
        source.discard_plan(JOB, why="a test")
    copy(source, target)
    before = list(source.store.query(Between(JOB)))

    with pytest.raises(JobMovedError) as caught:
        CALLS[call](source)

    assert caught.value.moved_to == target.table_name
    assert target.table_name in str(caught.value)
    assert list(source.store.query(Between(JOB))) == before


def test_warning_says_where_the_job_is_when_it_is_looked_up_where_it_was(
    two: tuple[Watermarks, Watermarks], caplog: pytest.LogCaptureFixture
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    copy(source, target)
    commit(target, JOB, "jr_2", {"n": 2})

    with caplog.at_level(logging.WARNING):
        found = source.get_watermark_values(JOB)

    assert found == {"n": 1}
    assert f"event=moved job={JOB} to={target.table_name}" in caplog.text
    assert f", in {target.table_name}>" in repr(source.latest(JOB))


def test_copy_is_refused_when_a_run_is_at_work(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = two
    run = source.begin(JOB, "jr_1")

    with pytest.raises(RunInProgressError):
        copy(source, target)

    assert contents(target) == {}
    run.freeze({}, {"n": 1})
    assert run.commit() == "done"


def test_dead_run_can_commit_nothing_when_its_job_was_copied(two: tuple[Watermarks, Watermarks], clock: Clock) -> None:
    source, target = two
    dead = frozen(source, JOB, "jr_1", following={"n": 1})
    clock.move(days=1)
    copy(source, target)

    with pytest.raises(FencedError):
        dead.commit()

    run = target.begin(JOB, "jr_2")
    assert run.replay
    run.commit()
    assert target.get_watermark_values(JOB) == {"n": 1}


# --- there and back -------------------------------------------------------------------------------


def test_nothing_changes_when_a_job_is_copied_again(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = with_a_history(two[0]), two[1]
    copy(source, target)
    target.begin(JOB, "jr_5").commit()
    before = list(target.store.query(Between(JOB)))

    assert copy(source, target).items == 0

    assert list(target.store.query(Between(JOB))) == before


def test_job_comes_back_with_what_was_done_elsewhere_when_it_is_copied_back(
    two: tuple[Watermarks, Watermarks],
) -> None:
    source, target = with_a_history(two[0]), two[1]
    copy(source, target)
    target.begin(JOB, "jr_5").commit()
    target.store.delete(JOB, items.log_key(1))  # The entry expires.

    copy(target, source)

    commit(source, JOB, "jr_6", {"n": 6})
    assert [entry.version for entry in source.history(JOB)] == [6, 5, 4, 3, 2]
    assert source.doctor(JOB) == []
    with pytest.raises(JobMovedError):
        target.begin(JOB, "jr_7")


def test_former_epochs_are_named_when_a_job_comes_back_in_another_one(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    first = source.latest(JOB).epoch
    copy(source, target)
    commit(target, JOB, "jr_2", {"n": 2})
    target.decisions.restore(JOB, {}, why="a test")
    second = target.latest(JOB).epoch
    copy(target, source)

    head = source.latest(JOB)

    assert (head.epoch, dict(head.epochs)) == (second, {first: 2})


def test_answers_for_targets_come_along_when_a_job_goes_to_another_table_and_back(
    two: tuple[Watermarks, Watermarks],
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    first = source.latest(JOB).epoch
    source.decisions.restore(JOB, {"s3://lake/a": {first: 3}}, why="a test")
    copy(source, target)
    second = target.latest(JOB).epoch
    target.decisions.restore(JOB, {"s3a://lake/b/": {first: 4, second: 5}}, why="a test")
    copy(target, source)

    head = source.latest(JOB)

    assert [head.last_versions_at(name)[first] for name in ("s3://lake/a", "s3://lake/b", "s3://lake/c")] == [3, 4, 1]
    assert [head.last_versions_at(name)[second] for name in ("s3://lake/a", "s3://lake/b")] == [2, 5]
    assert dict(head.epochs) == {first: 1, second: 2}


def test_epoch_of_an_earlier_job_is_named_when_another_takes_its_place(
    new_file: NextTo, two: tuple[Watermarks, Watermarks]
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    for number in range(3):
        commit(target, JOB, f"jr_old_{number}", {"old": number})
    old = target.latest(JOB).epoch
    with pytest.raises(InvalidValueError, check=because("job_exists")):
        copy(source, target)
    copy(target, new_file())

    copy(source, target)

    assert dict(target.latest(JOB).epochs) == {old: 3}
    assert [entry.version for entry in target.history(JOB)] == [1]
    assert [key for key in contents(target) if key.startswith("jr_old")] == []
    assert target.doctor(JOB) == []


def test_older_copy_is_refused_when_the_job_has_gone_further(
    two: tuple[Watermarks, Watermarks], tmp_path: Path, new_file: NextTo
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    with sqlite3.connect(source.table_name.removeprefix("sqlite:")) as db:
        db.execute("VACUUM INTO ?", (str(tmp_path / "older.db"),))
    commit(source, JOB, "jr_2", {"n": 2})
    copy(source, target)

    with pytest.raises(InvalidValueError, check=because("job_exists"), match="a later version of it"):
        copy(Watermarks(f"sqlite:{tmp_path}/older.db"), source)

    assert source.latest(JOB).moved_to == target.table_name


def test_copy_is_refused_when_the_job_has_moved_to_a_third_table(
    new_file: NextTo, two: tuple[Watermarks, Watermarks]
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    copy(source, target)
    third = new_file()

    with pytest.raises(JobMovedError):
        copy(source, third)

    assert third.store.read_head(JOB) is None


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["log", "run", "chunk gone", "head"])
def test_copy_names_the_item_and_changes_nothing_when_one_is_damaged(
    two: tuple[Watermarks, Watermarks], spoil: str
) -> None:
    source, target = with_a_history(two[0]), two[1]
    chunk = items.chunk_key(source.latest(JOB).watermarks["large"].id, 1)
    key = {"log": items.log_key(2), "run": "jr_2", "chunk gone": chunk, "head": items.HEAD_KEY}[spoil]
    if spoil == "chunk gone":
        source.store.delete(JOB, key)
    else:
        damaged = source.store.read(JOB, key)
        assert damaged is not None
        source.store.put(damaged | {"version": {"S": "two"}}, if_new=False)

    with pytest.raises(CorruptItemError) as caught:
        copy(source, target)

    assert caught.value.range_key == key
    assert contents(target) == {}


def test_copy_is_refused_when_there_is_no_such_job(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = two
    source.store.put(items.key(JOB, items.JOB_RECORD_KEY), if_new=True)

    with pytest.raises(UnknownJobError):
        copy(source, target)


def test_copy_is_refused_when_nobody_knows_which_item_of_the_original_class_counts(
    two: tuple[Watermarks, Watermarks],
) -> None:
    source, target = two
    for run_id in ("jr_1", "jr_2"):
        source.store.put(items.key(JOB, run_id) | {"watermarks": {"M": {"n": {"N": "1"}}}}, if_new=True)

    with pytest.raises(AmbiguousHistoryError):
        copy(source, target)


def test_copy_is_refused_when_the_target_has_items_of_the_original_class(two: tuple[Watermarks, Watermarks]) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    target.store.put(items.key(JOB, "jr_1") | {"watermarks": {"M": {"n": {"N": "808"}}}}, if_new=True)

    with pytest.raises(InvalidValueError, check=because("job_exists")):
        copy(source, target)

    commit(source, JOB, "jr_2", {"n": 2})


# --- what happens during a copy -------------------------------------------------------------------


class DiedError(BaseException):
    """The process has died."""


class Dying:
    """A table whose process dies at its n-th write: just before it or just after it."""

    def __init__(self, table: Any, left: list[int], before: bool) -> None:
        self._table, self._left, self._before = table, left, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def write(self, write: Write) -> bool:
        self._left[0] -= 1
        if self._left[0] == 0 and self._before:
            raise DiedError
        done: bool = self._table.write(write)
        if self._left[0] == 0:
            raise DiedError
        return done


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_job_is_whole_at_one_table_when_a_copy_dies_at_any_write(
    pair: tuple[Watermarks, Watermarks], clock: Clock, before: bool
) -> None:
    first, second = pair
    with_a_history(first)
    for number in range(1, 200):
        source, target = (first, second) if number % 2 else (second, first)
        clock.move(hours=1)
        expected, wanted = contents(source), source.get_watermark_values(JOB)
        left = [number]
        tables = source.store.table, target.store.table
        source.store.table, target.store.table = (Dying(table, left, before) for table in tables)
        died = False
        try:
            copy(source, target)
        except DiedError:
            died = True
        finally:
            source.store.table, target.store.table = tables
        assert not (may_begin(source) and may_begin(target)), f"both tables have the job after write {number}"
        assert may_begin(source) or target.store.read_head(JOB), f"a first run may begin after write {number}"

        copy(source, target)

        assert contents(target) == expected
        assert target.get_watermark_values(JOB) == wanted
        assert (may_begin(source), may_begin(target)) == (False, True)
        if not died:
            return
    pytest.fail("the copy never came to its end")


def may_begin(marks: Watermarks) -> bool:
    """Return whether a run of the job can begin at this table."""
    if marks.store.read_head(JOB) is None:
        return False
    try:
        marks.begin(JOB, "jr_probe").abort()
    except JobMovedError:
        return False
    return True


def test_run_keeps_its_history_when_a_second_copy_of_its_job_is_slow(
    two: tuple[Watermarks, Watermarks], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = with_a_history(two[0]), two[1]
    copy(source, target)  # The target keeps items of this earlier stay of the job.
    target.begin(JOB, "jr_4").commit()
    commit(target, JOB, "weekly", {"n": 3})
    copy(target, source)
    source.store.delete(JOB, "weekly")
    source.store.expire(JOB, "jr_2", datetime(2046, 1, 1, tzinfo=timezone.utc))
    slow = Watermarks(target.table_name)
    table: Any = slow.store.table
    write, done = table.write, list[bool]()

    def write_late(given: Write) -> bool:
        if isinstance(given, Delete) and not done:
            done.append(True)
            copy(source, target)
            commit(target, JOB, "weekly", {"n": 6})
            commit(target, JOB, "jr_2", {"n": 7})
        return bool(write(given))

    monkeypatch.setattr(table, "write", write_late)

    with pytest.raises(StaleError):
        copy(source, slow)

    assert [entry.version for entry in target.history(JOB)] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert target.get_watermark_values(JOB, "jr_2") == {"n": 7}
    assert target.get_watermark_values(JOB, "weekly") == {"n": 6}
    assert target.doctor(JOB) == []


def interrupted(source: Watermarks, target: Watermarks, writes: int) -> bool:
    """Let a copy die right after `writes` writes; return whether it died."""
    left, tables = [writes], (source.store.table, target.store.table)
    source.store.table, target.store.table = (Dying(table, left, before=False) for table in tables)
    try:
        copy(source, target)
    except DiedError:
        return True
    finally:
        source.store.table, target.store.table = tables
    return False


@pytest.mark.parametrize("writes", range(1, 8))
def test_history_stays_when_a_copy_in_the_other_direction_follows_one_that_died(
    two: tuple[Watermarks, Watermarks], writes: int
) -> None:
    source, target = with_a_history(two[0]), two[1]
    before = contents(source)
    assert interrupted(source, target, writes)

    with pytest.raises(JobMovedError, match="in the same direction"):
        copy(target, source)

    assert contents(source) == before
    copy(source, target)
    assert contents(target) == before
    assert [finding.kind for finding in target.doctor(JOB)] == ["open plan"]


def test_job_is_at_one_table_when_a_copy_died_and_another_went_to_a_third(
    new_file: NextTo, two: tuple[Watermarks, Watermarks]
) -> None:
    source, target = two
    third = new_file()
    commit(source, JOB, "jr_1", {"n": 1})
    assert interrupted(source, target, 1)
    copy(source, third)

    with pytest.raises(JobMovedError):
        copy(target, source)
    with pytest.raises(JobMovedError):
        copy(source, target)
    copy(third, target)

    assert [may_begin(marks) for marks in (source, target, third)] == [False, True, False]


def test_job_is_at_one_table_when_it_is_copied_to_two_tables_at_once(
    new_file: NextTo, two: tuple[Watermarks, Watermarks], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    other = new_file()
    commit(source, JOB, "jr_1", {"n": 1})
    swap = other.store.swap

    def swap_late(*given: Any) -> Any:
        monkeypatch.undo()
        copy(Watermarks(source.table_name), target)
        return swap(*given)

    monkeypatch.setattr(other.store, "swap", swap_late)

    with pytest.raises(StaleError):
        copy(source, other)

    assert [may_begin(marks) for marks in (source, target, other)] == [False, True, False]


def test_copy_is_refused_when_the_doctor_repairs_the_job_meanwhile(
    two: tuple[Watermarks, Watermarks], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    source.store.write_chunks(JOB, {"s#orphan": [b"nothing refers to it"]})
    swap = target.store.swap

    def swap_late(*given: Any) -> Any:
        monkeypatch.undo()
        assert [finding.kind for finding in source.doctor(JOB, repair=True)] == ["orphaned chunk"]
        return swap(*given)

    monkeypatch.setattr(target.store, "swap", swap_late)

    with pytest.raises(StaleError):
        copy(source, target)

    assert (may_begin(source), may_begin(target)) == (True, False)


def test_copy_is_not_taken_for_done_when_the_target_was_made_anew(
    new_file: NextTo, two: tuple[Watermarks, Watermarks]
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    copy(source, target)
    for key in [*contents(target), items.HEAD_KEY]:
        target.store.delete(JOB, key)
    commit(target, JOB, "jr_1", {"other": 1})

    with pytest.raises(InvalidValueError, check=because("job_exists")):
        copy(source, target)


def test_table_has_another_identity_when_it_is_recreated_under_its_name(dynamodb: Any) -> None:
    places = []
    for _ in range(2):
        made = Watermarks("made-anew", dynamodb)
        made.create_table()
        places.append(made.store.table.place)
        dynamodb.delete_table(TableName="made-anew")

    assert len(set(places)) == 2


def test_copy_is_refused_when_a_run_commits_while_the_job_is_read(
    two: tuple[Watermarks, Watermarks], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    commit(source, JOB, "jr_1", {"n": 1})
    swap, other = target.store.swap, Watermarks(source.table_name)

    def swap_late(*given: Any) -> Any:
        monkeypatch.undo()
        commit(other, JOB, "jr_2", {"n": 2})
        return swap(*given)

    monkeypatch.setattr(target.store, "swap", swap_late)

    with pytest.raises(StaleError, match="Copy it again"):
        copy(source, target)

    copy(source, target)
    assert target.get_watermark_values(JOB) == {"n": 2}


def test_expired_history_is_not_brought_back_when_a_job_returns(new_file: NextTo, tmp_path: Path, clock: Clock) -> None:
    source = new_file()
    target = Watermarks(new_file().table_name, clock=clock, retention=timedelta(days=9_999))
    commit(source, JOB, "jr_1", {"n": 1})
    copy(source, target)
    commit(target, JOB, "jr_2", {"n": 2})

    copy(target, source)

    found = contents(source)
    assert {key for key, item in found.items() if items.TTL_ATTRIBUTE in item} == {items.log_key(1), "jr_1"}
