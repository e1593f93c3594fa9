"""Ranges of a listing: which worker requests pages, how ranges are cut, how much waits, and how errors end it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice

import pytest

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.cuts import CutFinder
from scripts.helpers.listing.objects import Interval
from scripts.helpers.listing.ranges import WAITING_PAGES, Page, RangeListing
from tests.listing.listed_pages import ListedPages
from tests.support.patience import PATIENCE

FLAT = [f"part-{number:06d}.csv" for number in range(3_000)]
HEX = [f"{(number * 2_654_435_761) % 2**32:08x}.csv" for number in range(3_000)]
FOLDERS = [f"day={day:02d}/{number:03d}" for day in range(20) for number in range(100)]
SKEWED = [f"day={day:02d}/{number:04d}" for day in range(8) for number in range(2_000 >> day)]
DEEP = [f"{'x' * 200}/{number:06d}" for number in range(3_000)]


def begun(pages: ListedPages, workers: int, unordered: bool = False) -> RangeListing:
    listing = RangeListing(pages, "s3://bucket/", workers, unordered)
    listing.start()
    return listing


def keys_of(intervals: list[Interval]) -> list[str]:
    return [key for interval in intervals for key in interval.rows.column("key").to_pylist()]


class PageTimes:
    """Replaces `time`: the timed pages take the given seconds, and each takes one second of CPU time."""

    def __init__(self, *seconds: float) -> None:
        self._wall, self._work = ([each for page in pages for each in (0.0, page)] for pages in (seconds, (1.0,) * 9))
        self.perf_counter: Callable[[], float] = lambda: self._wall.pop(0)
        self.thread_time: Callable[[], float] = lambda: self._work.pop(0)


# --- which workers request pages ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5])
def test_one_request_suffices_when_all_keys_fit_into_a_page(count: int) -> None:
    pages = ListedPages(FLAT[:count], 5)

    intervals = list(begun(pages, 8))

    assert keys_of(intervals) == FLAT[:count]
    assert (pages.pages, pages.probes) == (1, 0)
    assert [(interval.after, interval.until) for interval in intervals] == [(None, None)]


def test_nothing_is_probed_and_order_is_kept_when_there_is_one_worker() -> None:
    pages = ListedPages(FLAT, 100)

    intervals = list(begun(pages, 1))

    assert keys_of(intervals) == FLAT
    assert (pages.pages, pages.probes, pages.most_at_once) == (30, 0, 1)


@pytest.mark.parametrize(
    ("seconds", "workers"),
    [((3.5,), 1), ((30.0, 3.5), 1), ((30.0, 4.5), 9), ((30.0, 40.0), 16), ((4.5, 30.0), 9)],
    ids=["busy", "late-by-accident", "waits-a-little", "waits-long", "late-second"],
)
def test_workers_are_as_many_as_pages_that_wait_when_pages_are_timed(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], workers: int
) -> None:
    monkeypatch.setattr("scripts.helpers.listing.ranges.time", PageTimes(*seconds))
    listing = RangeListing(ListedPages(FLAT, 100), "s3://bucket/", 16, measured=True)
    listing.start()

    keys = keys_of(list(listing))

    assert listing.workers == workers
    assert sorted(keys) == FLAT


def test_order_is_not_asked_for_when_the_listing_has_none() -> None:
    keys = FLAT[50:] + FLAT[:50]
    pages = ListedPages(keys, 100, in_order=False)

    intervals = list(begun(pages, 8, unordered=True))

    assert keys_of(intervals) == keys
    assert pages.most_at_once == 1


class RepeatedToken(ListedPages):
    """A server that repeats its second page: without keys, or with the same keys if the listing is unordered."""

    def page(self, after: str | None, token: str | None) -> Page:
        """Return the first page as usual, then a page whose token is the one that was sent."""
        assert self.pages < 50, "the listing goes on for ever"
        page = super().page(after, token)
        if token is None:
            return page
        return Page(page.rows if self.keys != FLAT else page.rows.slice(0, 0), token)


@pytest.mark.parametrize(("workers", "unordered"), [(1, False), (4, False), (1, True)])
@pytest.mark.parametrize("measured", [False, True])
def test_listing_is_an_error_and_no_loop_when_the_server_repeats_a_token(
    workers: int, unordered: bool, measured: bool
) -> None:
    keys = FLAT[1:] + FLAT[:1] if unordered else FLAT
    listing = RangeListing(RepeatedToken(keys, 10, in_order=not unordered), "s3://b/", workers, unordered, measured)
    listing.start()

    with pytest.raises(SourceError, match="returns the token of the page before again, so pages could repeat"):
        list(listing)


@pytest.mark.parametrize("keys", [FLAT, HEX, FOLDERS, SKEWED, DEEP], ids=["flat", "hex", "folders", "skewed", "deep"])
def test_many_requests_are_sent_at_once_when_keys_are_many(keys: list[str]) -> None:
    pages = ListedPages(keys, 10, pauses=(0.002,))

    intervals = list(begun(pages, 8))

    assert sorted(keys_of(intervals)) == sorted(keys)
    assert pages.most_at_once >= 6
    assert pages.pages <= 1.5 * len(keys) / 10


class HeldBack(ListedPages):
    """Holds back its second page until a worker has looked for cuts, and records the folders that were requested."""

    def __init__(self, keys: list[str], size: int) -> None:
        super().__init__(keys, size)
        self.asked: list[str] = []
        self._looked = threading.Event()

    def page(self, after: str | None, token: str | None) -> Page:
        if token == str(self.size):
            assert self._looked.wait(PATIENCE), "nobody looked for cuts"
        return super().page(after, token)

    def folders(self, folder: str, after: str) -> list[str] | None:
        self.asked.append(folder)
        self._looked.set()
        return super().folders(folder, after)

    def first_key(self, after: str) -> str | None:
        self._looked.set()
        return super().first_key(after)


def test_cuts_are_looked_for_after_one_page_when_workers_have_nothing_to_list() -> None:
    pages = HeldBack(FLAT, 100)

    assert sorted(keys_of(list(begun(pages, 2)))) == FLAT


def test_folder_of_a_page_is_not_searched_when_the_whole_page_lies_in_it() -> None:
    keys = [f"day=01/{name}" for name in FLAT]
    pages = HeldBack(keys, 100)

    assert sorted(keys_of(list(begun(pages, 2)))) == keys
    assert set(pages.asked) == {""}


class SlowAtFirst(ListedPages):
    """Holds back its second page until two more ranges were begun, and records where these begin."""

    def __init__(self, keys: list[str], size: int) -> None:
        super().__init__(keys, size)
        self.starts: list[str] = []
        self._begun = threading.Event()

    def page(self, after: str | None, token: str | None) -> Page:
        if after is not None and token is None:
            self.starts.append(after)
            if len(self.starts) == 2:
                self._begun.set()
        if token == str(self.size):
            assert self._begun.wait(PATIENCE), "the range was not cut again"
        return super().page(after, token)


def test_range_is_cut_again_when_the_part_behind_its_cut_is_listed_first() -> None:
    pages = SlowAtFirst(FOLDERS, 100)

    assert sorted(keys_of(list(begun(pages, 2)))) == FOLDERS
    assert pages.starts[:2] == ["day=10/", "day=05/"]


# --- delivery -----------------------------------------------------------------------------------------


class SlowToDeliver(RangeListing):
    """Delays the last interval of each range on its way to the caller."""

    def _put(self, interval: Interval) -> None:
        keys = interval.rows.column("key").to_pylist()
        if not keys or interval.until != keys[-1]:
            threading.Event().wait(0.02)
        super()._put(interval)


def test_last_interval_is_not_lost_when_its_worker_is_slow_to_deliver_it() -> None:
    listing = SlowToDeliver(ListedPages(FLAT, 100), "s3://bucket/", 8)
    listing.start()

    intervals = list(listing)

    assert sorted(keys_of(intervals)) == FLAT


def test_pages_wait_to_be_asked_for_when_the_caller_is_slow() -> None:
    pages = ListedPages(FLAT, 10)
    intervals = iter(begun(pages, 4))

    first = list(islice(intervals, 2))
    while pages.pages < WAITING_PAGES:
        threading.Event().wait(0.001)
    threading.Event().wait(0.1)

    assert pages.pages <= WAITING_PAGES + 4 + 2
    assert sorted(keys_of([*first, *intervals])) == FLAT


# --- errors -------------------------------------------------------------------------------------------


class Broken(ListedPages):
    """Fails at its third page with an error of an unexpected type."""

    def page(self, after: str | None, token: str | None) -> Page:
        if self.pages == 2:
            raise ZeroDivisionError("unexpected")
        return super().page(after, token)


@pytest.mark.parametrize("workers", [1, 8])
def test_unexpected_error_reaches_the_caller_when_a_worker_meets_it(workers: int) -> None:
    before = threading.active_count()

    with pytest.raises(ZeroDivisionError, match="unexpected"):
        list(begun(Broken(FLAT, 10), workers))

    assert threading.active_count() == before


def test_first_page_is_refused_at_once_when_it_cannot_be_read() -> None:
    with pytest.raises(SourceError, match="page refused"):
        begun(ListedPages(FLAT, 10, refused_page=1), 8)


# --- cuts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 4, 16])
@pytest.mark.parametrize(
    ("keys", "start", "position", "until", "cuts"),
    [
        (FLAT, "part-000000.csv", "part-000009.csv", None, ["part-001", "part-002"]),
        (FLAT, "part-001000.csv", "part-001009.csv", "part-002", [f"part-001{n}" for n in range(1, 10)]),
        (FLAT, "part-002980.csv", "part-002989.csv", None, ["part-00299"]),
        (FLAT, "part-002990.csv", "part-002999.csv", None, []),
        (HEX, "00000000.csv", "00200000.csv", None, [*"123456789abcdef"]),
        (DEEP, DEEP[0], DEEP[9], None, [f"{'x' * 200}/001", f"{'x' * 200}/002"]),
        (["a", "b", "c"], "a", "a", "b", []),
    ],
)
def test_names_are_cut_where_later_ones_differ_when_a_folder_is_flat(
    keys: list[str], start: str, position: str, until: str | None, cuts: list[str], at_once: int
) -> None:
    pages = ListedPages(keys, 10)

    found = CutFinder(pages).find(start, position, until, at_once)

    assert found == cuts
    assert pages.probes <= 40


def test_folders_are_the_cuts_when_one_answer_holds_them() -> None:
    pages = ListedPages(FOLDERS, 1_000)
    finder = CutFinder(pages)

    found = [finder.find("day=03/000", "day=03/099", until) for until in (None, "day=06/")]

    assert found == [[f"day={day:02d}/" for day in range(4, 20)], ["day=04/", "day=05/"]]
    assert pages.probes == 1


@pytest.mark.parametrize(
    ("until", "cuts", "probes"),
    [(None, ["d/"], 1), ("d/", ["a/c/"], 2), ("a/c/", ["a/b/sub=1/", "a/b/sub=2/"], 3), ("a/b/sub=1/", [], 4)],
)
def test_cuts_are_the_outermost_folders_of_the_range_when_folders_are_nested(
    until: str | None, cuts: list[str], probes: int
) -> None:
    pages = ListedPages(["a/b/0", "a/b/sub=1/x", "a/b/sub=2/x", "a/c/x", "d/x"], 1_000)

    finder = CutFinder(pages)

    found = finder.find("a/b/0", "a/b/0", until)

    assert (found, pages.probes) == (cuts, probes)
    assert finder.probes == probes, "a listing ends its search by what the finder counts"


def test_no_deeper_folder_is_asked_for_when_one_answer_does_not_hold_the_upper_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = ListedPages([f"{number:03d}/a/b/0" for number in range(100)], 10)
    asked: list[str] = []
    folders = pages.folders

    def noted(folder: str, after: str) -> list[str] | None:
        asked.append(folder)
        return folders(folder, after)

    monkeypatch.setattr(pages, "folders", noted)

    found = CutFinder(pages).find("000/a/b/0", "000/a/b/0", None)

    assert asked == [""]
    assert found == [f"0{number}" for number in range(1, 10)]


def test_nothing_more_is_asked_for_when_cuts_are_of_no_use_by_now() -> None:
    pages = ListedPages(FLAT, 10)

    found = CutFinder(pages, wanted=lambda: False).find(FLAT[0], FLAT[9], None, 4)

    assert found == []
    assert pages.probes == 0
