"""Output records that no sink has staged, for tests of what stores them and of what they must not be able to do."""

from __future__ import annotations

from typing import Any

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks.outputs import folder_of, mark_of


def output_of(
    target: str = "s3://raw",
    version: int = 1,
    *,
    job_id: str = "parking",
    epoch: str = "e1",
    fence: int = 1,
    **more: Any,
) -> Output:
    """Return the output of an attempt, with the names that a sink gives it."""
    folder = folder_of(BatchId(job_id, epoch, version), fence, "0a1b2c3d")
    given = {"sink": "files", "staging": "", "folder": folder, "job": mark_of(job_id), "job_id": job_id, **more}
    return Output(target=target, version=version, epoch=epoch, fence=fence, **given)


def output_of_run(run: Any, target: str = "s3://raw", **more: Any) -> Output:
    """Return the output of a run that has frozen its plan."""
    batch = run.batch_id
    return output_of(target, batch.version, job_id=batch.job_id, epoch=batch.epoch, fence=run.fence, **more)
