"""What goes wrong at one numbered request: a crash, an error, an outage from then on, a request sent twice."""

from __future__ import annotations

from typing import Any

FAULTS = {
    # name: (what happens to request k, what happens to all later ones)
    "die-before": ("die-before", "die-before"),
    "die-after": ("die-after", "die-before"),
    "error-before": ("drop", None),
    "error-after": ("reply-lost", None),
    "outage-before": ("drop", "drop"),
    "outage-after": ("reply-lost", "drop"),
    "re-send-before": ("throttle", None),
    "re-send-after": ("re-send", None),
}
"""``before``: request k did not take effect. In ``re-send-before`` the library itself resends the throttled request."""


class FaultAt:
    """The `fault` of a `FakeDynamoDB`: counts requests from 0 since its creation, and makes request `k` fail."""

    def __init__(self, k: int, name: str) -> None:
        self.k = k
        self.at_k, self.later = FAULTS[name]
        self.seen = 0

    def __call__(self, index: int, action: str, request: dict[str, Any]) -> str | None:
        number, self.seen = self.seen, self.seen + 1
        if number < self.k:
            return None
        return self.at_k if number == self.k else self.later

    @property
    def struck(self) -> bool:
        return self.seen > self.k
