"""Reports of ended runs to CloudWatch, OpenTelemetry and people, and how far behind a job is.

The modules of this package must not depend on how the numbers were counted.
"""

from typing import TYPE_CHECKING

from scripts.helpers._lazy import lazy

if TYPE_CHECKING:
    from scripts.helpers.metrics.embedded import EmbeddedMetrics as EmbeddedMetrics
    from scripts.helpers.metrics.freshness import Threshold as Threshold
    from scripts.helpers.metrics.report import JobReport as JobReport
    from scripts.helpers.metrics.report import Reporter as Reporter
    from scripts.helpers.metrics.telemetry import OpenTelemetryMetrics as OpenTelemetryMetrics

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "embedded": ["EmbeddedMetrics"],
        "freshness": ["Threshold"],
        "report": ["JobReport", "Reporter"],
        "telemetry": ["OpenTelemetryMetrics"],
    },
)
