"""What AWS Glue knows of a job's runs. The only module that asks it for runs."""

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
"""A run can do without the answer, so it does not wait for minutes, as it would with boto3's own 60 seconds a try."""


def on_glue() -> bool:
    """Tell whether this is a Glue job, by the presence of Glue's library."""
    return importlib.util.find_spec("awsglue") is not None


def runs_on_glue(job_name: str, run_ids: Iterable[str | None]) -> Iterator[dict[str, Any]]:
    """Yield Glue's JobRun of each run, asked for when it is needed; nothing where this is no Glue job.

    A run that Glue does not know is left out, as is one that it does not tell about in time: a WARNING
    says why.

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
