"""Reads a job's runs from AWS Glue. No other module calls Glue for runs."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers.display.redaction import aws_client
from scripts.helpers.errors import AccessRefusedError

logger = logging.getLogger(__name__)

CLIENT_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})
"""Short timeouts, because the answer is optional: boto3's default of 60 seconds a try could stall a run for minutes."""


def on_glue() -> bool:
    """Return whether this is a Glue job: whether Glue's library is installed."""
    return importlib.util.find_spec("awsglue") is not None


def runs_on_glue(job_name: str, run_ids: Iterable[str | None]) -> Iterator[dict[str, Any]]:
    """Yield Glue's JobRun for each run id, one request at a time as it is needed; yield nothing outside Glue.

    A run is skipped, with a WARNING that has the reason, if Glue has no record of it or does not answer
    in time.

    Raises
    ------
    AccessRefusedError
        The role may not call ``glue:GetJobRun``.
    """
    if not on_glue():
        return
    try:
        client = aws_client("glue", config=CLIENT_CONFIG)
    except BotoCoreError as error:
        logger.warning("event=glue_not_asked job=%s error=%s", job_name, type(error).__name__)
        return
    for run_id in run_ids:
        try:
            yield client.get_job_run(JobName=job_name, RunId=str(run_id))["JobRun"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "AccessDeniedException":
                raise AccessRefusedError("glue:GetJobRun", job_name) from error
            logger.warning("event=glue_does_not_tell job=%s run=%s error=%s", job_name, run_id, code)
        except BotoCoreError as error:
            logger.warning("event=glue_not_asked job=%s run=%s error=%s", job_name, run_id, type(error).__name__)
