"""Processes work on one job and are stopped and killed; afterwards the sink holds every row exactly once."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.protocol.crowd import Crowd
from tests.protocol.worker import JOB
from tests.support.long import cases
from tests.support.patience import LONG

SECONDS = cases(2, long=240)
"""How long processes act at random; `make test-long` gives them the time to find something."""
LEAST = {
    "killed after begun": 1,
    "killed after frozen": 1,
    "killed after wrote": 1,
    "killed after stored": 1,
    "killed after committed": 1,
    "taken over": 3,
    "replayed": 4,
    "tried again by the same id": 1,
    "late and fenced": 1,
    "late and already": 1,
}
"""How often each event must happen. `Crowd.play` ensures it; the number of random events depends on the machine."""


def new_seed() -> int:
    """Return the seed of this run; pytest shows it if the test fails."""
    seed = int(os.environ.get("GLUE_WATERMARKS_SEED") or random.randrange(10**6))
    sys.stdout.write(f"GLUE_WATERMARKS_SEED={seed}\n")
    return seed


@pytest.mark.timeout(LONG)
def test_every_row_is_at_the_sink_once_when_workers_are_killed_and_taken_over(
    server: str, make_table: Callable[..., Watermarks], tmp_path: Path
) -> None:
    crowd = Crowd(make_table(server), server, tmp_path, new_seed())

    crowd.play()
    crowd.work(SECONDS)
    crowd.drain()
    findings = crowd.watermarks.doctor(JOB, repair=True)

    sys.stdout.write(f"{crowd.tried()}\n")
    assert crowd.problems() == []
    assert [finding for finding in findings if not finding.repaired] == []
    assert crowd.watermarks.doctor(JOB) == []
    assert crowd.lacks(LEAST) == [], f"this run proved nothing: {crowd.tried()}"


def test_changed_content_is_noticed_when_workers_do_not_replay_the_frozen_plan(
    moto_process: str, make_table: Callable[..., Watermarks], tmp_path: Path
) -> None:
    crowd = Crowd(make_table(moto_process), moto_process, tmp_path, new_seed(), forgetful=True)

    crowd.play()
    crowd.drain()

    assert [problem for problem in crowd.problems() if "contents" in problem] != []
