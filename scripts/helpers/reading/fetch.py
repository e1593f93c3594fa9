"""Fetch or check single planned objects: return exactly the planned bytes, or raise an error that names the key."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, NamedTuple

from scripts.helpers._lazy import S3Client, pa
from scripts.helpers.errors import ArchivedObjectError, ChangedObjectError, SourceError, UnreadableObjectError
from scripts.helpers.listing.links import open_without_blocking
from scripts.helpers.listing.objects import OVERWRITABLE, is_same, local_etag
from scripts.helpers.listing.s3 import identity_in_answer, make_client, remedy_of

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

WORKERS = 64
"""Concurrent requests of one task. At 25 ms a request, 64 are about 4 times as fast as 16, for the same CPU time."""
WORKERS_HERE = 16
"""Concurrent requests if this process parses the answers, which Python does in only one thread at a time."""
_NOT_FOR_OBSTORE = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
"""Keys that obstore refuses or changes: nothing, ``.`` or ``..`` between slashes, or control characters."""
_CREDENTIALS_LAST = timedelta(minutes=15)
"""How long obstore may use credentials: botocore renews temporary ones 15 minutes before they expire."""


class Planned(NamedTuple):
    """One object in a plan. The key is relative to the location's prefix."""

    key: str
    etag: str | None
    version_id: str | None
    size: int

    @property
    def kept_version(self) -> str | None:
        """The version id; None if an overwrite replaces the version, so that only the ETag identifies the object."""
        return None if self.version_id == OVERWRITABLE else self.version_id


def planned_of(table: pa.Table) -> Iterator[Planned]:
    """Return the planned objects in a table, which has at least the columns of `Planned`."""
    return map(Planned, *(table.column(name).to_pylist() for name in Planned._fields))


class ObjectFetcher:
    """Fetches planned objects of one location. Thread-safe.

    It uses obstore if that is installed and supports the key, otherwise boto3. In a versioned bucket
    it reads the planned version, even if there is a newer one.

    Parameters
    ----------
    client
        A boto3 client; None for a local directory.
    request_payer
        Pay for the requests, as another account's bucket may require.
    """

    def __init__(self, location: Location, client: S3Client | None, request_payer: bool = False) -> None:
        self._location, self._client = location, client
        self._payer: dict[str, Any] = {"RequestPayer": "requester"} if request_payer else {}
        self._request_payer = request_payer

    @cached_property
    def obstore_get(self) -> Callable[..., Any] | None:
        """The function `get` of obstore for the bucket; None if boto3 fetches all objects, or if they are local."""
        if self._client is None:
            return None
        return _obstore_get(self._location.bucket, self._client, self._request_payer)

    def fetch(self, planned: Planned) -> bytes:
        """Return the object's bytes.

        Raises
        ------
        ChangedObjectError
            The object was overwritten or deleted.
        CredentialsError, SourceUnavailableError
            The credentials have expired, S3 cannot be reached, or it throttles requests.
        SourceError
            The object cannot be read for another reason, which the error names.
        """
        if self._location.is_local:
            return self._read_file(planned)
        if self.obstore_get is not None and not _NOT_FOR_OBSTORE.search(self._location.prefix + planned.key):
            return self._by_obstore(self.obstore_get, planned)
        body: bytes = self._call("get_object", planned)
        return body

    def look(self, planned: Planned, pinned: bool = False) -> None:
        """Check that the object is still the planned one, without reading it. Raises as `fetch` does.

        If `pinned`, only check that the planned version still exists, even if there is a newer version.
        """
        if self._location.is_local:
            self._compare_file(planned, self._call_on_file(planned, os.stat))
        else:
            version = planned.kept_version if pinned else None
            answer = self._call("head_object", Planned(planned.key, None, version, planned.size))
            if not is_same(planned._asdict(), identity_in_answer(answer)):
                raise self._changed(planned)

    def ends(self, planned: Planned, first: int, last: int) -> tuple[bytes, bytes]:
        """Return the `first` and the `last` bytes of a planned object, or fewer if it is shorter.

        Only these bytes are fetched, with one request for each end. If both are 0, or the object is empty, the object
        is only checked. Raises as `fetch` does.
        """
        if self._location.is_local:
            return self._ends_of_file(planned, first, last)
        if not planned.size or not (first or last):
            self.look(planned, pinned=planned.kept_version is not None)
            return b"", b""
        found = []
        for wanted in (f"bytes=0-{first - 1}" if first else None, f"bytes=-{last}" if last else None):
            found.append(self._call("get_object", planned, Range=wanted) if wanted else b"")
        return found[0], found[1]

    def _ends_of_file(self, planned: Planned, first: int, last: int) -> tuple[bytes, bytes]:
        with self._call_on_file(planned, partial(open, mode="rb", opener=open_without_blocking)) as file:
            self._compare_file(planned, os.fstat(file.fileno()))
            start = file.read(first)
            file.seek(max(0, planned.size - last))
            end = file.read(last)
            self._compare_file(planned, os.fstat(file.fileno()))
        return start, end

    def _by_obstore(self, get: Callable[..., Any], planned: Planned) -> bytes:
        from obstore import exceptions

        from scripts.helpers.listing.s3 import login_or_load_of_obstore, obstore_code

        condition: dict[str, str] = {}
        if planned.etag:
            condition["if_match"] = f'"{planned.etag}"'
        if planned.kept_version:
            condition["version"] = planned.kept_version
        try:
            return bytes(get(self._location.prefix + planned.key, options=condition).bytes())
        except exceptions.PreconditionError:
            raise self._changed(planned) from None
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._unreadable(planned, "NoSuchBucket") from None
            raise self._deleted(planned) from None
        except exceptions.BaseError as error:
            told = login_or_load_of_obstore(str(self._location), error)
            raise told or self._unreadable(planned, obstore_code(error), str(error)) from error

    def _call(self, operation: str, planned: Planned, **parameters: Any) -> Any:
        """Return the response for an object; for ``get_object``, its bytes."""
        from botocore.exceptions import BotoCoreError, ClientError

        from scripts.helpers.listing.s3 import code_of, login_or_load

        asked = {"Bucket": self._location.bucket, "Key": self._location.prefix + planned.key, **self._payer}
        asked |= parameters
        if planned.etag:
            asked["IfMatch"] = f'"{planned.etag}"'
        if planned.kept_version:
            asked["VersionId"] = planned.kept_version
        try:
            answer = getattr(self._client, operation)(**asked)
            # Read the body inside `try`, because a transfer may fail half-way.
            return answer["Body"].read() if operation == "get_object" else answer
        except (ClientError, BotoCoreError) as error:
            code, text = code_of(error), str(error)
            if code in ("PreconditionFailed", "412"):
                raise self._changed(planned) from None
            # 405 means that the requested version is a delete marker.
            if code in ("NoSuchKey", "NoSuchVersion", "404", "MethodNotAllowed", "405"):
                raise self._deleted(planned) from None
            raise login_or_load(str(self._location), error) or self._unreadable(planned, code, text) from error

    def _read_file(self, planned: Planned) -> bytes:
        with self._call_on_file(planned, partial(open, mode="rb", opener=open_without_blocking)) as file:
            # Compare before the read too: a pipe may have replaced the file, and reading a pipe might never end.
            self._compare_file(planned, os.fstat(file.fileno()))
            body: bytes = file.read()
            # Compare the open file again after the read, to notice if it was overwritten during the read.
            self._compare_file(planned, os.fstat(file.fileno()))
        return body

    def _call_on_file(self, planned: Planned, call: Callable[[str], Any]) -> Any:
        path = self._location.local_path(planned.key)
        try:
            return call(path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._deleted(planned) from None
        except OSError as error:
            raise self._unreadable(planned, error.strerror or type(error).__name__) from error

    def _compare_file(self, planned: Planned, found: os.stat_result) -> None:
        now = {"etag": local_etag(found), "version_id": None, "size": found.st_size}
        if not S_ISREG(found.st_mode) or not is_same(planned._asdict(), now):
            raise self._changed(planned)

    def _changed(self, planned: Planned) -> ChangedObjectError:
        return ChangedObjectError(str(self._location), [planned.key], [])

    def _deleted(self, planned: Planned) -> ChangedObjectError:
        return ChangedObjectError(str(self._location), [], [planned.key])

    def _unreadable(self, planned: Planned, reason: str, text: str = "") -> SourceError:
        if reason == "InvalidObjectState":
            return ArchivedObjectError(str(self._location), [planned.key], 1)
        remedy = "Check the file, and its rights." if self._location.is_local else remedy_of(reason, text)
        return UnreadableObjectError(str(self._location), planned.key, reason, remedy)


def fetcher_of(location: Location, client: S3Client | None, workers: int, request_payer: bool) -> ObjectFetcher:
    """Return a fetcher. Without a client, make one for `workers` concurrent requests, unless the location is local."""
    if client is None and not location.is_local:
        client = make_client(workers)
    return ObjectFetcher(location, client, request_payer)


def _obstore_get(bucket: str, client: S3Client, request_payer: bool) -> Callable[..., Any] | None:
    """Return obstore's `get` for a bucket, with the client's endpoint, region and login; None if it cannot be used."""
    if bucket.startswith("arn:"):
        return None
    try:
        import obstore
        from obstore.store import S3Store
    except ImportError:
        return None
    credentials = client._request_signer._credentials  # type: ignore[attr-defined]
    if credentials is None:
        return None

    def login() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + _CREDENTIALS_LAST,
        }

    endpoint = client.meta.endpoint_url
    store: Any = S3Store(
        bucket,
        endpoint=endpoint,
        region=client.meta.region_name,
        virtual_hosted_style_request=False,
        request_payer=request_payer,
        client_options={"allow_http": endpoint.startswith("http://")},
        credential_provider=login,  # type: ignore[arg-type]
    )
    return lambda key, options: obstore.get(store, key, options=options)
