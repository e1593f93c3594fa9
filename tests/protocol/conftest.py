"""Servers in processes of their own, on loopback: moto and MiniStack; and limits so small that little spills."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator

import pytest

from scripts.helpers.protocol import chunks
from tests.protocol.model_job import PAD_BYTES, ModelJob
from tests.support.components import missing_component
from tests.support.doubles import FaultyFile
from tests.support.dynamodb import FakeDynamoDB
from tests.support.places import REGION
from tests.support.servers import free_port, served


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a MiniStack server that serves only DynamoDB."""
    if importlib.util.find_spec("ministack") is None:
        missing_component("MiniStack", "pip install 'ministack>=1.4.21'")
    port = free_port()
    variables = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SERVICES": "dynamodb",
        "MINISTACK_REGION": REGION,
        "LOG_LEVEL": "ERROR",
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
    }
    with served([sys.executable, "-m", "ministack"], port, tmp_path_factory.mktemp("ministack"), variables) as url:
        yield url


@pytest.fixture(params=["moto_process", "ministack", "sqlite"])
def server(request: pytest.FixtureRequest) -> str:
    """Return the URL of each server in turn, then an empty URL for a table in a file."""
    url: str = request.getfixturevalue(request.param) if request.param != "sqlite" else ""
    return url


@pytest.fixture
def double(store_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each `ModelJob` a table of the kind that the test requests."""
    monkeypatch.setattr(ModelJob, "make_double", FaultyFile if store_kind == "sqlite" else FakeDynamoDB)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Spill early and into two chunks, so that a crash can hit between them; the real limits are only slower."""
    caplog.set_level(logging.ERROR, logger="scripts")  # Keep thousands of expected warnings out of a failure's report.
    monkeypatch.setattr(chunks, "MAX_BYTES", PAD_BYTES)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", PAD_BYTES * 3 // 4)
