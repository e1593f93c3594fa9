"""Who can make what run where: what may be written into a table is not what may be run by who looks at it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import (
    ArgumentNotAllowedError,
    InvalidIdError,
    InvalidValueError,
    LogFolderError,
    ScriptNotAllowedError,
)
from scripts.helpers.job_runs import EmrServerless, engines, ids
from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.job_runs.job_record import JobRecord, TriggerRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.shapes import MAX_TRIGGERS
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import Jobs, Parked

RUN_ID = "jr_" + "7" * 64
Engine = Callable[..., SparkSubmit]


def plant(jobs: Jobs, name: str, script: str, run_id: str = RUN_ID, **told: Any) -> RunRecord:
    """Write what whoever may write a job's items can write: a job, a run that waits, and its place in the queue."""
    records, now = jobs.scheduler.records, jobs.scheduler.clock()
    command = {"Name": "pythonshell", "ScriptLocation": script}
    run = RunRecord(name, run_id, "WAITING", now, now, {"Arguments": {}, "Attempt": 0, "Timeout": 5} | told, command)
    records.write_run(None, run)
    before = records.job(name)
    after = before or JobRecord(name, {"Command": command, "CreatedOn": now, "LastModifiedOn": now})
    assert records.write(before, after.queued(run_id, now))
    return run


def run_of(script: str, **arguments: str) -> RunRecord:
    told = {"Arguments": {f"--{name.replace('_', '-')}": value for name, value in arguments.items()}}
    command = {"Name": "glueetl", "ScriptLocation": script}
    moment = engines_clock()
    return RunRecord("parking", RUN_ID, "STARTING", moment, moment, told, command)


def engines_clock() -> Any:
    return Clock()()


# --- who looks -----------------------------------------------------------------------------------


def test_nothing_is_started_or_written_when_somebody_only_looks(parked: Jobs, everything: Callable[[], Any]) -> None:
    plant(parked, "parking-x", "/jobs/parking.py")
    before = everything()

    runs = parked.get_job_runs(JobName="parking-x")["JobRuns"]
    run = parked.get_job_run(JobName="parking-x", RunId=RUN_ID)["JobRun"]
    waited = parked.wait("parking-x", RUN_ID, seconds=0)

    assert [found["JobRunState"] for found in (*runs, run, waited)] == ["WAITING"] * 3
    assert (parked.scheduler.engine.launched, everything() == before) == ([], True)


def test_only_its_own_run_is_started_when_somebody_starts_one(parked: Jobs) -> None:
    plant(parked, "parking", "/jobs/other.py")

    own = parked.start_job_run(JobName="parking", JobRunQueuingEnabled=True)["JobRunId"]
    parked.update_job(JobName="parking", JobUpdate={"Command": {"ScriptLocation": "/jobs/parking.py"}})
    parked.batch_stop_job_run(JobName="parking", JobRunIds=[own])

    assert parked.scheduler.engine.launched == []
    assert parked.record("parking", RUN_ID).state == "WAITING"


def test_lost_run_is_shown_as_an_error_and_left_alone_when_somebody_only_looks(
    parked: Jobs, everything: Callable[[], Any], clock: Clock
) -> None:
    run_id = parked.start_job_run(JobName="parking")["JobRunId"]
    clock.move(minutes=17)
    before = everything()

    shown = [parked.wait("parking", run_id), *parked.get_job_runs(JobName="parking")["JobRuns"]]

    assert [run["JobRunState"] for run in shown] == ["ERROR"] * 2
    assert everything() == before


def test_waiting_says_what_tends_the_run_when_it_needs_a_worker(parked: Jobs, caplog: Any) -> None:
    plant(parked, "parking", "/jobs/parking.py")

    run = parked.wait("parking", RUN_ID, seconds=0)

    assert run["JobRunState"] == "WAITING"
    assert "A worker starts it: watermarks work, or JobRuns.tend." in caplog.text


# --- a worker ------------------------------------------------------------------------------------


def test_worker_starts_runs_of_the_jobs_that_it_is_given_only(parked: Jobs) -> None:
    plant(parked, "parking", "/jobs/parking.py")
    plant(parked, "waste", "/jobs/parking.py")

    started = parked.tend("parking")

    assert started == [{"JobName": "parking", "JobRunId": RUN_ID}]
    assert parked.scheduler.engine.launched == [RUN_ID]
    assert parked.record("waste", RUN_ID).state == "WAITING"


@pytest.mark.parametrize("names", [[], "", [""], [None]])
def test_worker_is_refused_when_no_job_is_named(parked: Jobs, names: Any) -> None:
    with pytest.raises(InvalidValueError, match="Name each job"):
        parked.tend(names)


class Checking(Parked):
    """An engine that checks what it is to start, as `SparkSubmit` does, and starts nothing."""

    def launch(self, run: RunRecord, shared: Any) -> None:
        SparkSubmit("logs", scripts=["/jobs"]).check(run)
        super().launch(run, shared)


@pytest.mark.parametrize("told", [{"Arguments": None}, {"Arguments": {"--conf": 1}}, {"Attempt": "x"}], ids=str)
def test_worker_goes_on_with_other_jobs_when_a_run_was_planted_that_cannot_be_read(
    parked: Jobs, told: dict[str, Any]
) -> None:
    parked.scheduler.engine = Checking()
    plant(parked, "parking-x", "/jobs/parking.py", **told)
    plant(parked, "waste", "/jobs/parking.py")

    with pytest.raises(parked.exceptions.InternalServiceException, match="of job 'parking-x' is not readable"):
        parked.tend(["parking-x", "waste"])

    assert parked.record("waste", RUN_ID).state == "STARTING"


def test_planted_script_is_refused_and_not_run_when_it_is_outside_of_the_places(jobs: Jobs, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text(f"open({str(outside)!r} + '.ran', 'w')")
    plant(jobs, "parking-x", str(outside))

    assert jobs.tend("parking-x") == []

    found = jobs.record("parking-x", RUN_ID)
    assert (found.state, "is not in a place that this engine runs scripts from" in str(found.error)) == ("ERROR", True)
    assert not Path(f"{outside}.ran").exists()


def test_nothing_is_written_outside_of_the_logs_when_a_run_has_an_id_that_leads_there(
    jobs: Jobs, tmp_path: Path, logs: Path
) -> None:
    (tmp_path / "a.py").touch()
    plant(jobs, "parking-x", str(tmp_path / "a.py"), run_id="../../../escaped")

    assert jobs.tend("parking-x") == []

    found = jobs.record("parking-x", "../../../escaped")
    assert (found.state, "is not an id of this package" in str(found.error)) == ("ERROR", True)
    assert not (logs.parent.parent / "escaped").exists()
    with pytest.raises(InvalidIdError, match=r"'\.\./escaped' is not an id of this package"):
        jobs.engine.folder("parking-x", "../escaped")
    assert jobs.engine.folder("..", RUN_ID).parent.parent == Path(jobs.engine.logs)


# --- what an engine starts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    [
        "/etc/evil.py", "/jobs/../etc/evil.py", "/jobsevil.py", "relative.py", "", "s3://other/jobs/a.py",
        "s3://scripts/jobsevil.py", "s3://scripts/jobs/../evil.py", "s3://scripts/jobs/%2e%2e/evil.py", "file:///etc/a.py",
        "s3://scripts/file.pyx", "https://s3/scripts/jobs/a.py", "/jobs/a.py:/etc",
        "/jobs/a\0.py",
    ],
)  # fmt: skip
def test_script_is_refused_when_it_is_in_no_place(location: str) -> None:
    engine = SparkSubmit("logs", scripts=["/jobs", "s3://scripts/jobs/", "s3://scripts/file.py"])

    with pytest.raises(ScriptNotAllowedError) as refused:
        engine.check(run_of(location))

    assert (refused.value.location, refused.value.allowed) == (location, tuple(engine.scripts))
    assert "SparkSubmit(scripts=[...])" in str(refused.value)


def test_script_is_taken_when_it_is_in_a_place(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/link.py").symlink_to("/etc/passwd")
    engine = SparkSubmit("logs", scripts=[str(tmp_path / "inside"), "s3a://scripts/jobs/", "s3://scripts/file.py"])

    taken = ["s3://scripts/jobs/a.py", "s3a://scripts/jobs/b/a.py", "s3://scripts/file.py"]
    assert [engine.script(run_of(location)) for location in taken] == taken
    assert engine.script(run_of(f"file://{tmp_path}/inside/a.py")) == str(Path(tmp_path, "inside/a.py").resolve())
    with pytest.raises(ScriptNotAllowedError, match="link"):
        engine.check(run_of(str(tmp_path / "inside/link.py")))
    with pytest.raises(ScriptNotAllowedError, match="No script may run"):
        SparkSubmit("logs").check(run_of("/jobs/a.py"))


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("scriptLocation", "/jobs/b.py", ArgumentNotAllowedError),
        ("conf", "spark.driver.extraJavaOptions=-javaagent:/evil.jar", ArgumentNotAllowedError),
        ("conf", "spark.executor.cores=2 --conf spark.jars=/evil.jar", ArgumentNotAllowedError),
        ("extra_py_files", "/jobs/a.zip,/evil.zip", ScriptNotAllowedError),
        ("extra_jars", "/jobs/*", ScriptNotAllowedError),
        ("extra_files", "/etc/passwd", ScriptNotAllowedError),
    ],
)
def test_argument_is_refused_when_it_would_bring_other_code(argument: str, value: str, error: Any) -> None:
    engine = SparkSubmit("logs", scripts=["/jobs"])

    engine.check(run_of("/jobs/a.py", conf="spark.executor.cores=2", extra_jars="/jobs/a.jar", other="/etc/passwd"))
    with pytest.raises(error):
        engine.check(run_of("/jobs/a.py", **{argument: value}))


SHELL_OPTION = {"spark.driver.extraJavaOptions": "-XX:OnOutOfMemoryError=touch /x"}
SHELL_JSON = json.dumps(SHELL_OPTION)


@pytest.mark.parametrize("kind", ["glueetl", "pythonshell", "emr"])
@pytest.mark.parametrize("argument", ["--spark-conf", "--spark-con", "--s", "--spark-conf={}"])
@pytest.mark.parametrize(
    "value",
    [
        SHELL_JSON, f"\n {SHELL_JSON}", json.dumps({"spark.executor.cores": 2} | SHELL_OPTION),
        SHELL_JSON.replace("Java", "\\u004aava"), SHELL_JSON[:-1] + ', "a": [' + "[" * 60_000,
    ],
    ids=["plain", "spaced", "among others", "escaped", "too deep"],
)  # fmt: skip
def test_settings_of_a_script_are_refused_when_they_would_bring_other_code(
    kind: str, argument: str, value: str
) -> None:
    engine: Any = SparkSubmit("logs", scripts=["s3://jobs/"])
    if kind == "emr":
        engine = EmrServerless(None, "00", "arn", scripts=["s3://jobs/"])
    run = replace(run_of("s3://jobs/a.py"), command={"Name": kind, "ScriptLocation": "s3://jobs/a.py"})
    run = replace(run, told={"Arguments": {argument: value}, "Timeout": 5})

    with pytest.raises(ArgumentNotAllowedError) as refused:
        engine.check(run)

    assert refused.value.argument == argument.partition("=")[0]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--spark-conf", '{"spark.executor.cores": 2, "spark.mine.a": "x"}'), ("--spark-conf", "not JSON"),
        ("--s", "5"), ("--spark-conf-of", SHELL_JSON), ("--schema", SHELL_JSON),
    ],
)  # fmt: skip
def test_settings_of_a_script_are_taken_when_a_run_may_set_them_or_they_are_none(argument: str, value: str) -> None:
    engine = SparkSubmit("logs", scripts=["/jobs"], run_conf=["spark.executor.cores", "spark.mine.*"])
    run = replace(run_of("/jobs/a.py"), told={"Arguments": {argument: value}})

    engine.check(run)

    assert engine.arguments(run)[:2] == [argument, value]


def test_module_is_refused_when_it_is_not_on_this_machine_and_the_job_is_a_shell_job() -> None:
    location = "s3://modules/a.zip"
    run = replace(run_of("/jobs/a.py", extra_py_files=f"/jobs/b.zip, {location}"), command={"Name": "pythonshell"})

    with pytest.raises(ArgumentNotAllowedError) as caught:
        SparkSubmit("logs", scripts=["/jobs", "s3://modules/"])._modules(run)

    expected = ArgumentNotAllowedError(
        "parking", "--extra-py-files", "'s3://modules/a.zip' is not a local file. Copy it to this machine."
    )
    assert str(caught.value) == str(expected)


def test_start_is_refused_and_nothing_written_when_its_script_is_not_allowed(
    parked: Jobs, everything: Callable[[], Any]
) -> None:
    parked.create_job(Name="other", Command={"Name": "pythonshell", "ScriptLocation": "/etc/evil.py"})
    before = everything()

    with pytest.raises(parked.exceptions.InvalidInputException, match="/etc/evil") as refused:
        parked.start_job_run(JobName="other")
    with pytest.raises(parked.exceptions.InvalidInputException, match=r"'--scriptLocation': .* Leave it out"):
        parked.start_job_run(JobName="parking", Arguments={"--scriptLocation": "/jobs/b.py"})

    assert isinstance(refused.value.__cause__, ScriptNotAllowedError)
    assert everything() == before


@pytest.mark.parametrize(
    "option", [{"scripts": "/jobs"}, {"pass_on": "PATH"}, {"scripts": [""]}, {"scripts": ["s3://"]}]
)
def test_engine_is_refused_when_its_limits_would_be_none(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        SparkSubmit("logs", **option)


@pytest.mark.parametrize(
    ("logs", "place"),
    [
        ("/srv/jobs/logs", "/srv/jobs"), ("/srv/jobs", "/srv/jobs"), ("/srv/jobs", "file:///srv/jobs/"),
        ("logs", "."), ("s3://logs", "."), ("/srv", "/srv/jobs"), ("/", "/srv/jobs/a.py"),
        ("/srv/jobs/../jobs/logs", "/srv/jobs"),
    ],
)  # fmt: skip
def test_engine_is_refused_when_what_jobs_print_would_be_among_the_scripts(logs: str, place: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        SparkSubmit(logs, scripts=["s3://scripts/", place])

    assert repr(logs) in str(refused.value)
    assert repr(place) in str(refused.value)
    assert "Use folders of which neither is inside the other" in str(refused.value)


@pytest.mark.parametrize(
    "place", ["file://localhost/srv/jobs/", "File://localhost/srv/jobs/", "FILE:///srv/jobs/", "file:/srv/jobs/"]
)
def test_engine_is_refused_when_a_place_may_be_a_folder_of_this_machine_by_another_name(place: str) -> None:
    with pytest.raises(InvalidValueError, match="is not a place that scripts can run from"):
        SparkSubmit("/var/log/jobs", scripts=[place])


@pytest.mark.parametrize("linked", ["logs", "scripts"])
def test_engine_is_refused_when_a_link_leads_its_logs_to_the_scripts(tmp_path: Path, linked: str) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "jobs")
    logs, place = ("link/logs", "jobs") if linked == "logs" else ("jobs/logs", "link")

    with pytest.raises(InvalidValueError, match="inside the other"):
        SparkSubmit(str(tmp_path / logs), scripts=[str(tmp_path / place)])


def test_engine_is_made_when_its_logs_are_beside_the_scripts() -> None:
    places = ["/srv/jobs/scripts", "/srv/jobs/log", "/srv/jobs/logs.py", "s3://srv/jobs/"]

    assert list(SparkSubmit("/srv/jobs/logs", scripts=places).scripts) == places


@pytest.mark.parametrize("argument", ["", "--extra-py-files", "--extra-jars", "--extra-files"])
def test_output_of_a_run_is_never_a_script_or_module_of_another_when_a_job_names_it(
    jobs: Jobs, define: Callable[..., None], argument: str
) -> None:
    define("honest", "import sys\nprint(sys.argv[2])\n")
    run = jobs.wait("honest", jobs.start("honest", Arguments={"--area": "north"}))
    output = f"{run['LogGroupName']}/stdout"
    command = {"Name": "glueetl", "ScriptLocation": "/jobs/a.py" if argument else output}
    jobs.create_job(Name="next", Command=command, DefaultArguments={argument: output} if argument else {})

    assert (run["JobRunState"], Path(output).exists()) == ("SUCCEEDED", True)
    with pytest.raises(jobs.exceptions.InvalidInputException, match="is not in a place") as refused:
        jobs.start_job_run(JobName="next")
    assert isinstance(refused.value.__cause__, ScriptNotAllowedError)


def test_fetched_script_is_never_the_script_of_another_run_when_a_job_names_it(
    jobs: Jobs, moto_process: str, bucket_of_process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_process)
    location, body = f"s3://{bucket_of_process}/jobs/a.py", b"print(__file__)"
    boto3.client("s3", endpoint_url=moto_process).put_object(Bucket=bucket_of_process, Key="jobs/a.py", Body=body)
    jobs.scheduler.engine = jobs.engine = replace(jobs.engine, scripts=[location])
    jobs.create_job(Name="job", Command={"Name": "pythonshell", "ScriptLocation": location})
    run = jobs.wait("job", jobs.start("job"))
    fetched = Path(run["LogGroupName"], "stdout").read_text().strip()
    jobs.create_job(Name="next", Command={"Name": "pythonshell", "ScriptLocation": fetched})

    assert (run["JobRunState"], Path(fetched).name) == ("SUCCEEDED", "a.py")
    with pytest.raises(jobs.exceptions.InvalidInputException, match="is not in a place"):
        jobs.start_job_run(JobName="next")


def test_script_sees_named_variables_only_and_its_logs_are_its_owner_s_when_it_runs(
    make_jobs: Callable[..., Jobs], tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in engines.INHERITED:
        monkeypatch.delenv(name, raising=False)
    given = {"PATH": os.defpath, "LANG": "C.UTF-8", "AWS_REGION": "eu-west-2", "PYSPARK_PYTHON": "/usr/bin/evil"}
    for name, value in (given | {"MINE": "1", "AWS_SECRET_ACCESS_KEY": "secret", "PYTHONPATH": "/evil"}).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "a.py").write_text("import json, os\nprint(json.dumps(dict(os.environ)))\n")
    jobs = make_jobs(pass_on=["MINE", "NOT_THERE"], environment={"SET": "2"})
    jobs.create_job(Name="job", Command={"Name": "pythonshell", "ScriptLocation": str(tmp_path / "a.py")})
    (logs / "job").mkdir(parents=True, mode=0o755)
    monkeypatch.chdir(tmp_path)

    run = jobs.wait("job", jobs.start("job"), seconds=60)

    folder = Path(run["LogGroupName"])
    seen = json.loads((folder / "stdout").read_text())
    assert seen.pop("PWD", str(tmp_path)) == str(tmp_path)  # The shell's own.
    assert seen == {
        "PATH": os.defpath, "LANG": "C.UTF-8", "AWS_REGION": "eu-west-2", "MINE": "1", "SET": "2",
        "PYTHONPATH": engines.PACKAGE_ROOT, "PYSPARK_PYTHON": jobs.engine.python,
    }  # fmt: skip
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, *folder.iterdir())}
    assert modes == {"job": 0o700, run["Id"]: 0o700, "stdout": 0o600, "stderr": 0o600, "launcher": 0o600}


def test_folder_of_logs_is_refused_when_it_is_a_link(jobs: Jobs, tmp_path: Path, logs: Path) -> None:
    logs.mkdir()
    (logs / "job").symlink_to(tmp_path)

    with pytest.raises(LogFolderError, match="is a link"):
        jobs.engine.make_folder("job", RUN_ID)


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777, 0o2775])
def test_folder_of_logs_is_refused_when_others_could_rename_what_is_in_it(jobs: Jobs, logs: Path, mode: int) -> None:
    logs.mkdir()
    logs.chmod(mode)

    with pytest.raises(LogFolderError, match=r"can be changed by other users\. Run chmod go-w on it"):
        jobs.engine.make_folder("job", RUN_ID)

    assert not list(logs.iterdir())


def test_folder_of_logs_is_refused_when_it_belongs_to_another_user(
    jobs: Jobs, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.mkdir()
    if os.geteuid() == 0:
        os.chown(logs, 1, 1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1)

    with pytest.raises(LogFolderError, match="belongs to another user"):
        jobs.engine.make_folder("job", RUN_ID)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_folder_of_logs_is_taken_when_nobody_else_can_rename_what_is_in_it(jobs: Jobs, logs: Path, mode: int) -> None:
    logs.mkdir()
    logs.chmod(mode)

    made = jobs.engine.make_folder("job", RUN_ID)

    assert (made.parent.parent, stat.S_IMODE(logs.stat().st_mode)) == (logs, mode)


# --- triggers ------------------------------------------------------------------------------------


def planted_trigger(jobs: Jobs) -> str:
    """Write a trigger of one team that names a job of another, as who may write the first team's items alone can."""
    jobs.create_job(Name="waste-x", Command={"Name": "pythonshell", "ScriptLocation": "/jobs/waste.py"})
    condition = {"LogicalOperator": "EQUALS", "JobName": "parking", "State": "SUCCEEDED"}
    action = {"JobName": "waste-x", "Arguments": {"--all": "yes"}}
    definition = {"Type": "CONDITIONAL", "Predicate": {"Conditions": [condition]}, "Actions": [action]}
    records = jobs.scheduler.records
    records.write(None, TriggerRecord("parking-t", definition, "ACTIVATED"))
    records.change_job("parking", lambda job: job.changed(triggers=("parking-t",)))
    run_id = jobs.start("parking")
    jobs.pass_through("parking", run_id, "RUNNING", "SUCCEEDED")
    return run_id


def test_trigger_does_nothing_when_the_job_that_it_names_does_not_accept_it(
    parked: Jobs, everything: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    planted_trigger(parked)
    before = {key: item for key, item in everything().items() if key[0] == "waste-x"}

    parked.tend(["parking", "waste-x"])

    assert "event=trigger_not_accepted trigger=parking-t job=waste-x" in caplog.text

    assert {key: item for key, item in everything().items() if key[0] == "waste-x"} == before
    assert parked.scheduler.records.job("parking").active == ()


def test_trigger_of_an_older_table_fires_when_the_job_accepts_it_and_no_more_when_it_refuses_it(parked: Jobs) -> None:
    planted_trigger(parked)
    parked.accept_trigger("waste-x", "parking-t")

    parked.tend(["parking"])
    assert [run["JobRunState"] for run in parked.get_job_runs(JobName="waste-x")["JobRuns"]] == ["WAITING"]
    parked.refuse_trigger("waste-x", "parking-t")
    parked.pass_through("parking", parked.start("parking"), "RUNNING", "SUCCEEDED")
    parked.tend(["parking"])

    assert len(parked.get_job_runs(JobName="waste-x")["JobRuns"]) == 1
    with pytest.raises(parked.exceptions.EntityNotFoundException, match="Job nope not found"):
        parked.accept_trigger("nope", "parking-t")


def test_acceptance_goes_with_the_trigger_when_it_is_deleted(parked: Jobs) -> None:
    parked.create_trigger(
        Name="t", Type="CONDITIONAL", Actions=[{"JobName": "parking"}],
        Predicate={"Conditions": [{"LogicalOperator": "EQUALS", "JobName": "parking", "State": "FAILED"}]},
    )  # fmt: skip
    made = parked.scheduler.records.job("parking").accepts

    parked.delete_trigger(Name="t")

    assert (made, parked.scheduler.records.job("parking").accepts) == (("t",), ())


@pytest.mark.parametrize("role", ["triggers", "accepts"])
def test_trigger_is_refused_when_a_job_has_as_many_as_are_read(parked: Jobs, role: str) -> None:
    names = tuple(f"t-{number}" for number in range(MAX_TRIGGERS - 1))
    parked.scheduler.records.change_job("parking", lambda job: job.changed(**{role: names}))
    parked.create_job(Name="other", Command={"Name": "pythonshell", "ScriptLocation": "/jobs/parking.py"})
    watched, started = ("parking", "other") if role == "triggers" else ("other", "parking")
    condition = {"LogicalOperator": "EQUALS", "JobName": watched, "State": "FAILED"}
    trigger = {"Type": "CONDITIONAL", "Predicate": {"Conditions": [condition]}, "Actions": [{"JobName": started}]}
    parked.create_trigger(Name="last", **trigger)

    with pytest.raises(parked.exceptions.ResourceNumberLimitExceededException, match="250 triggers watch or start job"):
        parked.create_trigger(Name="more", **trigger)

    assert getattr(parked.scheduler.records.job("parking"), role) == (*names, "last")
    assert parked.scheduler.records.trigger("more") is None


def test_record_without_acceptances_is_read_when_an_earlier_version_wrote_it(parked: Jobs) -> None:
    job = parked.scheduler.records.job("parking")
    item = job.to_item()

    assert "accepts" not in item
    assert JobRecord.from_item(item) == job
    assert JobRecord.from_item(replace(job, accepts=("t",)).to_item()).accepts == ("t",)


def test_looking_needs_no_engine_and_a_worker_without_one_starts_nothing(parked: Jobs, table: Watermarks) -> None:
    plant(parked, "parking", "/jobs/parking.py")
    reader = JobRuns(table, clock=parked.scheduler.clock)

    assert reader.tend("parking") == []
    assert isinstance(parked.scheduler.engine, Parked)
    assert ids.check_own_id(RUN_ID) == RUN_ID
