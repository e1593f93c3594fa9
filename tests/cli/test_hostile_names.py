"""What stands in the table moves no cursor, wherever it is shown; and the command without pyarrow."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Claim, Head, Plan
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, Command, rows_state
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.steps import commit

EVIL = "a\x1b[2J\x9b\x7fb"
SENT = ("\x1b", "\x9b", "\x7f")


@pytest.fixture
def evil(watermarks: Watermarks) -> Watermarks:
    """Return a table in which every text of a job that another program can write holds control characters."""
    commit(watermarks, "repairs", "jr_1", {"rows": rows_state(NOW), "text": "one"})
    commit(watermarks, "repairs", "jr_2", {"rows": rows_state(NOW), "text": EVIL})
    head = watermarks.latest("repairs")
    assert head.last is not None
    state = {**rows_state(NOW), "cursor_column": EVIL}
    spoilt = replace(
        head,
        watermarks={**head.watermarks, "rows": state, EVIL: 1},
        last=replace(head.last, op=EVIL, run_id=EVIL, who=EVIL, why=EVIL),
        claim=Claim(EVIL, EVIL, 1, NOW - timedelta(hours=1), NOW - timedelta(hours=2)),
        plan=Plan(EVIL, {EVIL: {**state, "low": None, "high": EVIL}}, {}, NOW),
    )
    watermarks.store.put(items.head_to_item(spoilt), if_new=False)
    return watermarks


@pytest.mark.parametrize(
    "arguments",
    [["jobs"], ["show", "repairs"], ["history", "repairs"], ["history", "repairs", "--diff"], ["plan", "repairs"],
     ["doctor", "repairs"], ["reset", "repairs", "--why", "x", "--yes"], ["backfill", "repairs"]],
    ids=lambda value: value[0],
)  # fmt: skip
@pytest.mark.parametrize("output", ["text", "json"])
def test_nothing_moves_the_cursor_when_the_table_holds_control_characters(
    run: Command, evil: Watermarks, arguments: list[str], output: str
) -> None:
    done = run(evil, *arguments, "--output", output)

    assert done.output
    assert not [sent for sent in SENT if sent in done.output]


def test_nothing_moves_the_cursor_when_records_are_printed(evil: Watermarks) -> None:
    head: Head = evil.latest("repairs")
    shown = [repr(head), repr(head.log_entry), repr(evil.list_jobs()), repr(evil.history("repairs"))]

    assert not [sent for sent in SENT if sent in "".join(shown)]
    assert r"a\x1b[2J\x9b\x7fb" in shown[0]


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "pyspark"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
sys.meta_path.insert(0, Blocked())
from scripts.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["show", "parking-fines"], 0, "parking-fines"),
        (
            ["files", "parking-fines", "--explain", "1.csv"],
            78,
            "This command requires pyarrow. Install it: pip install",
        ),
        (["plan", "parking-fines"], 78, "This command requires pyarrow. Install it: pip install"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_command_starts_when_pyarrow_is_not_installed(
    world: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, text: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    given: list[Any] = [sys.executable, "-c", BLOCKED, "--table", world.table_name, *arguments]

    done = subprocess.run(given, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
