"""Hostile data in one job's items can stop that job's runs, but no run of another job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import CorruptItemError
from scripts.helpers.glue_api.errors import GlueApiError
from scripts.helpers.job_runs import SparkSubmit, ids
from scripts.helpers.job_runs.job_record import Entry, JobRecord
from scripts.helpers.job_runs.run_record import LEGAL, TERMINAL, RunRecord
from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.dynamodb import FakeDynamoDB
from tests.support.job_runs import Jobs
from tests.support.long import cases
from tests.support.spoiled_table import SPOILED, Path, attribute_at, paths_in, spoiled, spoilt_by

BAD, GOOD = "a-bad", "b-good"
BEGUN, WAITS, SOUND = (f"jr_{digit * 64}" for digit in "123")
NOW = Clock()()
COMMAND = {"Name": "glueetl", "ScriptLocation": "s3://scripts/a.py"}
DEFINITION = {
    "Command": COMMAND, "CreatedOn": NOW, "LastModifiedOn": NOW, "MaxRetries": 1, "Timeout": 30, "MaxCapacity": 2.0,
    "DefaultArguments": {"--a": "1"}, "NonOverridableArguments": {"--b": "2"}, "JobRunQueuingEnabled": True,
    "ExecutionProperty": {"MaxConcurrentRuns": 2}, "NotificationProperty": {"NotifyDelayAfter": 1},
}  # fmt: skip
TOLD = {
    "Arguments": {"--a": "1"}, "Attempt": 0, "Timeout": 30, "WorkerType": "G.1X", "NumberOfWorkers": 2,
    "PreviousRunId": SOUND, "TriggerName": "t", "LogGroupName": "/logs",
}  # fmt: skip
PLACES = {
    "run": (BAD, items.run_record_key(BEGUN)),
    "waiting run": (BAD, items.run_record_key(WAITS)),
    "job": (BAD, items.JOB_RECORD_KEY),
}
"""The items that are altered, each by its key."""


class Submit(SparkSubmit):
    """The engine that checks each run, except that it starts no process."""

    launched: ClassVar[list[str]] = []

    def launch(self, run: RunRecord, shared: Any) -> None:
        self.check(run)
        self.launched.append(f"{run.job_name} {run.run_id}")


def a_run(state: str, run_id: str = BEGUN, job: str = BAD) -> RunRecord:
    begun = state not in ("WAITING", "EXPIRED")
    return RunRecord(
        job, run_id, state, NOW, NOW, TOLD, COMMAND, max_retries=1,
        running_since=NOW if begun else None, completed_on=NOW if state in TERMINAL else None, error="e", detail="d",
        lease=timedelta(minutes=1) if begun and state not in TERMINAL else None, launcher="host:1" if begun else None,
    )  # fmt: skip


def sound_items(state: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the items of two jobs: the first has a run in `state`, and a run that an earlier version queued."""
    made: list[Any] = [
        JobRecord(BAD, DEFINITION, (Entry(BEGUN, NOW),), (Entry(WAITS, NOW),)),
        JobRecord(GOOD, DEFINITION), a_run(state), a_run("WAITING", WAITS),
    ]  # fmt: skip
    items_of = [record.to_item() for record in made]
    return {(item["jobName"]["S"], item["runId"]["S"]): item for item in items_of}


def table_of(found: dict[tuple[str, str], dict[str, Any]]) -> Jobs:
    """Return jobs on a table that has these items."""
    double: Any = FakeDynamoDB()
    double.meta.endpoint_url = "http://127.0.0.1"
    for item in found.values():
        double.put_item(TableName="table", Item=item)
    Submit.launched.clear()
    return Jobs(Watermarks("table", double), Submit("logs", scripts=["s3://scripts/"]), clock=Clock())


CALLS: list[Callable[[Jobs], Any]] = [
    lambda jobs: jobs.get_job(JobName=BAD),
    lambda jobs: jobs.get_job_run(JobName=BAD, RunId=BEGUN, PredecessorsIncluded=True),
    lambda jobs: jobs.get_job_runs(JobName=BAD),
    lambda jobs: jobs.wait(BAD, BEGUN, seconds=0),
    lambda jobs: jobs.start_job_run(JobName=BAD),
    lambda jobs: jobs.start_job_run(JobName=BAD, JobRunId=BEGUN),
    lambda jobs: jobs.batch_stop_job_run(JobName=BAD, JobRunIds=[BEGUN, WAITS]),
    lambda jobs: jobs.update_job(JobName=BAD, JobUpdate={"Command": COMMAND}),
    lambda jobs: jobs.delete_job(JobName=BAD),
]


def check_calls(found: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Make every call about the altered job: each returns or raises an error of Glue. Then start the other job."""
    jobs = table_of(found)
    for call in CALLS:
        with contextlib.suppress(GlueApiError):
            call(jobs)
    own = jobs.start_job_run(JobName=GOOD)["JobRunId"]
    assert f"{GOOD} {own}" in Submit.launched


# --- one attribute -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("state", ["SUCCEEDED", "RUNNING"])
def test_every_call_ends_as_documented_when_any_attribute_of_a_record_is_altered(place: str, state: str) -> None:
    sound = sound_items(state)
    item = sound[PLACES[place]]
    others = {name: {"S": "x"} for name in ALL_NAMES - item.keys()}
    altered = [
        spoiled(item, path, SPOILED[name]) for path in paths_in(item) for name in spoilt_by(attribute_at(item, path))
    ]
    altered += [item | {name: attribute} for name, attribute in others.items()]

    for one in altered:
        check_calls(sound | {PLACES[place]: one})

    assert len(altered) > 50


# --- any attributes, also two at once ------------------------------------------------------------

ALL_NAMES = {name for item in sound_items("SUCCEEDED").values() for name in item} - {items.HASH_KEY, items.RANGE_KEY}
TEXTS = (
    st.text(max_size=12) | st.sampled_from([*LEGAL, BAD, GOOD, BEGUN, WAITS, SOUND])
    | st.datetimes().map(lambda moment: moment.replace(tzinfo=timezone.utc).isoformat())
    | st.sampled_from(["x" * 3_000, f"{BEGUN}_attempt_{'1' * 5_000}", "jr_\x1b[2J", "/etc/passwd\x00", "a\nb"])
)  # fmt: skip
NUMBERS = st.integers(-(10**38) + 1, 10**38 - 1).map(str) | st.sampled_from(["0.5", "1E+125", "-1E-130", "11", "2000"])
SCALARS = (
    st.builds(lambda text: {"S": text}, TEXTS)
    | st.builds(lambda number: {"N": number}, NUMBERS)
    | st.builds(lambda data: {"B": data}, st.binary(max_size=4))
    | st.builds(lambda flag: {"BOOL": flag}, st.booleans())
    | st.just({"NULL": True})
    | st.builds(lambda texts: {"SS": sorted(texts)}, st.sets(TEXTS, min_size=1, max_size=3))
    | st.builds(lambda numbers: {"NS": sorted(numbers)}, st.sets(NUMBERS, min_size=1, max_size=3))
    | st.builds(lambda data: {"BS": sorted(data)}, st.sets(st.binary(max_size=4), min_size=1, max_size=3))
)
NAMES = st.sampled_from(sorted(ALL_NAMES | DEFINITION.keys() | TOLD.keys())) | st.text(min_size=1, max_size=4)
ATTRIBUTES = st.none() | st.recursive(
    SCALARS,
    lambda inner: (
        st.builds(lambda members: {"L": members}, st.lists(inner, max_size=4))
        | st.builds(lambda members: {"M": members}, st.dictionaries(NAMES, inner, max_size=4))
    ),
    max_leaves=8,
)


def altered_at(item: dict[str, Any], number: int, attribute: Any) -> dict[str, Any]:
    """Return an item with an attribute replaced at one of its places, or added where it had none."""
    places: list[Path] = [*paths_in(item), *((name,) for name in sorted(ALL_NAMES))]
    path = places[number % len(places)]
    if attribute is None and path[0] not in item:
        return item
    return spoiled(item, path, attribute)


CHANGES = st.lists(
    st.tuples(st.sampled_from(sorted(PLACES)), st.integers(0, 10_000), ATTRIBUTES), min_size=1, max_size=2
)


def number_of(state: str, *path: str) -> int:
    """Return the number by which `altered_at` finds the place of an attribute in the record of a run."""
    return list(paths_in(a_run(state).to_item())).index(path)


NUMBER_OF_COMPLETED_ON = number_of("SUCCEEDED", "completedOn")
SCRIPT = ("run", "M", "command", "M", "ScriptLocation")


@given(state=st.sampled_from(sorted(LEGAL)), changes=CHANGES)
@example(state="SUCCEEDED", changes=[("run", NUMBER_OF_COMPLETED_ON, None)])
@example(state="FAILED", changes=[("run", NUMBER_OF_COMPLETED_ON, None)])
@example(
    state="RUNNING",
    changes=[("run", number_of("RUNNING", "launcher"), None), ("run", number_of("RUNNING", *SCRIPT), {"S": "/a\0.py"})],
)
@example(state="WAITING", changes=[("waiting run", number_of("WAITING", *SCRIPT), {"S": "/a\0.py"})])
@settings(max_examples=cases(30, long=400), deadline=None)
def test_every_call_ends_as_documented_when_any_two_attributes_are_altered(
    state: str, changes: list[tuple[str, int, Any]]
) -> None:
    found = dict(sound_items(state))
    for place, number, attribute in changes:
        found[PLACES[place]] = altered_at(found[PLACES[place]], number, attribute)

    check_calls(found)


# --- what the error says -------------------------------------------------------------------------

OF_RUN, OF_JOB = ("run", "M", "told", "M"), ("job", "M", "definition", "M")


@pytest.mark.parametrize(
    ("place", "path", "attribute", "detail"),
    [
        ("run", ("completedOn",), None, "'completedOn' must be there if the run is over, and only then"),
        ("waiting run", ("completedOn",), {"S": NOW.isoformat()}, "'completedOn' must be there if the run is over"),
        ("run", ("state",), {"S": "LOST"}, "'state' must be one of WAITING, STARTING"),
        ("run", ("state",), None, "'state' is missing"),
        ("run", ("tok",), {"N": "1"}, "'tok' must be of type string, not int"),
        ("run", ("tok",), {"S": ""}, "Value at 'tok' failed to satisfy constraint: Member must have length greater"),
        ("run", ("startedOn",), {"S": "yesterday"}, "startedOn is not a time with its zone"),
        ("run", ("runningSince",), {"S": "9999-12-31T23:59:59+00:00"}, "runningSince is a time of the year 9999"),
        ("run", ("maxRetries",), {"N": "11"}, "Value 11 at 'maxRetries' failed to satisfy constraint"),
        ("run", ("error",), {"S": "x" * 8_001}, "Value at 'error' failed to satisfy constraint: Member must"),
        ("run", ("leaseSeconds",), {"N": "0"}, "Value at 'leaseSeconds' failed to satisfy constraint"),
        ("run", ("leaseSeconds",), {"N": "864000000"}, "Value at 'leaseSeconds' failed to satisfy constraint"),
        ("run", ("modifiedOn",), {"S": "9999-12-31T23:59:59+00:00"}, "modifiedOn is a time of the year 9999"),
        ("run", ("run", "M", "told"), None, "'run.told' is missing"),
        ("run", (*OF_RUN, "Arguments"), None, "'run.told' must have Arguments and Timeout"),
        ("run", (*OF_RUN, "Timeout"), {"S": "5"}, "'run.told.Timeout' must be of type integer, not str"),
        ("run", (*OF_RUN, "Attempt"), {"S": "first"}, "'run.told.Attempt' must be of type integer, not str"),
        ("run", ("run", "M", "command"), {"L": []}, "'run.command' must be of type map, not list"),
        ("run", (*OF_RUN, "Arguments"), {"M": {"a": {"N": "1"}}}, "'run.told.Arguments['a']' must be of type string"),
        ("waiting run", (*OF_RUN, "Timeout"), None, "'run.told' must have Arguments and Timeout"),
        ("run", (*OF_RUN, "Attempt"), {"N": "-1"}, "Value -1 at 'run.told.Attempt' failed to satisfy constraint"),
        ("run", ("run", "M", "command", "M", "Name"), {"L": []}, "'run.command['Name']' must be of type string"),
        ("run", ("types",), {"M": {"told": {"M": {"Timeout": {"S": "date"}}}}}, "'run' must be what can be"),
        ("run", ("run",), {"M": {"told": {"S": "x" * 90_000}}}, "'run' must be what can be stored in 81,920 bytes"),
        ("job", ("active", "L", 0), {"S": "a"}, "'active[0]' must be of type list, not str"),
        ("job", ("active", "L", 0, "L", 1), {"S": "now"}, "active is not a time with its zone"),
        ("job", ("waiting",), {"L": [{"L": [{"S": "a" * 256}, {"S": "b"}]}]}, "Value at 'waiting[0][0]' failed"),
        ("job", (*OF_JOB, "MaxRetries"), {"N": "0.5"}, "'job.definition.MaxRetries' must be of type integer"),
        ("job", (*OF_JOB, "Timeout"), {"S": "5"}, "'job.definition.Timeout' must be of type integer, not str"),
        ("job", (*OF_JOB, "ExecutionProperty"), {"N": "5"}, "'job.definition.ExecutionProperty' must be of type"),
        ("job", (*OF_JOB, "ExecutionProperty", "M", "MaxConcurrentRuns"), {"S": "many"},
         "'job.definition.ExecutionProperty.MaxConcurrentRuns' must be of type integer, not str"),
        ("job", (*OF_JOB, "DefaultArguments", "M", "--a"), {"N": "1"},
         "'job.definition.DefaultArguments['--a']' must be of type string, not int"),
        ("job", (*OF_JOB, "NonOverridableArguments"), {"L": [{"S": "--a"}]},
         "'job.definition.NonOverridableArguments' must be of type map, not list"),
        ("job", (*OF_JOB, "Command"), {"S": "a"}, "'job.definition.Command' must be of type structure, not str"),
        ("job", ("unknown",), {"S": "x" * 391_000}, "it is larger than 390,000 bytes"),
    ],
)  # fmt: skip
def test_error_names_the_attribute_and_what_was_expected_when_a_record_is_altered(
    place: str, path: Path, attribute: Any, detail: str
) -> None:
    kinds: dict[str, Any] = {"job": JobRecord}
    item = spoiled(sound_items("SUCCEEDED")[PLACES[place]], path, attribute)

    with pytest.raises(CorruptItemError) as refused:
        kinds.get(place, RunRecord).from_item(item)

    assert f"not readable: {detail}" in str(refused.value)
    assert refused.value.job_id == PLACES[place][0]


# --- what earlier versions wrote -----------------------------------------------------------------


def test_run_is_read_when_an_earlier_version_wrote_it() -> None:
    item: dict[str, Any] = {
        "jobName": {"S": "parking"}, "runId": {"S": f"!r#{BEGUN}_attempt_01"}, "fmt": {"N": "1"}, "tok": {"S": "0a"},
        "state": {"S": "RUNNING"}, "maxRetries": {"N": "1"}, "startedOn": {"S": "2026-03-16T15:45:00.000000+00:00"},
        "modifiedOn": {"S": "2026-03-16T15:46:00.000000+00:00"}, "leaseSeconds": {"N": "60"},
        "leaseUntil": {"S": "2026-03-16T15:47:00.000000+00:00"}, "predecessors": {"L": []}, "launcher": {"S": "host:1"},
        "run": {"M": {
            "command": {"M": {"Name": {"S": "pythonshell"}, "ScriptLocation": {"S": "/a.py"}}},
            "told": {"M": {
                "Arguments": {"M": {"--a": {"S": "1"}, "--area": {"S": "--b"}}}, "Attempt": {"N": "1"},
                "Timeout": {"N": "5"}, "WorkerType": {"S": "Z.99X"}, "MaxCapacity": {"N": "0.0625"},
                "PreviousRunId": {"S": BEGUN}, "Later": {"M": {}},
            }},
        }},
        "types": {"M": {"told": {"M": {"MaxCapacity": {"S": "float"}}}}},
    }  # fmt: skip

    run = RunRecord.from_item(item)

    assert (run.run_id, run.state, run.attempt, run.lease) == (
        f"{BEGUN}_attempt_1", "RUNNING", 1, timedelta(minutes=1),
    )  # fmt: skip
    assert run.started_on == datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
    shown = run.to_job_run()
    assert (shown["MaxCapacity"], shown["Timeout"], shown["WorkerType"]) == (0.0625, 5, "Z.99X")


def test_job_is_read_when_an_earlier_version_wrote_it() -> None:
    item: dict[str, Any] = {
        "jobName": {"S": "parking"}, "runId": {"S": "!j"}, "fmt": {"N": "1"}, "tok": {"S": "0a"}, "types": {"M": {}},
        "active": {"L": [{"L": [{"S": BEGUN}, {"S": "2026-03-16T15:45:00.000000+00:00"}]}]}, "waiting": {"L": []},
        "triggers": {"L": [{"S": "after"}]},
        "job": {"M": {"definition": {"M": {"Command": {"M": {"ScriptLocation": {"S": "/a.py"}}}, "Later": {"L": []}}}}},
    }  # fmt: skip

    job = JobRecord.from_item(item)

    assert job.active == (Entry(BEGUN, NOW),)
    assert ids.is_run_id(job.active[0].run_id)
    assert job.definition == {"Command": {"ScriptLocation": "/a.py"}, "Later": []}


# --- what a record says about other jobs ---------------------------------------------------------


def test_answer_is_about_the_job_that_was_asked_for_when_its_record_names_another() -> None:
    forged = {"Id": SOUND, "JobName": GOOD, "JobRunState": "SUCCEEDED", "CompletedOn": NOW, "ErrorMessage": "no"}
    run = RunRecord(BAD, BEGUN, "WAITING", NOW, NOW, TOLD | forged, COMMAND)
    found = sound_items("WAITING") | {PLACES["run"]: run.to_item()}
    definition = JobRecord(BAD, DEFINITION | {"Name": GOOD}).to_item()
    jobs = table_of(found | {PLACES["job"]: definition})

    shown = jobs.get_job_run(JobName=BAD, RunId=BEGUN)["JobRun"]

    assert (shown["Id"], shown["JobName"], shown["JobRunState"]) == (BEGUN, BAD, "WAITING")
    assert shown.keys().isdisjoint({"CompletedOn", "ErrorMessage"})
    assert jobs.get_job(JobName=BAD)["Job"]["Name"] == BAD
    assert attribute_at(found[PLACES["job"]], ("tok",))


# --- what a record does to other jobs ------------------------------------------------------------


def test_lost_run_is_found_in_time_when_another_job_has_a_run_of_the_same_id() -> None:
    sound = sound_items("RUNNING")
    good = JobRecord(GOOD, DEFINITION, active=(Entry(BEGUN, NOW),)).to_item()
    run = a_run("RUNNING", BEGUN, GOOD).to_item()
    jobs = table_of(sound | {(GOOD, "!j"): good, (GOOD, items.run_record_key(BEGUN)): run})
    seconds = [0.0]
    jobs.scheduler.timer = lambda: seconds[0]

    for seconds[0] in (0.0, 30.0, 61.0):
        for name in (BAD, GOOD):
            jobs.scheduler.settle(name)

    assert jobs.record(GOOD, BEGUN).state == "ERROR"


def test_runs_are_forgotten_when_they_are_in_no_list_any_more() -> None:
    jobs = table_of(sound_items("RUNNING"))
    jobs.scheduler.settle(BAD)
    jobs.scheduler.records.change_job(BAD, lambda job: job.changed(active=(), waiting=()))

    jobs.scheduler.settle(BAD)

    assert BEGUN not in repr(vars(jobs.scheduler))


def test_folders_of_logs_differ_when_a_job_is_called_as_the_folder_of_another() -> None:
    engine = SparkSubmit("logs")
    folder = engine.folder("a" * 240, BEGUN).parent.name

    assert engine.folder(folder, BEGUN).parent.name != folder
