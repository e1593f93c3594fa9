"""`serve`: the page, live, for this machine only. It reads and never writes."""

from __future__ import annotations

import io
import ipaddress
import logging
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from scripts.helpers.errors import InvalidValueError, WatermarkError
from scripts.helpers.metrics.freshness import Threshold
from scripts.helpers.watermarks import Watermarks
from scripts.report.page import REFRESH_SECONDS, live_job, live_page, policy

logger = logging.getLogger(__name__)

PORT = 8080
"""Above 1,023, so that no right is needed to listen there."""
NAMES = ("localhost", "127.0.0.1", "::1")
"""What this machine calls itself; a page of another name is somebody's who rebinds names to addresses."""
TOKEN_BYTES = 32
"""256 bits, which nobody guesses, however many are tried."""
_TOKEN = re.compile(r"(token=)[^&\s'\"]+")


@dataclass(frozen=True)
class Bounds:
    """What those who connect may take of the server.

    Attributes
    ----------
    connections
        Answered or read at a time. One beyond them gets a 503 at once: a browser asks again, and what waited for a
        place would be a connection that somebody holds.
    request_seconds
        From the connection until the whole request is there, however many pieces it comes in.
    answer_seconds
        For a client to take its answer.
    request_bytes
        Of the request line and all headers; cookies of other servers on this machine are among them.
    """

    connections: int = 32
    request_seconds: float = 10.0
    answer_seconds: float = 30.0
    request_bytes: int = 64 * 1024


class RequestTooLongError(Exception):
    """A request is longer than it may be."""


class PageServer(ThreadingHTTPServer):
    """Serves the overview at ``/`` and one job's details at ``/job?name=…``, read anew each time.

    Attributes
    ----------
    token
        What a browser has to have shown once, at ``/?token=…``, and has in a cookie from then on; None to ask for none.
    """

    # A connection that a browser keeps open must not hold the program up after Ctrl-C.
    daemon_threads = True
    # Those that nobody has looked at yet: a browser opens several at once, and beyond these it waits for a second.
    request_queue_size = 64

    def __init__(
        self,
        watermarks: Watermarks,
        host: str,
        port: int,
        clock: Callable[[], datetime],
        values: bool = False,
        *,
        token: str | None = None,
        bounds: Bounds | None = None,
        thresholds: Mapping[str, Threshold] | None = None,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self.thresholds, self.refresh_seconds = thresholds, refresh_seconds
        self.watermarks, self.clock, self.values = watermarks, clock, values
        self.token, self.bounds = token, bounds or Bounds()
        self._places = threading.BoundedSemaphore(self.bounds.connections)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Handler)

    @property
    def origin(self) -> str:
        """Where the page is, without the token."""
        host, port = str(self.server_address[0]), self.server_address[1]
        if ":" in host:
            host = f"[{host}]"
        return f"http://{host}:{port}/"

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return self.origin if self.token is None else f"{self.origin}?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """Name of the cookie that has the token. Cookies know no ports, so the name has it."""
        return f"watermarks-{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, if there is a place for it."""
        if not self._places.acquire(blocking=False):
            self._refuse(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection and leave its place to the next one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def _refuse(self, request: socket.socket) -> None:
        """Say without a thread, and without having read anything, that there is no place."""
        body = b"Too many connections. Ask again.\n"
        headers = "".join(f"{name}: {value}\r\n" for name, value in headers_of("text/plain", body).items())
        try:
            # An answer so small fits the buffer of a new connection; should it not, nobody waits for that.
            request.settimeout(0)
            request.sendall(f"HTTP/1.0 503 Service Unavailable\r\n{headers}Retry-After: 1\r\n\r\n".encode() + body)
        except OSError as error:
            logger.info("event=refused_without_answer error=%s", type(error).__name__)
        finally:
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what ended a connection, such as a browser that went away, where the program logs."""
        logger.info("event=connection_failed", exc_info=True)


class _Request(io.RawIOBase):
    """What a client sends, up to a size and a time: both of the whole request, not of a piece."""

    def __init__(self, connection: socket.socket, bounds: Bounds) -> None:
        self._connection, self._left = connection, bounds.request_bytes
        self._until = time.monotonic() + bounds.request_seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # For each piece only what is left: one byte now and then would hold the connection for ever otherwise.
        seconds = self._until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the request did not come")
        self._connection.settimeout(seconds)
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise RequestTooLongError
        return count


def headers_of(kind: str, body: bytes) -> dict[str, str]:
    """Return the headers that every answer has, also those of errors."""
    return {
        "Content-Type": f"{kind}; charset=utf-8",
        "Content-Length": str(len(body)),
        "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        # What the table holds is not left on the disk of whoever looked at it.
        "Cache-Control": "no-store",
    }


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD, from this machine, to one of its own names, and with the token."""

    server: PageServer
    server_version, sys_version = "watermarks", ""
    # What is answered and logged of a request that is refused before its first line was read.
    command, requestline, request_version = "", "", "HTTP/1.0"

    def setup(self) -> None:
        """Bound what is read; see `Bounds`."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection, self.server.bounds))

    def handle(self) -> None:
        """Answer the one request of the connection."""
        try:
            super().handle()
        except RequestTooLongError:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def parse_request(self) -> bool:
        """Read the headers. False if the request was answered already, with an error."""
        if not super().parse_request():
            return False
        # An answer of HTTP/0.9 has no headers, so none of those that protect it.
        if self.request_version == "HTTP/0.9":
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with an error as all others are: `http.server` itself would leave the headers out."""
        # It also repeats what was asked, and answers a line that is no request as HTTP/0.9, without any header.
        self.request_version = "HTTP/1.0"
        self._answer(code, "text/plain", f"{HTTPStatus(code).phrase}.\n")

    def do_GET(self) -> None:
        """Answer with a page."""
        if not self._is_ours():
            self._answer(403, "text/plain", "This page is for this machine only: ask for 127.0.0.1 or localhost.\n")
            return
        asked = urlsplit(self.path)
        if asked.path == "/" and self._brings_token(asked.query):
            self._let_in()
            return
        if not self._has_token():
            self._answer(403, "text/plain", "Open the URL with the token that `watermarks serve` printed.\n")
            return
        try:
            if asked.path == "/":
                server = self.server
                found = live_page(server.watermarks, server.clock(), server.thresholds, server.refresh_seconds)
            elif asked.path == "/job":
                (name,) = parse_qs(asked.query, max_num_fields=2).get("name", [""])
                server = self.server
                found = live_job(server.watermarks, name, server.clock(), server.values, server.thresholds)
            else:
                self._answer(404, "text/plain", "There is no such page.\n")
                return
        except ValueError as error:
            self._answer(400, "text/plain", f"{error}\n")
        except WatermarkError as error:
            self._answer(503, "text/plain", f"{error}\n")
        else:
            self._answer(200, "text/html", found)

    do_HEAD = do_GET  # noqa: N815

    def _is_ours(self) -> bool:
        """Tell whether the request names this machine in its Host header, and was not sent for another site's page."""
        # Any page that is open in a browser can send requests here. Where it has bound its own name to 127.0.0.1 it
        # could read the answer too, so the name counts and not the address. Two Host headers are for a proxy that
        # reads the other one.
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return False
        try:
            named = urlsplit(f"//{hosts[0]}")
            # Browsers leave out port 80.
            return named.hostname in NAMES and (named.port or 80) == self.server.server_address[1]
        except ValueError:
            return False

    def _brings_token(self, query: str) -> bool:
        return self.server.token is not None and any(
            name == "token" and self._is_token(value) for name, value in _pairs(query, "&")
        )

    def _has_token(self) -> bool:
        if self.server.token is None:
            return True
        # Of one name there may be several, of other paths of this machine.
        cookies = [pair for line in self.headers.get_all("Cookie") or [] for pair in _pairs(line, ";")]
        return any(name == self.server.cookie_name and self._is_token(value) for name, value in cookies)

    def _is_token(self, value: str) -> bool:
        # In the same time for each: the time until a wrong character is found would tell the right ones.
        return self.server.token is not None and compare_digest(value.encode(), self.server.token.encode())

    def _let_in(self) -> None:
        """Put the token into a cookie, and send the browser on, so that it stands in no address bar and no history."""
        cookie = f"{self.server.cookie_name}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._answer(303, "text/plain", "Continue to /.\n", {"Location": "./", "Set-Cookie": cookie})

    def _answer(self, status: int, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.connection.settimeout(self.server.bounds.answer_seconds)
        self.send_response(status)
        for name, value in (headers_of(kind, body) | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log a request where the program logs, its name and path escaped, and without the token."""
        logger.info("event=served request=%r", _TOKEN.sub(r"\1…", format % args))


def _pairs(text: str, separator: str) -> list[tuple[str, str]]:
    """Part ``a=1;b=2`` into names and values as they stand; a library would stumble over cookies of other programs."""
    parts = [part.strip().partition("=") for part in text.split(separator)]
    return [(name, value) for name, _, value in parts]


def make_server(
    watermarks: Watermarks,
    host: str = "127.0.0.1",
    port: int = PORT,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    values: bool = False,
    token: bool = True,
    bounds: Bounds | None = None,
    thresholds: Mapping[str, Threshold] | None = None,
    refresh_seconds: float = REFRESH_SECONDS,
) -> PageServer:
    """Make the server of the live page; InvalidValueError for an address that others can reach.

    Call its `serve_forever`, and `shutdown` from another thread; port 0 takes a free one, see `url`.
    """
    # Not resolved: a name may mean another address the next time that somebody asks.
    address = "127.0.0.1" if host == "localhost" else host
    try:
        is_local = ipaddress.ip_address(address).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise InvalidValueError(f"The page is served on this machine only, and not on {host!r}. Use 127.0.0.1 or ::1.")
    made = secrets.token_urlsafe(TOKEN_BYTES) if token else None
    return PageServer(
        watermarks, address, port, clock, values, token=made, bounds=bounds, thresholds=thresholds,
        refresh_seconds=refresh_seconds,
    )  # fmt: skip


def serve(
    watermarks: Watermarks,
    host: str = "127.0.0.1",
    port: int = PORT,
    *,
    values: bool = False,
    token: bool = True,
    thresholds: Mapping[str, Threshold] | None = None,
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Serve the page on this machine until interrupted (Ctrl-C); it reads the table again each minute.

    Nobody else can reach it: other addresses are refused, and so are requests that name another
    host, as a web page sends them that rebinds its name to this machine. Only GET and HEAD are answered,
    to browsers that were opened with the URL that it prints. Connections are bounded, see `Bounds`.

    Parameters
    ----------
    values
        As that of `build_report`.
    token
        Whether to ask for the random token that the printed URL has. Without it every user of this
        machine can read the page.
    thresholds
        As those of `build_report`.
    on_start
        Given the URL once it can be opened; by default it is printed.

    Raises
    ------
    InvalidValueError
        `host` is not a loopback address.
    OSError
        The port is in use.
    """
    with make_server(watermarks, host, port, values=values, token=token, thresholds=thresholds) as server:
        if on_start is not None:
            on_start(server.url)
        else:
            print(f"{server.url} (Ctrl-C ends it)", flush=True)  # noqa: T201
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
