"""Attempts at a batch in processes of their own, which a test can stop, continue and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.helpers.errors import RunInProgressError
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY


@contextmanager
def attempt_of(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start an attempt in its own process group; at the end, kill the whole group."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.sinks.{module}", *arguments],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until an attempt has made a file, by which it reports where it is."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "the attempt never got there"
        time.sleep(0.05)


def wait_at(gate: Path) -> None:
    """Report from within an attempt that it is here, and wait as long as a folder exists."""
    if not gate.is_dir():
        return
    (gate / "inside").touch()
    end = time.monotonic() + PATIENCE
    while gate.is_dir() and time.monotonic() < end:
        time.sleep(0.05)


def when_free(attempt: Callable[[], str]) -> str:
    """Make an attempt as soon as no other run has the lease; the lease of a stopped run expires."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except RunInProgressError:
            assert time.monotonic() < end
            time.sleep(0.2)
