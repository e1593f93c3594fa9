"""Settings of the documentation: `make docs` builds it into build/docs."""

from __future__ import annotations

import sys
from configparser import ConfigParser
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY))
metadata = ConfigParser()
metadata.read(REPOSITORY / "setup.cfg")

project = "glue-watermarks"
version = release = metadata["metadata"]["version"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib.mermaid",
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
