"""Changes that no test can notice, or that none should: file, function, what stands there, the change, and why."""

from __future__ import annotations

EQUIVALENT: list[tuple[str, str, str, str, str]] = []
