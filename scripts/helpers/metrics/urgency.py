"""The state of a job, in the words that every screen, page and metric uses, most urgent first. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from scripts.helpers.display.units import count_of, duration_text, id_text
from scripts.helpers.metrics.freshness import TOO_LARGE, Freshness, Threshold, age, open_plan_age, unread
from scripts.helpers.metrics.habits import Rhythm, rhythm_of, unusual_size
from scripts.helpers.metrics.signs_of_life import failed_since
from scripts.helpers.protocol.head import Head
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
