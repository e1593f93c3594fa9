"""Servers in processes of their own, on loopback, that stop at the end of the block that uses them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def served(command: Sequence[str], port: int, folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Run a server until the end of the block and yield its URL; its output is in server.log."""
    log = folder / "server.log"
    environment = {**os.environ, "TMPDIR": str(folder), **variables}
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
    deadline = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"The server on port {port} did not start (exit code {server.poll()}):\n{log.read_text()[-2000:]}")
