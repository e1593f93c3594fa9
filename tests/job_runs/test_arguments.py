"""Arguments of runs: whatever arguments a start gives, they never change which job it is or which run."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.helpers.errors import InvalidValueError, WatermarkError
from scripts.helpers.glue import getResolvedOptions
from scripts.helpers.job_runs import SparkSubmit, launcher
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import Jobs

RUN_ID = "jr_" + "7" * 64
COMMAND = {"Name": "glueetl", "ScriptLocation": "s3://scripts/a.py"}
DISGUISES = {
    "name": {"--JOB_NAME": "b-victim"},
    "id": {"--JOB_ID": "j_other"},
    "run": {"--JOB_RUN_ID": "jr_other"},
    "configuration": {"--SECURITY_CONFIGURATION": "mine"},
    "script": {"--scriptLocation": "/jobs/b.py"},
    "name with a value": {"--JOB_NAME=b-victim": "x"},
    "run with a value": {"--JOB_RUN_ID=jr_other": ""},
    "script with a value": {"--scriptLocation=/jobs/b.py": ""},
    "abbreviated name": {"--JOB_NAM": "b-victim"},
    "abbreviated run": {"--JOB_R": "jr_other"},
    "abbreviated with a value": {"--JOB_N=b-victim": ""},
    "shortest abbreviation": {"--J": "b-victim"},
    "end of options": {"--": "--JOB_NAME"},
    "any name with a value": {"--area=north": "x"},
    "value that is a flag": {"x": "--JOB_NAME"},
    "value that is a name": {"--area": "--JOB_NAME=b-victim"},
    "value that is a run": {"--area": "--JOB_RUN_ID=jr_other"},
    "value with a space": {"--area": "--JOB_NAME=b victim"},
    "abbreviated value": {"--area": "--JOB_NA=b-victim"},
    "value that is any flag": {"--area": "--target=s3://b/"},
    "value that ends the options": {"--area": "--"},
}
"""Arguments that a parser may read as other arguments than they seem to be."""
ON_EVERY_CALL = ("run", "value that is a name")
"""The names of those in DISGUISES that every call is tested with, because all calls check arguments by one rule."""
HARMLESS = {
    "--area": "north", "--conf": "spark.executor.cores=2", "--date-from": "-7", "--ratio": "-.5", "--dash": "-",
    "--rest": "--JOB_NAME is not given by this", "--options": "--conf a=b", "--e": "", "--sql": "a=b", "x": "y",
    "--TempDir": "s3://t/", "--job-bookmark-option": "job-bookmark-pause", "--job-bookmark-from": "jr_1",
    "--job-bookmark-to": "jr_2", "--BOOKMARK_CONTEXT": "north", "--JOB_NAMES": "a,b", "--job_name": "c",
}  # fmt: skip
"""Arguments that a start may set: values that parsers read as values, and options of the job's own bookmark."""
CALLS: dict[str, Callable[[Jobs, dict[str, str]], Any]] = {
    "start": lambda jobs, given: jobs.start_job_run(JobName="parking", Arguments=given),
    "defaults": lambda jobs, given: jobs.create_job(Name="new", Command=COMMAND, DefaultArguments=given),
    "fixed": lambda jobs, given: jobs.create_job(Name="new", Command=COMMAND, NonOverridableArguments=given),
    "update": lambda jobs, given: jobs.update_job(
        JobName="parking", JobUpdate={"Command": COMMAND, "DefaultArguments": given}
    ),
}  # fmt: skip


class NotStarting(SparkSubmit):
    """The engine, except that it starts no process."""

    launched: ClassVar[list[str]] = []

    def launch(self, run: RunRecord, shared: Any) -> None:
        self.check(run)
        self.launched.append(run.run_id)


@pytest.fixture
def checked(parked: Jobs) -> Jobs:
    """Return jobs on an engine that checks what it would start."""
    engine = NotStarting("logs", scripts=["s3://scripts/", "/jobs"])
    engine.launched.clear()
    parked.engine = parked.scheduler.engine = engine
    return parked


def a_run(arguments: dict[str, str], command: Mapping[str, Any] = COMMAND) -> RunRecord:
    now = Clock()()
    told = {"Arguments": arguments, "Attempt": 0, "Timeout": 30}
    return RunRecord("a-inc", RUN_ID, "WAITING", now, now, told, command)


def plant(jobs: Jobs, arguments: dict[str, str], command: Mapping[str, Any] = COMMAND) -> None:
    """Write a failed run, as any principal who may write the job's items can."""
    records, now = jobs.scheduler.records, jobs.scheduler.clock()
    records.write_run(None, a_run(arguments, command).starting(now, timedelta(minutes=1)).to("FAILED", now))
    made = JobRecord("a-inc", {"Command": command, "CreatedOn": now, "LastModifiedOn": now})
    records.change_job("a-inc", lambda job: job or made)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "given"), [
    pytest.param(call, given, id=f"{call}-{name}")
    for call in CALLS for name, given in DISGUISES.items() if call == "start" or name in ON_EVERY_CALL
])  # fmt: skip
def test_request_is_refused_and_nothing_written_when_an_argument_would_be_read_as_another(
    checked: Jobs, everything: Callable[[], Any], call: str, given: dict[str, str]
) -> None:
    before = everything()

    with pytest.raises(checked.exceptions.InvalidInputException) as refused:
        CALLS[call](checked, given)

    ((name, value),) = given.items()
    assert repr(name.partition("=")[0]) in str(refused.value)
    assert any(remedy in str(refused.value) for remedy in ("Leave it out", "as its value", "a space in front"))
    assert all(part not in str(refused.value) for part in (value, name.partition("=")[2]) if len(part) > 3)
    assert isinstance(refused.value.__cause__, InvalidValueError)
    assert refused.value.__cause__.reason == "argument"
    assert everything() == before


@pytest.mark.parametrize("name", ON_EVERY_CALL)
def test_run_is_not_started_when_an_argument_of_its_record_would_be_read_as_another(checked: Jobs, name: str) -> None:
    given = DISGUISES[name]
    run = a_run({"--area": "north"} | given).starting(checked.scheduler.clock(), timedelta(minutes=1))
    checked.scheduler.records.write_run(None, run)

    started = checked.scheduler.start(run)

    found = checked.record("a-inc", RUN_ID)
    assert (started, found.state, checked.engine.launched) == (False, "ERROR", [])
    assert repr(next(iter(given)).partition("=")[0]) in str(found.error)


def test_launcher_starts_no_job_when_an_argument_was_altered_after_the_run_was_launched(
    jobs: Jobs, define: Callable[..., None], tmp_path: Path
) -> None:
    define("a-inc", f"open({str(tmp_path / 'ran')!r}, 'w')")
    command = jobs.get_job(JobName="a-inc")["Job"]["Command"]
    altered = a_run({"--area": "--JOB_NAME=b-victim"}, command).to("STARTING", jobs.scheduler.clock())
    jobs.scheduler.records.write_run(None, altered)
    settings = {"shared": jobs.scheduler.settings(), "engine": jobs.engine.to_json(), "job": "a-inc", "run": RUN_ID}

    carried = launcher.make(settings)
    assert carried is not None
    carried.carry_out()

    found = jobs.record("a-inc", RUN_ID)
    assert (found.state, "'--area'" in str(found.error)) == ("FAILED", True)
    assert not (tmp_path / "ran").exists()


def test_retry_is_refused_when_the_run_that_it_repeats_has_such_an_argument(checked: Jobs) -> None:
    plant(checked, {"--area": "--JOB_NAME=b-victim"})

    with pytest.raises(checked.exceptions.InvalidInputException, match="'--area'"):
        checked.start_job_run(JobName="a-inc", JobRunId=RUN_ID)


# --- what a script gets --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["glueetl", "pythonshell"])
def test_arguments_of_the_run_itself_come_last_when_its_command_is_made(name: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").touch()
    run = replace(a_run({"--b": "1", "--a": "2", "-c": "3"}), command={"Name": name})

    command = SparkSubmit("logs", spark_home=str(tmp_path)).command(run, "/a.py")

    given, (name_of, job, id_of, digest, run_of, run_id) = command[-12:-6], command[-6:]
    # argparse uses the last of two spellings of an option, so a full name comes after short ones and its abbreviations.
    assert given == ["-c", "3", "--a", "2", "--b", "1"]
    assert (name_of, job, id_of, run_of, run_id) == ("--JOB_NAME", "a-inc", "--JOB_ID", "--JOB_RUN_ID", RUN_ID)
    assert digest.startswith("j_")


PARTS = [
    "--JOB_NAME", "--JOB_ID", "--JOB_RUN_ID", "--JOB", "--area", "--", "-", "=", " ", "b-victim", "-7", "x", "--a", "",
    "--opt", "-n",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join)


def plain(argv: list[str]) -> dict[str, Any]:
    """Parse as a script with a parser of its own does, with options that take one, several, or zero or one values."""
    parser = argparse.ArgumentParser()
    for option in ("JOB_NAME", "JOB_ID", "JOB_RUN_ID", "area"):
        parser.add_argument(f"--{option}", default="absent")
    parser.add_argument("-n", "--names", nargs="+")
    parser.add_argument("--option", nargs="?")
    return vars(parser.parse_known_args(argv[1:])[0])


@pytest.mark.parametrize(
    "parse",
    [
        lambda argv: getResolvedOptions(argv, ["JOB_NAME"]),
        lambda argv: getResolvedOptions(argv, ["JOB_NAME"], allow_abbrev=True),
        plain,
    ],
    ids=["resolved", "abbreviated", "argparse"],
)
@given(arguments=st.dictionaries(TEXTS, TEXTS | st.text(max_size=8), max_size=4))
@example(arguments={"--area": "--JOB_NAME=b-victim"})
@example(arguments={"--JOB_NAM": "b-victim"})
@example(arguments={"--area": "--"})
@example(arguments={"--names": "--JOB_ID"})
def test_job_and_run_are_the_true_ones_when_any_arguments_are_given(
    parse: Callable[[list[str]], dict[str, Any]], arguments: dict[str, str]
) -> None:
    engine, run = SparkSubmit("logs", scripts=["s3://scripts/"]), a_run(arguments)
    with contextlib.suppress(WatermarkError):
        engine.check(run)
        command = engine.command(replace(run, command=COMMAND | {"Name": "pythonshell"}), "/a.py")
        with contextlib.suppress(SystemExit), contextlib.redirect_stderr(None):
            found = parse(command[1:])

            assert (found["JOB_NAME"], found["JOB_RUN_ID"]) == ("a-inc", RUN_ID)


RESOLVED = """
import json, sys
from scripts.helpers.glue import getResolvedOptions
names = ["JOB_NAME", *json.loads(sys.argv[sys.argv.index("--names") + 1])]
print(json.dumps(getResolvedOptions(sys.argv, names, allow_abbrev=True)))
"""
PAIRS = "import json, sys\nprint(json.dumps(dict(zip(sys.argv[1::2], sys.argv[2::2]))))\n"


@pytest.mark.parametrize("script", [RESOLVED, PAIRS], ids=["getResolvedOptions", "its own parser"])
def test_script_gets_every_value_as_it_was_given_when_a_real_run_starts_it(
    jobs: Jobs, define: Callable[..., None], script: str
) -> None:
    given = {name: value for name, value in HARMLESS.items() if name != "--conf"}
    known = [name[2:] for name in given if name.startswith("--") and "job-bookmark" not in name]
    define("a-inc", script)

    run = jobs.wait("a-inc", jobs.start("a-inc", Arguments=given | {"--names": json.dumps(known)}))

    output = Path(run["LogGroupName"], "stdout").read_text()
    assert run["JobRunState"] == "SUCCEEDED", run["ErrorMessage"]
    found = {name.lstrip("-").replace("-", "_"): value for name, value in json.loads(output).items()}
    expected = {name.lstrip("-").replace("-", "_"): value for name, value in given.items()}
    if script == RESOLVED:
        expected.pop("x")  # A positional argument, which the script did not declare.
    assert expected.items() <= found.items()
    assert (found["JOB_NAME"], found["JOB_RUN_ID"]) == ("a-inc", run["Id"])


def test_argument_that_nobody_may_override_is_kept_when_a_start_abbreviates_it(
    jobs: Jobs, define: Callable[..., None]
) -> None:
    parser = "p = argparse.ArgumentParser()\np.add_argument('--target')\n"
    define(
        "a-inc",
        f"import argparse\n{parser}print(p.parse_known_args()[0].target)\n",
        NonOverridableArguments={"--target": "s3://safe/"},
    )

    run = jobs.wait(
        "a-inc", jobs.start("a-inc", Arguments={"--target": "s3://b/", "--targ": "s3://c/", "--t": "s3://d/"})
    )

    assert Path(run["LogGroupName"], "stdout").read_text() == "s3://safe/\n"


COMMITTING = """
import sys
from scripts.helpers.glue import getResolvedOptions
from scripts.helpers.watermarks import Watermarks
args = getResolvedOptions(sys.argv, ["JOB_NAME", "table"])
with Watermarks(args["table"]).begin(args["JOB_NAME"], args["JOB_RUN_ID"]) as run:
    run.freeze({}, {"n": 1})
    run.commit()
"""


def test_watermark_of_the_job_itself_moves_and_no_other_when_runs_of_it_commit(
    jobs: Jobs, define: Callable[..., None], table: Watermarks, moto_process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_process)
    define("a-inc", COMMITTING, DefaultArguments={"--table": table.table_name})
    with table.begin("b-victim", "jr_1") as run:
        run.freeze({}, {"n": 0})
        run.commit()

    for value in ("--JOB_NAME=b-victim", "--JOB_RUN_ID=jr_other"):
        with pytest.raises(jobs.exceptions.InvalidInputException):
            jobs.start("a-inc", Arguments={"--area": value})
    command = jobs.get_job(JobName="a-inc")["Job"]["Command"]
    plant(jobs, {"--table": table.table_name, "--area": "--JOB_NAME=b-victim"}, command)
    with pytest.raises(jobs.exceptions.InvalidInputException):
        jobs.start("a-inc", JobRunId=RUN_ID)
    run_id = jobs.start("a-inc", Arguments={"--area": "north"})
    done = jobs.wait("a-inc", run_id)

    assert done["JobRunState"] == "SUCCEEDED", done
    assert (table.latest("b-victim").version, table.latest("a-inc").version) == (1, 1)
    assert table.get_most_recent_run_id("a-inc") == run_id
