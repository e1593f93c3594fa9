"""A newcomer's five minutes: the page's commands and examples, in the order of the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import run_page
from tests.protocol.conftest import served
from tests.rows.servers import free_port


def test_first_five_minutes_go_as_told_when_the_page_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    names: dict[str, Any] = {"lake": str(tmp_path)}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    (tmp_path / "server").mkdir()

    with served(command, port, tmp_path / "server", {}) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        found = run_page("start.md", names)

    assert found == 7
