"""Print errors with the next step, and exit with a code for schedulers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.text import Text

from scripts.cli.documents import json_text
from scripts.cli.glue_runs import names_in_glue
from scripts.cli.progress import progress
from scripts.cli.screen import show_folded
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.options import nearest
from scripts.helpers.display.units import printable
from scripts.helpers.errors import (
    AccessRefusedError,
    AmbiguousHistoryError,
    CredentialsError,
    RunInProgressError,
    StoreUnavailableError,
    TableNotFoundError,
    UnknownJobError,
    UnknownRunError,
    WatermarkError,
)
from scripts.helpers.protocol.jobs import JobList, list_jobs
from scripts.helpers.protocol.names import is_file
from scripts.jobs.exit_codes import BAD_SET_UP, FAILED, TRY_LATER, exit_code

_DENIED = re.compile(r"not authorized to perform: (\S+) on resource: (\S+)")
_REFUSED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId",
            "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSignatureException")  # fmt: skip
_AWS_ERRORS = (AccessRefusedError, CredentialsError, StoreUnavailableError, TableNotFoundError)
"""Errors that another table, region, profile or endpoint may fix."""
GIVE_REGION = "Give --region, or set AWS_DEFAULT_REGION."
LOOKED_AT = 200
"""Maximum requests to find a name similar to the one given."""


@contextmanager
def told(around: Surroundings) -> Iterator[None]:
    """If the block raises an error, print it to standard error, and exit with the code of the error (SystemExit)."""
    try:
        yield
    except WatermarkError as error:
        # Show no region and profile with an error about a file: they do not matter, and the error names the file.
        about_aws = isinstance(error, _AWS_ERRORS) and not _is_about_file(around, error)
        name, reason = type(error).__name__, error.reason
        report_error(around, name, str(error), hint_for(around, error), reason=reason, is_of_aws=about_aws)
        sys.exit(exit_code(error))
    except (ClientError, BotoCoreError) as error:
        name, hint, code = _described_aws_error(around, error)
        report_error(around, name, str(error), hint, is_of_aws=True)
        sys.exit(code)
    except OSError as error:
        # Let click end the command silently if the program that reads the output, such as `head`, has closed the pipe.
        if isinstance(error, BrokenPipeError):
            raise
        text = f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
        report_error(around, type(error).__name__, text, None)
        sys.exit(FAILED)


def report_error(
    around: Surroundings, name: str, text: str, hint: str | None, *, reason: str = "", is_of_aws: bool = False
) -> None:
    """Write an error to standard error: as text for people, as one JSON document for programs.

    If it is about AWS (`is_of_aws`), include the table, region, profile and endpoint that were used.
    """
    used = around.told() if is_of_aws else {}
    if around.is_json:
        document = {"error": name, "reason": reason or None, "message": text, "hint": hint}
        sys.stderr.write(json_text(document | ({"used": used} if used else {})) + "\n")
        return
    show_folded(around.err, Text.assemble(("error: ", "bold red"), printable(text)))
    if used:
        named = ", ".join(f"{what.removesuffix('_url')} {value}" for what, value in used.items() if value)
        show_folded(around.err, Text.assemble(("used: ", "bold"), printable(named)))
    if hint:
        show_folded(around.err, Text.assemble(("hint: ", "bold"), printable(hint)))


def hint_for(around: Surroundings, error: WatermarkError) -> str | None:
    """Return what to do next on the command line; None if there is no hint."""
    if isinstance(error, UnknownJobError):
        return _unknown(around, error.job_id)
    if error.reason == "unknown_glue_job":
        return _unknown_in_glue(around, error.job_id)
    if isinstance(error, TableNotFoundError) and _is_about_file(around, error):
        return "Check --table, WATERMARKS_TABLE and the folder that you are in."
    if isinstance(error, AccessRefusedError):
        return None if _is_about_file(around, error) else _refused(error)
    if isinstance(error, CredentialsError):
        return GIVE_REGION if error.reason == "no_region" else _login(around)
    if isinstance(error, UnknownRunError) or error.reason == "unknown_version":
        return f"watermarks history {_quoted(error.job_id)}"
    if isinstance(error, TableNotFoundError):
        return "Check --table, --region and --profile. For a local table: watermarks create-table"
    if isinstance(error, AmbiguousHistoryError):
        return f"watermarks adopt {_quoted(error.job_id)} --run RUN, or --glue to take the run that Glue started last"
    return f"watermarks show {_quoted(error.job_id)}" if isinstance(error, RunInProgressError) else None


def _is_about_file(around: Surroundings, error: WatermarkError) -> bool:
    """Return whether an error is about a local file: the table, or a file to which access is refused."""
    if isinstance(error, AccessRefusedError):
        return ":" not in error.action
    return is_file(around.table) and isinstance(error, (StoreUnavailableError, TableNotFoundError))


def offer_near(around: Surroundings, job_ids: Iterable[str]) -> None:
    """Print on standard error, for each unknown job, which existing name looks like it."""
    if around.is_json:
        return
    listed = _listed(around)
    for job_id in job_ids:
        hint = f"{printable(job_id)}: {_nearest(listed, job_id)}"
        show_folded(around.err, Text.assemble(("hint: ", "bold"), hint))


def _unknown(around: Surroundings, job_id: str) -> str:
    """Return a hint with names that look like the unknown one."""
    hint = _nearest(_listed(around), job_id)
    context = click.get_current_context(silent=True)
    if context is not None and context.info_name == "set" and context.params.get("rename_cursor") is None:
        hint += " For a job that has never run: --new"
    return hint


def _listed(around: Surroundings) -> JobList | None:
    # Ignore errors here: the names are only for a hint about an earlier error, which must still be shown.
    try:
        with progress(around, "looking for names") as steps:
            return list_jobs(around.store, max_requests=LOOKED_AT, on_page=lambda jobs, _: steps.at(jobs, unit="jobs"))
    except WatermarkError:
        return None


def _nearest(listed: JobList | None, job_id: str) -> str:
    if listed is None:
        return "The names of jobs could not be listed to find one that looks like it."
    names = [job.job_id for job in listed.jobs]
    if job_id in names:
        return f"It is defined, and none of its runs has begun. See: watermarks history {_quoted(job_id)} --runs"
    if near := nearest(names, job_id):
        return near
    if not listed.is_whole:
        return f"None of the {len(names):,} names that were read looks like it. See: watermarks jobs"
    return "No name looks like it. See: watermarks jobs" if names else "The table holds no job yet."


def _unknown_in_glue(around: Surroundings, name: str) -> str:
    try:
        near = nearest(names_in_glue(around), name)
    except (ClientError, BotoCoreError):
        return "The names of Glue's jobs could not be listed to find one that looks like it (glue:ListJobs)."
    return near or "None of Glue's jobs has a name like it. See: aws glue list-jobs"


def _refused(error: AccessRefusedError) -> str:
    """Return a hint with the missing action and the resource, as AWS names them."""
    action, resource = error.action, error.resource
    if action.startswith("dynamodb:"):
        resource = f"table {resource}"
    # Prefer the resource in AWS's error, an ARN such as that of an index, to the table's name.
    denied = _DENIED.search(str(error.__cause__))
    if denied:
        action, resource = denied[1], denied[2]
    text = f"Missing in the role's policy: {action} on {resource}."
    if action == "dynamodb:Scan":
        text += " A role of one team should not have it. Name the jobs instead: watermarks jobs NAME NAME"
    return text


def _login(around: Surroundings) -> str:
    login = f"aws sso login --profile {around.profile}" if around.profile else "aws sso login"
    return f"{login}, or give another --profile"


def _described_aws_error(around: Surroundings, error: ClientError | BotoCoreError) -> tuple[str, str | None, int]:
    """Return name, hint and exit code of an error from services other than DynamoDB."""
    if isinstance(error, ClientError):
        code = error.response["Error"]["Code"]
        if code in _REFUSED:
            denied = _DENIED.search(str(error))
            missing = f"{denied[1]} on {denied[2]}" if denied else error.operation_name
            return code, f"Missing in the role's policy: {missing}.", BAD_SET_UP
        if code in _EXPIRED:
            return code, _login(around), BAD_SET_UP
        # Search the error's code for "Throttl": services use Throttling, ThrottlingException or RequestThrottled.
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return code, None, TRY_LATER if status >= 500 or "Throttl" in code else FAILED
    # botocore's errors for credentials, SSO tokens and regions share no base class, so their names are compared.
    name = type(error).__name__
    if "Region" in name:
        return name, GIVE_REGION, BAD_SET_UP
    if "Credential" in name or "Token" in name:
        return name, _login(around), BAD_SET_UP
    return name, None, TRY_LATER


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w./:@=+-]+", name) else f"'{name}'"
