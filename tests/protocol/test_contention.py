"""Fifty threads commit to one job at once: every commit makes one version, and none is lost."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config

from scripts.helpers.errors import RunInProgressError
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Faults
from tests.support.long import cases
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.both_stores

THREADS = 50
COMMITS = cases(1, long=10)
"""The number of commits of each thread."""
JOB = "parking"
PATIENT = CLIENT_CONFIG.merge(Config(max_pool_connections=THREADS, read_timeout=PATIENCE))
"""The server handles one request at a time: a thread may wait for all others before its answer comes."""


def commit_at_once(watermarks: Watermarks, run_id: str, number: int) -> None:
    """Commit by `add_watermark`; retry while another run holds the job, as its error says."""
    item = watermarks.create_watermark_item(JOB, run_id, number=number)
    while True:
        try:
            return watermarks.add_watermark(item)
        except RunInProgressError:
            pause()


def commit_in_steps(watermarks: Watermarks, run_id: str, number: int) -> None:
    """Commit by begin, freeze and commit; retry while another run holds the job, as its error says."""
    while True:
        try:
            run = watermarks.begin(JOB, run_id)
        except RunInProgressError:
            pause()
            continue
        run.freeze({"rows": {"number": number}}, {"number": number})
        run.commit()
        return


def pause() -> None:
    """Let other threads go first. The threads and the server are real, and so is the wait."""
    time.sleep(random.uniform(0, 2))


def run_threads(commit: Callable[[Watermarks, str, int], None], watermarks: Watermarks) -> list[str]:
    """Commit `times` times in each of fifty threads; return the errors."""
    errors: list[str] = []
    start = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        try:
            start.wait(PATIENCE)
            for number in range(COMMITS):
                commit(watermarks, f"run-{thread}-{number}", thread * COMMITS + number)
        except Exception as error:  # This test reports any error at all.
            errors.append(f"thread {thread}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("commit", [commit_at_once, commit_in_steps])
def test_every_commit_is_one_version_when_fifty_threads_commit_to_one_job(
    commit: Callable[[Watermarks, str, int], None],
    store_kind: str,
    request: pytest.FixtureRequest,
    make_table: Callable[..., Watermarks],
) -> None:
    total = THREADS * COMMITS
    url = request.getfixturevalue("moto_process") if store_kind == "dynamodb" else ""
    client = boto3.client("dynamodb", endpoint_url=url, config=PATIENT) if url else None
    watermarks = make_table(url, client)

    errors = run_threads(commit, watermarks)

    history = watermarks.history(JOB)
    assert errors == []
    assert [entry.version for entry in history] == list(range(total, 0, -1))
    assert Counter(entry.watermarks["number"] for entry in history) == Counter(range(total))
    assert watermarks.latest(JOB).watermarks == history[0].watermarks
    assert watermarks.doctor(JOB) == []


FIRST_CALLS: dict[str, Callable[[Watermarks], Any]] = {
    "begin": lambda watermarks: watermarks.begin(JOB, "mine"),
    "add": lambda watermarks: watermarks.add_watermark(watermarks.create_watermark_item(JOB, "mine", number=2)),
    "set": lambda watermarks: watermarks.set_watermark(JOB, {"number": 2}, why="test"),
    "latest": lambda watermarks: watermarks.latest(JOB),
}


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_first_version_of_another_run_is_kept_when_it_is_committed_after_the_head_was_read(
    name: str, watermarks: Watermarks, hooked: Watermarks, faults: Faults
) -> None:
    item = watermarks.create_watermark_item(JOB, "others", number=1)
    faults.meanwhile(lambda request: request.operation == "Query", lambda: watermarks.add_watermark(item))

    FIRST_CALLS[name](hooked)

    first = watermarks.history(JOB)[-1]
    assert (first.version, first.change.run_id, first.watermarks) == (1, "others", {"number": 1})
    assert faults.hits == 1
