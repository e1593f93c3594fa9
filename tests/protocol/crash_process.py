"""Run a job once in a process of its own that kills itself at a numbered request; the package is not changed for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sized
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scripts.helpers.protocol.dynamodb import make_table_client
from scripts.helpers.protocol.names import is_file
from scripts.helpers.watermarks import Watermarks
from tests.protocol.model_job import Sink, Source, work
from tests.support.faults import Request, WatchedTable
from tests.support.patience import PATIENCE

PROCESSES = multiprocessing.get_context("forkserver")
"""Forks a process that has imported this module, because importing it takes longer than the run."""
PROCESSES.set_forkserver_preload([__name__])


class FileSink(Sink):
    """A sink that outlives the process: each line of its file is one batch, as written."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def write(self, batch: str, rows: list[int], pad: bytes) -> None:
        with self.path.open("a") as lines:
            lines.write(json.dumps([batch, rows, pad.hex()]) + "\n")

    def load(self) -> None:
        """Read what all processes wrote."""
        self.contents.clear()
        for line in self.path.read_text().splitlines():
            batch, rows, pad = json.loads(line)
            super().write(batch, rows, bytes.fromhex(pad))


def kill_at(client: Any, number: int, when: str) -> list[str]:
    """Count requests, and kill this process before request `number` is sent or after it took effect."""
    sent: list[str] = []

    def before_send(event_name: str, **_: Any) -> None:
        sent.append(event_name)
        if when == "before" and len(sent) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def after_call(**_: Any) -> None:
        if when == "after" and len(sent) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    client.meta.events.register("before-send.dynamodb", before_send)
    client.meta.events.register("after-call.dynamodb", after_call)
    return sent


def kill_at_table(table: WatchedTable, number: int, when: str) -> Sized:
    """Count requests to a file, and kill this process as `kill_at` does."""

    def kill(_: Request) -> None:
        if len(table.wire.requests) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    (table.before if when == "before" else table.after).append(kill)
    return table.wire.requests


def run_apart(settings: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Run in a process of its own; return its exit code, and its number of requests if it was not killed.

    `settings` are endpoint, table, job, run, rows, sink, pad_bytes and, to be killed, kill_at and when.
    """
    answer, said = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_run, args=(settings, said))
    process.start()
    said.close()
    process.join(PATIENCE)
    try:
        return process.exitcode, answer.recv()
    except EOFError:
        return process.exitcode, None


def _run(settings: Mapping[str, Any], said: Connection) -> None:
    at = settings.get("kill_at", 0), settings.get("when", "before")
    if is_file(settings["table"]):
        watermarks = Watermarks(settings["table"])
        table = watermarks.store.table = WatchedTable(watermarks.store.table)
        sent: Sized = kill_at_table(table, *at)
    else:
        client = make_table_client(None, settings["endpoint"])
        sent = kill_at(client, *at)
        watermarks = Watermarks(settings["table"], client)
    work(
        watermarks,
        settings["job"],
        settings["run"],
        Source(settings["rows"]),
        FileSink(Path(settings["sink"])),
        spilled=settings["pad_bytes"] > 0,
        pad_bytes=settings["pad_bytes"],
    )
    said.send(len(sent))
