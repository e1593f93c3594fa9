"""`watermarks release`, and the places that suggest it: `jobs`, `show` and the page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.errors import FencedError
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from scripts.report.facts import JobFacts
from scripts.report.page import render_job
from tests.cli.stories import NOW, Command, commit_rows, document
from tests.support.clock import Clock
from tests.support.steps import frozen

JOB = "parking permits"
SILENT = NOW + timedelta(minutes=12)
HINT = (
    "run jr_2 gave its last sign of life 12 min ago and keeps others away for 3 min. If it is dead: "
    "watermarks release 'parking permits' --why TEXT"
)


@pytest.fixture
def held(watermarks: Watermarks, clock: Clock) -> Any:
    """Return a run with an open plan that no longer gives signs of life."""
    clock.now = NOW
    commit_rows(watermarks, JOB, "jr_1", NOW, 5)
    return frozen(watermarks, JOB, "jr_2")


def test_job_is_free_and_its_plan_open_when_it_is_released(run: Command, watermarks: Watermarks, held: Any) -> None:
    given = ["release", JOB, "--why", "the cluster is gone", "--who", "sam", "--yes", "--output", "json"]

    done = document(run(watermarks, *given, now=SILENT))
    again = document(run(watermarks, *given, now=SILENT))

    assert (done["released"], done["before"]["state"], done["after"]["state"]) == (True, "at work", "open plan")
    assert done["after"]["version"] == done["before"]["version"] == 1
    released = {"run": "jr_2", "at": "2026-03-16T15:57:00.000000+00:00", "who": "sam", "why": "the cluster is gone"}
    assert (again["released"], again["after"]["releases"]) == (False, [released])
    with pytest.raises(FencedError):
        held.commit()
    # The next run may have another id, and begins long before the old lease would have expired.
    next_run = watermarks.begin(JOB, "jr_3")
    assert next_run.batch_id == held.batch_id
    next_run.commit()
    shown = run(watermarks, "history", JOB)
    line = "Before version 2 released: run jr_2 at 2026-03-16 15:57:00Z by sam: the cluster is gone"
    assert line in shown.stdout.splitlines()
    kept = document(run(watermarks, "history", JOB, "--output", "json"))
    assert ([entry["releases"] for entry in kept["history"]], kept["releases"]) == ([[released], []], [])


def test_release_says_so_and_changes_nothing_when_no_run_has_the_job(
    run: Command, watermarks: Watermarks, held: Any
) -> None:
    held.abort()
    before = watermarks.latest(JOB)

    done = run(watermarks, "release", JOB, "--why", "x")

    assert (done.exit_code, done.stdout) == (0, "No run owns the job. Nothing was changed.\n")
    assert watermarks.latest(JOB) == before


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--yes"], 2, "--why"),
        (["--why", "x"], 2, "The command asks for confirmation"),
        (["--why", "x", "--yes", "--run", "jr_1"], 1, "Run 'jr_2' has job 'parking permits' now"),
    ],
    ids=["no-reason", "no-answer", "another-run"],
)
def test_release_is_refused_when_something_is_missing_or_wrong(
    run: Command, watermarks: Watermarks, held: Any, given: list[str], code: int, said: str
) -> None:
    before = watermarks.latest(JOB)

    done = run(watermarks, "release", JOB, *given)

    assert (done.exit_code, watermarks.latest(JOB)) == (code, before)
    assert said in done.stderr


def test_release_is_offered_when_a_run_gives_no_sign_of_life(run: Command, watermarks: Watermarks, held: Any) -> None:
    assert "release" not in run(watermarks, "jobs", JOB, now=NOW + timedelta(minutes=9)).stdout
    assert "watermarks release" not in build_report(watermarks, jobs=[JOB], now=NOW)

    listed, shown = (run(watermarks, command, JOB, now=SILENT).stdout for command in ("jobs", "show"))
    owner = document(run(watermarks, "show", JOB, "--output", "json", now=SILENT))["owner"]
    page = render_job(JobFacts(JOB, SILENT, watermarks.latest(JOB)), 10)

    assert f"{JOB}: {HINT}" in listed.splitlines()
    assert HINT in shown
    assert (owner["silent_seconds"], owner["may_be_dead"]) == (720, True)
    assert "Its last sign of life is 12 min old." in page
    assert "<code>watermarks release &#39;parking permits&#39; --why TEXT</code>" in page


def test_release_is_offered_when_a_lease_is_unusually_long(run: Command, watermarks: Watermarks, clock: Clock) -> None:
    clock.now = NOW
    watermarks.begin(JOB, "jr_1", lease=timedelta(hours=20))

    assert "keeps others away for 20 h. If it is dead: watermarks release" in run(watermarks, "jobs", JOB).stdout


def test_page_says_who_released_a_run_and_why_when_somebody_did(watermarks: Watermarks, held: Any) -> None:
    watermarks.release(JOB, why="the <cluster> is gone", who="sam")
    pending = render_job(JobFacts(JOB, NOW, watermarks.latest(JOB)), 10)
    watermarks.begin(JOB, "jr_3").commit()
    head = watermarks.latest(JOB)
    kept = render_job(JobFacts(JOB, NOW, head, entries=watermarks.history(JOB)), 10)

    assert 'run <span class="id">jr_2</span> by sam: the &lt;cluster&gt; is gone' in pending
    assert "Released jr_2 before: sam: the &lt;cluster&gt; is gone" in kept
