"""What is left after an error or a break-off: no run is doubled, none is lost, and no job is blocked for good."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from scripts.helpers.errors import StoreUnavailableError
from scripts.helpers.glue_api.errors import GlueApiError
from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.job_runs.job_record import MAX_SLOTS, MAX_WAITING, Entry, JobRecord, TriggerRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.protocol import items
from scripts.helpers.protocol.races import TO_CHANGE_A_JOB
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import Jobs

COMMAND = {"Name": "pythonshell", "ScriptLocation": "/jobs/a.py"}


def define(jobs: Jobs, *names: str, **more: Any) -> None:
    for name in names:
        jobs.create_job(Name=name, Command=COMMAND, **more)


def trigger(jobs: Jobs, before: str, after: str, **action: Any) -> None:
    """Start one job after each success of another."""
    condition = {"LogicalOperator": "EQUALS", "JobName": before, "State": "SUCCEEDED"}
    jobs.create_trigger(
        Name=f"{before}-{after}", Type="CONDITIONAL", StartOnCreation=True,
        Predicate={"Conditions": [condition]}, Actions=[{"JobName": after, **action}],
    )  # fmt: skip


def ended(jobs: Jobs, name: str, *moves: str) -> str:
    """Start a run and move it to its end, as a launcher that dies before it does anything more."""
    run_id = jobs.start(name)
    jobs.pass_through(name, run_id, "RUNNING", *(moves or ("SUCCEEDED",)))
    return run_id


def put_waiting(jobs: Jobs, name: str, count: int, since: Any) -> None:
    """Fill the queue of a job with runs that have no records."""
    job = jobs.scheduler.records.job(name)
    entries = tuple(Entry(f"jr_{number:064x}", since) for number in range(count))
    assert jobs.scheduler.records.write(job, job.changed(waiting=entries))


def watermarks_of(jobs: Jobs) -> Watermarks:
    store = jobs.scheduler.records.store
    return Watermarks(store.table_name, store.client)


CALLS: dict[str, Callable[[JobRuns, str], Any]] = {
    "StartJobRun": lambda jobs, _: jobs.start_job_run(JobName="parking"),
    "GetJobRun": lambda jobs, run_id: jobs.get_job_run(JobName="parking", RunId=run_id),
    "GetJobRuns": lambda jobs, _: jobs.get_job_runs(JobName="parking"),
    "BatchStopJobRun": lambda jobs, run_id: jobs.batch_stop_job_run(JobName="parking", JobRunIds=[run_id]),
}


def raising(error: Exception) -> Callable[..., Any]:
    def fail(**_: Any) -> Any:
        raise error

    return fail


def refuses(code: str) -> Callable[..., Any]:
    """Return what answers a request of botocore with an error."""
    parsed = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {}}
    return lambda **_: (SimpleNamespace(status_code=400), parsed)


def down(*_: Any, **__: Any) -> Any:
    raise StoreUnavailableError("t", "put_item", "Throttled")


# --- stops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["FAILED", "ERROR"])
def test_run_is_stopped_and_not_retried_when_it_fails_after_the_stop(parked: Jobs, clock: Clock, state: str) -> None:
    define(parked, "job", MaxRetries=1)
    run_id = parked.start("job")
    parked.pass_through("job", run_id, "RUNNING")
    parked.batch_stop_job_run(JobName="job", JobRunIds=[run_id])
    stopping = parked.record("job", run_id)

    parked.scheduler.records.write_run(stopping, stopping.ended(state, clock()))

    assert parked.states("job") == ["STOPPED"]
    assert parked.scheduler.records.job("job").active == ()


# --- starts --------------------------------------------------------------------------------------


def test_start_returns_its_run_when_what_follows_its_record_fails(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = parked.start("parking")
    job, calls = RunStore.job, [0]

    def failing(self: RunStore, name: str) -> Any:
        calls[0] += 1
        return job(self, name) if calls[0] <= 3 else down()

    monkeypatch.setattr(RunStore, "job", failing)
    second = parked.start("parking", JobRunQueuingEnabled=True)
    monkeypatch.undo()

    assert calls == [4]
    assert [run["Id"] for run in parked.get_job_runs(JobName="parking")["JobRuns"]] == [second, first]


@pytest.mark.parametrize("arrives", [False, True])
def test_start_returns_its_run_when_nobody_knows_whether_its_record_was_written(
    parked: Jobs, clock: Clock, monkeypatch: pytest.MonkeyPatch, arrives: bool, caplog: pytest.LogCaptureFixture
) -> None:
    define(parked, "job", MaxRetries=1)
    replace = Store.replace

    def unsure(self: Store, before: Any, after: Any, *more: Any) -> Any:
        is_run = after[items.RANGE_KEY]["S"].startswith(items.RUN_RECORD_PREFIX)
        answer = replace(self, before, after, *more) if arrives or not is_run else None
        return down() if is_run else answer

    monkeypatch.setattr(Store, "replace", unsure)
    run_id = parked.start("job")
    monkeypatch.undo()

    assert parked.run("job", run_id)["JobRunState"] == ("STARTING" if arrives else "WAITING")
    assert parked.scheduler.engine.launched == [run_id]
    assert caplog.messages == [f"event=start_unsure run={run_id} error=StoreUnavailableError"]
    clock.move(minutes=17)
    assert parked.run("job", run_id)["JobRunState"] == "ERROR"
    assert parked.states("job") == ["ERROR"]


def test_run_has_failed_when_the_shell_of_its_launcher_ends_with_an_error(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise subprocess.CalledProcessError(2, "/bin/sh")

    monkeypatch.setattr(parked.scheduler.engine, "launch", broken)
    run = parked.run("parking", parked.start("parking"))

    assert run["JobRunState"] == "FAILED"
    assert run["ErrorMessage"] == "The launcher cannot be started: CalledProcessError."
    assert caplog.messages == [f"event=not_started job=parking run={run['Id']} error=CalledProcessError"]


def test_repeat_is_refused_when_the_run_was_never_recorded(
    parked: Jobs, clock: Clock, everything: Callable[[], Any]
) -> None:
    job = parked.scheduler.records.job("parking")
    run_id = "jr_" + "1" * 64
    parked.scheduler.records.write(job, job.started(run_id, clock()))
    clock.move(minutes=17)
    assert parked.run("parking", run_id)["JobRunState"] == "ERROR"
    before = everything()

    with pytest.raises(parked.exceptions.InvalidInputException, match="never recorded with its arguments"):
        parked.start("parking", JobRunId=run_id)

    assert everything() == before


# --- triggers ------------------------------------------------------------------------------------


def test_upstream_goes_on_when_the_run_that_it_triggers_is_too_large(parked: Jobs) -> None:
    define(parked, "up")
    define(parked, "down", DefaultArguments={"--z": "y" * 40_000})
    trigger(parked, "up", "down", Arguments={"--x": "y" * 40_000})
    run_id = ended(parked, "up")

    assert parked.run("up", run_id)["JobRunState"] == "SUCCEEDED"
    parked.start("up")

    (found,) = parked.get_job_runs(JobName="down")["JobRuns"]
    assert (found["JobRunState"], found["Arguments"], found["TriggerName"]) == ("ERROR", {}, "up-down")
    assert "65,536" in found["ErrorMessage"]
    assert "yyy" not in found["ErrorMessage"]


def test_triggered_run_is_an_error_when_the_queue_is_full(parked: Jobs, clock: Clock) -> None:
    define(parked, "up", "down")
    trigger(parked, "up", "down")
    parked.start("down")
    put_waiting(parked, "down", MAX_WAITING, clock())

    run_id = ended(parked, "up")
    parked.run("up", run_id)

    assert len(parked.scheduler.records.job("down").waiting) == MAX_WAITING
    found = parked.scheduler.records.newest_runs("down", 1)[0]
    assert (found.state, found.error) == (
        "ERROR", "Trigger 'up-down' started a run while 500 runs of the job waited already.",
    )  # fmt: skip


def test_job_fits_into_its_item_when_its_lists_are_full(parked: Jobs, clock: Clock) -> None:
    entries = [Entry(f"jr_{number:064x}_attempt_10", clock()) for number in range(MAX_SLOTS + MAX_WAITING)]
    definition = {"ExecutionProperty": {"MaxConcurrentRuns": 10**6}, "DefaultArguments": {"--a": "x" * 65_000}}

    job = JobRecord("full", definition, tuple(entries[:MAX_SLOTS]), tuple(entries[MAX_SLOTS:]))

    assert parked.scheduler.records.write(None, job)
    assert not job.changed(waiting=()).has_free_slot


def test_triggered_run_starts_when_nobody_looked_for_longer_than_the_queue_time(
    parked: Jobs, make_parked: Callable[..., Jobs], clock: Clock
) -> None:
    define(parked, "up", "down")
    trigger(parked, "up", "down")
    reader = JobRuns(watermarks_of(parked), clock=clock)
    ended(parked, "up")
    reader.tend(["up", "down"])
    (waiting,) = parked.scheduler.records.newest_runs("down", 2)
    assert waiting.state == "WAITING"

    clock.move(hours=25)
    worker = make_parked()
    worker.tend("down")
    found = worker.get_job_runs(JobName="down")["JobRuns"]

    assert [run["JobRunState"] for run in found] == ["STARTING"]


def test_worker_goes_on_with_other_jobs_and_later_passes_when_one_cannot_be_looked_after(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    define(parked, "one", "two")
    job, is_over, looked = RunStore.job, iter([False, False, True]), []

    def down_for_one(store: RunStore, name: str) -> Any:
        looked.append(name)
        return down() if name == "one" else job(store, name)

    monkeypatch.setattr(RunStore, "job", down_for_one)

    parked.work(["one", "two"], 0, lambda: next(is_over))

    assert looked == ["one", "two"] * 2
    assert [message.partition(" error=")[0] for message in caplog.messages] == [
        "event=tend_failed job=one", "event=work_failed"
    ] * 2  # fmt: skip


def test_start_returns_its_run_when_its_launcher_cannot_be_started_now(
    parked: Jobs, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parked.scheduler, "start", down)
    run_id = parked.start("parking")
    monkeypatch.undo()

    assert caplog.messages == [f"event=start_unfinished run={run_id} error=StoreUnavailableError"]
    clock.move(minutes=17)
    assert parked.run("parking", run_id)["JobRunState"] == "ERROR"


def test_warning_says_who_starts_it_when_a_run_that_waits_is_waited_for(
    parked: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    parked.start("parking")
    second = parked.start("parking", JobRunQueuingEnabled=True)

    found = parked.wait("parking", second, seconds=0.01, pause=0.01)

    assert found["JobRunState"] == "WAITING"
    (told,) = caplog.messages
    assert told.startswith(f"event=waits_for_worker job=parking run={second}: ")
    assert "watermarks work" in told


def test_triggered_run_is_queued_when_the_run_before_it_leaves_its_list(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(parked, "up", "down")
    trigger(parked, "up", "down")
    ended(parked, "up")
    queued: list[int] = []
    records = parked.scheduler.records
    write = records.write

    def noting(before: Any, after: Any) -> bool:
        if after.name == "up" and not after.active:
            queued.append(len(records.job("down").waiting))
        return bool(write(before, after))

    monkeypatch.setattr(records, "write", noting)
    parked.tend(["up", "down"])

    assert queued == [1]
    assert [len(records.job(name).active) for name in ("up", "down")] == [0, 1]


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
def test_triggered_run_starts_in_the_same_pass_when_its_job_comes_first_or_last(
    parked: Jobs, names: tuple[str, str]
) -> None:
    up, down = names
    define(parked, up, down)
    trigger(parked, up, down)
    ended(parked, up)

    started = parked.tend([up, down])

    assert [run["JobName"] for run in started] == [down]


def test_both_jobs_go_on_when_each_starts_the_other_and_both_have_ended(parked: Jobs) -> None:
    define(parked, "one", "two")
    trigger(parked, "one", "two")
    trigger(parked, "two", "one")
    ended(parked, "one")
    ended(parked, "two")

    parked.tend(["one", "two"])

    newest = [parked.scheduler.records.newest_runs(name, 3) for name in ("one", "two")]
    assert [sorted((run.state for run in runs), reverse=True) for runs in newest] == [["SUCCEEDED", "STARTING"]] * 2


# --- looks without an engine ---------------------------------------------------------------------


def test_free_slot_is_left_alone_when_nobody_with_an_engine_looks(parked: Jobs, clock: Clock) -> None:
    first, second = (parked.start("parking", JobRunQueuingEnabled=True) for _ in range(2))
    parked.pass_through("parking", first, "RUNNING", "SUCCEEDED")
    reader = JobRuns(watermarks_of(parked), clock=clock)

    reader.tend("parking")
    job = parked.scheduler.records.job("parking")
    assert (job.active, [entry.run_id for entry in job.waiting]) == ((), [second])
    clock.move(hours=24)
    reader.tend("parking")
    found = reader.get_job_run(JobName="parking", RunId=second)["JobRun"]

    assert found["JobRunState"] == "EXPIRED"
    assert found["ErrorMessage"].startswith("A slot was free, but for 24 hours no worker started the run")


def test_run_with_a_slot_expires_when_nobody_launched_it(parked: Jobs, clock: Clock) -> None:
    first, second = (parked.start("parking", JobRunQueuingEnabled=True) for _ in range(2))
    parked.pass_through("parking", first, "RUNNING", "SUCCEEDED")
    job = parked.scheduler.records.job("parking")
    parked.scheduler.records.write(job, job.settled({first: None}, clock()))
    clock.move(hours=24)

    JobRuns(watermarks_of(parked), clock=clock).tend("parking")

    assert parked.record("parking", second).state == "EXPIRED"
    assert parked.scheduler.records.job("parking").active == ()


# --- what a look costs ---------------------------------------------------------------------------


def test_records_of_waiting_runs_are_left_alone_when_they_are_not_next(parked: Jobs, clock: Clock) -> None:
    parked.start("parking")
    put_waiting(parked, "parking", 400, clock() - timedelta(hours=1))
    sent: list[str] = []
    events = parked.scheduler.records.store.client.meta.events
    events.register("before-send.dynamodb", lambda event_name, **_: sent.append(event_name))

    parked.start("parking", JobRunQueuingEnabled=True)

    assert 0 < len(sent) < 20


def test_stopped_run_leaves_the_middle_of_the_queue_when_it_was_stopped_by_one_who_died(
    parked: Jobs, clock: Clock
) -> None:
    _, second, third, fourth = (parked.start("parking", JobRunQueuingEnabled=True) for _ in range(4))
    parked.pass_through("parking", third, "STOPPED")

    parked.batch_stop_job_run(JobName="parking", JobRunIds=[third])

    assert [entry.run_id for entry in parked.scheduler.records.job("parking").waiting] == [second, fourth]


def test_tenth_attempt_comes_first_when_attempts_are_listed(parked: Jobs) -> None:
    define(parked, "job", MaxRetries=10)
    run_id = first = parked.start("job")
    for number in range(1, 11):
        parked.pass_through("job", run_id, "RUNNING", "FAILED")
        parked.tend("job")
        run_id = f"{first}_attempt_{number}"

    found = parked.get_job_runs(JobName="job", MaxResults=5)
    more = parked.get_job_runs(JobName="job", NextToken=found["NextToken"])

    attempts = [run["Attempt"] for run in (*found["JobRuns"], *more["JobRuns"])]
    assert attempts == list(range(10, -1, -1))


def test_streaming_job_has_seven_days_when_no_timeout_is_given(parked: Jobs) -> None:
    parked.create_job(Name="stream", Command={"Name": "gluestreaming", "ScriptLocation": "/a.py"})

    assert parked.run("stream", parked.start("stream"))["Timeout"] == 10_080


def test_script_is_that_of_the_caller_s_folder_when_its_path_is_relative(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    parked.create_job(Name="job", Command={"Name": "pythonshell", "ScriptLocation": "a.py"})

    run_id = parked.start("job")

    record = parked.record("job", run_id)
    assert record.command["ScriptLocation"] == str(tmp_path / "a.py")


# --- errors of the table, under the names of Glue ------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "name", "text"),
    [
        (raising(ReadTimeoutError(endpoint_url="https://d")), "OperationTimeoutException", "failed: ReadTimeoutError"),
        (refuses("ThrottlingException"), "OperationTimeoutException", "failed: ThrottlingException. Try again later."),
        (raising(EndpointConnectionError(endpoint_url="https://d")), "InternalServiceException", "EndpointConnection"),
        (refuses("AccessDeniedException"), "AccessDeniedException", "AWS refuses dynamodb:"),
    ],
    ids=["late", "throttled", "down", "denied"],
)
@pytest.mark.parametrize("operation", CALLS)
def test_call_ends_with_glue_s_error_and_changes_nothing_when_the_table_fails(
    parked: Jobs,
    table: Watermarks,
    moto_process: str,
    everything: Callable[[], Any],
    operation: str,
    fault: Callable[..., Any],
    name: str,
    text: str,
) -> None:
    run_id, before = parked.start("parking"), everything()
    client = boto3.client("dynamodb", endpoint_url=moto_process, config=Config(retries={"total_max_attempts": 1}))
    client.meta.events.register("before-call.dynamodb", fault)
    jobs = JobRuns(Watermarks(table.table_name, client), SparkSubmit("logs"))

    with pytest.raises(GlueApiError) as caught:
        CALLS[operation](jobs, run_id)

    assert (type(caught.value).__name__, caught.value.operation_name) == (name, operation)
    assert text in caught.value.message
    assert everything() == before


@pytest.mark.parametrize("operation", ["StartJobRun", "BatchStopJobRun"])
def test_call_times_out_and_changes_nothing_when_others_keep_changing_the_job(
    parked: Jobs, everything: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    run_id = ended(parked, "parking")
    before = everything()
    monkeypatch.setattr(RunStore, "write", lambda *_: False)
    monkeypatch.setattr(parked.scheduler.records.store, "sleep", lambda _: None)

    with pytest.raises(parked.exceptions.OperationTimeoutException) as caught:
        CALLS[operation](parked, run_id)

    assert caught.value.message == "Others kept changing the job. Try again."
    assert everything() == before


def test_stop_times_out_when_others_keep_changing_the_run(parked: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = parked.start("parking")
    parked.pass_through("parking", run_id, "RUNNING")
    write_run = RunStore.write_run

    def after_a_heartbeat(self: RunStore, before: RunRecord, after: RunRecord) -> Any:
        write_run(self, before, before.renewed(parked.scheduler.clock(), timedelta(minutes=1)))
        return write_run(self, before, after)

    monkeypatch.setattr(RunStore, "write_run", after_a_heartbeat)

    with pytest.raises(parked.exceptions.OperationTimeoutException) as caught:
        parked.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])

    assert caught.value.message == "Others kept changing the job run. Try again."


@pytest.mark.parametrize(("operation", "other"), [("start_trigger", "DEACTIVATED"), ("stop_trigger", "ACTIVATED")])
def test_trigger_is_left_alone_when_others_keep_switching_it(
    parked: Jobs, monkeypatch: pytest.MonkeyPatch, operation: str, other: str
) -> None:
    define(parked, "second")
    trigger(parked, "parking", "second")
    records, lost = parked.scheduler.records, []
    write = records.write
    write(records.trigger("parking-second"), records.trigger("parking-second").in_state(other))

    def after_another(before: TriggerRecord, after: TriggerRecord) -> bool:
        lost.append(after.state)
        write(before, before.in_state(other))
        return write(before, after)

    monkeypatch.setattr(records, "write", after_another)
    monkeypatch.setattr(records.store, "sleep", lambda _: None)

    with pytest.raises(parked.exceptions.OperationTimeoutException) as caught:
        getattr(parked, operation)(Name="parking-second")

    assert caught.value.message == "Others kept changing the trigger. Try again."
    assert len(lost) == TO_CHANGE_A_JOB.tries
    assert records.trigger("parking-second").state == other


def test_start_is_refused_when_as_many_runs_wait_as_may(
    parked: Jobs, clock: Clock, everything: Callable[[], Any]
) -> None:
    parked.start("parking")
    put_waiting(parked, "parking", MAX_WAITING, clock())
    before = everything()

    with pytest.raises(parked.exceptions.ResourceNumberLimitExceededException) as caught:
        parked.start("parking", JobRunQueuingEnabled=True)

    assert str(caught.value) == (
        "An error occurred (ResourceNumberLimitExceededException) when calling the StartJobRun operation: 500 runs of "
        "job 'parking' wait already. Start it later."
    )
    assert everything() == before
