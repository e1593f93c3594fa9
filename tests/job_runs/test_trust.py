"""Who can run which code where: write access to a table must not run code on the machine of a person who reads it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import ConfigurationError, InvalidIdError, InvalidValueError
from scripts.helpers.job_runs import engines, launcher
from scripts.helpers.job_runs.client import SparkSubmit
from scripts.helpers.job_runs.job_record import Entry, JobRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.scheduler import START_LEASE
from tests.support.clock import Clock
from tests.support.job_runs import Jobs
from tests.support.reasons import because

RUN_ID = "jr_" + "7" * 64
Engine = Callable[..., SparkSubmit]


def plant(jobs: Jobs, name: str, script: str, run_id: str = RUN_ID, **told: Any) -> RunRecord:
    """Write what any writer of a job's items can write: a job, a waiting run, and its place in the queue."""
    records, now = jobs.scheduler.records, jobs.scheduler.clock()
    command = {"Name": "pythonshell", "ScriptLocation": script}
    run = RunRecord(name, run_id, "WAITING", now, now, {"Arguments": {}, "Attempt": 0, "Timeout": 5} | told, command)
    records.write_run(None, run)
    before = records.job(name)
    after = before or JobRecord(name, {"Command": command, "CreatedOn": now, "LastModifiedOn": now})
    assert records.write(before, after.changed(waiting=(*after.waiting, Entry(run_id, now))))
    return run


def run_of(script: str, **arguments: str) -> RunRecord:
    told = {"Arguments": {f"--{name.replace('_', '-')}": value for name, value in arguments.items()}}
    command = {"Name": "glueetl", "ScriptLocation": script}
    moment = Clock()()
    return RunRecord("parking", RUN_ID, "STARTING", moment, moment, told, command)


# --- reading only --------------------------------------------------------------------------------


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

    own = parked.start_job_run(JobName="parking")["JobRunId"]
    parked.update_job(JobName="parking", JobUpdate={"Command": {"ScriptLocation": "/jobs/parking.py"}})
    parked.batch_stop_job_run(JobName="parking", JobRunIds=[own])

    assert parked.scheduler.engine.launched == [own]
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


# --- what a launcher carries out -----------------------------------------------------------------


def carried_out(jobs: Jobs, run: RunRecord) -> RunRecord:
    """Run a launcher for a run whose record was altered after the check of its start; return the record."""
    starting = run.starting(jobs.scheduler.clock(), START_LEASE)
    jobs.scheduler.records.write_run(run, starting)
    settings = {"shared": jobs.scheduler.settings(), "engine": jobs.engine.to_json(), "job": run.job_name}
    found = launcher.make(settings | {"run": run.run_id})
    assert found is not None
    found.carry_out()
    return jobs.record(run.job_name, run.run_id)


def test_planted_script_is_refused_and_not_run_when_it_is_outside_of_the_places(jobs: Jobs, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text(f"open({str(outside)!r} + '.ran', 'w')")

    found = carried_out(jobs, plant(jobs, "parking-x", str(outside)))

    assert (found.state, "is not in a place that this engine runs scripts from" in str(found.error)) == ("FAILED", True)
    assert not Path(f"{outside}.ran").exists()


def test_nothing_is_written_outside_of_the_logs_when_a_run_has_an_id_that_leads_there(
    jobs: Jobs, tmp_path: Path, logs: Path
) -> None:
    (tmp_path / "a.py").touch()

    with pytest.raises(InvalidIdError, match=r"'\.\./\.\./\.\./escaped' is not an id of this package"):
        carried_out(jobs, plant(jobs, "parking-x", str(tmp_path / "a.py"), run_id="../../../escaped"))

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

    with pytest.raises(InvalidValueError, check=because("script")) as refused:
        engine.check(run_of(location))

    assert (refused.value.location, list(refused.value.allowed)) == (location, list(engine.scripts))
    assert "SparkSubmit(scripts=[...])" in str(refused.value)


def test_script_is_taken_when_it_is_in_a_place(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/link.py").symlink_to("/etc/passwd")
    engine = SparkSubmit("logs", scripts=[str(tmp_path / "inside"), "s3a://scripts/jobs/", "s3://scripts/file.py"])

    taken = ["s3://scripts/jobs/a.py", "s3a://scripts/jobs/b/a.py", "s3://scripts/file.py"]
    assert [engine.script(run_of(location)) for location in taken] == taken
    assert engine.script(run_of(f"file://{tmp_path}/inside/a.py")) == str(Path(tmp_path, "inside/a.py").resolve())
    with pytest.raises(InvalidValueError, check=because("script"), match="link"):
        engine.check(run_of(str(tmp_path / "inside/link.py")))
    with pytest.raises(InvalidValueError, check=because("script"), match="none"):
        SparkSubmit("logs").check(run_of("/jobs/a.py"))


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("scriptLocation", "/jobs/b.py", "argument"),
        ("conf", "spark.driver.extraJavaOptions=-javaagent:/evil.jar", "argument"),
        ("conf", "spark.executor.cores=2 --conf spark.jars=/evil.jar", "argument"),
        ("extra_py_files", "/jobs/a.zip,/evil.zip", "script"),
        ("extra_jars", "/jobs/*", "script"),
        ("extra_files", "/etc/passwd", "script"),
    ],
)
def test_argument_is_refused_when_it_would_bring_other_code(argument: str, value: str, reason: str) -> None:
    engine = SparkSubmit("logs", scripts=["/jobs"])

    engine.check(run_of("/jobs/a.py", conf="spark.executor.cores=2", extra_jars="/jobs/a.jar", other="/etc/passwd"))
    with pytest.raises(InvalidValueError, check=because(reason)):
        engine.check(run_of("/jobs/a.py", **{argument: value}))


SHELL_OPTION = {"spark.driver.extraJavaOptions": "-XX:OnOutOfMemoryError=touch /x"}
SHELL_JSON = json.dumps(SHELL_OPTION)


@pytest.mark.parametrize("kind", ["glueetl", "pythonshell"])
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
    run = replace(run_of("s3://jobs/a.py"), command={"Name": kind, "ScriptLocation": "s3://jobs/a.py"})
    run = replace(run, told={"Arguments": {argument: value}, "Timeout": 5})

    with pytest.raises(InvalidValueError, check=because("argument")) as refused:
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

    with pytest.raises(InvalidValueError, check=because("argument")) as caught:
        SparkSubmit("logs", scripts=["/jobs", "s3://modules/"])._modules(run)

    assert (caught.value.job_id, caught.value.argument) == ("parking", "--extra-py-files")
    assert "'s3://modules/a.zip' is not a local file. Copy it" in str(caught.value)


def test_start_is_refused_and_nothing_written_when_its_script_is_not_allowed(
    parked: Jobs, everything: Callable[[], Any]
) -> None:
    parked.create_job(Name="other", Command={"Name": "pythonshell", "ScriptLocation": "/etc/evil.py"})
    before = everything()

    with pytest.raises(parked.exceptions.InvalidInputException, match="/etc/evil") as refused:
        parked.start_job_run(JobName="other")

    assert isinstance(refused.value.__cause__, InvalidValueError)
    assert refused.value.__cause__.reason == "script"
    assert everything() == before


@pytest.mark.parametrize(
    "option", [{"scripts": "/jobs"}, {"pass_on": "PATH"}, {"scripts": [""]}, {"scripts": ["s3://"]}]
)
def test_engine_is_refused_when_its_options_would_limit_nothing(option: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("argument", ["", "--extra-py-files"], ids=["script", "module"])
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
    assert isinstance(refused.value.__cause__, InvalidValueError)
    assert refused.value.__cause__.reason == "script"


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
    assert seen.pop("PWD", str(tmp_path)) == str(tmp_path)  # Variables that the shell sets itself.
    assert seen == {
        "PATH": os.defpath, "LANG": "C.UTF-8", "AWS_REGION": "eu-west-2", "MINE": "1", "SET": "2",
        "PYTHONPATH": engines.PACKAGE_ROOT, "PYSPARK_PYTHON": jobs.engine.python,
    }  # fmt: skip
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, *folder.iterdir())}
    assert modes == {"job": 0o700, run["Id"]: 0o700, "stdout": 0o600, "stderr": 0o600, "launcher": 0o600}


def test_folder_of_logs_is_refused_when_it_is_a_link(jobs: Jobs, tmp_path: Path, logs: Path) -> None:
    logs.mkdir()
    (logs / "job").symlink_to(tmp_path)

    with pytest.raises(ConfigurationError, check=because("log_folder"), match="is a link"):
        jobs.engine.make_folder("job", RUN_ID)


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777, 0o2775])
def test_folder_of_logs_is_refused_when_others_could_rename_what_is_in_it(jobs: Jobs, logs: Path, mode: int) -> None:
    logs.mkdir()
    logs.chmod(mode)

    with pytest.raises(
        ConfigurationError, check=because("log_folder"), match=r"can be changed by other users\. Run chmod go-w on it"
    ):
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

    with pytest.raises(ConfigurationError, check=because("log_folder"), match="belongs to another user"):
        jobs.engine.make_folder("job", RUN_ID)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_folder_of_logs_is_taken_when_nobody_else_can_rename_what_is_in_it(jobs: Jobs, logs: Path, mode: int) -> None:
    logs.mkdir()
    logs.chmod(mode)

    made = jobs.engine.make_folder("job", RUN_ID)

    assert (made.parent.parent, stat.S_IMODE(logs.stat().st_mode)) == (logs, mode)
