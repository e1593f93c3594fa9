"""The state of a job, in the words that every screen, page and metric uses, most urgent first. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from scripts.helpers.display.tables import Column, Table
from scripts.helpers.display.units import count_of, duration_text, id_text, printable
from scripts.helpers.errors import DAMAGE
from scripts.helpers.metrics.freshness import (
    TOO_LARGE,
    Freshness,
    Threshold,
    age,
    lag,
    open_plan_age,
    unread,
    why_no_lag,
)
from scripts.helpers.metrics.habits import Rhythm, rhythm_of, unusual_size
from scripts.helpers.metrics.signs_of_life import failed_since, last_run
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.jobs import ListedJob
from scripts.helpers.states import files_waiting

Activity = Literal["at work", "open plan", "lease over", "idle"]
Word = Literal[
    "problem", "missing", "late", "open plan", "lease over", "unpublished", "failing", "files set aside",
    "unusually small", "unusually large", "no commit yet", "at work", "idle", "moved",
]  # fmt: skip
WORDS: tuple[Word, ...] = get_args(Word)
"""The states of a job, most urgent first. `problem` is first, as a job that cannot be read may be in any state."""
WORDS_FOR_OPERATOR = WORDS[: WORDS.index("no commit yet")]
LATE: tuple[Word, ...] = ("missing", "late")
MOST_NAMED = 3
"""Most contexts that a reason names."""
PUBLICATION = timedelta(minutes=15)
"""How long a run may take to publish a version after its commit. Its lease ends with the commit, so nothing shows
whether the run is still alive."""


@dataclass(frozen=True)
class Condition:
    """The most urgent state of a job, the reason, and the command that explains or repairs it (may be empty)."""

    word: Word
    reason: str = ""
    command: str = ""

    @property
    def rank(self) -> int:
        """The position of the state in `WORDS`, which is sorted by urgency; 0 is the most urgent."""
        return WORDS.index(self.word)

    @property
    def needs_somebody(self) -> bool:
        """Return whether an operator should look at the job."""
        return self.word in WORDS_FOR_OPERATOR

    @property
    def text(self) -> str:
        """The word and the reason or, for a problem, only the reason."""
        return self.reason if self.word == "problem" else f"{self.word}, {self.reason}"


NEVER_COMMITTED = Condition("no commit yet", "its runs keep no watermark")
"""The condition of a job that the Job Runs API has, but that has no head."""


def without_head(job_id: str, problem: str | None) -> Condition:
    """Return the condition of a job without a readable head. `problem` is the reason; None if the head is missing."""
    if problem is None:
        return NEVER_COMMITTED
    return Condition("problem", problem, f"watermarks doctor {shlex.quote(job_id)}")


def condition_of(head: Head, now: datetime, threshold: Threshold | None = None) -> Condition:
    """Return the most urgent condition of a job.

    Parameters
    ----------
    threshold
        Used in place of the usual time between commits. Past `warn` the job is late, past `error` it is missing.
    """
    if head.elsewhere is not None:
        return Condition("moved", f"it is in {head.elsewhere}")
    lateness = lateness_of(head, now, threshold)
    if lateness is not None:
        return lateness
    name, failed, run = shlex.quote(head.job_id), failed_since(head, now), activity(head, now)
    if run == "open plan":
        planned = open_plan_age(head, now) or timedelta(0)
        reason = f"planned {duration_text(planned)} ago and not committed; the next run replays it"
        reason += f". The last error: {head.failure}" if failed and head.failure else ""
        return Condition("open plan", reason, f"watermarks plan {name}")
    if run == "lease over" and head.claim is not None:
        over = duration_text(now - head.claim.lease_until)
        reason = f"run {id_text(head.claim.run_id)} ended {over} ago without a plan; run the job again"
        return Condition("lease over", reason, f"watermarks show {name}")
    waiting = {(one.epoch, one.version) for one in head.unpublished}
    # The run that committed the newest version may still be publishing it.
    if head.last is not None and now - head.last.at < PUBLICATION:
        waiting.discard((head.epoch, head.version))
    if waiting and run == "idle":
        reason = f"{count_of(len(waiting), 'version')} committed and not at the target yet; the next run publishes"
        reason += f"; {_failures(head, failed)}" if failed else ""
        return Condition("unpublished", reason, f"watermarks doctor {name} --publish")
    if failed and run == "idle":
        return Condition("failing", _failures(head, failed), f"watermarks show {name}")
    read = read_condition(head)
    if read is not None:
        return read
    if run == "at work" and head.claim is not None:
        since = max(now - head.claim.since, timedelta(0))
        return Condition("at work", f"run {id_text(head.claim.run_id)} for {duration_text(since)}")
    return Condition("idle") if head.last is not None else Condition("no commit yet", "nothing is committed")


def lateness_of(head: Head, now: datetime, threshold: Threshold | None = None) -> Condition | None:
    """Return a job's condition if it is late, missing (long overdue) or has an unknown lag; or None."""
    if threshold is not None and threshold.measure == "lag" and (names := unread(head)):
        more = ", …" if len(names) > MOST_NAMED else ""
        reason = f"its lag is unknown; {TOO_LARGE}: {', '.join(names[:MOST_NAMED])}{more}"
        return Condition("problem", reason, f"watermarks show {shlex.quote(head.job_id)}")
    if threshold is not None:
        return _by_threshold(head, now, threshold.judge(head, now))
    rhythm, since = rhythm_in(head), age(head, now)
    if rhythm is None or since is None or since < rhythm.late:
        return None
    reason = f"{rhythm.text}, last {duration_text(since)} ago"
    return _lateness_condition("missing" if since >= rhythm.missing else "late", reason, head, now)


def read_condition(head: Head) -> Condition | None:
    """Return the condition if files wait for a decision, or the last run took an unusual amount; otherwise None.

    The amount is judged only if the newest version is a commit, and not a change of the state by an operator.
    """
    if waiting := files_waiting(head):
        reason = f"{count_of(waiting, 'file')} could not be read; retry or skip each"
        return Condition("files set aside", reason, f"watermarks files {shlex.quote(head.job_id)}")
    size = None if head.last is None or head.last.op != "COMMIT" else unusual_size(head.recent)
    if size is None:
        return None
    word: Word = "unusually small" if size.is_small else "unusually large"
    return Condition(word, size.text, f"watermarks history {shlex.quote(head.job_id)}")


def rhythm_in(head: Head) -> Rhythm | None:
    """Return when a job usually commits next, and when it is late; None if too few commits are known."""
    # Count the wait from the last version, as `age` does, even if an operator made that: the operator saw the job then.
    return None if head.last is None else rhythm_of(head.recent, head.last.at)


def activity(head: Head, now: datetime) -> Activity:
    """Return what a job does now, regardless of its problems, such as ``at work`` or ``idle``."""
    if head.claim is not None and now < head.claim.lease_until:
        return "at work"
    # Check the plan before the lease: a plan outlives the lease of its run, and the next run replays the plan.
    if head.plan is not None:
        return "open plan"
    return "lease over" if head.claim is not None else "idle"


def _by_threshold(head: Head, now: datetime, found: Freshness) -> Condition | None:
    if found.word is None or found.behind is None:
        return None
    threshold = found.threshold
    limit = threshold.error if found.word == "missing" else threshold.warn
    measure = found.measure if head.last is not None else "without a commit"
    reason = f"{duration_text(found.behind)} {measure}, the limit is {duration_text(limit or timedelta(0))}"
    return _lateness_condition(found.word, reason, head, now)


def _lateness_condition(word: Word, reason: str, head: Head, now: datetime) -> Condition:
    """Return the condition of a late job. Its reason names failed runs, because they need another remedy."""
    name, failed = shlex.quote(head.job_id), failed_since(head, now)
    failures = f"; {_failures(head, failed)}" if failed else ""
    if activity(head, now) == "at work":
        return Condition(word, f"{reason}; a run is at work{failures}", f"watermarks show {name}")
    if head.plan is not None:
        reason += "; its plan is open, and the next run replays it"
        return Condition(word, f"{reason}{failures}", f"watermarks plan {name}")
    return Condition(word, f"{reason}{failures}", f"watermarks show {name}")


def _failures(head: Head, failed: int) -> str:
    """Return a text: how many runs failed since the last commit, and the last error if it is stored."""
    runs = f"{failed:,} {'run' if failed == 1 else 'runs'} failed"
    runs += " since the last commit" if head.last is not None else " and none has committed"
    return f"{runs}. The last error: {head.failure}" if head.failure else runs


# --- the list of jobs ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class JobNow(ListedJob):
    """A job of a table at the time `now`, with its condition then; see `ListedJob` for `head` and `problem`."""

    now: datetime
    condition: Condition

    @classmethod
    def of(cls, job: ListedJob, now: datetime, threshold: Threshold | None = None) -> JobNow:
        """Return a job with its condition, or with a problem if its head holds what cannot be shown."""
        if job.head is None:
            return cls(job.job_id, None, job.problem, now=now, condition=without_head(job.job_id, job.problem))
        try:
            found = cls(job.job_id, job.head, now=now, condition=condition_of(job.head, now, threshold))
            for column in JobTable.columns:
                column.value(found)
        except DAMAGE as error:
            return cls.damaged(job.job_id, error, now)
        return found

    @property
    def age(self) -> timedelta:
        """The time since the last version; for a job without a version, the longest possible time."""
        found = age(self.head, self.now) if self.head else None
        return timedelta.max if found is None else found

    @property
    def warning(self) -> str:
        """A line that says what is wrong with the job."""
        return printable(f"{self.job_id}: {self.condition.text}")

    @classmethod
    def damaged(cls, job_id: str, error: Exception, now: datetime) -> JobNow:
        """Return a job that cannot be shown, with the error as its problem."""
        problem = f"damaged ({type(error).__name__} while reading it); see doctor"
        return cls.of(ListedJob(job_id, None, problem), now)


class JobTable(Table[JobNow]):
    """Jobs as they are listed in a console and by `watermarks jobs`, without values of watermarks.

    Lines below the table say what is wrong with jobs that need attention. `to_pandas` has further columns. A lag is
    ``unknown`` if a state is too large for the job's head: only the command reads such a state.
    """

    columns = (
        Column("job", lambda job: job.job_id),
        Column("state", lambda job: job.condition.word),
        Column("lag", lambda job: job.head and _lag(job.head, job.now)),
        Column("changed", lambda job: job.head and _changed(job.head, job.now)),
        Column("plan", lambda job: job.head and open_plan_age(job.head, job.now)),
        Column("last run", lambda job: job.head and _last_run(job.head, job.now)),
        Column("failed", lambda job: (job.head and failed_since(job.head, job.now)) or None, "count"),
    )

    def all_columns(self) -> Sequence[Column]:
        """Return the columns of `to_pandas`: times and durations instead of texts, and ids that are not shortened."""
        return (
            *self.columns[:2],
            Column("reason", lambda job: job.condition.reason),
            Column("lag", lambda job: job.head and lag(job.head, job.now), "duration"),
            Column("version", lambda job: job.head and job.head.version, "count"),
            Column("last version", lambda job: job.head and job.head.last and job.head.last.at, "time"),
            Column("by", lambda job: job.head and job.head.last and job.head.last.op),
            Column("open plan", lambda job: job.head and job.head.plan and job.head.plan.plan_id),
            Column("owner", lambda job: job.head and job.head.claim and job.head.claim.run_id),
            Column("until", lambda job: job.head and job.head.claim and job.head.claim.lease_until, "time"),
            self.columns[-1],
        )

    def _rest(self, limit: int) -> list[str]:
        return [*super()._rest(limit), *(job.warning for job in self[:limit] if job.condition.needs_somebody)]


def _lag(head: Head, now: datetime) -> timedelta | str | None:
    """Return the lag of a job, or why it is not known; None if no source of the job has a time cursor."""
    found = lag(head, now)
    return (why_no_lag(head) or None) if found is None else found


def _changed(head: Head, now: datetime) -> str:
    """Return the time since the last version, such as "3 h"; if no run made it, with its change: "RESET 3 h"."""
    since = age(head, now)
    if head.last is None or since is None:
        return "never"
    text = duration_text(since)
    return text if head.last.op == "COMMIT" else f"{head.last.op} {text}"


def _last_run(head: Head, now: datetime) -> str | None:
    """Return the id of the run that began last, and the time since; None if the head does not have it."""
    run = last_run(head)
    return run and f"{id_text(run[0])} {duration_text(max(now - run[1], timedelta(0)))}"
