"""The metrics that a run reports to CloudWatch and OpenTelemetry at its end."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from scripts.helpers.errors import ConfigurationError
from scripts.helpers.metrics.embedded import EmbeddedMetrics
from scripts.helpers.metrics.report import UNITS, JobReport
from scripts.helpers.metrics.telemetry import OpenTelemetryMetrics

AT = datetime(2026, 3, 16, 15, 45, 0, 250_000, tzinfo=timezone.utc)
CLOUDWATCH_UNITS = {"Seconds", "Bytes", "Count"}


def report(job: str = "parking", **values: float) -> JobReport:
    return JobReport(job, "jr_1", "committed", AT, values)


def printed(given: JobReport) -> dict[str, Any]:
    stream = io.StringIO()
    EmbeddedMetrics(stream).report(given)
    [line] = stream.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_line_has_what_the_format_asks_for_when_a_run_ends() -> None:
    found = printed(report(Rows=808, LagSeconds=12.5))

    assert found == {
        "_aws": {
            "Timestamp": 1_773_675_900_250,
            "CloudWatchMetrics": [
                {
                    "Namespace": "GlueWatermarks",
                    "Dimensions": [["Job"]],
                    "Metrics": [{"Name": "Rows", "Unit": "Count"}, {"Name": "LagSeconds", "Unit": "Seconds"}],
                }
            ],
        },
        "Job": "parking",
        "RunId": "jr_1",
        "Outcome": "committed",
        "Rows": 808,
        "LagSeconds": 12.5,
    }


def test_names_of_metrics_and_dimensions_are_members_of_the_line_when_all_are_given() -> None:
    values: dict[str, Any] = dict.fromkeys(UNITS, 1.0)
    found = printed(report(**values))

    [directive] = found["_aws"]["CloudWatchMetrics"]
    assert all(metric["Name"] in found for metric in directive["Metrics"])
    assert {metric["Unit"] for metric in directive["Metrics"]} <= CLOUDWATCH_UNITS
    assert len(directive["Metrics"]) <= 100  # CloudWatch's limit for one directive.


def test_line_stays_one_line_when_the_name_has_quotes_and_line_ends() -> None:
    assert printed(report(job='a"\n{"Job": 1}'))["Job"] == 'a"\n{"Job": 1}'


def test_counts_add_up_and_times_are_gauges_when_two_runs_are_reported_to_opentelemetry() -> None:
    reader = InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]))

    metrics.report(report(Rows=800, LagSeconds=60))
    metrics.report(report(Rows=8, LagSeconds=30))

    data: Any = reader.get_metrics_data()
    found = {
        metric.name: (metric.unit, [(point.value, dict(point.attributes)) for point in metric.data.data_points])
        for scope in data.resource_metrics[0].scope_metrics
        for metric in scope.metrics
    }
    assert found["watermarks.rows"] == ("1", [(808, {"job": "parking", "outcome": "committed"})])
    assert found["watermarks.lag"] == ("s", [(30, {"job": "parking"})])


def test_missing_api_is_named_when_opentelemetry_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)

    with pytest.raises(ConfigurationError, match="pip install opentelemetry-api"):
        OpenTelemetryMetrics()
