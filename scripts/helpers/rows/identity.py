"""Which table a state or plan is of: what a source says of itself, compared with what was stored. Pure.

An identity is a map of names to texts and whole numbers. A database says ``server``, ``database``,
``schema`` and ``table``, as far as it has them. PostgreSQL adds ``oid``, which a table that is made anew
does not keep, and ``cluster``, the system identifier, which only replicas and physical backups share.
Delta and Iceberg say ``uuid``, which a table that is made anew does not keep, and ``folder`` or ``table``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from scripts.helpers.errors import PlanConflictError, SourceReplacedError
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.protocol.values import MAX_BYTES

SOURCE = "source"
"""Where states and plans keep it."""
WHERE = "where"
"""What an identity calls the condition that its rows meet."""
MAX_SHOWN = 300
"""Most letters of an identity in an error: others can write to the table of watermarks."""


class Identified(Protocol):
    """A source of rows, or a table."""

    def identity(self) -> Mapping[str, Any] | None:
        """Return which table it is; None if it cannot tell, as for a DataFrame."""


def remembered(state: Mapping[str, Any], name: str = "state") -> Mapping[str, Any] | None:
    """Return the identity that a state or plan keeps; None for one of an earlier version, or of a DataFrame.

    ImplausibleError if it keeps something else there.
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
    """Write an identity as states and plans keep it: one text, as a table counts the entries of maps.

    >>> remembered({"source": as_text({"table": "repairs"})})
    {'table': 'repairs'}
    """
    return json.dumps(dict(identity), ensure_ascii=False, separators=(",", ":"))


def check_same_source(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, context: str, job_id: str
) -> Mapping[str, Any] | None:
    """Return the identity to keep; SourceReplacedError if the one of a state is that of another table.

    Only what both sides know is compared, so a state without an identity takes the present one.
    """
    if not before or not now:
        return now or before
    if _differ(before, now):
        raise SourceReplacedError(job_id, context, shown(before), shown(now))
    return now


def check_same_plan(plan: Mapping[str, Any], source: Identified, job_id: str) -> None:
    """Refuse to replay a plan on another table than it was made on; PlanConflictError."""
    before = remembered(plan)
    # Not asked in vain: a plan of an earlier version has nothing to compare with.
    now = source.identity() if before else None
    if not before or not now or not _differ(before, now):
        return
    raise PlanConflictError(
        job_id,
        f"the open plan was made on {shown(before)}, and this is {shown(now)}. Replay it on the former, or discard the "
        "plan to make a new one.",
    )


def shown(identity: Mapping[str, Any]) -> str:
    """Write an identity for people.

    >>> shown({"server": "db:5432", "table": "repairs"})
    'server db:5432, table repairs'
    """
    text = ", ".join(f"{name} {value}" for name, value in identity.items())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _differ(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    both = before.keys() & now.keys()
    # A replica that was promoted, a pooler, or another name for the host: it is the cluster that counts.
    if "cluster" in both:
        both -= {"server"}
    # An Iceberg table that was renamed, or is found through another catalog. A folder of Delta may be a copy.
    if "uuid" in both:
        both -= {"table"}
    # Without a condition, rows that it kept out are below the watermark: it counts as well where one side has none.
    return before.get(WHERE) != now.get(WHERE) or any(before[name] != now[name] for name in both)
