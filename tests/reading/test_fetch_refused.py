"""Objects that S3 does not return, over a real connection: the error blames the login, the load or the object."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import obstore
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import CredentialRetrievalError
from obstore.store import S3Store

from scripts.helpers.errors import CredentialsError, SourceUnavailableError, UnreadableObjectError, WatermarkError
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import LISTED
from scripts.helpers.reading.fetch import ObjectFetcher, Planned
from scripts.helpers.reading.fetched_lines import Fetching, LineRules, pack, unmarked, unpacked

BUCKET = Location.parse("s3://bucket/landing/")
ONE = Planned("a", "1", None, 1)
NO_RETRY: Any = {"max_retries": 0}


class Refusing(ThreadingHTTPServer):
    """A server that answers each request with one HTTP status and one S3 error code."""

    status, code = 200, ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Refusing

    def do_GET(self) -> None:
        body = f"<Error><Code>{self.server.code}</Code><Message>no</Message></Error>".encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    with Refusing(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def by_boto3(url: str) -> ObjectFetcher:
    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    made = ObjectFetcher(BUCKET, boto3.client("s3", endpoint_url=url, config=config))
    made.obstore_get = None
    return made


def by_obstore(url: str, login: Any = None) -> ObjectFetcher:
    """Return a fetcher with the store that it would make, but without retries, which take minutes."""
    made = ObjectFetcher(BUCKET, boto3.client("s3", endpoint_url=url))
    keys: Any = {"credential_provider": login} if login else {"access_key_id": "a", "secret_access_key": "b"}
    options: Any = {"allow_http": True}
    store = S3Store("bucket", endpoint=url, region="eu-west-2", client_options=options, retry_config=NO_RETRY, **keys)
    made.obstore_get = lambda key, options: obstore.get(store, key, options=options)
    return made


MAKERS = {"boto3": by_boto3, "obstore": by_obstore}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "ExpiredToken", CredentialsError),
        (403, "InvalidAccessKeyId", CredentialsError),
        (403, "RequestTimeTooSkewed", CredentialsError),
        (503, "SlowDown", SourceUnavailableError),
        (500, "InternalError", SourceUnavailableError),
        (403, "AccessDenied", UnreadableObjectError),
    ],
)
def test_fetch_error_tells_login_from_load_from_object_when_s3_refuses(
    refusing: Refusing, make: Any, status: int, code: str, kind: type[WatermarkError]
) -> None:
    refusing.status, refusing.code = status, code

    with pytest.raises(WatermarkError, match=code) as caught:
        make(refusing.url).fetch(ONE)

    assert type(caught.value) is kind


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_fetch_error_says_try_later_when_nothing_listens(refusing: Refusing, make: Any) -> None:
    fetcher = make(refusing.url)
    refusing.shutdown()
    refusing.server_close()

    with pytest.raises(SourceUnavailableError, match="is unreachable"):
        fetcher.fetch(ONE)


def test_fetch_error_blames_the_login_when_credentials_cannot_be_retrieved(refusing: Refusing) -> None:
    def login() -> Any:
        raise CredentialRetrievalError(provider="sso", error_msg="a secret")

    with pytest.raises(CredentialsError, match="Renew them") as caught:
        by_obstore(refusing.url, login).fetch(ONE)

    assert "secret" not in str(caught.value)


def test_error_holds_the_reason_of_the_system_when_a_local_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(UnreadableObjectError) as caught:
        ObjectFetcher(Location.parse(str(tmp_path)), None).fetch(ONE)

    found = caught.value
    assert (found.source, found.key, found.cause) == (f"file://{tmp_path}/", "a", "Is a directory")


def test_executors_send_the_error_of_the_login_when_it_ended(refusing: Refusing) -> None:
    refusing.status, refusing.code = 400, "ExpiredToken"
    fetching = Fetching(BUCKET, LineRules(), 0, False, (("endpoint_url", refusing.url),), False, unpacked)
    planned = pack(pa.Table.from_pylist([{"key": "a", "etag": "1", "size": 1}], LISTED))

    with pytest.raises(RuntimeError) as caught:
        list(fetching([pa.RecordBatch.from_arrays([pa.array([planned])], ["planned"])]))

    assert isinstance(unmarked(str(caught.value)), CredentialsError)
