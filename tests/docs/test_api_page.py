"""docs/api.md documents every name that another page imports."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

from tests.docs.pages import PAGES, fences, text_of

DIRECTIVE = re.compile(r"^\.\. auto(?:class|function|module):: ([\w.]+)$", re.MULTILINE)


def imported() -> Iterator[tuple[str, str, str]]:
    """Yield the page, module and name of each import of this package in the Python blocks of pages."""
    for page in PAGES:
        for language, text in fences(page):
            if language != "python":
                continue
            for line in re.findall(r"^(?:>>> )?(from scripts[\w.]* import .+)$", text, re.MULTILINE):
                [node] = ast.parse(line).body
                assert isinstance(node, ast.ImportFrom)
                yield from ((page, str(node.module), alias.name) for alias in node.names)


def resolved(path: str) -> object:
    """Return the module, or the object in a module, that a dotted path names."""
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ImportError:
        return getattr(importlib.import_module(module), name)


def test_every_name_that_a_page_imports_is_on_the_page_when_read() -> None:
    shown = [resolved(path) for path in DIRECTIVE.findall(text_of("api.md"))]
    names = set(imported())

    missing = [
        (page, module, name)
        for page, module, name in sorted(names)
        if not any(getattr(importlib.import_module(module), name) is one for one in shown)
    ]

    assert len({name for _, _, name in names}) > 15
    assert missing == []


def test_what_users_call_is_on_the_page_when_read() -> None:
    named = {
        path.removeprefix("scripts.helpers.") if "errors" in path else path.rpartition(".")[2]
        for path in DIRECTIVE.findall(text_of("api.md"))
    }

    assert {"JobRuns", "SparkSubmit", "JobBookmarks", "GlueContext", "S3EventQueue", "S3Inventory", "Head"} <= named
    assert {"OpenTelemetryMetrics", "EmbeddedMetrics", "Reporter", "build_report", "glue_api.errors"} <= named
