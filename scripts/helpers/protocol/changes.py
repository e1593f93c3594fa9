"""Reading a head in order to change it, and what follows a version that was made: its log entry, and expiry."""

from __future__ import annotations

from datetime import timedelta

from scripts.helpers.errors import InvalidValueError, LegacyItemError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.retention import expire_version
from scripts.helpers.protocol.values import encode


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
