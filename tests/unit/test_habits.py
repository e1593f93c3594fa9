"""What the project promises its contributors, kept by a test where it can be."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_contributing_stays_short_when_rules_are_added() -> None:
    assert len(text_of("CONTRIBUTING.md").splitlines()) <= 15


def test_version_is_semantic_and_in_the_changelog_when_it_is_released() -> None:
    version = re.search(r"^version = (.+)$", (REPOSITORY / "setup.cfg").read_text(), re.MULTILINE)

    assert version is not None
    assert re.fullmatch(r"\d+\.\d+\.\d+", version.group(1))
    assert "## Unreleased" in text_of("CHANGELOG.md") or f"## {version.group(1)}" in text_of("CHANGELOG.md")


def test_decision_says_why_and_at_what_price_when_it_is_recorded() -> None:
    records = re.split(r"^## ", text_of("decisions.md"), flags=re.MULTILINE)[1:]

    assert [int(record.split(".")[0]) for record in records] == list(range(1, len(records) + 1))
    assert [record for record in records if "- **Why**" not in record or "- **Price**" not in record] == []


def test_file_named_in_prose_exists_when_contributors_look_for_it() -> None:
    named = re.findall(r"`((?:docs|tests|scripts)/[\w/.-]+)`", text_of("CONTRIBUTING.md") + text_of("CHANGELOG.md"))

    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
