"""S3 faults on every way to find objects: listings, events, a journal, an inventory, and executors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ConnectionClosedError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

from scripts.helpers.errors import (
    AccessRefusedError,
    CredentialsError,
    SourceError,
    SourceUnavailableError,
    WatermarkError,
)
from scripts.helpers.files import spark as spark_bookmark
from scripts.helpers.files.bookmark import FileBookmark, FilesTaken
from scripts.helpers.listing.inventory import S3Inventory
from scripts.helpers.listing.metadata_tables import CHANGES
from tests.support.inventories import Reports, inventory_row
from tests.support.landing import put_objects

KEYS = ["a/1.csv", "a/2.csv", "b/1.csv", "b/2.csv", "c/1.csv"]
ERROR = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>No.</Message></Error>"
NAMES: dict[str, tuple[str, str]] = {
    "listing": ("GET", "list-type=2"),
    "versions": ("GET", "?versions"),
    "events": ("HEAD", ""),
    "journal": ("HEAD", ""),
    "inventory": ("GET", "/data/"),
    "spark": ("GET", "list-type=2"),
}
"""The requests by which each way finds objects: the method, and a part of the path or query."""
OPTIONS: dict[str, dict[str, Any]] = {"versions": {"versioned": True}}

Answer = Callable[[Any, dict[str, Any], Any], Iterable[bytes]]


def error_of_s3(name: str, status: str, code: bytes) -> Any:
    """Return a function that answers with an error. The answer to a HEAD has no body, as in S3."""

    def fail(answer: Answer, server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        body = b"" if environ["REQUEST_METHOD"] == "HEAD" else ERROR % code
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    fail.__name__ = name
    return fail


throttled = error_of_s3("throttled", "503 Slow Down", b"SlowDown")
broken = error_of_s3("broken", "500 Internal Server Error", b"InternalError")
refused = error_of_s3("refused", "403 Forbidden", b"AccessDenied")
expired = error_of_s3("expired", "400 Bad Request", b"ExpiredToken")
skewed = error_of_s3("skewed", "403 Forbidden", b"RequestTimeTooSkewed")


def closed(answer: Answer, server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Close the connection without an answer."""
    connection = environ["werkzeug.socket"]
    if connection is None:  # A client in this process calls the server without a socket.
        raise ConnectionClosedError(endpoint_url="s3")
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def cut_off(answer: Answer, server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Send the first half of the answer as if it were the whole answer."""
    said: list[Any] = []
    whole = b"".join(answer(server, environ, lambda *given: said.append(given)))
    status, headers = said[0][:2]
    half = whole[: len(whole) // 2]
    start(
        status, [*(pair for pair in headers if pair[0].lower() != "content-length"), ("Content-Length", str(len(half)))]
    )
    return [half]


class Faults:
    """Makes the server fail on some requests of a way, chosen by their number."""

    def __init__(self, patch: pytest.MonkeyPatch, way: str, bucket: str) -> None:
        self.seen, self._fault, self._numbers = 0, throttled, range(0)
        method, part = NAMES[way]
        answer: Answer = DomainDispatcherApplication.__call__

        def call(server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            target = f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
            # Skip the driver's own request before executors list: it asks for one key, to learn the source's time.
            is_listing = environ["REQUEST_METHOD"] == method and part in target and "max-keys=1" not in target
            if is_listing and bucket in target:
                self.seen += 1
                if self.seen in self._numbers:
                    return self._fault(answer, server, environ, start)
            return answer(server, environ, start)

        patch.setattr(DomainDispatcherApplication, "__call__", call)

    def begin(self, fault: Any, numbers: range) -> None:
        self.seen, self._fault, self._numbers = 0, fault, numbers

    def end(self) -> None:
        self._numbers = range(0)


class Seen:
    """One way to find what is new below a prefix of a bucket."""

    def __init__(self, way: str, s3: Any, bucket: str, spark: Any) -> None:
        self.way, self._s3, self._bucket, self._spark = way, s3, bucket, spark
        self.source = f"s3://{bucket}/landing/"
        self.state: Any = None
        self.options = OPTIONS.get(way, {})
        self.ahead = timedelta(0)
        """How far the job's clock is ahead of S3's."""
        if way == "spark":
            # Make a ledger first, because the driver cuts ranges by it. Without a ledger it would read pages itself.
            put_objects(s3, bucket, *(f"landing/{folder}/0.csv" for folder in "abcd"))
            self.new()
        put_objects(s3, bucket, *(f"landing/{key}" for key in KEYS))
        reports = Reports(s3, bucket)
        rows = []
        for key in KEYS:
            found = s3.head_object(Bucket=bucket, Key=f"landing/{key}")
            rows.append(
                inventory_row(
                    f"landing/{key}", bucket=bucket, e_tag=found["ETag"].strip('"'), size=found["ContentLength"]
                )
            )
        self._report = reports.write("CSV", rows[:2], rows[2:], sourceBucket=bucket)

    def new(self) -> list[str]:
        """Return the new keys, and keep the state for the next call."""
        now = datetime.now(timezone.utc) + self.ahead
        if self.way == "spark":
            executed = FileBookmark(
                self.source, state=self.state, ledger_uri=f"s3://{self._bucket}/ledger/", **self.options
            )
            files = executed.new_files_on_spark(self._spark).to_driver().files
            self.state = executed.state_after
            return [file.key for file in files]
        bookmark = FileBookmark(self.source, state=self.state, s3_client=self._s3, **self.options)
        found: FilesTaken | None
        if self.way == "events":
            found = bookmark.find_among(_Told(KEYS), now)
        elif self.way == "journal":
            changes = pa.Table.from_pylist([{"key": key, "deleted": False} for key in KEYS], CHANGES)
            found = bookmark.find_recorded(changes, now, {})
            assert found is not None
        elif self.way == "inventory":
            found = bookmark.find(S3Inventory(self._report, s3_client=self._s3))
        else:
            found = bookmark.find()
        assert found.state is not None
        self.state = found.state.to_store()
        return [file.key for file in found.delta.files]


class _Told:
    has_more = False

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys


@pytest.fixture
def seen(request: pytest.FixtureRequest, s3: Any, bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Return each way to find five objects; every way needs several requests."""
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    monkeypatch.setattr(spark_bookmark, "LEAST_KEYS", 2)
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    return Seen(request.param, s3, bucket, spark)


@pytest.fixture
def faults(seen: Seen, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch, seen.way, bucket)


@pytest.mark.parametrize("fault", [throttled, broken, closed], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("seen", NAMES, indirect=True)
def test_all_objects_are_seen_when_s3_fails_once(seen: Seen, faults: Faults, fault: Any) -> None:
    faults.begin(fault, range(2, 3))

    found = seen.new()

    assert found == KEYS
    assert faults.seen > 2


FAULTS: list[Any] = []
for name, (method, _) in NAMES.items():
    kinds: dict[Any, type[WatermarkError]] = {
        refused: SourceError if name == "inventory" else AccessRefusedError,
        cut_off: SourceError,
        expired: CredentialsError,
        skewed: CredentialsError,
    }
    if method == "HEAD":
        # The answer to a HEAD has no body, so it cannot be cut off and has no error code. An object whose HEAD is
        # refused is found by a listing instead.
        kinds = {}
    if name != "spark":  # Executors retry ten times, with pauses that a test cannot shorten.
        kinds |= dict.fromkeys((throttled, broken, closed), SourceUnavailableError)
    FAULTS += [pytest.param(name, *pair, id=f"{name}-{pair[0].__name__}") for pair in kinds.items()]


@pytest.mark.parametrize(("seen", "fault", "error"), FAULTS, indirect=["seen"])
def test_nothing_is_taken_when_s3_fails_midway(
    seen: Seen, faults: Faults, fault: Any, error: type[WatermarkError]
) -> None:
    faults.begin(fault, range(2, 10_000))

    with pytest.raises(WatermarkError) as caught:
        seen.new()
    faults.end()
    after = seen.new()

    assert isinstance(caught.value, error)
    assert after == KEYS


@pytest.mark.parametrize("fault", [refused, expired, skewed])
@pytest.mark.parametrize("seen", [name for name, (method, _) in NAMES.items() if method == "HEAD"], indirect=True)
def test_objects_are_taken_as_a_listing_has_them_when_s3_does_not_show_them(
    seen: Seen, faults: Faults, fault: Any
) -> None:
    faults.begin(fault, range(2, 10_000))

    found = seen.new()

    assert found == KEYS
    assert faults.seen > 2


@pytest.mark.parametrize("seen", [name for name in NAMES if name != "inventory"], indirect=True)
def test_young_objects_wait_by_the_clock_of_s3_when_that_of_the_job_is_ahead(seen: Seen) -> None:
    """Leaves out the inventory: its objects are never young, because its time is that of the report."""
    options, seen.ahead = seen.options, timedelta(hours=1)
    seen.options = {**options, "delay": timedelta(minutes=10)}

    young = seen.new()
    seen.options = options
    settled = seen.new()

    assert (young, settled) == ([], KEYS)
