"""Amazon EMR Serverless as the engine of job runs: it supervises them itself, so no launcher is needed."""

from __future__ import annotations

import hashlib
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers.errors import ArgumentNotAllowedError, ConfigurationError, InvalidValueError
from scripts.helpers.job_runs import ids
from scripts.helpers.job_runs.engines import RUN_CONF, SparkSubmit, is_python_shell
from scripts.helpers.job_runs.run_record import RunRecord

logger = logging.getLogger(__name__)

LEAST_MINUTES = 5
"""EMR Serverless refuses shorter timeouts."""
REFUSED = ("AccessDeniedException", "ResourceNotFoundException", "ValidationException")
"""Errors of EMR Serverless that come again, however often a call is repeated."""
OURS = "emr-serverless:"


@dataclass(frozen=True)
class EmrServerless:
    """An application of EMR Serverless: runs are started, watched and cancelled by its API.

    A worker (`JobRuns.tend`, `JobRuns.work`) writes how a run ended. `get_job_run` and `wait` ask EMR Serverless, too,
    and write nothing. The roles need ``emr-serverless:StartJobRun``, ``GetJobRun`` and ``CancelJobRun`` on the
    application, and ``iam:PassRole`` on the role of the jobs.

    Parameters
    ----------
    client
        ``boto3.client("emr-serverless")``.
    application_id
        Of a Spark application. It has to start by itself when a run is submitted, as is its default.
    execution_role_arn
        What the jobs run as.
    scripts
        Where scripts and modules of jobs may be, as of `SparkSubmit`: URLs such as ``s3://bucket/jobs/``.
    conf, run_conf
        As of `SparkSubmit`.
    configuration
        ``configurationOverrides`` of each run, such as where its logs go.

    Raises
    ------
    InvalidValueError
        A place of `scripts` is none, or lies on this machine, where EMR Serverless finds nothing. Or `configuration`
        has logs written to such a place or around one. The application's own settings are not read.
    """

    client: Any
    application_id: str
    execution_role_arn: str
    scripts: Sequence[str] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    run_conf: Sequence[str] = RUN_CONF
    configuration: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse places that no run could be started from."""
        for place in self.scripts:
            if not place.startswith(("s3://", "s3a://")):
                raise InvalidValueError(f"scripts: {place!r} is not on S3, where EMR Serverless reads scripts from.")
        self._rules()

    def check(self, run: RunRecord) -> None:
        """Refuse a run that is not started here.

        Raises
        ------
        InvalidIdError, ScriptNotAllowedError, ArgumentNotAllowedError
            As of `SparkSubmit.check`; also of an argument without a value.
        InvalidValueError
            It is no Spark job, or its Timeout is below 5 minutes.
        """
        if is_python_shell(run):
            raise InvalidValueError(
                f"Job {run.job_name!r} is a pythonshell job. EMR Serverless runs Spark: use glueetl."
            )
        self._rules().check(run)
        if run.told["Timeout"] < LEAST_MINUTES:
            raise InvalidValueError(
                f"Job {run.job_name!r} has a Timeout of {run.told['Timeout']} minutes, and EMR Serverless takes "
                f"{LEAST_MINUTES} at least. Set a longer one."
            )
        for name, value in run.told["Arguments"].items():
            if not value:
                raise ArgumentNotAllowedError(run.job_name, name, "it is empty, which EMR Serverless does not take.")

    def launch(self, run: RunRecord, _shared: Mapping[str, Any]) -> str | None:
        """Start a run, and return what names it here; None where that is not known, so that it has to be repeated.

        By its token it is one run, however often it is started.

        Raises
        ------
        ConfigurationError
            EMR Serverless refuses it.
        """
        self.check(run)
        rules, name = self._rules(), ids.of_all_jobs(run.job_name, run.run_id)
        submit = {
            "entryPoint": rules.script(run),
            "entryPointArguments": rules.arguments(run),
            "sparkSubmitParameters": shlex.join(rules.settings(run)),
        }
        request: dict[str, Any] = {
            "applicationId": self.application_id,
            "clientToken": hashlib.sha256(name.encode()).hexdigest(),  # The name is longer than may be.
            "executionRoleArn": self.execution_role_arn,
            "executionTimeoutMinutes": run.told["Timeout"],
            "jobDriver": {"sparkSubmit": {name: value for name, value in submit.items() if value}},
            "name": name,
        }
        if self.configuration:
            request["configurationOverrides"] = dict(self.configuration)
        try:
            return OURS + str(self.client.start_job_run(**request)["jobRunId"])
        except (ClientError, BotoCoreError) as error:
            if _code(error) in REFUSED:
                raise ConfigurationError(f"EMR Serverless refuses run {run.run_id!r}: {error}") from error
            logger.warning("event=start_unsure run=%s error=%s", run.run_id, _code(error))
            return None

    def look(self, run: RunRecord, now: datetime) -> RunRecord | None:
        """Return a run as EMR Serverless has it now; None where it was not started here, or its state is unknown."""
        if run.launcher is None or not run.launcher.startswith(OURS):
            return None
        try:
            found = self.client.get_job_run(**self._key(run))["jobRun"]
        except (ClientError, BotoCoreError) as error:
            if _code(error) == "ResourceNotFoundException":
                return run.ended("ERROR", now, f"EMR Serverless has no run {run.launcher} any more.")
            logger.warning("event=look_failed run=%s error=%s", run.run_id, _code(error))
            return None
        # The record may name any run of the application, also one of another job, to have it watched or cancelled.
        if found.get("name") != ids.of_all_jobs(run.job_name, run.run_id):
            return run.ended("ERROR", now, f"Run {run.launcher} of EMR Serverless is another one.")
        if run.state == "STARTING":  # Only who altered the record wrote that beside a name. From there no end is legal.
            run = run.to("RUNNING", now)
        detail = found.get("stateDetails") or None
        if found["state"] == "SUCCESS":
            return run.to("SUCCEEDED", now)
        if found["state"] == "FAILED":
            return run.ended("FAILED", now, detail)
        if found["state"] != "CANCELLED":
            return run
        if run.state == "STOPPING":
            return run.to("STOPPED", now)
        # EMR Serverless cancels what reaches its time limit; somebody may have cancelled it there as well.
        if found.get("totalExecutionDurationSeconds", 0) >= run.told["Timeout"] * 60:
            return run.to("TIMEOUT", now, error=detail)
        return run.to("STOPPING", now).to("STOPPED", now, error=detail)

    def cancel(self, run: RunRecord) -> None:
        """Cancel a run that `look` has found. Once more does no harm; one that fails is repeated by the next look."""
        try:
            self.client.cancel_job_run(**self._key(run))
        except (ClientError, BotoCoreError) as error:
            logger.warning("event=cancel_failed run=%s error=%s", run.run_id, _code(error))

    def _rules(self) -> SparkSubmit:
        """Return what checks scripts and arguments; it starts nothing."""
        monitoring = self.configuration.get("monitoringConfiguration", {}).get("s3MonitoringConfiguration", {})
        return SparkSubmit(monitoring.get("logUri", ""), scripts=self.scripts, conf=self.conf, run_conf=self.run_conf)

    def _key(self, run: RunRecord) -> dict[str, str]:
        return {"applicationId": self.application_id, "jobRunId": str(run.launcher).removeprefix(OURS)}


def _code(error: Exception) -> str:
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else type(error).__name__
