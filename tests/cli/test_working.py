"""`watermarks work` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.job_runs import launcher
from scripts.helpers.job_runs.client import EmrServerless, JobRuns, SparkSubmit
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command, document
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.steps import commit

ROLE = "arn:aws:iam::123456789012:role/jobs"
NAMES = ("parking", "planted", "waste")


def test_worker_starts_what_waits_and_ends_when_told(dynamodb: Any, endpoint: str, tmp_path: Path) -> None:
    marks = Watermarks("working", dynamodb)
    marks.create_table()
    scripts, logs = tmp_path / "scripts", tmp_path / "logs"
    scripts.mkdir()
    (scripts / "a.py").write_text("print('done')\n")
    (tmp_path / "evil.py").write_text("print('evil')\n")
    jobs = JobRuns(marks, SparkSubmit(str(logs), scripts=[str(scripts), str(tmp_path / "evil.py")]))
    for name, script in (("parking", scripts / "a.py"), ("planted", tmp_path / "evil.py"), ("waste", scripts / "a.py")):
        command = {"Name": "pythonshell", "ScriptLocation": str(script)}
        jobs.scheduler.engine = Quiet()
        jobs.create_job(Name=name, Command=command, JobRunQueuingEnabled=True)
    waiting = {name: [jobs.start_job_run(JobName=name)["JobRunId"] for _ in "12"] for name in NAMES}
    for name, (first, _) in waiting.items():
        end(jobs, name, first)

    line = [sys.executable, "-m", "scripts.cli", "work", "parking", "planted", "--table", "working"]
    line += ["--endpoint-url", endpoint, "--logs", str(logs), "--scripts", str(scripts), "--pause", "1s"]
    worker = subprocess.Popen(line, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        run = jobs.wait("parking", waiting["parking"][1], seconds=PATIENCE)
        refused = jobs.wait("planted", waiting["planted"][1], seconds=PATIENCE)
        worker.send_signal(signal.SIGTERM)
        output, _ = worker.communicate(timeout=PATIENCE)
    finally:
        worker.kill()

    assert (run["JobRunState"], Path(run["LogGroupName"], "stdout").read_text()) == ("SUCCEEDED", "done\n")
    assert refused["JobRunState"] == "ERROR"
    assert f"{str(tmp_path / 'evil.py')!r} is not in a place" in refused["ErrorMessage"]
    assert jobs.get_job_run(JobName="waste", RunId=waiting["waste"][1])["JobRun"]["JobRunState"] == "WAITING"
    assert (worker.returncode, output) == (0, f"started parking {waiting['parking'][1]}\n")


def test_started_run_is_shown_when_another_job_is_altered(
    run: Command, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = JobRuns(watermarks, SparkSubmit("logs", scripts=["/jobs"]))
    jobs.scheduler.engine = Quiet()
    command = {"Name": "pythonshell", "ScriptLocation": "/jobs/parking.py"}
    for name in ("altered", "parking"):
        jobs.create_job(Name=name, Command=command, JobRunQueuingEnabled=True)
        first, waiting = (jobs.start_job_run(JobName=name)["JobRunId"] for _ in "12")
        end(jobs, name, first)
    job = jobs.scheduler.records.job("altered")
    assert job is not None
    record = jobs.scheduler.records.run("altered", job.waiting[0].run_id)
    assert record is not None
    watermarks.store.put(record.to_item() | {"state": {"S": "LOST"}}, if_new=False)

    monkeypatch.setattr(SparkSubmit, "launch", Quiet().launch)
    done = run(watermarks, "work", "altered", "parking", "--logs", "logs", "--scripts", "/jobs", "--once")

    assert done.exit_code != 0
    assert "of job 'altered' is not readable: 'state' must be one of WAITING" in " ".join(done.stderr.split())
    assert f"started parking {waiting}\n" in done.output


def test_job_is_refused_when_it_has_no_definition(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "parking", "jr_1", {"n": 1})

    done = run(watermarks, "work", "parking", "--logs", "logs", "--scripts", "/jobs", "--once")

    assert done.exit_code != 0
    assert "Job 'parking' has no definition, so no run can be started." in done.stderr


def test_worker_is_refused_when_its_logs_are_among_the_scripts(run: Command, watermarks: Watermarks) -> None:
    done = run(watermarks, "work", "parking", "--logs", "jobs/logs", "--scripts", "jobs", "--once")

    assert done.exit_code != 0
    assert "'jobs/logs'" in done.stderr
    assert "'jobs'" in done.stderr
    assert "Use folders of which neither is inside the other" in " ".join(done.stderr.split())


def test_run_is_submitted_to_emr_serverless_when_an_application_is_named(
    run: Command, watermarks: Watermarks, moto_process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = boto3.client("emr-serverless", endpoint_url=moto_process)
    application = client.create_application(name="jobs", releaseLabel="emr-7.0.0", type="SPARK")["applicationId"]
    monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", moto_process)
    jobs = JobRuns(watermarks, EmrServerless(client, application, ROLE, scripts=["s3://scripts/jobs/"]))
    jobs.scheduler.engine = Quiet()
    command = {"Name": "glueetl", "ScriptLocation": "s3://scripts/jobs/parking.py"}
    jobs.create_job(Name="parking", Command=command, JobRunQueuingEnabled=True, Timeout=30)
    first, waiting = (jobs.start_job_run(JobName="parking")["JobRunId"] for _ in "12")
    end(jobs, "parking", first)

    done = run(
        watermarks, "work", "parking", "--scripts", "s3://scripts/jobs/", "--once",
        "--emr-application", application, "--emr-role", ROLE,
    )  # fmt: skip

    assert (done.exit_code, done.output) == (0, f"started parking {waiting}\n")
    [submitted] = client.list_job_runs(applicationId=application)["jobRuns"]
    assert (submitted["name"].startswith(waiting), submitted["executionRole"]) == (True, ROLE)


def test_started_runs_are_a_document_when_the_worker_ends(
    run: Command, watermarks: Watermarks, dynamodb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def work(_: JobRuns, names: Any, pause: float, is_over: Any, started: Any) -> None:
        asked.append((names, pause, is_over(), os.environ["AWS_PROFILE"]))
        started({"JobName": "parking", "JobRunId": "jr_1"})

    (tmp_path / "config").write_text("[profile night]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "default")
    monkeypatch.setattr(JobRuns, "work", work)
    monkeypatch.setattr(launcher, "told_to_end", lambda *_: lambda: False)
    command = {"Name": "pythonshell", "ScriptLocation": "/jobs/a.py"}
    JobRuns(watermarks, SparkSubmit(str(tmp_path), scripts=["/jobs"])).create_job(Name="parking", Command=command)

    done = run(
        watermarks, "work", "parking", "--logs", str(tmp_path), "--scripts", "/jobs", "--pause", "2m",
        "--profile", "night", "--region", dynamodb.meta.region_name, "--output", "json",
    )  # fmt: skip

    assert document(done) == {"started": [{"JobName": "parking", "JobRunId": "jr_1"}]}
    assert asked == [(("parking",), 120, False, "night")]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "Missing option '--logs'"),
        (["--emr-application", "00abc"], "--emr-application and --emr-role are given together"),
        (["--logs", "logs", "--emr-role", "arn"], "--emr-application and --emr-role are given together"),
        (
            ["--emr-application", "00abc", "--emr-role", "arn", "--logs", "logs", "--pass-on", "HOME"],
            "--logs, --pass-on: of runs on this machine only",
        ),
    ],
    ids=["neither", "no role", "no application", "both"],
)
def test_work_is_refused_when_its_options_name_no_place_or_two(
    run: Command, watermarks: Watermarks, options: list[str], told: str
) -> None:
    done = run(watermarks, "work", "parking", "--scripts", "s3://scripts/jobs/", "--once", *options)

    assert done.exit_code == 2
    assert told in done.stderr


class Quiet:
    """An engine that starts nothing."""

    def launch(self, run: Any, _shared: Any) -> None:
        pass


def end(jobs: JobRuns, name: str, run_id: str) -> None:
    """Let a run come to its end, as its launcher would."""
    records = jobs.scheduler.records
    for state in ("RUNNING", "SUCCEEDED"):
        run = records.run(name, run_id)
        assert run is not None
        records.write_run(run, run.to(state, jobs.scheduler.clock()))
