"""The crash matrix: every request of a run fails in every way, and no row is lost or duplicated.

The list of requests is recorded from a clean run, so the matrix grows with the code.
"""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import RunInProgressError, WatermarkError
from scripts.helpers.protocol.run import Run
from tests.protocol.fault_plan import FAULTS, FaultAt
from tests.protocol.model_job import (
    ModelJob,
    Point,
    act_as_zombie,
    check_delivery,
    check_table,
    drain,
)
from tests.support.doubles import Double
from tests.support.dynamodb import Died
from tests.support.long import is_long

pytestmark = [pytest.mark.usefixtures("small_limits", "double"), pytest.mark.both_stores]

JOB = "parking"
COMMITS = (0, 1, 2) if is_long() else (0, 1)
"""Runs before the one that fails. A third run makes the same requests as a second one: see CLEAN_RUNS."""
RETRIES = ("same-run-id", "new-run-id", "after-the-lease", "ordered-take-over")

HEAD, LOG, RUN, CHUNK = "~latest", "!c#", "r", "chunk"
BEGIN_FIRST = ["get ~latest", "query", "put ~latest"]
BEGIN_LATER = ["get ~latest", "put ~latest", "get !c#"]
INLINE = ["put ~latest", "get ~latest", "put ~latest", "put run", "put !c#"]
"""The requests of freeze, check and commit, then the run item and the log entry."""
SPILLED = [
    *["put !p#", "put !p#", "put !s#", "put !s#", "put ~latest"],
    *["get !p#", "get !p#", "get ~latest", "put ~latest", "put run", "put !c#", "delete !p#", "delete !p#"],
]
CLEAN_RUNS = {
    (0, False): BEGIN_FIRST + INLINE,
    (1, False): BEGIN_LATER + INLINE,
    (2, False): BEGIN_LATER + INLINE,
    (0, True): BEGIN_FIRST + SPILLED,
    (1, True): [*BEGIN_LATER, "get !s#", "get !s#", *SPILLED],
    (2, True): [*BEGIN_LATER, "get !s#", "get !s#", *SPILLED],
}


class JobError(Exception):
    """The job itself fails, not the store."""


def broken_job(name: str) -> None:
    if name == "written":
        raise JobError


class FailingJob(ModelJob):
    """A job with some committed runs, and one more run that is going to fail."""

    def __init__(self, commits: int, spilled: bool) -> None:
        super().__init__(JOB, commits=commits, spilled=spilled)
        self.handles: list[Run] = []
        self.error: BaseException | None = None

    def fail(self, k: int, fault: str, point: Point = lambda name: None) -> FaultAt:
        """Run with a fault at request k. Whatever the outcome, the process is gone afterwards."""
        self.client.fault = plan = FaultAt(k, fault)
        self.error = None
        try:
            self.run("r-failing", handles=self.handles, point=point)
        except (WatermarkError, Died, JobError) as error:
            self.error = error
        self.client.fault = None
        return plan

    def head_item(self) -> Any:
        return self.client.items.get((JOB, HEAD))

    def refuses_others(self) -> bool:
        """Return whether another run id cannot begin, because the job is held."""
        try:
            self.process().begin(JOB, "r-other").abort()
        except RunInProgressError:
            return True
        return False

    def retry(self, how: str) -> None:
        held = "ownerTok" in (self.head_item() or {})
        if how == "same-run-id":
            self.run("r-failing")
        elif how == "new-run-id":
            assert self.refuses_others() is held
            self.run("r-new", take_over=held)
        elif how == "after-the-lease":
            assert self.refuses_others() is held
            self.clock.move(hours=1)
            self.run("r-new")
        else:
            self.run("r-new", take_over=True, point=self.zombie)

    def zombie(self, name: str) -> None:
        """Let the process that seemed dead continue between the steps of the new one."""
        for handle in self.handles:
            act_as_zombie(handle, self.head_item)


def labels(client: Double) -> list[str]:
    """Name each request so far by its operation and the kind of item."""
    named = []
    for method, params in client.requests:
        key = (params.get("Item") or params.get("Key") or {}).get("runId", {}).get("S", "")
        kind = key[:3] if key.startswith("!") else key if key.startswith("~") else "run"
        named.append(method.removesuffix("_item") + (f" {kind}" if key else ""))
    return named


def clean_requests(commits: int, spilled: bool) -> list[str]:
    """Return the requests of one whole run in which nothing fails."""
    job = FailingJob(commits, spilled)
    job.run("r-failing")
    return labels(job.client)


def aborted_requests(commits: int, spilled: bool) -> list[str]:
    """Return the requests of one run whose job fails after its write to the sink."""
    job = FailingJob(commits, spilled)
    job.fail(10_000, "die-before", broken_job)
    return labels(job.client)


def is_mended(label: str, fault: str) -> bool:
    """Return whether the run must survive the fault: it resolves its head write, and a duplicate changes nothing."""
    if fault == "re-send-after":
        return True
    return label == "put ~latest" and fault in ("error-before", "error-after", "re-send-before")


class Matrix:
    """Failures of a run after some commits, and the result of each kind of retry from every state that they leave."""

    def __init__(self, commits: int, spilled: bool, point: Point = lambda name: None) -> None:
        self.job, self.point = FailingJob(commits, spilled), point
        self.start = self.job.kept()
        self.seen: set[str] = set()
        self.failures: list[str] = []

    def check(self, k: int, label: str, fault: str) -> None:
        """Fail at request k; then retry in each way, drain, and compare the sink with the source."""
        job = self.job
        job.restore(self.start)
        job.handles.clear()
        struck = job.fail(k, fault, self.point).struck
        mended = is_mended(labels(job.client)[k], fault) if struck else False
        job.source.grow(2)
        left, state = job.kept(), job.state()
        try:
            assert struck, "the request was never made"
            assert not mended or job.error is None or type(job.error) is JobError, f"the run itself saw {job.error!r}"
        except AssertionError as error:
            self.failures.append(f"request {k} ({label}), {fault}: {error}")
        # All that a failed run leaves besides the table is its handles, and they act during only one kind of retry.
        for retry in RETRIES if state not in self.seen else RETRIES[-1:]:
            try:
                job.restore(left)
                job.retry(retry)
                drain(job.process(), JOB, job.source, job.sink, spilled=job.spilled)
                check_delivery(job.watermarks, JOB, job.source, job.sink)
                check_table(job.watermarks, JOB)
            except Exception as error:
                self.failures.append(f"request {k} ({label}), {fault}, retry {retry}: {type(error).__name__} {error}")
        self.seen.add(state)


def sized(spilled: bool) -> str:
    return "spilled" if spilled else "inline"


@pytest.mark.parametrize("commits", COMMITS, ids="after-{}-commits".format)
@pytest.mark.parametrize("spilled", [False, True], ids=sized)
def test_every_row_arrives_once_when_any_request_of_a_run_fails(commits: int, spilled: bool) -> None:
    matrix = Matrix(commits, spilled)

    for k, label in enumerate(clean_requests(commits, spilled)):
        for fault in FAULTS:
            matrix.check(k, label, fault)

    assert matrix.failures == []


@pytest.mark.parametrize("commits", COMMITS, ids="after-{}-commits".format)
@pytest.mark.parametrize("spilled", [False, True], ids=sized)
def test_every_row_arrives_once_when_the_abort_of_a_run_fails(commits: int, spilled: bool) -> None:
    requests, matrix = aborted_requests(commits, spilled), Matrix(commits, spilled, broken_job)

    for fault in FAULTS:
        matrix.check(len(requests) - 1, "abort", fault)

    assert requests[-2:] == ["get ~latest", "put ~latest"]
    assert matrix.failures == []


@pytest.mark.parametrize(("commits", "spilled"), CLEAN_RUNS)
def test_matrix_has_every_request_when_a_run_is_clean(commits: int, spilled: bool) -> None:
    requests = clean_requests(commits, spilled)

    assert requests == CLEAN_RUNS[commits, spilled]


def test_matrix_has_no_gap_when_its_cases_are_counted() -> None:
    kinds = [(commits, spilled) for commits in COMMITS for spilled in (False, True)]

    cases = sum(len(clean_requests(*kind)) for kind in kinds) * len(FAULTS) * len(RETRIES)

    assert {fault.rpartition("-")[0] for fault in FAULTS} == {"die", "error", "outage", "re-send"}
    assert {fault.rpartition("-")[2] for fault in FAULTS} == {"before", "after"}
    assert cases == sum(len(CLEAN_RUNS[kind]) for kind in kinds) * 8 * 4 > 900
