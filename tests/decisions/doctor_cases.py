"""Jobs for the doctor's tests: commits with large states, and findings as they are compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from scripts.helpers.decisions.doctor import Finding
from scripts.helpers.watermarks import Watermarks

Stored = Callable[[], dict[str, Any]]
ORPHAN = "!s#0123456789abcdef-0#00000"


def large(seed: int) -> dict[str, Any]:
    return {"packed": random.Random(seed).randbytes(400_000)}


def commit(watermarks: Watermarks, job_id: str, run_id: str, **following: Any) -> None:
    run = watermarks.begin(job_id, run_id)
    run.freeze({"parking": [1]}, following)
    run.commit()


def kinds(found: list[Finding]) -> list[tuple[str, str, bool]]:
    return [(finding.kind, finding.detail, finding.repaired) for finding in found]
