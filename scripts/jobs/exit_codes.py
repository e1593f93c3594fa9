"""The exit codes of jobs and of the command line, by which a scheduler decides what to do about an error."""

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
"""65, 75 and 78 are EX_DATAERR, EX_TEMPFAIL and EX_CONFIG of sysexits.h; the last is a shell's code for SIGTERM."""


def exit_code(error: WatermarkError) -> int:
    """Return the exit code of an error, by which a scheduler decides whether to try again."""
    if isinstance(error, (RunInProgressError, StoreUnavailableError, SourceUnavailableError, CommitUnknownError)):
        return TRY_LATER
    if isinstance(error, (InvalidValueError, SourceError)):
        return BAD_DATA
    if isinstance(error, ConfigurationError):
        return BAD_SET_UP
    return FAILED
