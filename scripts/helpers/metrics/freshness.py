"""How far a job is behind, and whether that is too far. Pure.

`age` is the time since the last version of a job. It grows while the job does not run, or fails.
`lag` is the time since the oldest of the job's time cursors. It also grows while the job runs but
its source has no new rows. A job that reads only files has an age but no lag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.states import RowsState, instant
from scripts.helpers.states import typed

Lateness = Literal["late", "missing"]
Measure = Literal["age", "lag"]
TOO_LARGE = "too large to show here"
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")


def age(head: Head, now: datetime) -> timedelta | None:
    """Return the time since the last version was made; None before the first one."""
    # Return at least 0, because the run that committed may have had a clock that is ahead of this machine's clock.
    return max(now - head.last.at, timedelta(0)) if head.last else None


def lag(head: Head, now: datetime) -> timedelta | None:
    """Return the time since a job's oldest time cursor; None if it has none, or any cursor or its zone is unknown."""
    moments = _cursor_times(head)
    cursors = [moment for moment in moments if moment is not None]
    # Return no lag if any cursor is unknown: it may be the oldest one, and a lag that is too low raises no alarm.
    if not cursors or why_no_lag(head):
        return None
    # Use the oldest cursor. With a newer one, the other sources would hide a source that has no new rows.
    return max(now - min(cursors), timedelta(0))


def why_no_lag(head: Head) -> str:
    """Return why the lag of a job is not known; an empty text if it is known, or if no state has a time cursor."""
    # The oldest cursor defines the lag. A state that was not read, because it is too large, may have that cursor.
    if unread(head):
        return "unknown"
    # An old version of the package wrote this state without the zone. The next run adds the zone.
    return "zone not known" if None in _cursor_times(head) else ""


def unread(head: Head) -> list[str]:
    """Return the names of the contexts whose states are too large for the head, and were not read."""
    return sorted(name for name, state in head.watermarks.items() if isinstance(state, Spilled))


def open_plan_age(head: Head, now: datetime) -> timedelta | None:
    """Return the time since the open plan was frozen, whichever run froze it; None without an open plan."""
    return None if head.plan is None else max(now - head.plan.at, timedelta(0))


def _cursor_times(head: Head) -> list[datetime | None]:
    """Return the time up to which each source of rows with a time cursor was read; None if its zone is not known."""
    states = [typed(state, unpacks=False) for state in head.watermarks.values()]
    # Sources with `descending=True`, which are read from high to low, have numbers as cursors: `is_time` omits them.
    return [
        instant(state.columns[0], state.value[0])
        for state in states
        if isinstance(state, RowsState) and state.value is not None and state.columns[0].is_time
    ]


@dataclass(frozen=True)
class Threshold:
    """How far behind a job must be to count as late (`warn`) or, even later, as missing (`error`). None disables one.

    `measure` names the value that is compared: `age`, or `lag`. A job without a lag is judged by its age.
    """

    warn: timedelta | None = None
    error: timedelta | None = None
    measure: Measure = "age"

    def __post_init__(self) -> None:
        if self.warn is None and self.error is None:
            raise InvalidValueError("A threshold has neither warn nor error. Give at least one, such as warn='2h'.")
        if self.measure not in ("age", "lag"):
            raise InvalidValueError(f"The measure is {self.measure!r}; it is 'age' or 'lag'.")
        if self.warn is not None and self.error is not None and self.warn > self.error:
            raise InvalidValueError(f"warn is {self.warn}, later than error at {self.error}. Give a smaller one.")

    @classmethod
    def parse(cls, text: Mapping[str, Any]) -> Threshold:
        """Return the threshold of a job in a thresholds file: ``{"warn": "2h", "error": "1d", "measure": "lag"}``."""
        unknown = sorted(set(text) - {"warn", "error", "measure"})
        if unknown:
            raise InvalidValueError(f"A threshold has no {unknown[0]!r}; it has warn, error and measure.")
        given = {name: duration(text[name]) for name in ("warn", "error") if text.get(name) is not None}
        return cls(**given, measure=text.get("measure", "age"))

    def judge(self, head: Head, now: datetime) -> Freshness:
        """Return how far behind a job is, and whether it is late. A job without a commit is judged by its open run."""
        behind = lag(head, now) if self.measure == "lag" else None
        # A job without a time cursor has no lag, so it is judged by its age.
        measure: Measure = "age" if behind is None else "lag"
        found = age(head, now) if behind is None else behind
        begun = _begun(head)
        if found is None and begun is not None:
            found = max(now - begun, timedelta(0))
        return Freshness(None if found is None else self._word(found), found, measure, self)

    def _word(self, behind: timedelta) -> Lateness | None:
        # Check `error` first: it is not less than `warn`, so a job that reaches it has reached `warn` too.
        if self.error is not None and behind >= self.error:
            return "missing"
        return "late" if self.warn is not None and behind >= self.warn else None


def _begun(head: Head) -> datetime | None:
    """Return when the open plan was frozen or the run with the lease began, the earlier one; None without either."""
    since = [head.claim.since if head.claim else None, head.plan.at if head.plan else None]
    return min((moment for moment in since if moment is not None), default=None)


@dataclass(frozen=True)
class Freshness:
    """How far behind a job is, judged by a threshold. `behind` is its age or its lag; `measure` names which one.

    For a job without a commit, `behind` is the time since its run began or its plan was frozen; None without either.
    """

    word: Lateness | None
    behind: timedelta | None
    measure: Measure
    threshold: Threshold


def duration(text: object) -> timedelta:
    """Return the timedelta of a text such as ``90s``, ``15m``, ``2h`` or ``1d``.

    Examples
    --------
    >>> duration("2h")
    datetime.timedelta(seconds=7200)
    """
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidValueError(f"{text!r} is not a duration. Write a number and s, m, h or d, such as 90s, 2h or 1d.")
    return timedelta(seconds=int(found.group(1)) * _UNITS[found.group(2)])
