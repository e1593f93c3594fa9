"""`watermarks history --diff` shows the differences between two versions in cells that a person can read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any

import pytest

from scripts.cli.diff import differences
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, Command, document, rows_state
from tests.support.files_states import state_of
from tests.support.rows_states import with_coverage
from tests.support.steps import commit


def moved(before: Any, after: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"rows": rows_state(before, "bigint")}, {"rows": rows_state(after, "bigint")}


def files(*counts: int) -> dict[str, Any]:
    segments = [{"count": count, "sha256": "0" * 64, "data": b""} for count in counts]
    return state_of("s3://landing/", NOW, segments)


def cells_of(lines: list[str]) -> dict[str, str]:
    """Return the one row of a table as a dict by heading; a column that is left out has a hyphen."""
    names, row = lines
    places = [(found.group(), found.start()) for found in re.finditer(r"\S+(?: \S+)*", names)]
    ends = [start for _, start in places[1:]] + [len(row)]
    shown = {name: row[start:end].strip() for (name, start), end in zip(places, ends, strict=True)}
    return {name: shown.get(name, "-") for name in ("watermark", "before", "after", "moved by")}


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (*moved(10, 1_030), ["rows", "last_modified 10", "last_modified 1030", "+1,020"]),
        (*moved(1_030, 10), ["rows", "last_modified 1030", "last_modified 10", "-1,020"]),
        ({"rows": rows_state(NOW)}, {"rows": rows_state(NOW + timedelta(hours=2))},
         ["rows", "last_modified 2026-03-16 15:45:00Z", "last_modified 2026-03-16 17:45:00Z", "2 h"]),
        ({"own": {"value": True}}, {"own": {"value": 3}}, ["own", '{"value": true}', '{"value": 3}', "-"]),
        ({"own": {"value": 1}}, {"own": {"value": date(2026, 3, 16)}},
         ["own", '{"value": 1}', '{"value": "2026-03-16"}', "-"]),
        ({"rows": rows_state("x")}, {"rows": rows_state(NOW)},
         ["rows", "damaged: watermarks.value is not a value of type timestamp", "last_modified 2026-03-16 15:45:00Z",
          "-"]),
        ({"in": files(3)}, {"in": files(2_000, 5)},
         ["in", "3 files known, listed 2026-03-16 15:45:00Z", "2,005 files known, listed 2026-03-16 15:45:00Z",
          "+2,002 files"]),
        ({"in": files(3)}, {"in": files(2)},
         ["in", "3 files known, listed 2026-03-16 15:45:00Z", "2 files known, listed 2026-03-16 15:45:00Z",
          "-1 file"]),
        ({"in": files(3)}, {"in": rows_state(4, "int")},
         ["in", "3 files known, listed 2026-03-16 15:45:00Z", "last_modified 4", "-"]),
        ({"seen": 5}, {"seen": 8}, ["seen", "5", "8", "-"]),
        ({"seen": 5}, {"rows": rows_state(8, "int"), "seen": 5}, ["rows", "-", "last_modified 8", "-"]),
        ({"rows": rows_state(8, "int")}, {}, ["rows", "last_modified 8", "-", "-"]),
    ],
    ids=["up", "down", "time", "truth", "kinds-of-value", "damaged", "files", "one-file", "kinds", "value", "new",
         "gone"],
)  # fmt: skip
def test_cells_say_what_moved_and_by_how_much_when_versions_differ(
    run: Command, watermarks: Watermarks, before: dict[str, Any], after: dict[str, Any], shown: list[str]
) -> None:
    commit(watermarks, "loans", "jr_1", before)
    commit(watermarks, "loans", "jr_2", after)

    lines = run(watermarks, "history", "loans", "--diff").stdout.splitlines()

    assert cells_of(lines[2:]) == dict(zip(("watermark", "before", "after", "moved by"), shown, strict=True))


def test_coverage_is_shown_as_ranges_when_nothing_else_differs(run: Command, watermarks: Watermarks) -> None:
    for number, low in ((1, 20), (2, 15)):
        state = with_coverage(rows_state(30, "bigint"), None, [((low,), (30,))], "o1")
        commit(watermarks, "loans", f"jr_{number}", {"rows": state})

    shown = run(watermarks, "history", "loans", "--diff").stdout
    found = document(run(watermarks, "history", "loans", "--diff", "--output", "json"))["changes"]

    assert '"covered": [{"low": 20, "high": 30}]' in shown and '"covered": [{"low": 15, "high": 30}]' in shown
    assert found[0]["to"]["covered"] == [{"low": 15, "high": 30}]


def test_states_are_shown_in_full_when_they_read_the_same_in_short(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "loans", "jr_1", {"rows": rows_state(10, "int")})
    commit(watermarks, "loans", "jr_2", {"rows": rows_state(10, "bigint")})

    shown = run(watermarks, "history", "loans", "--diff").stdout

    assert '"type": "int"' in shown
    assert '"type": "bigint"' in shown


def test_null_watermark_is_a_difference_when_the_other_version_lacks_it(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "loans", "jr_1", {"b": 1, "a": 1})
    commit(watermarks, "loans", "jr_2", {"b": 2, "a": 1, "seen": None})

    found = document(run(watermarks, "history", "loans", "--diff", "--output", "json"))

    assert found["changes"] == [
        {"watermark": "b", "from": 1, "to": 2},
        {"watermark": "seen", "from": None, "to": None},
    ]


def test_job_with_one_version_differs_in_nothing_when_compared(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "loans", "jr_1", {"seen": 1})

    found = document(run(watermarks, "history", "loans", "--diff", "--output", "json"))

    assert (found["from"]["version"], found["to"]["version"], found["changes"]) == (1, 1, [])


def test_differences_are_in_the_order_of_their_names_when_there_are_many() -> None:
    # Twenty names: a set would keep their order by chance only once in 20! times.
    names = [f"context-{letter}" for letter in "tsrqponmlkjihgfedcba"]

    found = differences(dict.fromkeys(names[:10], 1), dict.fromkeys(names, 2))

    assert [change.name for change in found] == names[::-1]


def test_progress_names_the_job_in_printable_letters_when_its_name_moves_the_cursor(
    run: Command, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    @contextmanager
    def progress(_around: object, text: str) -> Iterator[None]:
        said.append(text)
        yield

    monkeypatch.setattr("scripts.cli.diff.progress", progress)

    run(watermarks, "history", "loans\x1b[2J", "--diff")

    assert said == ["reading versions of loans\\x1b[2J"]
