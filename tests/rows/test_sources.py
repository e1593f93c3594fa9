"""The questions that a source of rows answers, and that a source that wraps another forwards every question."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.progress import SliceSource
from scripts.helpers.rows.sources import ForwardingRows, RowSource
from tests.support.listed_rows import ListedRows

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
ID = CursorColumn("id", "bigint")
QUESTIONS = sorted(
    name for name in vars(RowSource) if not name.startswith("_") and inspect.isfunction(vars(RowSource)[name])
)
OF_A_SLICE = {
    "asking", "columns", "cursor_at", "counts", "is_partition", "open_writers", "rows", "typed_errors", "writers",
}  # fmt: skip
"""Questions that a slice forwards. The others concern rows past the slice; see `tests/jobs/test_backfill.py`."""


class Answering(ListedRows):
    """A source that answers each question with its name and its arguments."""

    assumes_utc = True

    def __getattribute__(self, name: str) -> Any:
        if name in QUESTIONS:
            return lambda *asked: (name, asked)
        return super().__getattribute__(name)


class Forwarding(ForwardingRows):
    def __init__(self, source: RowSource) -> None:
        self.source = source


def slice_of(source: RowSource) -> SliceSource:
    return SliceSource(source, "repairs", None, timedelta(0), lambda: NOW, is_done=False)


def arguments_of(name: str) -> tuple[str, ...]:
    """Return the parameter names of a question, which the test passes as its arguments."""
    return tuple(inspect.signature(getattr(RowSource, name)).parameters)[1:]


@pytest.mark.parametrize("name", QUESTIONS)
def test_source_that_reads_another_passes_each_question_on_when_asked(name: str) -> None:
    source = Forwarding(Answering((ID,)))

    answer = getattr(source, name)(*arguments_of(name))

    assert answer == (name, arguments_of(name))


@pytest.mark.parametrize("name", sorted(OF_A_SLICE))
def test_slice_knows_what_its_source_knows_when_asked(name: str) -> None:
    source = slice_of(Answering((ID,)))

    answer = getattr(source, name)(*arguments_of(name))

    assert answer == (name, arguments_of(name))


@pytest.mark.parametrize("wrap", [Forwarding, slice_of])
def test_source_that_reads_another_has_its_name_and_its_zone_when_asked(wrap: Callable[[RowSource], RowSource]) -> None:
    source = wrap(Answering((ID,), name="public.inspections"))

    assert (source.name, source.assumes_utc) == ("public.inspections", True)


def test_frame_and_table_of_each_kind_is_a_source_when_its_questions_are_listed() -> None:
    """A source without the base class would lack an answer to a question that is added later."""
    from scripts.helpers.databases.snapshot import PostgresSnapshot
    from scripts.helpers.databases.table import JdbcTable
    from scripts.helpers.rows.memory import ArrowRows, PandasRows
    from scripts.helpers.rows.spark_frames import DataFrameRows

    kinds = [ArrowRows, DataFrameRows, JdbcTable, PandasRows, PostgresSnapshot, SliceSource]

    assert [kind.__name__ for kind in kinds if not issubclass(kind, RowSource) or kind.__abstractmethods__] == []
