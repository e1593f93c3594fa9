"""Metrics for OpenTelemetry. They require its API: ``pip install opentelemetry-api``."""

from __future__ import annotations

from typing import Any

from scripts.helpers.errors import ConfigurationError
from scripts.helpers.metrics.report import UNITS, JobReport

_UNITS = {"Seconds": "s", "Count": "1", "Bytes": "By"}
COUNTERS = ("Rows", "Files", "Bytes", "FilesSetAside", "Committed", "Failed", "Fenced", "Unknown")


class OpenTelemetryMetrics:
    """Adds counts to counters and sets gauges for times, named ``watermarks.<metric>``, with the attribute ``job``.

    Parameters
    ----------
    meter_provider
        By default the provider that the process has set up. Without an SDK, no metrics are kept.

    Raises
    ------
    ConfigurationError
        The API is not installed.
    """

    def __init__(self, meter_provider: Any = None) -> None:
        try:
            from opentelemetry import metrics
        except ImportError as error:
            raise ConfigurationError(
                "OpenTelemetry's API is not installed. Install it: pip install opentelemetry-api."
            ) from error
        meter = metrics.get_meter("glue-watermarks", meter_provider=meter_provider)
        self._counters = {name: meter.create_counter(_name(name), unit=_unit(name)) for name in COUNTERS}
        self._gauges = {name: meter.create_gauge(_name(name), unit=_unit(name)) for name in set(UNITS) - set(COUNTERS)}

    def report(self, report: JobReport) -> None:
        """Add the values of a report to the counters and gauges."""
        attributes = {"job": report.job_id, "outcome": report.outcome}
        for name, value in report.values.items():
            if name in self._counters:
                self._counters[name].add(value, attributes)
            else:
                # Omit the outcome: a gauge keeps its last value for each set of attributes, so the lag after the
                # last failed run would be reported forever, beside the current lag.
                self._gauges[name].set(value, {"job": report.job_id})


def _name(metric: str) -> str:
    """Return the OpenTelemetry name: ``OpenPlanAgeSeconds`` becomes ``watermarks.open_plan_age``."""
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in metric.removesuffix("Seconds"))
    return f"watermarks.{words.lstrip('_')}"


def _unit(metric: str) -> str:
    return _UNITS[UNITS[metric]]
