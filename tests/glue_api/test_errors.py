"""Errors under Glue's names: codes and texts as in botocore, and our own base classes."""

from __future__ import annotations

import inspect
import pickle

import pytest
from botocore.exceptions import ClientError

from scripts.helpers.errors import (
    AccessRefusedError,
    ConfigurationError,
    FencedError,
    InvalidIdError,
    InvalidValueError,
    NothingThereError,
    StaleError,
    StoreUnavailableError,
    TableNotFoundError,
    WatermarkError,
)
from scripts.helpers.glue_api import errors
from scripts.helpers.glue_api.errors import GlueApiError, VersionMismatchException, named_as_by_glue

NAMED = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, GlueApiError) and found not in (GlueApiError, VersionMismatchException)
]


@pytest.mark.parametrize("error", NAMED, ids=lambda error: error.__name__)
def test_error_has_code_and_text_of_botocores_when_raised(error: type[GlueApiError]) -> None:
    raised = error("Job nope not found.", "GetJobRun")

    theirs = ClientError({"Error": {"Code": error.__name__, "Message": "Job nope not found."}}, "GetJobRun")
    assert (raised.response["Error"], raised.operation_name) == (theirs.response["Error"], theirs.operation_name)
    assert str(raised) == str(theirs)
    assert isinstance(raised, WatermarkError)
    assert isinstance(raised, ClientError)
    assert error.__doc__


@pytest.mark.parametrize(
    "error",
    [errors.EntityNotFoundException("nope", "GetJobRun"), VersionMismatchException("parking", "jr_1", 3, 5)],
    ids=["plain", "version mismatch"],
)
def test_error_stays_what_it_is_when_it_comes_from_another_process(error: GlueApiError) -> None:
    found = pickle.loads(pickle.dumps(error))

    assert type(found) is type(error)
    assert (str(found), vars(found)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (StoreUnavailableError("t", "get_item", "ReadTimeoutError"), "OperationTimeoutException"),
        (StoreUnavailableError("t", "get_item", "ConnectTimeoutError"), "OperationTimeoutException"),
        (StoreUnavailableError("t", "get_item", "ThrottlingException"), "OperationTimeoutException"),
        (StoreUnavailableError("t", "get_item", "RequestLimitExceeded"), "OperationTimeoutException"),
        (StoreUnavailableError("t", "put_item", "ProvisionedThroughputExceededException"), "OperationTimeoutException"),
        (StoreUnavailableError("t", "get_item", "EndpointConnectionError"), "InternalServiceException"),
        (StoreUnavailableError("t", "get_item", "InternalServerError"), "InternalServiceException"),
        (TableNotFoundError("t", "eu-west-2"), "InternalServiceException"),
        (AccessRefusedError("dynamodb:GetItem", "t"), "AccessDeniedException"),
        (InvalidIdError("Job name '*' is not allowed."), "InvalidInputException"),
    ],
    ids=lambda value: getattr(value, "reason", type(value).__name__) if isinstance(value, Exception) else "",
)
def test_error_of_the_table_has_the_name_of_glue_when_an_operation_meets_it(error: WatermarkError, name: str) -> None:
    found = named_as_by_glue(error, "GetJobRun")

    assert (type(found).__name__, found.message, found.operation_name) == (name, str(error), "GetJobRun")


def test_error_stays_itself_when_it_has_a_name_of_glue_already() -> None:
    error = errors.EntityNotFoundException("nope", "GetJobRun")

    assert named_as_by_glue(error, "StartJobRun") is error


@pytest.mark.parametrize(
    ("family", "builtin", "members"),
    [
        (NothingThereError, LookupError, {"EntityNotFoundException"}),
        (InvalidValueError, ValueError, {"InvalidInputException", "ValidationException"}),
        (ConfigurationError, ConfigurationError, {"AccessDeniedException"}),
    ],
)
def test_family_holds_its_members_and_no_other_when_caught(
    family: type[Exception], builtin: type[Exception], members: set[str]
) -> None:
    assert {error.__name__ for error in NAMED if issubclass(error, family)} == members
    assert {error.__name__ for error in NAMED if issubclass(error, builtin)} == members


def test_version_mismatch_is_a_fenced_run_with_glues_text_when_raised() -> None:
    error = VersionMismatchException("parking", "jr_1", 3, 5)

    text = "Continuation update failed due to version mismatch. Expected version 3 but found version 5"
    assert error.response["Error"] == {"Code": "VersionMismatchException", "Message": text}
    assert str(error).endswith(f"when calling the Commit operation: {text}")
    assert isinstance(error, FencedError)
    assert isinstance(error, StaleError)
    assert (error.job_id, error.run_id, error.fence, error.current_fence) == ("parking", "jr_1", 3, 5)
    assert (error.expected, error.found) == (3, 5)
