"""Job arguments, resolved as by awsglue's `getResolvedOptions`. Pure.

The behaviour, quirks included, was recorded by running ``utils.py`` of awsglue (Glue 3 to 5).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from scripts.helpers.errors import JobArgumentError, MissingOptionsError
from scripts.helpers.glue_api.errors import GlueArgumentError

ENABLE, PAUSE, DISABLE = "job-bookmark-enable", "job-bookmark-pause", "job-bookmark-disable"
OLD_SPELLINGS = {
    "continuation-enabled": ENABLE,
    "continuation-readonly": PAUSE,
    "continuation-ignore": DISABLE,
}
RANGE = ("--job-bookmark-from", "--job-bookmark-to")
TEMPORARY = ("RedshiftTempDir", "TempDir")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise GlueArgumentError(message)


def getResolvedOptions(  # noqa: N802
    args: Sequence[str], options: Sequence[str] | None = None, allow_abbrev: bool = False
) -> dict[str, Any]:
    """Resolve the arguments of a job as AWS Glue does.

    Parameters
    ----------
    args
        The command line, such as ``sys.argv``. Its first item, the script, is ignored, as are unknown arguments.
    options
        Required. Names, without dashes, of the arguments that the job must receive; but ``TempDir`` stays optional.
        The result has ``JOB_NAME`` only if `options` names it.
    allow_abbrev
        Whether to accept a shortened name, such as ``--JOB_N`` for ``--JOB_NAME``.

    Returns
    -------
    dict
        A text for each name, with ``_`` for ``-``. Always present, and None if not passed: ``job_bookmark_from``,
        ``job_bookmark_to``, ``JOB_ID``, ``JOB_RUN_ID``, ``SECURITY_CONFIGURATION``, ``encryption_type``,
        ``enable_data_lineage``, ``RedshiftTempDir``, ``TempDir``; and ``job_bookmark_option``, by
        default ``job-bookmark-disable``.

    Raises
    ------
    MissingOptionsError
        A TypeError: `options` is left out.
    GlueArgumentError
        An argument is missing, has no value, or has a value that is not one of its choices.
    JobArgumentError
        A RuntimeError. `options` has a reserved name. Or only one of ``job_bookmark_from`` and ``_to`` is passed with
        ``job-bookmark-pause``, or both are passed without it. Without it, one alone is ignored, as on Glue.
    argparse.ArgumentError
        `options` has ``JOB_RUN_ID`` or another name that the result always has, so argparse reports a conflict.

    Examples
    --------
    >>> args = getResolvedOptions(["job.py", "--JOB_NAME", "parking", "--day", "Monday"], ["JOB_NAME", "day"])
    >>> args["JOB_NAME"], args["day"], args["job_bookmark_option"], args["JOB_RUN_ID"]
    ('parking', 'Monday', 'job-bookmark-disable', None)
    """
    if options is None:  # Scripts for the original `Watermarks` class pass no `options`. The error shows what to pass.
        raise MissingOptionsError
    for option in ("continuation-option", "job-bookmark-option", *RANGE):
        if option.removeprefix("--") in options:
            raise JobArgumentError(f"Using reserved arguments {option}")
    parser = _Parser(allow_abbrev=allow_abbrev)
    parser.add_argument("--job-bookmark-option", choices=[ENABLE, PAUSE, DISABLE])
    parser.add_argument("--continuation-option", choices=list(OLD_SPELLINGS))
    parser.add_argument("--encryption-type", choices=["sse-s3"])
    always = ("JOB_ID", "JOB_RUN_ID", "SECURITY_CONFIGURATION", "enable-data-lineage", *TEMPORARY)
    for option in (*RANGE, *(f"--{name}" for name in always)):
        parser.add_argument(option)
    for name in options:
        if name not in TEMPORARY:
            parser.add_argument(f"--{name}", required=True)
    found = vars(parser.parse_known_args(args[1:])[0])
    old = found.pop("continuation_option")
    found["job_bookmark_option"] = found["job_bookmark_option"] or OLD_SPELLINGS.get(old, DISABLE)
    folder = found["RedshiftTempDir"] if found["TempDir"] is None else found["TempDir"]
    found["RedshiftTempDir"] = found["TempDir"] = folder
    _check_range(found)
    return found


def _check_range(found: dict[str, Any]) -> None:
    absent = [option for option in RANGE if found[option[2:].replace("-", "_")] is None]
    if found["job_bookmark_option"] == PAUSE:
        if len(absent) == 1:
            raise JobArgumentError(f"Missing option or value for {absent[0]}")
    elif not absent:
        raise JobArgumentError("Invalid option(s)" + " ".join(RANGE))
