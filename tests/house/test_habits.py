"""Rules for contributors, as far as tests can check them."""

from __future__ import annotations

import re

from tests.support.imports import files_below, names_imported
from tests.support.places import REPOSITORY

DOCS = REPOSITORY / "docs"


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_contributing_stays_short_when_rules_are_added() -> None:
    rules = text_of("CONTRIBUTING.md").partition("\n## ")[0]

    assert len(rules.splitlines()) <= 16


def test_version_is_the_newest_of_the_changelog_when_both_are_read() -> None:
    setup = re.search(r"^version = (\d+\.\d+\.\d+)$", (REPOSITORY / "setup.cfg").read_text(), re.MULTILINE)
    headings = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.MULTILINE)

    newest, *older = [tuple(map(int, heading.split(",")[0].split("."))) for heading in headings]
    assert setup is not None
    assert newest == tuple(map(int, setup.group(1).split(".")))
    assert [newest, *older] == sorted({newest, *older}, reverse=True)
    assert [heading for heading in headings[1:] if "unreleased" in heading] == []


def test_decision_says_why_and_at_what_price_when_it_is_recorded() -> None:
    records = re.split(r"^## ", text_of("decisions.md"), flags=re.MULTILINE)[1:]

    assert [int(record.split(".")[0]) for record in records] == list(range(1, len(records) + 1))
    assert [record for record in records if "- **Why**" not in record or "- **Price**" not in record] == []


def test_file_named_in_prose_exists_when_contributors_look_for_it() -> None:
    named = re.findall(r"`((?:docs|tests|scripts)/[\w/.-]+)`", text_of("CONTRIBUTING.md") + text_of("CHANGELOG.md"))

    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_module_named_on_the_way_of_a_row_exists_when_contributors_follow_it() -> None:
    named = re.findall(r"`(\w+/\w+\.py)`", text_of("CONTRIBUTING.md"))

    assert len(named) > 20
    assert [name for name in named if not (REPOSITORY / "scripts" / "helpers" / name).exists()] == []


def test_no_test_imports_another_test_when_files_are_read() -> None:
    """Shared code belongs in `tests/support`, or in a module of the folder that holds no tests."""
    unfit = re.compile(r"tests\.(\w+\.)*(test_\w+|\w+\.conftest)\.")

    found = {path: filter(unfit.match, names_imported(path)) for path in files_below(REPOSITORY / "tests")}
    assert [f"{path.relative_to(REPOSITORY)} -> {name}" for path, names in found.items() for name in names] == []


def test_only_the_conftest_uses_mock_aws_when_files_are_read() -> None:
    """Moto and its server share one set of tables per process. Only `mocked_aws` keeps the tables of other tests."""
    own = REPOSITORY / "tests" / "conftest.py"

    found = {path: names_imported(path) for path in files_below(REPOSITORY / "tests") if path != own}
    assert [str(path) for path, names in found.items() if "moto.mock_aws" in {name.rstrip(".") for name in names}] == []


def test_warning_is_named_by_a_test_when_the_code_logs_one() -> None:
    """Any change could drop a warning that no test names, and nothing else shows what went wrong."""
    sources = "".join(path.read_text(encoding="utf-8") for path in files_below(REPOSITORY / "scripts"))
    known = {word for path in files_below(REPOSITORY / "tests") for word in re.findall(r"\w+", path.read_text("utf-8"))}

    events = re.findall(r"logger\.(?:warning|error)\(\s*f?\"event=(\w+)", sources)
    assert len(events) > 50
    assert [event for event in events if event not in known] == []


def test_event_name_has_no_hyphen_when_it_is_logged() -> None:
    """One spelling for all events makes logs easy to search and filter."""
    sources = {path: path.read_text(encoding="utf-8") for path in files_below(REPOSITORY / "scripts")}

    assert [event for text in sources.values() for event in re.findall(r"event=\w+-[\w-]*", text)] == []
