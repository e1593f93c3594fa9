"""The commands and examples of docs/start.md run in the order of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page, shell_commands
from tests.support.no_aws import no_aws


def test_first_five_minutes_go_as_told_when_nothing_of_aws_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_aws(monkeypatch)
    monkeypatch.chdir(tmp_path)

    names: dict[str, Any] = {}
    found = run_page("start.md", names)

    assert (found, Path(names["lake"]).parent) == (7, tmp_path)
    assert Watermarks(f"sqlite:{tmp_path}/start.db").latest("bays").version == 5


def test_no_server_and_no_variable_is_needed_when_the_page_is_followed() -> None:
    assert shell_commands("start.md") == ["pip install '.[files,cli]'"]
