"""Jobs that are paused, disabled or untracked, jobs without a `with` statement, and jobs in many namespaces."""

from __future__ import annotations

import gc
import logging
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import InvalidIdError, JobArgumentError, PlanConflictError, RunInProgressError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.run import Run
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.jobs.world import ID, JOB, World
from tests.support.clock import Clock
from tests.support.events import DirectoryEvents
from tests.support.faults import Wire
from tests.support.listed_rows import ListedRows
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.reasons import because
from tests.support.steps import KilledError

# --- disable ------------------------------------------------------------------------------------------


def test_everything_is_taken_each_time_and_no_request_is_sent_when_the_job_is_disabled(
    world: World, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    world.grow()
    world.run()
    world.grow()
    world.rows.listed.append((None,))
    wire.clear()

    taken = [world.run(mode="disable") for _ in range(2)]

    assert taken == [([1, 2, None], ["1.json", "2.json"])] * 2
    assert wire.requests == []
    assert "event=bookmark_disabled job=parking" in caplog.text


# --- pause --------------------------------------------------------------------------------------------


def test_same_increment_is_read_and_nothing_is_saved_when_the_job_is_paused(
    world: World, wire: Wire, everything: Callable[[], Any]
) -> None:
    world.grow()
    world.run()
    world.grow()
    before = everything()
    wire.clear()

    taken = [world.run(mode="pause") for _ in range(2)]

    assert taken == [([2], ["2.json"])] * 2
    assert [request.operation for request in wire.requests] == ["GetItem"] * 2
    assert everything() == before
    assert world.run() == ([2], ["2.json"])


def test_paused_run_takes_everything_and_warns_when_nothing_was_ever_committed(
    world: World, wire: Wire, everything: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    world.grow()

    taken = world.run(mode="pause")

    assert taken == ([1], ["1.json"])
    assert [request.operation for request in wire.requests] == ["GetItem", "Query"]
    assert everything() == {}
    assert "event=first_run job=parking" in caplog.text


def test_paused_run_neither_waits_nor_disturbs_when_another_run_has_the_job(
    world: World, everything: Callable[[], Any]
) -> None:
    world.grow()
    world.run()
    world.grow()

    with IncrementalJob(world.watermarks, JOB, "jr_live") as live:
        held = everything()
        paused = world.run("jr_paused", mode="pause")
        assert everything() == held
        taken = world.take(live)

    assert (paused, taken) == (([2], ["2.json"]),) * 2
    last = world.watermarks.latest(JOB).last
    assert last is not None
    assert last.run_id == "jr_live"


def test_open_plan_stays_and_is_not_replayed_when_a_paused_run_comes_between(
    world: World, everything: Callable[[], Any]
) -> None:
    world.grow()
    with pytest.raises(KilledError):
        world.run(die=True)
    world.grow()
    before = everything()

    paused = world.run(mode="pause")

    assert paused == ([1, 2], ["1.json", "2.json"])
    assert everything() == before
    assert world.run() == ([1], ["1.json"])


def test_ledger_in_files_stays_as_it_was_when_the_job_is_paused(world: World, tmp_path: Path) -> None:
    def run(**options: Any) -> int:
        with IncrementalJob(world.watermarks, JOB, **options) as job:
            return job.new_files(str(world.landing), ledger_uri=str(tmp_path / "ledger")).count

    world.grow()
    run()
    world.grow()
    before = sorted(path.name for path in (tmp_path / "ledger").iterdir())

    counts = run(mode="pause"), run(mode="disable")

    assert counts == (1, 2)
    assert sorted(path.name for path in (tmp_path / "ledger").iterdir()) == before


@pytest.mark.parametrize("end", ["commit", "abort", "error"])
def test_events_are_returned_to_the_queue_when_a_paused_run_ends(world: World, end: str) -> None:
    world.grow()
    events = DirectoryEvents()
    job = IncrementalJob(world.watermarks, JOB, mode="pause")

    with suppress(KilledError), job:
        count = job.new_files(str(world.landing), events=events).count
        before = list(events.extended)
        if end == "error":
            raise KilledError
        getattr(job, end)()

    assert (count, before, events.extended, events.acknowledged) == (1, [], [0], 0)


def test_events_stay_with_the_run_until_they_are_acknowledged_when_the_job_saves(world: World) -> None:
    world.grow()
    events = DirectoryEvents()

    with IncrementalJob(world.watermarks, JOB) as job:
        job.new_files(str(world.landing), events=events)

    assert (events.acknowledged, events.extended) == (1, [])


@pytest.mark.parametrize("mode", ["pause", "disable"])
def test_run_id_is_refused_when_the_job_does_not_save(world: World, mode: Any) -> None:
    with pytest.raises(InvalidIdError, match="Run id '~latest'"):
        world.run("~latest", mode=mode)


@pytest.mark.parametrize("mode", ["pause", "disable"])
def test_write_replaces_its_own_batch_and_no_other_when_run_again_under_the_same_id(
    world: World, tmp_path: Path, mode: Any
) -> None:
    def write(run_id: str, **options: Any) -> None:
        with IncrementalJob(world.watermarks, JOB, run_id, **options) as job:
            frame = pd.DataFrame({"id": range(rows)})
            job.write(job.rows_since(frame, "id"), str(tmp_path / "raw"), batch_folders=True)

    rows = 3
    write("jr_1")
    rows = 5
    for run_id in ("a b/c", "a b/c", "jr_9"):
        write(run_id, mode=mode)

    folders = sorted(path.name for path in (tmp_path / "raw").glob("*=*"))
    epoch = world.watermarks.latest(JOB).epoch
    digests = [name.rpartition("-0000000001")[0].rpartition("-")[2] for name in folders if mode in name]
    assert re.fullmatch("[0-9a-f]{12}", digests[0])
    assert folders == sorted(
        [
            f"batch_id={epoch}-0000000001",
            f"batch_id={mode}-a%20b%2Fc-{digests[0]}-0000000001",
            f"batch_id={mode}-jr_9-{digests[0]}-0000000001",
        ]
    )
    seen = {"pause": 3 + 2 + 2, "disable": 3 + 5 + 5}[mode]
    assert len(pd.read_parquet(tmp_path / "raw")) == seen


@pytest.mark.parametrize("mode", ["pause", "disable"])
def test_rows_of_each_namespace_stay_when_one_run_id_writes_them_all_to_one_target(
    world: World, tmp_path: Path, mode: Any
) -> None:
    for _ in range(2):
        for number, namespace in enumerate(["north", "south"]):
            with IncrementalJob(world.watermarks, JOB, "jr_1", mode=mode, namespace=namespace) as job:
                job.write(job.rows_since(pd.DataFrame({"id": [number]}), "id"), str(tmp_path / "raw"))

    assert sorted(pd.read_parquet(tmp_path / "raw")["id"]) == [0, 1]


def test_rows_of_each_range_stay_when_one_run_id_writes_both_to_one_target(world: World, tmp_path: Path) -> None:
    rows = pd.DataFrame({"id": [1, 2, 3]})
    for number in (1, 2, 3):
        with IncrementalJob(world.watermarks, JOB, f"jr_{number}") as job:
            job.rows_since(rows.head(number), "id")

    for first, last in (("jr_1", "jr_2"), ("jr_2", "jr_3")):
        with IncrementalJob(world.watermarks, JOB, "jr_9", mode="pause", from_run=first, to_run=last) as job:
            job.write(job.rows_since(rows, "id"), str(tmp_path / "raw"))

    assert sorted(pd.read_parquet(tmp_path / "raw")["id"]) == [2, 3]


@pytest.mark.parametrize(
    ("options", "context"), [({"mode": "disable"}, "files"), ({}, None)], ids=["disabled", "untracked"]
)
def test_warning_is_logged_when_max_files_limits_a_run_that_saves_nothing(
    world: World, caplog: pytest.LogCaptureFixture, options: Any, context: str | None
) -> None:
    for _ in range(3):
        world.grow()

    with IncrementalJob(world.watermarks, JOB, **options) as job:
        count = job.new_files(str(world.landing), transformation_ctx=context, max_files=1).count

    assert count == 1
    assert f"event=limited job=parking source={world.landing}/ files=1" in caplog.text.replace("file://", "")


# --- without transformation_ctx -----------------------------------------------------------------------


@pytest.mark.parametrize("context", [None, ""], ids=["None", "empty"])
def test_source_is_read_whole_and_not_tracked_when_it_has_no_context(world: World, context: str | None) -> None:
    taken = []
    for _ in range(2):
        world.grow()
        with IncrementalJob(world.watermarks, JOB) as job:
            rows = job.rows_since(world.rows, "id", transformation_ctx=context)
            more = job.rows_since(world.rows, "id", transformation_ctx=context)
            files = job.new_files(str(world.landing), transformation_ctx=context)
            tracked = job.rows_since(world.rows, "id", transformation_ctx="rows")
            taken.append((len(rows), len(more), files.count, len(tracked)))

    assert taken == [(1, 1, 1, 1), (2, 2, 2, 1)]
    assert set(world.watermarks.latest(JOB).watermarks) == {"rows"}


def test_batch_is_written_and_committed_when_no_source_is_tracked(world: World, tmp_path: Path) -> None:
    for _ in range(2):
        with IncrementalJob(world.watermarks, JOB) as job:
            rows = job.rows_since(pd.DataFrame({"id": range(3)}), "id", transformation_ctx=None)
            job.write(rows, str(tmp_path / "raw"))

    batches = {path.name[-len("0000000001.parquet") :] for path in (tmp_path / "raw").glob("part-*")}
    assert len(batches) == 2
    assert (world.watermarks.latest(JOB).version, world.watermarks.latest(JOB).watermarks) == (2, {})


def test_names_of_contexts_are_the_defaults_when_none_is_given(world: World) -> None:
    world.grow()

    with IncrementalJob(world.watermarks, JOB) as job:
        job.rows_since(world.rows, "id")
        job.new_files(str(world.landing))

    assert set(world.watermarks.latest(JOB).watermarks) == {"rows", "files"}


# --- arguments and init -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "taken", "version"),
    [
        ({}, ([2], ["2.json"]), 2),
        ({"job_bookmark_option": "job-bookmark-enable"}, ([2], ["2.json"]), 2),
        ({"job_bookmark_option": "job-bookmark-pause"}, ([2], ["2.json"]), 1),
        ({"job_bookmark_option": "job-bookmark-disable"}, ([1, 2], ["1.json", "2.json"]), 1),
    ],
    ids=["no key", "enable", "pause", "disable"],
)
@pytest.mark.parametrize("way", ["from_args", "init"])
def test_mode_is_that_of_the_job_arguments_when_the_run_begins(
    world: World, args: dict[str, Any], taken: Any, version: int, way: str
) -> None:
    world.grow()
    world.run()
    world.grow()
    args = {"JOB_NAME": JOB, "JOB_RUN_ID": "jr_2"} | args

    if way == "init":
        job = IncrementalJob(world.watermarks).init(JOB, args)
        found = world.take(job)
        job.commit()
    else:
        with IncrementalJob.from_args(args, world.watermarks) as job:
            found = world.take(job)

    assert found == taken
    assert (world.watermarks.latest(JOB).version, job.run_id) == (version, "jr_2")


def test_init_is_refused_in_glues_words_when_the_arguments_do_not_go_together(
    world: World, everything: Callable[[], Any]
) -> None:
    args = {"job_bookmark_from": "jr_1", "job_bookmark_to": "jr_2"}

    with pytest.raises(JobArgumentError, match=r"Invalid option\(s\)--job-bookmark-from --job-bookmark-to"):
        IncrementalJob(world.watermarks).init(JOB, args)

    assert everything() == {}


def test_mode_and_namespace_are_those_of_the_constructor_when_the_arguments_say_nothing(world: World) -> None:
    job = IncrementalJob(world.watermarks, mode="pause", namespace="north").init(JOB, {"JOB_RUN_ID": "jr_1"})

    outcome = job.commit()

    assert (job.job_id, job.mode.name, outcome) == ("parking@@north", "pause", "unsaved")


def test_mode_stays_that_of_the_constructor_when_the_arguments_name_one_end_only(
    world: World, everything: Callable[[], Any]
) -> None:
    job = IncrementalJob(world.watermarks, mode="disable").init(JOB, {"job_bookmark_from": "jr_1"})

    outcome = job.commit()

    assert (job.mode.name, outcome, everything()) == ("disable", "unsaved", {})


def test_all_contexts_are_committed_at_once_when_a_script_calls_init_and_commit(world: World) -> None:
    world.grow()

    job = IncrementalJob(world.watermarks).init(JOB)
    world.take(job)
    outcome = job.commit()

    head = world.watermarks.latest(JOB)
    assert (outcome, head.version, set(head.watermarks), head.claim) == ("done", 1, {"rows", "files"}, None)


def test_run_is_committed_when_a_script_tracked_nothing(world: World) -> None:
    job = IncrementalJob(world.watermarks).init(JOB, {"JOB_RUN_ID": "jr_1"})

    job.commit()

    assert world.watermarks.get_most_recent_run_id(JOB) == "jr_1"


def test_lease_is_renewed_from_init_to_commit_when_a_script_takes_its_time(world: World, clock: Clock) -> None:
    job = IncrementalJob(world.watermarks, lease=timedelta(seconds=3)).init(JOB)

    def lease_until() -> datetime:
        claim = world.watermarks.latest(JOB).claim
        assert claim is not None
        return claim.lease_until

    first = lease_until()
    clock.move(minutes=1)

    latest, patience = first, time.monotonic() + PATIENCE
    while latest == first and time.monotonic() < patience:
        time.sleep(0.05)
        latest = lease_until()
    outcome = job.commit()

    assert latest - first == timedelta(minutes=1)
    assert isinstance(job.run, Run)
    assert (outcome, world.watermarks.latest(JOB).claim, job.run.heartbeat()) == ("done", None, False)


def test_init_is_refused_when_the_run_has_begun(world: World) -> None:
    job = IncrementalJob(world.watermarks).init(JOB)

    with pytest.raises(PlanConflictError) as caught:
        job.init(JOB)

    assert str(caught.value) == "Job 'parking': the run has begun already. Make a new job for another run."
    job.abort()


def test_second_run_is_refused_before_it_reads_when_another_has_the_job(world: World) -> None:
    world.grow()

    with IncrementalJob(world.watermarks, JOB, "jr_1"), pytest.raises(RunInProgressError):
        IncrementalJob(world.watermarks).init(JOB, {"JOB_RUN_ID": "jr_2"}).rows_since(world.rows, "id")

    assert world.rows.asked == []


# --- after the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["abort", "error in the block"])
def test_commit_is_refused_when_the_run_was_aborted(world: World, everything: Callable[[], Any], way: str) -> None:
    world.grow()
    job = IncrementalJob(world.watermarks, JOB, "jr_1")
    with suppress(KilledError), job:
        world.take(job)
        if way == "abort":
            job.abort()
        else:
            raise KilledError
    before = everything()

    with pytest.raises(PlanConflictError, check=because("run_closed")) as caught:
        job.commit()

    assert str(caught.value).startswith("Job 'parking': run 'jr_1' is aborted already, so it cannot commit.")
    assert everything() == before
    assert world.watermarks.latest(JOB).version == 0


@pytest.mark.parametrize(("mode", "outcome"), [("enable", "done"), ("pause", "unsaved"), ("disable", "unsaved")])
def test_commit_returns_the_same_and_changes_nothing_when_called_again(
    world: World, everything: Callable[[], Any], mode: Any, outcome: str
) -> None:
    world.grow()
    with IncrementalJob(world.watermarks, JOB, mode=mode) as job:
        world.take(job)
        outcomes = [job.commit()]
        before = everything()
        outcomes.append(job.commit())

    assert [*outcomes, job.commit()] == [outcome] * 3
    assert everything() == before


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("mode", ["enable", "pause", "disable"])
@pytest.mark.parametrize("verb", ["rows", "files", "whole rows", "whole files", "write"])
def test_source_or_write_is_refused_when_the_run_has_ended(
    world: World, everything: Callable[[], Any], tmp_path: Path, end: str, mode: Any, verb: str
) -> None:
    world.grow()
    job = IncrementalJob(world.watermarks, mode=mode).init(JOB, {"JOB_RUN_ID": "jr_1"})
    world.take(job)
    job.freeze()
    getattr(job, end)()
    before = everything()
    acts: dict[str, Callable[[], Any]] = {
        "rows": lambda: job.rows_since(world.rows, "id", transformation_ctx="late"),
        "files": lambda: job.new_files(str(world.landing), transformation_ctx="late"),
        "whole rows": lambda: job.rows_since(world.rows, "id", transformation_ctx=None),
        "whole files": lambda: job.new_files(str(world.landing), transformation_ctx=None),
        "write": lambda: job.write(pd.DataFrame({"id": [1]}), str(tmp_path / "raw")),
    }

    with pytest.raises(PlanConflictError, check=because("run_closed")) as caught:
        acts[verb]()

    how = {"commit": "committed", "abort": "aborted"}[end]
    named = "write" if verb == "write" else "read"
    assert str(caught.value).startswith(f"Job 'parking': run 'jr_1' is {how} already, so it cannot {named}.")
    assert everything() == before
    assert not (tmp_path / "raw").exists()


FORKING = """
import os, sys
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

job = IncrementalJob(Watermarks(sys.argv[1]), "parking", "jr_1")
def fork():
    child = os.fork()
    if child == 0:
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if sys.argv[3] == "init":
    job.init("parking", {"JOB_RUN_ID": "jr_1"}).new_files(sys.argv[2])
    code = fork()
    print(code, job.commit())
else:
    with job:
        job.new_files(sys.argv[2])
        code = fork()
        print(code, job.commit())
"""


@pytest.mark.parametrize("way", ["init", "with"])
def test_run_is_committed_when_a_forked_child_exits_meanwhile(world: World, way: str) -> None:
    world.grow()
    command = [sys.executable, "-c", FORKING, world.watermarks.table_name, str(world.landing), way]

    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert (done.returncode, done.stdout.split()) == (0, ["3", "done"]), done.stderr
    assert world.watermarks.latest(JOB).version == 1


FORGETFUL = """
import logging, sys
import boto3
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s")
watermarks = Watermarks(sys.argv[1])
job = IncrementalJob(watermarks).init("parking", {"JOB_RUN_ID": "jr_1"})
job.new_files(sys.argv[2]).count
job.freeze()
END
"""


@pytest.mark.parametrize(
    "end",
    ["", "raise SystemExit(3)", "del job\nimport gc\ngc.collect()\nprint('still here', file=sys.stderr)"],
    ids=["end of the script", "exit", "garbage collection"],
)
def test_error_is_logged_and_the_lease_released_when_a_script_forgets_to_commit(world: World, end: str) -> None:
    world.grow()
    command = [sys.executable, "-c", FORGETFUL.replace("END", end), world.watermarks.table_name]

    done = subprocess.run(
        [*command, str(world.landing)], cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    (line,) = (line for line in done.stderr.splitlines() if "event=commit_forgotten" in line)
    assert line.startswith("ERROR event=commit_forgotten job=parking run=jr_1: the run ended without commit")
    assert done.stderr.index(line) < done.stderr.find("still here") or "still here" not in done.stderr
    head = world.watermarks.latest(JOB)
    assert (head.version, head.claim, head.plan is not None) == (0, None, True)


@pytest.mark.parametrize(("mode", "commits"), [("enable", True), ("pause", False), ("disable", False)])
def test_no_error_is_logged_when_a_script_commits_or_has_nothing_to_save(
    world: World, caplog: pytest.LogCaptureFixture, mode: Any, commits: bool
) -> None:
    job = IncrementalJob(world.watermarks, mode=mode).init(JOB)
    if commits:
        job.commit()
    gone = weakref.ref(job)

    del job
    gc.collect()

    assert gone() is None
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- namespaces ---------------------------------------------------------------------------------------


def test_runs_share_nothing_when_one_job_runs_in_many_namespaces_at_once(
    make_watermarks: Callable[..., Watermarks], tmp_path: Path
) -> None:
    watermarks = make_watermarks(clock=lambda: datetime.now(timezone.utc))
    names = [f"region {number}" for number in range(8)]
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        for file in range(number + 1):
            (tmp_path / name / f"{file}.json").touch()

    def run(name: str) -> list[int]:
        counts = []
        for _ in range(2):
            with IncrementalJob.from_args({"JOB_NAME": JOB, "BOOKMARK_CONTEXT": name}, watermarks) as job:
                counts.append(job.new_files(str(tmp_path / name)).count)
        return counts

    with ThreadPoolExecutor(len(names)) as pool:
        taken = list(pool.map(run, names))

    assert taken == [[number + 1, 0] for number in range(8)]
    assert [watermarks.latest(f"{JOB}@@{name}").version for name in names] == [2] * 8


def test_same_namespace_is_refused_when_a_run_in_it_is_at_work(world: World) -> None:
    with (
        IncrementalJob(world.watermarks, JOB, "jr_1", namespace="north"),
        IncrementalJob(world.watermarks, JOB, "jr_2", namespace="south"),
        pytest.raises(RunInProgressError, match=r"'jr_1'.*'parking@@north'"),
        IncrementalJob(world.watermarks, JOB, "jr_3", namespace="north"),
    ):
        pass


# --- what Glue lacks ----------------------------------------------------------------------------------


def test_one_context_is_read_again_when_it_alone_is_rewound_or_reset(world: World) -> None:
    world.grow()
    world.run()
    world.grow()
    world.run()

    world.watermarks.rewind(JOB, to_version=1, transformation_ctx="rows", why="a column was missing")
    rewound = world.run()
    world.watermarks.reset(JOB, transformation_ctx="files", why="the target was lost")
    reset = world.run()

    assert rewound == ([2], [])
    assert reset == ([], ["1.json", "2.json"])


def test_what_was_processed_is_declared_when_a_watermark_is_set_without_running(world: World) -> None:
    for _ in range(3):
        world.grow()
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 3}

    world.watermarks.set_watermark(JOB, state, transformation_ctx="rows", why="loaded by hand up to 2")

    assert world.run()[0] == [3]


def test_update_comes_again_when_it_moves_the_cursor_of_a_known_key(world: World) -> None:
    at = CursorColumn("at", "timestamp")
    noon = datetime(2026, 3, 16, 12, tzinfo=timezone.utc)
    source = ListedRows((at, ID), [(noon, 1), (noon, 2)], noon + timedelta(hours=1))
    taken = []

    for _ in range(2):
        with IncrementalJob(world.watermarks, JOB) as job:
            taken.append(job.rows_since(source, ["at", "id"]))
        source.listed[0] = (noon + timedelta(minutes=30), 1)

    assert taken == [[(noon, 1), (noon, 2)], [(noon + timedelta(minutes=30), 1)]]
