"""A newcomer's five minutes: the page's commands and examples, in the order of the page."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import run_page, shell_commands
from tests.support.databases import free_port
from tests.support.servers import served


def test_first_five_minutes_go_as_told_when_the_page_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    _, server, *exports = shell_commands("start.md")
    program, *arguments = shlex.split(server.removesuffix("&").replace("5555", str(port)))
    for name, value in (setting.split("=") for export in exports for setting in export.split()[1:]):
        monkeypatch.setenv(name, value.replace("5555", str(port)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "server").mkdir()

    with served([str(Path(sys.executable).parent / program), *arguments], port, tmp_path / "server", {}) as url:
        names: dict[str, Any] = {}
        found = run_page("start.md", names)

    assert (found, os.environ["AWS_ENDPOINT_URL"]) == (7, url)
    assert Path(names["lake"]).parent == tmp_path
