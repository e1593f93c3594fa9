"""Finds the error in a failed job's output: the last line that names one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scripts.helpers.display.redaction import redacted

_NAMED = re.compile(r"(?:[A-Za-z_][\w.]*\.)?(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Warning|Exit|Failure)\b.*")
_LOGGED = re.compile(r"\berror=(?P<error>\w+Error: .*)")
"""The log line in which this package's own jobs report their error."""
_PLACE = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+)')
_JDBC = re.compile(r"jdbc:[^\s'\"]+")
_SIGNALS = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
LINES = 3
"""Last lines to show of an output that names no error, because the cause is seldom further up."""
MAX_TEXT = 1_000
"""Most characters of the error text, so that the exit code and the log folder always fit after it."""


def describe(outputs: Sequence[str], code: int, logs: str) -> str:
    r"""Return the message for a failed run: the last error in its output, the exit code, and the log folder.

    Parameters
    ----------
    outputs
        The end of each output as text, in the order to search for an error. If none names an error, the message shows
        the last lines of the last output, so give stderr last: stdout may hold data, which must not be shown.
    code
        The exit code; if negative, the number of the signal that killed the job.

    Examples
    --------
    >>> describe(['  File "/jobs/a.py", line 3\n    def (\nSyntaxError: invalid syntax\n'], 1, "/logs/jr_1")
    'SyntaxError: invalid syntax (a.py, line 3). The job ended with exit code 1. Its output is in /logs/jr_1.'
    """
    end = f"was killed by {_SIGNALS.get(-code, f'signal {-code}')}" if code < 0 else f"ended with exit code {code}"
    said = _said(outputs)[:MAX_TEXT]
    return f"{said.rstrip('.')}{'. ' if said else ''}The job {end}. Its output is in {logs}."


def _said(outputs: Sequence[str]) -> str:
    for output in outputs:
        lines = _without_ignored(output.splitlines())
        for number in range(len(lines) - 1, -1, -1):
            if _NAMED.match(lines[number]):
                return _shown(lines[number]) + _place(lines[:number])
            if logged := _LOGGED.search(lines[number]):
                return _shown(logged["error"])
    return " | ".join(map(_shown, [line for line in outputs[-1].splitlines() if line.strip()][-LINES:]))


def _shown(line: str) -> str:
    """Return a line without secrets and JDBC URLs. Redact first: `_JDBC` would keep a password's part after a space."""
    return _JDBC.sub("jdbc:...", redacted(line.strip()))


def _without_ignored(lines: list[str]) -> list[str]:
    """Drop "Exception ignored in …" blocks, such as those that Python prints at shutdown."""
    kept: list[str] = []
    skipping = False
    for line in lines:
        if line.startswith("Exception ignored in"):
            skipping = True
        elif not skipping:
            kept.append(line)
        elif not line.startswith((" ", "Traceback")):
            skipping = False
    return kept


def _place(before: list[str]) -> str:
    """Return the file and line that a Python traceback names last."""
    for line in reversed(before[-8:]):
        if found := _PLACE.match(line):
            return f" ({found['file'].rpartition('/')[2]}, line {found['line']})"
    return ""
