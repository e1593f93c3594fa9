"""Files that could not be read, stored by key in the state of their source with the reason, until an operator decides.

Pure, and without pyarrow, because the command line reads and changes the list where pyarrow is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from scripts.helpers.errors import LedgerError, SourceError
from scripts.helpers.listing.paths import is_plain
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.fields import MAX_NUMBER, Fields
from scripts.helpers.protocol.packed_json import pack_json, unpack_json
from scripts.helpers.protocol.values import Spilled

MAX_SET_ASIDE = 1_000
"""Most files of one source that are set aside at once. More failures have a common cause, not bad files."""
MAX_LIST_BYTES = 8 * 1024 * 1024
"""Most bytes of an unpacked list: keys have at most 1,024 bytes each, and their JSON a few times as many."""

WAITING, RETRY, SKIP = "waiting", "retry", "skip"
"""What an operator decided about a file: nothing yet; the next batch checks and takes it; it counts as done."""

PACKED = (bytes, Blob, Spilled)
"""Types of packed bytes: bytes in the state itself, or in chunks beside it."""
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)
YEAR_1, YEAR_9999 = ((end.replace(tzinfo=timezone.utc) - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))
"""Limits of a file's time, in microseconds since 1970 UTC."""

GONE_REASON = "it is not there any more"


@dataclass(frozen=True)
class SetAside:
    """One file that was set aside: its planned identity, the reason, and the job's version and run that did it."""

    key: str
    etag: str | None
    version_id: str | None
    size: int
    modified: datetime
    reason: str
    version: int
    run_id: str
    decision: str = WAITING


def entry_of(row: Mapping[str, Any], reason: str, version: int, run_id: str) -> SetAside:
    """Return the entry for a row of a listing or a plan."""
    return SetAside(row["key"], row["etag"], row["version_id"], row["size"], row["modified"], reason, version, run_id)


@dataclass(frozen=True)
class SetAsideList:
    """The list of set-aside files as a state stores it: packed entries, and counts that need no unpacking.

    Attributes
    ----------
    count
        Number of files on the list.
    retry, skip
        Number of files that an operator decided to retry, or to skip.
    data
        The packed entries: bytes, or a reference to the items of the table (chunks) that store the bytes.
    """

    count: int
    retry: int
    skip: int
    data: Any

    @classmethod
    def read(cls, state: Fields) -> SetAsideList | None:
        """Read the list of a state as `to_store` wrote it, without unpacking it; ImplausibleError for anything else."""
        if "set_aside" not in state:
            return None
        fields = state.map("set_aside")
        count, retry, skip = (fields.whole(name, 0, most=MAX_SET_ASIDE) for name in ("count", RETRY, SKIP))
        return cls(count, retry, skip, fields.of("data", PACKED, "bytes"))

    @classmethod
    def of(cls, entries: Mapping[str, SetAside], source: str) -> SetAsideList | None:
        """Return the list that holds the entries; None if there are none. SourceError if there are too many."""
        if not entries:
            return None
        if len(entries) > MAX_SET_ASIDE:
            raise SourceError(source, reason="set_aside_full", count=len(entries), limit=MAX_SET_ASIDE)
        decisions = [entry.decision for entry in entries.values()]
        data = Blob(pack_json([_as_json(entry) for _, entry in sorted(entries.items())]))
        return cls(len(entries), decisions.count(RETRY), decisions.count(SKIP), data)

    @property
    def waiting(self) -> int:
        """Number of files that wait for a decision."""
        return max(self.count - self.retry - self.skip, 0)

    def to_store(self) -> dict[str, Any]:
        """Return the map that a state stores for the list."""
        decided = {name: count for name, count in ((RETRY, self.retry), (SKIP, self.skip)) if count}
        return {"count": self.count, **decided, "data": self.data}

    def entries(self, source: str) -> dict[str, SetAside]:
        """Return the unpacked entries by key; LedgerError if they are damaged."""
        try:
            found = unpack_json(self.data.data if isinstance(self.data, Blob) else self.data, MAX_LIST_BYTES)
            rows = Fields({"data": found}, "set_aside").maps("data", MAX_SET_ASIDE)
            entries = {entry.key: entry for entry in map(_from_json, rows)}
            if len(found) != self.count:
                raise ValueError("the count differs")
            # Allow keys such as `a//b`: S3 has them, and they are set aside because Spark cannot read them.
            outside = [key for key in entries if not is_plain(key, literal=True)]
        except ValueError as error:
            raise LedgerError(
                source,
                f"its list of files that are set aside is damaged ({error}). Restore the job's item from a backup.",
            ) from error
        if outside:
            detail = f"has the key {outside[0]!r}, which leads out of the source. Restore the job's item from a backup."
            raise LedgerError(source, f"its list of files that are set aside {detail}")
        return entries


def _as_json(entry: SetAside) -> dict[str, Any]:
    found = asdict(entry)
    found["modified"] = (entry.modified - EPOCH) // MICROSECOND
    return found


def _from_json(fields: Fields) -> SetAside:
    since_1970 = fields.whole("modified", least=YEAR_1, most=YEAR_9999) * MICROSECOND
    return SetAside(
        fields.of("key", str, "a text"), fields.of("etag", str, "a text", None),
        fields.of("version_id", str, "a text", None), fields.whole("size", most=MAX_NUMBER),
        EPOCH + since_1970, fields.of("reason", str, "a text"),
        fields.whole("version"), fields.of("run_id", str, "a text"), fields.one_of("decision", (WAITING, RETRY, SKIP)),
    )  # fmt: skip
