"""The examples of docs/files.md, run as they stand."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.rules import FileOptions
from scripts.helpers.watermarks import Watermarks
from tests.support.doctests import run_doctest
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "files.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_the_page_work_when_run_in_order(watermarks: Watermarks, spark: Any, tmp_path: Path) -> None:
    for number, name in ((1, "a/1.json"), (2, "b/2.json"), (3, "_tmp/3.json")):
        path = tmp_path / "landing" / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"id": number, "bay": "A"}))
    names: dict[str, Any] = {
        "spark": spark, "watermarks": watermarks, "lake": str(tmp_path), "FileBookmark": FileBookmark,
    }  # fmt: skip
    looked_up = [block for block in BLOCKS if block.startswith(">>>")]

    for block in BLOCKS:
        if block not in looked_up:
            exec(compile(block, "files.md", "exec"), names)
    report = run_doctest("".join(looked_up), names)

    assert (len(BLOCKS), report.attempted, report.failed) == (3, 3, 0)
    assert spark.read.parquet(f"{tmp_path}/raw/parking").count() == 2
    assert spark.read.parquet(f"{tmp_path}/raw/small").count() == 2


def test_page_names_every_option_when_there_are_some() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))

    assert {field.name for field in fields(FileOptions)} <= named
