"""Links in a local source: none to a folder is followed, one to a file only within the source; checked again later."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import AccessRefusedError, ChangedObjectError, LedgerError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.listing.clearing import Cleared, Clearing, Taken
from scripts.helpers.listing.listing import Lister, Listing, ListingOptions, Location
from scripts.helpers.listing.objects import local_etag
from tests.support.planted import SECRET, make_secret, state_of

BODY = b"id\n1\n"
OUT = "it leads out of the source, by its name or by a link, and such links are not followed"
REFUSED = "leads out of it, by its name or by a link"


class Source:
    """A folder with one file at its top and one in a subfolder, and a file outside that a job must not touch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "landing"
        (self.root / "day").mkdir(parents=True)
        for key in ("a.csv", "day/b.csv"):
            (self.root / key).write_bytes(BODY)
        self.secret = make_secret(folder)

    def link(self, key: str, to: str | Path) -> None:
        (self.root / key).symlink_to(to)

    def swap(self, key: str) -> Path:
        """Move a file or folder out of the source, and put a link to it in its place; return the new path."""
        moved = self.folder / "elsewhere"
        (self.root / key).rename(moved)
        self.link(key, moved)
        return moved

    @property
    def location(self) -> Location:
        return Location.parse(str(self.root))

    def listed(self) -> list[str]:
        return [key for part in Listing(self.location) for key in part.rows.column("key").to_pylist()]

    def bookmark(self, **options: Any) -> FileBookmark:
        return FileBookmark(str(self.root), **options)

    def taken(self, key: str) -> Taken:
        found = (self.root / key).stat()
        return Taken(key, local_etag(found), None, found.st_size, datetime.now(timezone.utc), 3)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


# --- listings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relative", [True, False])
def test_link_is_listed_when_it_leads_to_a_file_of_the_source(source: Source, relative: bool) -> None:
    source.link("day/link.csv", "../a.csv" if relative else source.root / "a.csv")

    assert source.listed() == ["a.csv", "day/b.csv", "day/link.csv"]
    assert source.bookmark().new_files().read_pandas("csv")["id"].tolist() == [1, 1, 1]


def test_links_are_left_out_and_counted_when_they_lead_to_files_elsewhere(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.link("link.csv", source.secret)
    source.link("day/link.csv", "../../secret/credentials.csv")
    source.link("indirect.csv", "link.csv")
    source.link("_hidden.csv", source.secret)
    source.link("inside.csv", "a.csv")

    assert source.listed() == ["a.csv", "day/b.csv", "inside.csv"]
    (record,) = [record for record in caplog.records if "event=links_left_out" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert f"source=file://{source.root}/ links=3 first='day/link.csv'" in record.getMessage()


def test_files_are_counted_once_when_several_folders_are_listed(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.link("link.csv", source.secret)
    source.link("day/link.csv", source.secret)

    list(Lister(source.location, None, ListingOptions()).below(["day/", ""]))

    assert caplog.text.count("event=links_left_out") == 1
    assert "links=3" in caplog.text


def test_nothing_is_logged_when_one_file_is_looked_at(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    source.link("link.csv", source.secret)
    lister = Lister(source.location, None, ListingOptions())

    found = [lister.look_at(key) is not None for key in ("link.csv", "a.csv", "z.csv")]

    assert found == [False, True, False]
    assert caplog.text == ""


def test_file_is_listed_when_the_source_itself_is_a_link(source: Source) -> None:
    (source.folder / "link").symlink_to(source.root)
    source.link("inside.csv", source.root / "a.csv")
    linked = FileBookmark(str(source.folder / "link"))

    delta = linked.new_files()

    assert [file.key for file in delta.files] == ["a.csv", "day/b.csv", "inside.csv"]
    assert delta.read_pandas("csv")["id"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("to", ["day", "../secret"])
def test_files_are_not_listed_when_a_date_folder_is_a_link(
    source: Source, caplog: pytest.LogCaptureFixture, to: str
) -> None:
    source.link("linked", to)

    found = Lister(source.location, None, ListingOptions()).below(["linked/", "day/", "missing/"])

    assert [key for part in found for key in part.rows.column("key").to_pylist()] == ["day/b.csv"]
    assert "links=1 first='linked/'" in caplog.text


@pytest.mark.parametrize("to", ["day", "../secret"])
def test_links_to_folders_are_counted_when_all_is_listed(
    source: Source, caplog: pytest.LogCaptureFixture, to: str
) -> None:
    source.link("linked", to)
    source.link("day/linked", f"../{to}")
    source.link("_hidden", to)
    source.link("day/empty", "nothing")

    assert source.listed() == ["a.csv", "day/b.csv"]
    assert "links=2 first='day/linked/'" in caplog.text


def test_folder_elsewhere_is_not_looked_into_when_a_key_leads_there(source: Source) -> None:
    lister = Lister(source.location, None, ListingOptions())

    rows = lister.look_at_each(["../secret/credentials.csv", str(source.secret), "day/../a.csv", "a.csv"])

    assert rows.column("key").to_pylist() == ["a.csv"]


# --- explain -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("linked/b.csv", "it is below a link to a folder, and such links are not followed"),
        ("linked/sub/c.csv", "it is below a link to a folder, and such links are not followed"),
        ("link.csv", OUT),
        ("../secret/credentials.csv", OUT),
        ("../secret", OUT),
        ("day/../a.csv", OUT),
        ("outside/credentials.csv", "it is below a link to a folder, and such links are not followed"),
        ("z.csv", "it is not there, and nothing is remembered of it"),
        ("z/z.csv", "it is not there, and nothing is remembered of it"),
    ],
)
def test_reason_names_the_link_when_a_file_is_explained(source: Source, key: str, reason: str) -> None:
    source.link("linked", "day")
    source.link("outside", source.secret.parent)
    source.link("link.csv", source.secret)

    found = source.bookmark().explain(key)

    assert (found.state, found.reason) == ("unknown", reason)


def test_reason_names_the_link_when_an_earlier_version_took_a_file_through_it(source: Source) -> None:
    source.link("link.csv", source.secret)

    found = source.bookmark(state=state_of(f"file://{source.root}/", "link.csv")).explain("link.csv")

    assert (found.state, found.reason) == (
        "taken",
        f"taken at version 1 by run jr_0; {OUT}",
    )


# --- changes between listing and opening ---------------------------------------------------------------------------

SWAPPED = pytest.mark.parametrize(("swapped", "key"), [("a.csv", "a.csv"), ("day", "day/b.csv")])
OPENERS: dict[str, Callable[[FileDelta], Any]] = {
    "read_pandas": lambda delta: delta.read_pandas("csv"),
    "paths": lambda delta: delta.paths,
    "unchanged": lambda delta: delta.unchanged(),
}


@SWAPPED
@pytest.mark.parametrize("open_it", OPENERS.values(), ids=OPENERS)
@pytest.mark.parametrize("on_unreadable", ["raise", "set_aside"])
def test_file_is_refused_when_a_link_out_of_the_source_takes_its_place(
    source: Source, open_it: Callable[[FileDelta], Any], swapped: str, key: str, on_unreadable: str
) -> None:
    delta = source.bookmark(on_unreadable=on_unreadable).new_files()
    source.swap(swapped)

    with pytest.raises(SourceError, match=REFUSED) as caught:
        open_it(delta)

    assert caught.value.source == f"file://{source.root}/"
    assert repr(key) in str(caught.value)


def test_file_is_read_when_a_link_within_the_source_takes_its_place(source: Source) -> None:
    delta = source.bookmark().new_files()
    (source.root / "a.csv").rename(source.root / "day" / "a.csv")
    source.link("a.csv", "day/a.csv")

    assert delta.read_pandas("csv")["id"].tolist() == [1, 1]
    assert delta.paths == [f"file://{source.root}/a.csv", f"file://{source.root}/day/b.csv"]


@SWAPPED
@pytest.mark.parametrize("archives", [True, False])
def test_file_stays_when_a_link_leads_to_it_from_where_it_was_taken(
    source: Source, archives: bool, swapped: str, key: str
) -> None:
    taken = source.taken(key)
    moved = source.swap(swapped)
    archive = Location.parse(str(source.folder / "archive")) if archives else None

    with pytest.raises(SourceError, match=f"{key!r} {REFUSED}"):
        Clearing(source.location, archive, None).clear([taken])

    assert [path.read_bytes() for path in (moved, *moved.rglob("*")) if path.is_file()] == [BODY]
    assert not (source.folder / "archive").exists()


@pytest.mark.parametrize("key", ["../secret/credentials.csv", "day/../../secret/credentials.csv"])
@pytest.mark.parametrize("archives", [True, False])
def test_file_elsewhere_stays_when_the_key_of_what_was_taken_leads_there(
    source: Source, archives: bool, key: str
) -> None:
    archive = Location.parse(str(source.folder / "archive" / "deep")) if archives else None

    with pytest.raises(SourceError, match=f"{re.escape(repr(key))} {REFUSED}"):
        Clearing(source.location, archive, None).clear([source.taken(key)])

    assert source.secret.read_bytes() == SECRET
    assert not (source.folder / "archive").exists()


def test_file_stays_when_the_archive_has_a_link_that_leads_out_of_it(source: Source) -> None:
    (source.folder / "archive").mkdir()
    (source.folder / "archive" / "v3").symlink_to(source.secret.parent)

    with pytest.raises(SourceError, match=f"'v3/a.csv' {REFUSED}"):
        Clearing(source.location, Location.parse(str(source.folder / "archive")), None).clear([source.taken("a.csv")])

    assert (source.root / "a.csv").read_bytes() == BODY
    assert [path.name for path in source.secret.parent.iterdir()] == [source.secret.name]


def test_no_file_elsewhere_is_overwritten_when_the_archive_has_a_link_named_as_an_unfinished_copy(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source.folder / "archive" / "v3").mkdir(parents=True)
    (source.folder / "archive" / "v3" / ".a.csv.part").symlink_to(source.secret)

    def rename(path: str, target: str) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(AccessRefusedError):
        Clearing(source.location, Location.parse(str(source.folder / "archive")), None).clear([source.taken("a.csv")])

    assert source.secret.read_bytes() == SECRET
    assert (source.root / "a.csv").read_bytes() == BODY


def test_link_goes_and_what_it_leads_to_stays_when_it_was_taken(source: Source) -> None:
    source.link("link.csv", "day/b.csv")

    cleared = Clearing(source.location, None, None).clear([source.taken("link.csv")])

    assert cleared == Cleared(1, len(BODY), 0, 0)
    assert source.listed() == ["a.csv", "day/b.csv"]


def test_ledger_is_refused_when_its_file_is_a_link_that_leads_out_of_its_folder(source: Source) -> None:
    ledger = source.folder / "ledger"
    state = state_of(f"file://{source.root}/", "a.csv", ledger_uri=str(ledger))
    (path,) = ledger.iterdir()
    path.symlink_to(path.rename(source.folder / "moved"))

    with pytest.raises(SourceError, match=f"{path.name!r} {REFUSED}"):
        source.bookmark(state=state, ledger_uri=str(ledger)).new_files()


def test_error_is_of_the_ledger_when_one_of_its_files_has_the_name_of_another_folder(source: Source) -> None:
    with pytest.raises(LedgerError, match="is not the name of a file of a ledger"):
        SegmentFiles(str(source.root)).get({"file": "../secret/credentials.csv"})


# --- pipes, sockets and links to themselves -------------------------------------------------------------------------


def test_files_are_read_when_there_is_also_a_pipe_a_socket_and_a_link_to_itself(
    source: Source, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.root)  # The path of a socket may have at most 107 characters.
    os.mkfifo("pipe.csv")
    os.mkfifo("_hidden.csv")
    source.link("link.csv", "pipe.csv")
    source.link("loop", "loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.csv")

        delta = source.bookmark().new_files()

    assert delta.read_pandas("csv")["id"].tolist() == [1, 1]
    assert "event=links_left_out" in caplog.text and "links=4 first='link.csv'" in caplog.text


@pytest.mark.parametrize("way", ["read_pandas", "unchanged"])
def test_file_counts_as_changed_when_a_pipe_takes_its_place(source: Source, way: str) -> None:
    delta = source.bookmark().new_files()
    (source.root / "a.csv").unlink()
    os.mkfifo(source.root / "a.csv")

    with pytest.raises(ChangedObjectError) as caught:
        OPENERS[way](delta)

    assert list(caught.value.overwritten) == ["a.csv"]
