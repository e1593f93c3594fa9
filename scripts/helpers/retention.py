"""Expiry of old versions. What the head or an unexpired log entry refers to never expires before it."""

from __future__ import annotations

from datetime import datetime

from scripts.helpers.items import log_key
from scripts.helpers.records import Head, LogEntry
from scripts.helpers.spill import references
from scripts.helpers.store import Store


def expire_version(store: Store, entry: LogEntry, head: Head, at: datetime) -> None:
    """Let a version that the head has left behind expire: its log entry, its run item, chunks that only it uses.

    Chunks expire no sooner than the entry that refers to them; what `head` refers to stays. A run item
    that a later version has rewritten stays as well.
    """
    if entry.version >= head.version:
        return
    kept = {reference.id for reference in references(head.watermarks)}
    store.expire(entry.job_id, log_key(entry.version), at)
    if entry.change.run_id is not None and (head.last is None or head.last.run_id != entry.change.run_id):
        store.expire(entry.job_id, entry.change.run_id, at, entry.version)
    for reference in references(entry.watermarks):
        if reference.id not in kept:
            store.expire_chunks(entry.job_id, reference, at)
