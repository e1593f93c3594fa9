"""The examples of docs/report.md, run unchanged."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from tests.support.clock import Clock
from tests.support.doctests import run_doctest
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "report.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_the_page_work_when_run_in_order(
    watermarks: Watermarks, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[dict[str, int]] = [
        {"rows_collected": 1_234, "files_read": 2, "bytes_read": 56_789},
        {"rows_collected": 120},
    ]
    for number, seconds in ((1, 75), (2, 30)):
        run = watermarks.begin("repairs", f"jr_{number}")
        run.freeze({}, {"latest": number})
        clock.move(seconds=seconds)
        run.commit(**counts[number - 1])
        clock.move(seconds=7_200 - 30)
    clock.move(seconds=-7_200 + 30)
    watermarks.begin("landing", "jr_9").freeze({}, {"latest": 1})
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"watermarks": watermarks}

    attempted = failed = 0
    for block in BLOCKS:
        if block.startswith(">>>"):
            report = run_doctest(block.replace("…", "..."), names)
            attempted, failed = attempted + report.attempted, failed + report.failed
        else:
            exec(compile(block, "report.md", "exec"), names)

    assert (len(BLOCKS), attempted, failed) == (3, 6, 0)
    assert (tmp_path / "watermarks.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_page_names_every_argument_when_there_are_some() -> None:
    arguments = set(inspect.signature(build_report).parameters) - {"watermarks"}

    assert arguments <= set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
