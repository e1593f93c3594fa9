"""How jobs, watermarks and values are written: for people in words, for programs as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from scripts.helpers.display.units import duration_text, size_text, time_text
from scripts.helpers.display.units import printable as printable
from scripts.helpers.metrics.freshness import age, failed_since, lag
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.head import SUCCESS, Change, Head, LogEntry
from scripts.helpers.protocol.values import Spilled, to_utc_string

NONE = "-"


def count_of(number: int, word: str) -> str:
    """Write how many of something there are."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def ago(duration: timedelta | None) -> str:
    """Write how long ago something was."""
    return NONE if duration is None else f"{duration_text(duration)} ago"


def moment(at: datetime | None) -> str:
    """Write a time to the second, in UTC and saying so."""
    return NONE if at is None else f"{time_text(at)}Z"


def value_text(value: Any) -> str:
    """Write one value of a watermark."""
    if value is None:
        return "null"
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc).isoformat(sep=" ")
        return text.removesuffix("+00:00") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, Spilled):
        return f"{size_text(value.length)} in {value.chunks:,} chunks"
    if isinstance(value, Blob):
        return "bytes in chunks"
    if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
        return printable(json.dumps(as_json(value), ensure_ascii=False))
    return printable(str(value))


def state_text(state: Any) -> str:
    """Write the watermark of one context, or one value of the playbook's."""
    if isinstance(state, Mapping) and state.get("kind") == "rows":
        columns, value = state.get("cursor_column"), state.get("value")
        names = columns if isinstance(columns, list) else [columns]
        values = value if isinstance(value, list) else [value]
        found = [f"{printable(str(name))} {value_text(one)}" for name, one in zip(names, values, strict=False)]
        return ", ".join(found) or value_text(value)
    if isinstance(state, Mapping) and state.get("kind") == "files":
        listed = state.get("listed")
        return f"{count_of(known_files(state), 'file')} known, listed {moment(listed) if listed else 'never'}"
    return value_text(state)


def known_files(state: Mapping[str, Any]) -> int:
    """Return how many objects a state of files remembers."""
    segments = state.get("segments")
    return sum(int(segment["count"]) for segment in segments) if isinstance(segments, list) else 0


def planned_text(planned: Any) -> str:
    """Write what a frozen plan takes of one context."""
    if isinstance(planned, Mapping) and planned.get("kind") == "files":
        return f"{count_of(planned['count'], 'file')}, {size_text(planned['bytes'])}"
    if isinstance(planned, Mapping) and planned.get("kind") == "rows":
        low, high = planned.get("low"), planned.get("high")
        column = printable(str(planned.get("cursor_column")))
        start, end = bound_text(low, "the beginning"), bound_text(high, "the first row there will be")
        return f"{column} from {start} to before {end}"
    return value_text(planned)


def bound_text(bound: Any, none: str) -> str:
    """Write one end of a window or a gap."""
    if bound is None:
        return none
    if isinstance(bound, (list, tuple)):
        return "(" + ", ".join("any" if one is None else value_text(one) for one in bound) + ")"
    return value_text(bound)


def state_of(head: Head, now: datetime) -> str:
    """Say in a word or two what a job is doing."""
    if head.claim is not None and now < head.claim.lease_until:
        return "at work"
    if head.plan is not None:
        return "open plan"
    return "lease over" if head.claim is not None else "idle"


def last_run(head: Head) -> tuple[str, datetime] | None:
    """Return the run that began last, and since when it runs or when it committed; None where the head cannot tell.

    A head keeps the run that has the job, and the one that made its last version. A run that let go leaves a count
    only, and after a decision of a person the runs are in the history.
    """
    if head.claim is not None:
        return head.claim.run_id, head.claim.since
    if head.last is not None and head.last.op in SUCCESS and head.last.run_id is not None:
        return head.last.run_id, head.last.at
    return None


# --- for programs -------------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """Return a value as JSON holds it: times as ISO text in UTC, durations in seconds, Decimals as text."""
    if isinstance(value, Spilled):
        return {"chunks": value.chunks, "bytes": value.length}
    if isinstance(value, Blob):
        return {"chunks": value.reference.chunks if value.reference else 0}
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, datetime):
        return to_utc_string(value) if value.tzinfo else value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value) if isinstance(value, (date, Decimal)) else value


def head_json(head: Head, now: datetime) -> dict[str, Any]:
    """Return what is known of a job, without the values of its watermarks."""
    claim, plan, run = head.claim, head.plan, last_run(head)
    return {
        "job": head.job_id,
        "state": state_of(head, now),
        "version": head.version,
        "epoch": head.epoch,
        "fence": head.fence,
        "lag_seconds": as_json(lag(head, now)),
        "age_seconds": as_json(age(head, now)),
        "last": change_json(head.last) if head.last else None,
        "last_run": {"run": run[0], "seconds": max(as_json(now - run[1]), 0)} if run else None,
        "failed_runs": failed_since(head, now),
        "owner": None
        if claim is None
        else {
            "run": claim.run_id,
            "attempt": claim.attempt,
            "since": as_json(claim.since),
            "lease_until": as_json(claim.lease_until),
            "alive": now < claim.lease_until,
        },
        "open_plan": None if plan is None else {"id": plan.plan_id, "contexts": sorted(plan.contexts)},
    }


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
    }


def entry_json(entry: LogEntry) -> dict[str, Any]:
    """Return one version of a history."""
    return {"version": entry.version, **change_json(entry.change), "seconds": as_json(entry.duration)}
