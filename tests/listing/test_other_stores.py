"""Stores that only obstore can list: the same bookmark, tested with obstore's own in-memory store."""

from __future__ import annotations

import sys
from typing import Any, cast

import obstore
import obstore.store
import pytest

from scripts.helpers.errors import LedgerError, SourceError
from scripts.helpers.files.bookmark import FileBookmark


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the bucket `landing` of any store with an in-memory store."""
    memory = obstore.store.MemoryStore()
    asked: list[str] = []

    def from_url(url: str) -> Any:
        asked.append(url)
        return memory

    monkeypatch.setattr(obstore.store, "from_url", from_url)
    return memory


@pytest.mark.parametrize(
    "source", ["gs://landing/parking/", "abfss://landing@account.dfs.core.windows.net/parking/"], ids=["gcs", "azure"]
)
def test_new_objects_are_found_when_the_store_is_not_s3(store: Any, source: str) -> None:
    obstore.put(store, "parking/b/1.csv", b"one")
    obstore.put(store, "parking/a/1.csv", b"one")
    obstore.put(store, "parking-old/1.csv", b"no")
    first = FileBookmark(source)
    taken = first.new_files()
    obstore.put(store, "parking/a/1.csv", b"other")

    second = FileBookmark(source, state=first.state_after).new_files()

    assert taken.paths == [f"{source}a/1.csv", f"{source}b/1.csv"]
    assert second.paths == [f"{source}a/1.csv"]


def test_marker_of_a_folder_is_left_out_when_obstore_shows_it_as_an_object(store: Any) -> None:
    for key, body in (("parking/a", b""), ("parking/a/1.csv", b"one"), ("parking/empty", b"")):
        obstore.put(store, key, body)

    delta = FileBookmark("gs://landing/parking/").new_files()

    assert [file.key for file in delta.files] == ["a/1.csv", "empty"]


def test_source_is_refused_when_the_store_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise obstore.exceptions.PermissionDeniedError("denied")

    monkeypatch.setattr(obstore.store, "from_url", refuse)

    with pytest.raises(SourceError, match=r"gs://landing/parking/.*denied.*Check the name and the login"):
        FileBookmark("gs://landing/parking/").new_files()


def test_package_is_named_when_obstore_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(SourceError) as caught:
        FileBookmark("gs://landing/parking/").new_files()

    assert str(caught.value) == ("Source 'gs://landing/parking/': it needs obstore. Install it: pip install obstore.")


def test_files_are_checked_again_when_the_store_is_not_s3(store: Any) -> None:
    obstore.put(store, "parking/1.csv", b"one")
    obstore.put(store, "parking/2.csv", b"two")
    delta = FileBookmark("gs://landing/parking/").new_files()
    obstore.put(store, "parking/2.csv", b"other")

    assert [file.key for file in delta.unchanged("skip").files] == ["1.csv"]


def test_ledger_is_refused_when_it_would_lie_in_a_store_that_is_not_s3(store: Any) -> None:
    with pytest.raises(LedgerError, match=r"gs://ledgers/.*Use s3://bucket/prefix/"):
        FileBookmark("gs://landing/parking/", ledger_uri="gs://ledgers/")


def test_small_files_are_refused_when_the_store_is_not_s3(store: Any) -> None:
    obstore.put(store, "parking/1.json", b"{}")
    delta = FileBookmark("gs://landing/parking/").new_files()

    with pytest.raises(SourceError, match=r"gs:// is not fetched here\. Spark's own reader can: read"):
        delta.read_small(cast("Any", None), "json", "id BIGINT")
