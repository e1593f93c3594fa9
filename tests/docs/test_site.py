"""The documentation builds without a warning: no link leads nowhere, no page is left out."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

DOCS = REPOSITORY / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built documentation."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, folder],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_site_builds_without_a_warning_when_it_is_made(site: Path) -> None:
    for page in DOCS.glob("*.md"):
        assert (site / f"{page.stem}.html").exists(), page.name
        assert (site / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    told = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.*\]\((\w[\w-]*\.md)\)", told, re.MULTILINE)
    assert {"start.md", "choose.md", "failures.md", "api.md"} <= set(listed)
    assert [name for name in listed if not (site / name).exists()] == []
    assert "begin(" in (site / "api.html").read_text(encoding="utf-8").replace("</span>", "").replace("<span>", "")


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("files.md", ["compare with", "same identity", "ledger grows by the batch"]),
        ("rows.md", ["less the delay", "window low <= cursor < high"]),
        ("protocol.md", ["freeze — the plan and the watermark that follows it", "from any state to idle"]),
        ("job-runs.md", ["launcher lost", "EXPIRED"]),
    ],
)
def test_picture_is_in_the_page_when_the_site_is_built(site: Path, page: str, shown: list[str]) -> None:
    built = (site / page.replace(".md", ".html")).read_text(encoding="utf-8")

    assert built.count("<svg role=") == 1
    assert [text for text in shown if html.escape(text) not in built] == []


def test_no_page_loads_a_program_from_elsewhere_when_the_site_is_built(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in site.glob("*.html")]

    loaded = [
        found for page in pages for found in re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"([^\"]*)", page)
    ]

    assert loaded
    assert [name for name in loaded if name.startswith(("http:", "https:", "//"))] == []


def test_link_of_the_readme_leads_somewhere_when_it_is_local() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (REPOSITORY / "README.md").read_text(encoding="utf-8"))

    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_index_leads_to_each_page_and_has_the_words_of_the_readme_when_it_is_read() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\w[\w-]*)\.md\)", index)
    words = re.compile(r"## Words\n\n(\|.*?)\n\n", re.DOTALL)

    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.name != "index.md")
    assert words.findall(index) == words.findall(readme)
