"""Read S3 Metadata tables with `pyiceberg`: the journal of a bucket's changes, and its live inventory.

The columns are those of Amazon S3's documentation ("S3 Metadata journal tables schema" and "S3 Metadata live inventory
tables schema"). These tables lag behind the bucket, so they are hints: S3 is asked before an object is planned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.display.units import MAX_AHEAD
from scripts.helpers.errors import (
    CredentialsError,
    InvalidValueError,
    SourceError,
    SourceUnavailableError,
    WatermarkError,
)
from scripts.helpers.listing.listing import Location, split_into_intervals
from scripts.helpers.listing.objects import EPOCH, LISTED, Interval
from scripts.helpers.listing.s3 import login_or_load

logger = logging.getLogger(__name__)

JOURNAL, INVENTORY = "journal", "inventory"
"""S3's names for the tables in the namespace of a bucket."""
OVERLAP = timedelta(days=1)
"""How far back each run reads records again. S3 keeps snapshots of these tables for 24 hours at most, so new records
are found by time, not by snapshot. A record may reach the table after a later one, usually within minutes."""
LEAST_OVERLAP = timedelta(hours=2)
"""Smallest overlap. A first run may read the live inventory, which lacks the last hour: the journal has it."""
BEHIND = timedelta(hours=1)
"""How far the live inventory lags behind the bucket: updates are "typically reflected within one hour"."""
_LATER = {
    "ConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ServerError",
    "ServiceUnavailableError",
    "TooManyRequestsError",
}
_LOGIN = {"AuthorizationExpiredError", "OAuthError", "SignError", "UnauthorizedError"}
"""Names of errors, like those in `_LATER`: of pyiceberg, and of requests, which it uses for REST catalogs."""
DELETE = "DELETE"
_KINDS = {"CREATE", "UPDATE_METADATA", DELETE}
_RECORD = ("bucket", "key", "record_type", "record_timestamp", "version_id", "size", "e_tag")
_OBJECT = (
    "bucket", "key", "sequence_number", "version_id", "is_delete_marker", "size", "last_modified_date", "e_tag",
    "storage_class",
)  # fmt: skip
CHANGES = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("etag", pa.string()),
        pa.field("version_id", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("deleted", pa.bool_()),
    ]
)
"""Changes of objects; `key` is relative to the location. The identity is null if S3 no longer knew it."""


class Recorded(NamedTuple):
    """The result of reading a journal for a location.

    Attributes
    ----------
    changes
        A table of schema CHANGES, in no order; a key may occur several times. None if `lost` gives a reason.
    position
        The table's uuid and the UTC time of its newest record. Pass it to the next `read`, which starts there.
    lost
        Why the changes since the last position are unknown and a full listing is needed; None if they are known.
    since
        The time from which the next `read` returns all changes. None if the table was replaced, because the new table
        lacks the last records of the old table.
    """

    changes: pa.Table | None
    position: Mapping[str, Any]
    lost: str | None
    since: datetime | None


class S3MetadataJournal:
    """The journal table of S3 Metadata: the changes of a bucket's objects, for `new_files(metadata=…)`.

    A run reads the records since the last run, and asks S3 about the objects that they name, unless the ledger has
    the same identities. So the cost depends on what has changed, and nothing is listed. Records up to `overlap` older
    than the newest record are read again, because records may arrive late and out of order.

    Parameters
    ----------
    catalog
        A `pyiceberg` catalog with the table, such as the REST endpoint of S3 Tables or of AWS Glue.
    namespace
        The namespace of the bucket's tables there, such as ``b_landing``.
    overlap
        How late a record may arrive. Records that arrive later are missed until a full listing: see `relist`.
    clock
        Returns the current time as an aware datetime. A record more than 15 minutes later than this time is read and
        logged as a WARNING, but the position does not move up to it.

    Raises
    ------
    InvalidValueError
        `overlap` is less than 2 hours.
    """

    def __init__(
        self, catalog: Any, namespace: str, *, overlap: timedelta = OVERLAP,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:  # fmt: skip
        if overlap < LEAST_OVERLAP:
            raise InvalidValueError(
                f"overlap is {overlap}, and records may come later. Give a timedelta of {LEAST_OVERLAP} or more."
            )
        self._table, self._overlap = _MetadataTable(catalog, f"{namespace}.{JOURNAL}", _RECORD), overlap
        self._clock = clock

    def __repr__(self) -> str:
        return f"<S3MetadataJournal {self._table.name!r}>"

    def read(self, location: Location, position: Mapping[str, Any] | None) -> Recorded:
        """Return the changes since a position, which an earlier call returned; None for the first call.

        Raises
        ------
        SourceError
            The location is not in an S3 bucket; or the table does not exist, lacks columns, has an unknown kind of
            change, or cannot be read.
        """
        _check_bucket(location)
        with self._table.reading():
            found = self._table.opened()
            before: Mapping[str, Any] = position if isinstance(position, Mapping) else {}
            same = before.get("uuid") == found.uuid
            until: datetime | None = before.get("until") if same else None
            limit = self._clock() + MAX_AHEAD
            ahead = until if until is not None and until > limit else None
            until = until if ahead is None else None
            newest = found.newest(until, limit) or until
            following = {"uuid": found.uuid, "until": newest}
            since = (newest or EPOCH) - self._overlap
            lost = None
            if position is None:
                lost = "the journal is read for the first time"
            elif not same:
                lost = "the journal is another table than before: it was created again"
            elif ahead is not None:
                lost = f"the last run read up to {ahead:%Y-%m-%dT%H:%M:%S}Z, a future time"
            elif until is not None and not found.has_record_of(until):
                # The last record that was read has expired, so newer, unread records may have expired, too.
                lost = f"records since {until:%Y-%m-%dT%H:%M:%S}Z have expired"
            changes = None
            if lost is None:
                changes = self._changes(found, location, None if until is None else until - self._overlap)
            return Recorded(changes, following, lost, since if same or position is None else None)

    def _changes(self, found: _Opened, location: Location, since: datetime | None) -> pa.Table:
        rows = found.rows(location, since)
        kinds = set(rows.column("record_type").unique().to_pylist())
        if unknown := kinds - _KINDS:
            raise SourceError(
                self._table.name, f"it has records of type {min(map(str, unknown))!r}, which is unknown. Update the "
                "package, or list the source.",
            )  # fmt: skip
        etags = pc.utf8_trim(rows.column("e_tag"), characters='"')
        return pa.Table.from_arrays(
            [
                _relative(rows, location), etags, rows.column("version_id"), rows.column("size"),
                pc.equal(rows.column("record_type"), DELETE),
            ],
            schema=CHANGES,
        )  # fmt: skip


class S3MetadataInventory:
    """The live inventory table of S3 Metadata as a report of all objects, for `new_files(listing=…)`.

    Each run reads all rows of the table below the source, and lists nothing. The table lags up to an hour behind the
    bucket: a later run takes younger objects, and a known object that the table lacks counts as gone only if S3
    confirms it.

    Parameters
    ----------
    catalog, namespace
        As for `S3MetadataJournal`.
    """

    def __init__(self, catalog: Any, namespace: str) -> None:
        self._table = _MetadataTable(catalog, f"{namespace}.{INVENTORY}", _OBJECT)
        self._found: _Opened | None = None

    def __repr__(self) -> str:
        return f"<S3MetadataInventory {self._table.name!r}>"

    @property
    def created(self) -> datetime:
        """The time up to which the table is complete, in UTC: an hour before its snapshot. SourceError if none."""
        with self._table.reading():
            # Keep the snapshot: `list_objects` must not read a later one, which is complete up to another time.
            self._found = self._table.opened()
            if self._found.committed is None:
                raise SourceError(
                    self._table.name,
                    "it has no snapshot: S3 is still filling it. Wait until its status is ACTIVE, or list the source.",
                )
            return self._found.committed - BEHIND

    def list_objects(self, location: Location) -> Iterable[Interval]:
        """Return the existing objects below a location, sorted by key, in intervals: ranges that cover all keys.

        Raises
        ------
        SourceError
            As for `S3MetadataJournal.read`, or an object has no ETag, size or time.
        """
        _check_bucket(location)
        if self._found is None:
            _ = self.created
        assert self._found is not None
        with self._table.reading():
            rows = self._found.rows(location, None)
        # The table has all versions, and delete markers. The newest version of a key has the largest sequence number.
        rows = rows.sort_by([("key", "ascending"), ("sequence_number", "ascending")])
        keys = rows.column("key").combine_chunks()
        following = pa.concat_arrays([keys.slice(1), pa.nulls(min(len(keys), 1), pa.string())])
        newest = rows.filter(pc.invert(pc.fill_null(pc.equal(keys, following), False)))
        there = newest.filter(pc.invert(pc.fill_null(newest.column("is_delete_marker"), False)))
        for name in ("e_tag", "size", "last_modified_date"):
            if there.column(name).null_count:
                raise SourceError(
                    self._table.name,
                    f"{there.column(name).null_count:,} objects have no {name}, so they cannot be distinguished. "
                    "List the source.",
                )
        listed = pa.Table.from_arrays(
            [
                _relative(there, location), pc.utf8_trim(there.column("e_tag"), characters='"'),
                # Leave out the VersionIds, as a listing does, so that an object has the same identity in both.
                pa.nulls(there.num_rows, pa.string()), there.column("size"),
                _as_utc(there.column("last_modified_date")), there.column("storage_class"),
            ],
            schema=LISTED,
        )  # fmt: skip
        return split_into_intervals(listed, None, None)


class _Opened:
    """One snapshot of a metadata table."""

    def __init__(self, table: Any, columns: Sequence[str]) -> None:
        snapshot = table.current_snapshot()
        self._table, self._columns = table, columns
        self._snapshot_id: int | None = snapshot.snapshot_id if snapshot is not None else None
        self.uuid = str(table.metadata.table_uuid)
        self.committed: datetime | None = None
        if snapshot is not None:
            self.committed = datetime.fromtimestamp(snapshot.timestamp_ms / 1_000, timezone.utc)

    def newest(self, since: datetime | None, limit: datetime) -> datetime | None:
        """Return the time of the newest record from `since` to `limit`, both included; None if there is none."""
        if self._snapshot_id is None:
            return None
        from pyiceberg.conversions import from_bytes

        field = self._table.schema().find_field("record_timestamp")
        files = list(self._scan(self._not_before(since)).plan_files())
        bounds: list[Any] = [(task.file.upper_bounds or {}).get(field.field_id) for task in files]
        if not bounds:
            return None
        if None not in bounds:
            newest: Any = max(from_bytes(field.field_type, bound) for bound in bounds)
            if (found := EPOCH + timedelta(microseconds=newest)) <= limit:
                return found
        # Read all times, because the statistics of some file lack this column or show a time after `limit`.
        times = _as_utc(self._scan(self._not_before(since), ("record_timestamp",)).to_arrow().column(0))
        there = times.filter(pc.less_equal(times, pa.scalar(limit, times.type)))
        if len(there) < len(times):
            logger.warning(
                "event=record_of_the_future table=%s records=%d newest=%s: these records lie in the future, so the "
                "position stays at or before %s. Check the clock of this machine, and what writes the table.",
                ".".join(self._table.name()), len(times) - len(there), pc.max(times).as_py(), limit,
            )  # fmt: skip
        last: datetime | None = pc.max(there).as_py()
        return last

    def has_record_of(self, moment: datetime) -> bool:
        """Return whether the table has a record with exactly this time."""
        if self._snapshot_id is None:
            return False
        found = self._scan(
            _expressions().EqualTo("record_timestamp", self._literal(moment)), ("record_timestamp",), 1
        ).to_arrow()
        return bool(found.num_rows)

    def rows(self, location: Location, since: datetime | None) -> pa.Table:
        """Return the table's rows for keys below a location; with `since`, only records of that time or later."""
        if self._snapshot_id is None:
            return self._table.schema().as_arrow().empty_table().select(list(self._columns))
        make = _expressions()
        chosen = make.And(self._not_before(since), make.EqualTo("bucket", location.bucket))
        if location.prefix:
            chosen = make.And(chosen, make.StartsWith("key", location.prefix))
        rows = self._scan(chosen, self._columns).to_arrow().select(list(self._columns))
        # Cast large_string, which pyiceberg returns for texts if no file can have matching rows.
        kinds = [field.with_type(pa.string()) if field.type == pa.large_string() else field for field in rows.schema]
        return rows.cast(pa.schema(kinds))

    def _not_before(self, since: datetime | None) -> Any:
        make = _expressions()
        return make.AlwaysTrue() if since is None else make.GreaterThanOrEqual("record_timestamp", self._literal(since))

    def _literal(self, moment: datetime) -> str:
        # S3's times are UTC without a zone. Iceberg requires a literal with a zone only if the column has one.
        text = moment.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds")
        with_zone = str(self._table.schema().find_field("record_timestamp").field_type) == "timestamptz"
        return f"{text}+00:00" if with_zone else text

    def _scan(self, chosen: Any, columns: Sequence[str] = ("*",), limit: int | None = None) -> Any:
        return self._table.scan(
            row_filter=chosen, selected_fields=tuple(columns), snapshot_id=self._snapshot_id, limit=limit
        )


class _MetadataTable:
    """Opens a table of a catalog, checks that it has the needed columns, and translates errors."""

    def __init__(self, catalog: Any, name: str, columns: Sequence[str]) -> None:
        self.name, self._catalog, self._columns = name, catalog, columns

    def opened(self) -> _Opened:
        table = self._catalog.load_table(self.name)
        there = {field.name for field in table.schema().fields}
        missing = [column for column in self._columns if column not in there]
        if missing:
            raise SourceError(
                self.name, f"it has no column {', '.join(missing)}, so it is not such a table of S3 Metadata. It has: "
                f"{', '.join(sorted(there)) or 'none'}. Check the namespace.",
            )  # fmt: skip
        return _Opened(table, self._columns)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Translate errors of the catalog or of files to SourceError, CredentialsError or SourceUnavailableError."""
        try:
            yield
        except WatermarkError:
            raise
        except Exception as error:
            if told := _login_or_load(self.name, error):
                raise told from error
            ours = type(error).__module__.startswith(("pyiceberg", "pyarrow", "botocore", "requests"))
            if not ours and not isinstance(error, OSError):
                raise
            raise SourceError(
                self.name, f"it cannot be read ({type(error).__name__}). Check the catalog, the namespace and the "
                "rights there; meanwhile list the source.",
            ) from error  # fmt: skip


def _login_or_load(name: str, error: Exception) -> WatermarkError | None:
    """Return the error to raise if the catalog refuses the login, or is down or too busy; None for other errors."""
    kind = type(error).__name__
    if told := login_or_load(name, error):  # The error is from boto3, which calls the Glue catalog.
        return told
    if kind in _LATER:
        return SourceUnavailableError(name, kind)
    if kind in _LOGIN:
        return CredentialsError(f"The catalog of {name!r} does not accept the credentials ({kind}). Renew them.")
    return None


def _expressions() -> Any:
    """Return `pyiceberg.expressions` as Any: type checkers require JSON names as keywords in `EqualTo("key", "a")`."""
    from pyiceberg import expressions

    return expressions


def _check_bucket(location: Location) -> None:
    if not location.is_s3:
        raise SourceError(str(location), "S3 Metadata tables are of buckets of S3. Call new_files without them.")


def _relative(rows: pa.Table, location: Location) -> Any:
    return pc.utf8_slice_codeunits(rows.column("key"), start=len(location.prefix))


def _as_utc(times: pa.ChunkedArray) -> Any:
    """Return times with the time zone UTC. S3 Metadata writes times in UTC without a time zone."""
    if times.type.tz is None:
        times = pc.assume_timezone(times, "UTC")
    return times.cast(LISTED.field("modified").type)
