"""Records of runs in a job's partition disturb neither its watermarks nor the class that this package replaces."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from scripts.helpers.batch.modes import last_success
from scripts.helpers.errors import NothingThereError, RunInProgressError, UnknownJobError, UnknownRunError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol import items
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.support.job_runs import Jobs
from tests.support.listed_rows import ListedRows
from tests.support.reasons import because


@pytest.fixture
def with_runs(parked: Jobs) -> Jobs:
    """Return jobs of which ``parking`` has a run, a trigger's record from an earlier version, and no watermark."""
    parked.scheduler.records.store.put(items.key("parking", "!t") | {"state": {"S": "CREATED"}}, if_new=True)
    parked.start("parking")
    return parked


def put_legacy(table: Watermarks, run_id: str) -> None:
    marks = {"M": {"n": {"N": "808"}}}
    item: dict[str, Any] = {"jobName": {"S": "parking"}, "runId": {"S": run_id}, "watermarks": marks}
    table.store.client.put_item(TableName=table.table_name, Item=item)


def last_item(table: Watermarks) -> dict[str, Any]:
    """Read the item that the original class considers the most recent."""
    query: dict[str, Any] = {
        "TableName": table.table_name, "Limit": 1, "ScanIndexForward": False,
        "KeyConditionExpression": "jobName = :j", "ExpressionAttributeValues": {":j": {"S": "parking"}},
    }  # fmt: skip
    (item,) = table.store.client.query(**query)["Items"]
    found: dict[str, Any] = item
    return found


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.get_most_recent_run_id("parking"),
        lambda table: table.get_watermark("parking"),
        lambda table: table.get_watermark("parking", "jr_1"),
        lambda table: table.history("parking"),
        lambda table: table.doctor("parking"),
        lambda table: table.reset("parking", why="test"),
    ],
    ids=["most recent", "watermark", "of a run", "history", "doctor", "reset"],
)
def test_job_is_unknown_to_watermarks_when_it_has_runs_only(
    with_runs: Jobs, table: Watermarks, call: Callable[[Watermarks], Any]
) -> None:
    with pytest.raises(UnknownJobError, match="'parking'"):
        call(table)


def test_first_commit_is_version_1_when_the_job_has_runs_already(with_runs: Jobs, table: Watermarks) -> None:
    with table.begin("parking", "jr_1") as run:
        run.freeze({}, {"up_to": 7})
        run.commit()

    assert (table.latest("parking").version, table.get_most_recent_run_id("parking")) == (1, "jr_1")
    assert table.doctor("parking") == []
    assert last_item(table)["runId"]["S"] == "~latest"
    assert with_runs.states("parking") == ["STARTING"]


def test_item_of_the_original_class_is_adopted_when_the_job_has_runs(with_runs: Jobs, table: Watermarks) -> None:
    put_legacy(table, "jr_a")
    assert last_item(table)["runId"]["S"] == "jr_a"

    assert table.get_watermark_values("parking") == {"n": 808}
    table.begin("parking", "jr_b").abort()

    assert table.latest("parking").run_id == "jr_a"
    assert table.doctor("parking") == []


def test_one_of_several_items_is_adopted_when_the_job_has_runs(with_runs: Jobs, table: Watermarks) -> None:
    put_legacy(table, "jr_a")
    put_legacy(table, "jr_b")
    (run,) = with_runs.get_job_runs(JobName="parking")["JobRuns"]
    with pytest.raises(UnknownRunError):
        table.adopt("parking", run["Id"])

    table.adopt("parking", "jr_a")

    assert table.get_most_recent_run_id("parking") == "jr_a"


@pytest.mark.parametrize(("owner", "late"), [("jr_1_attempt_2", "jr_1"), ("nightly_attempt_1", "nightly_attempt_2")])
def test_job_is_not_taken_when_a_later_attempt_or_another_run_has_it(table: Watermarks, owner: str, late: str) -> None:
    run = table.begin("parking", owner)

    with pytest.raises(RunInProgressError, match=owner):
        table.begin("parking", late)

    run.freeze({}, {"up_to": 1})
    run.commit()
    assert table.get_most_recent_run_id("parking") == owner


# --- ranges of runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("retry", [False, True], ids=["first attempt", "retry"])
@pytest.mark.parametrize("namespace", [None, "north"], ids=["own name", "namespace"])
def test_failed_run_stands_for_the_success_before_it_when_its_record_tells_its_start(
    make_parked: Callable[..., Jobs], table: Watermarks, namespace: str | None, retry: bool
) -> None:
    rows = ListedRows((CursorColumn("id", "bigint"),))
    jobs = make_parked(clock=lambda: datetime.now(timezone.utc))
    jobs.create_job(Name="parking", Command={"Name": "pythonshell", "ScriptLocation": "/a.py"}, MaxRetries=int(retry))

    def take(run_id: str, **args: str) -> list[int]:
        given = {"JOB_NAME": "parking", "JOB_RUN_ID": run_id, "BOOKMARK_CONTEXT": namespace, **args}
        with IncrementalJob.from_args(given, table) as job:
            return [row[0] for row in job.rows_since(rows, "id")]

    rows.listed.append((1,))
    take("jr_1")
    failed = jobs.start("parking")
    jobs.pass_through("parking", failed, "RUNNING", "FAILED")
    assert jobs.run("parking", failed)["JobRunState"] == "FAILED"
    failed = jobs.retried("parking", failed) if retry else failed
    for number in (2, 3):
        rows.listed.append((number,))
        take(f"jr_{number}")
    pause = {"job_bookmark_option": "job-bookmark-pause"}

    found = [
        take("jr_p", **pause, job_bookmark_from=start, job_bookmark_to=end)
        for start, end in ((failed, "jr_3"), ("jr_1", failed))
    ]

    assert found == [[2, 3], []]


def test_one_version_is_read_when_the_log_entry_of_a_run_has_expired(
    table: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 5):
        with table.begin("parking", f"jr_{number}") as run:
            run.freeze({}, {"up_to": number})
            run.commit()
    table.store.delete("parking", items.log_key(3))
    history, read = table.history, list[tuple[Any, Any]]()

    def counted(job_id: str, limit: int, before: int | None) -> Any:
        read.append((limit, before))
        return history(job_id, limit=limit, before=before)

    monkeypatch.setattr(table, "history", counted)

    with pytest.raises(NothingThereError, check=because("unplaced_run")):
        last_success(table, "parking", "jr_3")

    assert read == [(1, 4)]


def test_bookmark_goes_with_its_job_when_that_is_deleted(
    parked: Jobs, table: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    with table.begin("parking", "jr_1") as run:
        run.freeze({}, {"up_to": 7})
        run.commit()

    parked.delete_job(JobName="parking")

    assert table.latest("parking").watermarks == {}
    assert table.history("parking")[0].change.why == "DeleteJob: the bookmark goes with its job, as in Glue"
    assert "event=bookmark_deleted job=parking: a job of this name reads everything again" in caplog.messages
    with pytest.raises(parked.exceptions.EntityNotFoundException):
        parked.get_job(JobName="parking")


@pytest.mark.parametrize("where", ["DefaultArguments", "NonOverridableArguments"])
def test_bookmark_goes_with_its_job_when_the_definition_names_its_namespace(
    make_parked: Callable[..., Jobs], table: Watermarks, where: str
) -> None:
    jobs = make_parked()
    command = {"Name": "pythonshell", "ScriptLocation": "/jobs/parking.py"}
    jobs.create_job(Name="parking", Command=command, **{where: {"--BOOKMARK_CONTEXT": "north"}})
    for name in ("parking@@north", "parking@@south"):
        with table.begin(name, "jr_1") as run:
            run.freeze({}, {"up_to": 7})
            run.commit()

    jobs.delete_job(JobName="parking")

    found = [table.latest(name).watermarks for name in ("parking@@north", "parking@@south")]
    assert found == [{}, {"up_to": 7}]


def test_job_is_deleted_when_its_definition_names_a_namespace_that_no_run_can_have(
    make_parked: Callable[..., Jobs],
) -> None:
    jobs = make_parked()
    command = {"Name": "pythonshell", "ScriptLocation": "/jobs/parking.py"}
    jobs.create_job(Name="parking", Command=command, DefaultArguments={"--BOOKMARK_CONTEXT": "a*"})

    jobs.delete_job(JobName="parking")

    with pytest.raises(jobs.exceptions.EntityNotFoundException):
        jobs.get_job(JobName="parking")


def test_bookmark_stays_when_a_job_without_definition_is_deleted(parked: Jobs, table: Watermarks) -> None:
    parked.delete_job(JobName="parking")
    with table.begin("parking", "jr_1") as run:
        run.freeze({}, {"up_to": 7})
        run.commit()

    parked.delete_job(JobName="parking")

    assert table.get_watermark_values("parking") == {"up_to": 7}
