"""The head of a job, its plan and its log, and the legal next states of each. Pure.

The head is the only authority. Each method that returns a new `Head` is one transition of the
protocol; the caller makes it durable with one write that is conditional on the head it came from::

     none ──first──> idle v ──claimed──> claimed v,f+1 ──planned──> planned v,f,plan ──committed──> idle v+1
                       ^                     │                          │  claimed by another run, lease over:
                       └────── released ─────┴──────────────────────────┘  f+1, the plan is inherited

    amended: from planned, by the run that has the job; another plan takes its place, and nothing else changes
    rewound, reset, declared, discarded, restored: from any state; v+1, f+1, the plan is gone
    freed: from claimed and planned, by a person, as the run is dead; f+1, the claim is gone, the plan stays
    fenced: from any state, before something is deleted; f+1 and nothing else
    moved: from any state, when the job goes to another table; f+1, the claim is gone, and nothing comes after it here
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.display.units import printable
from scripts.helpers.errors import NoWatermarkError, PlanConflictError, RetractedError, RunInProgressError
from scripts.helpers.protocol.names import BatchId, new_epoch, same_run
from scripts.helpers.protocol.outputs import Output, Retraction, retracted_of, target_key
from scripts.helpers.protocol.recent import PastCommit, with_commit

SUCCESS = ("COMMIT", "IMPORT")
"""What a change is called when it ends a run well; a run item is kept for each."""


Outputs = tuple[Output, ...]
"""What an attempt staged, one for each target."""

Seen = Mapping[str, Mapping[str, int]]
"""The last versions that targets have recorded, by target and epoch."""

MOST_RELEASES = 5
"""Releases that a version keeps, the newest ones: their texts are the largest part of a head that no limit of values
holds, and more of them between two versions are a job that needs another remedy."""

MOST_ANSWERS = 2_000
"""Answers after restores that a head keeps, in about 40 KB; only those of one decision may be more."""

MOST_TARGETS, MAX_TARGETS_LENGTH = 16, 48_000
"""Targets that `Head.at_targets` keeps, those published to last, and the length of their records together. 16 records
of a target and a staging place of 1,000 characters each fit."""


@dataclass(frozen=True)
class Claim:
    """Who works on the job, and until when the right to do so lasts."""

    run_id: str
    token: str
    attempt: int
    lease_until: datetime
    since: datetime
    lease: timedelta | None = None
    """From a begin or a heartbeat to `lease_until`; None if what is stored is implausible."""

    @property
    def last_beat(self) -> datetime | None:
        """When the run last renewed its lease, or else began; None where the length of the lease was not kept."""
        return None if self.lease is None else self.lease_until - self.lease


@dataclass(frozen=True, repr=False)
class Plan:
    """One batch, frozen before the source is read, with the watermarks that follow it."""

    plan_id: str
    contexts: Mapping[str, Any]
    """What to take, by context: the bounds of rows or the list of files."""
    next: Mapping[str, Any]
    """The job's whole `watermarks` after the commit; never recomputed from what was read."""
    at: datetime
    """When it was frozen."""
    later: datetime | None = None
    """The time that scripts see in place of `at`, where the clock was not past the time of the last version."""

    def __repr__(self) -> str:
        return f"<Plan {self.plan_id}: contexts {', '.join(sorted(self.contexts)) or 'none'}>"


@dataclass(frozen=True)
class Order:
    """A person's decision about a job: who takes it and why, and the token that marks its write."""

    who: str
    why: str
    at: datetime
    token: str


@dataclass(frozen=True)
class Release:
    """The end of a run's claim by a person, who takes the run for dead."""

    run_id: str
    at: datetime
    who: str
    why: str
    token: str


@dataclass(frozen=True)
class Change:
    """What made a version: who, when, why, and what it counted.

    `run_id` is the run whose watermarks are in force from then on: after a rewind that of the
    version gone back to, after a reset none. `fence` is that of the head, `runs` how many runs have
    succeeded so far, `failed` how many began since the version before and did not commit.
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
    """What the run left for each of its targets; the version stands for this attempt's output and no other."""
    releases: tuple[Release, ...] = ()
    """Claims that people ended since the version before, the newest few, oldest first."""


@dataclass(frozen=True, repr=False)
class LogEntry:
    """One version of a job as the history keeps it."""

    job_id: str
    version: int
    watermarks: Mapping[str, Any]
    change: Change

    @property
    def duration(self) -> timedelta | None:
        """Time from the begin of the run to its commit; None for what no run did."""
        return self.change.at - self.change.started_at if self.change.started_at else None

    def __repr__(self) -> str:
        metrics = sorted(self.change.metrics.items())
        counts = "".join(f" {name}={count}" for name, count in metrics if not isinstance(count, Mapping))
        at = self.change.at.strftime("%Y-%m-%d %H:%M:%SZ")
        why = f" who={self.change.who!r} why={self.change.why!r}" if self.change.who else ""
        return printable(f"<v{self.version} {self.change.op} {at} run={self.change.run_id}{counts}{why}>")


@dataclass(frozen=True, repr=False)
class Head:
    """What is committed for a job, and what is open.

    `version` grows by one at every commit and never goes down; `fence` grows at every `claimed`.
    `unpublished` is committed output that readers of its target may not see yet. Every transition
    carries it along, decisions as well: it is what a publisher that died left to the next one. `retracting`
    is output that a decision took back and that may be at its target still; each run that begins deletes it
    before it plans. `retracted` are the versions, from and to, whose output is gone: none can be gone back to.
    `epochs` are the former epochs of the job, each with its last version: output of them may wait still.
    `answers` are later versions of them that a person has answered for after a restore, by epoch and `target_key`: they
    count for these targets and no other. Older items have them in `epochs`, where they count for all.
    `releases` are the claims that people ended since the last version; the next version takes them into the history.
    `recent` are the newest commits, oldest first, from which what is usual for the job is learned.
    `logged` is the newest version whose log entry was there when the head was written, as far as that was kept.
    `planned_at` is the latest time that scripts saw as that of a plan, where it is after `last`.
    `at_targets` is what each target must have: the output with rows that was published there last, except for what was
    taken back or is read again. The target that was published to last comes last.
    `failure` is the error of the run that last failed since the last version, where it was raised to its end.
    `moved_to` is the table that has the job since, and `arriving_from` the one that has it until its copy here is
    whole; nothing may begin or change where one of the two is named.
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
    recent: tuple[PastCommit, ...] = ()
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
        """The epochs of the job, each with its last version at any target."""
        found = {**self.epochs, self.epoch: self.version}
        for epoch, answered in self.answers.items():
            found[epoch] = max(found.get(epoch, 0), *answered.values())
        return found

    def last_versions_at(self, target: str) -> Mapping[str, int]:
        """Return the epochs of the job, each with the last version that may be at one target."""
        found, key = {**self.epochs, self.epoch: self.version}, target_key(target)
        for epoch, answered in self.answers.items():
            found[epoch] = max(found.get(epoch, 0), answered.get(key, 0))
        return found

    @property
    def identity(self) -> tuple[object, ...]:
        """Tell two states of a head apart: every transition leaves another identity behind."""
        return (
            self.epoch,
            self.version,
            self.fence,
            self.claim.token if self.claim else None,
            self.plan.plan_id if self.plan else None,
            self.last.commit_id if self.last else None,
            # Two people may release the same run at once. Without this the second would take the first one's write for
            # its own, whose answer was lost, and believe that its reason is kept.
            self.releases[-1].token if self.releases else None,
            # Two copies to two tables leave the rest alike, and so does a doctor who fences.
            self.moved_to,
            self.arriving_from,
        )

    @property
    def last_time(self) -> datetime | None:
        """The latest time that scripts may have seen as that of a committed plan; None before the first version."""
        return self.planned_at or (self.last.at if self.last else None)

    @property
    def elsewhere(self) -> str | None:
        """The table that has the job instead of this one; None where it is here."""
        return self.moved_to or self.arriving_from

    def is_as_far_as(self, other: Head) -> bool:
        """Tell whether two heads are at the same step of a copy."""
        return (self.moved_to, self.arriving_from) == (other.moved_to, other.arriving_from)

    @property
    def run_id(self) -> str:
        """Return the run whose watermarks are in force; NoWatermarkError before the first commit."""
        if self.last is None or self.last.run_id is None:
            raise NoWatermarkError(self.job_id)
        return self.last.run_id

    @property
    def runs(self) -> int:
        """How many runs have succeeded."""
        return self.last.runs if self.last else 0

    @property
    def begun(self) -> int:
        """How many runs, or attempts of one, have begun since the last version."""
        if self.last is None:
            return self.fence - len(self.releases)
        return self.fence - self.last.fence

    @property
    def next_batch(self) -> BatchId:
        """Return the id of the batch being worked on, or of the next one."""
        return BatchId(self.job_id, self.epoch, self.version + 1)

    @property
    def log_entry(self) -> LogEntry | None:
        """Return what the log must hold for this version; None before the first commit."""
        return LogEntry(self.job_id, self.version, self.watermarks, self.last) if self.last else None

    @classmethod
    def first(cls, job_id: str) -> Head:
        """Make the head of a job that nothing is known of."""
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
        """Make the head of a job that takes over an item of the original class, as version 1."""
        metrics = {"legacy_items": legacy_items}
        change = Change("IMPORT", token, now, run_id=run_id, metrics=metrics, fence=0, runs=1, failed=0)
        return replace(cls.first(job_id), version=1, watermarks=dict(watermarks), last=change)

    def explained(self, order: Order) -> Head:
        """Say of the newest version who made it and why."""
        return replace(self, last=replace(self.last, who=order.who, why=order.why)) if self.last else self

    def claimed(self, run_id: str, *, token: str, now: datetime, lease: timedelta, take_over: bool = False) -> Head:
        """Begin: take the job, with its open plan if there is one.

        The same run id, or that of the run's automatic retry, re-enters at any time. Another one waits
        for the end of the lease (RunInProgressError until then), unless a take-over is ordered.
        """
        attempt = 1
        # The same run enters before its lease is over: it is the retry of an attempt that died, and to wait for its own
        # lease would only lose time. The fence below keeps the earlier attempt out, should it be alive after all.
        if self.claim and same_run(self.claim.run_id, run_id):
            attempt = self.claim.attempt + 1
        elif self.claim and now < self.claim.lease_until and not take_over:
            raise RunInProgressError(self.job_id, self.claim.run_id, self.claim.lease_until)
        now = now.astimezone(timezone.utc)
        return replace(self, fence=self.fence + 1, claim=Claim(run_id, token, attempt, now + lease, now, lease))

    def renewed(self, lease_until: datetime) -> Head:
        """Heartbeat: the same claim with a later end of its lease."""
        if self.claim is None:
            return self
        return replace(self, claim=replace(self.claim, lease_until=lease_until.astimezone(timezone.utc)))

    def planned(self, plan: Plan) -> Head:
        """Freeze: store the plan, once. PlanConflictError if another one is open, or no run has the job."""
        if self.claim is None:
            raise PlanConflictError(self.job_id, "no run has the job, so no plan can be frozen. Call begin first.")
        # The same plan again is no conflict: to freeze twice changes nothing.
        if self.plan is not None and self.plan != plan:
            raise PlanConflictError(
                self.job_id,
                f"plan {self.plan.plan_id} of version {self.version + 1} is frozen and another one was given. "
                "Work through the frozen plan (run.plan), commit it, then begin again.",
            )
        return replace(self, plan=plan)

    def amended(self, plan: Plan) -> Head:
        """Replace the frozen plan by one without files that cannot be read. PlanConflictError if none is open.

        The batch keeps its id: nothing of it is committed, and what an attempt staged counts only by a commit that
        names it. A sink of the user's own that replaces a batch by its id would else keep what the first plan left.
        """
        if self.claim is None or self.plan is None:
            raise PlanConflictError(self.job_id, "there is no frozen plan to amend. Call freeze first.")
        return replace(self, plan=plan)

    def committed(
        self, *, token: str, now: datetime, metrics: Mapping[str, Any] | None = None, outputs: Outputs = ()
    ) -> Head:
        """Commit: the plan's own `next` becomes the watermarks, the job is let go.

        `outputs` is what this attempt staged. From here on it is what the version stands for.
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
            recent=with_commit(self.recent, change.at, change.metrics),
            failure=None,
            planned_at=_if_after(self.plan.later or self.plan.at, change.at),
        )

    def published(self, outputs: Outputs, lacks_after: int | None = None) -> Head:
        """Take output that is published off the list, and keep it as what its target must have.

        `lacks_after` is the last version that the target had, if it lacked later ones.
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
        """Forget what a target must have, as a person has emptied or deleted it; nothing else changes."""
        key = target_key(target)
        return replace(self, at_targets=tuple(one for one in self.at_targets if target_key(one.target) != key))

    def taken_back(self, retractions: tuple[Retraction, ...]) -> Head:
        """Take retractions off the list that nobody can undo any more; nothing else changes."""
        return replace(self, retracting=tuple(one for one in self.retracting if one not in retractions))

    def released(self, *, is_run: bool = True, failure: str | None = None) -> Head:
        """Abort: let go of the job; the plan stays for the next run. What was not a run is not counted in `begun`."""
        if not is_run:
            return replace(self, claim=None, last=self.fenced().last)
        return replace(self, claim=None, failure=failure)

    # --- decisions of people: from any state; version and fence grow, the plan is gone -----------

    def rewound(
        self, entry: LogEntry, order: Order, context: str | None = None, outputs: Outputs = (), *, retract: bool = False
    ) -> Head:
        """Go back to the watermarks of an earlier version, all of them or those of one context.

        `outputs` are those of later versions, as far as the history has them, and `retract` is whether all of them go
        from their targets. RetractedError for a version whose output is gone: its watermarks stand for rows that are
        no longer at a target.
        """
        for first, last in self.retracted:
            if first <= entry.version <= last:
                raise RetractedError(self.job_id, entry.version, first, last)
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
        """Forget everything, or one context: the next run starts there as on a first run. Output as of `rewound`."""
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

        `seen` is what this head does not know, and `taken` what of it is taken back. `back` is what `rewound` or
        `reset` has made of this head, where the watermarks stand for rows that are gone.
        """
        decided = back or self._decided("SET", self.watermarks, order, self._run_in_force)
        # Its retractions are of an epoch that is a former one from here on.
        taken = (*decided.retracting[len(self.retracting) :], *taken)
        epochs = {**self.epochs, self.epoch: self.version}
        after = replace(decided, epoch=new_epoch(), epochs=epochs, retracting=self.retracting)
        found = [(target, epoch, last) for target, by_epoch in seen.items() for epoch, last in by_epoch.items()]
        return after._answered(found)._retracting(taken)

    def freed(self, order: Order) -> Head:
        """Release: end the claim of a run that is dead, so that the next run may begin at once and replay its plan.

        The fence grows: should the run live after all, it can change nothing any more.
        """
        if self.claim is None:
            return self
        release = Release(self.claim.run_id, order.at.astimezone(timezone.utc), order.who, order.why, order.token)
        # No version is made, unlike by all other decisions. A batch id is (job, epoch, version): with another version
        # the next run would write the rows of the open plan under another id, and a sink that has them from the dead
        # run would take them twice. The log has one entry for each version and none in between. So who and why wait
        # in the head, which is the same one write, and the log entry of the next version has them.
        return replace(self.fenced(), claim=None, releases=(*self.releases, release)[-MOST_RELEASES:])

    def fenced(self) -> Head:
        """Raise the fence and nothing else: whoever has read the head before can write nothing on it any more.

        It is no begin of a run, so `begun` stays what it was, but for a job that has no version yet.
        """
        last = self.last
        return replace(self, fence=self.fence + 1, last=replace(last, fence=last.fence + 1) if last else None)

    def moved(self, to: str) -> Head:
        """Give the job to another table: who has read the head before can write nothing on it, and nobody after.

        The open plan goes along, and the next run there replays it under the same batch id.
        """
        return replace(self.fenced(), claim=None, moved_to=to)

    def arriving(self, source: str, there: Head | None) -> Head:
        """Announce the job at the table that it is copied to: until all of it is there, `source` has it."""
        return replace(self.arrived(there), claim=None, arriving_from=source)

    def arrived(self, there: Head | None) -> Head:
        """Take the job over from another table, in the place of what this one has kept of an earlier stay.

        It keeps its epoch, so that a target knows the batches that it has. Those of the earlier stay are named, too:
        the target may have output of them.
        """
        former, fence = ({}, 0) if there is None else ({**there.epochs, there.epoch: there.version}, there.fence)
        epochs = {epoch: last for epoch, last in {**former, **self.epochs}.items() if epoch != self.epoch}
        stay = {} if there is None else there.answers
        answers = {epoch: {**stay.get(epoch, {}), **self.answers.get(epoch, {})} for epoch in {**stay, **self.answers}}
        answers.pop(self.epoch, None)
        # Not below that of an earlier stay: runs of then would be let in again.
        fence = max(fence, self.fence)
        return replace(self, moved_to=None, arriving_from=None, epochs=epochs, answers=answers, fence=fence)

    def has_retracted(self, version: int) -> bool:
        """Return whether decisions took back what a version left at targets."""
        return any(first <= version <= last for first, last in self.retracted)

    def keeps(self, output: Output) -> bool:
        """Return whether nothing that was decided takes the rows of an output from its target."""
        taken = (one for one in self.retracting if (one.target, one.epoch) == (output.target, output.epoch))
        return not output.is_retractable or not any(one.covers(output.version) for one in taken)

    def _at_targets_of(self, entry: LogEntry) -> Outputs:
        """Return what targets must have at a version that is gone back to: the rows of later ones are read again."""
        version, kept = entry.version, []
        for one in self.at_targets:
            lacks = one.lacks_after if one.lacks_after is not None and one.lacks_after < version else None
            # No item says which earlier version was the last one at this target, so only a known loss is kept.
            if one.version <= version or lacks is not None:
                kept.append(replace(one, version=min(one.version, version), lacks_after=lacks))
        left = tuple(output for output in entry.change.outputs if output not in self.unpublished)
        return replace(self, at_targets=tuple(kept)).published(left).at_targets

    def _without_output(self, after: Head, version: int, outputs: Outputs, retract: bool, order: Order) -> Head:
        """Take back output of versions above `version`: all of it, or that of versions not wholly published."""
        unseen = tuple(output for output in self.unpublished if output.version > version)
        # The rows of such a version are read again for all of its targets, also for those where they are already.
        waiting = {(output.epoch, output.version) for output in unseen}
        partly = tuple(
            output for output in outputs if (output.epoch, output.version) in waiting and output.is_retractable
        )
        asked = outputs if retract else ()
        if not asked and not unseen:
            return after
        at = order.at.astimezone(timezone.utc)
        retractions = retracted_of(asked, (*unseen, *partly), version, self.last_versions, at)
        gone = ((min(one.first for one in retractions), self.version),) if retractions else ()
        unpublished = tuple(output for output in self.unpublished if output not in unseen)
        return replace(after, unpublished=unpublished, retracted=(*self.retracted, *gone))._retracting(retractions)

    def _retracting(self, retractions: tuple[Retraction, ...]) -> Head:
        # A table records a retraction under the version after the last one, which no batch of a former epoch has.
        closed = [(one.target, one.epoch, one.closed) for one in retractions if one.epoch != self.epoch]
        return replace(self, retracting=(*self.retracting, *retractions))._answered(closed)

    def _answered(self, found: Sequence[tuple[str, str, int]]) -> Head:
        """Keep the last versions of former epochs, by target and epoch, that are settled there."""
        answers = {epoch: dict(answered) for epoch, answered in self.answers.items()}
        for target, epoch, last in found:
            answered, key = answers.setdefault(epoch, {}), target_key(target)
            answered[key] = max(last, answered.get(key, 0))
        # Without its answer a target is asked again, and so is the person: nothing comes twice by that.
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
            planned_at=_if_after(self.last_time, change.at),
        )


def _if_after(moment: datetime | None, other: datetime) -> datetime | None:
    return moment if moment is not None and moment > other else None
