"""The head of a job, its plan and its log, and the transitions that are legal from each state. Pure.

The head is the only authority on a job's state. Each method that returns a new `Head` is one transition of the
protocol; the caller makes it durable with one write that is conditional on the head that it started from::

     none ──first──> idle v ──claimed──> claimed v,f+1 ──planned──> planned v,f,plan ──committed──> idle v+1
                       ^                     │                          │  claimed by another run, lease over:
                       └────── released ─────┴──────────────────────────┘  f+1, the plan is inherited

    amended: from planned, by the run that holds the job; another plan replaces the frozen one, nothing else changes
    rewound, reset, declared, discarded, restored: from any state; v+1, f+1, the plan is dropped
    freed: from claimed and planned, by an operator, because the run is dead; f+1, the claim ends, the plan stays
    fenced: from any state, before something is deleted; f+1 and nothing else
    moved: from any state, when the job moves to another table; f+1, the claim ends, and no transition follows here
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.display.units import printable
from scripts.helpers.errors import InvalidValueError, NoWatermarkError, PlanConflictError, RunInProgressError
from scripts.helpers.protocol.names import BatchId, new_epoch, same_run
from scripts.helpers.protocol.outputs import Output, Retraction, make_retractions, target_key
from scripts.helpers.protocol.recent import PastCommit, from_text, with_commit

SUCCESS = ("COMMIT", "IMPORT")
"""The operations of changes for which a run item is written: a commit, or the import of an original item."""


Outputs = tuple[Output, ...]
"""The output that an attempt staged, one for each target."""

Seen = Mapping[str, Mapping[str, int]]
"""The last version that each target has recorded, by target and epoch."""

MOST_RELEASES = 5
"""Releases that a version keeps, the newest ones. Their texts are the largest part of a head that the limit on values
does not cover, and a job with more releases between two versions needs another remedy."""

MOST_ANSWERS = 2_000
"""Answers after restores that a head keeps, about 40 KB. Only the answers of a single decision may exceed it."""

MOST_TARGETS, MAX_TARGETS_LENGTH = 16, 48_000
"""Limits of `Head.at_targets`: the number of targets (those published to last) and the total length of their records.
16 records fit whose target and staging place have 1,000 characters each."""


@dataclass(frozen=True)
class Claim:
    """The lease of a run on the job: the run, and when the lease ends."""

    run_id: str
    token: str
    attempt: int
    lease_until: datetime
    since: datetime
    lease: timedelta | None = None
    """Time from a begin or a heartbeat to `lease_until`; None if it was not stored, or is implausible."""

    @property
    def last_beat(self) -> datetime | None:
        """When the lease was last renewed or, before any renewal, granted; None if the lease's length is unknown."""
        return None if self.lease is None else self.lease_until - self.lease


@dataclass(frozen=True, repr=False)
class Plan:
    """One batch, frozen before the source is read, with the watermarks that follow it."""

    plan_id: str
    contexts: Mapping[str, Any]
    """What the batch takes, by context: the bounds of rows or the list of files."""
    next: Mapping[str, Any]
    """All of the job's `watermarks` after the commit; never recomputed from what was read."""
    at: datetime
    """The time when the plan was frozen."""
    later: datetime | None = None
    """The time that scripts see instead of `at`, if the clock was not past the time of the last version."""

    def __repr__(self) -> str:
        return f"<Plan {self.plan_id}: contexts {', '.join(sorted(self.contexts)) or 'none'}>"


@dataclass(frozen=True)
class Order:
    """An operator's decision about a job: its author and reason, and the token that identifies its write."""

    who: str
    why: str
    at: datetime
    token: str


@dataclass(frozen=True)
class Release:
    """The end of a run's claim by an operator who considers the run dead."""

    run_id: str
    at: datetime
    who: str
    why: str
    token: str


@dataclass(frozen=True)
class Change:
    """The change that made a version: who, when, why, and its counts.

    `run_id` is the run whose watermarks are in force after the change: after a rewind, the run of the
    version that it went back to; after a reset, None. `fence` is the head's fence, `runs` the number of
    runs that have succeeded so far, `failed` the number that began since the previous version and did not commit.
    """

    op: str
    commit_id: str
    at: datetime
    run_id: str | None = None
    plan_id: str | None = None
    attempt: int = 1
    why: str | None = None
    who: str | None = None
    previous_run_id: str | None = None
    started_at: datetime | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    fence: int = 0
    runs: int = 0
    failed: int = 0
    outputs: Outputs = ()
    """What this attempt staged for each of its targets; output of other attempts is not part of the version."""
    releases: tuple[Release, ...] = ()
    """Claims that operators ended since the previous version: the newest few, oldest first."""


@dataclass(frozen=True, repr=False)
class LogEntry:
    """One version of a job, as the history keeps it."""

    job_id: str
    version: int
    watermarks: Mapping[str, Any]
    change: Change

    @property
    def duration(self) -> timedelta | None:
        """Time from the begin of the run to its commit; None if the version was not made by a run."""
        return self.change.at - self.change.started_at if self.change.started_at else None

    def __repr__(self) -> str:
        metrics = sorted(self.change.metrics.items())
        counts = "".join(f" {name}={count}" for name, count in metrics if not isinstance(count, Mapping))
        at = self.change.at.strftime("%Y-%m-%d %H:%M:%SZ")
        why = f" who={self.change.who!r} why={self.change.why!r}" if self.change.who else ""
        return printable(f"<v{self.version} {self.change.op} {at} run={self.change.run_id}{counts}{why}>")


@dataclass(frozen=True, repr=False)
class Head:
    """The committed and the open state of a job.

    `version` grows by one at every commit or operator's decision (such as a rewind), `fence` at every begin or
    decision; neither ever falls. `unpublished` is committed output that readers of its target might not see yet. Until
    it is published or taken back, it stays, so that the next run publishes it if the publisher died. `retracting` is
    output that a decision took back and that may still be at its target; each run that begins deletes it, then plans.
    `retracted` are ranges of versions (first, last) whose output is gone, so no rewind may go back to them.
    `epochs` has the last version of each former epoch, published or not. A restore of the job's table starts an epoch.
    `answers`: after a restore, a target may have later versions than the head. For each former epoch and each target
    (by `target_key`), `answers` has the last version that an operator let the target keep. Older releases stored that
    version in `epochs`, for all targets. `recent_text` has the commits of `recent` as they are stored.
    `releases` are the leases that operators ended since the last version; the next version records them in the history.
    `logged` is the newest version whose log entry was known to exist when the head was written; 0 if unknown.
    `planned_at` is the latest `FrozenBatch.planned_at` of a committed plan if later than `last.at`; otherwise None.
    `at_targets` has, for each target, the last published output whose rows the target must still have. Output that was
    taken back, or is read again after a rewind, is left out. The target with the newest output is last.
    `failure` is the error of the last run that failed since the last version, if the run could store it.
    `moved_to` is the table that the job was moved to; `arriving_from` is the table that has the job until its copy here
    is complete. While either is set, no run may begin here and nothing may change.
    """

    job_id: str
    epoch: str
    version: int
    fence: int
    watermarks: Mapping[str, Any]
    last: Change | None = None
    claim: Claim | None = None
    plan: Plan | None = None
    unpublished: Outputs = ()
    retracting: tuple[Retraction, ...] = ()
    retracted: tuple[tuple[int, int], ...] = ()
    epochs: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    releases: tuple[Release, ...] = ()
    recent_text: str = ""
    moved_to: str | None = None
    arriving_from: str | None = None
    logged: int = 0
    planned_at: datetime | None = None
    at_targets: Outputs = ()
    failure: str | None = None

    def __repr__(self) -> str:
        last, claim = self.last, self.claim
        committed = f"{last.op} {last.at:%Y-%m-%d %H:%M:%SZ} run={last.run_id}" if last else "no commit yet"
        owner = f", held by run {claim.run_id} until {claim.lease_until:%Y-%m-%d %H:%M:%SZ}" if claim else ""
        plan = f", plan {self.plan.plan_id} open" if self.plan else ""
        moved = f", in {self.elsewhere}" if self.elsewhere else ""
        return printable(f"<Head of {self.job_id!r}: version {self.version}, {committed}{owner}{plan}{moved}>")

    @property
    def last_versions(self) -> Mapping[str, int]:
        """For each epoch of the job, the last version whose output at least one target may have."""
        found = {**self.epochs, self.epoch: self.version}
        for epoch, answered in self.answers.items():
            found[epoch] = max(found.get(epoch, 0), *answered.values())
        return found

    def last_versions_at(self, target: str) -> Mapping[str, int]:
        """Return, for each epoch of the job, the last version whose output `target` may have."""
        found, key = {**self.epochs, self.epoch: self.version}, target_key(target)
        for epoch, answered in self.answers.items():
            found[epoch] = max(found.get(epoch, 0), answered.get(key, 0))
        return found

    @property
    def recent(self) -> tuple[PastCommit, ...]:
        """The newest commits, oldest first, which show what is usual for the job. Few steps need them parsed."""
        return from_text(self.recent_text)

    @property
    def identity(self) -> tuple[object, ...]:
        """The identity of this state of the head: every transition changes it."""
        return (
            self.epoch,
            self.version,
            self.fence,
            self.claim.token if self.claim else None,
            self.plan.plan_id if self.plan else None,
            self.last.commit_id if self.last else None,
            # Two operators may release a run at once. If one gets no answer, the head's identity shows whose release
            # is stored. Without the token both look alike: the operator whose write was refused would see a success.
            self.releases[-1].token if self.releases else None,
            # Without these two, heads moved to table A, moved to table B, or only fenced by `doctor` would look alike.
            self.moved_to,
            self.arriving_from,
        )

    @property
    def last_time(self) -> datetime | None:
        """The latest time of a version or committed plan; a new plan's time must be later. None before version 1."""
        return self.planned_at or (self.last.at if self.last else None)

    @property
    def elsewhere(self) -> str | None:
        """The other table that has the job now; None if the job is in this table."""
        return self.moved_to or self.arriving_from

    def is_as_far_as(self, other: Head) -> bool:
        """Return whether two heads are at the same step of a move to another table: not moved, moved or arriving."""
        return (self.moved_to, self.arriving_from) == (other.moved_to, other.arriving_from)

    @property
    def run_id(self) -> str:
        """Return the run whose watermarks are in force; NoWatermarkError before the first commit."""
        if self.last is None or self.last.run_id is None:
            raise NoWatermarkError(self.job_id)
        return self.last.run_id

    @property
    def runs(self) -> int:
        """The number of runs that have succeeded."""
        return self.last.runs if self.last else 0

    @property
    def begun(self) -> int:
        """The number of runs, counting each attempt, that have begun since the last version."""
        if self.last is None:
            return self.fence - len(self.releases)
        return self.fence - self.last.fence

    @property
    def next_batch(self) -> BatchId:
        """Return the id of the batch being worked on, or of the next one."""
        return BatchId(self.job_id, self.epoch, self.version + 1)

    @property
    def log_entry(self) -> LogEntry | None:
        """Return the log entry of this version; None before the first commit."""
        return LogEntry(self.job_id, self.version, self.watermarks, self.last) if self.last else None

    @classmethod
    def first(cls, job_id: str) -> Head:
        """Make the head of a job that has no items yet."""
        return cls(job_id=job_id, epoch=new_epoch(), version=0, fence=0, watermarks={})

    @classmethod
    def imported(
        cls,
        job_id: str,
        run_id: str,
        watermarks: Mapping[str, Any],
        *,
        now: datetime,
        token: str,
        legacy_items: int = 1,
    ) -> Head:
        """Make the head of a job whose version 1 is an item of the original class."""
        metrics = {"legacy_items": legacy_items}
        change = Change("IMPORT", token, now, run_id=run_id, metrics=metrics, fence=0, runs=1, failed=0)
        return replace(cls.first(job_id), version=1, watermarks=dict(watermarks), last=change)

    def explained(self, order: Order) -> Head:
        """Return the head with the author and the reason of its newest version."""
        return replace(self, last=replace(self.last, who=order.who, why=order.why)) if self.last else self

    def claimed(self, run_id: str, *, token: str, now: datetime, lease: timedelta, take_over: bool = False) -> Head:
        """Begin: claim the job, with its open plan if there is one.

        The same run id, or that of the run's automatic retry, may claim again at any time. Another run must wait
        for the end of the lease (RunInProgressError until then), unless `take_over` is set.
        """
        attempt = 1
        # The same run may claim before its lease ends: it is the retry of an attempt that died, and waiting for its own
        # lease would only lose time. If the earlier attempt is alive after all, the higher fence keeps it out.
        if self.claim and same_run(self.claim.run_id, run_id):
            attempt = self.claim.attempt + 1
        elif self.claim and now < self.claim.lease_until and not take_over:
            raise RunInProgressError(self.job_id, self.claim.run_id, self.claim.lease_until)
        now = now.astimezone(timezone.utc)
        return replace(self, fence=self.fence + 1, claim=Claim(run_id, token, attempt, now + lease, now, lease))

    def renewed(self, lease_until: datetime) -> Head:
        """Heartbeat: extend the lease (`claim`) of the run that holds the job."""
        if self.claim is None:
            return self
        return replace(self, claim=replace(self.claim, lease_until=lease_until.astimezone(timezone.utc)))

    def planned(self, plan: Plan) -> Head:
        """Freeze: store the plan, once. PlanConflictError if another plan is open, or no run holds the job."""
        if self.claim is None:
            raise PlanConflictError(self.job_id, "no run has the job, so no plan can be frozen. Call begin first.")
        # Freezing the same plan again changes nothing, so it is not a conflict.
        if self.plan is not None and self.plan != plan:
            raise PlanConflictError(
                self.job_id,
                f"plan {self.plan.plan_id} of version {self.version + 1} is frozen and another one was given. "
                "Work through the frozen plan (run.plan), commit it, then begin again.",
            )
        return replace(self, plan=plan)

    def amended(self, plan: Plan) -> Head:
        """Replace the frozen plan by one without unreadable files. PlanConflictError if no plan is frozen.

        The batch may keep its id: no commit names it yet, and staged output counts only if a commit names it. With a
        new id, a custom sink that replaces batches by id would keep rows that were written for the first plan.
        """
        if self.claim is None or self.plan is None:
            raise PlanConflictError(self.job_id, "there is no frozen plan to amend. Call freeze first.")
        # Keep the plan's time: the first attempt may have written to a partition that is named after that time.
        return replace(self, plan=replace(plan, at=self.plan.at, later=self.plan.later))

    def committed(
        self, *, token: str, now: datetime, metrics: Mapping[str, Any] | None = None, outputs: Outputs = ()
    ) -> Head:
        """Commit: the plan's `next` becomes the watermarks, and the run's lease (`claim`) ends.

        `outputs` is what this attempt staged, which becomes the output of the version.
        """
        if self.plan is None or self.claim is None:
            raise PlanConflictError(self.job_id, "there is no frozen plan to commit. Call freeze first.")
        change = Change(
            op="COMMIT",
            commit_id=token,
            at=now.astimezone(timezone.utc),
            run_id=self.claim.run_id,
            plan_id=self.plan.plan_id,
            attempt=self.claim.attempt,
            previous_run_id=self._run_in_force,
            started_at=self.claim.since,
            metrics=dict(metrics or {}),
            fence=self.fence,
            runs=self.runs + 1,
            failed=self.begun - 1,
            outputs=outputs,
            releases=self.releases,
        )
        return replace(
            self,
            version=self.version + 1,
            watermarks=self.plan.next,
            last=change,
            claim=None,
            plan=None,
            unpublished=self.unpublished + outputs,
            releases=(),
            recent_text=with_commit(self.recent_text, change.at, change.metrics),
            failure=None,
            planned_at=_later_time(self.plan.later or self.plan.at, change.at),
        )

    def published(self, outputs: Outputs, lacks_after: int | None = None) -> Head:
        """Remove published output from `unpublished`; add it to `at_targets`, the output that targets must have.

        `lacks_after`: if a target has lost versions, the last version that it still has, kept for `doctor`; else None.
        """
        head = replace(self, unpublished=tuple(output for output in self.unpublished if output not in outputs))
        for output in filter(lambda output: output.has_rows, outputs):
            others = head.forgotten(output.target).at_targets
            lacks = [one.lacks_after for one in head.at_targets if one not in others]
            first = min((last for last in (lacks_after, *lacks) if last is not None), default=None)
            head = replace(head, at_targets=(*others, replace(output, lacks_after=first))[-MOST_TARGETS:])
        while len(json.dumps([one.record() for one in head.at_targets])) > MAX_TARGETS_LENGTH:
            head = replace(head, at_targets=head.at_targets[1:])
        return head

    def forgotten(self, target: str) -> Head:
        """Forget what a target must have, because an operator emptied or deleted it; nothing else changes."""
        key = target_key(target)
        return replace(self, at_targets=tuple(one for one in self.at_targets if target_key(one.target) != key))

    def taken_back(self, retractions: tuple[Retraction, ...]) -> Head:
        """Remove retractions whose output is gone and cannot be written again by a late run; nothing else changes."""
        return replace(self, retracting=tuple(one for one in self.retracting if one not in retractions))

    def released(self, *, is_run: bool = True, failure: str | None = None) -> Head:
        """End the lease; the plan stays. If an operator's call held it (not `is_run`), `begun` omits that call."""
        if not is_run:
            return replace(self, claim=None, last=self.fenced().last)
        return replace(self, claim=None, failure=failure)

    # --- decisions of operators: from any state; version and fence grow, the plan is dropped -----

    def rewound(
        self, entry: LogEntry, order: Order, context: str | None = None, outputs: Outputs = (), *, retract: bool = False
    ) -> Head:
        """Go back to the watermarks of an earlier version, all of them or those of one context.

        `outputs` is the output of later versions that the history has; with `retract`, all of it is deleted from its
        targets. InvalidValueError for a version whose output was taken back: its watermarks would count rows as loaded
        that are no longer at a target.
        """
        for first, last in self.retracted:
            if first <= entry.version <= last:
                remedy = f"Rewind to version {first - 1} or before" if first > 1 else "Reset the job"
                raise InvalidValueError(
                    f"{remedy}, and let the job read them again.",
                    reason="retracted", job_id=self.job_id, version=entry.version, first=first, last=last,
                )  # fmt: skip
        if context is None:
            after = self._decided("REWIND", entry.watermarks, order, entry.change.run_id)
            after = replace(after, at_targets=self._at_targets_of(entry))
            return self._without_output(after, entry.version, outputs, retract, order)
        watermarks = dict(self.watermarks)
        watermarks.pop(context, None)
        if context in entry.watermarks:
            watermarks[context] = entry.watermarks[context]
        return self._decided("REWIND", watermarks, order, self._run_in_force)

    def reset(self, order: Order, context: str | None = None, outputs: Outputs = (), *, retract: bool = False) -> Head:
        """Forget all watermarks, or those of one context, which the next run reads from the start. See `rewound`."""
        if context is None:
            after = replace(self._decided("RESET", {}, order, None), at_targets=())
            return self._without_output(after, 0, outputs, retract, order)
        watermarks = {name: value for name, value in self.watermarks.items() if name != context}
        return self._decided("RESET", watermarks, order, self._run_in_force)

    def declared(self, values: Mapping[str, Any], order: Order, context: str | None = None) -> Head:
        """Set the watermarks by hand, all of them or those of one context."""
        watermarks = dict(values) if context is None else {**self.watermarks, context: dict(values)}
        return self._decided("SET", watermarks, order, self._run_in_force)

    def discarded(self, order: Order) -> Head:
        """Drop the open plan; the next run makes a new one from the same watermarks."""
        if self.plan is None:
            raise PlanConflictError(self.job_id, "there is no open plan to discard.")
        return self._decided("DISCARD", self.watermarks, order, self._run_in_force)

    def restored(self, order: Order, seen: Seen, taken: tuple[Retraction, ...] = (), back: Head | None = None) -> Head:
        """Start a new epoch after the table came back from a backup, so that no batch id is used twice.

        `seen` are versions at the targets that this head does not know, and `taken` retracts some of them. `back` is
        the head after `rewound` or `reset`, if the watermarks cover rows that are gone.
        """
        decided = back or self._decided("SET", self.watermarks, order, self._run_in_force)
        # Set the new epoch first, to make the old one a former epoch: `answers` has targets' versions of only these.
        taken = (*decided.retracting[len(self.retracting) :], *taken)
        epochs = {**self.epochs, self.epoch: self.version}
        after = replace(decided, epoch=new_epoch(), epochs=epochs, retracting=self.retracting)
        found = [(target, epoch, last) for target, by_epoch in seen.items() for epoch, last in by_epoch.items()]
        return after._answered(found)._retracting(taken)

    def freed(self, order: Order) -> Head:
        """Release: end the lease (`claim`) of a dead run, so that the next run may begin at once and replay its plan.

        The fence grows: if the run is alive after all, it can no longer change anything.
        """
        if self.claim is None:
            return self
        release = Release(self.claim.run_id, order.at.astimezone(timezone.utc), order.who, order.why, order.token)
        # Unlike all other decisions, a release makes no version. A batch id is (job, epoch, version): with another
        # version the next run would write the rows of the open plan under another id, and a sink that already has them
        # from the dead run would store them twice. The log has one entry for each version, so there is none for the
        # release: the head keeps who released the run and why, until the next version's entry takes them.
        return replace(self.fenced(), claim=None, releases=(*self.releases, release)[-MOST_RELEASES:])

    def fenced(self) -> Head:
        """Raise the fence and nothing else: every writer that has read the head before is refused.

        The last version's fence grows, too: `begun`, the difference of both fences, stays. Without a version it grows.
        """
        last = self.last
        return replace(self, fence=self.fence + 1, last=replace(last, fence=last.fence + 1) if last else None)

    def moved(self, to: str) -> Head:
        """Move the job to another table: from now on every write of a run or a decision here is refused.

        The open plan moves too, and the next run there replays it under the same batch id.
        """
        return replace(self.fenced(), claim=None, moved_to=to)

    def arriving(self, source: str, there: Head | None) -> Head:
        """Announce the job in the table that it is copied to: until the copy is complete, the job is at `source`."""
        return replace(self.arrived(there), claim=None, arriving_from=source)

    def arrived(self, there: Head | None) -> Head:
        """Complete the move from another table; `there` is the head that the new table kept from an earlier stay.

        The job keeps its epoch, so that targets recognize the batches that they have. The epochs of the earlier stay
        are kept too, because targets may have output of them.
        """
        former, fence = ({}, 0) if there is None else ({**there.epochs, there.epoch: there.version}, there.fence)
        epochs = {epoch: last for epoch, last in {**former, **self.epochs}.items() if epoch != self.epoch}
        stay = {} if there is None else there.answers
        answers = {epoch: {**stay.get(epoch, {}), **self.answers.get(epoch, {})} for epoch in {**stay, **self.answers}}
        answers.pop(self.epoch, None)
        # Keep the higher fence: with a lower one, runs from the job's earlier stay in the table could write again.
        fence = max(fence, self.fence)
        return replace(self, moved_to=None, arriving_from=None, epochs=epochs, answers=answers, fence=fence)

    def has_retracted(self, version: int) -> bool:
        """Return whether an operator's rewind or reset took back a version's output."""
        return any(first <= version <= last for first, last in self.retracted)

    def keeps(self, output: Output) -> bool:
        """Return whether an output stays at its target: no retraction in `retracting` deletes its rows."""
        taken = (one for one in self.retracting if (one.target, one.epoch) == (output.target, output.epoch))
        return not output.is_retractable or not any(one.covers(output.version) for one in taken)

    def _at_targets_of(self, entry: LogEntry) -> Outputs:
        """Return `at_targets` after a rewind to `entry`. Targets need no later versions: runs read their rows again."""
        version, kept = entry.version, []
        for one in self.at_targets:
            lacks = one.lacks_after if one.lacks_after is not None and one.lacks_after < version else None
            # Drop an output above `version`, but keep it for `doctor` if its target has lost versions before `version`.
            if one.version <= version or lacks is not None:
                kept.append(replace(one, version=min(one.version, version), lacks_after=lacks))
        left = tuple(output for output in entry.change.outputs if output not in self.unpublished)
        return replace(self, at_targets=tuple(kept)).published(left).at_targets

    def _without_output(self, after: Head, version: int, outputs: Outputs, retract: bool, order: Order) -> Head:
        """With `retract`, retract all output above `version`; else only output of versions not fully published."""
        unseen = tuple(output for output in self.unpublished if output.version > version)
        # A version with unpublished output is read again: retract its output at other targets, or rows arrive twice.
        waiting = {(output.epoch, output.version) for output in unseen}
        partly = tuple(
            output for output in outputs if (output.epoch, output.version) in waiting and output.is_retractable
        )
        asked = outputs if retract else ()
        if not asked and not unseen:
            return after
        at = order.at.astimezone(timezone.utc)
        retractions = make_retractions(asked, (*unseen, *partly), version, self.last_versions, at)
        gone = ((min(one.first for one in retractions), self.version),) if retractions else ()
        unpublished = tuple(output for output in self.unpublished if output not in unseen)
        return replace(after, unpublished=unpublished, retracted=(*self.retracted, *gone))._retracting(retractions)

    def _retracting(self, retractions: tuple[Retraction, ...]) -> Head:
        # Targets will record version `closed` (last + 1). Allow it in a former epoch, or runs would refuse the targets.
        closed = [(one.target, one.epoch, one.closed) for one in retractions if one.epoch != self.epoch]
        return replace(self, retracting=(*self.retracting, *retractions))._answered(closed)

    def _answered(self, found: Sequence[tuple[str, str, int]]) -> Head:
        """Allow, in `answers`, that a target in `found` has versions of the given former epoch up to the given one."""
        answers = {epoch: dict(answered) for epoch, answered in self.answers.items()}
        for target, epoch, last in found:
            answered, key = answers.setdefault(epoch, {}), target_key(target)
            answered[key] = max(last, answered.get(key, 0))
        # Drop older epochs to limit the head's size. Runs refuse the dropped targets until an operator allows them.
        for epoch in self.answers.keys() - {epoch for _, epoch, _ in found}:
            if sum(map(len, answers.values())) > MOST_ANSWERS:
                del answers[epoch]
        return replace(self, answers=answers)

    @property
    def _run_in_force(self) -> str | None:
        return self.last.run_id if self.last else None

    def _decided(self, op: str, watermarks: Mapping[str, Any], order: Order, run_id: str | None) -> Head:
        change = Change(
            op=op,
            commit_id=order.token,
            at=order.at.astimezone(timezone.utc),
            run_id=run_id,
            why=order.why,
            who=order.who,
            previous_run_id=self._run_in_force,
            fence=self.fence + 1,
            runs=self.runs,
            failed=0,
            releases=self.releases,
        )
        return replace(
            self,
            version=self.version + 1,
            fence=self.fence + 1,
            watermarks=watermarks,
            last=change,
            claim=None,
            plan=None,
            releases=(),
            failure=None,
            planned_at=_later_time(self.last_time, change.at),
        )


def _later_time(moment: datetime | None, other: datetime) -> datetime | None:
    return moment if moment is not None and moment > other else None
