"""The key of an orphaned chunk, and a short form of findings to compare, for the doctor's tests."""

from __future__ import annotations

from scripts.helpers.decisions.doctor import Finding

ORPHAN = "!s#0123456789abcdef-0#00000"


def kinds(found: list[Finding]) -> list[tuple[str, str, bool]]:
    return [(finding.kind, finding.detail, finding.repaired) for finding in found]
