"""The live page: what it answers, and to whom."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.watermarks import Watermarks
from scripts.report import serve
from scripts.report.server import PageServer, make_server
from tests.report.browser import TOOK, Page
from tests.report.listed_histories import ListedHistories
from tests.report.many import NOW, names_of
from tests.report.world import JOBS, MARKUP_JOB, SECRET, World, rows_state
from tests.support.clock import Clock
from tests.support.patience import PATIENCE
from tests.support.steps import commit


@pytest.fixture
def server(world: World) -> Iterator[PageServer]:
    yield from running(make_server(world.watermarks, port=0, clock=lambda: world.now))


def running(made: PageServer) -> Iterator[PageServer]:
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def ask(
    server: PageServer, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    """Send one request with exactly these headers beside Host."""
    at = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=PATIENCE)
    given = {"Host": f"127.0.0.1:{at.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
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
    asked = [urlsplit(url)._replace(query="").geturl() for url in page.requests() if not url.startswith("data:")]
    assert asked == [server.url, f"{server.url}job"]
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
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "Access-Control-Allow-Origin" not in headers


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

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ \(Ctrl-C ends it\)\n", capsys.readouterr().out)


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
