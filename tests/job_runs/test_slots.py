"""Slots, stops, pages and repeats, without launchers: every slot is returned, wherever a process crashes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import OperationNotPageableError

from scripts.helpers.glue_api.pages import paginator
from scripts.helpers.job_runs import ids
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.job_runs import Jobs
from tests.support.places import REGION

COMMAND = {"Name": "pythonshell", "ScriptLocation": "/jobs/parking.py"}


def allow(jobs: Jobs, slots: int, **more: Any) -> None:
    """Set how many runs of ``parking`` may run at the same time."""
    definition = {"Command": COMMAND, "ExecutionProperty": {"MaxConcurrentRuns": slots}} | more
    jobs.update_job(JobName="parking", JobUpdate=definition)


def finish(jobs: Jobs, run_id: str, state: str = "SUCCEEDED", name: str = "parking") -> None:
    """Move a run from its start to its end, as a launcher does."""
    jobs.pass_through(name, run_id, "RUNNING", state)
    jobs.scheduler.settle(name)


# --- slots ---------------------------------------------------------------------------------------


def test_start_is_refused_when_all_slots_are_taken(parked: Jobs, everything: Callable[[], Any]) -> None:
    first = parked.start("parking")
    before = everything()

    with pytest.raises(parked.exceptions.ConcurrentRunsExceededException, match="1 of 1 are at work") as full:
        parked.start("parking")

    assert "An error occurred (ConcurrentRunsExceededException) when calling the StartJobRun operation" in str(
        full.value
    )
    assert "Concurrent runs exceeded for parking" in full.value.response["Error"]["Message"]
    assert everything() == before
    finish(parked, first)
    assert parked.start("parking") != first


def test_slots_are_never_overrun_when_many_start_at_once(
    parked: Jobs, moto_process: str, table: Watermarks, make_parked: Callable[..., Jobs]
) -> None:
    allow(parked, 3)
    starters, ready = 12, threading.Barrier(12)

    def start(_: int) -> str:
        jobs = make_parked()
        jobs.scheduler.records.store.table = Watermarks(
            table.table_name, region_name=REGION, endpoint_url=moto_process
        ).store.table
        ready.wait()
        try:
            return jobs.start("parking")
        except jobs.exceptions.ConcurrentRunsExceededException:
            return "refused"

    with ThreadPoolExecutor(starters) as pool:
        answers = list(pool.map(start, range(starters)))

    assert answers.count("refused") == starters - 3
    assert sorted(set(answers) - {"refused"}, reverse=True) == [
        run["Id"] for run in parked.get_job_runs(JobName="parking")["JobRuns"]
    ]


def test_waiting_run_of_an_earlier_version_is_shown_and_expires_after_a_day(parked: Jobs, clock: Clock) -> None:
    first = parked.start("parking")
    parked.pass_through("parking", first, "RUNNING", "SUCCEEDED")
    (waiting,) = parked.queued("parking", 1)

    assert parked.states("parking") == ["WAITING", "SUCCEEDED"]
    assert parked.run("parking", waiting)["StateDetail"] == "Waits for a slot."
    clock.move(hours=24)
    expired = parked.run("parking", waiting)

    assert expired["JobRunState"] == "EXPIRED"
    assert expired["ErrorMessage"] == "Nothing started the run for 24 hours. Start it again by its id."
    assert parked.scheduler.records.job("parking").waiting == ()
    assert parked.scheduler.engine.launched == [first]


def test_waiting_run_of_an_earlier_version_is_stopped_and_no_start_waits_for_it(parked: Jobs) -> None:
    second, third = parked.queued("parking", 2)

    answer = parked.batch_stop_job_run(JobName="parking", JobRunIds=[second])
    first = parked.start("parking")

    assert answer["SuccessfulSubmissions"] == [{"JobName": "parking", "JobRunId": second}]
    assert answer["Errors"] == []
    assert parked.states("parking") == ["STARTING", "WAITING", "STOPPED"]
    assert [entry.run_id for entry in parked.scheduler.records.job("parking").waiting] == [third]
    assert parked.scheduler.engine.launched == [first]


def test_stop_wins_when_the_launcher_beats_in_every_pause(parked: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = parked.start("parking")
    parked.pass_through("parking", run_id, "RUNNING")
    records, replace, late = parked.scheduler.records, Store.replace, [True]

    def beat(_: float = 0) -> None:
        run = parked.record("parking", run_id)
        replace(records.store, run.to_item(), run.renewed(parked.scheduler.clock(), timedelta(hours=1)).to_item())

    def overtaken(self: Store, *arguments: Any, **more: Any) -> Any:
        if late.pop() if late else False:
            beat()
        return replace(self, *arguments, **more)

    monkeypatch.setattr(Store, "replace", overtaken)
    monkeypatch.setattr(records.store, "sleep", beat)
    parked.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])

    assert (parked.record("parking", run_id).state, late) == ("STOPPING", [])


def test_stop_changes_nothing_more_when_the_run_is_stopping(parked: Jobs, everything: Callable[[], Any]) -> None:
    run_id = parked.start("parking")
    first = parked.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])
    before = everything()

    again = parked.batch_stop_job_run(JobName="parking", JobRunIds=[run_id, run_id])

    assert first["SuccessfulSubmissions"] * 2 == again["SuccessfulSubmissions"]
    assert (again["Errors"], everything()) == ([], before)
    assert parked.run("parking", run_id)["JobRunState"] == "STOPPING"


def test_stop_is_an_error_of_its_own_when_the_run_is_over(parked: Jobs) -> None:
    run_id = parked.start("parking")
    finish(parked, run_id)
    before = parked.record("parking", run_id)

    answer = parked.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])

    assert answer["SuccessfulSubmissions"] == []
    assert answer["Errors"][0]["ErrorDetail"] == {
        "ErrorCode": "InvalidInputException",
        "ErrorMessage": f"Job run '{run_id}' is SUCCEEDED already, so there is nothing to stop.",
    }
    assert parked.record("parking", run_id) == before


def test_run_at_work_goes_on_when_the_job_is_deleted(parked: Jobs) -> None:
    first = parked.start("parking")
    (waiting,) = parked.queued("parking", 1)

    parked.delete_job(JobName="parking")
    parked.delete_job(JobName="parking")

    assert parked.record("parking", waiting).state == "ERROR"
    assert parked.run("parking", first)["JobRunState"] == "STARTING"
    parked.create_job(Name="parking", Command=COMMAND)
    with pytest.raises(parked.exceptions.ConcurrentRunsExceededException):
        parked.start("parking")
    finish(parked, first)
    parked.start("parking")


def test_run_keeps_what_was_in_force_when_the_job_is_changed(parked: Jobs) -> None:
    first = parked.start("parking")

    parked.update_job(
        JobName="parking",
        JobUpdate={"Command": {"ScriptLocation": "/jobs/new.py"}, "Timeout": 7, "DefaultArguments": {"--a": "b"}},
    )

    assert parked.record("parking", first).command == COMMAND
    assert parked.run("parking", first)["Timeout"] == 2880
    finish(parked, first)
    assert parked.run("parking", parked.start("parking"))["Arguments"] == {"--a": "b"}


# --- lost runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "expected"),
    [((), "ERROR"), (("RUNNING",), "ERROR"), (("STOPPING",), "STOPPED"), (("RUNNING", "STOPPING"), "STOPPED")],
)
def test_run_is_ended_by_the_next_look_when_its_launcher_gives_no_sign(
    parked: Jobs, clock: Clock, moves: tuple[str, ...], expected: str
) -> None:
    run_id = parked.start("parking")
    parked.pass_through("parking", run_id, *moves)
    unchanged = parked.record("parking", run_id)

    clock.move(minutes=16)
    assert parked.run("parking", run_id)["JobRunState"] == unchanged.state
    clock.move(microseconds=1)
    found = parked.run("parking", run_id)

    assert found["JobRunState"] == expected
    assert found["CompletedOn"] == clock()
    assert "The launcher gave no sign since 2026-03-16T15:45:00+00:00" in found["ErrorMessage"]
    assert parked.scheduler.records.job("parking").active == ()


@pytest.mark.parametrize("look", ["start_job_run", "batch_stop_job_run", "delete_job"])
def test_lost_run_gives_its_slot_back_when_any_call_changes_the_job(parked: Jobs, clock: Clock, look: str) -> None:
    run_id = parked.start("parking")
    clock.move(minutes=17)

    more = {"JobRunIds": [ids.new_id(clock())]} if look == "batch_stop_job_run" else {}
    getattr(parked, look)(JobName="parking", **more)

    assert parked.record("parking", run_id).state == "ERROR"
    assert run_id not in [entry.run_id for entry in parked.scheduler.records.job("parking").active]


def test_lost_run_is_ended_and_retried_when_it_is_asked_to_be_repeated(parked: Jobs, clock: Clock) -> None:
    run_id = parked.start("parking", Arguments={"--a": "1"})
    clock.move(minutes=17)

    retry = parked.start("parking", JobRunId=run_id)

    assert parked.record("parking", run_id).state == "ERROR"
    assert parked.record("parking", retry).told["Arguments"] == {"--a": "1"}


@pytest.mark.parametrize("call", ["start_job_run", "batch_stop_job_run"])
def test_slot_of_a_failed_run_is_its_retry_s_until_its_launcher_had_time_to_make_it(
    parked: Jobs, clock: Clock, call: str
) -> None:
    allow(parked, 1, MaxRetries=1)
    run_id = parked.start("parking")
    begun = replace(parked.record("parking", run_id).to("RUNNING", clock()), running_since=clock())
    parked.scheduler.records.write_run(parked.record("parking", run_id), begun)
    parked.pass_through("parking", run_id, "FAILED")

    with pytest.raises(parked.exceptions.ConcurrentRunsExceededException):
        parked.start("parking")
    clock.move(minutes=17)
    if call == "batch_stop_job_run":
        parked.batch_stop_job_run(JobName="parking", JobRunIds=[run_id])
        assert parked.scheduler.records.job("parking").active == ()

    other = parked.start("parking")
    assert parked.states("parking") == ["STARTING", "FAILED"]
    assert [entry.run_id for entry in parked.scheduler.records.job("parking").active] == [other]


# --- pages ---------------------------------------------------------------------------------------


def test_thousand_runs_come_once_each_and_newest_first_when_read_in_pages(
    parked: Jobs, table: Watermarks, clock: Clock
) -> None:
    runs = []
    job = JobRecord("parking", {"Command": COMMAND})
    for number in range(1_000):
        moment = clock() + timedelta(microseconds=number)
        runs.append(job.new_run(ids.new_id(moment), {}, moment))
    for first in range(0, 1_000, 25):
        writes: list[Any] = [{"PutRequest": {"Item": run.to_item()}} for run in runs[first : first + 25]]
        dynamodb = table.store.client
        assert not dynamodb.batch_write_item(RequestItems={table.table_name: writes})["UnprocessedItems"]
    made = [run.run_id for run in runs]

    pages: list[list[str]] = []
    token: dict[str, str] = {}
    while True:
        answer = parked.get_job_runs(JobName="parking", MaxResults=200, **token)
        pages.append([run["Id"] for run in answer["JobRuns"]])
        if "NextToken" not in answer:
            break
        assert isinstance(answer["NextToken"], str)
        token = {"NextToken": answer["NextToken"]}
    by_default = parked.get_job_runs(JobName="parking")
    paged = list(parked.get_paginator("get_job_runs").paginate(JobName="parking"))

    assert [[run["Id"] for run in page["JobRuns"]] for page in paged] == pages
    assert [len(page) for page in pages] == [200] * 5
    assert [run_id for page in pages for run_id in page] == made[::-1]
    assert (len(by_default["JobRuns"]), by_default["NextToken"]) == (200, made[-200])


@pytest.mark.parametrize(("size", "most", "expected"), [(2, 3, [2, 1]), (2, 4, [2, 2]), (3, 5, [3, 2])])
def test_paginator_stops_and_goes_on_as_botocore_s_does_when_configured(
    parked: Jobs, size: int, most: int, expected: list[int]
) -> None:
    allow(parked, 6)
    made = [parked.start("parking") for _ in range(6)][::-1]

    def paginate(**config: Any) -> Any:
        return parked.get_paginator("get_job_runs").paginate(JobName="parking", PaginationConfig=config)

    sizes = [len(page["JobRuns"]) for page in paginate(PageSize=size, MaxItems=most)]
    first = paginate(PageSize=size, MaxItems=most).build_full_result()
    rest = list(paginate(PageSize=size, StartingToken=first["NextToken"]).search("JobRuns[].Id"))

    assert sizes == expected
    assert [run["Id"] for run in first["JobRuns"]] == made[:most]
    assert rest == made[most:]


def test_call_is_not_pageable_when_it_has_no_pages(parked: Jobs) -> None:
    with pytest.raises(OperationNotPageableError, match="Operation cannot be paginated: start_job_run"):
        parked.get_paginator("start_job_run")


def test_paginator_is_configured_as_botocore_s_when_compared() -> None:
    theirs = botocore.session.get_session().get_paginator_model("glue").get_paginator("GetJobRuns")

    ours = paginator("get_job_runs", {"get_job_runs": ("JobRuns", dict)})

    assert ours._pagination_cfg == theirs


@pytest.mark.parametrize(("size", "expected"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (4, [3])])
def test_last_page_has_no_token_when_nothing_is_left(parked: Jobs, size: int, expected: list[int]) -> None:
    allow(parked, 3)
    for _ in range(3):
        parked.start("parking")

    sizes: list[int] = []
    token: dict[str, str] = {}
    while answer := parked.get_job_runs(JobName="parking", MaxResults=size, **token):
        sizes.append(len(answer["JobRuns"]))
        if "NextToken" not in answer:
            break
        token = {"NextToken": answer["NextToken"]}

    assert sizes == expected


def test_record_expires_after_its_time_when_the_run_is_over(
    parked: Jobs, make_parked: Callable[..., Jobs], everything: Callable[[], Any], clock: Clock
) -> None:
    first = parked.start("parking")
    clock.move(minutes=17)
    parked.scheduler.settle("parking")
    forever = make_parked(keep=None)
    second = forever.start("parking")
    clock.move(minutes=17)
    forever.scheduler.settle("parking")

    ends = {key.removeprefix("!r#"): item.get("expiresAt") for (_, key), item in everything().items()}
    first_end = clock() - timedelta(minutes=17) + timedelta(days=90)
    assert ends == {"!j": None, first: {"N": str(int(first_end.timestamp()))}, second: None}


# --- repeats -------------------------------------------------------------------------------------


def test_retry_has_the_same_arguments_and_a_new_id_when_asked_for_by_id(parked: Jobs) -> None:
    parked.update_job(JobName="parking", JobUpdate={"Command": COMMAND, "DefaultArguments": {"--a": "1", "--b": "1"}})
    first = parked.start("parking", Arguments={"--a": "2"}, Timeout=9)
    finish(parked, first, "FAILED")

    again = parked.start("parking", JobRunId=first)
    finish(parked, again, "FAILED")
    changed = parked.start("parking", JobRunId=again, Arguments={"--b": "3"}, Timeout=1)

    runs = [parked.run("parking", run_id) for run_id in (again, changed)]
    assert len({first, again, changed}) == 3
    assert [run["PreviousRunId"] for run in runs] == [first, again]
    assert [run["Arguments"] for run in runs] == [{"--a": "2", "--b": "1"}, {"--a": "2", "--b": "3"}]
    assert [(run["Timeout"], run["Attempt"]) for run in runs] == [(9, 0), (1, 0)]


def test_arguments_are_merged_as_glue_does_when_a_run_starts(parked: Jobs) -> None:
    parked.update_job(
        JobName="parking",
        JobUpdate={
            "Command": COMMAND,
            "DefaultArguments": {"--a": "job", "--b": "job", "--c": "job"},
            "NonOverridableArguments": {"--c": "fixed"},
        },
    )

    run_id = parked.start("parking", Arguments={"--b": "run", "--c": "run", "--d": "run"})

    assert parked.run("parking", run_id)["Arguments"] == {"--a": "job", "--b": "run", "--c": "fixed", "--d": "run"}


# --- crashes -------------------------------------------------------------------------------------


class CrashError(Exception):
    """Simulates the end of a process in a test."""


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], list[int]]:
    """Return a function that makes a process die before or after its n-th write from now on, once."""
    replace = Store.replace

    def crash(number: int, when: str) -> list[int]:
        count = [0]

        def counted(self: Store, *arguments: Any, **more: Any) -> Any:
            count[0] += 1
            if count[0] == number and when == "before":
                raise CrashError
            answer = replace(self, *arguments, **more)
            if count[0] == number and when == "after":
                raise CrashError
            return answer

        monkeypatch.setattr(Store, "replace", counted)
        return count

    return crash


@pytest.mark.parametrize(("number", "when"), [(1, "before"), (1, "after"), (2, "before"), (2, "after")])
def test_slot_comes_back_when_a_start_dies_at_any_write(
    parked: Jobs, make_parked: Callable[..., Jobs], crash_at: Any, clock: Clock, number: int, when: str
) -> None:
    crash_at(number, when)
    with pytest.raises(CrashError):
        parked.start("parking")
    crash_at(0, "")
    other = make_parked()
    clock.move(minutes=17)

    run_id = other.start("parking")

    expected = ["STARTING"] if (number, when) == (1, "before") else ["STARTING", "ERROR"]
    assert other.states("parking") == expected
    assert other.scheduler.engine.launched == [run_id]


def test_start_is_given_up_when_it_took_so_long_that_its_slot_was_taken_back(
    parked: Jobs, make_parked: Callable[..., Jobs], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, other = parked._start, make_parked()

    def slowly(*arguments: Any, **more: Any) -> None:
        clock.move(minutes=17)
        other.scheduler.settle("parking")
        record(*arguments, **more)

    monkeypatch.setattr(parked, "_start", slowly)
    with pytest.raises(
        parked.exceptions.OperationTimeoutException, match=r"took too long and was given up. Start it again."
    ):
        parked.start("parking")

    assert other.states("parking") == ["ERROR"]
    assert parked.scheduler.engine.launched == []
