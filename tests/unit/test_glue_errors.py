"""Errors under Glue's names: codes and texts as botocore has them, and families of ours."""

from __future__ import annotations

import inspect

import pytest
from botocore.exceptions import ClientError

from scripts.helpers import glue_errors
from scripts.helpers.errors import FencedError, InvalidValueError, NothingThereError, StaleError, WatermarkError
from scripts.helpers.glue_errors import GlueApiError, VersionMismatchException

NAMED = [
    found
    for _, found in inspect.getmembers(glue_errors, inspect.isclass)
    if issubclass(found, GlueApiError) and found not in (GlueApiError, VersionMismatchException)
]


@pytest.mark.parametrize("error", NAMED, ids=lambda error: error.__name__)
def test_error_has_code_and_text_of_botocores_when_raised(error: type[GlueApiError]) -> None:
    raised = error("Job nope not found.", "GetJobRun")

    theirs = ClientError({"Error": {"Code": error.__name__, "Message": "Job nope not found."}}, "GetJobRun")
    assert (raised.response, raised.operation_name) == (theirs.response, theirs.operation_name)
    assert str(raised) == str(theirs)
    assert isinstance(raised, WatermarkError)
    assert error.__doc__


@pytest.mark.parametrize(
    ("family", "builtin", "members"),
    [
        (NothingThereError, LookupError, {"EntityNotFoundException"}),
        (InvalidValueError, ValueError, {"InvalidInputException", "ValidationException"}),
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
    assert error.response == {"Error": {"Code": "VersionMismatchException", "Message": text}}
    assert str(error).endswith(f"when calling the Commit operation: {text}")
    assert isinstance(error, FencedError)
    assert isinstance(error, StaleError)
    assert (error.job_id, error.run_id, error.fence, error.current_fence) == ("parking", "jr_1", 3, 5)
    assert (error.expected, error.found) == (3, 5)
