"""Rows that a constraint of the target refuses are found before the commit, and no error shows a row."""

from __future__ import annotations

import traceback

import pyarrow as pa
import pytest

from scripts.helpers.errors import TargetError, UnpublishedError
from tests.sinks.contract.targets import IN_A_BUCKET, Copy, Target, every, numbers

EVENTS = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("word", pa.string())])


@every("constrain", slow=IN_A_BUCKET)
def test_rows_are_counted_and_refused_before_the_commit_when_a_check_of_the_target_fails(
    target: Target, copy: Copy
) -> None:
    target.create(numbers().schema)
    copy.prepare(numbers(1))
    target.constrain("small", "id < 5")
    before = target.contents()

    copy.refused(numbers(2, 6, 7), TargetError, r"^(?!.*w[67])(?s:.*)CHECK .*id.* < .*5.* refuses 2 rows\. Correct")
    left = target.contents()
    copy.run(numbers(3))

    assert left == before
    assert target.ids() == [1, 3]


@every("constrain", where=lambda kind: "merge" in kind.can, slow=("delta-spark",))
def test_newest_row_of_each_key_is_what_counts_when_a_target_with_a_check_is_merged_into(
    target: Target, copy: Copy
) -> None:
    def events(*rows: tuple[int, int, str]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(EVENTS.names, row, strict=True)) for row in rows], EVENTS)

    deletes = "word = 'gone'" if target.spark is not None else lambda rows: rows.word == "gone"
    options = {"keys": "id", "sequence_by": "at", "deletes": deletes}
    target.create(EVENTS)
    copy.run(events((1, 1, "a")), **options)
    target.constrain("known", "word IN ('a', 'b')")

    copy.refused(events((1, 2, "a"), (1, 3, "x"), (2, 1, "y")), TargetError, "refuses 2 rows", **options)
    copy.run(events((1, 4, "x"), (1, 5, "b"), (2, 2, "a"), (2, 3, "gone")), **options)

    assert [row["word"] for row in target.read()] == ["b"]


@every("constrain", slow=("delta-spark", *IN_A_BUCKET))
def test_no_row_is_shown_when_a_target_gets_its_check_after_the_commit(
    target: Target, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    target.create(numbers().schema)
    copy.run(numbers(1))
    job = copy.begin(numbers(2, 678_678))
    target.constrain("small", "id < 5")

    with pytest.raises(UnpublishedError) as caught:
        job.__exit__(None, None, None)

    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "TargetError" in shown
    assert "678" not in shown
    assert target.ids() == [1]
