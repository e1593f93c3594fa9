"""What follows from what happened to a job's runs: lost ones ended, retries and triggers made, free slots given out."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from scripts.helpers.errors import CorruptItemError, InvalidValueError, NewerFormatError, WatermarkError
from scripts.helpers.job_runs import ids
from scripts.helpers.job_runs.job_record import A_WORKER, MAX_WAITING, Entry, JobRecord
from scripts.helpers.job_runs.run_record import AT_WORK, CLOCK_MARGIN, RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.protocol.names import is_file
from scripts.helpers.protocol.races import Written

logger = logging.getLogger(__name__)

START_LEASE = timedelta(seconds=60)
"""For how long a run may be without a sign of its launcher after it was given a slot. Longer than a slow machine takes
to start a Python, or runs that are about to begin would be given up."""
MAX_STEPS = 500
"""Triggers read and runs started by them, after which the ended runs of a job wait for the next pass: it may have any
number of both, and other jobs wait meanwhile. The end of one run takes no more, either."""


class Engine(Protocol):
    """What starts a run that has a slot: a launcher of ours, which writes how it ends."""

    def launch(self, run: RunRecord, shared: Mapping[str, Any]) -> str | None:
        """Start the run; OSError if that fails, a WatermarkError if the engine does not run such a run.

        Returns what names it where the engine supervises, and None where a launcher writes that itself.
        """


@runtime_checkable
class Supervisor(Engine, Protocol):
    """An engine whose cluster watches the run, so that a worker has to ask for its state."""

    def look(self, run: RunRecord, now: datetime) -> RunRecord | None:
        """Return the run as it is there, None if that is unknown; nothing is changed."""

    def cancel(self, run: RunRecord) -> None:
        """End a run that is there; again it does no harm."""


@dataclass
class _Pass:
    """One look at some jobs: those whose runs may be started, those that got runs by triggers, and what was started.

    Of the job at hand: the `steps` taken, of `MAX_STEPS`, and which runs use their slots.
    """

    starts: frozenset[str] = frozenset()
    triggered: set[str] = field(default_factory=set)
    on_start: Callable[[RunRecord], None] = lambda _: None
    steps: int = 0
    busy: set[str] = field(default_factory=set)


class Scheduler:
    """Brings the runs of a job up to date. Everything it does may be done twice, by many at once, or by the next one.

    Whoever may write the items of a job decides what is in its lists and records. So nothing here
    starts a run, but `tend` for the names that it is given, and `launch` and `start` for one run.

    Parameters
    ----------
    engine
        None: `tend` ends and queues runs; slots are given out, and runs started, by somebody else.
    queue_time
        How long a run waits for a slot before it has EXPIRED.

    Attributes
    ----------
    timer
        Seconds on a clock that nobody sets. Leases of others are measured by it.
    """

    def __init__(
        self,
        records: RunStore,
        engine: Engine | None,
        clock: Callable[[], datetime],
        queue_time: timedelta,
    ) -> None:
        self.records, self.engine, self.clock, self.queue_time = records, engine, clock, queue_time
        self.timer: Callable[[], float] = time.monotonic
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}

    def settings(self) -> dict[str, Any]:
        """Return what makes another process look after the same runs in the same way; plain enough for JSON."""
        store = self.records.store
        meta = store.client and store.client.meta
        return {
            # Another process may be in another folder.
            "table": store.table.place if is_file(store.table_name) else store.table_name,
            "region": meta and meta.region_name,
            "endpoint": meta and meta.endpoint_url,
            "queue_seconds": self.queue_time.total_seconds(),
            "keep_seconds": self.records.keep and self.records.keep.total_seconds(),
        }

    def tend(self, job_names: Collection[str], on_start: Callable[[RunRecord], None]) -> None:
        """Do a worker's work on some jobs: all that has to follow by now, and start what has a slot.

        Runs that triggers make of other jobs are queued there, and wait for a worker of theirs.
        One job that cannot be looked after does not keep the others waiting: its WatermarkError is raised in the end.
        """
        look, failure = _Pass(frozenset(job_names), on_start=on_start), list[WatermarkError]()
        todo = sorted(look.starts)
        # A second time those whose runs were triggered after their turn. What comes of that is for the next pass: runs
        # that are written as if they had ended, and trigger each other, must not keep the other jobs waiting.
        for _ in range(2):
            for name in todo:
                look.triggered.discard(name)
                try:
                    self._tend(name, (), look)
                except WatermarkError as error:
                    logger.warning("event=tend_failed job=%s error=%s: %s", name, type(error).__name__, error)
                    failure.append(error)
            todo = sorted(look.triggered)
        if failure:
            raise failure[0]

    def settle(self, job_name: str, looked_at: Collection[str] = ()) -> JobRecord | None:
        """Do what has to follow for a job, and start nothing: ended runs leave their slots, retries wait in them.

        Of the runs that wait, those are read that are due to expire or `looked_at`.
        """
        return self._tend(job_name, looked_at, _Pass())

    def seen(self, run: RunRecord) -> RunRecord:
        """Return a run as it is to be shown: one whose launcher is lost as the ERROR that will be written of it."""
        if supervisor := self._supervisor_of(run):
            return supervisor.look(run, self.clock()) or run
        return self._lost(run, run.lease_until) if run.lease_until and self.is_lost(run) else run

    def _supervisor_of(self, run: RunRecord) -> Supervisor | None:
        """Return what watches a run at work, if that is a cluster."""
        # A launcher with a lease is one of ours. It was started before the job moved to the cluster, and may be lost.
        has_launcher = run.launcher is not None and run.lease is not None
        if run.state not in AT_WORK or has_launcher or not isinstance(self.engine, Supervisor):
            return None
        return self.engine

    def is_lost(self, run: RunRecord) -> bool:
        """Tell whether the launcher of a run has given no sign for its lease, as far as this process knows."""
        key = run.job_name, run.run_id  # A record of any job may have the id of another's run.
        if run.lease is None or run.lease_until is None:
            self._seen.pop(key, None)
            return False
        return self._is_over(key, run.token, run.modified_on, run.lease)

    def _is_over(self, key: tuple[str, str], token: str, since: datetime, lease: timedelta) -> bool:
        """Tell whether a lease is over that was last renewed, with a token, at `since` by the clock of its owner.

        As the Kinesis client judges leases: a token that was not seen before starts a lease on the timer of this
        process. The clocks of two machines are compared only where one says that the lease is over for longer than
        clocks differ: a process that looks once, as a command does, sees no token stand still.
        """
        seen = self._seen.get(key)
        if seen is None or seen[0] != token:
            seen = self._seen[key] = token, self.timer()
        # Up to its very end the lease is its owner's, so `>` and not `>=`.
        stands_still = self.timer() - seen[1] > lease.total_seconds()
        return stands_still or self.clock() > since + lease + CLOCK_MARGIN

    def _tend(self, name: str, looked_at: Collection[str], look: _Pass) -> JobRecord | None:
        gives_out = self.engine is not None and name in look.starts

        def settle(job: JobRecord | None) -> JobRecord | None:
            if job is None or not (job.active or job.waiting):
                return job
            ended = self._ended_at_work(job, look, gives_out)
            # A run that is retried keeps its slot, so that the retry comes before all that wait.
            at_work = [entry for entry in job.active if entry.run_id not in ended or ended[entry.run_id] is not None]
            free = job.slots - len(at_work) if gives_out else 0
            ended |= self._ended_waiting(job, look, free, looked_at)
            after = job.settled(ended, self.clock(), gives_out)
            # Without a change nothing is written, or all who look at once would make each other's writes fail.
            return job if (after.active, after.waiting) == (job.active, job.waiting) else after

        job = self.records.change_job(name, settle)
        if job is not None:
            listed = {(name, entry.run_id) for entry in (*job.active, *job.waiting)}
            for key in {key for key in list(self._seen) if key[0] == name} - listed:
                self._seen.pop(key, None)  # Or a list that names other runs each time would fill the memory.
            # Its lists may name more runs than there are slots.
            idle = [entry for entry in job.active if entry.run_id not in look.busy]
            for entry in idle[: max(0, job.slots - len(look.busy))] if gives_out else ():
                if (started := self.launch(name, entry.run_id)) is not None:
                    look.on_start(started)
        return job

    def _ended_at_work(self, job: JobRecord, look: _Pass, gives_out: bool) -> dict[str, str | None]:
        """Return which runs with a slot are over, each with its retry if one follows."""
        ended: dict[str, str | None] = {}
        look.steps, look.busy = 0, set()
        for entry in job.active:
            may_start = gives_out and len(look.busy) < job.slots
            run = self._up_to_date(job, entry, may_expire=not gives_out, may_start=may_start)
            if run is not None and run.is_over and look.steps <= MAX_STEPS:
                ended[entry.run_id] = self._follow(job, run, look)
            elif run is not None and run.state != "WAITING":
                look.busy.add(entry.run_id)
        return ended

    def _ended_waiting(
        self, job: JobRecord, look: _Pass, free: int, looked_at: Collection[str]
    ) -> dict[str, str | None]:
        """Return which runs that wait are over, as far as that matters now: the first `free` ones get a slot."""
        now = self.clock()
        ended: dict[str, str | None] = {}
        for entry in job.waiting:
            # Up to 500 runs may wait, and each look costs a read: only those are read whose state can matter.
            is_due = now >= entry.since + self.queue_time or job.definition is None
            if free <= 0 and not is_due and entry.run_id not in looked_at:
                continue
            # With a slot free a run is not expired, however late it is: it is given the slot.
            run = self._up_to_date(job, entry, may_expire=free <= 0, may_start=free > 0)
            if run is not None and run.is_over and look.steps <= MAX_STEPS:
                ended[entry.run_id] = self._follow(job, run, look)
            else:
                free -= 1
        return ended

    def _up_to_date(self, job: JobRecord, entry: Entry, may_expire: bool, may_start: bool) -> RunRecord | None:
        """Return the run of an entry, ended if it must be; None while it is being made."""
        now = self.clock()
        run = self.records.run(job.name, entry.run_id)
        if run is None:
            # The place in the list is written before the record, so a young one is about to get its record.
            if not self._is_over((job.name, entry.run_id), "", entry.since, START_LEASE):
                return None
            return self._never_started(job.name, entry)

        def end(run: RunRecord) -> RunRecord:
            if supervisor := self._supervisor_of(run):
                return self._supervised(run, supervisor, may_start)
            if self.is_lost(run):
                return self._lost(run, now)
            if run.state == "WAITING" and job.definition is None:
                error = "The job was deleted while the run waited for a slot."
                return run.to("ERROR", now, error=error)
            if run.state == "WAITING" and may_expire and now >= entry.since + self.queue_time:
                hours = f"{self.queue_time.total_seconds() / 3600:g} hours"
                error = f"No slot was free for {hours}. Raise MaxConcurrentRuns, or start fewer runs."
                if entry in job.active or len(job.active) < job.slots:
                    error = f"A slot was free, but for {hours} no worker started the run. {A_WORKER}"
                return run.to("EXPIRED", now, error=error)
            return run

        return self.records.change_run(run, end)

    def _supervised(self, run: RunRecord, supervisor: Supervisor, may_start: bool) -> RunRecord:
        """Return a run as its cluster has it. All that is asked of the cluster may be asked again."""
        now = self.clock()
        if run.launcher is None:
            # Whoever started it has died, or got no answer. By its token the same run is started, and no second one.
            if not may_start or not self.is_lost(run):
                return run
            try:
                launcher = supervisor.launch(run, self.settings())
            except WatermarkError as error:
                return run.ended("ERROR", now, str(error))
            found = launcher and run.taken_by(launcher, now)
        else:
            found = supervisor.look(run, now)
        # At once, also where it was just started again to learn its name: nobody wants it to work any more.
        if found and found.state == "STOPPING":
            supervisor.cancel(found)
        return found or run

    def _never_started(self, job_name: str, entry: Entry) -> RunRecord | None:
        """Write the record that a start left out which died or is very slow; it then can write its own no more."""
        run = RunRecord.without_record(job_name, entry.run_id, entry.since)
        error = "The start of the run broke off before it was recorded. Start it again."
        ended = run.to("ERROR", self.clock(), error=error)
        outcome = self.records.write_run(None, ended)
        return ended if isinstance(outcome, Written) else outcome.to

    def _lost(self, run: RunRecord, now: datetime) -> RunRecord:
        since = run.modified_on.isoformat(timespec="seconds")
        where = run.launcher or "it never began"
        error = f"The launcher gave no sign since {since} ({where}): it was killed, or its machine went down."
        return run.ended("ERROR", now, error)

    # --- what follows from an end ---------------------------------------------------------------

    def _follow(self, job: JobRecord, run: RunRecord, look: _Pass) -> str | None:
        """Make the retry of a run that ended, or the runs that triggers start after it; return the retry's id."""
        if run.is_retried and job.definition is not None:
            retry = run.retry(self.clock())
            self.records.write_run(None, retry)
            logger.info("event=retried job=%s run=%s attempt=%d", job.name, run.run_id, retry.attempt)
            return retry.run_id
        first = look.steps
        for name in dict.fromkeys(job.triggers):
            if look.steps - first > MAX_STEPS:
                logger.error("event=triggers_left_out job=%s run=%s limit=%d", job.name, run.run_id, MAX_STEPS)
                break
            with _unspoiled(name, run):
                self._fire(name, run, look)
        return None

    def _fire(self, name: str, run: RunRecord, look: _Pass) -> None:
        look.steps += 1
        trigger = self.records.trigger(name)
        if trigger is None or not trigger.fires(run.job_name, run.state):
            return
        for number, action in enumerate(trigger.definition["Actions"]):
            assert run.completed_on is not None
            look.steps += 1
            # The id follows from trigger and run, so who does this again makes no second run. The token of the
            # trigger's creation is in it: one that was deleted and made anew is another trigger.
            run_id = ids.triggered_id(f"{name}\n{trigger.created}", run.run_id, number, run.completed_on)
            with _unspoiled(name, run):
                self._enqueue(run_id, action, name, run)
            look.triggered |= {action["JobName"]} & look.starts

    def _enqueue(self, run_id: str, action: dict[str, Any], trigger: str, after: RunRecord) -> None:
        """Make the run that a trigger starts, and let it wait for a slot. Done once, however often it is called.

        Nothing where the job does not accept the trigger: who wrote it may have no right to the job, and who
        looks at it here may have one.
        """

        def queue(job: JobRecord | None) -> JobRecord | None:
            if job is None or trigger not in job.accepts:
                logger.warning("event=trigger_not_accepted trigger=%s job=%s", trigger, action["JobName"])
                return job
            run = self.records.run(action["JobName"], run_id)
            if run is None:
                made = self._triggered(run_id, job, action, trigger, after)
                outcome = self.records.write_run(None, made)
                run = made if isinstance(outcome, Written) else outcome.to
            # A run that is past waiting was in the list before: who comes late must not queue it a second time.
            if run is None or run.state != "WAITING" or job.entry(run_id) is not None:
                return job
            logger.info("event=triggered trigger=%s job=%s run=%s", trigger, job.name, run_id)
            return job.queued(run_id, self.clock())

        self.records.change_job(action["JobName"], queue)

    def _triggered(
        self, run_id: str, job: JobRecord, action: dict[str, Any], trigger: str, after: RunRecord
    ) -> RunRecord:
        """Make the record of a run that a trigger starts; an ERROR of it if it cannot be started."""
        now = self.clock()
        made = job.new_run(run_id, action, now)
        told = {**made.told, "TriggerName": trigger}
        made = replace(made, told=told, predecessors=((after.job_name, after.run_id),))
        if job.definition is None:
            problem = "started a run of a job that was deleted."
        elif job.is_full:
            problem = f"started a run while {MAX_WAITING} runs of the job waited already."
        else:
            try:
                made.check_new()
                return made
            except (CorruptItemError, InvalidValueError) as error:
                problem = f"started a run that cannot be stored: {error}"
        # Without its arguments, which may be what cannot be stored.
        told = {"Arguments": {}, "Attempt": 0, "TriggerName": trigger}
        return replace(made, told=told, command={}).to("ERROR", now, error=f"Trigger {trigger!r} {problem}")

    # --- launching ------------------------------------------------------------------------------

    def launch(self, job_name: str, run_id: str) -> RunRecord | None:
        """Start the launcher of a run that has a slot and still waits; one of those who try gets the run."""
        assert self.engine is not None
        run = self.records.run(job_name, run_id)
        if run is None or run.state != "WAITING":
            return None
        now = self.clock()
        starting = replace(run.to("STARTING", now), lease=START_LEASE)
        # Of all who saw it wait one write takes effect, and only its writer starts a launcher.
        if not isinstance(self.records.write_run(run, starting), Written):
            return None
        return starting if self.start(starting) else None

    def start(self, run: RunRecord) -> bool:
        """Start the launcher of a run that is STARTING; the run has failed if that cannot be done.

        A run that the engine refuses is an ERROR, of which no retry is made: it would be refused as well.
        """
        assert self.engine is not None
        try:
            launcher = self.engine.launch(run, self.settings())
        except (WatermarkError, OSError, ValueError, subprocess.SubprocessError) as error:
            state, text = "FAILED", f"The launcher cannot be started: {type(error).__name__}."
            if isinstance(error, WatermarkError):
                state, text = "ERROR", str(error)
            elif isinstance(error, OSError) and error.strerror:
                text = f"The launcher cannot be started: {error.strerror}: {error.filename}."
            logger.warning("event=not_started job=%s run=%s error=%s", run.job_name, run.run_id, type(error).__name__)
            self.records.write_run(run, run.to(state, self.clock(), error=text))
            return False
        if launcher is not None:
            self.records.change_run(run, lambda run: run.taken_by(launcher, self.clock()))
        logger.info("event=started job=%s run=%s", run.job_name, run.run_id)
        return True


@contextmanager
def _unspoiled(trigger: str, run: RunRecord) -> Iterator[None]:
    """Leave out what a trigger starts if that cannot be read, with an ERROR.

    Others may write the trigger, or the job that it starts. What they altered must not keep the slot of this run.
    """
    try:
        yield
    except (CorruptItemError, NewerFormatError) as error:
        logger.error("event=trigger_failed trigger=%s job=%s run=%s: %s", trigger, run.job_name, run.run_id, error)
