"""Servers of the benchmarks: each in a process of its own, on loopback, at a port that it prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen


@contextmanager
def local_server(module: str, *arguments: object) -> Iterator[str]:
    """Run a module that serves, and return its URL."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def serve(connection: Callable[[], asyncio.BaseProtocol]) -> None:
    """Print the port and serve until ended."""
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()
