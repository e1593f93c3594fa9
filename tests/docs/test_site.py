"""The documentation builds without a warning: no link leads nowhere, no page is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

DOCS = REPOSITORY / "docs"


def test_site_builds_without_a_warning_when_it_is_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for page in DOCS.glob("*.md"):
        assert (tmp_path / f"{page.stem}.html").exists(), page.name
        assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    told = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.*\]\((\w[\w-]*\.md)\)", told, re.MULTILINE)
    assert {"start.md", "choose.md", "failures.md", "api.md"} <= set(listed)
    assert [name for name in listed if not (tmp_path / name).exists()] == []
    assert "begin(" in (tmp_path / "api.html").read_text(encoding="utf-8").replace("</span>", "").replace("<span>", "")


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
