"""Which errors of S3 are the login's, and which only ask for another try; what else is wrong depends on the call."""

from __future__ import annotations

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

from scripts.helpers.errors import CredentialsError, SourceUnavailableError

_LOGIN = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_LATER = {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
_BROKEN = (HTTPClientError, IncompleteReadError, NotConnectedError)
_NO_LOGIN = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)


def login_or_load(source: str, error: Exception) -> CredentialsError | SourceUnavailableError | None:
    """Return what an error of S3 means for the caller; None where neither login nor load is the reason."""
    if isinstance(error, _NO_LOGIN):
        return CredentialsError(f"The AWS credentials for S3 cannot be used ({type(error).__name__}). Renew them.")
    if isinstance(error, _BROKEN):
        return SourceUnavailableError(source, type(error).__name__)
    if not isinstance(error, ClientError):
        return None
    code = code_of(error)
    if code in _LOGIN:
        return CredentialsError(f"S3 does not accept the credentials ({code}). Renew them.")
    if code in _LATER or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return SourceUnavailableError(source, code)
    return None


def code_of(error: ClientError | BotoCoreError | OSError) -> str:
    """Return S3's code of an error, or what kind of error it is."""
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else type(error).__name__
