"""What one run of a job tells the outside when it ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

Outcome = Literal["committed", "failed", "fenced", "unknown", "looked"]
"""How a run ended; `looked` is of no run: somebody asked how late the job is."""

UNITS = {
    "LagSeconds": "Seconds",
    "AgeSeconds": "Seconds",
    "OpenPlanAgeSeconds": "Seconds",
    "DurationSeconds": "Seconds",
    "Rows": "Count",
    "Files": "Count",
    "Bytes": "Bytes",
    "FilesSetAside": "Count",
    "FilesWaiting": "Count",
    "Committed": "Count",
    "Failed": "Count",
    "Fenced": "Count",
    "Unknown": "Count",
    "Late": "Count",
    "Missing": "Count",
}
"""The metrics, by their names in CloudWatch, with its units."""


@dataclass(frozen=True)
class JobReport:
    """The end of one run. `values` has those of `UNITS` that the run knows."""

    job_id: str
    run_id: str
    outcome: Outcome
    at: datetime
    values: dict[str, float]


class Reporter(Protocol):
    """Who is told of the end of a run, such as `EmbeddedMetrics` or `OpenTelemetryMetrics`."""

    def report(self, report: JobReport) -> None:
        """Pass a report on. What it raises is logged, and changes nothing about the run."""
