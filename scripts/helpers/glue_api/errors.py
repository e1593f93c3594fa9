"""Errors under the names that AWS Glue gives them, with codes where botocore's errors have them.

Texts are those of botocore: the code, the operation and the message. Names of classes are the codes, so
``except client.exceptions.EntityNotFoundException``, ``except ClientError`` and ``error.response["Error"]["Code"]``
can be moved over.
"""

from __future__ import annotations

import uuid
from typing import Any

from botocore.exceptions import ClientError

from scripts.helpers.errors import (
    AccessRefusedError,
    ConfigurationError,
    FencedError,
    InvalidValueError,
    NothingThereError,
    StoreUnavailableError,
    WatermarkError,
)

LATE = ("ConnectTimeoutError", "ReadTimeoutError", "RequestLimitExceeded", "ThrottlingException")
"""Reasons of the table that mean "try again", besides those of too much load."""


def response_metadata(status: int) -> dict[str, Any]:
    """Return what boto3 puts into each answer as ``ResponseMetadata``; the id is that of a call, not of a request."""
    return {"RequestId": str(uuid.uuid4()), "HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0}


class GlueApiError(WatermarkError, ClientError):
    """Root of the errors that have a name in Glue. Each is a `botocore.exceptions.ClientError` as well.

    Attributes
    ----------
    response : dict
        ``{"Error": {"Code": ..., "Message": ...}, "ResponseMetadata": {...}}``, as that of
        `botocore.exceptions.ClientError`.
    operation_name : str
        Glue's name of the operation, such as ``GetJobBookmark``. Without one `named_as_by_glue` names it.
    """

    def __init__(self, message: str, operation_name: str = "") -> None:
        code = type(self).__name__
        self.message, self.operation_name = message, operation_name
        # AWS answers 5xx where the service is at fault, and 4xx where the request is.
        status = 500 if code == "InternalServiceException" else 400
        metadata: Any = response_metadata(status)
        self.response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}
        Exception.__init__(self, f"An error occurred ({code}) when calling the {operation_name} operation: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Stay what it is in another process, where botocore's errors become plain ones."""
        return type(self), (self.message, self.operation_name), vars(self)


class EntityNotFoundException(GlueApiError, NothingThereError):
    """What was asked for does not exist (yet)."""


class AlreadyExistsException(GlueApiError):
    """There is something of this name already."""


class InvalidInputException(GlueApiError, InvalidValueError):
    """An argument outside the rules of the operation."""


class ValidationException(GlueApiError, InvalidValueError):
    """An argument that is missing, unknown, or of a wrong type or length."""


class AccessDeniedException(GlueApiError, ConfigurationError):
    """The role may not do with the table what the call needs."""


class InternalServiceException(GlueApiError):
    """The table is down, cannot be used, or does not say what we write."""


class OperationTimeoutException(GlueApiError):
    """The table did not answer in time, or kept refusing for load; try again later."""


class ResourceNumberLimitExceededException(GlueApiError):
    """More of something than there may be."""


class ConcurrentRunsExceededException(GlueApiError):
    """As many runs of the job as may be at once are there already."""


class VersionMismatchException(GlueApiError, FencedError):
    """Another run changed the bookmark in the meantime; this one can save nothing.

    Attributes
    ----------
    expected, found : int
        The version that the run began with, and the one that is there. Also as `fence` and
        `current_fence`, as of any FencedError.
    """

    def __init__(self, job_id: str, run_id: str, expected: int, found: int, operation_name: str = "Commit") -> None:
        self.job_id, self.run_id = job_id, run_id
        self.expected, self.found = self.fence, self.current_fence = expected, found
        GlueApiError.__init__(
            self,
            "Continuation update failed due to version mismatch. "
            f"Expected version {expected} but found version {found}",
            operation_name,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Stay what it is in another process."""
        return type(self), (self.job_id, self.run_id, self.expected, self.found, self.operation_name), vars(self)


def named_as_by_glue(error: WatermarkError, operation_name: str) -> GlueApiError:
    """Return the error of an operation that has the name which Glue gives to what happened to our table."""
    if isinstance(error, GlueApiError):
        return error if error.operation_name else type(error)(error.message, operation_name)
    kind: type[GlueApiError] = InternalServiceException
    if isinstance(error, StoreUnavailableError):
        if error.cause in LATE or "Throughput" in error.cause:
            kind = OperationTimeoutException
    elif isinstance(error, AccessRefusedError):
        kind = AccessDeniedException
    elif isinstance(error, ValueError):
        kind = InvalidInputException
    return kind(str(error), operation_name)


class GlueArgumentError(WatermarkError):
    """Job arguments that do not parse; the name and the text are those of awsglue."""
