"""The stories in docs/failures.md happen as the page describes them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page
from tests.support.faults import ONE_ATTEMPT, ClientFaults, Request, after, anything, head_write

BLOCKS = 24


def now() -> datetime:
    return datetime.now(timezone.utc)


def over(client: Any, table_name: str) -> Watermarks:
    """Return the table over its own client, with retries that do not sleep."""
    made = Watermarks(table_name, client, clock=now)
    made.store.sleep = lambda seconds: None
    return made


def breaking_at_the_commit(client: Any) -> Any:
    """Make the commit, the third write of a head, succeed but lose its answer, and drop all later requests."""
    faults = ClientFaults(client)
    faults.reply_lost(after(2, head_write))

    def later(request: Request) -> bool:
        return faults.hits > 0

    faults.drop(later, times=1_000)
    return client


def expired(client: Any) -> Any:
    """Make AWS refuse all requests because the token has expired."""
    ClientFaults(client).refuse("ExpiredTokenException", anything, times=1_000)
    return client


@pytest.fixture
def disabled_shows() -> Iterator[None]:
    """Print the warning of a run that saves nothing, as the log of a job shows it."""

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "bookmark_disabled" in record.getMessage():
                sys.stdout.write(f"{record.levelname} {record.getMessage()}\n")

    handler, logger = Shown(), logging.getLogger("scripts")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.fixture
def names(
    endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_watermarks: Callable[..., Watermarks],
    dynamodb: Any,
    disabled_shows: None,
) -> dict[str, Any]:
    """Return the names that the page's examples use. Its commands find the table by the environment."""
    watermarks = make_watermarks(clock=now)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("WATERMARKS_TABLE", watermarks.table_name)
    monkeypatch.chdir(tmp_path)
    first, second = (boto3.client("dynamodb", endpoint_url=endpoint, config=ONE_ATTEMPT) for _ in range(2))
    return {
        "watermarks": watermarks,
        "unreachable": over(breaking_at_the_commit(first), watermarks.table_name),
        "expired": over(expired(second), watermarks.table_name),
        "lake": str(tmp_path),
    }


def test_stories_happen_as_they_are_told_when_the_page_is_run(names: dict[str, Any]) -> None:
    assert run_page("failures.md", names) == BLOCKS
