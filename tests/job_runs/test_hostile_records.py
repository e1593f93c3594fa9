"""What anybody may write under the name of one job costs that job its runs, and no other job one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import CorruptItemError
from scripts.helpers.glue_api.errors import GlueApiError
from scripts.helpers.job_runs import EmrServerless, SparkSubmit, cgroup, ids, launcher
from scripts.helpers.job_runs.job_record import Entry, JobRecord, TriggerRecord
from scripts.helpers.job_runs.run_record import LEGAL, TERMINAL, RunRecord
from scripts.helpers.job_runs.shapes import MAX_TRIGGERS
from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.dynamodb import FakeDynamoDB
from tests.support.job_runs import Jobs
from tests.support.long import cases
from tests.support.spoiled_table import SPOILED, Path, attribute_at, paths_in, spoiled, spoilt_by

BAD, GOOD, THIRD, TRIGGER = "a-bad", "b-good", "c-third", "a-trigger"
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
    "trigger": (TRIGGER, items.TRIGGER_KEY),
}
"""The items that are altered, each by its key."""


class Submit(SparkSubmit):
    """The engine that checks each run, without the process that it would start."""

    launched: ClassVar[list[str]] = []

    def launch(self, run: RunRecord, shared: Any) -> None:
        self.check(run)
        self.launched.append(f"{run.job_name} {run.run_id}")


class Cluster:
    """EMR Serverless: every run is at work there, under the name that it was started by."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def start_job_run(self, **request: Any) -> dict[str, Any]:
        self.names[str(len(self.names))] = request["name"]
        return {"jobRunId": str(len(self.names) - 1)}

    def get_job_run(self, **request: Any) -> dict[str, Any]:
        return {"jobRun": {"name": self.names.get(request["jobRunId"]), "state": "RUNNING"}}

    def cancel_job_run(self, **_: Any) -> None:
        pass


ENGINES: dict[str, Callable[[], Any]] = {
    "spark-submit": lambda: Submit("logs", scripts=["s3://scripts/"]),
    "emr": lambda: EmrServerless(Cluster(), "00abc", "arn", scripts=["s3://scripts/"]),
}


def a_run(state: str, run_id: str = BEGUN, job: str = BAD) -> RunRecord:
    begun = state not in ("WAITING", "EXPIRED")
    return RunRecord(
        job, run_id, state, NOW, NOW, TOLD, COMMAND, max_retries=1, predecessors=((GOOD, SOUND),),
        running_since=NOW if begun else None, completed_on=NOW if state in TERMINAL else None, error="e", detail="d",
        lease=timedelta(minutes=1) if begun and state not in TERMINAL else None, launcher="host:1" if begun else None,
    )  # fmt: skip


@cache
def sound_items(state: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the items of three jobs and a trigger: the first job has a run in a state, and it triggers the others."""
    condition = [{"LogicalOperator": "EQUALS", "JobName": BAD, "State": state} for state in ("SUCCEEDED", "FAILED")]
    actions = [
        {"JobName": job, "Arguments": {"--c": "3"}, "Timeout": 9, "WorkerType": "G.1X"} for job in (THIRD, BAD, GOOD)
    ]
    trigger = {"Type": "CONDITIONAL", "Predicate": {"Logical": "ANY", "Conditions": condition}, "Actions": actions}
    bad = JobRecord(
        BAD, DEFINITION, (Entry(BEGUN, NOW),), (Entry(WAITS, NOW),), triggers=(TRIGGER,), accepts=(TRIGGER,)
    )
    good = JobRecord(GOOD, DEFINITION, waiting=(Entry(SOUND, NOW),), accepts=(TRIGGER,))
    made: list[Any] = [
        bad, good, JobRecord(THIRD, DEFINITION, accepts=(TRIGGER,)), TriggerRecord(TRIGGER, trigger, "ACTIVATED"),
        a_run(state), a_run("WAITING", WAITS), a_run("WAITING", SOUND, GOOD),
    ]  # fmt: skip
    found = {}
    for record in made:
        item = record.to_item()
        found[item["jobName"]["S"], item["runId"]["S"]] = item
    return found


def table_of(found: dict[tuple[str, str], dict[str, Any]], engine: str) -> Jobs:
    """Return jobs on a table that has these items, on an engine."""
    double: Any = FakeDynamoDB()
    double.meta.endpoint_url = "http://127.0.0.1"
    for item in found.values():
        double.put_item(TableName="table", Item=item)
    Submit.launched.clear()
    return Jobs(Watermarks("table", double), ENGINES[engine](), clock=Clock())


def check_that_the_sound_run_starts(found: dict[tuple[str, str], dict[str, Any]], engine: str) -> None:
    """Be a worker for both jobs: the sound one has its run started, whatever was altered of the other."""
    jobs = table_of(found, engine)

    with contextlib.suppress(GlueApiError):
        jobs.tend([BAD, GOOD])

    started = jobs.record(GOOD, SOUND)
    assert started.state == ("STARTING" if engine == "spark-submit" else "RUNNING")
    assert engine == "emr" or f"{GOOD} {SOUND}" in Submit.launched
    for later in (timedelta(hours=1), timedelta(days=3)):  # Leases are over, then the time to wait.
        jobs.scheduler.clock.now += later
        with contextlib.suppress(GlueApiError):
            jobs.tend([BAD, GOOD])
    assert not jobs.scheduler.records.job(GOOD).waiting


CALLS: list[Callable[[Jobs], Any]] = [
    lambda jobs: jobs.get_job(JobName=BAD),
    lambda jobs: jobs.get_job_run(JobName=BAD, RunId=BEGUN, PredecessorsIncluded=True),
    lambda jobs: jobs.get_job_runs(JobName=BAD),
    lambda jobs: jobs.wait(BAD, BEGUN, seconds=0),
    lambda jobs: jobs.get_trigger(Name=TRIGGER),
    lambda jobs: jobs.start_trigger(Name=TRIGGER),
    lambda jobs: jobs.stop_trigger(Name=TRIGGER),
    lambda jobs: jobs.start_job_run(JobName=BAD),
    lambda jobs: jobs.start_job_run(JobName=BAD, JobRunId=BEGUN),
    lambda jobs: jobs.batch_stop_job_run(JobName=BAD, JobRunIds=[BEGUN, WAITS]),
    lambda jobs: jobs.update_job(JobName=BAD, JobUpdate={"Command": COMMAND}),
    lambda jobs: jobs.refuse_trigger(BAD, TRIGGER),
    lambda jobs: jobs.delete_trigger(Name=TRIGGER),
    lambda jobs: jobs.delete_job(JobName=BAD),
]


def check_that_calls_end(found: dict[tuple[str, str], dict[str, Any]], engine: str) -> None:
    """Make every call that there is about the job: it is answered, or ends with one of Glue's errors."""
    jobs = table_of(found, engine)
    for call in CALLS:
        with contextlib.suppress(GlueApiError):
            call(jobs)


# --- one attribute -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("state", "engine"), [("SUCCEEDED", "spark-submit"), ("RUNNING", "emr")])
def test_run_of_another_job_starts_when_any_attribute_of_a_record_is_altered(
    place: str, state: str, engine: str
) -> None:
    sound = sound_items(state)
    item = sound[PLACES[place]]
    others = {name: {"S": "x"} for name in ALL_NAMES - item.keys()}
    altered = [
        spoiled(item, path, SPOILED[name]) for path in paths_in(item) for name in spoilt_by(attribute_at(item, path))
    ]
    altered += [item | {name: attribute} for name, attribute in others.items()]

    for one in altered:
        check_that_the_sound_run_starts(sound | {PLACES[place]: one}, engine)

    assert len(altered) > 50


# --- any attributes, also two at once ------------------------------------------------------------

ALL_NAMES = {name for item in sound_items("SUCCEEDED").values() for name in item} - {items.HASH_KEY, items.RANGE_KEY}
TEXTS = (
    st.text(max_size=12) | st.sampled_from([*LEGAL, "CREATED", "ACTIVATED", BAD, GOOD, TRIGGER, BEGUN, WAITS, SOUND])
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
    """Return an item with an attribute in one of its places, or in one where it had none."""
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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("check", [check_that_the_sound_run_starts, check_that_calls_end], ids=["worker", "calls"])
@given(state=st.sampled_from(sorted(LEGAL)), changes=CHANGES)
@example(state="SUCCEEDED", changes=[("run", NUMBER_OF_COMPLETED_ON, None)])
@example(state="FAILED", changes=[("run", NUMBER_OF_COMPLETED_ON, None)])
@example(
    state="RUNNING",
    changes=[("run", number_of("RUNNING", "launcher"), None), ("run", number_of("RUNNING", *SCRIPT), {"S": "/a\0.py"})],
)
@example(state="WAITING", changes=[("waiting run", number_of("WAITING", *SCRIPT), {"S": "/a\0.py"})])
@settings(max_examples=cases(15, long=200), deadline=None)
def test_every_call_ends_as_documented_when_any_two_attributes_are_altered(
    check: Callable[..., None], engine: str, state: str, changes: list[tuple[str, int, Any]]
) -> None:
    found = dict(sound_items(state))
    for place, number, attribute in changes:
        found[PLACES[place]] = altered_at(found[PLACES[place]], number, attribute)

    check(found, engine)


# --- what the error says -------------------------------------------------------------------------

OF_RUN, OF_JOB = ("run", "M", "told", "M"), ("job", "M", "definition", "M")
OF_ACTION = ("trigger", "M", "definition", "M", "Actions", "L", 0)


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
        ("run", ("predecessors",), {"L": [{"S": "a"}]}, "'predecessors[0]' must be of type list, not str"),
        ("run", ("run", "M", "told"), None, "'run.told' is missing"),
        ("run", (*OF_RUN, "Arguments"), {"M": {"a": {"N": "1"}}}, "'run.told.Arguments['a']' must be of type string"),
        ("waiting run", (*OF_RUN, "Timeout"), None, "'run.told' must have Arguments and Timeout"),
        ("run", (*OF_RUN, "Attempt"), {"N": "-1"}, "Value -1 at 'run.told.Attempt' failed to satisfy constraint"),
        ("run", ("run", "M", "command", "M", "Name"), {"L": []}, "'run.command['Name']' must be of type string"),
        ("run", ("types",), {"M": {"told": {"M": {"Timeout": {"S": "date"}}}}}, "'run' must be what can be"),
        ("run", ("run",), {"M": {"told": {"S": "x" * 90_000}}}, "'run' must be what can be stored in 81,920 bytes"),
        ("job", ("active", "L", 0), {"S": "a"}, "'active[0]' must be of type list, not str"),
        ("job", ("active", "L", 0, "L", 1), {"S": "now"}, "active is not a time with its zone"),
        ("job", ("waiting",), {"L": [{"L": [{"S": "a" * 256}, {"S": "b"}]}]}, "Value at 'waiting[0][0]' failed"),
        ("job", ("accepts",), {"L": [{"S": "a\nb"}]}, "Value at 'accepts[0]' failed to satisfy constraint"),
        ("job", ("triggers",), {"L": [{"S": "a"}] * 251}, "Value at 'triggers' failed to satisfy constraint"),
        ("job", ("accepts",), {"L": [{"S": "a"}] * 251}, "Value at 'accepts' failed to satisfy constraint"),
        ("job", (*OF_JOB, "MaxRetries"), {"N": "0.5"}, "'job.definition.MaxRetries' must be of type integer"),
        ("job", (*OF_JOB, "Command"), {"S": "a"}, "'job.definition.Command' must be of type structure, not str"),
        ("job", ("unknown",), {"S": "x" * 391_000}, "it is larger than 390,000 bytes"),
        ("trigger", ("state",), {"S": "ON"}, "Value at 'state' failed to satisfy constraint: Member must satisfy enum"),
        ("trigger", OF_ACTION, {"S": "b"}, "'trigger.definition.Actions[0]' must be of type structure, not str"),
        ("trigger", OF_ACTION[:-2], {"L": [{"M": {}}] * 51}, "Value at 'trigger.definition.Actions' failed to satisfy"),
        ("trigger", (*OF_ACTION, "M", "Timeout"), {"S": "5"}, "'trigger.definition.Actions[0].Timeout' must be"),
    ],
)  # fmt: skip
def test_error_names_the_attribute_and_what_was_expected_when_a_record_is_altered(
    place: str, path: Path, attribute: Any, detail: str
) -> None:
    kinds: dict[str, Any] = {"job": JobRecord, "trigger": TriggerRecord}
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

    assert (job.active, job.triggers, job.accepts) == ((Entry(BEGUN, NOW),), ("after",), ())
    assert ids.is_run_id(job.active[0].run_id)
    assert job.definition == {"Command": {"ScriptLocation": "/a.py"}, "Later": []}


# --- what a record says about other jobs ---------------------------------------------------------


def test_answer_is_about_the_job_that_was_asked_for_when_its_record_names_another() -> None:
    forged = {"Id": SOUND, "JobName": GOOD, "JobRunState": "SUCCEEDED", "CompletedOn": NOW, "ErrorMessage": "no"}
    run = RunRecord(BAD, BEGUN, "WAITING", NOW, NOW, TOLD | forged, COMMAND)
    trigger = TriggerRecord(TRIGGER, {"Name": "other", "State": "CREATED", "Actions": []}, "ACTIVATED")
    found = sound_items("WAITING") | {PLACES["run"]: run.to_item()}
    definition = JobRecord(BAD, DEFINITION | {"Name": GOOD}).to_item()
    jobs = table_of(found | {PLACES["job"]: definition}, "spark-submit")

    shown = jobs.get_job_run(JobName=BAD, RunId=BEGUN)["JobRun"]

    assert (shown["Id"], shown["JobName"], shown["JobRunState"]) == (BEGUN, BAD, "WAITING")
    assert shown.keys().isdisjoint({"CompletedOn", "ErrorMessage"})
    assert jobs.get_job(JobName=BAD)["Job"]["Name"] == BAD
    assert (trigger.to_trigger()["Name"], trigger.to_trigger()["State"]) == (TRIGGER, "ACTIVATED")
    assert attribute_at(found[PLACES["job"]], ("tok",))


# --- what a record does to other jobs ------------------------------------------------------------


@pytest.mark.parametrize(
    "spoiled_items",
    [
        {(TRIGGER, "!t"): {"state": {"N": "1"}}},
        {(TRIGGER, "!t"): {"fmt": {"N": "9"}}},
        {(THIRD, "!j"): {"tok": {"N": "1"}}},
        {(THIRD, "!j"): {"fmt": {"N": "9"}}},
    ],
    ids=["trigger", "newer trigger", "started job", "newer started job"],
)
def test_job_goes_on_when_its_trigger_or_the_job_that_it_starts_is_altered(
    spoiled_items: dict[tuple[str, str], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    sound = sound_items("SUCCEEDED")
    jobs = table_of(sound | {key: sound[key] | change for key, change in spoiled_items.items()}, "spark-submit")

    jobs.tend([BAD])

    left = jobs.scheduler.records.job(BAD)
    assert BEGUN not in [entry.run_id for entry in (*left.active, *left.waiting)]
    assert f"{BAD} {WAITS}" in Submit.launched
    assert f"event=trigger_failed trigger={TRIGGER} job={BAD} run={BEGUN}" in caplog.text


def test_other_jobs_are_triggered_when_one_of_those_that_a_trigger_starts_is_altered() -> None:
    sound = sound_items("SUCCEEDED")
    jobs = table_of(sound | {(THIRD, "!j"): sound[THIRD, "!j"] | {"tok": {"N": "1"}}}, "spark-submit")

    jobs.tend([BAD])

    assert len(jobs.get_job_runs(JobName=GOOD)["JobRuns"]) == 2


def test_triggering_job_is_looked_after_when_a_run_of_the_triggered_one_is_altered() -> None:
    sound = sound_items("SUCCEEDED")
    spoiled_run = sound[GOOD, items.run_record_key(SOUND)] | {"state": {"S": "LOST"}}
    jobs = table_of(sound | {(GOOD, items.run_record_key(SOUND)): spoiled_run}, "spark-submit")

    with pytest.raises(GlueApiError, match=f"of job '{GOOD}' is not readable"):
        jobs.tend([BAD, GOOD])

    assert f"{BAD} {WAITS}" in Submit.launched


def test_worker_says_which_runs_it_started_when_another_job_is_altered() -> None:
    sound = sound_items("RUNNING")
    jobs = table_of(sound | {PLACES["job"]: sound[PLACES["job"]] | {"tok": {"N": "1"}}}, "spark-submit")
    said: list[dict[str, str]] = []

    with pytest.raises(GlueApiError):
        jobs.tend([BAD, GOOD], said.append)

    assert said == [{"JobName": GOOD, "JobRunId": SOUND}]


def test_lost_run_is_found_in_time_when_another_job_has_a_run_of_the_same_id() -> None:
    sound = sound_items("RUNNING")
    good = JobRecord(GOOD, DEFINITION, active=(Entry(BEGUN, NOW),)).to_item()
    run = a_run("RUNNING", BEGUN, GOOD).to_item()
    jobs = table_of(sound | {(GOOD, "!j"): good, (GOOD, items.run_record_key(BEGUN)): run}, "spark-submit")
    seconds = [0.0]
    jobs.scheduler.timer = lambda: seconds[0]

    for seconds[0] in (0.0, 30.0, 61.0):
        jobs.tend([BAD, GOOD])

    assert jobs.record(GOOD, BEGUN).state == "ERROR"


def test_worker_forgets_runs_when_they_are_in_no_list_any_more() -> None:
    jobs = table_of(sound_items("RUNNING"), "spark-submit")
    jobs.tend([BAD])
    jobs.scheduler.records.change_job(BAD, lambda job: job.changed(active=(), waiting=()))

    jobs.tend([BAD])

    assert BEGUN not in repr(vars(jobs.scheduler))


class Recording(Cluster):
    """EMR Serverless that remembers what was asked of it, and may be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        self.is_down = False

    def start_job_run(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return super().start_job_run(**request)

    def get_job_run(self, **request: Any) -> dict[str, Any]:
        if self.is_down:
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "GetJobRun")
        return super().get_job_run(**request)

    def cancel_job_run(self, **request: Any) -> None:
        self.cancelled.append(request["jobRunId"])


@pytest.fixture
def cluster() -> Recording:
    return Recording()


def with_many_runs(state: str, count: int, slots: int, **lists: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Return sound items, but the first job has many runs in one state that all hold a slot."""
    found = dict(sound_items("WAITING"))
    names = [f"jr_{number:064x}" for number in range(count)]
    for name in names:
        found[BAD, items.run_record_key(name)] = a_run(state, name).to_item()
    definition = DEFINITION | {"ExecutionProperty": {"MaxConcurrentRuns": slots}}
    bad = JobRecord(BAD, definition, tuple(Entry(name, NOW) for name in names), **lists)
    return found | {PLACES["job"]: bad.to_item()}


def test_no_more_runs_start_than_slots_are_free_when_a_record_lists_more() -> None:
    found = with_many_runs("WAITING", 60, slots=3)
    at_work = f"jr_{59:064x}"
    jobs = table_of(found | {(BAD, items.run_record_key(at_work)): a_run("RUNNING", at_work).to_item()}, "spark-submit")

    for _ in range(3):
        jobs.tend([BAD, GOOD])

    assert Submit.launched == [f"{BAD} jr_{0:064x}", f"{BAD} jr_{1:064x}", f"{GOOD} {SOUND}"]


def test_no_more_runs_start_on_emr_than_there_are_slots_when_a_record_lists_more(cluster: Recording) -> None:
    found = with_many_runs("STARTING", 20, slots=3)
    for name in [f"jr_{number:064x}" for number in range(20)]:
        lost = replace(a_run("STARTING", name), launcher=None, running_since=None)
        found[BAD, items.run_record_key(name)] = lost.to_item()
    jobs = table_of(found, "emr")
    jobs.engine = jobs.scheduler.engine = replace(jobs.engine, client=cluster)
    jobs.scheduler.clock.move(hours=1)

    for _ in range(3):
        jobs.tend([BAD])

    assert sorted(request["name"] for request in cluster.asked) == [
        ids.of_all_jobs(BAD, f"jr_{number:064x}") for number in range(3)
    ]


@pytest.mark.parametrize("are_many", ["triggers", "actions", "the same trigger"])
def test_other_jobs_have_their_turn_soon_when_many_runs_with_many_triggers_ended(
    are_many: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"t-{number}" if are_many != "the same trigger" else TRIGGER for number in range(MAX_TRIGGERS)]
    found = with_many_runs("SUCCEEDED", 300, slots=300, triggers=tuple(names), accepts=tuple(names))
    condition = {"LogicalOperator": "EQUALS", "JobName": BAD, "State": "SUCCEEDED"}
    actions = [{"JobName": THIRD}] * (50 if are_many == "actions" else 1)
    definition = {"Type": "CONDITIONAL", "Predicate": {"Conditions": [condition]}, "Actions": actions}
    for name in names:
        found[name, items.TRIGGER_KEY] = TriggerRecord(name, definition, "ACTIVATED").to_item()
    jobs = table_of(found, "spark-submit")

    jobs.tend([BAD, GOOD])
    asked = len(jobs.scheduler.records.store.client.requests)
    left = len(jobs.scheduler.records.job(BAD).active)
    jobs.tend([BAD, GOOD])

    assert f"{GOOD} {SOUND}" in Submit.launched
    assert asked < 5_000
    assert ("event=triggers_left_out" in caplog.text) == (are_many == "actions")
    assert len(jobs.scheduler.records.job(BAD).active) < left < 300


def test_every_run_is_followed_in_the_end_when_more_ended_than_one_pass_follows() -> None:
    names = tuple(f"t-{number}" for number in range(100))
    jobs = table_of(with_many_runs("SUCCEEDED", 20, slots=20, triggers=names), "spark-submit")

    lefts = []
    while left := len(jobs.scheduler.records.job(BAD).active):
        lefts.append(left)
        jobs.tend([BAD])

    assert lefts == [20, 14, 8, 2]


def test_folders_of_logs_differ_when_a_job_is_called_as_the_folder_of_another() -> None:
    engine = SparkSubmit("logs")
    folder = engine.folder("a" * 240, BEGUN).parent.name

    assert engine.folder(folder, BEGUN).parent.name != folder


def test_cgroups_differ_when_runs_of_two_jobs_have_the_same_id(
    jobs: Jobs, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(cgroup, "make", made.append)
    (tmp_path / "a.py").touch()
    command = {"Name": "pythonshell", "ScriptLocation": str(tmp_path / "a.py")}
    for name in (BAD, GOOD):
        run = replace(a_run("WAITING", BEGUN, name), command=command).to("STARTING", NOW)
        jobs.scheduler.records.write_run(None, run)
        settings = {"shared": jobs.scheduler.settings(), "engine": jobs.engine.to_json(), "job": name, "run": BEGUN}
        carried = launcher.make(settings)
        assert carried is not None
        carried.carry_out()

    assert len(set(made)) == 2
    assert all(BEGUN in name and len(name) <= 255 for name in made)


def on_cluster(cluster: Recording, *runs: RunRecord) -> Jobs:
    """Return jobs on EMR Serverless whose given runs are at work, and those of no other."""
    found = dict(sound_items("RUNNING"))
    for run in runs:
        found[run.job_name, items.run_record_key(run.run_id)] = run.to_item()
        found[run.job_name, "!j"] = JobRecord(run.job_name, DEFINITION, active=(Entry(run.run_id, NOW),)).to_item()
    jobs = table_of(found, "emr")
    jobs.engine = jobs.scheduler.engine = replace(jobs.engine, client=cluster)
    return jobs


def test_runs_are_two_on_emr_when_two_jobs_have_a_run_of_the_same_id(cluster: Recording) -> None:
    waiting = [a_run("WAITING", BEGUN, name) for name in (BAD, GOOD)]

    on_cluster(cluster, *waiting).tend([BAD, GOOD])

    assert len(cluster.asked) == 2
    for member in ("clientToken", "name"):
        assert len({request[member] for request in cluster.asked}) == 2
    assert all(BEGUN in request["name"] and len(request["name"]) <= 256 for request in cluster.asked)


@pytest.mark.parametrize("is_down", [False, True], ids=["when it answers", "when it does not answer"])
def test_run_of_another_job_is_not_cancelled_on_emr_when_a_record_names_it(cluster: Recording, is_down: bool) -> None:
    good = a_run("WAITING", BEGUN, GOOD)
    jobs = on_cluster(cluster, good)
    jobs.tend([GOOD])
    theirs = jobs.record(GOOD, BEGUN).launcher
    bad = replace(a_run("STOPPING", BEGUN, BAD), launcher=theirs, lease=None)
    jobs.scheduler.records.store.put(bad.to_item(), if_new=False)
    cluster.is_down = is_down

    jobs.tend([BAD])

    assert (theirs, cluster.cancelled) == ("emr-serverless:0", [])


def test_planted_run_is_not_started_on_emr_when_somebody_starts_or_stops_another(cluster: Recording) -> None:
    lost = replace(a_run("STARTING", BEGUN, BAD), launcher=None, running_since=None)
    jobs = on_cluster(cluster, lost)
    jobs.scheduler.clock.move(hours=1)

    jobs.batch_stop_job_run(JobName=BAD, JobRunIds=[WAITS])
    own = jobs.start_job_run(JobName=BAD)["JobRunId"]
    before = [request["name"].startswith(own) for request in cluster.asked]
    jobs.tend([BAD])

    assert before == [True]
    assert any(request["name"].startswith(BEGUN) for request in cluster.asked)
