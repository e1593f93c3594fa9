"""`watermarks plan` on a job with an open plan shows each kind of part, as JSON and as text."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, Command, document
from tests.support.files_states import plan_of

PARTS: dict[str, Any] = {
    "letters": {"kind": "rows", "cursor_column": "id", "type": "bigint", "low": 5, "high": None},
    "own": "all of it",
    "scans": plan_of("s3://landing/scans/", None, count=1_001, bytes=2_000_000, has_more=False, gone=0),
    "tickets": {
        "kind": "rows", "cursor_column": ["at", "id"], "type": ["timestamp", "bigint"], "low": None,
        "high": [NOW, None],
    },
}  # fmt: skip


@pytest.fixture
def planned(watermarks: Watermarks) -> Watermarks:
    """Return a table with a job that never committed and has an open plan of four parts."""
    watermarks.begin("repairs", "jr_1").freeze(PARTS, {"seen": 1})
    return watermarks


def test_parts_of_an_open_plan_have_their_facts_when_asked_for_json(run: Command, planned: Watermarks) -> None:
    found = document(run(planned, "plan", "repairs", "--output", "json"))

    assert (found["job"], found["state"], found["replay"], found["version"]) == ("repairs", "at work", True, 1)
    assert found["contexts"] == [
        {"context": "letters", "kind": "rows", "cursor_column": "id", "low": 5, "high": None},
        {"context": "own", "kind": "other"},
        {"context": "scans", "kind": "files", "files": 1_001, "bytes": 2_000_000},
        {
            "context": "tickets",
            "kind": "rows",
            "cursor_column": ["at", "id"],
            "low": None,
            "high": ["2026-03-16T15:45:00.000000+00:00", None],
        },
    ]


def test_parts_of_an_open_plan_are_told_in_words_when_shown(run: Command, planned: Watermarks) -> None:
    lines = run(planned, "plan", "repairs").stdout.splitlines()

    assert lines[0].startswith("The next run of repairs would replay the open plan ")
    assert lines[0].endswith(", as version 1:")
    assert lines[1] == "Run jr_1 is at work. The next run waits for it."
    assert [" ".join(line.split()) for line in lines[3:]] == [
        "letters rows id from 5 to before the first row there will be",
        "own other all of it",
        "scans files 1,001 files, 2.0 MB",
        "tickets rows ['at', 'id'] from the beginning to before (2026-03-16 15:45:00Z, any)",
    ]


def test_no_run_is_waited_for_when_the_lease_of_the_one_that_made_the_plan_is_over(
    run: Command, planned: Watermarks
) -> None:
    claim = planned.latest("repairs").claim
    assert claim is not None

    done = run(planned, "plan", "repairs", now=claim.lease_until)

    assert done.stdout.startswith("The next run of repairs would replay the open plan ")
    assert "at work" not in done.stdout


def test_one_part_is_shown_when_its_context_is_named(run: Command, planned: Watermarks) -> None:
    (found,) = document(run(planned, "plan", "repairs", "--context", "own", "--output", "json"))["contexts"]

    assert found["context"] == "own"


def test_context_is_refused_when_neither_state_nor_plan_has_it(run: Command, planned: Watermarks) -> None:
    assert run(planned, "plan", "repairs", "--context", "seen").exit_code != 0


def test_part_is_told_to_be_damaged_when_somebody_altered_it(run: Command, watermarks: Watermarks) -> None:
    watermarks.begin("repairs", "jr_1").freeze({"letters": PARTS["letters"] | {"low": "5"}}, {"seen": 1})

    (found,) = document(run(watermarks, "plan", "repairs", "--output", "json"))["contexts"]
    shown = run(watermarks, "show", "repairs")

    assert found == {"context": "letters", "kind": "other"}
    assert "damaged: plan.contexts.low is not a value of type bigint" in shown.stdout
