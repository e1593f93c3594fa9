"""The documentation builds without a warning: no link leads nowhere, no page is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"


def test_site_builds_without_a_warning_when_it_is_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for page in DOCS.glob("*.md"):
        assert (tmp_path / f"{page.stem}.html").exists(), page.name
    assert "begin(" in (tmp_path / "api.html").read_text(encoding="utf-8").replace("</span>", "").replace("<span>", "")


def test_link_of_the_readme_leads_somewhere_when_it_is_local() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (REPOSITORY / "README.md").read_text(encoding="utf-8"))

    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_examples_of_a_page_are_run_somewhere_when_it_has_any() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    pages = [
        page for page in DOCS.glob("*.md") if re.search(r"^```(python|console|hcl)", page.read_text(), re.MULTILINE)
    ]

    assert pages
    assert [page.name for page in pages if f'"{page.name}"' not in tests] == []
