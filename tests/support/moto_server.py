"""A moto server in which one request is handled at a time; in a process: `python -m tests.support.moto_server PORT`.

A boto3 client in the same process as the server does not use a socket, where each request has a connection and a
thread of its own: it calls the application directly. All other clients, such as Spark, pyarrow and other processes,
use HTTP.

DynamoDB checks the condition of a write and writes in one step. moto does the two one after the
other without a lock, so under load two threads can both win the same condition (25 threads that
count to 200 lose one step in every few runs). One lock around the application prevents this.
"""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from http.client import HTTPMessage
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.httpsession import URLLib3Session
from moto import backends
from moto.core import responses
from moto.core.serialize import ResponseSerializer
from moto.core.utils import method_names_from_class
from moto.dynamodb.models.dynamo_type import DynamoType, LimitedSizeDict
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from urllib3 import HTTPHeaderDict, HTTPResponse
from werkzeug.serving import make_server, run_simple


class OneAtATime:
    """moto's WSGI application behind a lock."""

    def __init__(self) -> None:
        self._application: Any = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # Read the body before taking the lock: a client that dies while sending must not block the others.
        is_chunked = environ.get("wsgi.input_terminated", False)
        body = environ["wsgi.input"].read(*[] if is_chunked else [int(environ.get("CONTENT_LENGTH") or 0)])
        with self._lock:
            return list(self._application(environ | {"wsgi.input": io.BytesIO(body)}, start_response))


def _answer_faster() -> None:
    """Make moto do once what it repeats for each request or attribute of an item; this halves the time of an answer.

    * It looks up a dozen names for each of the ten types that an attribute's value may have.
    * It lists the folder of its own modules, and the methods of the class that answers.
    * It measures an item again for each attribute that is added to it, because no item may be larger than 400 KB.
    """
    whole = ResponseSerializer.get_value

    def get_value(self: ResponseSerializer, value: Any, key: str, shape: Any) -> Any:
        parent = getattr(shape, "parent", None)
        if type(value) is dict and parent is not None and parent.name == "AttributeValue":
            return value.get(key)
        return whole(self, value, key, shape)

    ResponseSerializer.get_value = get_value  # type: ignore[method-assign]

    list_modules = backends.list_of_moto_modules
    backends.list_of_moto_modules = functools.cache(lambda: tuple(list_modules()))
    responses.method_names_from_class = functools.cache(method_names_from_class)  # type: ignore[attr-defined]

    measured = LimitedSizeDict.__setitem__

    def set_item(self: Any, key: str, value: Any) -> None:
        size = value.size() if isinstance(value, DynamoType) else len(str(value))
        self.size_so_far = getattr(self, "size_so_far", 0) + len(key) + size
        # Far below the limit, the exact size is not needed.
        if self.size_so_far < 100_000:
            dict.__setitem__(self, key, value)
        else:
            measured(self, key, value)

    LimitedSizeDict.__setitem__ = set_item  # type: ignore[method-assign]


_answer_faster()


class MotoServer:
    """A server on a free loopback port, in threads of this process."""

    def __init__(self, application: Any) -> None:
        self._server = make_server("127.0.0.1", 0, application, True, request_handler=MotoRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        # A forked process only has a copy of the server's data, so it must send its requests to the server itself.
        self._pid, self._application = os.getpid(), application
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        _servers[urlsplit(self.url).netloc] = self

    def takes(self, request: AWSPreparedRequest) -> bool:
        """Return whether a request can be answered without a connection; chunked requests without a length cannot."""
        return os.getpid() == self._pid and "Transfer-Encoding" not in request.headers

    def answer(self, request: AWSPreparedRequest) -> AWSResponse:
        """Answer a request as over HTTP."""
        handler = _Handler(self._server, request)
        said: list[Any] = []
        parts = self._application(handler.make_environ(), lambda *given: said.extend(given[:2]))
        body = b"" if request.method == "HEAD" else b"".join(parts)
        fields: Any = HTTPHeaderDict(said[1])
        fields.setdefault("Date", handler.date_time_string())
        raw = HTTPResponse(
            io.BytesIO(body), fields, int(said[0].split()[0]),
            request_method=request.method, preload_content=False, enforce_content_length=False,
        )  # fmt: skip
        response = AWSResponse(request.url, raw.status, fields, raw)
        if not request.stream_output:
            response.content  # noqa: B018  It reads the body, as botocore does.
        return response

    def stop(self) -> None:
        del _servers[urlsplit(self.url).netloc]
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


_servers: dict[str, MotoServer] = {}
"""The servers of this process, by host and port."""


def body_of(request: AWSPreparedRequest) -> bytes:
    """Return the body of a request of botocore."""
    body: Any = request.body
    if hasattr(body, "read"):
        body = body.read()
    return body.encode() if isinstance(body, str) else bytes(body or b"")


class _Handler(MotoRequestHandler):
    """Converts a request of botocore to what the server would have read from a connection."""

    def __init__(self, server: Any, request: AWSPreparedRequest) -> None:
        parts = urlsplit(request.url)
        self.server, self.client_address, self.connection = server, ("127.0.0.1", 0), None
        self.command, self.request_version = request.method, "HTTP/1.1"
        self.path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        data = body_of(request)
        self.headers = HTTPMessage()
        for name, value in request.headers.items():
            self.headers[name] = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        if "Host" not in self.headers:
            self.headers["Host"] = parts.netloc
        if "Content-Length" not in self.headers and (data or request.method in ("POST", "PUT", "PATCH")):
            self.headers["Content-Length"] = str(len(data))
        self.rfile = io.BytesIO(data)


def call_servers_of_this_process() -> Callable[[], None]:
    """Let boto3 call the servers of this process without a connection; return a function that undoes this."""
    send = URLLib3Session.send

    def sent(session: URLLib3Session, request: Any) -> AWSResponse:
        server = _servers.get(urlsplit(request.url).netloc)
        return server.answer(request) if server and server.takes(request) else send(session, request)

    def undo() -> None:
        URLLib3Session.send = send  # type: ignore[method-assign]

    URLLib3Session.send = sent  # type: ignore[assignment, method-assign]
    return undo


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    run_simple("127.0.0.1", int(sys.argv[1]), OneAtATime(), threaded=True, request_handler=MotoRequestHandler)
