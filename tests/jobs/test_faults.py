"""Faults of S3, met on every way to see objects: by a listing, by events, by an inventory, and by executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

from scripts.helpers.errors import AccessRefusedError, SourceError, WatermarkError
from scripts.helpers.files import spark as spark_bookmark
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.spark import SparkFileBookmark
from scripts.helpers.listing.inventory import S3Inventory
from tests.support.inventories import Reports, inventory_row
from tests.support.landing import put_objects

KEYS = ["a/1.csv", "a/2.csv", "b/1.csv", "b/2.csv", "c/1.csv"]
ERROR = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>No.</Message></Error>"
NAMES: dict[str, tuple[str, str]] = {
    "listing": ("GET", "list-type=2"),
    "events": ("HEAD", ""),
    "inventory": ("GET", "/data/"),
    "spark": ("GET", "list-type=2"),
}
"""Method, and a part of path or query, of the requests by which each way sees objects."""

Answer = Callable[[Any, dict[str, Any], Any], Iterable[bytes]]


def throttled(answer: Answer, server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    body = ERROR % b"SlowDown"
    start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def refused(answer: Answer, server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    body = ERROR % b"AccessDenied"
    start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def cut_off(answer: Answer, server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Send the first half of the answer, as if it were all of it."""
    said: list[Any] = []
    whole = b"".join(answer(server, environ, lambda *given: said.append(given)))
    status, headers = said[0][:2]
    half = whole[: len(whole) // 2]
    start(
        status, [*(pair for pair in headers if pair[0].lower() != "content-length"), ("Content-Length", str(len(half)))]
    )
    return [half]


class Faults:
    """Lets a server fail on some of the requests of a way, by their number."""

    def __init__(self, patch: pytest.MonkeyPatch, way: str, bucket: str) -> None:
        self.seen, self._fault, self._numbers = 0, throttled, range(0)
        method, part = NAMES[way]
        answer: Answer = DomainDispatcherApplication.__call__

        def call(server: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            target = f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
            # Not what the driver asks before executors list: one key, for the time of the source.
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
    """One way to see what is new below a prefix of a bucket."""

    def __init__(self, way: str, s3: Any, bucket: str, spark: Any) -> None:
        self.way, self._s3, self._bucket, self._spark = way, s3, bucket, spark
        self.source = f"s3://{bucket}/landing/"
        self.state: Any = None
        if way == "spark":
            # A ledger, by which the driver cuts ranges: without one it would look at pages itself.
            put_objects(s3, bucket, *(f"landing/{folder}/0.csv" for folder in "abcd"))
            self.new()
        put_objects(s3, bucket, *(f"landing/{key}" for key in KEYS))
        reports = Reports(s3, bucket)
        rows = [
            inventory_row(
                f"landing/{key}", bucket=bucket, e_tag=s3.head_object(Bucket=bucket, Key=f"landing/{key}")["ETag"]
            )
            for key in KEYS
        ]
        self._report = reports.write("CSV", rows[:2], rows[2:], sourceBucket=bucket)

    def new(self) -> list[str]:
        """See what is new, and remember it."""
        if self.way == "spark":
            executed = SparkFileBookmark(
                self._spark, self.source, state=self.state, ledger_uri=f"s3://{self._bucket}/ledger/"
            )
            files = executed.new_files().to_driver().files
            self.state = executed.state_after
            return [file.key for file in files]
        bookmark = FileBookmark(self.source, state=self.state, s3_client=self._s3)
        if self.way == "events":
            delta = bookmark.new_among(_Told(KEYS), datetime.now(timezone.utc))
        elif self.way == "inventory":
            delta = bookmark.new_files(S3Inventory(self._report, s3_client=self._s3))
        else:
            delta = bookmark.new_files()
        self.state = bookmark.state_after
        return [file.key for file in delta.files]


class _Told:
    has_more = False

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys


@pytest.fixture
def seen(request: pytest.FixtureRequest, s3: Any, bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Return each way to see five objects, which takes several requests."""
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    monkeypatch.setattr(spark_bookmark, "LEAST_KEYS", 2)
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    return Seen(request.param, s3, bucket, spark)


@pytest.fixture
def faults(seen: Seen, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch, seen.way, bucket)


@pytest.mark.parametrize("seen", NAMES, indirect=True)
def test_all_objects_are_seen_when_s3_asks_once_to_slow_down(seen: Seen, faults: Faults) -> None:
    faults.begin(throttled, range(2, 3))

    found = seen.new()

    assert found == KEYS
    assert faults.seen > 2


FAULTS: list[tuple[str, Any, type[WatermarkError]]] = []
for name in NAMES:
    FAULTS.append((name, refused, SourceError if name == "inventory" else AccessRefusedError))
    # The answer about one object that an event names has no body that could be cut off.
    if name != "events":
        FAULTS.append((name, cut_off, SourceError))


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
