"""Servers of the benchmarks: each runs in a separate process, on loopback, at a port that it prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen


@contextmanager
def local_server(module: str, *arguments: object) -> Iterator[str]:
    """Run a server module in a separate process and yield its URL."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


class Connection(asyncio.Protocol):
    """One client connection: each request is answered when its head is complete, or `delay` seconds later."""

    delay = 0.0

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            answer = self.answer(head.decode("latin-1"))
            if self.delay:
                asyncio.get_running_loop().call_later(self.delay, self._transport.write, answer)
            else:
                self._transport.write(answer)

    def answer(self, head: str) -> bytes:
        """Return the response to one request."""
        raise NotImplementedError


async def serve(connection: Callable[[], asyncio.BaseProtocol]) -> None:
    """Print the port, and serve until the process is terminated."""
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()
