"""Compute what the page shows about one job, from its head and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from operator import itemgetter
from shlex import quote
from typing import Any

from scripts.helpers.files.states import PartitionState
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.metrics import freshness, signs_of_life
from scripts.helpers.metrics.urgency import WORDS, Condition, Word, activity, condition_of, without_head
from scripts.helpers.protocol.head import Claim, Head, LogEntry
from scripts.helpers.rows.cursor_ranges import ShownRange
from scripts.helpers.rows.cursors import as_list
from scripts.helpers.rows.states import RowsState, column_values
from scripts.helpers.states import typed
from scripts.helpers.tables.spans import TableState


@dataclass(frozen=True)
class Context:
    """One source of a job: name, kind, cursor, and gaps (ranges never read; None if they could not be looked up)."""

    name: str
    kind: str
    columns: str
    lag: timedelta | None
    value: str
    gaps: Sequence[ShownRange] | None = None


@dataclass(frozen=True)
class JobFacts:
    """One job at one time.

    Attributes
    ----------
    head
        The job's head. None if it cannot be read (`problem` is why), or if only the Job Runs API has the job.
    entries
        Versions, newest first: all since a time, or the newest ones. `is_whole` is True if there are no older ones.
    gaps
        For each context that reads rows, the ranges of its cursor that no run read; None if they could not be read.
    unsuccessful
        Those of the newest job runs that ended without success; empty if `JobRuns` has no records of the job.
    threshold
        The limits past which the job counts as late; None to compare with its usual rhythm.
    """

    job_id: str
    now: datetime
    head: Head | None
    problem: str | None = None
    entries: Sequence[LogEntry] = ()
    is_whole: bool = True
    gaps: Mapping[str, Sequence[ShownRange] | None] = field(default_factory=dict)
    unsuccessful: Sequence[RunRecord] = ()
    threshold: freshness.Threshold | None = None

    @cached_property
    def condition(self) -> Condition:
        """The job's most urgent condition, in the words of `watermarks jobs`, and a command to explain or repair it."""
        if self.head is None:
            return without_head(self.job_id, self.problem)
        found = condition_of(self.head, self.now, self.threshold)
        if self.gap_count and not found.needs_somebody:
            ranges = "1 range was" if self.gap_count == 1 else f"{self.gap_count:,} ranges were"
            return Condition(found.word, f"{ranges} never read", f"watermarks backfill {quote(self.job_id)}")
        return found

    @property
    def needs_somebody(self) -> bool:
        """Whether an operator should look at the job: at its condition, or at its gaps."""
        return self.condition.needs_somebody or bool(self.gap_count)

    @property
    def tells_more(self) -> bool:
        """Whether to show `condition.reason`: true if the job's state and count of failed runs do not explain it."""
        unsaid = ("missing", "late", "unpublished", "files set aside", "unusually small", "unusually large")
        return self.condition.word in unsaid or (bool(self.gap_count) and not self.condition.needs_somebody)

    @property
    def rank(self) -> float:
        """The rank by urgency, 0 first. Gaps (unread ranges) block no run, so they rank just before "no commit yet"."""
        condition = self.condition
        has_gap = bool(self.gap_count) and not condition.needs_somebody
        return WORDS.index("no commit yet") - 0.5 if has_gap else condition.rank

    @property
    def state(self) -> Word:
        """What the job's runs are doing, as a word of `watermarks jobs` such as "idle", even if the job has a fault."""
        if self.head is None:
            return self.condition.word
        found = activity(self.head, self.now)
        return "no commit yet" if found == "idle" and self.head.last is None else found

    @property
    def owner(self) -> Claim | None:
        """The run that holds the lease; None if the lease is over."""
        claim = self.head.claim if self.head else None
        return claim if claim and self.now < claim.lease_until else None

    @property
    def silence(self) -> timedelta | None:
        """Time since the last sign of life of the run at work; None if no run is at work or no sign is recorded."""
        return signs_of_life.silence(self.head, self.now) if self.head else None

    @property
    def may_be_dead(self) -> bool:
        """Whether the run at work may be dead, so that an operator should check it."""
        return self.head is not None and signs_of_life.may_be_dead(self.head, self.now)

    @property
    def release_command(self) -> str:
        """The shell command that ends a dead run's lease, so that the job can run again."""
        return f"watermarks release {quote(self.job_id)} --why TEXT"

    @property
    def age(self) -> timedelta | None:
        """Time since the last version."""
        return freshness.age(self.head, self.now) if self.head else None

    @cached_property
    def lag(self) -> timedelta | None:
        """Time since the oldest time cursor; None for a job without one, or if not all states were read."""
        return freshness.lag(self.head, self.now) if self.head else None

    @property
    def why_no_lag(self) -> str:
        """Why the lag is unknown; empty if it is known, or if the job certainly has none."""
        return freshness.why_no_lag(self.head) if self.head else ""

    @property
    def unread(self) -> Sequence[str]:
        """The contexts whose states are too large to read for the page."""
        return freshness.unread(self.head) if self.head else ()

    @property
    def plan_age(self) -> timedelta | None:
        """Time since the open plan was frozen; None without one."""
        return freshness.open_plan_age(self.head, self.now) if self.head else None

    @property
    def failed_since(self) -> int:
        """How many runs failed since the last version. Failures before that version no longer matter."""
        return signs_of_life.failed_since(self.head, self.now) if self.head else 0

    @property
    def gap_count(self) -> int:
        """How many ranges of cursor values no run has read although the watermark has passed them."""
        return sum(len(gaps) for gaps in self.gaps.values() if gaps)

    @cached_property
    def contexts(self) -> list[Context]:
        """The job's sources, first those too large to show; empty for a job that keeps its watermarks by hand."""
        if self.head is None:
            return []
        unread = [Context(name, freshness.TOO_LARGE, "", None, "", ()) for name in self.unread]
        return unread + [
            self._context(self.head, name, state)
            for name, state in sorted(self.head.watermarks.items())
            if isinstance(state, Mapping) and state.get("kind") in ("rows", "files", "partition", "table")
        ]

    @cached_property
    def cursors(self) -> list[tuple[datetime, datetime | None]]:
        """The time of each version, ascending, and the oldest time cursor in that version; None if it is unknown."""
        found = []
        for entry in reversed(self.entries):
            at = entry.change.at
            # Compute the lag of this version by the same rule as the current lag.
            lag = freshness.lag(Head("", "", 0, 0, entry.watermarks), at)
            found.append((at, None if lag is None else at - lag))
        # Sort by time, not by version: clocks of runs differ, and a chart's periods take the entries in order of time.
        return sorted(found, key=itemgetter(0))

    def _context(self, head: Head, name: str, state: Mapping[str, Any]) -> Context:
        alone = replace(head, watermarks={name: state})
        found, columns, values = typed(state, unpacks=False), [], []
        if isinstance(found, RowsState):
            columns = found.names
            values = as_list(column_values(found.columns, found.value, placed=True))
        elif isinstance(found, PartitionState):
            columns, values = list(found.columns), list(found.value)
        elif isinstance(found, TableState):
            columns, values = ["snapshot" if found.format == "iceberg" else "version"], [found.value]
        lag = freshness.lag(alone, self.now)
        value = ", ".join(map(str, values))
        return Context(name, str(state["kind"]), ", ".join(columns), lag, value, self.gaps.get(name, ()))
