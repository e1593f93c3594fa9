"""The examples of docs/files.md run unchanged."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from scripts.helpers.files.rules import FileOptions
from scripts.helpers.watermarks import Watermarks
from tests.support.doctests import run_doctest
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "files.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def put_row(path: Path, **row: Any) -> None:
    """Write a JSON file with one row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row))


def test_examples_of_the_page_work_when_run_in_order(watermarks: Watermarks, spark: Any, tmp_path: Path) -> None:
    for number, name in ((1, "a/1.json"), (2, "b/2.json"), (3, "_tmp/3.json")):
        put_row(tmp_path / "landing" / name, id=number, bay="A")
    for folder in ("import_day=23/import_date=20261123", "import_day=24/import_date=20261124"):
        put_row(tmp_path / f"repairs/import_year=2026/import_month=11/{folder}/1.json", id=1)
    put_row(tmp_path / "repairs/import_year=2026/import_month=11/import_day=24/import_date=20261124/2.json", id=2)
    for day in (23, 24):
        put_row(tmp_path / f"streets/snapshot_date=202611{day}/all.json", name="Mare Street")
    names: dict[str, Any] = {
        "spark": spark, "watermarks": watermarks, "lake": str(tmp_path), "Path": Path,
    }  # fmt: skip
    looked_up = [block for block in BLOCKS if block.startswith(">>>")]

    for block in BLOCKS:
        if block not in looked_up:
            exec(compile(block, "files.md", "exec"), names)
    report = run_doctest("".join(looked_up), names)

    assert (len(BLOCKS), report.attempted, report.failed) == (9, 2, 0)
    targets = ("raw/parking", "raw/small", "raw/tidy", "raw/repairs", "trusted/repairs", "raw/streets")
    assert {name: len(pd.read_parquet(tmp_path / name)) for name in targets} == {
        "raw/parking": 2, "raw/small": 2, "raw/tidy": 1, "raw/repairs": 3, "trusted/repairs": 3, "raw/streets": 1,
    }  # fmt: skip


def test_page_names_every_option_when_there_are_some() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))

    assert {field.name for field in fields(FileOptions)} <= named
