"""Runs whose records and watermarks are in one file, without any AWS configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.watermarks import Watermarks
from tests.support.patience import PATIENCE

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
    """Return runs in a file with a defined job, whose script counts and commits the new files of a folder."""
    marks = Watermarks(NAME)
    marks.create_table()
    (here / "scripts").mkdir()
    (here / "scripts" / "load.py").write_text(SCRIPT)
    (here / "landing").mkdir()
    (here / "landing" / "1.json").write_text("{}")
    made = JobRuns(marks, SparkSubmit(str(here / "logs"), scripts=[str(here / "scripts")], beat_seconds=0.2))
    arguments = {"--table": f"sqlite:{here}/watermarks.db", "--source": str(here / "landing")}
    command = {"Name": "pythonshell", "ScriptLocation": str(here / "scripts" / "load.py")}
    made.create_job(Name="landed", Command=command, DefaultArguments=arguments)
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
