"""The demo, as the README starts it and with fewer days, and the comparison that it relies on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from scripts.demo.__main__ import compare
from tests.support.patience import LONG
from tests.support.places import REPOSITORY


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize(
    ("module", "rows", "replayed"),
    [
        ("tests.jobs.short_demo", "47,706", 4),
        pytest.param("scripts.demo", "362,891", 31, marks=pytest.mark.long),
    ],
)
def test_demo_loses_and_doubles_nothing_when_run_as_a_whole(module: str, rows: str, replayed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=REPOSITORY,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )

    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert f"Nothing lost, nothing doubled: {rows} rows" in done.stdout
    assert "SIGKILL" in done.stdout
    assert f"{replayed} files (replay)" in done.stdout
    assert "version  op      at (UTC)" in done.stdout
    assert "b'x" not in done.stdout
    assert re.search(r"^flights +idle ", done.stdout, re.MULTILINE)
    page = re.search(r"file://(\S+/watermarks\.html)", done.stdout)
    assert page is not None
    assert "flights" in Path(page[1]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("target", "equal"),
    [
        ([(1, "a"), (1, "b"), (2, None)], True),
        ([(2, None), (1, "b"), (1, "a")], True),
        ([(1, "a"), (2, None)], False),
        ([(1, "a"), (1, "b"), (1, "b"), (2, None)], False),
        ([(1, "a"), (1, "c"), (2, None)], False),
        ([(1, "a"), (1, "a"), (2, None)], False),
        ([(1, "a"), (1, "b"), (2, "")], False),
    ],
)
def test_compare_tells_what_differs_when_rows_are_lost_doubled_or_changed(
    target: list[tuple[int, str | None]], equal: bool
) -> None:
    def table(rows: list[tuple[int, str | None]]) -> pa.Table:
        return pa.table({"month": [month for month, _ in rows], "name": [name for _, name in rows]})

    months = compare(table([(1, "a"), (1, "b"), (2, None)]), table(target))

    assert (not months["differing"].any()) is equal
