"""The record of a job: its definition, its concurrent runs, and its waiting runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from scripts.helpers.job_runs import shapes
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol import items, values
from scripts.helpers.protocol.fields import clock_time
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.values import to_utc_string

MAX_DEFINITION_BYTES = 64 * 1024
"""Limit of the definition: the job's item, at most 400 KB, also has the lists of its runs, which take up to 200 KB."""
MAX_SLOTS = 1_000
"""Most concurrent runs of a job; more would not fit into one item."""
DEFAULT_TIMEOUT = 2_880
"""Minutes, as Glue's own default for Spark and Python shell jobs."""
STREAMING_TIMEOUT = 10_080
"""Minutes: the seven days that Glue lets any run last."""
TOLD = (
    *shapes.CAPACITY, "ExecutionRoleSessionPolicy", "GlueVersion", "JobMode", "JobRunQueuingEnabled",
    "MaintenanceWindow", "PreviousRunId",
)  # fmt: skip
"""Members of a JobRun that are copied from the start request or, if it lacks them, from the job."""


class Entry(NamedTuple):
    """A run in a job's list `active` or `waiting` (see `JobRecord`), and the time when the run was added."""

    run_id: str
    since: datetime


@dataclass(frozen=True)
class JobRecord:
    """One job: `active` has its concurrent runs, each of which holds one of the job's `slots`.

    `waiting` has runs that an earlier version put into a queue: they can be read and stopped, and expire.
    `definition` is None once the job is deleted: then waiting runs are ended, and active runs are not retried.
    """

    name: str
    definition: Mapping[str, Any] | None = field(default=None, repr=False)
    active: tuple[Entry, ...] = ()
    waiting: tuple[Entry, ...] = ()
    token: str = field(default_factory=new_token)

    @property
    def slots(self) -> int:
        """Return how many runs may be at work at once."""
        limits = (self.definition or {}).get("ExecutionProperty", {})
        return min(MAX_SLOTS, int(limits.get("MaxConcurrentRuns", 1)))

    @property
    def has_free_slot(self) -> bool:
        """Return whether a new run can start."""
        return len(self.active) < self.slots

    def has_slot(self, run_id: str) -> bool:
        """Return whether a run is one of the job's concurrent runs."""
        return any(entry.run_id == run_id for entry in self.active)

    def entry(self, run_id: str) -> Entry | None:
        """Return the entry of a run that is in `active` or `waiting`; None if it is in neither."""
        return next((entry for entry in (*self.active, *self.waiting) if entry.run_id == run_id), None)

    def changed(self, **changes: Any) -> JobRecord:
        """Return the record with changes and a new token, which identifies the next write."""
        return replace(self, token=new_token(), **changes)

    def started(self, run_id: str, now: datetime) -> JobRecord:
        """Return the record with one more concurrent run."""
        return self.changed(active=(*self.active, Entry(run_id, now)))

    def retried(self, run_id: str, retry_id: str, now: datetime) -> JobRecord:
        """Return the record in which a retry replaces, among the concurrent runs, the run that it retries."""
        active = [Entry(retry_id, now) if entry.run_id == run_id else entry for entry in self.active]
        return self.changed(active=tuple(active))

    def without(self, ended: Collection[Entry]) -> JobRecord:
        """Return the record without the entries of ended runs."""
        active, waiting = ([entry for entry in of if entry not in ended] for of in (self.active, self.waiting))
        return self.changed(active=tuple(active), waiting=tuple(waiting))

    def arguments(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the arguments of a run that is started with the arguments `given`."""
        definition = self.definition or {}
        # Merge as Glue does: a start overrides the defaults, and nothing overrides the job's NonOverridableArguments.
        return {
            **definition.get("DefaultArguments", {}), **given, **definition.get("NonOverridableArguments", {}),
        }  # fmt: skip

    def new_run(self, run_id: str, request: Mapping[str, Any], now: datetime) -> RunRecord:
        """Return the record of a first attempt before its start: the definition, with the request's overrides."""
        definition = self.definition or {}
        asked = {**definition, **request}
        told = {name: asked[name] for name in TOLD if name in asked}
        command = definition.get("Command", {})
        longest = STREAMING_TIMEOUT if command.get("Name") == "gluestreaming" else DEFAULT_TIMEOUT
        told["Attempt"], told["Arguments"] = 0, self.arguments(request.get("Arguments", {}))
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
        )

    # --- in the table ---------------------------------------------------------------------------

    def to_item(self) -> Item:
        """Return the record as an item; a ValueError of `values.encode` names the value that cannot be stored."""
        item = items.key(self.name, items.JOB_RECORD_KEY)
        item |= {
            "fmt": items.number(items.FORMAT),
            items.TOKEN: {"S": self.token},
            "active": _to_list(self.active),
            "waiting": _to_list(self.waiting),
        }
        if self.definition is not None:
            fields = {"definition": dict(self.definition)}
            item["job"], item["types"] = values.encode(fields, what="job", limit=MAX_DEFINITION_BYTES)
        return item

    @classmethod
    def from_item(cls, item: Item) -> JobRecord:
        """Return the record of an item; raise CorruptItemError if the item was altered."""
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
            token=found[items.TOKEN],
        )


def _to_list(entries: tuple[Entry, ...]) -> dict[str, Any]:
    return {"L": [{"L": [{"S": run_id}, {"S": to_utc_string(since)}]} for run_id, since in entries]}
