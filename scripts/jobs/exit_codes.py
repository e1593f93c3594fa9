"""The exit codes of jobs and of the command line, which tell a scheduler what to do about an error."""

from __future__ import annotations

import signal

from scripts.helpers.errors import (
    CommitUnknownError,
    ConfigurationError,
    InvalidValueError,
    RunInProgressError,
    SourceError,
    SourceUnavailableError,
    StoreUnavailableError,
    WatermarkError,
)

OK, FAILED, BAD_DATA, TRY_LATER, BAD_SET_UP, STOPPED = 0, 1, 65, 75, 78, 128 + signal.SIGTERM
"""65, 75 and 78 are EX_DATAERR, EX_TEMPFAIL and EX_CONFIG of sysexits.h, and the last what a shell makes of SIGTERM."""


def exit_code(error: WatermarkError) -> int:
    """Return the exit code that tells a scheduler what to do about an error."""
    if isinstance(error, (RunInProgressError, StoreUnavailableError, SourceUnavailableError, CommitUnknownError)):
        return TRY_LATER
    if isinstance(error, (InvalidValueError, SourceError)):
        return BAD_DATA
    if isinstance(error, ConfigurationError):
        return BAD_SET_UP
    return FAILED
