"""Runs by real launchers: the arguments of a job, how it ends, and what remains when a process is killed."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import ConfigurationError, InvalidValueError, StoreUnavailableError
from scripts.helpers.job_runs import engines, launcher
from scripts.helpers.job_runs.client import SparkSubmit
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.protocol.races import Lost
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.support.job_runs import FAST, Jobs, Parked, gone, is_alive, process_of
from tests.support.patience import PATIENCE
from tests.support.reasons import because

RUN_ID = "jr_" + "0" * 64
Define = Callable[..., None]
SLEEP = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"
FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = "import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n" + SLEEP
POLITE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(os.getpid(), flush=True)
time.sleep(600)
"""
FAILING = POLITE.replace("sys.exit(0)", "sys.exit('no')")


def printed(jobs: Jobs, name: str, run_id: str) -> list[str]:
    """Wait for the first line that a job prints, and return its words."""
    path = Path(jobs.engine.folder(name, run_id), "stdout")
    end = time.monotonic() + PATIENCE
    while not (path.exists() and "\n" in path.read_text()):
        assert not jobs.record(name, run_id).is_over, jobs.record(name, run_id).error
        assert time.monotonic() < end, "the job printed nothing"
        time.sleep(0.02)
    return path.read_text().split()


def test_job_gets_glue_s_arguments_and_the_run_all_its_fields_when_it_succeeds(jobs: Jobs, define: Define) -> None:
    define(
        "echo",
        "import sys\nprint(sys.argv[1:])\nprint('w', file=sys.stderr)\n",
        DefaultArguments={"--a": "1", "--e": ""},
    )

    run_id = jobs.start("echo", Arguments={"--b": "two words", "--extra-py-files": "/x.zip"}, WorkerType="G.1X")
    run = jobs.wait("echo", run_id)

    folder = Path(run["LogGroupName"])

    words = eval((folder / "stdout").read_text())
    assert words[:9] == ["--a", "1", "--b", "two words", "--e", "", "--JOB_NAME", "echo", "--JOB_ID"]
    assert (words[9][:2], len(words[9])) == ("j_", 66)
    assert words[10:] == ["--JOB_RUN_ID", run_id]
    assert (folder / "stderr").read_text() == "w\n"
    assert {
        "Id": run_id, "JobName": "echo", "JobRunState": "SUCCEEDED", "Attempt": 0, "Timeout": 2880,
        "WorkerType": "G.1X", "LastModifiedOn": run["CompletedOn"],
    }.items() <= run.items()  # fmt: skip
    assert run["StartedOn"] < run["CompletedOn"]
    assert timedelta(0) <= timedelta(seconds=run["ExecutionTime"]) <= run["CompletedOn"] - run["StartedOn"]
    assert "ErrorMessage" not in run
    jobs.until_idle("echo")


@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("x = 1\ndef (\n", ["SyntaxError: invalid syntax (job.py, line 2)", "exit code 1"]),
        (
            "raise RuntimeError('jdbc:postgresql://h/d?password=secret')\n",
            ["RuntimeError: jdbc:...", "(job.py, line 1)"],
        ),
        ("import sys\nsys.exit('nothing to do')\n", ["nothing to do. The job ended with exit code 1"]),
        ("import os\nos._exit(75)\n", ["The job ended with exit code 75"]),
    ],
    ids=["syntax", "url", "exit text", "exit code"],
)
def test_run_has_failed_with_the_error_named_when_the_script_fails(
    jobs: Jobs, define: Define, script: str, facts: list[str]
) -> None:
    define("job", script)

    run = jobs.wait("job", jobs.start("job"))

    assert run["JobRunState"] == "FAILED"
    assert [fact for fact in facts if fact not in run["ErrorMessage"]] == []
    assert run["ErrorMessage"].endswith(f"Its output is in {run['LogGroupName']}.")
    assert "secret" not in run["ErrorMessage"]


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("/nowhere/job.py", "the script /nowhere/job.py does not exist. Fix Command.ScriptLocation of the job."),
        ("s3://no-such-bucket/job.py", "s3://no-such-bucket"),
        ("gs://bucket/job.py", "gs://bucket/job.py: a Python shell job takes a local file or one on S3."),
    ],
    ids=["file", "object", "another store"],
)
def test_run_has_failed_with_the_script_named_when_it_is_missing(
    jobs: Jobs, moto_process: str, monkeypatch: pytest.MonkeyPatch, location: str, said: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_process)
    jobs.create_job(Name="job", Command={"Name": "pythonshell", "ScriptLocation": location})

    run = jobs.wait("job", jobs.start("job"))

    assert run["JobRunState"] == "FAILED"
    assert run["ErrorMessage"].startswith("The job cannot be started:")
    assert said in run["ErrorMessage"]


def test_job_dies_and_the_run_is_an_error_when_its_launcher_is_killed(jobs: Jobs, define: Define) -> None:
    define("job", FAMILY)
    run_id = jobs.start("job")
    family = [int(word) for word in printed(jobs, "job", run_id)]

    os.kill(process_of(jobs.until("job", run_id, "RUNNING")), signal.SIGKILL)
    dead = [gone(process) for process in family]
    jobs.be_late()
    run = jobs.wait("job", run_id)
    jobs.scheduler.settle("job")

    assert dead == [True, True]
    assert run["JobRunState"] == "ERROR"
    assert "The launcher gave no sign since" in run["ErrorMessage"]
    jobs.until_idle("job")


def test_run_is_an_error_at_once_when_its_launcher_is_told_to_end(jobs: Jobs, define: Define) -> None:
    define("job", SLEEP)
    run_id = jobs.start("job")
    (process,) = map(int, printed(jobs, "job", run_id))

    os.kill(process_of(jobs.record("job", run_id)), signal.SIGTERM)
    found = jobs.until("job", run_id, "ERROR")

    assert gone(process)
    assert found.error == "The launcher received SIGTERM, as when its machine shuts down."


def test_run_has_failed_when_its_job_is_killed(jobs: Jobs, define: Define) -> None:
    define("job", FAMILY)
    run_id = jobs.start("job")
    process, child = (int(word) for word in printed(jobs, "job", run_id))

    os.kill(process, signal.SIGSEGV)
    run = jobs.wait("job", run_id)

    assert (run["JobRunState"], gone(child)) == ("FAILED", True)
    assert run["ErrorMessage"].startswith("The job was killed by SIGSEGV.")


@pytest.mark.parametrize("script", [FAMILY, POLITE, FAILING, STUBBORN], ids=["plain", "polite", "failing", "stubborn"])
def test_run_is_stopping_and_then_stopped_when_asked(jobs: Jobs, define: Define, script: str) -> None:
    define("job", script, MaxRetries=1)
    run_id = jobs.start("job")
    family = [int(word) for word in printed(jobs, "job", run_id)]

    answer = jobs.batch_stop_job_run(JobName="job", JobRunIds=[run_id])
    asked = jobs.record("job", run_id)
    run = jobs.wait("job", run_id)

    assert answer["SuccessfulSubmissions"] == [{"JobName": "job", "JobRunId": run_id}]
    assert answer["Errors"] == []
    assert asked.state in ("STOPPING", "STOPPED")
    assert (run["JobRunState"], [gone(process) for process in family]) == ("STOPPED", [True] * len(family))
    assert "no" in printed(jobs, "job", run_id) if script == STUBBORN else "ErrorMessage" not in run
    assert len(jobs.states("job")) == 1


def settings_of(jobs: Jobs, name: str, run_id: str, **options: Any) -> dict[str, Any]:
    """Return the settings that the launcher of a run would get."""
    engine = SparkSubmit(**(jobs.engine.to_json() | options))
    return {"shared": jobs.scheduler.settings(), "engine": engine.to_json(), "job": name, "run": run_id}


def launcher_of(settings: dict[str, Any], **options: Any) -> launcher.Launcher:
    found = launcher.make(settings, **options)
    assert found is not None
    return found


@pytest.mark.parametrize("script", [STUBBORN, FAMILY], ids=["stubborn", "with a child"])
def test_run_has_timed_out_when_its_minutes_are_over(
    jobs: Jobs, define: Define, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("job", script, MaxRetries=1)
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job", Timeout=2)
    readings: list[tuple[float, bool]] = []
    ended: list[float] = []

    def timer() -> float:
        """Return 0 until the job is at work, then the last moment before its timeout; then time passes from there."""
        output = Path(jobs.engine.folder("job", run_id), "stdout")
        if not output.exists() or "\n" not in output.read_text():
            return 0.0
        now = 119.999
        if readings:
            ended.append(time.monotonic())
            now = 120.0 + (ended[-1] - ended[0])
        readings.append((now, is_alive(int(output.read_text().split()[0]))))
        return now

    carried = launcher_of(settings_of(jobs, "job", run_id), timer=timer)
    carried.carry_out()
    run = jobs.run("job", run_id)

    assert run["JobRunState"] == "TIMEOUT"
    assert run["ErrorMessage"] == "The run did not end within its timeout of 2 minutes."
    assert readings[:2] == [(119.999, True), (120.0, True)]
    assert [gone(int(process)) for process in printed(jobs, "job", run_id) if process.isdigit()]
    assert jobs.states("job") == ["TIMEOUT"]


def test_job_is_not_started_when_the_claim_took_longer_than_the_lease(
    jobs: Jobs, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("job", SLEEP)
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    replace_, seconds = Store.replace, [0.0]

    def slow(self: Store, *arguments: Any, **more: Any) -> Any:
        seconds[0] += FAST["lease_seconds"]
        return replace_(self, *arguments, **more)

    monkeypatch.setattr(Store, "replace", slow)
    # The heartbeat must not renew the lease before the launcher checks it.
    settings = settings_of(jobs, "job", run_id, beat_seconds=FAST["lease_seconds"] / 2)
    carried = launcher_of(settings, timer=lambda: seconds[0])
    carried.carry_out()

    found = jobs.record("job", run_id)
    assert (found.state, found.error) == (
        "ERROR", "The lease of 600 s could not be renewed in time, so the job was killed.",
    )  # fmt: skip
    assert not Path(jobs.engine.folder("job", run_id), "stdout").exists()


def test_launcher_kills_its_job_and_writes_nothing_when_the_run_was_given_up(jobs: Jobs, define: Define) -> None:
    define("job", SLEEP)
    run_id = jobs.start("job")
    (process,) = map(int, printed(jobs, "job", run_id))
    paused = process_of(jobs.record("job", run_id))

    os.kill(paused, signal.SIGSTOP)
    jobs.be_late()
    given_up = jobs.run("job", run_id)
    assert is_alive(process)
    os.kill(paused, signal.SIGCONT)

    assert gone(process)
    assert gone(paused)
    assert jobs.run("job", run_id) == given_up
    assert given_up["JobRunState"] == "ERROR"


def test_one_launcher_carries_a_run_out_when_two_are_started(jobs: Jobs, define: Define, tmp_path: Path) -> None:
    define("job", f"open({str(tmp_path / 'runs')!r}, 'a').write('once ')")
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")

    both = [launcher_of(settings_of(jobs, "job", run_id)) for _ in range(2)]
    ready = threading.Barrier(2)

    def carry_out(one: launcher.Launcher) -> None:
        ready.wait()
        one.carry_out()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(carry_out, both))

    assert ((tmp_path / "runs").read_text(), jobs.states("job")) == ("once ", ["SUCCEEDED"])


def idle(jobs: Jobs, **options: Any) -> launcher.Launcher:
    """Return the launcher of a new run of the job ``job``, before it does anything."""
    jobs.scheduler.engine = Parked()
    return launcher_of(settings_of(jobs, "job", jobs.start("job")), **options)


def claimed(jobs: Jobs, **options: Any) -> launcher.Launcher:
    """Return a launcher that has claimed its run but has started nothing."""
    found = idle(jobs, **options)
    assert found._claim()
    return found


def test_nothing_is_started_or_written_when_the_record_of_the_run_is_gone(
    jobs: Jobs, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("job", SLEEP)
    carried = idle(jobs)
    monkeypatch.setattr(RunStore, "write_run", lambda *_: Lost(None))

    carried.carry_out()

    (run_id,) = [run["Id"] for run in jobs.get_job_runs(JobName="job")["JobRuns"]]
    assert jobs.record("job", run_id).state == "STARTING"
    assert not Path(jobs.engine.folder("job", run_id)).exists()


def test_launcher_learns_of_a_stop_and_keeps_its_lease_when_it_beats(jobs: Jobs, define: Define) -> None:
    define("job")
    carried = claimed(jobs)
    jobs.batch_stop_job_run(JobName="job", JobRunIds=[carried._run.run_id])

    is_ours = carried._beat()

    assert (is_ours, carried._run.state) == (True, "STOPPING")
    assert jobs.record("job", carried._run.run_id) == carried._run


def test_end_written_by_another_process_stays_when_a_launcher_is_late(
    jobs: Jobs, define: Define, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    define("job")
    carried = claimed(jobs)
    ended = carried._run.ended("ERROR", jobs.scheduler.clock(), "lost")
    jobs.scheduler.records.write_run(carried._run, ended)

    carried._end("SUCCEEDED", None)

    assert jobs.record("job", ended.run_id) == ended
    assert caplog.messages[-1] == f"event=ended run={ended.run_id} state=ERROR"


def test_launcher_gives_up_when_its_end_cannot_be_written_for_a_lease(
    jobs: Jobs, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("job")
    seconds = itertools.count()
    carried = claimed(jobs, timer=lambda: next(seconds) * FAST["lease_seconds"] / 2)
    tried: list[Any] = []

    def down(*arguments: Any) -> Any:
        tried.append(arguments)
        raise StoreUnavailableError("table", "UpdateItem", "down")

    monkeypatch.setattr(RunStore, "change_run", down)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)

    with pytest.raises(StoreUnavailableError):
        carried._end("SUCCEEDED", None)

    assert len(tried) == 3


def test_only_the_end_of_a_log_is_searched_when_it_is_long(jobs: Jobs, define: Define) -> None:
    end = "kurz \xe4\n".encode("latin1")
    more = f"b'ValueError: old\\n' + b'x\\n' * {launcher.TAIL_BYTES // 2} + {end!r}"
    define("job", f"import sys\nsys.stderr.buffer.write({more})\nsys.exit(3)\n")

    run = jobs.wait("job", jobs.start("job"))

    assert run["ErrorMessage"].startswith("x | x | kurz \ufffd. The job ended with exit code 3.")


def test_error_names_nothing_of_another_file_when_a_link_replaces_a_log(
    jobs: Jobs, define: Define, tmp_path: Path, logs: Path
) -> None:
    (tmp_path / "other").write_text("ValueError: secret")
    swap = f"""
import os, sys
folder = os.path.join({str(logs)!r}, "job", sys.argv[-1])
os.rename(folder, folder + "-old")
os.mkdir(folder)
os.symlink({str(tmp_path / "other")!r}, folder + "/stderr")
sys.exit("its own text")
"""
    define("job", swap)

    run = jobs.wait("job", jobs.start("job"))

    assert run["ErrorMessage"].startswith("its own text. The job ended with exit code 1.")


@pytest.mark.parametrize("name", ["a.py", "stdout"], ids=["script", "called as a log"])
def test_script_on_s3_is_where_its_owner_alone_can_swap_it_and_then_gone_when_it_is_fetched(
    jobs: Jobs, moto_process: str, bucket_of_process: str, logs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_process)
    location = f"s3://{bucket_of_process}/jobs/{name}"
    body = b"import os\nprint(os.path.abspath(__file__))\nprint(os.stat(os.path.dirname(__file__)).st_mode & 0o777)"
    boto3.client("s3", endpoint_url=moto_process).put_object(Bucket=bucket_of_process, Key=f"jobs/{name}", Body=body)
    jobs.scheduler.engine = jobs.engine = replace(jobs.engine, scripts=[location])
    jobs.create_job(Name="job", Command={"Name": "pythonshell", "ScriptLocation": location})

    run_id = jobs.start("job")
    state = jobs.wait("job", run_id)["JobRunState"]

    path, mode = printed(jobs, "job", run_id)
    assert (state, int(mode), Path(path).name) == ("SUCCEEDED", 0o700, name)
    assert logs not in Path(path).parents
    assert not Path(path).parent.exists()


def test_group_is_killed_once_when_its_job_has_ended(
    jobs: Jobs, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first kill, the group's number may belong to another group."""
    define("job", "pass")
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    kill, sent = os.killpg, []

    def send(group: int, number: int) -> None:
        sent.append(number)
        kill(group, number)

    monkeypatch.setattr(os, "killpg", send)
    launcher_of(settings_of(jobs, "job", run_id)).carry_out()

    assert sent == [signal.SIGKILL]


def test_job_is_not_started_when_the_run_is_stopped_before_its_launcher_is_up(jobs: Jobs, define: Define) -> None:
    define("job", SLEEP)
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    jobs.batch_stop_job_run(JobName="job", JobRunIds=[run_id])

    carried = launcher_of(settings_of(jobs, "job", run_id))
    carried.carry_out()

    assert jobs.run("job", run_id)["JobRunState"] == "STOPPED"
    assert not Path(jobs.engine.folder("job", run_id), "stdout").exists()


def test_job_goes_on_when_the_table_does_not_answer_for_a_while(
    jobs: Jobs, define: Define, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    define("job", "import time\ntime.sleep(0.6)\n")
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    replace, down = Store.replace, [0]

    def unsteady(self: Store, *arguments: Any, **more: Any) -> Any:
        down[0] += 1
        if 2 <= down[0] <= 8:
            raise StoreUnavailableError("t", "put_item", "Throttled")
        return replace(self, *arguments, **more)

    monkeypatch.setattr(Store, "replace", unsteady)
    carried = launcher_of(settings_of(jobs, "job", run_id, lease_seconds=20))
    carried.carry_out()

    assert (jobs.record("job", run_id).state, down[0] > 8) == ("SUCCEEDED", True)
    assert f"event=beat_failed run={run_id} error=StoreUnavailableError" in caplog.messages


@contextlib.contextmanager
def own_sigterm() -> Any:
    """Restore the handler of SIGTERM at the end of the block."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_launcher_ends_when_it_is_told_to_in_the_middle_of_a_request(
    jobs: Jobs, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("job", "import time\ntime.sleep(5)\n")
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    replace_, calls = Store.replace, [0]

    def interrupted(self: Store, *arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.1)
            except Exception as error:  # botocore wraps the exception like this.
                raise StoreUnavailableError("t", "put_item", "HTTPClientError") from error
        return replace_(self, *arguments, **more)

    monkeypatch.setattr(Store, "replace", interrupted)
    with own_sigterm():
        carried = launcher_of(settings_of(jobs, "job", run_id), told_to_end=launcher.told_to_end(signal.SIGTERM))
        carried.carry_out()

    assert jobs.record("job", run_id).error == ("The launcher received SIGTERM, as when its machine shuts down.")


def test_job_is_killed_within_its_lease_when_the_table_hangs(
    jobs: Jobs, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("job", SLEEP, MaxRetries=1)
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    replace_, calls, ends, answers = Store.replace, [0], [], threading.Event()
    hangs_since: list[float] = []
    readings: list[float] = []

    def hanging(self: Store, *arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            hangs_since.append(time.monotonic())
            answers.wait(PATIENCE)
            raise StoreUnavailableError("t", "put_item", "ReadTimeoutError")
        return replace_(self, *arguments, **more)

    def timer() -> float:
        """Once the table hangs, return the last moment at which the lease is certain, and then its end."""
        if not hangs_since:
            return time.monotonic()
        readings.append(carried._sure_until if readings else carried._sure_until - 0.001)
        return readings[-1]

    carried = launcher_of(settings_of(jobs, "job", run_id), timer=timer)
    kill = carried._kill

    def killed() -> None:
        ends.append(len(readings))
        kill()

    monkeypatch.setattr(Store, "replace", hanging)
    monkeypatch.setattr(carried, "_kill", killed)
    carried.carry_out()
    answers.set()

    found = jobs.record("job", run_id)
    # The timeout check may read the timer before the lease check, which then sees the lease's end at the 3rd reading.
    assert ends[0] in (2, 3)
    assert readings[1] < hangs_since[0] + FAST["lease_seconds"]
    assert (found.state, found.error) == (
        "ERROR", "The lease of 600 s could not be renewed in time, so the job was killed.",
    )  # fmt: skip


def test_run_has_failed_when_its_launcher_cannot_be_started(jobs: Jobs, define: Define, logs: Path) -> None:
    define("job", "")
    logs.write_text("in the way")

    run = jobs.run("job", jobs.start("job"))

    assert (run["JobRunState"], run["ErrorMessage"][:46]) == (
        "FAILED",
        "The launcher cannot be started: Not a director",
    )
    logs.unlink()
    assert jobs.wait("job", jobs.start("job"))["JobRunState"] == "SUCCEEDED"


def test_run_succeeds_at_the_third_attempt_when_the_first_two_fail(jobs: Jobs, define: Define, tmp_path: Path) -> None:
    tried = str(tmp_path / "tried")
    define(
        "job",
        f"with open({tried!r}, 'a+') as f:\n    f.write('x')\n    f.flush()\n    assert f.tell() == 3\n",
        MaxRetries=5,
    )

    first = jobs.start("job")
    last = jobs.until("job", f"{first}_attempt_2", "SUCCEEDED")
    jobs.until_idle("job")

    assert jobs.states("job") == ["SUCCEEDED", "FAILED", "FAILED"]
    assert (last.attempt, last.told["PreviousRunId"]) == (2, f"{first}_attempt_1")


@pytest.mark.parametrize("what", ["the job was deleted", "its slot was given to another"])
def test_run_is_not_retried_when_it_has_no_slot_any_more(
    jobs: Jobs, define: Define, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    define("job", "raise SystemExit(1)", MaxRetries=1)
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    if what == "the job was deleted":
        jobs.delete_job(JobName="job")
    else:
        jobs.scheduler.records.change_job("job", lambda job: job.changed(active=()))

    retry = launcher_of(settings_of(jobs, "job", run_id)).carry_out()

    assert (retry, jobs.states("job")) == (None, ["FAILED"])
    assert f"event=not_retried run={run_id}: its slot was given up" in caplog.text
    assert jobs.scheduler.records.job("job").active == ()


# --- watermarks ----------------------------------------------------------------------------------

COMMITTING = """
import os, signal, sys
from scripts.helpers.watermarks import Watermarks

job, run_id = sys.argv[2], sys.argv[6]
watermarks = Watermarks({table!r}, endpoint_url={endpoint!r})
with watermarks.begin(job, run_id) as run:
    print(run.replay, run.attempt, flush=True)
    if not run.replay:
        run.freeze({{"rows": {{"up_to": 7}}}}, {{"up_to": 7}})
        os.kill(os.getpid(), signal.SIGKILL)
    run.commit()
"""


def test_commit_has_the_id_of_the_retry_when_the_first_attempt_died_with_its_plan(
    jobs: Jobs, define: Define, table: Watermarks, moto_process: str
) -> None:
    define("job", COMMITTING.format(table=table.table_name, endpoint=moto_process), MaxRetries=1)

    last = f"{jobs.start('job')}_attempt_1"
    found = jobs.until("job", last, "SUCCEEDED", "FAILED")

    assert found.state == "SUCCEEDED", found.error
    assert table.get_most_recent_run_id("job") == last
    assert table.get_watermark_values("job") == {"up_to": 7}
    assert printed(jobs, "job", last) == ["True", "2"]
    assert jobs.states("job") == ["SUCCEEDED", "FAILED"]
    assert table.doctor("job") == []


# --- the engine ----------------------------------------------------------------------------------


def a_run(jobs: Jobs, **arguments: str) -> Any:
    job = JobRecord("my job", {"Command": {"Name": "glueetl", "ScriptLocation": "a.py"}})
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    return job.new_run(RUN_ID, {"Arguments": given}, jobs.scheduler.clock())


def test_spark_submit_gets_glue_s_special_arguments_as_options_when_it_is_started(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").touch()
    engine = SparkSubmit(
        "logs",
        master="spark://host:7077",
        conf={"spark.a": "1"},
        options=["--queue", "q"],
        spark_home=str(tmp_path),
        scripts=["/x"],
        run_conf=["spark.a", "spark.b"],
    )
    run = a_run(
        jobs, **{"--conf": "spark.a=2 --conf spark.b=3", "--extra-py-files": "/x/x.zip,/x/y.zip", "--TempDir": "t"}
    )

    command = engine.command(run, "/a.py")

    assert command[: command.index("/a.py")] == [
        str(tmp_path / "bin/spark-submit"), "--name", "my job", "--master", "spark://host:7077",
        "--conf", "spark.a=1", "--conf", "spark.a=2", "--conf", "spark.b=3",
        "--py-files", "/x/x.zip,/x/y.zip", "--queue", "q", "--deploy-mode", "client",
    ]  # fmt: skip
    assert command[command.index("/a.py") + 1 :][:3] == ["--TempDir", "t", "--JOB_NAME"]
    assert engine.folder("my/job", RUN_ID).parts[-2:] == ("my%2Fjob", RUN_ID)


def test_folders_differ_and_fit_when_names_are_long() -> None:
    engine = SparkSubmit("logs")

    names = [engine.folder(name, RUN_ID).parent.name for name in ("a" + "/" * 254, "a" + "/" * 253)]

    assert len(set(names)) == 2
    assert max(map(len, names)) <= 255


def test_run_has_the_client_mode_when_its_settings_ask_for_the_cluster_mode(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").touch()
    run = a_run(jobs, **{"--conf": "spark.a=2 --conf spark.submit.deployMode=cluster"})

    engine = SparkSubmit("logs", spark_home=str(tmp_path), run_conf=["spark.*"])

    assert engine.command(run, "/a.py")[-9:-7] == ["--deploy-mode", "client"]
    with pytest.raises(InvalidValueError, check=because("argument"), match=r"it sets 'spark\.submit\.deployMode'"):
        replace(engine, run_conf=["spark.a"]).command(run, "/a.py")


def test_launcher_is_this_package_s_when_the_caller_s_folder_has_modules_of_the_same_names(
    make_jobs: Callable[..., Jobs], define: Define, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere/scripts").mkdir(parents=True)
    (tmp_path / "elsewhere/scripts/__init__.py").touch()
    (tmp_path / "elsewhere/boto3.py").write_text("raise ImportError('the wrong one')")
    jobs = make_jobs(pass_on=["PYTHONPATH"])
    define("job", "import os\nprint(os.environ['PYTHONPATH'])\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/one:/two:/one")

    run = jobs.wait("job", jobs.start("job"), PATIENCE)

    assert run["JobRunState"] == "SUCCEEDED"
    assert Path(run["LogGroupName"], "stdout").read_text() == f"/one:/two:{engines.PACKAGE_ROOT}\n"


def test_environment_of_launchers_does_not_grow_when_one_starts_the_next(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(subprocess, "run", lambda *_, env, **__: seen.append(env))
    run = a_run(jobs)

    for _ in range(2):
        SparkSubmit(jobs.engine.logs, scripts=["a.py"]).launch(run, jobs.scheduler.settings())
        monkeypatch.setenv("PYTHONPATH", seen[-1].get("PYTHONPATH", ""))

    assert seen[0].get("PYTHONPATH", "") == seen[1].get("PYTHONPATH", "")


def test_run_has_failed_when_its_job_cannot_be_spawned(jobs: Jobs, define: Define) -> None:
    define("job")
    jobs.scheduler.engine = Parked()
    run_id = jobs.start("job")
    before = jobs.record("job", run_id)
    spoilt = replace(before, told={**before.told, "Arguments": {"--a": "x\0y"}}, token="t")
    jobs.scheduler.records.write_run(before, spoilt)

    carried = launcher_of(settings_of(jobs, "job", run_id))
    carried.carry_out()

    found = jobs.record("job", run_id)
    assert (found.state, found.error) == ("FAILED", "The job cannot be started: embedded null byte")


def test_python_shell_finds_the_job_s_modules_when_they_are_given(jobs: Jobs, define: Define, tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/helping.py").write_text("TEXT = 'found'")
    define(
        "job", "import helping, os, scripts.helpers\nprint(helping.TEXT, os.environ.get('GLUE_WATERMARKS_LAUNCHER'))\n"
    )

    run = jobs.wait("job", jobs.start("job", Arguments={"--extra-py-files": str(tmp_path / "modules")}))

    assert run["JobRunState"] == "SUCCEEDED", run
    assert Path(run["LogGroupName"], "stdout").read_text() == "found None\n"


def test_run_has_failed_when_there_is_no_spark_submit(make_jobs: Callable[..., Jobs], tmp_path: Path) -> None:
    jobs = make_jobs(spark_home=str(tmp_path))
    (tmp_path / "a.py").touch()
    jobs.create_job(Name="job", Command={"Name": "glueetl", "ScriptLocation": str(tmp_path / "a.py")})

    run = jobs.wait("job", jobs.start("job"))

    assert run["JobRunState"] == "FAILED"
    assert f"There is no spark-submit under '{tmp_path}'. Set SPARK_HOME" in run["ErrorMessage"]


def test_spark_submit_is_that_of_pyspark_when_no_home_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    engine = SparkSubmit("logs")

    assert Path(engine._spark_submit()).parts[-3:] == ("pyspark", "bin", "spark-submit")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError) as caught:
        engine._spark_submit()

    assert str(caught.value) == ("There is no spark-submit here. Set SPARK_HOME, or install it: pip install pyspark.")


@pytest.mark.parametrize(
    "options",
    [
        {"options": ["--deploy-mode", "cluster"]},
        {"options": ["--deploy-mode=cluster"]},
        {"conf": {"spark.submit.deployMode": "cluster"}},
        {"options": ["--conf", "spark.submit.deployMode=cluster"]},
        {"options": ["--conf=spark.submit.deployMode=cluster"]},
        {"beat_seconds": 60},
        {"grace_seconds": -1},
    ],
    ids=str,
)
def test_engine_is_refused_when_its_options_break_client_mode_or_the_lease(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=r"client mode|shorter than the lease"):
        SparkSubmit("logs", **options)


def test_settings_are_the_same_when_they_went_through_json() -> None:
    engine = SparkSubmit("/logs", "yarn", {"a": "b"}, ["--queue", "q"], **FAST)

    assert SparkSubmit(**json.loads(json.dumps(engine.to_json()))).to_json() == engine.to_json()
    assert Path(engines.PACKAGE_ROOT, "scripts/helpers/job_runs/engines.py").samefile(engines.__file__)


def test_log_of_a_launcher_is_in_utc_and_settings_stay_with_it_when_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configured: dict[str, Any] = {}
    done: list[Any] = []
    monkeypatch.setenv(engines.SETTINGS, '{"job": "job"}')
    monkeypatch.setattr(logging, "basicConfig", configured.update)
    monkeypatch.setattr(logging.Formatter, "converter", time.localtime)
    monkeypatch.setattr(launcher, "told_to_end", lambda *signals: signals)
    monkeypatch.setattr(launcher, "make", lambda settings, told_to_end: done.append((settings, told_to_end)))

    launcher.main()

    formatter = logging.Formatter(configured["format"], configured["datefmt"])
    record = logging.makeLogRecord({"created": 0, "levelname": "INFO", "name": "a", "msg": "event=b"})
    assert formatter.format(record) == "1970-01-01T00:00:00Z level=INFO logger=a event=b"
    assert logging.Formatter.converter is time.gmtime
    assert (configured["level"], configured["stream"]) == (logging.INFO, sys.stderr)
    assert done == [({"job": "job"}, (signal.SIGTERM,))]
    assert engines.SETTINGS not in os.environ
