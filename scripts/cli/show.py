"""`watermarks show`: show one job with its watermarks, its open plan and its owner."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

from scripts.cli.commands import command, job_argument, read_job
from scripts.cli.documents import emit, head_json, with_spans
from scripts.cli.screen import (
    NONE,
    Cell,
    ago,
    moment,
    planned_text,
    release_hint,
    released_text,
    show_facts,
    show_rows,
    state_text,
)
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import duration_text
from scripts.helpers.metrics.freshness import age, lag, why_no_lag
from scripts.helpers.metrics.signs_of_life import may_be_dead
from scripts.helpers.metrics.urgency import condition_of
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.values import Spilled


@command("show")
@job_argument
def show(around: Surroundings, job: str) -> None:
    """Show one job: watermarks, last version, open plan, owner."""
    head, now = read_job(around, job), around.now()
    if around.is_json:
        shown = {name: with_spans(state) for name, state in head.watermarks.items()}
        of_plan, damaged = head.plan.contexts if head.plan else None, around.watermarks.lookups.damage(head)
        emit({**head_json(head, now), "watermarks": shown, "plan": of_plan, "damaged": damaged})
        return
    show_facts(around.out, _facts(head, now))
    around.out.print()
    if head.watermarks:
        rows = [[name, _kind(state), state_text(state)] for name, state in sorted(head.watermarks.items())]
        show_rows(around.out, ("watermark", "kind", "value"), rows)
    else:
        around.out.print("No watermarks: the next run takes everything.")
    if head.plan is not None:
        around.out.print()
        plan = [[name, planned_text(part)] for name, part in sorted(head.plan.contexts.items())]
        around.out.print("The open plan takes:")
        show_rows(around.out, ("context", "takes"), plan)


def _facts(head: Head, now: datetime) -> list[tuple[str, Cell]]:
    condition = condition_of(head, now)
    state = f"{condition.word}, {condition.reason}" if condition.needs_somebody or head.elsewhere else condition.word
    facts: list[tuple[str, Cell]] = [
        ("job", Text(head.job_id, "bold")),
        ("state", state),
        ("version", f"{head.version:,}"),
        ("epoch", head.epoch),
    ]
    if (behind := lag(head, now)) is not None:
        facts.append(("lag", duration_text(behind)))
    elif why := why_no_lag(head):
        facts.append(("lag", why))
    if head.last is not None:
        facts.append(("last", f"{head.last.op} {ago(age(head, now))}, at {moment(head.last.at)}"))
        facts.append(("run in force", head.last.run_id or NONE))
        if head.last.who:
            facts.append(("who", head.last.who))
            facts.append(("why", head.last.why or ""))
    if head.claim is not None:
        is_over = now >= head.claim.lease_until
        lease = f"over since {moment(head.claim.lease_until)}" if is_over else f"until {moment(head.claim.lease_until)}"
        facts.append(("owner", head.claim.run_id))
        facts.append(("attempt", f"{head.claim.attempt}, since {moment(head.claim.since)}"))
        facts.append(("lease", Text(lease, "yellow" if is_over else "")))
    elif head.plan is not None:
        facts.append(("owner", "none; the next run replays the open plan"))
    if head.failure and head.failure not in state:
        facts.append(("last error", head.failure))
    facts += [("unpublished", f"version {one.version:,} for {one.target}") for one in head.unpublished]
    facts += [("released", released_text(release)) for release in head.releases]
    if may_be_dead(head, now):
        facts.append(("hint", Text(release_hint(head, now), "yellow")))
    return facts


def _kind(state: Any) -> str:
    if isinstance(state, Mapping) and isinstance(state.get("kind"), str):
        kind: str = state["kind"]
        return kind
    return "in chunks" if isinstance(state, Spilled) else "value"
