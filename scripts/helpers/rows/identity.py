"""Check which table a state or plan belongs to: compare a source's identity with the stored one. Pure.

An identity is a map of names to texts and whole numbers. A database has ``server``, ``database``,
``schema`` and ``table``, where they exist. PostgreSQL adds ``oid``, which changes when a table is created
again, and ``cluster``, the system identifier, which only replicas and physical backups share. Delta and
Iceberg have ``uuid``, which changes when a table is created again, and ``folder`` or ``table``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from scripts.helpers.errors import PlanConflictError, SourceLostError
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.protocol.values import MAX_BYTES

SOURCE = "source"
"""Field of states and plans for the identity."""
WHERE = "where"
"""Name in an identity for the condition that filters the source's rows."""
MAX_SHOWN = 300
"""Most characters of an identity in an error, because others can write to the table of watermarks."""


class Identified(Protocol):
    """Anything that has an identity to compare: a source of rows, or a table."""

    def identity(self) -> Mapping[str, Any] | None:
        """Return the table's identity; None if there is none, such as for a DataFrame."""


def remembered(state: Mapping[str, Any], name: str = "state") -> Mapping[str, Any] | None:
    """Return the source table's identity in a state or plan; None for a DataFrame, or if an earlier release stored it.

    Raise ImplausibleError if the field holds anything but an identity.
    """
    fields = Fields(state, name)
    kept = fields.text(SOURCE, "null", longest=MAX_BYTES)
    try:
        found = json.loads(kept)
    except (ValueError, RecursionError):
        found = ()
    if found is not None and not (isinstance(found, dict) and found):
        raise fields.wrong(SOURCE, "the JSON of a map")
    return found


def as_text(identity: Mapping[str, Any]) -> str:
    """Return an identity as states and plans store it: one text, which counts once in their limit of 2,000 entries.

    >>> remembered({"source": as_text({"table": "repairs"})})
    {'table': 'repairs'}
    """
    return json.dumps(dict(identity), ensure_ascii=False, separators=(",", ":"))


def check_same_source(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, context: str, job_id: str
) -> Mapping[str, Any] | None:
    """Return the identity to store; raise SourceLostError if the stored one belongs to another table.

    Only entries that both identities have are compared. If one of the two identities is missing, return the other one.
    """
    if not before or not now:
        return now or before
    if _differ(before, now):
        raise SourceLostError(shown(now), reason="replaced", context=context, job_id=job_id, before=shown(before))
    return now


def check_same_plan(plan: Mapping[str, Any], source: Identified, job_id: str) -> None:
    """Raise PlanConflictError if a plan was made on one table and is about to be replayed on another."""
    before = remembered(plan)
    # Query the source only if the plan has an identity: plans of earlier releases of this package have none.
    now = source.identity() if before else None
    if not before or not now or not _differ(before, now):
        return
    raise PlanConflictError(
        job_id,
        f"the open plan was made on {shown(before)}, and this is {shown(now)}. Replay it on the former, or discard the "
        "plan to make a new one.",
    )


def shown(identity: Mapping[str, Any]) -> str:
    """Return an identity as text for messages.

    >>> shown({"server": "db:5432", "table": "repairs"})
    'server db:5432, table repairs'
    """
    text = ", ".join(f"{name} {value}" for name, value in identity.items())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _differ(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    both = before.keys() & now.keys()
    # If both identities have a cluster, ignore the server's name: it may be of a promoted replica, pooler or alias.
    if "cluster" in both:
        both -= {"server"}
    # Ignore an Iceberg table's name, which may change. Do compare a Delta table's folder: a copy has the same uuid.
    if "uuid" in both:
        both -= {"table"}
    # Compare the `where` even if one side has none: the watermark has passed the rows that a former `where` left out.
    return before.get(WHERE) != now.get(WHERE) or any(before[name] != now[name] for name in both)
