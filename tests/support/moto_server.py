"""A moto server in which one request is handled at a time; in a process: `python -m tests.support.moto_server PORT`.

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

from moto.core.serialize import ResponseSerializer
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server, run_simple


class OneAtATime:
    """The WSGI application of moto behind a lock."""

    def __init__(self) -> None:
        self._application: Any = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # Read before the lock is taken: a client that dies while sending must not stop the others.
        is_chunked = environ.get("wsgi.input_terminated", False)
        body = environ["wsgi.input"].read(*[] if is_chunked else [int(environ.get("CONTENT_LENGTH") or 0)])
        with self._lock:
            return list(self._application(environ | {"wsgi.input": io.BytesIO(body)}, start_response))


def _answer_faster() -> None:
    """Let moto look once for each of the ten types that an attribute's value may have.

    The nine that a value does not have were each sought under a dozen names: a third of the time of a read.
    """
    whole = ResponseSerializer.get_value

    def get_value(self: ResponseSerializer, value: Any, key: str, shape: Any) -> Any:
        parent = getattr(shape, "parent", None)
        if type(value) is dict and parent is not None and parent.name == "AttributeValue":
            return value.get(key)
        return whole(self, value, key, shape)

    ResponseSerializer.get_value = get_value  # type: ignore[method-assign]


_answer_faster()


class MotoServer:
    """A server on a free port of loopback, in threads of this process."""

    def __init__(self, application: Any) -> None:
        self._server = make_server("127.0.0.1", 0, application, True, request_handler=MotoRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    run_simple("127.0.0.1", int(sys.argv[1]), OneAtATime(), threaded=True, request_handler=MotoRequestHandler)
