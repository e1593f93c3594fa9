"""Read a head in order to change it, and after each new version write its log entry and let the previous one expire."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from scripts.helpers.errors import ConfigurationError, InvalidValueError
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import Spilled, encode

# --- retention ------------------------------------------------------------------------------------
# Expiry of old versions. Chunks never expire before a head or an item that refers to them.

CHUNK_MARGIN = timedelta(days=3)
"""Time that chunks outlive the items that refer to them: runs whose clocks are a day off may set a version's expiry."""

PAGE = 25
"""Log entries per request when searching for older versions that share chunks."""


def expire_version(store: Store, entry: LogEntry, head: Head, at: datetime) -> None:
    """Set the expiry of a version older than the head: its log entry, its run item, and chunks the head does not use.

    Chunks expire later than every version that refers to them, even if the clock of another machine set the expiry of
    that version. Older versions that share these chunks and have no expiry yet get the same expiry as this version.
    Chunks that `head` refers to stay, and so does a run item that a later version has rewritten. The log entry's expiry
    is written last, so if the log entry has an expiry, the run item has one, too.
    """
    if entry.version >= head.version:
        return
    kept = {reference.id for reference in references(head.watermarks)}
    gone = {reference.id: reference for reference in references(entry.watermarks) if reference.id not in kept}
    older, at = _sharing(store, entry, gone, at)
    for version in (*reversed(older), entry):
        if version.change.run_id is not None:
            store.expire(entry.job_id, version.change.run_id, at, version.version)
        store.expire(entry.job_id, items.log_key(version.version), at)
    for reference in gone.values():
        store.expire_chunks(entry.job_id, reference, at + CHUNK_MARGIN)


def _sharing(store: Store, entry: LogEntry, gone: dict[str, Spilled], at: datetime) -> tuple[list[LogEntry], datetime]:
    """Return older versions that share chunks with `entry` and have no expiry, and when they and `entry` may expire.

    `gone` has the chunks of `entry` that the head does not use. If a version uses none of them, no older version does.
    """
    older: list[LogEntry] = []
    if not gone or entry.version == 1:
        return older, at
    for item in store.query(requests.log_query(entry.job_id, below=entry.version, page=PAGE)):
        version = items.log_from_item(item)
        shared = [reference for reference in references(version.watermarks) if reference.id in gone]
        if not shared:
            break
        if items.TTL_ATTRIBUTE in item:
            end = datetime.fromtimestamp(int(item[items.TTL_ATTRIBUTE]["N"]), timezone.utc)
            at = max(at, end)
        else:
            older.append(version)
    return older, at


# --- changes --------------------------------------------------------------------------------------


class Changes:
    """The steps before and after the one conditional write of a run, or of an operator's decision such as a rewind.

    Attributes
    ----------
    lookups : Lookups
        Reads heads and items of the original class.
    retention : timedelta or None
        How long a version is kept after a newer one was made; None: for ever.
    """

    def __init__(self, lookups: Lookups, retention: timedelta | None = None) -> None:
        self.lookups, self.retention = lookups, retention
        self._store = lookups.store

    def read_for_change(self, job_id: str) -> tuple[Head | None, Head]:
        """Return the stored head and the head to change. Write the log entry of the head's version if it is missing."""
        stored, head = self.read_to_claim(job_id)
        # Write the version's log entry before the caller changes the head: the changed head no longer has its content.
        self.complete_log(head)
        return stored, head

    def read_to_claim(self, job_id: str) -> tuple[Head | None, Head]:
        """Return the stored head (None if there is none), and the head to change, which for a new job is its first."""
        self.lookups.check_job(job_id)
        stored = self._store.read_head(job_id)
        if stored is None:
            stored, legacy = self.lookups.without_head(job_id)
        if stored is None:
            imported = self.lookups.legacy_head(job_id, legacy)
            if imported is None:
                return None, Head.first(job_id)
            check_adoptable(imported)
            # Store the original class's item as a version: the history then has the state before the first run here.
            outcome = self._store.swap(None, imported)
            # If the write lost, another first run has imported the same item: use the head of that run. (A head is
            # never deleted. If it is gone all the same, the caller's conditional write fails, and it reads again.)
            stored = imported if isinstance(outcome, Written) else outcome.to or imported
        return stored, stored

    def complete_log(self, head: Head) -> None:
        """Write the log entry of the newest version if it is missing, because the run or caller that made it died."""
        if head.last and self._store.read(head.job_id, items.log_key(head.version)) is None:
            self.write_log(head)

    def write_log(self, head: Head) -> None:
        """Write run item and log entry of the newest version; a second call changes nothing."""
        if head.log_entry:
            self._store.write_log(head.log_entry)

    def expire_before(self, before: Head, after: Head) -> None:
        """Set the expiry of the version before the newest one, if there is a retention."""
        if self.retention is not None and before.log_entry is not None:
            expire_version(self._store, before.log_entry, after, self.lookups.clock() + self.retention)


def check_adoptable(head: Head) -> None:
    """Raise ConfigurationError if a head was made from an item of the original class whose values cannot be stored."""
    try:
        encode(head.watermarks)
    except InvalidValueError as error:
        raise ConfigurationError(str(error), reason="legacy_item", job_id=head.job_id, run_id=head.run_id) from error
