"""Rows that come as a stream: memory does not grow with their number, and an error in a batch leaves nothing behind."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import AccessRefusedError, SourceUnavailableError
from scripts.helpers.rows.arrow_streams import ArrowStream
from tests.sinks.contract.targets import Copy, Target, every, numbers

SCHEMA = numbers().schema
STREAMS = every(where=lambda kind: kind.engine == "stream")
BATCHES, ROWS, WIDTH = 64, 128, 8192
"""Of a megabyte each."""


def large() -> Iterator[pa.RecordBatch]:
    """Return rows that compression does not make smaller."""
    words = [pa.array([os.urandom(WIDTH // 2).hex() for _ in range(ROWS)]) for _ in range(4)]
    for at in range(BATCHES):
        yield pa.record_batch({"id": range(at * ROWS, (at + 1) * ROWS), "word": words[at % 4]}, schema=SCHEMA)


@contextmanager
def sampled() -> Iterator[list[int]]:
    """Sample pyarrow's memory in a thread; yield a list whose only item is the largest value so far."""
    before, most, is_done = pa.total_allocated_bytes(), [0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.002):
            most[0] = max(most[0], pa.total_allocated_bytes() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        is_done.set()
        thread.join()


@STREAMS
def test_memory_is_flat_from_staging_to_publication_when_rows_are_many(target: Target, copy: Copy) -> None:
    target.create(SCHEMA)
    target.frame = lambda rows: ArrowStream(SCHEMA, large)  # type: ignore[method-assign]

    with sampled() as most:
        copy.run(numbers(1))

    assert sorted(target.ids()) == list(range(BATCHES * ROWS))
    # All rows together need 67 MB.
    assert 0 < most[0] < 40_000_000


@STREAMS
def test_nothing_is_left_and_all_rows_come_later_when_a_source_breaks_off_between_two_batches(
    target: Target, copy: Copy
) -> None:
    target.create(SCHEMA)
    copy.run(numbers(1))
    before, frame = target.contents(), target.frame

    def broken(rows: pa.Table) -> Any:
        def read() -> Iterator[pa.RecordBatch]:
            yield from rows.to_batches()
            raise SourceUnavailableError("shop", "the connection broke off")

        return ArrowStream(rows.schema, read)

    target.frame = broken  # type: ignore[method-assign]
    with pytest.raises(SourceUnavailableError):
        copy.run(numbers(2), numbers(3))
    left = target.contents()
    target.frame = frame  # type: ignore[method-assign]
    copy.run()

    assert left == before
    assert target.ids() == [1, 2, 3]


@pytest.mark.parametrize("target", ["pyiceberg-stream"], indirect=True)
def test_a_warning_names_the_version_before_when_a_table_is_taken_back_into_the_middle_of_a_batch(
    target: Any, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    frame, word = target.frame, "w" * WIDTH
    copy.run(numbers(1))
    target.frame = lambda rows: ArrowStream(
        SCHEMA, lambda: (pa.record_batch({"id": [at] * ROWS, "word": [word] * ROWS}, schema=SCHEMA) for at in range(70))
    )
    copy.run(numbers(2))
    target.frame = frame

    target.roll_back(target.table.current_snapshot().parent_snapshot_id)
    caplog.clear()
    copy.run(numbers(3))

    (warning,) = [one.getMessage() for one in caplog.records if "event=target_behind" in one.getMessage()]
    assert "rewind repairs --to-version 1 " in warning


@pytest.mark.parametrize("target", ["stream", "pandas", "deltalake-stream"], indirect=True)
def test_error_names_the_full_disk_and_nothing_is_left_when_rows_are_buffered_on_disk(target: Any, copy: Copy) -> None:
    copy.run(numbers(1))
    before, words = target.contents(), numbers(2).set_column(1, "word", pa.array([os.urandom(2_000_000).hex()]))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        copy.refused(words, AccessRefusedError, "write to .*whether the disk is full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    left = target.contents()
    copy.run(numbers(2))

    assert left == before
    assert target.ids() == [1, 2]


@pytest.mark.parametrize("target", ["stream", "pyarrow"], indirect=True)
def test_row_groups_have_the_rows_that_are_asked_for_when_batches_are_smaller(target: Any, copy: Copy) -> None:
    rows = pa.Table.from_batches(numbers(*range(1_000)).to_batches(max_chunksize=10))

    copy.run(rows, row_group_size=500)

    (packed,) = [data for name, data in target.place.all().items() if name.endswith(".parquet")]
    groups = pq.read_metadata(BytesIO(packed))
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [500, 500]
