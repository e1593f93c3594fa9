"""The life of an attempt at a batch, from staging until its output is swept, published or taken back."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from scripts.helpers.errors import InvalidValueError, TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks.outputs import mark_of
from tests.sinks.contract.targets import TARGETS, Delta, Iceberg, Kind, Target, every, numbers, without_spark
from tests.support.staging import staged_by

JOB, EPOCH = "repairs", "e1"
SINCE = datetime(2026, 11, 23, tzinfo=timezone.utc)


def batch(version: int, epoch: str = EPOCH) -> BatchId:
    return BatchId(JOB, epoch, version)


def taken_back(output: Output, first: int, last: int, column: str = "") -> Retraction:
    """Return the decision to take back an output's target from version `first` to `last`, both included."""
    rows = dict.fromkeys(range(first, last + 1), 1)
    return Retraction(
        output.sink, output.target, output.staging, output.job, output.epoch, first, last, SINCE, column, rows,
        job_id=JOB,
    )  # fmt: skip


def published(target: Target, version: int, *ids: int, epoch: str = EPOCH, **options: Any) -> Output:
    """Publish a batch, and delete its staged files."""
    output = target.stage(batch(version, epoch), *ids, **options)
    target.sink().publish(output)
    target.sink().clear(output)
    return output


def of_pandas(kind: Kind) -> bool:
    return kind.engine == "pandas"


def a_table(kind: Kind) -> bool:
    """Return whether a target is a Delta or Iceberg table, written with Spark or pandas."""
    return kind.family in ("delta", "iceberg") and kind.engine in ("pandas", "spark")


@every(where=lambda kind: kind.engine == "pandas" or kind == TARGETS["iceberg-spark"])
def test_losers_up_to_the_batch_are_swept_and_other_attempts_stay_when_it_is_published(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.sinks")
    target.create(numbers().schema)
    sink = target.sink()
    losers = [target.stage(batch(version), 1, fence=1) for version in (2, 3)]
    winner, waiting, later = (target.stage(batch(version), version, fence=9) for version in (3, 1, 10))
    other_epoch = target.stage(batch(1, "e2"), 70)
    other_job = target.stage(BatchId("parking", EPOCH, 1), 71)

    sink.publish(winner)
    sink.clear(winner)
    swept = sink.sweep(winner, [waiting.folder])

    assert (swept, target.ids()) == (2, [3])
    assert set(sink.staged(mark_of(JOB))) == {waiting.folder, later.folder, other_epoch.folder}
    assert sink.staged(other_job.job) == [other_job.folder]
    said = [one.getMessage() for one in caplog.records if "event=staging_swept " in one.getMessage()]
    assert sorted(text.partition("=")[2].split("=", 2)[2] for text in said) == sorted(one.folder for one in losers)
    assert all(f" target={sink.name} " in text for text in said)


@every(where=lambda kind: kind.family in ("delta", "database") and kind.engine in ("pandas", "spark"))
def test_batch_never_comes_when_its_publisher_wakes_up_after_it_was_taken_back(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    """For Iceberg, where a publisher looks in several ways, see `test_iceberg`."""
    target.create(numbers().schema)
    published(without_spark(target), 1, 1)
    output = target.stage(batch(2), 2)
    places = [target.sink().staging.place] if isinstance(target, Delta) else []
    read = [(place, name, place.read(name) or b"") for place in places for name in place.files(output.folder)]
    # Version 3 was the decision itself.
    later = target.stage(batch(4), 4)

    for _ in range(2):
        target.sink().retract(taken_back(output, 2, 2))
    left = target.sink().staged(output.job)
    # Restore the staged files, as if the publisher had read them before they were deleted.
    for place, name, data in read:
        place.write(name, data)
    target.sink().publish(output)
    retracted = target.ids()
    target.sink().publish(later)

    assert left == [later.folder]
    assert (retracted, target.ids()) == ([1], [1, 4])
    assert "retraction_left" not in caplog.text


@pytest.mark.parametrize("column", ["", "dropped"], ids=["no-column", "column-gone"])
@every(where=lambda kind: kind.family != "files" and kind.engine == "pandas")
def test_published_rows_stay_with_a_warning_and_staged_ones_go_when_nothing_shows_their_batch(
    target: Target, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    target.create(numbers().schema)
    published(target, 1, 1)
    waiting = target.stage(batch(2), 2)

    counts = [target.sink().retract(taken_back(waiting, 1, 2, column))]
    once = target.newest() if "roll_back" in target.kind.can else None
    counts.append(target.sink().retract(taken_back(waiting, 1, 2, column)))

    assert (counts, target.ids(), target.sink().staged(waiting.job)) == ([0, 0], [1], [])
    assert f"event=retraction_left target={target.sink().name} versions=1-1 rows=1:" in caplog.text
    if once is not None:
        assert target.newest() == once


@every(where=a_table)
def test_published_rows_go_and_others_stay_when_a_column_holds_their_batch(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    """For databases, see `test_database_names`."""
    column = """b'"`\\%s?:x$1\u00e9""" + (" {0}" if target.kind.family == "iceberg" else "")  # Signs of SQL.
    options: dict[str, Any] = {"batch_column": column}
    published(without_spark(target), 1, 1, **options)
    published(without_spark(target), 3, 9, epoch="e2", **options)
    second = published(target, 2, 2, **options)
    target.stage(batch(3), 3, **options)
    taken = taken_back(second, 2, 3, column)

    shown = target.sink().to_retract(taken)
    counts = [target.sink().retract(taken) for _ in range(2)]
    decided = target.ids()
    target.sink().publish(second)
    target.sink().publish(target.stage(batch(5), 5, **options))

    assert f"1 row in {second.target}" in shown
    assert (counts, decided, target.ids()) == ([1, 0], [1, 9], [1, 5, 9])
    assert "retraction_left" not in caplog.text


@every("batch_column", where=of_pandas)
def test_batch_column_is_refused_when_the_rows_have_it(target: Target) -> None:
    target.create(numbers().schema)

    with pytest.raises(InvalidValueError, match="batch_column='word' is filled by the sink"):
        target.stage(batch(1), 1, batch_column="word")


@every("batch_column", where=of_pandas)
def test_rows_are_refused_when_the_table_lacks_the_batch_column(target: Target) -> None:
    target.create(numbers().schema)
    first = published(target, 1, 1)

    with pytest.raises(TargetError, match="'batch'") as caught:
        target.stage(batch(2), 2, batch_column="batch")

    assert getattr(caught.value, "unknown", ("batch",)) == ("batch",)
    assert target.sink().staged(first.job) == []


def make(target: Target, schema: pa.Schema) -> None:
    """Make a table with NOT NULL columns by the means of its format."""
    if isinstance(target, Delta):
        write_deltalake(target.place.uri, schema.empty_table())
    elif isinstance(target, Iceberg) and target.spark is not None:
        listed = ", ".join(f"`{one.name}` {one.metadata[b'sql'].decode()}" for one in schema)
        target.spark.sql(f"CREATE TABLE {target.name} ({listed}) USING iceberg")
    elif isinstance(target, Iceberg):
        target.catalog.create_table(target.name.partition(".")[2], schema)


@every(where=a_table)
def test_batch_is_refused_before_its_commit_when_a_column_that_needs_a_value_has_none(target: Target) -> None:
    name = "a.b"  # In many expressions, this is field b of a struct a.
    make(target, pa.schema([
        pa.field("id", pa.int64(), metadata={"sql": "bigint"}),
        pa.field(name, pa.string(), nullable=False, metadata={"sql": "string NOT NULL"}),
    ]))  # fmt: skip
    rows = [pa.table({"id": [1, 2], name: ["x", value]}) for value in (None, "y")]

    with pytest.raises(InvalidValueError, match=r"'a\.b' has 1 NULL"):
        staged_by(target.sink(), batch(1), 1, target.frame(rows[0]))
    refused = target.ids(), target.sink().staged(mark_of(JOB))
    target.sink().publish(staged_by(target.sink(), batch(1), 1, target.frame(rows[1])))

    assert refused == ([], [])
    assert target.ids() == [1, 2]
