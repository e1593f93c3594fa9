"""What the doctor's tests look for, and findings as they are compared."""

from __future__ import annotations

from scripts.helpers.decisions.doctor import Finding

ORPHAN = "!s#0123456789abcdef-0#00000"


def kinds(found: list[Finding]) -> list[tuple[str, str, bool]]:
    return [(finding.kind, finding.detail, finding.repaired) for finding in found]
