"""The examples of docs/job-runs.md, run as they are on the page."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

from scripts.helpers.job_runs import run_record
from scripts.helpers.watermarks import Watermarks
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "job-runs.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_the_page_work_when_run_in_order(table: Watermarks, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/clean.py").write_text(
        "import sys\ngiven = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "print('cleaning', given.get('--area'), 'on', given.get('--day'))\n"
    )
    names: dict[str, Any] = {"watermarks": table, "logs": str(tmp_path / "logs"), "scripts": str(tmp_path / "scripts")}

    exec(compile(BLOCKS[0], "job-runs.md", "exec"), names)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    session = doctest.DocTestParser().get_doctest("\n".join(BLOCKS[1:]), names, "job-runs.md", "job-runs.md", 0)
    failed, attempted = doctest.DocTestRunner(optionflags=flags).run(session, clear_globs=False)

    assert (len(BLOCKS), attempted, failed) == (3, 8, 0)


def test_page_is_short_and_draws_legal_moves_only_when_read() -> None:
    moves = re.findall(r"^    (\w+) --> (\w+)", PAGE, re.MULTILINE)

    assert len(PAGE.splitlines()) <= 175
    assert len(moves) == 7
    assert [move for move in moves if move[1] not in run_record.LEGAL[move[0]]] == []
