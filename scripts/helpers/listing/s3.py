"""Make the default S3 client, and interpret answers and errors of S3 and SQS.

This module recognises failed logins and errors worth a retry. The meaning of other errors depends on the call.
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

    It retries after throttling (503 SlowDown) and lost connections: 10 attempts with full jitter.

    Parameters
    ----------
    connections
        The number of requests at once.
    **options
        Options of ``boto3.client``, such as `endpoint_url`.
    """
    config = Config(
        max_pool_connections=connections,
        # A page that fails ends the whole listing. botocore's default of 3 attempts is over within seconds, but S3 may
        # return SlowDown for longer while it splits a busy prefix.
        retries={"mode": "standard", "total_max_attempts": 10},
        parameter_validation=False,  # Validation slows listings down, and only this package chooses the parameters.
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


# Other codes, such as AccessDenied or NoSuchKey, mean different things in different calls: the caller decides.


def login_or_load(source: str, error: Exception) -> CredentialsError | SourceUnavailableError | None:
    """Return the error to raise if the login failed, or S3 is overloaded or unreachable; None for other errors."""
    if isinstance(error, _NO_LOGIN):
        return _no_login(error)
    if isinstance(error, _BROKEN):
        return SourceUnavailableError(source, type(error).__name__)
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _by_code(source, code_of(error), status)


def login_or_load_of_obstore(source: str, error: Exception) -> CredentialsError | SourceUnavailableError | None:
    """Return the same as `login_or_load` for an error of obstore, by the status and code in its text."""
    if type(error).__name__ == "UnauthenticatedError":
        return _no_login(error)
    text = str(error)
    if status := re.search(r"status code: (\d{3})", text):
        return _by_code(source, obstore_code(error), int(status[1]))
    return SourceUnavailableError(source, "HTTP error") if "HTTP error" in text else None


def is_login_or_load(code: str) -> bool:
    """Return whether an error code of S3 means a failed login or an overload, not a problem of one object."""
    return code in _LOGIN or code in _LATER


def _no_login(error: Exception) -> CredentialsError:
    return CredentialsError(f"The AWS credentials cannot be used ({type(error).__name__}). Renew them.")


def _by_code(source: str, code: str, status: int) -> CredentialsError | SourceUnavailableError | None:
    if code in _LOGIN:
        return CredentialsError(f"AWS does not accept the credentials ({code}). Renew them.")
    if code in _LATER or status >= 500:  # The client has used up its retries.
        return SourceUnavailableError(source, code)
    return None


def obstore_code(error: Exception) -> str:
    """Return the code of S3 in the text of an error of obstore; without a code, the type of the error."""
    code = re.search(r"<Code>([\w.]+)</Code>", str(error))
    return code[1] if code else type(error).__name__


def code_of(error: ClientError | BotoCoreError | OSError) -> str:
    """Return the code of an error of S3, the system's text for an OSError, or else the type of the error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else type(error).__name__


def remedy_of(code: str, text: str = "") -> str:
    """Return what to do if S3 refuses to return an object that may be intact, by the error's code and text."""
    if code.startswith("KMS.") or "kms:" in text:
        return "It is encrypted: allow kms:Decrypt with its key, and check that the key is enabled."
    return "Check the login's s3:GetObject, the region, and that the object is not archived."


def identity_in_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of an object's identity that are in an answer of HeadObject."""
    return {"etag": answer["ETag"].strip('"'), "version_id": answer.get("VersionId"), "size": answer["ContentLength"]}


def read_at_most(body: Any, limit: int) -> bytes:
    """Return the body of an answer, or its first `limit` bytes: the object may have grown to any size by now."""
    data: bytes = body.read(limit)
    if len(data) < limit:
        # Read once more, because botocore checks only at the end of the body whether the transfer broke off.
        body.read(1)
    return data
