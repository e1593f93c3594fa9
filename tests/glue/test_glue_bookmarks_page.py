"""The examples of docs/glue-bookmarks.md, run as written."""

from __future__ import annotations

import re

from scripts.helpers.watermarks import Watermarks
from tests.support.doctests import run_doctest
from tests.support.places import REPOSITORY
from tests.support.steps import commit

PAGE = (REPOSITORY / "docs" / "glue-bookmarks.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ON_GLUE = "parking on glue"


def commit_rows(watermarks: Watermarks, run_id: str, value: int) -> None:
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": value}
    commit(watermarks, "parking", run_id, {"repairs": state})


def test_examples_of_the_page_work_when_run_in_order(watermarks: Watermarks) -> None:
    commit_rows(watermarks, "jr_1", 7)
    watermarks.begin("parking", "jr_2").abort()
    commit_rows(watermarks, "jr_3", 42)

    report = run_doctest("\n".join(BLOCKS), {"watermarks": watermarks})

    assert (len(BLOCKS), report.attempted, report.failed) == (1, 8, 0)
