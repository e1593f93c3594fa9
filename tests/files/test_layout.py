"""Date folders: the requests to S3, the files that are found, and that none is lost."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import Interval
from tests.support.buckets import Table, keys_of
from tests.support.reasons import because

LAYOUT = "import_year=%Y/import_month=%m/import_day=%d/"
DAY = timedelta(days=1)


class Dated:
    """A source with one folder per day, on S3 or local, and a bookmark that knows the layout."""

    def __init__(self, source: str, client: Any = None) -> None:
        self.source, self.client = source, client
        self.bucket, _, self.prefix = source.removeprefix("s3://").partition("/")
        self.now = datetime.now(timezone.utc)
        self.state: Any = None
        self.table = Table()
        self.asked: list[str] = []
        if client is not None:
            client.meta.events.register("before-send.s3.ListObjectsV2", self._ask)

    def _ask(self, request: Any, **_: Any) -> None:
        (prefix,) = parse_qs(urlsplit(request.url).query)["prefix"]
        self.asked.append(prefix.removeprefix(self.prefix))

    def folder(self, days_ago: int) -> str:
        return (self.now - days_ago * DAY).strftime(LAYOUT)

    def put(self, days_ago: int, name: str) -> str:
        return self.put_at(self.folder(days_ago) + name)

    def put_at(self, key: str) -> str:
        if self.client is not None:
            self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=b"x")
        else:
            path = Path(self.source, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        return key

    def take(self, **options: Any) -> list[str]:
        bookmark = FileBookmark(
            self.source,
            state=self.state,
            s3_client=self.client,
            **{"layout": LAYOUT, "allowed_lateness": 2 * DAY, **options},
        )
        self.asked.clear()
        delta = bookmark.new_files()
        self.state = self.table.stored(bookmark.state_after)
        self.more, self.gone = delta.has_more, delta.gone
        return keys_of(delta)


class Report:
    """Shows all objects of a bookmark's source, as of now."""

    created = datetime.now(timezone.utc)

    def __init__(self, bookmark: FileBookmark) -> None:
        self._lister = bookmark.lister

    def list_objects(self, location: Location) -> list[Interval]:
        return list(self._lister.below([""]))


@pytest.fixture(params=["s3", "local"])
def dated(request: pytest.FixtureRequest, tmp_path: Path) -> Dated:
    if request.param == "local":
        return Dated(str(tmp_path))
    client = boto3.client("s3", endpoint_url=request.getfixturevalue("endpoint"))
    return Dated(f"s3://{request.getfixturevalue('bucket')}/in/", client)


s3_only = pytest.mark.parametrize("dated", ["s3"], indirect=True)


@s3_only
def test_only_folders_since_the_last_run_are_asked_for_when_it_has_listed_once(
    dated: Dated,
) -> None:
    for days_ago in range(30):
        dated.put(days_ago, "a.csv")
    first = dated.take(), list(dated.asked)

    again = dated.take()

    assert (len(first[0]), first[1]) == (30, [""])
    assert again == []
    assert sorted(dated.asked) == sorted(dated.folder(days_ago) for days_ago in (2, 1, 0, -1))


@s3_only
def test_the_whole_source_is_asked_for_when_the_allowed_lateness_has_a_thousand_folders(dated: Dated) -> None:
    dated.put(0, "a.csv")
    dated.take()

    dated.take(allowed_lateness=1_000 * DAY)

    assert dated.asked == [""]


def test_file_is_found_in_a_folder_of_the_allowed_lateness_and_of_tomorrow_when_it_is_put_there(dated: Dated) -> None:
    dated.take()
    found = sorted([dated.put(2, "late.csv"), dated.put(0, "new.csv"), dated.put(-1, "ahead.csv")])

    assert dated.take() == found


def test_file_is_not_seen_when_it_is_put_into_a_folder_older_than_the_allowed_lateness(dated: Dated) -> None:
    dated.take()
    dated.put(3, "late.csv")

    assert dated.take() == []


def test_known_files_of_older_folders_are_not_gone_when_they_are_not_listed(dated: Dated) -> None:
    dated.put(9, "a.csv")
    dated.take()
    dated.put(0, "b.csv")
    dated.take()

    assert dated.gone == 0
    assert dated.take(layout=None, allowed_lateness=DAY) == []


def test_old_folders_are_drained_when_a_first_batch_left_some_of_their_files(dated: Dated) -> None:
    put = sorted(dated.put(days_ago, "a.csv") for days_ago in (0, 20, 40, 60))
    batches: list[list[str]] = []
    while not batches or dated.more:
        batches.append(dated.take(max_files=1))

    assert sorted(key for batch in batches for key in batch) == put


@s3_only
def test_old_folders_are_asked_for_until_they_are_ready_when_a_marker_is_waited_for(dated: Dated) -> None:
    key = dated.put(20, "a.csv")
    dated.take(ready_marker="_SUCCESS")
    dated.put(20, "_SUCCESS")

    taken = dated.take(ready_marker="_SUCCESS")
    dated.take(ready_marker="_SUCCESS")

    assert taken == [key]
    assert len(dated.asked) == 4


def test_listing_of_all_warns_of_files_that_later_ones_miss_when_no_date_leads_to_their_folder(
    dated: Dated, caplog: pytest.LogCaptureFixture
) -> None:
    hours = "day=%Y-%m-%d/hour=%H/"
    key = dated.put_at(f"{dated.now:day=%Y-%m-%d}/hour=3/a.csv")
    dated.put_at(f"{dated.now:{hours}}a.csv")
    dated.put_at("day=2019-02-28/hour=23/deeper/a.csv")
    dated.put_at("top.csv")

    taken = dated.take(layout=hours)
    warned = [record.getMessage() for record in caplog.records]
    caplog.clear()
    dated.take(layout=hours)

    assert len(taken) == 4
    (text,) = [text for text in warned if "event=outside_layout" in text]
    assert f"files=2 of=4 first={key!r}" in text
    assert not caplog.records


def test_nothing_is_warned_of_when_a_report_shows_all_files_in_each_run(
    dated: Dated, caplog: pytest.LogCaptureFixture
) -> None:
    dated.put_at("top.csv")
    bookmark = FileBookmark(dated.source, s3_client=dated.client, layout=LAYOUT)

    delta = bookmark.new_files(Report(bookmark))

    assert delta.count == 1
    assert "outside_layout" not in caplog.text


@pytest.mark.parametrize(
    ("layout", "key", "is_dated"),
    [
        ("%Y/%-m/%-d/", "2024/3/9/a.csv", True),
        ("%Y/%-m/%-d/", "2024/03/9/a.csv", False),
        ("d=%Y%m%d/", "d=20240229/a.csv", True),
        ("d=%Y%m%d/", "d=20230229/a.csv", False),
        ("%b-%Y/", "Mar-2024/a.csv", True),
        ("%b-%Y/", "Mar-24/a.csv", False),
        ("%Y/", "2024\nnew/a.csv", False),
        ("100%%/%Y/", "100%/2024/a.csv", True),
    ],
)
def test_listing_of_all_warns_only_of_folders_that_strftime_does_not_write_when_it_has_a_layout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, layout: str, key: str, is_dated: bool
) -> None:
    dated = Dated(str(tmp_path))
    dated.put_at(key)
    dated.put_at(f"{dated.now.strftime(layout)}a.csv")

    dated.take(layout=layout)

    assert ("event=outside_layout" in caplog.text) is not is_dated


def test_layout_is_refused_when_it_fits_none_of_the_files_of_the_first_listing(dated: Dated) -> None:
    assert dated.take(layout="%Y/%m/%d/") == []
    dated.put_at("day=2026-03-16/a.csv")
    dated.put_at("day=2026-03-16/_SUCCESS")

    with pytest.raises(
        InvalidValueError, check=because("option"), match="has 1 file and none in a folder of it, such as 'day=2026"
    ):
        FileBookmark(dated.source, s3_client=dated.client, layout="%Y/%m/%d/").new_files()


@pytest.mark.parametrize(
    ("key", "status"), [("top.csv", "unknown"), ("import_year=2019/a.csv", "unknown"), ("", "new")]
)
def test_explanation_says_that_no_run_takes_a_file_when_the_layout_lists_no_folder_of_it(
    dated: Dated, key: str, status: str
) -> None:
    dated.take()
    put = dated.put_at(key or dated.folder(0) + "a.csv")

    explained = FileBookmark(dated.source, state=dated.state, s3_client=dated.client, layout=LAYOUT).explain(put)

    assert explained.state == status
    assert ("no folder of layout=" in explained.reason) is (status == "unknown")
