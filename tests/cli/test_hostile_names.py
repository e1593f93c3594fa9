"""Texts from the table never move the terminal's cursor, and the command starts without pyarrow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from scripts.helpers.protocol.head import Head
from scripts.helpers.watermarks import Watermarks
from tests.cli.hostile import SENT, put_evil
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY


def test_nothing_moves_the_cursor_when_records_are_printed(watermarks: Watermarks) -> None:
    put_evil(watermarks, "repairs")
    head: Head = watermarks.latest("repairs")
    shown = [repr(head), repr(head.log_entry), repr(watermarks.list_jobs()), repr(watermarks.history("repairs"))]

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
