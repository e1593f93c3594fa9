"""Runs whose records and watermarks are in one file, where nothing of AWS is configured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.watermarks import Watermarks
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.usefixtures("here")
NAME = "sqlite:watermarks.db"
SCRIPT = """
import sys
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
args = {name.lstrip("-"): value for name, value in zip(sys.argv[1::2], sys.argv[2::2])}
with IncrementalJob.from_args(args, Watermarks(args["table"])) as job:
    print(job.new_files(args["source"], transformation_ctx="files").count)
"""


@pytest.fixture
def jobs(here: Path) -> JobRuns:
    """Return runs in a file with a defined job: its script commits what is new in a folder."""
    marks = Watermarks(NAME)
    marks.create_table()
    (here / "scripts").mkdir()
    (here / "scripts" / "load.py").write_text(SCRIPT)
    (here / "landing").mkdir()
    (here / "landing" / "1.json").write_text("{}")
    made = JobRuns(marks, SparkSubmit(str(here / "logs"), scripts=[str(here / "scripts")], beat_seconds=0.2))
    arguments = {"--table": f"sqlite:{here}/watermarks.db", "--source": str(here / "landing")}
    command = {"Name": "pythonshell", "ScriptLocation": str(here / "scripts" / "load.py")}
    made.create_job(Name="landed", Command=command, DefaultArguments=arguments, JobRunQueuingEnabled=True)
    return made


def test_launcher_finds_the_table_when_its_starter_has_changed_its_folder(
    jobs: JobRuns, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")

    run = jobs.wait("landed", jobs.start_job_run(JobName="landed")["JobRunId"], seconds=PATIENCE)

    assert run["JobRunState"] == "SUCCEEDED", Path(run["LogGroupName"], "stderr").read_text()
    assert Path(run["LogGroupName"], "stdout").read_text() == "1\n"
    assert Watermarks(f"sqlite:{here}/watermarks.db").get_most_recent_run_id("landed") == run["Id"]


def test_worker_starts_a_waiting_run_when_the_table_is_a_file(jobs: JobRuns, here: Path) -> None:
    first, second = (jobs.start_job_run(JobName="landed")["JobRunId"] for _ in "12")
    jobs.wait("landed", first, seconds=PATIENCE)
    line = [sys.executable, "-m", "scripts.cli", "work", "landed", "--logs", "logs", "--scripts", "scripts", "--once"]
    environment = os.environ | {"WATERMARKS_TABLE": NAME, "PYTHONPATH": str(REPOSITORY)}

    done = subprocess.run(line, cwd=here, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    run = jobs.wait("landed", second, seconds=PATIENCE)

    assert (done.stdout, run["JobRunState"]) == (f"started landed {second}\n", "SUCCEEDED")
    assert Watermarks(NAME).latest("landed").version == 2
