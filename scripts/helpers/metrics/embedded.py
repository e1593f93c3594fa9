"""Metrics as lines of CloudWatch's Embedded Metric Format, printed by a job into Glue's logs. Pure.

Each line is one JSON object, from which CloudWatch Logs creates metrics by itself
(CloudWatch user guide, "Specification: Embedded metric format").
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from scripts.helpers.metrics.report import UNITS, JobReport

NAMESPACE = "GlueWatermarks"
DIMENSION = "Job"


def as_line(report: JobReport, namespace: str = NAMESPACE) -> str:
    """Return a report as one line of JSON, without a line break at its end."""
    metrics = [{"Name": name, "Unit": UNITS[name]} for name in report.values]
    directive = {"Namespace": namespace, "Dimensions": [[DIMENSION]], "Metrics": metrics}
    at = round(report.at.timestamp() * 1000)
    line: dict[str, Any] = {"_aws": {"Timestamp": at, "CloudWatchMetrics": [directive]}}
    line |= {DIMENSION: report.job_id, "RunId": report.run_id, "Outcome": report.outcome}
    return json.dumps(line | report.values)


class EmbeddedMetrics:
    """Prints one line for each run, by default on standard output.

    Examples
    --------
    >>> from datetime import datetime, timezone
    >>> at = datetime(2026, 3, 16, tzinfo=timezone.utc)
    >>> EmbeddedMetrics().report(JobReport("parking", "jr_1", "committed", at, {"Rows": 808}))  # doctest: +ELLIPSIS
    {"_aws": {"Timestamp": 1773619200000, "CloudWatchMetrics": [...]}, "Job": "parking", ... "Rows": 808}
    """

    def __init__(self, stream: TextIO | None = None, namespace: str = NAMESPACE) -> None:
        self._stream, self._namespace = stream, namespace

    def report(self, report: JobReport) -> None:
        """Print a report."""
        # Look up stdout at each report, because Spark, pytest and notebooks replace it.
        stream = self._stream or sys.stdout
        stream.write(as_line(report, self._namespace) + "\n")
        # Flush, otherwise a job that ends by a signal or os._exit would lose this line, which is still in the buffer.
        stream.flush()
