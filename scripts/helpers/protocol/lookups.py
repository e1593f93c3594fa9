"""Look up watermarks, runs and the history of a job in the table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Any

from scripts.helpers.errors import (
    AmbiguousHistoryError,
    CorruptItemError,
    InvalidValueError,
    UnknownJobError,
    UnknownRunError,
)
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.chunks import lazy_blobs
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.history import History
from scripts.helpers.protocol.names import (
    MAX_NAME,
    check_job_id,
    check_readable_run_id,
    check_run_id,
    new_token,
    served_by,
)
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import ImplausibleError, Spilled

logger = logging.getLogger(__name__)

STATES, PLANS, NEXT = "watermarks", "plan.contexts", "plan.next"
"""The parts of a head that store a value for each context: watermarks, the plan, and the watermarks after the plan."""
Check = Callable[[str, str, Any], Any]
"""Called with a place (above), a context and the value; returns the value, or raises ImplausibleError if altered."""


def places_of(head: Head) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a head's watermarks and an open plan's two maps (see `STATES`), each as ``(place, {context: value})``."""
    of_plan = [] if head.plan is None else [(PLANS, head.plan.contexts), (NEXT, head.plan.next)]
    return [(STATES, head.watermarks), *of_plan]


class Lookups:
    """Reads the jobs of a table. It never writes, and every read is strongly consistent.

    Attributes
    ----------
    store : Store
        The table.
    clock
        Returns the time, an aware datetime. A head that is made from an item of the original class has that time.
    job_id_rule : str
        Regular expression that job names must match in full.
    check
        Called with each state or plan before it is returned, to raise an error if it was altered (see `Check`).
    """

    def __init__(self, store: Store, clock: Callable[[], datetime], job_id_rule: str) -> None:
        self.store, self.clock, self.job_id_rule = store, clock, job_id_rule
        self.check: Check = lambda place, context, stored: stored

    def get_watermark(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return the watermarks of a run, or the current ones, as a dict; see `Watermarks.get_watermark`."""
        if run_id is None:
            head = self.latest(job_id)
            # Watermarks that an operator set on a job without runs are in force, although no run made them.
            declared = head.last is not None and head.last.run_id is None and head.watermarks
            return self._run_item(head, None if declared else head.run_id)
        self.check_job(job_id)
        check_readable_run_id(run_id)
        stored = self.store.read_head(job_id)
        # Check the head first: a run that has just committed may have died before it wrote its run item.
        if stored and stored.last and stored.last.run_id == run_id:
            return self._run_item(stored, run_id)
        item = self.store.read(job_id, run_id)
        if item:
            found = items.run_from_item(item)
            return found | {"watermarks": self._resolved(job_id, found["watermarks"])}
        if stored is None and self.without_head(job_id) == (None, {}):
            raise UnknownJobError(job_id, self.store.table_name)
        raise UnknownRunError(job_id, run_id)

    def latest(self, job_id: str) -> Head:
        """Return a job's head, made from an item of the original class if need be; UnknownJobError without items."""
        self.check_job(job_id)
        head = self.store.read_head(job_id)
        if head is None:
            head, legacy = self.without_head(job_id)
            head = head or self.legacy_head(job_id, legacy)
        if head is None:
            raise UnknownJobError(job_id, self.store.table_name)
        if head.elsewhere is not None:
            logger.warning("event=moved job=%s to=%s: the state stored here may be older", job_id, head.elsewhere)
        return head

    def head(self, job_id: str) -> Head | None:
        """Return a job's stored head in one request; None without a head. Ignores items of the original class."""
        return self.store.read_head(job_id)

    def history(self, job_id: str, limit: int | None = None, before: int | None = None) -> History:
        """Return the versions of a job, newest first; see `Watermarks.history`."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidValueError(f"The limit of a history is {limit!r}; it must be a whole number above 0.")
        return self.history_of(self.latest(job_id), limit, before)

    def history_of(self, head: Head, limit: int | None = None, before: int | None = None) -> History:
        """Return the versions of the head's job, newest first: the head's own and older, or those below `before`."""
        # Take the newest version from the head: its log entry may not be written yet.
        job_id, below = head.job_id, head.version
        entries: list[LogEntry] = []
        if before is not None and before <= head.version:
            below = before
        elif head.log_entry:
            entries.append(head.log_entry)
        if limit is None or len(entries) < limit:
            page = None if limit is None else limit - len(entries)
            wanted = requests.log_query(job_id, below=max(below, 1), page=page)
            for item in self.store.query(wanted, pages=1 if page else None):
                entries.append(items.log_from_item(item))
        found = History(entries, job_id)
        if before is None:
            found.releases = head.releases
        return found

    def versions(self, head: Head, most: int, before: int | None = None) -> Iterator[LogEntry]:
        """Yield up to `most` versions as `history_of` does, but read on where DynamoDB ends a page, after 1 MB."""
        while most > 0 and before != 1 and (page := self.history_of(head, most, before)):
            yield from page
            most, before = most - len(page), page[-1].version

    def version_of(self, head: Head, run_id: str) -> int:
        """Return the version that a run made; UnknownRunError if none is known."""
        check_run_id(run_id)
        item = self.store.read(head.job_id, run_id)
        version: int | None = items.run_from_item(item).get("version") if item else None
        # Look in the head, too: if the run died before it wrote its item, only the head has the version.
        if version is None and head.last and head.last.run_id == run_id:
            version = head.version
        if version is None:
            raise UnknownRunError(head.job_id, run_id)
        return version

    def state_at(self, version: Head | LogEntry, context: str) -> Any:
        """Return the state of one context in a version of `history` or `latest`; None if it has none there.

        Raises
        ------
        CorruptItemError
            This package cannot have written the state.
        """
        range_key = items.HEAD_KEY if isinstance(version, Head) else items.log_key(version.version)
        return self.checked(version.job_id, STATES, context, self.stored_at(version, context), range_key)

    def stored_at(self, version: Head | LogEntry, context: str) -> Any:
        """Return the state of one context as `state_at` does, but unchecked, so that a repair can read altered ones."""
        return self._resolved(version.job_id, {context: version.watermarks.get(context)})[context]

    def checked(self, job_id: str, place: str, context: str, stored: Any, range_key: str = items.HEAD_KEY) -> Any:
        """Return a state or plan unchanged; CorruptItemError if this package cannot have written it."""
        return items.reading(items.key(job_id, range_key), lambda _: self.check(place, context, stored))

    def damage(self, head: Head) -> list[str]:
        """Return a text for each state or part of the open plan that was altered; values in chunks are not read."""
        found = []
        for place, contexts in places_of(head):
            for context, stored in contexts.items():
                try:
                    self.check(place, context, stored)
                except ImplausibleError as error:
                    found.append(str(error))
        return found

    def committed_at(self, job_id: str, version: int) -> datetime | None:
        """Return the time when a version was made; None if its log entry has expired."""
        entry = self.store.read_log(job_id, version)
        return entry.change.at if entry is not None else None

    def start_of_job_run(self, job_id: str, run_id: str) -> datetime | None:
        """Return the time when `JobRuns` started a run; None if it has no record of the run."""
        record = self.store.read(job_id, items.run_record_key(run_id))
        return items.start_of_run(record) if record is not None else None

    # --- for the modules that change a job --------------------------------------------------------

    def check_job(self, job_id: str) -> None:
        """Check a job's name. For a derived job, such as a slice of a backfill, check that of the job it serves."""
        served = served_by(job_id) if isinstance(job_id, str) else None
        # Skip a derived name of MAX_NAME characters: the job's name within it may be cut, and so not match the rule.
        if served is None or len(job_id) < MAX_NAME or not job_id.isprintable():
            check_job_id(served or job_id, self.job_id_rule)

    def legacy_head(self, job_id: str, found: Mapping[str, items.Item]) -> Head | None:
        """Make a head from the only item of the original class. None without one; AmbiguousHistoryError for several."""
        if len(found) > 1:
            # Neither run ids nor the items show which item is the latest. Only an operator can know, and choose it.
            raise AmbiguousHistoryError(job_id, list(found))
        for item in found.values():
            return self.head_of_legacy(item)
        return None

    def head_of_legacy(self, item: items.Item, legacy_items: int = 1, instead: Mapping[str, Any] | None = None) -> Head:
        """Make a head from an item of the original class; `legacy_items` is how many such items the job has.

        `instead` are watermarks that an operator gives in place of the item's own.
        """
        return Head.imported(
            item[items.HASH_KEY]["S"],
            item[items.RANGE_KEY]["S"],
            items.run_from_item(item)["watermarks"] if instead is None else instead,
            now=self.clock(),
            token=new_token(),
            legacy_items=legacy_items,
        )

    def without_head(self, job_id: str) -> tuple[Head | None, dict[str, items.Item]]:
        """Return None and the items of the original class, by run id, for a job whose head was just found missing.

        If a first run has stored the head since, return it and no items. CorruptItemError if other items show that the
        job had a head, which was deleted.
        """
        found: dict[str, items.Item] = {}
        ours: list[str] = []
        for item in self.store.query(requests.Between(job_id)):
            range_key = item[items.RANGE_KEY]["S"]
            if items.is_job_runs_key(range_key):
                continue
            found[range_key] = item
            if items.is_ours(item):
                ours.append(range_key)
        if not ours:
            return None, found
        # Other items prove that the job had a head. Read again: a first run may just have stored it. If it was deleted,
        # raise, or a run would read everything again, under batch ids that sinks may already have.
        head = self.store.read_head(job_id)
        if head is None:
            raise CorruptItemError(job_id, items.HEAD_KEY, f"it is gone, though {ours[0]!r} is there")
        return head, {}

    def _resolved(self, job_id: str, watermarks: Mapping[str, Any]) -> dict[str, Any]:
        """Return watermarks with values in place of references to chunks; each value is read once."""
        read = partial(self._read, job_id)
        once, found = cache(read), {}
        for name, value in watermarks.items():
            found[name] = once(value) if isinstance(value, Spilled) else lazy_blobs(value, job_id, read)
        return found

    def _read(self, job_id: str, reference: Spilled) -> Any:
        return self.store.read_spilled(job_id, reference)

    def _run_item(self, head: Head, run_id: str | None) -> dict[str, Any]:
        assert head.last is not None
        found: dict[str, Any] = {
            "jobName": head.job_id,
            "runId": run_id,
            "watermarks": self._resolved(head.job_id, head.watermarks),
        }
        if head.last.op == "COMMIT":
            found |= {
                "version": head.version,
                "status": "COMMITTED",
                "committedAt": head.last.at,
                "metrics": dict(head.last.metrics),
            }
        return found
