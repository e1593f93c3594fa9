"""Each link in README and pages leads to a file of the repository, and to a heading that the file has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import FENCE
from tests.support.places import REPOSITORY

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)
TEXTS = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in [
        REPOSITORY / "README.md",
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "terraform").rglob("*.md"),
    ]
    if ".terraform" not in path.parts
)


def prose_of(path: Path) -> str:
    """Return a page without its code blocks, where brackets are not links and # is not a heading."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = HEADING.findall(prose_of(path))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Return the links of a page whose file or heading does not exist."""
    found = []
    for name, anchor in LINK.findall(prose_of(page)):
        there = page.parent / name if name else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors_of(there)):
            found.append(f"{name}#{anchor}" if anchor else name)
    return found


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere_when_they_are_within_the_repository(page: str) -> None:
    assert broken_links(REPOSITORY / page) == []


def test_link_is_found_when_its_file_or_its_heading_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# One page\n\n## What `it` is\n")
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n[a](there.md#what-it-is) [b](there.md#gone) [c](gone.md) [d](#page) [e](https://x/y)\n")

    assert broken_links(page) == ["there.md#gone", "gone.md"]
