"""Attempts at a batch in processes of their own, which a test stops, lets go on or kills when it wants to."""

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
    """Start an attempt in a group of processes, with all that it starts itself; end them all at the end."""
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
    """Wait until an attempt has made a file, by which it says where it is."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "the attempt never got there"
        time.sleep(0.05)


def wait_at(gate: Path) -> None:
    """Say, in an attempt, that it is there, and wait as long as a folder exists."""
    if not gate.is_dir():
        return
    (gate / "inside").touch()
    end = time.monotonic() + PATIENCE
    while gate.is_dir() and time.monotonic() < end:
        time.sleep(0.05)


def when_free(attempt: Callable[[], str]) -> str:
    """Make an attempt as soon as nobody's lease is in the way: a heartbeat that is stopped lets it end."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except RunInProgressError:
            assert time.monotonic() < end
            time.sleep(0.2)
