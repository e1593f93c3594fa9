"""The report of one run of a job, passed to metrics when the run ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

Outcome = Literal["committed", "failed", "fenced", "unknown", "looked"]
"""How a run ended. `looked` is not the end of a run: an operator or a check asked how late the job is."""

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
"""The metrics by their names in CloudWatch, each with its CloudWatch unit."""


@dataclass(frozen=True)
class JobReport:
    """The result of one run. `values` has a number for each metric of `UNITS` that the run has measured."""

    job_id: str
    run_id: str
    outcome: Outcome
    at: datetime
    values: dict[str, float]


class Reporter(Protocol):
    """Receives the report of each run that ends, such as `EmbeddedMetrics` or `OpenTelemetryMetrics`."""

    def report(self, report: JobReport) -> None:
        """Send a report to a monitoring system. The job logs an error that this raises, and does not fail."""
