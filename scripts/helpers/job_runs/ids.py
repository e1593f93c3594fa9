"""Ids of job runs. They have Glue's shape and sort by the start of the run. Pure."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime, timedelta, timezone

from scripts.helpers.errors import InvalidIdError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIME_DIGITS, _DIGITS = 14, 64
"""How many hex digits of an id hold the start time in microseconds (until the year 4253), and how many an id has."""
_ID = re.compile(r"(jr_[0-9a-f]{64})(?:_attempt_([1-9][0-9]{0,2}))?")


def new_id(started_on: datetime) -> str:
    """Return a new id that begins with the time of the start, so that ids sort in the order of starts."""
    return _id_with_time(started_on, secrets.token_hex(_DIGITS // 2))


def attempt_id(run_id: str, attempt: int) -> str:
    """Return the id of a run's automatic retry, as in Glue: the id of the first attempt and ``_attempt_1``.

    >>> attempt_id("jr_" + "0" * 64 + "_attempt_1", 2) == "jr_" + "0" * 64 + "_attempt_2"
    True
    """
    return f"{run_id.partition('_attempt_')[0]}_attempt_{attempt}"


def job_digest(job_name: str) -> str:
    """Return the value of ``--JOB_ID``: ``j_`` and 64 hexadecimal digits, the same for every run of a job."""
    return "j_" + hashlib.sha256(job_name.encode()).hexdigest()


def is_run_id(text: str) -> bool:
    """Return whether a text is a run id of this package."""
    return _ID.fullmatch(text) is not None


def check_own_id(text: str) -> str:
    """Return the text if it is a run id of this package.

    Raises
    ------
    InvalidIdError
        It is not such an id. Ids become folder names, so a forged id in the table could lead out of the log folder.
    """
    if not is_run_id(text):
        raise InvalidIdError(
            f"Job run id {text[:80]!r} is not an id of this package, which are jr_ and {_DIGITS} hexadecimal "
            "digits, and _attempt_N for a retry. Delete its record."
        )
    return text


def _id_with_time(moment: datetime, digits: str) -> str:
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    return f"jr_{microseconds:0{_TIME_DIGITS}x}{digits[: _DIGITS - _TIME_DIGITS]}"
