"""The list of jobs finds every job without reading histories."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.helpers.errors import AmbiguousHistoryError, CorruptItemError, InvalidValueError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.jobs import FIRST_PAGE, ListCost, list_jobs
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.cli.scanned_table import ScannedTable, in_order
from tests.cli.stories import job_items, put_legacy, put_newer
from tests.support.patience import PATIENCE

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("jobs", "versions", "most_items_per_job", "most_requests_per_job"),
    [(100, 500, 6, 1.0), (33_334, 1, 3, 0.01), (2_000, 25, 6, 1.0)],
    ids=["few-with-long-histories", "many-with-short-histories", "some-of-each"],
)
def test_histories_are_not_read_when_a_table_of_100_000_items_is_listed(
    jobs: int, versions: int, most_items_per_job: float, most_requests_per_job: float
) -> None:
    names = [f"job-{number:05d}" for number in range(jobs)]
    client = ScannedTable({name: job_items(name, versions) for name in names})
    assert len(client._items) >= 100_000

    found = list_jobs(Store("table", client))  # type: ignore[arg-type]

    assert [job.job_id for job in found.jobs] == names
    assert all(job.head is not None and job.head.version == versions for job in found.jobs)
    assert (found.cost.items, found.cost.requests) == (client.read, client.requests)
    assert client.read <= most_items_per_job * jobs + 2_000
    assert client.requests <= most_requests_per_job * jobs + 50


@pytest.mark.parametrize("prefix", ["~~", "\U0010ffff" * 255], ids=["near", "far"])
def test_scan_skips_the_rest_of_a_job_when_items_follow_its_head(prefix: str) -> None:
    behind = [items.key("long", f"{prefix}{number:04d}") for number in range(2_000)]
    client = ScannedTable({"long": [*job_items("long", 1), *behind], "short": job_items("short", 1)})

    found = list_jobs(Store("table", client), segments=1)  # type: ignore[arg-type]

    assert {job.job_id for job in found.jobs} == {"long", "short"}
    assert client.read < 1_000


def test_cost_includes_a_query_for_each_name_when_names_have_no_head() -> None:
    """Each of these names costs a query of its own, which finds no item, one, or two of several."""
    legacy = {name: [items.key(name, f"jr_{number}") for number in range(count)]
              for name, count in (("old", 1), ("older", 3))}  # fmt: skip
    client = ScannedTable({"defined": [items.key("defined", "!j")], "whole": job_items("whole", 1)} | legacy)

    found = list_jobs(Store("table", client), segments=1)  # type: ignore[arg-type]

    assert [job.job_id for job in found.jobs] == ["defined", "old", "older", "whole"]
    assert found.cost == ListCost(client.requests, client.read, client.units) == ListCost(4, 11, 5.0)


def test_chunks_of_large_states_are_not_read_when_jobs_have_many() -> None:
    client = ScannedTable({f"job-{number}": job_items(f"job-{number}", 3, chunks=20) for number in range(50)})

    found = list_jobs(Store("table", client), segments=1)  # type: ignore[arg-type]

    assert len(found.jobs) == 50
    assert found.cost.units < 50 * 20  # Reading one chunk costs 86 units.


def test_pages_grow_again_when_short_histories_follow_long_ones() -> None:
    names = in_order(f"job-{number:04d}" for number in range(3_000))
    client = ScannedTable({name: job_items(name, 300 if index < 5 else 1) for index, name in enumerate(names)})

    list_jobs(Store("table", client), segments=1)  # type: ignore[arg-type]

    assert client.requests < 100


def test_list_asks_no_more_than_a_scan_when_histories_are_short() -> None:
    """A jump to the next head costs a request per job; a page of a scan holds the histories of 150 such jobs."""
    client = ScannedTable({f"job-{number:05d}": job_items(f"job-{number:05d}", 5) for number in range(20_000)})

    found = list_jobs(Store("table", client))  # type: ignore[arg-type]

    assert len(found.jobs) == 20_000
    assert client.requests <= 220


@pytest.mark.parametrize(
    ("weight", "second_limit"),
    [(24, 128), (25, 64), (48, 64), (49, 4)],
    ids=["worth-reading", "not-worth-more", "still", "too-much"],
)
def test_next_page_is_sized_by_unneeded_bytes_when_items_are_large(weight: int, second_limit: int) -> None:
    """The first page has 32 heads and, next to each, an item that was read in vain."""
    data = {"data": {"B": bytes((weight - 1) * 512)}}
    jobs = {f"job-{number:02d}": [*job_items(f"job-{number:02d}", 0), data | items.key(f"job-{number:02d}", "#")]
            for number in range(80)}  # fmt: skip
    client, limits = ScannedTable(jobs), list[int]()
    scan = client.scan
    client.scan = lambda **given: limits.append(given["Limit"]) or scan(**given)  # type: ignore[method-assign]

    found = list_jobs(Store("table", client), segments=1)  # type: ignore[arg-type]

    assert limits[:2] == [64, second_limit]
    assert len(found.jobs) == 80


def test_other_segments_end_when_one_of_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a role that may not scan would see the refusal only after the rest of the table was read."""

    class Refused:
        """Refuses one segment while a page of the other is being read, and that segment has more pages."""

        meta = SimpleNamespace(region_name="eu-west-2", method_to_api_mapping={})

        def scan(self, **given: Any) -> dict[str, Any]:
            if given["Segment"] == 0:
                # Wait for the other segment: if it has not begun, the pool of threads cancels it by itself.
                assert is_read.wait(PATIENCE)
                raise ZeroDivisionError
            pages.append(given["Segment"])
            is_read.set()
            assert is_told.wait(PATIENCE)
            page: dict[str, Any] = {"Items": [], "Count": 0, "ScannedCount": 0}
            return page if len(pages) == 3 else page | {"LastEvaluatedKey": items.key("job", "jr_1")}

    def shut_down(pool: ThreadPoolExecutor, **given: Any) -> None:
        is_told.set()  # The error is being raised and waits for the threads.
        wait(pool, **given)

    pages: list[int] = []
    is_read, is_told = threading.Event(), threading.Event()
    wait = ThreadPoolExecutor.shutdown
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shut_down)

    with pytest.raises(ZeroDivisionError):
        list_jobs(Store("table", Refused()), segments=2)  # type: ignore[arg-type]

    assert len(pages) == 1


@pytest.fixture
def mixed(watermarks: Watermarks, dynamodb: Any) -> Watermarks:
    """Return a table with every kind of job, including damaged, legacy, newer, and range keys after the head's."""
    for job in ("parking", "repairs"):
        for number in range(10):
            watermarks.add_watermark(watermarks.create_watermark_item(job, f"jr_{number:02d}", seen=number))
    put_legacy(dynamodb, watermarks.table_name, "old", "jr_1")
    for job, *run_ids in (
        ("older", "jr_1", "jr_2", "ümlaut"), ("blank", " run"), ("blanks", " 1", " 2", " 3"), ("umlaut", "ärun"),
        ("umlauts", "ä1", "ä2", "ö"), ("blank-and-umlaut", " run", "ärun"), ("tilde", "jr_1", "~zzz"),
    ):  # fmt: skip
        for run_id in run_ids:
            put_legacy(dynamodb, watermarks.table_name, job, run_id)
    put_newer(dynamodb, watermarks.table_name, "newer")
    put_legacy(dynamodb, watermarks.table_name, "parking", "~zzz")
    for job, range_key in (
        ("only-log", items.log_key(1)), ("defined", "!j"), ("started", "!j"), ("started", "!t")
    ):  # fmt: skip
        dynamodb.put_item(TableName=watermarks.table_name, Item=items.key(job, range_key))
    dynamodb.put_item(
        TableName=watermarks.table_name, Item=items.key("damaged", items.HEAD_KEY) | {"version": {"S": "no"}}
    )
    # Delete the heads of these jobs, and the log entry of the first one too.
    for job, gone in (("only-run", [items.HEAD_KEY, items.log_key(1)]), ("log-and-run", [items.HEAD_KEY])):
        watermarks.add_watermark(watermarks.create_watermark_item(job, "jr_1", seen=1))
        for range_key in gone:
            dynamodb.delete_item(TableName=watermarks.table_name, Key=items.key(job, range_key))
    return watermarks


@pytest.mark.parametrize("segments", [1, 4])
def test_every_job_is_found_once_with_what_is_wrong_when_the_table_is_mixed(mixed: Watermarks, segments: int) -> None:
    found = list_jobs(mixed.store, segments=segments)

    single, several = (
        "one item of the original class; the next run takes it over",
        "items of the original class; see adopt",
    )
    gone = "its head is gone; see doctor"
    assert {job.job_id: job.problem for job in found.jobs} == {
        "blank": single,
        "blank-and-umlaut": several,
        "blanks": several,
        "damaged": "damaged: its head is not readable (watermarks is missing); see doctor",
        "defined": None,
        "log-and-run": gone,
        "newer": "format 99: upgrade glue-watermarks",
        "old": single,
        "older": several,
        "only-log": gone,
        "only-run": gone,
        "parking": None,
        "repairs": None,
        "started": None,
        "tilde": gone,
        "umlaut": single,
        "umlauts": several,
    }
    assert [job.job_id for job in found.jobs] == sorted(job.job_id for job in found.jobs)


def test_job_without_a_head_is_listed_as_it_is_read_when_its_latest_version_is_asked_for(mixed: Watermarks) -> None:
    problems = {job.job_id: job.problem or "" for job in list_jobs(mixed.store).jobs}

    for job in ("blank", "old", "umlaut"):
        assert (mixed.latest(job).version, problems[job].partition(";")[0]) == (1, "one item of the original class")
    for job in ("blanks", "blank-and-umlaut", "older", "umlauts"):
        with pytest.raises(AmbiguousHistoryError):
            mixed.latest(job)
        assert problems[job] == "items of the original class; see adopt"
    for job in ("log-and-run", "only-log", "only-run", "tilde"):
        with pytest.raises(CorruptItemError, match="it is gone"):
            mixed.latest(job)
        assert problems[job] == "its head is gone; see doctor"
        assert [(one.kind, "it is gone" in one.detail) for one in mixed.doctor(job)] == [("damaged item", True)]


def test_heads_are_those_of_the_table_when_listed(mixed: Watermarks) -> None:
    heads = {job.job_id: job.head for job in list_jobs(mixed.store).jobs}

    assert heads["parking"] == mixed.latest("parking")
    assert heads["repairs"] == mixed.latest("repairs")


def test_list_ends_and_says_so_when_its_requests_are_limited() -> None:
    client = ScannedTable({f"job-{number}": job_items(f"job-{number}", 100) for number in range(100)})

    found = list_jobs(Store("table", client), segments=1, max_requests=10)  # type: ignore[arg-type]

    assert not found.is_whole
    assert found.cost.requests == 10
    assert 1 <= len(found.jobs) <= 12
    assert all(job.head is not None for job in found.jobs)


def test_job_is_listed_when_the_limit_ends_the_list_at_its_head() -> None:
    history = [items.log_key(number) for number in range(1, FIRST_PAGE)]
    jobs = {name: [items.key(name, log_key) for log_key in history] + job_items(name, 0) for name in ("a", "b")}

    found = list_jobs(Store("table", ScannedTable(jobs)), segments=1, max_requests=1)  # type: ignore[arg-type]

    assert (len(found.jobs), found.cost.items, found.is_whole) == (1, FIRST_PAGE, False)


def test_progress_grows_to_the_whole_when_pages_are_told_of(mixed: Watermarks) -> None:
    told: list[tuple[int, ListCost]] = []

    found = list_jobs(mixed.store, segments=1, on_page=lambda jobs, cost: told.append((jobs, cost)))

    assert [jobs for jobs, _ in told] == sorted(jobs for jobs, _ in told)
    assert told[-1][0] == len(found.jobs)


def test_empty_table_gives_no_job_when_listed(watermarks: Watermarks) -> None:
    found = list_jobs(watermarks.store)

    assert (list(found.jobs), found.is_whole) == ([], True)


@pytest.mark.parametrize("segments", [0, True, 1.5])
def test_segments_are_refused_when_they_are_no_number_above_0(watermarks: Watermarks, segments: Any) -> None:
    with pytest.raises(InvalidValueError, match="segments is"):
        list_jobs(watermarks.store, segments=segments)


def test_scan_is_strongly_consistent_and_asks_for_its_cost_when_sent(
    watermarks: Watermarks, dynamodb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []
    scan: Callable[..., Any] = dynamodb.scan
    monkeypatch.setattr(dynamodb, "scan", lambda **given: sent.append(given) or scan(**given))

    list_jobs(watermarks.store, segments=1)

    assert sent[0]["ConsistentRead"] is True
    assert sent[0]["ReturnConsumedCapacity"] == "TOTAL"
