"""Facts of 500 jobs with 1,000 versions each, built directly, because the tests do not measure reads from a table."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html import unescape

from scripts.helpers.protocol.head import Change, Claim, Head, LogEntry, Plan
from scripts.report.facts import JobFacts
from scripts.report.page import MOST_ROWS, make_entry, render

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
TEAMS = ("parking", "repairs", "housing", "waste", "libraries")


def job_name(number: int) -> str:
    return f"{TEAMS[number % len(TEAMS)]}-{number:04d}"


def facts_of(number: int, versions: int) -> JobFacts:
    """Return the facts of a job that runs about every 80 minutes and sometimes fails."""
    job_id, entries = job_name(number), []
    for version in range(versions, 0, -1):
        at = NOW - timedelta(minutes=(versions - version) * 80 + number % 60 + version * 7 % 11)
        change = Change(
            "COMMIT", f"c{version}", at, run_id=f"jr_{number:032x}{version:032x}",
            started_at=at - timedelta(seconds=40), fence=version, failed=int((version * 31 + number) % 97 == 0),
            metrics={"rows_collected": version * 7919 % 10_000, "files_read": version % 7, "bytes_read": version},
        )  # fmt: skip
        read_to = at - timedelta(minutes=5 + version % 9)
        state = {"kind": "rows", "cursor_column": "at", "type": "timestamp", "value": read_to}
        entries.append(LogEntry(job_id, version, {"repairs": state}, change))
    newest = entries[0]
    plan = Plan("p1", {"repairs": {}}, {}, NOW) if number % 50 == 7 else None
    held = Claim("jr_owner", "t", 1, NOW + timedelta(minutes=9), NOW - timedelta(minutes=2))
    claim = held if number % 50 == 9 else None
    head = Head(job_id, "e1", versions, versions, newest.watermarks, newest.change, claim, plan)
    return JobFacts(job_id, NOW, head, "", entries, True, {"repairs": []})


def large_page(jobs: int = 500, versions: int = 1_000) -> str:
    """Return the page as `build_report` renders it. To save time, the jobs share the details of ten jobs."""
    made = [make_entry(facts_of(number, versions), MOST_ROWS // jobs) for number in range(10)]
    entries = []
    for number in range(jobs):
        entry = made[number % len(made)]
        entries.append(replace(entry, facts=replace(entry.facts, job_id=job_name(number))))
    return render(entries, "glue-watermarks", NOW)


def names_of(html: str) -> list[str]:
    return [unescape(name) for name in re.findall(r'<tr role="row" data-name="([^"]*)"', html)]
