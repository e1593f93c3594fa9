"""Errors with AWS Glue's names, and with their codes in the same place as in botocore's errors.

Texts have botocore's form: the code, the operation and the message. The class names are the codes, so
``except client.exceptions.EntityNotFoundException``, ``except ClientError`` and ``error.response["Error"]["Code"]``
work unchanged in scripts that move here.
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
"""Names of DynamoDB's errors that mean "try again". Names that contain ``Throughput`` mean the same."""


def response_metadata(status: int) -> dict[str, Any]:
    """Return the ``ResponseMetadata`` that boto3 adds to each answer. AWS does not know its random `RequestId`."""
    return {"RequestId": str(uuid.uuid4()), "HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0}


class GlueApiError(WatermarkError, ClientError):
    """Base class of the errors with Glue's names. Each error is also a `botocore.exceptions.ClientError`.

    Attributes
    ----------
    response : dict
        ``{"Error": {"Code": ..., "Message": ...}, "ResponseMetadata": {...}}``, as in
        `botocore.exceptions.ClientError`.
    operation_name : str
        Glue's name of the operation, such as ``GetJobBookmark``. If it is empty, `named_as_by_glue` fills it in.
    """

    def __init__(self, message: str, operation_name: str = "") -> None:
        code = type(self).__name__
        self.message, self.operation_name = message, operation_name
        # AWS answers 5xx if the service is at fault, and 4xx if the request is.
        status = 500 if code == "InternalServiceException" else 400
        metadata: Any = response_metadata(status)
        self.response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}
        Exception.__init__(self, f"An error occurred ({code}) when calling the {operation_name} operation: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the class when the error is pickled, because botocore's own way would lose it."""
        return type(self), (self.message, self.operation_name), vars(self)


class EntityNotFoundException(GlueApiError, NothingThereError):
    """The requested job, run or bookmark does not exist (yet)."""


class AlreadyExistsException(GlueApiError):
    """The name is already in use."""


class InvalidInputException(GlueApiError, InvalidValueError):
    """An argument breaks a rule of the operation."""


class ValidationException(GlueApiError, InvalidValueError):
    """An argument is missing or unknown, or has a wrong type or length."""


class AccessDeniedException(GlueApiError, ConfigurationError):
    """The role lacks a permission that the call requires on the table."""


class InternalServiceException(GlueApiError):
    """The table is down or cannot be used, or one of its items is damaged."""


class OperationTimeoutException(GlueApiError):
    """The table did not answer in time, or kept throttling requests; try again later."""


class ResourceNumberLimitExceededException(GlueApiError):
    """The account has too many resources, such as jobs. Scripts for Glue may catch this; only Glue itself raises it."""


class ConcurrentRunsExceededException(GlueApiError):
    """The job already has as many concurrent runs as it may have."""


class VersionMismatchException(GlueApiError, FencedError):
    """Another run changed the bookmark in the meantime; this run can save nothing.

    Attributes
    ----------
    expected, found : int
        The version that the run began with, and the current one. Also available as `fence` and
        `current_fence`, as in any FencedError.
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
        """Keep the class and its attributes when the error is pickled."""
        return type(self), (self.job_id, self.run_id, self.expected, self.found, self.operation_name), vars(self)


def named_as_by_glue(error: WatermarkError, operation_name: str) -> GlueApiError:
    """Return the error of Glue for the same cause: AccessRefusedError -> AccessDeniedException."""
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
    """The job arguments cannot be parsed; the name and the text are those of awsglue."""
