"""A server between the command and DynamoDB that refuses some operations as AWS does, or answers slowly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ARN = "arn:aws:dynamodb:eu-west-2:123456789012:table/council"
TYPE = "com.amazonaws.dynamodb.v20120810#"


def denied(action: str) -> tuple[str, str]:
    """Return the error code and the message with which AWS refuses an action."""
    user = "arn:aws:sts::123456789012:assumed-role/parking-reader/sam"
    text = f"User: {user} is not authorized to perform: dynamodb:{action} on resource: {ARN}"
    return "AccessDeniedException", f"{text} because no identity-based policy allows the dynamodb:{action} action"


EXPIRED = ("ExpiredTokenException", "The security token included in the request is expired")


@contextmanager
def between(endpoint: str, refused: Mapping[str, tuple[str, str]], seconds: float = 0) -> Iterator[str]:
    """Serve on loopback and yield the URL. `refused` maps an operation, or ``*`` for any, to an error and its text."""

    class Handler(_Answering):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
            time.sleep(seconds)
            error = refused.get(operation) or refused.get("*")
            if error:
                self.answer(400, json.dumps({"__type": TYPE + error[0], "message": error[1]}).encode())
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            try:
                with urlopen(Request(endpoint + self.path, body, headers)) as answer:
                    self.answer(answer.status, answer.read())
            except HTTPError as failure:
                self.answer(failure.code, failure.read())

    yield from _served(Handler)


@contextmanager
def s3_that_refuses(status: int, code: str, text: str) -> Iterator[str]:
    """Serve as an S3 that refuses every request, and yield the URL."""

    class Handler(_Answering):
        def do_GET(self) -> None:
            self.answer(status, f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode())

    yield from _served(Handler)


class _Answering(BaseHTTPRequestHandler):
    """A handler that writes answers and no log."""

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
