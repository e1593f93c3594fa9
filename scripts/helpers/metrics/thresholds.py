"""Thresholds of many jobs, by their names or by patterns, and which of them is that of a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.metrics.freshness import Threshold


def thresholds(file: Mapping[str, Any]) -> dict[str, Threshold]:
    """Read thresholds by job name; a name may be a pattern, such as ``parking-*``.

    Raises
    ------
    InvalidValueError
        It names the job whose threshold is wrong.
    """
    found = {}
    for name, text in file.items():
        if not isinstance(text, Mapping):
            raise InvalidValueError(f"The threshold of {name!r} is not a map, such as {{'warn': '2h', 'error': '1d'}}.")
        try:
            found[name] = Threshold.parse(text)
        except InvalidValueError as error:
            raise InvalidValueError(f"The threshold of {name!r}: {error}") from error
    return found


def threshold_of(job_id: str, given: Mapping[str, Threshold]) -> Threshold | None:
    """Return the threshold of a job: that of its own name, else of the longest pattern that matches."""
    if job_id in given:
        return given[job_id]
    matching = [name for name in given if fnmatchcase(job_id, name)]
    if not matching:
        return None
    # The longest says most about the job. Of two as long the last one given counts, as sorting keeps their order.
    return given[sorted(matching, key=len)[-1]]
