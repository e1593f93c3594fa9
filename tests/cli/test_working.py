"""`watermarks work` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.steps import commit

NAMES = ("parking", "planted", "waste")


def test_worker_starts_what_waits_and_ends_when_told(dynamodb: Any, endpoint: str, tmp_path: Path) -> None:
    marks = Watermarks("working", dynamodb)
    marks.create_table()
    scripts, logs = tmp_path / "scripts", tmp_path / "logs"
    scripts.mkdir()
    (scripts / "a.py").write_text("print('done')\n")
    (tmp_path / "evil.py").write_text("print('evil')\n")
    jobs = JobRuns(marks, SparkSubmit(str(logs), scripts=[str(tmp_path)]))
    for name, script in (("parking", scripts / "a.py"), ("planted", tmp_path / "evil.py"), ("waste", scripts / "a.py")):
        command = {"Name": "pythonshell", "ScriptLocation": str(script)}
        jobs.service.scheduler.engine = Quiet()
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
    assert f"{str(tmp_path / 'evil.py')!r} is in no place" in refused["ErrorMessage"]
    assert jobs.get_job_run(JobName="waste", RunId=waiting["waste"][1])["JobRun"]["JobRunState"] == "WAITING"
    assert (worker.returncode, output) == (0, f"started parking {waiting['parking'][1]}\n")


def test_job_is_refused_when_it_has_no_definition(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "parking", "jr_1", {"n": 1})

    done = run(watermarks, "work", "parking", "--logs", "logs", "--scripts", "/jobs", "--once")

    assert done.exit_code != 0
    assert "Job 'parking' has no definition that runs could be started of." in done.stderr


class Quiet:
    """An engine that starts nothing."""

    supervises = False

    def launch(self, run: Any) -> None:
        pass


def end(jobs: JobRuns, name: str, run_id: str) -> None:
    """Let a run come to its end, as its launcher would."""
    records = jobs.service.scheduler.records
    for state in ("RUNNING", "SUCCEEDED"):
        run = records.run(name, run_id)
        assert run is not None
        records.write_run(run, run.to(state, jobs.service.scheduler.clock()))
