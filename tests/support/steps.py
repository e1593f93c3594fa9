"""Typical steps of runs in all tests: commit, freeze a plan and leave it open, store a large value, die."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks

PLAN: Mapping[str, Any] = MappingProxyType({"a": {"files": ["x"]}})
NEXT: Mapping[str, Any] = MappingProxyType({"n": 1})


class KilledError(Exception):
    """Ends a run in the middle of its work."""


def add(watermarks: Watermarks, job_id: str, run_id: str, **values: Any) -> None:
    """Commit in one call, as the original class did."""
    watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id=run_id, **values))


def frozen(
    watermarks: Watermarks,
    job_id: str,
    run_id: str = "r1",
    *,
    plan: Mapping[str, Any] = PLAN,
    following: Mapping[str, Any] = NEXT,
) -> Run:
    """Begin a run and freeze a plan, and leave the run in the state in which a run that dies then leaves it."""
    run = watermarks.begin(job_id, run_id)
    run.freeze(dict(plan), dict(following))
    return run


def commit(
    watermarks: Watermarks,
    job_id: str,
    run_id: str,
    following: Mapping[str, Any],
    *,
    plan: Mapping[str, Any] = MappingProxyType({}),
    **metrics: Any,
) -> Run:
    """Run a job once, from begin to commit."""
    run = frozen(watermarks, job_id, run_id, plan=plan, following=following)
    run.commit(**metrics)
    return run


def large(seed: int, size: int = 400_000) -> dict[str, Any]:
    """Return a value that does not compress; by default it takes two chunks."""
    return {"packed": random.Random(seed).randbytes(size)}
