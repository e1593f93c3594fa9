"""A newcomer's five minutes: the page's commands and examples, in the order of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from tests.docs.pages import run_page


def test_first_five_minutes_go_as_told_when_the_page_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    names: dict[str, Any] = {"lake": str(tmp_path)}

    found = run_page("start.md", names)
    server.stop()

    assert found == 7
