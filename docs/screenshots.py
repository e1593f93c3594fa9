"""Takes the pictures of the page about jobs when the site is built, with Chromium, of the table in `demo_table`.

Where Chromium is not installed, the site says so in the place of each picture, and the build in its log.
"""

from __future__ import annotations

import sys
from base64 import b64decode
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = "screenshots"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
)


@dataclass(frozen=True)
class Shot:
    """What a picture shows: where in the page, in a window of this many pixels, and on a dark system or not."""

    fragment: str
    width: int
    height: int
    is_dark: bool = False


SHOTS = {
    "list": Shot("", 1280, 940),
    "job": Shot("#job=parking-permits&range=24h", 1280, 956, is_dark=True),
    "phone": Shot("", 390, 844),
}
IS_THERE = (
    "return !document.getElementById('overview').hidden"
    " || document.querySelector('#details .say') !== null"
)
"""Whether the page shows what its address asks for, as a script: details of a job are unpacked first."""


def missing() -> str:
    """Return what is not installed and pictures need, or nothing."""
    programs = [name for name in ("chromium", "chromedriver") if which(name) is None]
    packages = [
        name for name in ("selenium", "moto", "jinja2") if find_spec(name) is None
    ]
    return ", ".join(programs + packages)


def take(page: str, folder: Path) -> None:
    """Write a picture of each kind into a folder."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "page.html")
        file.write_text(page, encoding="utf-8")
        options = webdriver.ChromeOptions()
        options.binary_location = str(which("chromium"))
        for flag in (*FLAGS, f"--user-data-dir={scratch}/profile"):
            options.add_argument(flag)
        driver = webdriver.Chrome(
            options=options, service=Service(which("chromedriver"))
        )
        try:
            for name, shot in SHOTS.items():
                set_window(driver, shot)
                # The page does not read its address anew when only the fragment changes.
                driver.get("about:blank")
                driver.get(file.as_uri() + shot.fragment)
                # Minutes, as a machine that builds may do much else. It takes a tenth of a second.
                WebDriverWait(driver, 300, poll_frequency=0.05).until(
                    lambda one: one.execute_script(IS_THERE)
                )
                taken = driver.execute_cdp_cmd(
                    "Page.captureScreenshot", {"format": "png"}
                )
                (folder / f"{name}.png").write_bytes(b64decode(taken["data"]))
        finally:
            driver.quit()


def set_window(driver: Any, shot: Shot) -> None:
    """Make the window as large, and the system as dark, as a picture wants them."""
    scheme = {
        "name": "prefers-color-scheme",
        "value": "dark" if shot.is_dark else "light",
    }
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    # Two pixels for one: letters stay sharp where a reader enlarges the picture.
    size = {
        "width": shot.width,
        "height": shot.height,
        "deviceScaleFactor": 2,
        "mobile": False,
    }
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def draw(app: Sphinx) -> None:
    """Take all pictures before the pages are read, or tell why not."""
    lacks = missing()
    if lacks:
        # Not a warning of Sphinx: those end the build, and a site without pictures is better than none.
        sys.stderr.write(
            f"The screenshots are left out, as these are not installed: {lacks}.\n"
        )
        return
    from demo_table import demo_page

    take(demo_page(), Path(app.outdir) / FOLDER)


class Screenshot(SphinxDirective):
    """A fenced block with the name of a picture, and what it shows in words."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        # Chromium may be installed by the next build, or no longer be.
        self.env.note_reread()
        (name,), words = self.arguments, " ".join(self.content)
        if name not in SHOTS:
            raise self.error(
                f"There is no screenshot {name!r}, but {', '.join(SHOTS)}."
            )
        if missing():
            told = f"(No screenshot: Chromium was not installed where this page was built. It shows: {words})"
            return [nodes.paragraph("", told)]
        path, width = f"{FOLDER}/{name}.png", SHOTS[name].width
        # A white page on a white page needs an edge.
        style = "height:auto;border:1px solid var(--color-background-border, #ccc)"
        picture = (
            f'<img src="{path}" alt="{escape(words)}" width="{width}" style="{style}">'
        )
        return [nodes.raw("", f'<a href="{path}">{picture}</a>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Take the pictures, and show each where a page names it."""
    app.connect("builder-inited", draw)
    app.add_directive("screenshot", Screenshot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
