"""Servers in processes of their own, on loopback: moto and MiniStack."""

from __future__ import annotations

import importlib.util
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.conftest import REGION, REPOSITORY, missing_component

START_SECONDS = 60
_tables = itertools.count(1)


def is_long() -> bool:
    """Tell whether `make test-long` asked for many minutes."""
    return bool(os.environ.get("GLUE_WATERMARKS_LONG"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def served(command: Sequence[str], port: int, folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Run a server until the end of the block and return its URL; what it says is in server.log."""
    log = folder / "server.log"
    environment = os.environ | {"TMPDIR": str(folder)} | variables
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=output)
    try:
        _wait_for(server, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"The server on port {port} did not start (exit code {server.poll()}):\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def moto_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a moto server in a process of its own, one request at a time."""
    port = free_port()
    command = [sys.executable, "-m", "tests.support.moto_server", str(port)]
    with served(command, port, tmp_path_factory.mktemp("moto"), {}) as url:
        yield url


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a MiniStack server that serves DynamoDB alone."""
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


@pytest.fixture(params=["moto_process", "ministack"])
def server(request: pytest.FixtureRequest) -> str:
    """Return the URL of each server in turn."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def make_table() -> Callable[..., Watermarks]:
    """Return a builder of `Watermarks` with the real clock over a new table of a server."""

    def make(url: str, client: Any = None) -> Watermarks:
        made = Watermarks(f"protocol-{next(_tables)}", client, region_name=REGION, endpoint_url=url)
        made.create_table()
        return made

    return make
