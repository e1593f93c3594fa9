"""A bucket on loopback that delays its answers, to make one reader hang and another start after it is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

AT_MOST = 120.0
"""Seconds that an answer waits for its event: far longer than any machine needs."""


class HeldBucket(ThreadingHTTPServer):
    """Serves objects at once, except those with ``held``, ``changed`` or ``late`` in their key.

    A request for ``held`` is never answered. A request for ``changed`` is refused (412) as soon as a request
    for ``held`` has arrived. A request for ``late`` is answered as soon as the held reader has hung up.
    """

    daemon_threads = True
    body = b'{"id": 1}'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.is_held, self.hung_up = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serve_held_bucket() -> Iterator[HeldBucket]:
    """Serve a new `HeldBucket` until the block ends."""
    with HeldBucket() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: HeldBucket

    def do_GET(self) -> None:
        if "held" in self.path:
            self.server.is_held.set()
            self._wait_until_reader_hangs_up()
            self.server.hung_up.set()
            return
        if "changed" in self.path:
            self.server.is_held.wait(AT_MOST)
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        if "late" in self.path:
            self.server.hung_up.wait(AT_MOST)
        self._answer(200, self.server.body)

    def _wait_until_reader_hangs_up(self) -> None:
        self.connection.settimeout(AT_MOST)
        try:
            while self.connection.recv(1024):
                pass
        except ConnectionError:
            pass  # a killed reader may reset the connection instead of closing it

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 16 Mar 2026 15:45:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep requests out of the test's output."""
