"""The record of one job run: its item in the table, its form as Glue's JobRun, and its legal changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from scripts.helpers.display.tables import Column, Table
from scripts.helpers.display.units import id_text
from scripts.helpers.job_runs import ids, shapes
from scripts.helpers.protocol import items, values
from scripts.helpers.protocol.fields import clock_time
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.values import ImplausibleError, to_utc_string

LEGAL: dict[str, frozenset[str]] = {
    "WAITING": frozenset({"STARTING", "STOPPED", "EXPIRED", "ERROR"}),
    "STARTING": frozenset({"RUNNING", "STOPPING", "FAILED", "ERROR"}),
    "RUNNING": frozenset({"STOPPING", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR"}),
    "STOPPING": frozenset({"STOPPED", "SUCCEEDED", "TIMEOUT"}),
    "STOPPED": frozenset(),
    "SUCCEEDED": frozenset(),
    "FAILED": frozenset(),
    "TIMEOUT": frozenset(),
    "ERROR": frozenset(),
    "EXPIRED": frozenset(),
}
"""Glue's ten states and their successors. A run that fails while STOPPING becomes STOPPED, so it is not retried."""

TERMINAL = frozenset(state for state, following in LEGAL.items() if not following)
AT_WORK = frozenset({"STARTING", "RUNNING", "STOPPING"})
"""States in which a launcher keeps a lease."""
FAILURES = frozenset({"FAILED", "ERROR"})

MAX_BYTES, HEADROOM_BYTES = 64 * 1024, 16 * 1024
"""Bytes that a start may give a run, and bytes reserved for what a retry and the launcher add."""
CLOCK_MARGIN = timedelta(minutes=15)
"""How far the clocks of two machines may differ. Clocks set by a time server differ by a second at most."""
MAX_ERROR = 2_000
"""Most characters of an error that are stored: with all other additions the error must fit into `HEADROOM_BYTES`."""


class Runs(Table[Mapping[str, Any]]):
    """A table of JobRun dicts, as Glue returns them. A run whose `Lost` is true is shown with the state LOST."""

    columns = (
        Column("run", lambda run: id_text(run["Id"])),
        Column("state", lambda run: "LOST" if run.get("Lost") else run["JobRunState"]),
        Column("attempt", lambda run: run.get("Attempt", 0), "count"),
        Column("started", lambda run: run.get("StartedOn"), "time"),
        Column(
            "took",
            lambda run: timedelta(seconds=run["ExecutionTime"]) if run.get("ExecutionTime") else None,
            "duration",
        ),
        Column("error", lambda run: run.get("ErrorMessage") or run.get("StateDetail")),
    )


@dataclass(frozen=True, repr=False)
class RunRecord:
    """One run of a job.

    `told` has the members of Glue's JobRun that are fixed at the start, such as ``Arguments``. `command` and
    `max_retries` are copied from the job at the start. `lease` is how long the record may stay unchanged
    before its launcher counts as dead. `launcher` is the launcher's host and process id: ``host:4711``.
    """

    job_name: str
    run_id: str
    state: str
    started_on: datetime
    modified_on: datetime
    told: Mapping[str, Any]
    command: Mapping[str, Any] = field(default_factory=dict)
    max_retries: int = 0
    running_since: datetime | None = None
    completed_on: datetime | None = None
    error: str | None = None
    detail: str | None = None
    lease: timedelta | None = None
    launcher: str | None = None
    token: str = field(default_factory=new_token)

    @classmethod
    def without_record(cls, job_name: str, run_id: str, since: datetime) -> RunRecord:
        """Return a stand-in for a run that its job's record lists, and that has no record of its own yet."""
        return cls(job_name, run_id, "WAITING", since, since, {"Arguments": {}, "Attempt": 0})

    def __repr__(self) -> str:
        return f"<Run {self.run_id!r} of {self.job_name!r}: {self.state}, attempt {self.attempt}>"

    @property
    def is_over(self) -> bool:
        """Return whether the state is final."""
        return self.state in TERMINAL

    @property
    def attempt(self) -> int:
        """Return the number of the attempt, 0 for the first."""
        return int(self.told.get("Attempt", 0))

    @property
    def lease_until(self) -> datetime | None:
        """Return when the lease ends, by the clock of the launcher's machine; None if the run has no lease to renew."""
        if self.lease is None or self.state not in AT_WORK:
            return None
        return self.modified_on + self.lease

    def is_lost(self, now: datetime) -> bool:
        """Return whether the lease is over, allowing for clocks that differ; `Scheduler.is_lost` notices it sooner."""
        until = self.lease_until
        return until is not None and now > until + CLOCK_MARGIN

    @property
    def is_retried(self) -> bool:
        """Return whether the run's launcher starts another attempt.

        An ERROR is not retried, because its launcher is dead or has lost the run. As in Glue, runs that reach their
        timeout or that a user stops are not retried either.
        """
        return self.state == "FAILED" and self.running_since is not None and self.attempt < self.max_retries

    def starting(self, now: datetime, lease: timedelta) -> RunRecord:
        """Return the run as STARTING, one of its job's concurrent runs; its launcher must claim it within `lease`."""
        return replace(self.to("STARTING", now), lease=lease)

    def renewed(self, now: datetime, lease: timedelta) -> RunRecord:
        """Return the same run with a lease that begins now."""
        return replace(self, modified_on=now, lease=lease, token=new_token())

    def to(self, state: str, now: datetime, *, error: str | None = None) -> RunRecord:
        """Return the run in its next state; raise ValueError if that state may not follow."""
        if state not in LEGAL[self.state]:
            raise ValueError(f"A run does not go from {self.state} to {state}.")
        over = state in TERMINAL
        return replace(
            self,
            state=state,
            modified_on=now,
            completed_on=now if over else None,
            lease=None if over else self.lease,
            error=error[:MAX_ERROR] if error else self.error,
            detail=None,  # Drop the reason why the run waited. Only earlier versions of this package queued runs.
            token=new_token(),
        )

    def ended(self, state: str, now: datetime, error: str | None = None) -> RunRecord:
        """Return the run ended in a state; a run that fails while STOPPING becomes STOPPED, so it is not retried."""
        if self.state == "STOPPING" and state in FAILURES:
            state = "STOPPED"
        return self.to(state, now, error=error)

    def retry(self, now: datetime) -> RunRecord:
        """Return the automatic retry of the run, before its start."""
        attempt = self.attempt + 1
        # Leave out the log folder: each attempt has another one, which its launcher adds.
        told = {name: value for name, value in self.told.items() if name != "LogGroupName"}
        return RunRecord(
            job_name=self.job_name,
            run_id=ids.attempt_id(self.run_id, attempt),
            state="WAITING",
            started_on=now,
            modified_on=now,
            told={**told, "Attempt": attempt, "PreviousRunId": self.run_id},
            command=self.command,
            max_retries=self.max_retries,
        )

    # --- as Glue's JobRun -----------------------------------------------------------------------

    def to_job_run(self) -> dict[str, Any]:
        """Return Glue's JobRun: times as aware datetimes in UTC, `ExecutionTime` in seconds, `Timeout` in minutes."""
        shown = {
            **self.told,
            "Id": self.run_id,
            "JobName": self.job_name,
            "JobRunState": self.state,
            "StartedOn": self.started_on,
            "LastModifiedOn": self.modified_on,
            "CompletedOn": self.completed_on,
            "ExecutionTime": self.seconds,
            "ErrorMessage": self.error,
            "StateDetail": self.detail,
        }
        # As in Glue's answers, omit members without a value.
        return {name: value for name, value in shown.items() if value is not None}

    @property
    def seconds(self) -> int:
        """Return the seconds from the start of the job to its end, or to the last change of the record."""
        if self.running_since is None:
            return 0
        until = self.completed_on or self.modified_on
        return max(0, int((until - self.running_since).total_seconds()))  # A slow clock may show an earlier end.

    # --- in the table ---------------------------------------------------------------------------

    def check_new(self) -> None:
        """Raise TooLargeError above `MAX_BYTES`, to leave room for later additions; CorruptItemError for bad values."""
        self._encoded(MAX_BYTES)
        self.from_item(self.to_item())

    def _encoded(self, limit: int) -> tuple[Any, Any]:
        return values.encode({"told": dict(self.told), "command": dict(self.command)}, what="run", limit=limit)

    def to_item(self) -> Item:
        """Return the record as an item."""
        item = items.key(self.job_name, items.run_record_key(self.run_id))
        item["run"], item["types"] = self._encoded(MAX_BYTES + HEADROOM_BYTES)
        item |= {
            "fmt": items.number(items.FORMAT),
            items.TOKEN: {"S": self.token},
            "state": {"S": self.state},
            "maxRetries": items.number(self.max_retries),
        }
        if self.lease is not None:
            item["leaseSeconds"] = {"N": str(self.lease.total_seconds())}
        moments = {name: getattr(self, of) for name, of in _MOMENTS.items()}
        item |= {name: {"S": to_utc_string(moment)} for name, moment in moments.items() if moment is not None}
        texts = {name: getattr(self, name) for name in _TEXTS}
        item |= {name: {"S": text} for name, text in texts.items() if text is not None}
        return item

    @classmethod
    def from_item(cls, item: Item) -> RunRecord:
        """Return the record of an item; raise CorruptItemError if the item was altered."""
        items.check_format(item)
        return items.reading(item, cls._read)

    @classmethod
    def _read(cls, item: Item) -> RunRecord:
        found = shapes.read(item, "RunRecord", MAX_BYTES + HEADROOM_BYTES)
        state, told = found["state"], found["run"]["told"]
        if state not in LEGAL:
            raise ImplausibleError(f"'state' must be one of {', '.join(LEGAL)}")
        if (state in TERMINAL) != ("completedOn" in found):
            raise ImplausibleError("'completedOn' must be there if the run is over, and only then")
        # A run that is over may lack Arguments and Timeout, if its start was interrupted before they were recorded.
        if (LEGAL[state] or "Timeout" in told) and not {"Arguments", "Timeout"} <= told.keys():
            raise ImplausibleError("'run.told' must have Arguments and Timeout")
        fields = {name: found[name] for name in _TEXTS if name in found}
        fields |= {of: clock_time(found[name], name) for name, of in _MOMENTS.items() if name in found}
        return cls(
            job_name=item[items.HASH_KEY]["S"],
            run_id=items.run_of_record_key(item[items.RANGE_KEY]["S"]),
            state=state,
            told=told,
            command=found["run"]["command"],
            max_retries=found["maxRetries"],
            token=found[items.TOKEN],
            lease=timedelta(seconds=found["leaseSeconds"]) if "leaseSeconds" in found else None,
            **fields,
        )


_MOMENTS = {
    "startedOn": "started_on",
    "modifiedOn": "modified_on",
    "runningSince": "running_since",
    "completedOn": "completed_on",
}
_TEXTS = ("error", "detail", "launcher")
