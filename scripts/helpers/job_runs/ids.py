"""The ids of job runs: in Glue's shape, and in the order of their start. Pure."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime, timedelta, timezone

from scripts.helpers.errors import InvalidIdError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIME_DIGITS, _DIGITS = 14, 64
"""Hex digits of an id, as of Glue's, and of the microseconds that it begins with: enough up to the year 4253."""
_ID = re.compile(r"(jr_[0-9a-f]{64})(?:_attempt_([1-9][0-9]{0,2}))?")


def new_id(started_on: datetime) -> str:
    """Make an id whose first digits are the time of the start, so that ids sort as runs were started."""
    return _stamped(started_on, secrets.token_hex(_DIGITS // 2))


def attempt_id(run_id: str, attempt: int) -> str:
    """Make the one id of the automatic retry of a run, as Glue does: the run's id and ``_attempt_1``.

    >>> attempt_id("jr_" + "0" * 64 + "_attempt_1", 2) == "jr_" + "0" * 64 + "_attempt_2"
    True
    """
    return f"{run_id.partition('_attempt_')[0]}_attempt_{attempt}"


def job_digest(job_name: str) -> str:
    """Return what is passed as ``--JOB_ID``: ``j_`` and 64 hexadecimal digits, the same for a job's every run."""
    return "j_" + hashlib.sha256(job_name.encode()).hexdigest()


def is_run_id(text: str) -> bool:
    """Tell whether a text is the id of a run of ours."""
    return _ID.fullmatch(text) is not None


def check_own_id(text: str) -> str:
    """Return the id of a run of ours.

    Raises
    ------
    InvalidIdError
        It is none. Ids become names of folders, so one that was put into the table could lead out of them.
    """
    if not is_run_id(text):
        raise InvalidIdError(
            f"Job run id {text[:80]!r} is not an id of this package, which are jr_ and {_DIGITS} hexadecimal "
            "digits, and _attempt_N for a retry. Delete its record."
        )
    return text


def _stamped(moment: datetime, digits: str) -> str:
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    return f"jr_{microseconds:0{_TIME_DIGITS}x}{digits[: _DIGITS - _TIME_DIGITS]}"
