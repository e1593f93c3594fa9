"""Write jobs, watermarks and values as JSON for programs. Pure, except `emit`."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from scripts.helpers.metrics.freshness import Threshold, age, lag, unread
from scripts.helpers.metrics.signs_of_life import failed_since, last_run, may_be_dead, silence
from scripts.helpers.metrics.urgency import activity, condition_of, rhythm_in
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.head import Change, Claim, Head, LogEntry, Release
from scripts.helpers.protocol.values import ImplausibleError, Spilled, to_utc_string
from scripts.helpers.rows.cursor_ranges import shown_range
from scripts.helpers.rows.states import RowsState, column_values
from scripts.helpers.schemas.kept import ENTRY, shown_schemas
from scripts.helpers.states import typed


def emit(document: Any) -> None:
    """Write one JSON document, and nothing else, to standard output."""
    sys.stdout.write(json_text(as_json(document), indent=2) + "\n")


def json_text(document: Any, indent: int | None = None) -> str:
    """Return JSON that cannot move a terminal's cursor, because characters that are not printable are escaped."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def as_json(value: Any) -> Any:
    """Return a value in types that JSON has: times as ISO text in UTC, durations in seconds, Decimals as text."""
    if isinstance(value, Spilled):
        return {"chunks": value.chunks, "bytes": value.length}
    if isinstance(value, Blob):
        return {"chunks": value.reference.chunks if value.reference else 0}
    if isinstance(value, Mapping):
        found = {str(name): as_json(item) for name, item in value.items()}
        if isinstance(value.get(ENTRY), bytes):
            # Unpack schemas, which the table stores compressed. If the value is not a schema, show its bytes.
            with suppress(ImplausibleError):
                found[ENTRY] = shown_schemas(value)
        return found
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, set):
        return [as_json(item) for item in sorted(value)]
    # Check for a datetime first, because it is also a date.
    if isinstance(value, datetime):
        return to_utc_string(value) if value.tzinfo else value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    # Decimals become text because a float would lose digits.
    if isinstance(value, (date, Decimal)):
        return str(value)
    return value


def with_spans(state: Any) -> Any:
    """Convert the bounds and the ranges read (`covered`) of a state of rows to cursor values; return others as is."""
    found = typed(state)
    if not isinstance(found, RowsState):
        return state
    bounds = {name: state[name] for name in ("value", "start", "last", "complete") if name in state}
    shown = state | {name: column_values(found.columns, bound, placed=True) for name, bound in bounds.items()}
    if found.covered is None:
        return shown
    spans = [shown_range(one, len(found.columns)) for one in found.ranges]
    ends = [[column_values(found.columns, end, placed=True) for end in span] for span in spans]
    return shown | {"covered": [{"low": low, "high": high} for low, high in ends]}


def head_json(head: Head, now: datetime, threshold: Threshold | None = None) -> dict[str, Any]:
    """Return the facts of a job without the values of its watermarks, which may be personal data."""
    condition, rhythm = condition_of(head, now, threshold), rhythm_in(head)
    run = last_run(head)
    # Show 0 seconds rather than fewer, because this clock may be a little behind that of the run.
    last = None if run is None else {"run": run[0], "seconds": max(as_json(now - run[1]), 0)}
    plan = None if head.plan is None else {"id": head.plan.plan_id, "contexts": sorted(head.plan.contexts)}
    return {
        "job": head.job_id,
        "state": condition.word,
        "reason": condition.reason,
        "command": condition.command,
        "activity": activity(head, now),
        "version": head.version,
        "epoch": head.epoch,
        "fence": head.fence,
        "lag_seconds": as_json(lag(head, now)),
        "unread": unread(head),
        "age_seconds": as_json(age(head, now)),
        "usual_seconds": None if rhythm is None else as_json(rhythm.usual),
        "last": change_json(head.last) if head.last else None,
        "last_run": last,
        "failed_runs": failed_since(head, now),
        "failure": head.failure,
        "owner": None if head.claim is None else _claim_json(head, head.claim, now),
        "open_plan": plan,
        "unpublished": [{"version": one.version, "target": one.target} for one in head.unpublished],
        "releases": releases_json(head.releases),
    }


def _claim_json(head: Head, claim: Claim, now: datetime) -> dict[str, Any]:
    return {
        "run": claim.run_id,
        "attempt": claim.attempt,
        "since": as_json(claim.since),
        "lease_until": as_json(claim.lease_until),
        "alive": now < claim.lease_until,
        "silent_seconds": as_json(silence(head, now)),
        "may_be_dead": may_be_dead(head, now),
    }


def releases_json(releases: Sequence[Release]) -> list[dict[str, Any]]:
    """Return a job's releases: the dead runs whose leases operators ended, when, who and why."""
    return [{"run": one.run_id, "at": as_json(one.at), "who": one.who, "why": one.why} for one in releases]


def change_json(change: Change) -> dict[str, Any]:
    """Return who made a version, when and why."""
    return {
        "op": change.op,
        "at": as_json(change.at),
        "run": change.run_id,
        "previous_run": change.previous_run_id,
        "attempt": change.attempt,
        "started": as_json(change.started_at),
        "who": change.who,
        "why": change.why,
        "metrics": as_json(change.metrics),
        "releases": releases_json(change.releases),
    }


def entry_json(entry: LogEntry) -> dict[str, Any]:
    """Return one version of a history as JSON."""
    return {"version": entry.version, **change_json(entry.change), "seconds": as_json(entry.duration)}
