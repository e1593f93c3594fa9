"""The record of a job: its definition, the runs that hold its slots, and those that wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from scripts.helpers.glue_api.errors import ResourceNumberLimitExceededException
from scripts.helpers.job_runs import shapes
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol import items, values
from scripts.helpers.protocol.fields import clock_time
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.values import to_utc_string

MAX_DEFINITION_BYTES = 64 * 1024
"""Beside the definition, an item of 400 KB holds the lists of the job's runs, in up to 200 KB."""
MAX_SLOTS, MAX_WAITING = 1_000, 500
"""More runs than these at once would not fit into one item."""
DEFAULT_TIMEOUT = 2_880
"""Minutes, as Glue's own default for Spark and Python shell jobs."""
STREAMING_TIMEOUT = 10_080
"""Minutes: the seven days that Glue lets any run last."""
A_WORKER = "A worker starts it: watermarks work, or JobRuns.tend."
TOLD = (
    *shapes.CAPACITY, "ExecutionRoleSessionPolicy", "GlueVersion", "JobMode", "JobRunQueuingEnabled",
    "MaintenanceWindow", "PreviousRunId",
)  # fmt: skip
"""Members of a JobRun that are as its start asked for, or else as its job has them."""


class Entry(NamedTuple):
    """A run of the job that is not over, and since when it is in its list."""

    run_id: str
    since: datetime


@dataclass(frozen=True)
class JobRecord:
    """One job: `active` holds the runs that have a slot, `waiting` the others in the order of their start.

    A run leaves its list only after everything that follows from its end is done: its retry and
    the runs that triggers start. So whatever crashes, the next one who looks finds it here and goes on.
    `definition` is None once the job is deleted; what is still in the lists comes to its end.
    `triggers` are those that watch the job, `accepts` those that may start runs of it: a trigger is kept
    under a name of its own, so who may write it need not be who may write this job.
    """

    name: str
    definition: Mapping[str, Any] | None = field(default=None, repr=False)
    active: tuple[Entry, ...] = ()
    waiting: tuple[Entry, ...] = ()
    triggers: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    token: str = field(default_factory=new_token)

    @property
    def slots(self) -> int:
        """Return how many runs may be at work at once."""
        limits = (self.definition or {}).get("ExecutionProperty", {})
        return min(MAX_SLOTS, int(limits.get("MaxConcurrentRuns", 1)))

    @property
    def has_free_slot(self) -> bool:
        """Tell whether a new run can start at once: nobody waits, and a slot is free."""
        return not self.waiting and len(self.active) < self.slots

    @property
    def is_full(self) -> bool:
        """Tell whether no more runs may wait."""
        return len(self.waiting) >= MAX_WAITING

    def has_slot(self, run_id: str) -> bool:
        """Tell whether a run has a slot."""
        return any(entry.run_id == run_id for entry in self.active)

    def entry(self, run_id: str) -> Entry | None:
        """Return the place of a run in one of the lists; None if it is in neither."""
        return next((entry for entry in (*self.active, *self.waiting) if entry.run_id == run_id), None)

    def changed(self, **changes: Any) -> JobRecord:
        """Return the record with changes, as a write of its own."""
        return replace(self, token=new_token(), **changes)

    def started(self, run_id: str, now: datetime) -> JobRecord:
        """Return the record with a run that takes a slot."""
        return self.changed(active=(*self.active, Entry(run_id, now)))

    def queued(self, run_id: str, now: datetime) -> JobRecord:
        """Return the record with a run that waits behind all others."""
        return self.changed(waiting=(*self.waiting, Entry(run_id, now)))

    def settled(self, ended: Mapping[str, str | None], now: datetime, give_out: bool = True) -> JobRecord:
        """Return the record without the runs that ended, their retries in their slots, and free slots given out."""
        active: list[Entry] = []
        for entry in self.active:
            if entry.run_id not in ended:
                active.append(entry)
            elif retry := ended[entry.run_id]:
                active.append(Entry(retry, now))
        waiting = [entry for entry in self.waiting if entry.run_id not in ended]
        while give_out and waiting and len(active) < self.slots:
            active.append(Entry(waiting.pop(0).run_id, now))
        return self.changed(active=tuple(active), waiting=tuple(waiting))

    def new_run(self, run_id: str, request: Mapping[str, Any], now: datetime) -> RunRecord:
        """Return the record of a first attempt, which waits: the job's definition with what the request overrides."""
        definition = self.definition or {}
        # In Glue's order: a start overrides the defaults, and nothing overrides what the job fixes.
        arguments = {
            **definition.get("DefaultArguments", {}),
            **request.get("Arguments", {}),
            **definition.get("NonOverridableArguments", {}),
        }
        asked = {**definition, **request}
        told = {name: asked[name] for name in TOLD if name in asked}
        command = definition.get("Command", {})
        longest = STREAMING_TIMEOUT if command.get("Name") == "gluestreaming" else DEFAULT_TIMEOUT
        told["Attempt"], told["Arguments"] = 0, arguments
        told["Timeout"] = asked.get("Timeout") or longest
        return RunRecord(
            job_name=self.name,
            run_id=run_id,
            state="WAITING",
            started_on=now,
            modified_on=now,
            told=told,
            command=command,
            max_retries=definition.get("MaxRetries", 0),
            detail=f"Waits for a slot, of which there are as many as MaxConcurrentRuns allows. {A_WORKER}",
        )

    def with_trigger(self, role: str, trigger: str, is_in: bool) -> JobRecord:
        """Return the record with a trigger among its `triggers` or its `accepts`, or without it."""
        before = getattr(self, role)
        if (trigger in before) == is_in:
            return self
        if is_in and len(before) >= shapes.MAX_TRIGGERS:
            problem = f"{len(before)} triggers watch or start job {self.name!r} already. Delete or refuse one first."
            raise ResourceNumberLimitExceededException(problem)
        return self.changed(**{role: (*before, trigger) if is_in else tuple(one for one in before if one != trigger)})

    # --- in the table ---------------------------------------------------------------------------

    def to_item(self) -> Item:
        """Write the record; ValueErrors of `values.encode` name what cannot be stored."""
        item = items.key(self.name, items.JOB_RECORD_KEY)
        item |= {
            "fmt": items.number(items.FORMAT),
            items.TOKEN: {"S": self.token},
            "active": _to_list(self.active),
            "waiting": _to_list(self.waiting),
            "triggers": {"L": [{"S": name} for name in self.triggers]},
        }
        if self.accepts:
            item["accepts"] = {"L": [{"S": name} for name in self.accepts]}
        if self.definition is not None:
            fields = {"definition": dict(self.definition)}
            item["job"], item["types"] = values.encode(fields, what="job", limit=MAX_DEFINITION_BYTES)
        return item

    @classmethod
    def from_item(cls, item: Item) -> JobRecord:
        """Read a record; CorruptItemError if it was altered."""
        items.check_format(item)
        return items.reading(item, cls._read)

    @classmethod
    def _read(cls, item: Item) -> JobRecord:
        found = shapes.read(item, "JobRecord", MAX_DEFINITION_BYTES)
        return cls(
            name=item[items.HASH_KEY]["S"],
            definition=found["job"]["definition"] if "job" in found else None,
            active=tuple(Entry(run_id, clock_time(since, "active")) for run_id, since in found["active"]),
            waiting=tuple(Entry(run_id, clock_time(since, "waiting")) for run_id, since in found["waiting"]),
            triggers=tuple(found["triggers"]),
            accepts=tuple(found.get("accepts", ())),
            token=found[items.TOKEN],
        )


@dataclass(frozen=True)
class TriggerRecord:
    """A conditional trigger, in Glue's shape; `token` of its creation names the runs it starts."""

    name: str
    definition: Mapping[str, Any] = field(repr=False)
    state: str
    created: str = field(default_factory=new_token)
    token: str = field(default_factory=new_token)

    def fires(self, job_name: str, state: str) -> bool:
        """Tell whether the end of a job's run in a state is what the trigger waits for."""
        if self.state != "ACTIVATED":
            return False
        conditions = self.definition["Predicate"]["Conditions"]
        return any((one["JobName"], one["State"]) == (job_name, state) for one in conditions)

    @property
    def roles(self) -> list[tuple[str, str]]:
        """Return each job that has to know the trigger, with the list of its record that it is in."""
        watched = [(one["JobName"], "triggers") for one in self.definition["Predicate"]["Conditions"]]
        return sorted({*watched, *((one["JobName"], "accepts") for one in self.definition["Actions"])})

    def in_state(self, state: str) -> TriggerRecord:
        """Return the trigger in another state."""
        return replace(self, state=state, token=new_token())

    def to_trigger(self) -> dict[str, Any]:
        """Return Glue's Trigger."""
        return {**self.definition, "Name": self.name, "State": self.state}

    def to_item(self) -> Item:
        """Write the record."""
        item = items.key(self.name, items.TRIGGER_KEY)
        item["trigger"], item["types"] = values.encode({"definition": dict(self.definition)}, what="trigger")
        return item | {
            "fmt": items.number(items.FORMAT),
            items.TOKEN: {"S": self.token},
            "created": {"S": self.created},
            "state": {"S": self.state},
        }

    @classmethod
    def from_item(cls, item: Item) -> TriggerRecord:
        """Read a record; CorruptItemError if it was altered."""
        items.check_format(item)
        found = items.reading(item, lambda item: shapes.read(item, "TriggerRecord", values.MAX_BYTES))
        return cls(
            name=item[items.HASH_KEY]["S"],
            definition=found["trigger"]["definition"],
            state=found["state"],
            created=found["created"],
            token=found[items.TOKEN],
        )


def _to_list(entries: tuple[Entry, ...]) -> dict[str, Any]:
    return {"L": [{"L": [{"S": run_id}, {"S": to_utc_string(since)}]} for run_id, since in entries]}
