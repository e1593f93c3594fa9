"""The S3 client that everything uses that is not given one, and what answers and errors of S3 and SQS mean.

Errors are parted into those of the login and those that ask for another try; what else is wrong depends on the call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as NotConnectedError

from scripts.helpers._lazy import S3Client
from scripts.helpers.display.redaction import aws_client
from scripts.helpers.errors import CredentialsError, SourceUnavailableError


def make_client(connections: int, **options: Any) -> S3Client:
    """Make a client of boto3's default session that many threads can use at once.

    Standard retries: throttling (503 SlowDown) and lost connections, 10 attempts with full jitter.

    Parameters
    ----------
    connections
        Requests at once.
    **options
        As those of ``boto3.client``, such as `endpoint_url`.
    """
    config = Config(
        max_pool_connections=connections,
        # A listing is all or nothing, so one page that fails costs all pages. botocore's own 3 attempts are over
        # within seconds, and S3 may say SlowDown for longer while it parts a prefix that is asked for often.
        retries={"mode": "standard", "total_max_attempts": 10},
        parameter_validation=False,  # The time it takes counts in listings, and requests are ours.
        user_agent="glue-watermarks",
    )
    return aws_client("s3", config=config, **options)  # type: ignore[no-any-return]


_LOGIN = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnrecognizedClientException",
}
_LATER = {
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestTimeout",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
}
_BROKEN = (HTTPClientError, IncompleteReadError, NotConnectedError)
_NO_LOGIN = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)


# What is in neither set depends on the call: of AccessDenied or NoSuchKey only the caller knows what it means.


def login_or_load(source: str, error: Exception) -> CredentialsError | SourceUnavailableError | None:
    """Return what an error of botocore means for the caller; None where neither login nor load is the reason."""
    if isinstance(error, _NO_LOGIN):
        return _no_login(error)
    if isinstance(error, _BROKEN):
        return SourceUnavailableError(source, type(error).__name__)
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _by_code(source, code_of(error), status)


def login_or_load_of_obstore(source: str, error: Exception) -> CredentialsError | SourceUnavailableError | None:
    """Return the same for an error of obstore, which tells most of it as text only."""
    if type(error).__name__ == "UnauthenticatedError":
        return _no_login(error)
    text = str(error)
    if status := re.search(r"status code: (\d{3})", text):
        return _by_code(source, obstore_code(error), int(status[1]))
    return SourceUnavailableError(source, "HTTP error") if "HTTP error" in text else None


def is_login_or_load(code: str) -> bool:
    """Return whether a code of S3 is about the login or the load, and not about one object."""
    return code in _LOGIN or code in _LATER


def _no_login(error: Exception) -> CredentialsError:
    return CredentialsError(f"The AWS credentials cannot be used ({type(error).__name__}). Renew them.")


def _by_code(source: str, code: str, status: int) -> CredentialsError | SourceUnavailableError | None:
    if code in _LOGIN:
        return CredentialsError(f"AWS does not accept the credentials ({code}). Renew them.")
    if code in _LATER or status >= 500:  # Retries of the client are used up by now.
        return SourceUnavailableError(source, code)
    return None


def obstore_code(error: Exception) -> str:
    """Return S3's code within an error of obstore, or what kind of error it is."""
    code = re.search(r"<Code>([\w.]+)</Code>", str(error))
    return code[1] if code else type(error).__name__


def code_of(error: ClientError | BotoCoreError | OSError) -> str:
    """Return S3's code of an error, what the system says of one of its own, or what kind of error it is."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else type(error).__name__


def remedy_of(code: str, text: str = "") -> str:
    """Return what to do where S3 does not return an object that may well be whole, by its code and its text."""
    if code.startswith("KMS.") or "kms:" in text:
        return "It is encrypted: allow kms:Decrypt with its key, and check that the key is enabled."
    return "Check the login's s3:GetObject, the region, and that the object is not archived."


def shown_by(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an answer of HeadObject shows of an object's identity."""
    return {"etag": answer["ETag"].strip('"'), "version_id": answer.get("VersionId"), "size": answer["ContentLength"]}


def read_at_most(body: Any, limit: int) -> bytes:
    """Read the body of an answer, or so many bytes of it: an object may be of any size by now."""
    data: bytes = body.read(limit)
    if len(data) < limit:
        # botocore only looks whether the transfer broke off when there is nothing more to read.
        body.read(1)
    return data
