"""The live page: what it answers, and to whom."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.watermarks import Watermarks
from scripts.report import serve
from scripts.report.server import Bounds, PageServer, make_server
from tests.report.browser import TOOK, Page
from tests.report.listed_histories import ListedHistories
from tests.report.many import NOW, names_of
from tests.report.world import JOBS, MARKUP_JOB, SECRET, World, rows_state
from tests.support.clock import Clock
from tests.support.patience import PATIENCE
from tests.support.steps import commit

TIME = re.compile(r"\d\d:\d\d:\d\d UTC")
LIVE = "document.getElementById('live').textContent"
STOPPED = "the server does not answer. Start watermarks serve again, and open the URL that it prints."


@pytest.fixture
def server(world: World) -> Iterator[PageServer]:
    yield from running(make_server(world.watermarks, port=0, clock=lambda: world.now))


def running(made: PageServer) -> Iterator[PageServer]:
    # A test that fails leaves it running: then it must not keep the process from its end.
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def ask(
    server: PageServer, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    """Send one request with exactly these headers beside Host and the cookie that a browser has by then."""
    at = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=PATIENCE)
    given = {"Host": f"127.0.0.1:{at.port}", "Cookie": f"{server.cookie_name}={server.token}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=given)
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read().decode()
    connection.close()
    return found


def test_live_page_shows_all_jobs_when_asked(server: PageServer) -> None:
    status, headers, html = ask(server)

    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert len(names_of(html)) == JOBS
    assert str(SECRET) not in html


def test_live_page_reads_again_and_says_when_it_cannot_when_the_server_ends(
    page: Page, watermarks: Watermarks, clock: Clock
) -> None:
    commit(watermarks, "repairs", "jr_1", {"n": rows_state(clock.now)})

    for server in running(make_server(watermarks, port=0, clock=clock, refresh_seconds=0.2)):
        page.open(server.url)
        page.run("document.querySelector('#range input[value=\"7d\"]').click()")
        page.run("document.getElementById('find').focus()")
        page.press("r")
        before = page.visible_jobs()
        commit(watermarks, "rents", "jr_1", {"n": rows_state(clock.now)})
        page.wait("return document.querySelector('tr[data-name=rents]')")
        after, focused = page.visible_jobs(), page.focused()
        linked = page.run("return document.querySelector('tr[data-name=rents] a').getAttribute('href')")
    # A connection that the browser had opened before may still be answered; when this is said, none of them is left.
    said = page.wait(f"return {LIVE}.startsWith('Could not') && {LIVE}")
    page.run("document.querySelector('#jobs a').click()")
    opened = page.wait(
        "const e = document.getElementById('details'); return e.innerText.startsWith('The') && e.innerText"
    )

    assert (before, sorted(after), focused) == (["repairs"], ["rents", "repairs"], "find")
    assert linked == "#job=rents&range=7d"
    assert TIME.sub("…", said) == f"Could not read the table at …: {STOPPED} What you see was read at …."
    assert opened == f"The details cannot be shown: {STOPPED}"


def test_page_says_so_and_goes_on_when_the_server_hangs(page: Page, watermarks: Watermarks, clock: Clock) -> None:
    goes_on = threading.Event()
    goes_on.set()

    def now() -> datetime:
        # The server asks what time it is at each reading: there it hangs, until the test lets it go on.
        assert goes_on.wait(PATIENCE)
        return clock.now

    for server in running(make_server(watermarks, port=0, clock=now, refresh_seconds=0.2)):
        page.open(server.url)
        page.wait("return document.getElementById('live').dataset.read")
        goes_on.clear()
        hung = page.wait(f"return {LIVE}.startsWith('No answer') && {LIVE}")
        goes_on.set()
        page.wait(f"return {LIVE}.startsWith('Read at')")

    assert TIME.sub("…", hung) == "No answer since …. What you see was read at …."


def test_page_says_what_the_server_says_when_the_table_cannot_be_read(page: Page, dynamodb: Any, clock: Clock) -> None:
    watermarks = Watermarks("table-that-goes", dynamodb, clock=clock)
    watermarks.create_table()

    for server in running(make_server(watermarks, port=0, clock=clock, refresh_seconds=0.2)):
        page.open(server.url)
        dynamodb.delete_table(TableName="table-that-goes")
        said = page.wait(f"return {LIVE}.startsWith('Could not') && {LIVE}")

    assert "'table-that-goes'" in said
    assert " UTC: " in said and "What you see was read " in said


def test_live_page_opens_when_there_are_500_jobs_of_1000_versions(page: Page) -> None:
    client = ListedHistories(500, 1_000)
    watermarks = Watermarks("table", client)  # type: ignore[arg-type]

    for server in running(make_server(watermarks, port=0, clock=lambda: NOW)):
        page.open(server.url)
        shown, answered = page.visible_jobs(), page.run(f"return {TOOK}")

    assert len(shown) == 500
    assert answered < 30_000
    assert (client.calls["get_item"], client.calls["query"]) == (3 * 500, 500)
    assert page.complaints() == []


def test_live_page_is_new_when_it_is_reloaded(watermarks: Watermarks, clock: Clock) -> None:
    for server in running(make_server(watermarks, port=0, clock=clock)):
        before = names_of(ask(server)[2])
        commit(watermarks, "repairs", "jr_1", {"n": rows_state(clock.now)})

        after = names_of(ask(server)[2])

    assert (before, after) == ([], ["repairs"])


def test_details_of_a_job_are_live_when_it_is_opened_in_the_browser(server: PageServer, page: Page) -> None:
    page.open(server.url).open_job(MARKUP_JOB)

    assert page.run("return document.getElementById('job-name').textContent") == MARKUP_JOB
    assert page.run("return document.querySelectorAll('#details img, #details script').length") == 0
    asked = [url for url in page.requests() if not url.startswith("data:")]
    without_query = [urlsplit(url)._replace(query="").geturl() for url in asked]
    # The first one brings the token, and is sent on to an address without it.
    assert (asked[0], without_query) == (server.url, [server.origin, server.origin, f"{server.origin}job"])
    assert page.run("return [location.href.includes('token'), document.cookie]") == [False, ""]
    assert page.complaints() == []


def test_job_that_is_not_there_says_so_when_asked_for(server: PageServer) -> None:
    status, _, html = ask(server, "/job?name=nope")

    assert status == 200
    assert "holds nothing for job &#39;nope&#39;" in html


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "[", ""],
)
def test_request_is_refused_when_it_names_another_host(server: PageServer, host: str) -> None:
    status, _, text = ask(server, Host=host.format(port=server.server_address[1]))

    assert (status, text) == (403, "This page is for this machine only: ask for 127.0.0.1 or localhost.\n")


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_request_is_answered_when_it_names_this_machine(server: PageServer, host: str) -> None:
    status, _, _ = ask(server, "/job?name=landing", Host=host.format(port=server.server_address[1]))

    assert status == 200


def test_request_is_refused_when_another_sites_page_sends_it(server: PageServer) -> None:
    status, _, _ = ask(server, Sec_Fetch_Site="cross-site")

    assert status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_request_is_refused_when_it_is_no_reading_one(server: PageServer, method: str) -> None:
    status, _, _ = ask(server, method=method)

    assert status == 501


def test_head_has_no_body_when_asked(server: PageServer) -> None:
    status, headers, body = ask(server, "/job?name=landing", "HEAD")

    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 0


def test_answer_lets_nothing_else_in_when_it_is_sent(server: PageServer) -> None:
    _, headers, _ = ask(server)

    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert "Access-Control-Allow-Origin" not in headers


PROTECTING = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
HOST = b"Host: 127.0.0.1:%d\r\n"
REQUESTS = {
    "page-without-token": (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n", 403),
    "other-host": (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    "no-host": (b"GET / HTTP/1.1\r\n\r\n", 403),
    "other-method": (b"POST / HTTP/1.1\r\n" + HOST + b"\r\n", 501),
    "no-request": (b"<script>alert(1)</script>\r\n\r\n", 400),
    "one-word": (b"GARBAGE\r\n\r\n", 400),
    "without-version": (b"GET /\r\n\r\n", 400),
    "post-without-version": (b"POST /\r\n\r\n", 400),
    "other-version": (b"GET / HTTP/9.9\r\n\r\n", 505),
    "long-line": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
    "many-headers": (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
    "long-headers": (b"GET / HTTP/1.1\r\n" + (b"A: " + b"b" * 10_000 + b"\r\n") * 7 + b"\r\n", 431),
}
"""Requests as they are sent, and what each is answered with."""


def connect(server: PageServer) -> socket.socket:
    at = urlsplit(server.origin)
    return socket.create_connection((str(at.hostname), at.port or 80), timeout=PATIENCE)


def answer_of(connection: socket.socket) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Read an answer; one without a status line and headers is an error."""
    found = http.client.HTTPResponse(connection)
    found.begin()
    return found.status, found.headers, found.read()


@pytest.mark.parametrize("name", REQUESTS)
def test_answer_protects_itself_and_repeats_nothing_when_a_request_is_refused(server: PageServer, name: str) -> None:
    sent, expected = REQUESTS[name]

    with connect(server) as connection:
        # The answer may come, and the connection end, before the whole of a long request is sent.
        with suppress(OSError):
            connection.sendall(sent.replace(b"%d", b"%d" % server.server_address[1]))
        status, headers, body = answer_of(connection)

    assert status == expected
    assert {header: headers[header] for header in PROTECTING} == PROTECTING
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert b"script" not in body and b"GARBAGE" not in body


@pytest.mark.parametrize("path", ["/", "/?token=", "/job?name=landing", "/nothing", "/job?name=landing&token={token}"])
@pytest.mark.parametrize(
    "cookie", ["", "{name}=", "{name}=wrong", "{name}={token}x", "{name}=\u00e9", "watermarks-1={token}", "; ;=;a"]
)
def test_nothing_is_shown_when_a_browser_was_not_let_in(server: PageServer, path: str, cookie: str) -> None:
    given = {"name": server.cookie_name, "token": server.token}

    status, _, text = ask(server, path.format(**given), Cookie=cookie.format(**given))

    assert (status, text) == (403, "Open the URL with the token that `watermarks serve` printed.\n")


@pytest.mark.parametrize("token", ["wrong", "", "{token}x", "%C3%A9"])
def test_no_cookie_is_given_when_the_token_is_wrong(server: PageServer, token: str) -> None:
    status, headers, _ = ask(server, f"/?token={token.format(token=server.token)}", Cookie="")

    assert (status, headers["Set-Cookie"]) == (403, None)


def test_browser_is_let_in_by_a_cookie_of_its_own_when_it_brings_the_token(
    server: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    at = urlsplit(server.url)

    status, headers, _ = ask(server, f"{at.path}?{at.query}", Cookie="")
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    shown = ask(server, Cookie=f"other=1; {cookie.partition('=')[0]}=old; {cookie}")

    assert (status, headers["Location"], shown[0]) == (303, "./", 200)
    assert attributes == ["HttpOnly", "SameSite=Strict", "Path=/"]
    assert {header: headers[header] for header in PROTECTING} == PROTECTING
    assert server.token is not None
    assert len(server.token) >= 40
    # Neither whoever reads the log nor whoever reads the page gets in by it.
    assert "GET /?token=… HTTP/1.1" in caplog.text
    assert server.token not in caplog.text + shown[2]


def test_token_is_another_one_when_another_server_starts(world: World) -> None:
    servers = [make_server(world.watermarks, port=0) for _ in range(2)]
    for made in servers:
        made.server_close()

    assert servers[0].token != servers[1].token


def test_page_is_shown_to_everybody_here_when_no_token_is_asked_for(world: World) -> None:
    for server in running(make_server(world.watermarks, port=0, clock=lambda: world.now, token=False)):
        assert server.url == server.origin
        assert ask(server, Cookie="")[0] == 200
        assert ask(server, "/?token=None", Cookie="")[0] == 200


# --- how much one client may take ---------------------------------------------------------------------

HALF = b"GET / HTTP/1.1\r\nHost: 127.0"


def bounded(world: World, **bounds: Any) -> Iterator[PageServer]:
    yield from running(make_server(world.watermarks, port=0, clock=lambda: world.now, bounds=Bounds(**bounds)))


def has_ended(connection: socket.socket) -> bool:
    """Wait until the server has ended a connection without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_threads_are_bounded_when_sixty_requests_are_sent_by_half(world: World) -> None:
    for server in bounded(world, connections=4, request_seconds=PATIENCE):
        before = threading.active_count()
        with ExitStack() as stack:
            connections = [stack.enter_context(connect(server)) for _ in range(60)]
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(HALF)
            refused = [answer_of(connection) for connection in connections[4:]]
            threads = threading.active_count() - before

        assert threads == 4
        assert {status for status, _, _ in refused} == {503}
        assert {header: refused[0][1][header] for header in PROTECTING} == PROTECTING
        # The places of those who went are free again.
        assert comes_to_answer(server)


def comes_to_answer(server: PageServer) -> bool:
    """Ask until there is a place again."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if ask(server, "/job?name=landing")[0] == 200:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "byte-by-byte"])
def test_connection_ends_when_its_request_does_not_come_in_time(world: World, drips: bool) -> None:
    for server in bounded(world, connections=1, request_seconds=0.3):
        with connect(server) as connection:
            connection.sendall(HALF)
            started = time.monotonic()
            while drips and time.monotonic() < started + PATIENCE:
                # Each byte comes soon enough; the whole does not.
                connection.settimeout(0.05)
                with suppress(TimeoutError):
                    assert has_ended(connection)
                    break
                with suppress(OSError):
                    connection.sendall(b"0")
            connection.settimeout(PATIENCE)
            assert has_ended(connection)
            assert time.monotonic() - started < PATIENCE / 2
        server.bounds = Bounds()

        assert comes_to_answer(server)


def test_connection_is_no_failure_when_there_is_no_time_left_for_its_request(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        for server in bounded(world, request_seconds=0):
            with connect(server) as connection:
                assert has_ended(connection)

    assert "event=connection_failed" not in caplog.messages


def test_connection_ends_when_its_answer_is_not_taken(world: World) -> None:
    for server in bounded(world, connections=1, answer_seconds=0.3):
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            connection.connect(server.server_address[:2])
            port, cookie = server.server_address[1], f"{server.cookie_name}={server.token}"
            connection.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nCookie: {cookie}\r\n\r\n".encode())

            assert comes_to_answer(server)


def test_page_is_not_found_when_its_path_is_another(server: PageServer) -> None:
    assert ask(server, "/../etc/passwd")[0] == 404


def test_query_is_refused_when_it_names_several_jobs(server: PageServer) -> None:
    assert ask(server, "/job?name=a&name=b")[0] == 400


def test_failure_is_said_in_the_page_when_the_table_is_gone(dynamodb: Any, clock: Clock) -> None:
    for server in running(make_server(Watermarks("no-such-table", dynamodb), port=0, clock=clock)):
        status, _, text = ask(server)

    assert status == 503
    assert "'no-such-table'" in text


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com", ""])
@pytest.mark.parametrize("start", [serve, make_server])
def test_server_does_not_start_when_others_could_reach_it(world: World, host: str, start: Any) -> None:
    with pytest.raises(
        InvalidValueError, match=r"served on this machine only, and not on .* Use 127\.0\.0\.1 or ::1\."
    ):
        start(world.watermarks, host, 0)


def test_serve_says_where_and_ends_when_it_is_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(server: PageServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve_forever", interrupted)

    serve(world.watermarks, port=0)

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43} \(Ctrl-C ends it\)\n", capsys.readouterr().out)


@pytest.mark.parametrize("values", [False, True])
def test_served_page_shows_values_only_when_they_are_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, values: bool
) -> None:
    shown = []
    options: dict[str, Any] = {"values": True} if values else {}

    def asked_once(server: PageServer) -> None:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        shown.append(ask(server, "/job?name=parking/permits")[2])
        thread.join()

    monkeypatch.setattr(PageServer, "serve_forever", asked_once)

    serve(world.watermarks, port=0, **options)

    assert (str(SECRET) in shown[0]) == values


def test_url_is_given_and_not_printed_when_somebody_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urls: list[str] = []
    monkeypatch.setattr(PageServer, "serve_forever", lambda _: None)

    serve(world.watermarks, port=0, on_start=urls.append)

    assert [urlsplit(url).hostname for url in urls] == ["127.0.0.1"]
    assert capsys.readouterr().out == ""


def test_place_is_free_again_when_no_thread_can_be_started(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    with make_server(world.watermarks, port=0, bounds=Bounds(connections=1)) as server:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="start new thread"):
                server.process_request(None, None)


def test_connection_is_closed_and_noted_when_it_cannot_be_told_that_there_is_no_place(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()

    with caplog.at_level("INFO"), make_server(world.watermarks, port=0, bounds=Bounds(connections=0)) as server:
        server.process_request(ours, None)

    assert caplog.messages == ["event=refused_without_answer error=BrokenPipeError"]
    assert ours.fileno() == -1


def test_url_has_brackets_when_the_address_is_of_version_6(world: World) -> None:
    with make_server(world.watermarks, "::1", 0) as server:
        assert server.socket.family == socket.AF_INET6
        assert server.origin == f"http://[::1]:{server.server_address[1]}/"
