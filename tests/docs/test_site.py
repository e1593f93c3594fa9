"""The documentation builds without a warning: no link is broken, and no page is left out."""

from __future__ import annotations

import html
import os
import re
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.docs.pages import fences
from tests.support.components import missing_component
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


@pytest.mark.long
def test_site_builds_without_a_warning_when_it_is_made(site: Path) -> None:
    for page in DOCS.glob("*.md"):
        assert (site / f"{page.stem}.html").exists(), page.name
        assert (site / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    told = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.*\]\((\w[\w-]*\.md)\)", told, re.MULTILINE)
    assert {"start.md", "choose.md", "failures.md", "api.md"} <= set(listed)
    assert [name for name in listed if not (site / name).exists()] == []
    assert "begin(" in (site / "api.html").read_text(encoding="utf-8").replace("</span>", "").replace("<span>", "")


@pytest.mark.long
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


@pytest.mark.if_changed("site")
@pytest.mark.parametrize(
    ("name", "width", "height", "paper"),
    [
        ("list", 1280, 940, (255, 255, 255)),
        ("job", 1280, 956, (20, 23, 26)),
        ("phone", 390, 844, (255, 255, 255)),
    ],
)
def test_screenshot_is_in_the_page_when_the_site_is_built(
    site: Path, name: str, width: int, height: int, paper: tuple[int, ...]
) -> None:
    if not all(map(shutil.which, ("chromium", "chromedriver"))):
        missing_component("Chromium", "apt-get install chromium chromium-driver")
    (words,) = [text for language, text in fences("report.md") if language == f"{{screenshot}} {name}"]

    picture = Picture((site / "screenshots" / f"{name}.png").read_bytes())

    built = html.unescape((site / "report.html").read_text(encoding="utf-8"))
    assert f'<img src="screenshots/{name}.png" alt="{" ".join(words.split())}" width="{width}"' in built
    assert (picture.width, picture.height) == (2 * width, 2 * height)
    # The corner shows the background. Text and charts have many shades; a blank page or an error has few.
    assert picture.corner == paper
    assert len(picture.shades) > 200


class Picture:
    """The size, corner pixel and byte values of a PNG file in RGB without transparency."""

    def __init__(self, file: bytes) -> None:
        assert file.startswith(b"\x89PNG\r\n\x1a\n")
        self.width, self.height, depth, colours = struct.unpack(">IIBB", file[16:26])
        assert (depth, colours) == (8, 2)
        packed, place = b"", 8
        while place < len(file):
            (length,) = struct.unpack(">I", file[place : place + 4])
            if file[place + 4 : place + 8] == b"IDAT":
                packed += file[place + 8 : place + 8 + length]
            place += length + 12
        rows = zlib.decompress(packed)
        # Byte 0 is the filter of the first row. Its first pixel has no neighbour, so every filter leaves it as it is.
        self.corner = tuple(rows[1:4])
        self.shades = set(rows)


@pytest.mark.if_changed("site")
def test_site_says_so_when_there_is_no_chromium(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# Jobs\n\n```{screenshot} list\nThe list of jobs & more.\n```\n")
    settings = f"import sys\nsys.path[:0] = [{str(DOCS)!r}]\nextensions = ['myst_parser', 'screenshots']\n"
    (tmp_path / "conf.py").write_text(settings)

    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", tmp_path, tmp_path / "site"],
        env=os.environ | {"PATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.returncode, done.stderr) == (
        0, "The screenshots are left out, as these are not installed: chromium, chromedriver.\n",
    )  # fmt: skip
    built = html.unescape((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    assert "No screenshot: Chromium was not installed where this page was built. It shows: The list of jobs" in built
    assert "<img" not in built


@pytest.mark.if_changed("site")
def test_no_page_loads_a_program_from_elsewhere_when_the_site_is_built(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in site.glob("*.html")]

    loaded = [
        found for page in pages for found in re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"([^\"]*)", page)
    ]

    assert loaded
    assert [name for name in loaded if name.startswith(("http:", "https:", "//"))] == []


def test_index_leads_to_each_page_when_it_is_read() -> None:
    listed = re.findall(r"\]\((\w[\w-]*)\.md\)", (DOCS / "index.md").read_text(encoding="utf-8"))

    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.name != "index.md")


@pytest.mark.if_changed("site")
def test_index_has_the_words_of_the_readme_when_the_site_is_built(site: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    words = readme.partition("## Words\n")[2].partition("\n## ")[0]
    terms = re.findall(r"^\| (?!term|-)(.+?) \|", words, re.MULTILINE)

    built = (site / "index.html").read_text(encoding="utf-8")

    assert len(terms) > 10
    assert re.findall(r"<tr[^>]*><td><p>(.*?)</p></td>", re.sub(r"</?(?:code|span)[^>]*>", "", built)) == [
        term.replace("`", "") for term in terms
    ]
