"""Reading a head in order to change it, and what follows a version that was made: its log entry, and expiry."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from scripts.helpers.errors import InvalidValueError, LegacyItemError
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import Spilled, encode

# --- retention ------------------------------------------------------------------------------------
# Expiry of old versions. What the head or an unexpired item refers to never expires before it.

CHUNK_MARGIN = timedelta(days=3)
"""Chunks outlive what refers to them by this: two runs whose clocks are a day wrong may set the end of one version."""

PAGE = 25
"""Log entries that one request reads to find the older versions that share chunks."""


def expire_version(store: Store, entry: LogEntry, head: Head, at: datetime) -> None:
    """Let a version that the head has left behind expire: its log entry, its run item, chunks that only it uses.

    Chunks expire later than any version that refers to them, whatever clock set its end; older
    versions that share them and have no end yet get the same one. What `head` refers to stays. A run
    item that a later version has rewritten stays as well. The log entry is the last to get its end:
    one that has it has a run item that has it too.
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
    """Find the older versions without an end that share chunks in `gone`, and the latest end of those that have one.

    Versions that share a chunk follow each other without a gap, so the first that shares none ends the search.
    """
    older: list[LogEntry] = []
    if not gone or entry.version == 1:
        return older, at
    for item in store.query(requests.log_of(entry.job_id, below=entry.version, page=PAGE)):
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
    """What runs and decisions share before and after their one conditional write.

    Attributes
    ----------
    lookups : Lookups
        Where heads and items of the original class are read.
    retention : timedelta or None
        How long a version is kept once a newer one is there; None: for ever.
    """

    def __init__(self, lookups: Lookups, retention: timedelta | None = None) -> None:
        self.lookups, self.retention = lookups, retention
        self._store = lookups.store

    def read_for_change(self, job_id: str) -> tuple[Head | None, Head]:
        """Read the head, with the log complete up to it: (what is stored, what to change)."""
        stored, head = self.read_to_claim(job_id)
        # Before, not after: the next head no longer holds what the missing entry has to say.
        self.complete_log(head)
        return stored, head

    def read_to_claim(self, job_id: str) -> tuple[Head | None, Head]:
        """Read the head: (what is stored, what to change). Its log entry may still be missing."""
        self.lookups.check_job(job_id)
        stored = self._store.read_head(job_id)
        if stored is None:
            stored, legacy = self.lookups.without_head(job_id)
        if stored is None:
            imported = self.lookups.legacy_head(job_id, legacy)
            if imported is None:
                return None, Head.first(job_id)
            check_adoptable(imported)
            # A version of its own: the history shows what was there before the first run of this package.
            outcome = self._store.swap(None, imported)
            # Lost to another first run, which imported the same item: its head is as good. (A head is never
            # deleted; should it be gone, the next conditional write fails and reads again.)
            stored = imported if isinstance(outcome, Written) else outcome.to or imported
        return stored, stored

    def complete_log(self, head: Head) -> None:
        """Write the log entry of the newest version, if whoever made it died before that."""
        if head.last and self._store.read(head.job_id, items.log_key(head.version)) is None:
            self.write_log(head)

    def write_log(self, head: Head) -> None:
        """Write run item and log entry of the newest version; again, it changes nothing."""
        if head.log_entry:
            self._store.write_log(head.log_entry)

    def expire_before(self, before: Head, after: Head) -> None:
        """Give the version before the newest one its end, if versions expire."""
        if self.retention is not None and before.log_entry is not None:
            expire_version(self._store, before.log_entry, after, self.lookups.clock() + self.retention)


def check_adoptable(head: Head) -> None:
    """Refuse a head whose values, of an item of the original class, cannot be stored; LegacyItemError."""
    try:
        encode(head.watermarks)
    except InvalidValueError as error:
        raise LegacyItemError(head.job_id, head.run_id, str(error)) from error
