"""Settings of the documentation: `make docs` builds it into build/docs."""

from __future__ import annotations

import shutil
import sys
from configparser import ConfigParser
from pathlib import Path

from sphinx.application import Sphinx

REPOSITORY = Path(__file__).parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "docs")]
metadata = ConfigParser()
metadata.read(REPOSITORY / "setup.cfg")

project = "glue-watermarks"
version = release = metadata["metadata"]["version"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "diagrams",
    "screenshots",
]
exclude_patterns = ["notebook", "**/_*.md"]
html_theme = "furo"
html_title = f"glue-watermarks {version}"
html_copy_source = False

myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3

napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = ["awsglue"]


def write_copies(app: Sphinx, error: Exception | None) -> None:
    """Put the pages as Markdown beside those in HTML, and llms.txt, which lists them: for readers that are programs."""
    if error is not None or app.builder.name != "html":
        return
    for page in Path(app.srcdir).glob("*.md"):
        shutil.copy(page, Path(app.outdir) / page.name)
    title, summary, *parts = (
        (Path(app.srcdir) / "index.md").read_text(encoding="utf-8").split("\n\n")
    )
    # Headings and lists of the index, and nothing of what is for the site's menu.
    shown = [
        part for part in parts if part.startswith(("## ", "- ")) and part != "## Words"
    ]
    text = "\n\n".join([title, f"> {summary}", *shown])
    (Path(app.outdir) / "llms.txt").write_text(text + "\n", encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Add what a build does besides."""
    app.connect("build-finished", write_copies)
