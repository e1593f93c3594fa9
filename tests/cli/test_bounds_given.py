"""Bounds that people type or pass: each command, option and method accepts and refuses the same values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import BoundsError, CursorError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.states import stored_identity
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import BAD_DATA, FAILED, OK
from scripts.jobs.ingest_table import begin_slice, make_parser, value_of
from tests.cli.stories import Command
from tests.support.listed_rows import ListedRows

JOB, CONTEXT = "repairs", "rows"
PLUS_TWO = timezone(timedelta(hours=2))
VALUES: dict[str, Any] = {
    "timestamp": datetime(2026, 3, 1, tzinfo=timezone.utc), "timestamp_ntz": datetime(2026, 3, 1, tzinfo=timezone.utc),
    "date": date(2026, 3, 1), "int": 90, "bigint": 90, "decimal(9,2)": Decimal(90), "string": "z",
}  # fmt: skip
"""A watermark of each type, above every bound that is accepted."""
TEXTS = [
    "20260110", "1768003200", "2027", "٣٤", "2026-01-10", "2026-01-10T00:00:00", "2026-01-10T00:00:00+02:00",
    "2026-01-10 00:00:00Z", " 5 ", "5", "1_000", "1e3", "NaN", "", "5,5", "9999999999", "1.5",
    "0001-01-01T00:00:00+02:00",
]  # fmt: skip
TIMES = {"2026-01-10T00:00:00+02:00", "2026-01-10 00:00:00Z"}
TAKEN = {
    "timestamp": TIMES, "timestamp_ntz": {"2026-01-10", "2026-01-10T00:00:00"},
    "date": {"2026-01-10", "2026-01-10T00:00:00"},
    "int": {"5", "2027", "20260110", "1768003200"}, "bigint": {"5", "2027", "20260110", "1768003200", "9999999999"},
    "decimal(9,2)": {"5", "2027", "1.5"}, "string": set(TEXTS) - {"٣٤"},
}  # fmt: skip


def set_state(watermarks: Watermarks, *kinds: str) -> None:
    columns = tuple(CursorColumn(f"c{number}", kind) for number, kind in enumerate(kinds))
    values = [VALUES[kind] for kind in kinds]
    state = stored_identity(columns, False, None) | {"value": values[0] if len(kinds) == 1 else values}
    watermarks.set_watermark(JOB, state, transformation_ctx=CONTEXT, why="a test")


def by_command(*words: str) -> Callable[[Command, Watermarks, str], bool]:
    def is_taken(run: Command, watermarks: Watermarks, text: str) -> bool:
        done = run(watermarks, words[0], JOB, "--context", CONTEXT, f"{words[1]}{text}", *words[2:])
        assert done.exit_code in (OK, FAILED, BAD_DATA), done.output
        told = ("Write a timestamp as", "beyond ASCII", "Give one each")
        assert (done.exit_code == BAD_DATA) == any(text in done.output for text in told)
        return done.exit_code != BAD_DATA

    return is_taken


def by_argument(option: str) -> Callable[[Command, Watermarks, str], bool]:
    def is_taken(run: Command, watermarks: Watermarks, text: str) -> bool:
        columns = watermarks.progress.state(JOB, CONTEXT).columns
        words = ["--JOB_NAME", JOB, *(f"--cursor-column={column.name}" for column in columns), f"--{option}={text}"]
        words += ["--source=s3://a/", "--target=s3://b/"]
        arguments = make_parser().parse_args(words)
        try:
            if option.startswith("backfill"):
                # Errors about other things count as taken, such as bounds that fit but are the wrong way round.
                begin_slice(arguments, watermarks)
            else:
                value_of(ListedRows(columns), arguments, option.replace("-", "_"))
        except CursorError as error:
            return f"--{option}" not in str(error)
        return True

    return is_taken


TYPED = {
    "complete-up-to": by_command("complete-up-to", "--at="),
    "backfill": by_command("backfill", "--low="),
    "set": by_command("set", "value=", "--why=a test", "--yes"),
    **{option: by_argument(option) for option in ("start-from", "high", "backfill-low", "backfill-high")},
}


@pytest.mark.parametrize("kind", TAKEN)
@pytest.mark.parametrize("door", TYPED)
def test_typed_bound_is_accepted_everywhere_when_it_means_exactly_one_value_of_the_column(
    run: Command, watermarks: Watermarks, door: str, kind: str
) -> None:
    set_state(watermarks, kind)

    assert {text for text in TEXTS if TYPED[door](run, watermarks, text)} == TAKEN[kind]


@pytest.mark.parametrize("door", TYPED)
def test_typed_bound_of_several_columns_is_accepted_everywhere_when_its_parts_fit(
    run: Command, watermarks: Watermarks, door: str
) -> None:
    set_state(watermarks, "date", "bigint")
    many = "2026-01-10" if door.startswith("backfill-") else "2026-01-10,5"

    taken = [TYPED[door](run, watermarks, text) for text in ("2026-01-10", many, "2026-01-10,5,5", "2026-01-10,x")]

    assert taken == [True, True, False, False]


NOON = datetime(2026, 1, 10, 12, tzinfo=timezone.utc)
PASSED = [
    NOON, NOON.astimezone(PLUS_TWO), NOON.replace(tzinfo=None), date(2026, 1, 10), "2026-01-10", 5, 20260110, True, 5.0,
    float("nan"), Decimal("1.5"), Decimal("NaN"), Decimal("1.505"), 9999999999, "٣٤", "", None, (), (5, 5), (5, None),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))),
]  # fmt: skip
FITTING = {
    "timestamp": {0, 1}, "timestamp_ntz": {0, 2}, "date": {3}, "int": {5, 6, 19}, "bigint": {5, 6, 13, 19},
    "decimal(9,2)": {5, 10, 19}, "string": {4, 15},
}  # fmt: skip
"""For each column type, the positions in PASSED of the values that fit it."""


def by_argument_of_job(name: str) -> Callable[[Watermarks, CursorColumn, Any], Any]:
    def ask(watermarks: Watermarks, column: CursorColumn, value: Any) -> None:
        with IncrementalJob(watermarks, "another") as job:
            zone = None if column.type == "timestamp" else timezone.utc
            source = ListedRows((column,), now=NOON + timedelta(days=30), zone=zone)
            job.rows_since(source, "c0", transformation_ctx="rows", strings=True, settled=True, **{name: value})
            raise LookupError

    return ask


PYTHON: dict[str, Callable[[Watermarks, CursorColumn, Any], Any]] = {
    "start_from": by_argument_of_job("start_from"),
    "high": by_argument_of_job("high"),
    "gaps": lambda watermarks, column, value: watermarks.gaps(JOB, CONTEXT, value),
    # `high` is missing, which is reported only after `low` is checked.
    "low": lambda watermarks, column, value: Backfill(
        watermarks, JOB, transformation_ctx=CONTEXT, low=value, high=None
    ).__enter__(),
}


@pytest.mark.parametrize("kind", FITTING)
@pytest.mark.parametrize("door", PYTHON)
def test_python_bound_is_accepted_everywhere_when_it_fits_the_column(
    watermarks: Watermarks, door: str, kind: str
) -> None:
    set_state(watermarks, kind)
    taken = set()
    for place, value in enumerate(PASSED):
        with suppress(CursorError):
            try:
                PYTHON[door](watermarks, CursorColumn("c0", kind), value)
                taken.add(place)
            except LookupError:
                taken.add(place)
            except BoundsError as error:
                if "high is missing" in str(error):
                    taken.add(place)

    assert taken - {16} == FITTING[kind]  # Position 16 is None, which is no bound.
