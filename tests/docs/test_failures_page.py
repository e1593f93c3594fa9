"""The stories of docs/failures.md happen as they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import run_page


def test_stories_happen_as_they_are_told_when_the_page_is_run(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_watermarks: Any
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    assert run_page("failures.md", {"watermarks": make_watermarks(), "lake": str(tmp_path)}) == 12
