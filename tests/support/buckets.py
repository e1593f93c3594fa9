"""A bucket in memory that is its own listing, and a table in memory that stores the state of a bookmark."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from scripts.helpers.files.bookmark import FileBookmark, FilesTaken
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.sources import ListingSource, Told
from scripts.helpers.listing.cuts import parted
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import LISTED, Interval, byte_order
from scripts.helpers.protocol.chunks import join, lazy_blobs, take_blobs
from scripts.helpers.protocol.values import Spilled, decode, encode

SOURCE = "s3://landing/parking/"
NOON = datetime(2026, 3, 16, 12, tzinfo=timezone.utc)


class Bucket:
    """The objects under a prefix. It is a `ListingSource` whose clock is `now`.

        Parameters
        ----------
    page
            The number of objects in one interval.
    """

    def __init__(self, now: datetime = NOON, page: int = 1_000) -> None:
        self.now, self.page = now, page
        self.objects: dict[str, dict[str, Any]] = {}

    def put(
        self,
        *keys: str,
        body: str = "x",
        at: datetime | None = None,
        size: int | None = None,
        storage_class: str | None = "STANDARD",
    ) -> None:
        for key in keys:
            self.objects[key] = {
                "key": key,
                "etag": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
                "version_id": None,
                "size": len(body) if size is None else size,
                "modified": at or self.now,
                "storage_class": storage_class,
            }

    def delete(self, *keys: str) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def look_at_each(self, keys: Collection[str]) -> pa.Table:
        """Return those of the given objects that exist."""
        rows = [self.objects[key] for key in sorted(keys, key=byte_order) if key in self.objects]
        return pa.Table.from_pylist(rows, LISTED)

    def report(self) -> Bucket:
        """Return a copy of the bucket as an inventory made now reports it, whatever changes later."""
        made = Bucket(self.now, self.page)
        made.objects = {key: dict(row) for key, row in self.objects.items()}
        return made

    def wait(self, **by: float) -> None:
        self.now += timedelta(**by)

    @property
    def created(self) -> datetime:
        return self.now

    def list_objects(self, location: Location) -> Iterator[Interval]:
        rows = [self.objects[key] for key in sorted(self.objects, key=byte_order)]
        after = None
        for start in range(0, max(len(rows), 1), self.page):
            part = rows[start : start + self.page]
            until = part[-1]["key"] if start + self.page < len(rows) else None
            yield Interval(after, until, pa.RecordBatch.from_pylist(part, LISTED))
            after = until


class LiveListing:
    """A `Listing` of S3, faked with a bucket: it lists the keys above `after` up to and including `until`."""

    def __init__(self, bucket: Bucket, location: Location, after: str | None = None, until: str | None = None) -> None:
        self.started, self._bucket, self._location = bucket.now, bucket, location
        self._after, self._until = after, until

    def __iter__(self) -> Iterator[Interval]:
        ends = [end for end in (self._after, self._until) if end is not None]
        for interval in self._bucket.list_objects(self._location):
            keys = interval.rows.column("key").to_pylist()
            for after, until in parted(ends, interval.after, interval.until):
                is_below = self._after is not None and (after is None or after < self._after)
                is_above = self._until is not None and (until is None or until > self._until)
                if not is_below and not is_above:
                    inside = [(after is None or key > after) and (until is None or key <= until) for key in keys]
                    yield Interval(after, until, interval.rows.filter(pa.array(inside, pa.bool_())))


class BucketLister:
    """A `Lister` that reads the objects of a bucket in memory."""

    def __init__(self, bucket: Bucket, location: Location) -> None:
        self._bucket, self._location = bucket, location

    def below(self, _folders: Sequence[str]) -> LiveListing:
        return LiveListing(self._bucket, self._location)

    def between(self, after: str | None, until: str | None) -> LiveListing:
        return LiveListing(self._bucket, self._location, after, until)

    def look_at(self, key: str) -> Any:
        return self._bucket.objects.get(key)

    @property
    def date(self) -> datetime:
        return self._bucket.now

    def look_at_each(self, keys: Collection[str]) -> pa.Table:
        return self._bucket.look_at_each(keys)


class Table:
    """Stores states and plans: values pass through the real serializer, and blobs are cut into chunks."""

    def __init__(self) -> None:
        self.chunks: dict[str, list[bytes]] = {}
        self._writes = 0

    def stored(self, values: Mapping[str, Any]) -> Any:
        """Store values and return them as a later run reads them."""
        self._writes += 1
        written: dict[str, list[bytes]] = {}
        attribute = encode({"value": take_blobs(values, "job", f"t{self._writes}", written, self.chunks)})
        self.chunks |= written
        return lazy_blobs(decode(*attribute)["value"], "job", self._read)

    def _read(self, reference: Spilled) -> Any:
        return join(reference, self.chunks[reference.id])


class Job:
    """Runs of a job over a bucket, one after another, and the state that is stored between them."""

    def __init__(self, bucket: Bucket | None = None, source: str = SOURCE, **options: Any) -> None:
        self.bucket, self.source, self.options = bucket or Bucket(), source, options
        self.table = Table()
        self.state: dict[str, Any] | None = None
        self.version = 0
        self.last: FileDelta = FileDelta(Location.parse(source))

    def bookmark(self, **options: Any) -> FileBookmark:
        """Return a bookmark that lists the bucket in its current state."""
        taken_by = (self.version + 1, f"run-{self.version + 1}")
        bookmark = FileBookmark(self.source, state=self.state, taken_by=taken_by, **{**self.options, **options})
        bookmark.lister = BucketLister(self.bucket, bookmark.location)  # type: ignore[assignment]
        return bookmark

    def take(self, report: ListingSource | None = None) -> list[str]:
        """Process one batch, found by a listing or by a report; return its keys."""
        return self.commit(self.bookmark().find(report))

    def take_told(self, told: Told) -> list[str]:
        """Process one batch of the files that events named; return its keys."""
        return self.commit(self.bookmark().find_among(told, self.bucket.now))

    def commit(self, found: FilesTaken) -> list[str]:
        """Store the state after a batch; return the batch's keys."""
        assert found.state is not None
        self.last, self.state = found.delta, self.table.stored(found.state.to_store())
        self.version += 1
        return keys_of(self.last)

    def segments(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = (self.state or {}).get("segments", ())
        return found


def keys_of(delta: FileDelta) -> list[str]:
    """Return the keys of a delta."""
    return [file.key for file in delta.files]
