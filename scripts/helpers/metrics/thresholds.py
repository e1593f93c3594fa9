"""Thresholds of many jobs, by job name or pattern, and the look-up of the threshold of one job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.metrics.freshness import Threshold


def thresholds(file: Mapping[str, Any]) -> dict[str, Threshold]:
    """Return thresholds by job name; a name may be a pattern, such as ``parking-*``.

    Raises
    ------
    InvalidValueError
        A threshold is not valid. The error names the job.
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
    """Return the threshold of a job's exact name, or else of the longest matching pattern; None without either."""
    if job_id in given:
        return given[job_id]
    matching = [name for name in given if fnmatchcase(job_id, name)]
    if not matching:
        return None
    # The longest pattern is the most specific. Of equally long ones the last one wins, as sorting keeps their order.
    return given[sorted(matching, key=len)[-1]]
