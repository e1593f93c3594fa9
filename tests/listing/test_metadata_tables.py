"""S3 Metadata tables: the changes since a position, the objects that exist, and problems with the tables."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyiceberg.catalog.rest import RestCatalog

from scripts.helpers.errors import (
    CredentialsError,
    InvalidValueError,
    SourceError,
    SourceUnavailableError,
    WatermarkError,
)
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.metadata_tables import S3MetadataInventory, S3MetadataJournal
from tests.support.metadata_tables import NAMESPACE, MetadataTables

IN = Location.parse("s3://landing/in/")
NOON = datetime(2026, 3, 16, 12, tzinfo=timezone.utc)


@pytest.fixture
def tables(tmp_path: Path) -> MetadataTables:
    return MetadataTables(tmp_path / "tables", "landing", NOON)


def journal(tables: MetadataTables, **options: Any) -> S3MetadataJournal:
    return S3MetadataJournal(tables.catalog, NAMESPACE, **options)


def keys_of(changes: pa.Table | None) -> list[str]:
    assert changes is not None
    return sorted(changes.column("key").to_pylist())


# --- the journal -----------------------------------------------------------------------------------------------------


def test_changes_are_those_below_the_source_when_the_position_is_known(tables: MetadataTables) -> None:
    tables.record(tables.row("in/old.csv", e_tag="e", size=1))
    first = journal(tables).read(IN, None)
    tables.wait(hours=1)
    tables.record(
        tables.row("in/é/a.csv", e_tag='"e1"', size=7),
        tables.row("out/b.csv", e_tag="e2", size=1),
        tables.row("in/c.csv", e_tag="e3", size=1, bucket="another"),
        tables.deleted("in/old.csv", version_id="v1"),
    )

    second = journal(tables).read(IN, first.position)

    assert (first.changes, first.position["until"]) == (None, NOON)
    assert first.lost == "the journal is read for the first time"
    assert second.lost is None
    assert second.changes is not None
    assert second.changes.sort_by([("key", "ascending"), ("deleted", "ascending")]).to_pylist() == [
        {"key": "old.csv", "etag": "e", "version_id": None, "size": 1, "deleted": False},
        {"key": "old.csv", "etag": None, "version_id": "v1", "size": None, "deleted": True},
        {"key": "é/a.csv", "etag": "e1", "version_id": None, "size": 7, "deleted": False},
    ]
    assert second.position == {"uuid": first.position["uuid"], "until": tables.now}


def test_late_record_is_read_when_it_is_within_the_overlap(tables: MetadataTables) -> None:
    tables.record(tables.row("in/a.csv"))
    position = journal(tables).read(IN, None).position
    tables.wait(hours=-2)
    tables.record(tables.row("in/late.csv"))
    tables.wait(hours=-2)
    tables.record(tables.row("in/too late.csv"))

    found = journal(tables, overlap=timedelta(hours=3)).read(IN, position)

    assert keys_of(found.changes) == ["a.csv", "late.csv"]
    assert found.position == position


def test_all_records_are_read_when_the_journal_was_empty_before(tables: MetadataTables) -> None:
    position = journal(tables).read(IN, None).position
    empty = journal(tables).read(IN, position)
    tables.record(tables.row("in/a.csv"))

    found = journal(tables).read(IN, position)

    assert (keys_of(empty.changes), keys_of(found.changes)) == ([], ["a.csv"])
    assert (position["until"], found.position["until"]) == (None, NOON)


def test_snapshot_may_expire_when_the_records_are_there_still(tables: MetadataTables) -> None:
    """S3 keeps snapshots of these tables for one day at most."""
    tables.record(tables.row("in/a.csv"))
    position = journal(tables).read(IN, None).position
    tables.wait(hours=30)
    tables.record(tables.row("in/b.csv"))
    table = tables.table("journal")
    old = [shot.snapshot_id for shot in table.snapshots() if shot.snapshot_id != table.current_snapshot().snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()

    found = journal(tables).read(IN, position)

    assert (found.lost, keys_of(found.changes)) == (None, ["a.csv", "b.csv"])


def test_lost_says_why_when_records_since_the_position_have_expired(tables: MetadataTables) -> None:
    tables.record(tables.row("in/a.csv"))
    position = journal(tables).read(IN, None).position
    tables.wait(days=9)
    tables.record(tables.row("in/b.csv"))
    tables.expire_records(NOON + timedelta(days=1))

    found = journal(tables).read(IN, position)

    assert (found.changes, found.lost) == (None, "records since 2026-03-16T12:00:00Z have expired")
    assert found.position["until"] == tables.now


def test_lost_says_why_when_the_journal_has_no_snapshot_any_more(tables: MetadataTables) -> None:
    position = {**journal(tables).read(IN, None).position, "until": NOON}

    found = journal(tables).read(IN, position)

    assert (found.changes, found.lost) == (None, "records since 2026-03-16T12:00:00Z have expired")
    assert found.position == position


@pytest.mark.parametrize("damaged", [False, True])
def test_lost_says_why_when_the_table_was_made_anew(tables: MetadataTables, damaged: bool) -> None:
    tables.record(tables.row("in/a.csv"))
    position: Any = journal(tables).read(IN, None).position
    if damaged:
        position = "not a position"
    else:
        tables.make()

    found = journal(tables).read(IN, position)

    assert (found.changes, found.lost) == (None, "the journal is another table than before: it was created again")


def test_newest_record_is_found_when_the_files_have_no_statistics(tables: MetadataTables) -> None:
    with tables.table("journal").transaction() as change:
        change.set_properties({"write.metadata.metrics.default": "none"})
    tables.record(tables.row("in/a.csv"))

    assert journal(tables).read(IN, None).position["until"] == NOON


@pytest.mark.parametrize("ahead", [timedelta(days=10), timedelta(days=300 * 365)], ids=str)
@pytest.mark.parametrize("is_alone", [True, False])
def test_position_stays_at_a_record_of_the_past_when_another_one_is_of_the_future(
    tables: MetadataTables, caplog: pytest.LogCaptureFixture, ahead: timedelta, is_alone: bool
) -> None:
    read = journal(tables, clock=lambda: tables.now).read
    tables.record(tables.row("in/a.csv"))
    first = read(IN, None)
    late = (NOON + ahead).replace(tzinfo=None)
    tables.wait(hours=1)
    tables.record(tables.row("in/late.csv", record_timestamp=late), *([] if is_alone else [tables.row("in/b.csv")]))

    second = read(IN, first.position)
    tables.wait(hours=1)
    tables.record(tables.row("in/c.csv"))
    third = read(IN, second.position)

    assert second.position["until"] == (NOON if is_alone else NOON + timedelta(hours=1))
    assert third.lost is None
    assert {"late.csv", "c.csv"} <= set(keys_of(third.changes))
    assert "event=record_of_the_future" in caplog.text
    assert f"records=1 newest={NOON + ahead}" in caplog.text


def test_lost_says_why_when_an_earlier_version_has_stored_a_position_of_the_future(tables: MetadataTables) -> None:
    tables.record(tables.row("in/a.csv"), tables.row("in/late.csv", record_timestamp=datetime(2026, 4, 1)))
    read = journal(tables, clock=lambda: NOON).read
    position = {**read(IN, None).position, "until": datetime(2026, 4, 1, tzinfo=timezone.utc)}

    found = read(IN, position)

    assert found.lost == "the last run read up to 2026-04-01T00:00:00Z, a future time"
    assert found.position["until"] == NOON


def test_error_names_the_type_when_a_record_is_of_an_unknown_one(tables: MetadataTables) -> None:
    position = journal(tables).read(IN, None).position
    tables.record(tables.row("in/a.csv", record_type="RESTORE"))

    with pytest.raises(SourceError, match="type 'RESTORE', which is unknown"):
        journal(tables).read(IN, position)


def test_error_names_the_columns_when_the_table_is_another(tables: MetadataTables) -> None:
    tables.catalog.drop_table(f"{NAMESPACE}.journal")
    tables.catalog.create_table(f"{NAMESPACE}.journal", pa.schema([("key", pa.string())]))

    with pytest.raises(SourceError, match=r"no column bucket, record_type.*It has: key"):
        journal(tables).read(IN, None)


def test_error_names_the_table_when_it_is_not_there(tables: MetadataTables) -> None:
    tables.catalog.drop_table(f"{NAMESPACE}.journal")

    with pytest.raises(SourceError, match=r"'b_landing.journal': it cannot be read \(NoSuchTableError\)"):
        journal(tables).read(IN, None)


def test_error_is_raised_when_its_files_are_gone(tables: MetadataTables, tmp_path: Path) -> None:
    position = journal(tables).read(IN, None).position
    tables.record(tables.row("in/a.csv"))
    for file in (tmp_path / "tables").rglob("data/*.parquet"):
        file.unlink()

    with pytest.raises(SourceError, match="it cannot be read"):
        journal(tables).read(IN, position)


CONFIG = b'{"defaults": {}, "overrides": {}}'


class Catalog(BaseHTTPRequestHandler):
    """A REST catalog that answers every question about tables with one status; if the status is 0, it hangs up."""

    status = 0

    def do_GET(self) -> None:
        is_config = "config" in self.path
        if not is_config and not self.status:
            self.close_connection = True
            return
        body = CONFIG if is_config else b"{}"
        self.send_response(200 if is_config else self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (0, SourceUnavailableError, "ConnectionError"),
        (401, CredentialsError, "UnauthorizedError"),
        (403, SourceError, "ForbiddenError"),
        (429, SourceUnavailableError, "TooManyRequestsError"),
        (500, SourceUnavailableError, "ServerError"),
        (503, SourceUnavailableError, "ServiceUnavailableError"),
    ],
)
def test_error_says_who_is_to_act_when_the_catalog_fails(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: type[WatermarkError], reason: str
) -> None:
    monkeypatch.setattr(Catalog, "status", status)
    with ThreadingHTTPServer(("127.0.0.1", 0), Catalog) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        catalog = RestCatalog("rest", uri=f"http://127.0.0.1:{server.server_address[1]}")
        for read in (
            lambda: S3MetadataJournal(catalog, NAMESPACE).read(IN, None),
            lambda: S3MetadataInventory(catalog, NAMESPACE).created,
        ):
            with pytest.raises(WatermarkError, match=reason) as caught:
                read()
            assert type(caught.value) is kind
        server.shutdown()


class Failing:
    """A catalog whose every answer is the same error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def load_table(self, _: str) -> Any:
        raise self._error


def test_login_of_glue_is_named_when_its_catalog_does_not_accept_it() -> None:
    refused: Any = {"Error": {"Code": "ExpiredTokenException", "Message": "expired"}}
    catalog = Failing(ClientError(refused, "GetTable"))

    with pytest.raises(CredentialsError) as caught:
        journal_of(catalog).read(IN, None)

    assert str(caught.value) == "AWS does not accept the credentials (ExpiredTokenException). Renew them."


def test_outage_names_the_table_when_the_catalog_of_glue_cannot_be_reached() -> None:
    catalog = Failing(EndpointConnectionError(endpoint_url="https://glue"))

    with pytest.raises(SourceUnavailableError) as caught:
        journal_of(catalog).read(IN, None)

    assert (caught.value.source, caught.value.cause) == (f"{NAMESPACE}.journal", "EndpointConnectionError")


def test_error_of_a_catalog_of_ones_own_is_left_as_it_is_when_it_says_nothing_of_tables() -> None:
    error = RuntimeError("mine")

    with pytest.raises(RuntimeError) as caught:
        journal_of(Failing(error)).read(IN, None)

    assert caught.value is error


def journal_of(catalog: Any) -> S3MetadataJournal:
    return S3MetadataJournal(catalog, NAMESPACE)


def test_table_is_named_when_a_source_is_shown(tables: MetadataTables) -> None:
    inventory = S3MetadataInventory(tables.catalog, NAMESPACE)

    assert repr(journal(tables)) == "<S3MetadataJournal 'b_landing.journal'>"
    assert repr(inventory) == "<S3MetadataInventory 'b_landing.inventory'>"


@pytest.mark.parametrize("source", ["/tmp/landing", "gs://landing/in/"])
def test_error_says_so_when_the_source_is_no_bucket_of_s3(tables: MetadataTables, source: str) -> None:
    for read in (
        lambda: journal(tables).read(Location.parse(source), None),
        lambda: S3MetadataInventory(tables.catalog, NAMESPACE).list_objects(Location.parse(source)),
    ):
        with pytest.raises(SourceError, match="are of buckets of S3"):
            read()


@pytest.mark.parametrize("overlap", [timedelta(hours=-3), timedelta(0), timedelta(minutes=119)], ids=str)
def test_invalid_value_names_the_least_when_the_overlap_is_shorter(tables: MetadataTables, overlap: timedelta) -> None:
    with pytest.raises(InvalidValueError, match="of 2:00:00 or more"):
        journal(tables, overlap=overlap)


# --- the live inventory ----------------------------------------------------------------------------------------------


def test_newest_versions_that_are_there_are_listed_when_the_inventory_has_them_all(tables: MetadataTables) -> None:
    tables.list(
        tables.row("in/b.csv", e_tag="old", size=1, version_id="v1"),
        tables.row("in/b.csv", e_tag='"new"', size=2, version_id="v2", storage_class="GLACIER"),
        tables.row("in/gone.csv", e_tag="e", size=1, version_id="v1"),
        tables.row("in/gone.csv", is_delete_marker=True, version_id="v2"),
        tables.row("in/a.csv", e_tag="e", size=3),
        tables.row("out/a.csv", e_tag="e", size=3),
    )
    inventory = S3MetadataInventory(tables.catalog, NAMESPACE)
    committed = tables.table("inventory").current_snapshot().timestamp_ms / 1_000

    rows = [row for interval in inventory.list_objects(IN) for row in interval.rows.to_pylist()]

    common = {"version_id": None, "modified": NOON}
    assert rows == [
        common | {"key": "a.csv", "etag": "e", "size": 3, "storage_class": "STANDARD"},
        common | {"key": "b.csv", "etag": "new", "size": 2, "storage_class": "GLACIER"},
    ]
    assert inventory.created == datetime.fromtimestamp(committed, timezone.utc) - timedelta(hours=1)


@pytest.mark.parametrize("keys", [["out/a.csv"], []], ids=["other prefix", "emptied"])
def test_nothing_is_listed_when_the_inventory_has_nothing_below_the_source(
    tables: MetadataTables, keys: list[str]
) -> None:
    tables.list(tables.row("out/a.csv", e_tag="e", size=1))
    if not keys:
        tables.table("inventory").delete("true")

    listed = list(S3MetadataInventory(tables.catalog, NAMESPACE).list_objects(IN))

    assert sum(interval.rows.num_rows for interval in listed) == 0


def test_error_asks_to_wait_when_the_inventory_is_still_filled(tables: MetadataTables) -> None:
    with pytest.raises(SourceError, match="S3 is still filling it"):
        _ = S3MetadataInventory(tables.catalog, NAMESPACE).created


def test_error_counts_objects_when_they_have_no_identity(tables: MetadataTables) -> None:
    tables.list(tables.row("in/a.csv", size=1), tables.row("in/b.csv", e_tag="e", size=1))

    with pytest.raises(SourceError, match="1 objects have no e_tag"):
        S3MetadataInventory(tables.catalog, NAMESPACE).list_objects(IN)
