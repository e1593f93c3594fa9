"""A moto server in which one request is handled at a time: `python -m tests.protocol.moto_server PORT`.

DynamoDB checks the condition of a write and writes in one step. moto does the two one after the
other without a lock, so under load two threads can both win the same condition (25 threads that
count to 200 lose one step in every few runs). One lock around the application mends it.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class OneAtATime:
    """A WSGI application that lets one request at a time into another one."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # Read before the lock is taken: a client that dies while sending must not stop the others.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock:
            return list(self._application(environ | {"wsgi.input": io.BytesIO(body)}, start_response))


class KeepAlive(MotoRequestHandler):
    """Keeps connections open between requests, as DynamoDB does."""

    protocol_version = "HTTP/1.1"


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), moto, threaded=True, request_handler=KeepAlive)
