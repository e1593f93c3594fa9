"""The tables that compare Glue's behaviour with this package's name an existing test on each line."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, is_test, text_of

HEAD = re.compile(r"^\|.*\| shown by \|$")
LINES = {"glue.md": 30, "glue-bookmarks.md": 13, "job-runs.md": 25, "relationalize.md": 9}
"""Every page with such a table, and the least number of lines that its tables must have."""


def named_tests(page: str) -> list[str]:
    """Return the last cell of each line of a page's tables whose last column names tests."""
    named, is_ours = [], False
    for line in text_of(page).splitlines():
        if not line.startswith("|"):
            is_ours = False
        elif HEAD.match(line):
            is_ours = True
        elif is_ours and not line.startswith("|---"):
            named.append(re.split(r"(?<!\\)\|", line)[-2].strip().strip("`"))
    return named


@pytest.mark.parametrize("page", sorted(LINES))
def test_every_line_names_a_test_that_is_there_when_the_tables_are_read(page: str) -> None:
    named = named_tests(page)

    assert len(named) >= LINES[page]
    assert [name for name in named if not is_test(name)] == []


def test_page_is_checked_when_it_has_such_a_table() -> None:
    assert sorted(page for page in PAGES if named_tests(page)) == sorted(LINES)
