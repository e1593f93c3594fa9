"""Explain why a file was taken, or why it was not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from scripts.helpers.files.rules import ARCHIVES, FileOptions
from scripts.helpers.files.set_aside import RETRY, SKIP, SetAside
from scripts.helpers.listing.objects import GONE, is_same


class Explanation(NamedTuple):
    """The state of one key and the reason for it.

    `state` is ``taken``, ``ignored``, ``archived``, ``skipped`` or ``gone``, with the version of the job and the run
    that decided it; ``set_aside``, with the version and run that could not read the file; or ``new`` or ``unknown``,
    without a version.

    >>> FileBookmark(landing).explain("1.csv").reason
    'the next batch may take it'
    """

    key: str
    state: str
    reason: str
    version: int | None = None
    run_id: str | None = None
    etag: str | None = None
    size: int | None = None
    modified: datetime | None = None


_FACTS = Explanation._fields[3:]
"""Fields that ledger rows and set-aside entries have under the same names."""


def explained(
    key: str,
    row: Mapping[str, Any] | None,
    now: Mapping[str, Any] | None,
    options: FileOptions,
    aside: SetAside | None = None,
    unlisted: str | None = None,
) -> Explanation:
    """Explain the state of a key by its last ledger row, the object as listed now, and the list of set-aside files.

    `unlisted` is the reason why listings leave out the key, such as a hidden name; None if they do not.
    """
    if aside is not None and (now is None or is_same(vars(aside), now)):
        reason = f"{aside.reason}: set aside at version {aside.version} by run {aside.run_id}"
        if aside.decision == RETRY:
            reason += "; the next batch takes it"
        elif aside.decision == SKIP:
            reason += "; a person marked it as done"
        return Explanation(key, "set_aside", reason, *(getattr(aside, name) for name in _FACTS))
    # Treat an object that was gone and exists again like an object that is not in the ledger.
    is_back = row is not None and row["status"] == GONE and now is not None
    if row is not None and not is_back:
        reason = f"{row['status']} at version {row['version']} by run {row['run_id']}"
        if now is None and row["status"] != GONE:
            reason += f"; {unlisted or 'it is not there any more'}"
        elif now is not None and not is_same(row, now):
            reason += "; it has changed since"
        return Explanation(key, row["status"], reason, *(row[name] for name in _FACTS))
    if now is None:
        return Explanation(key, "unknown", unlisted or "it is not there, and nothing is remembered of it")
    against = unlisted or options.reason_against(key, now["size"])
    if against is None and now["storage_class"] in ARCHIVES and options.on_archived != "take":
        against = f"it is archived ({now['storage_class']})"
    state, reason = ("unknown", against) if against else ("new", "the next batch may take it")
    return Explanation(key, state, reason, etag=now["etag"], size=now["size"], modified=now["modified"])
