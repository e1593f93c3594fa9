"""`serve`: the page, live, for this machine only. It reads and never writes."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from scripts.helpers.errors import InvalidValueError, WatermarkError
from scripts.helpers.watermarks import Watermarks
from scripts.report.page import live_job, live_page, policy

logger = logging.getLogger(__name__)

PORT = 8080
NAMES = ("localhost", "127.0.0.1", "::1")
"""What this machine calls itself; a page of another name is somebody's who rebinds names to addresses."""


class PageServer(ThreadingHTTPServer):
    """Serves the overview at ``/`` and one job's details at ``/job?name=…``, read anew each time."""

    # A connection that a browser keeps open must not hold the program up after Ctrl-C.
    daemon_threads = True

    def __init__(
        self, watermarks: Watermarks, host: str, port: int, clock: Callable[[], datetime], values: bool = False
    ) -> None:
        self.watermarks, self.clock, self.values = watermarks, clock, values
        if ":" in host:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__((host, port), Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = str(self.server_address[0]), self.server_address[1]
        if ":" in host:
            host = f"[{host}]"
        return f"http://{host}:{port}/"


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD, from this machine and to one of its own names."""

    server: PageServer
    server_version, sys_version = "watermarks", ""

    def do_GET(self) -> None:
        """Answer with a page."""
        if not self._is_ours():
            self._answer(403, "text/plain", "This page is for this machine only: ask for 127.0.0.1 or localhost.\n")
            return
        asked = urlsplit(self.path)
        try:
            if asked.path == "/":
                found = live_page(self.server.watermarks, self.server.clock())
            elif asked.path == "/job":
                (name,) = parse_qs(asked.query, max_num_fields=2).get("name", [""])
                found = live_job(self.server.watermarks, name, self.server.clock(), self.server.values)
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

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            # What the table holds is not left on the disk of whoever looked at it.
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log a request where the program logs, its name and path escaped."""
        logger.info("event=served request=%r", format % args)


def make_server(
    watermarks: Watermarks,
    host: str = "127.0.0.1",
    port: int = PORT,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    values: bool = False,
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
    return PageServer(watermarks, address, port, clock, values)


def serve(watermarks: Watermarks, host: str = "127.0.0.1", port: int = PORT, *, values: bool = False) -> None:
    """Serve the page on this machine until interrupted (Ctrl-C); every reload reads the table again.

    Nobody else can reach it: other addresses are refused, and so are requests that name another
    host, as a web page sends them that rebinds its name to this machine. Only GET and HEAD are answered.

    Parameters
    ----------
    values
        As that of `build_report`.

    Raises
    ------
    InvalidValueError
        `host` is not a loopback address.
    OSError
        The port is in use.
    """
    with make_server(watermarks, host, port, values=values) as server:
        print(f"{server.url} (Ctrl-C ends it)", flush=True)  # noqa: T201
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
