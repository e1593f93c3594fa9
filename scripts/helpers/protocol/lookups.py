"""What can be looked up in the table: watermarks, runs and the history of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from scripts.helpers.errors import (
    AmbiguousHistoryError,
    CorruptItemError,
    InvalidValueError,
    UnknownContextError,
    UnknownJobError,
    UnknownRunError,
)
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.chunks import lazy_blobs
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.history import History, Spans
from scripts.helpers.protocol.jobs import ListedJobs, list_jobs
from scripts.helpers.protocol.names import MAX_NAME, check_job_id, check_run_id, new_token, served_by
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.coverage import (
    BackfillRecord,
    backfill_record_id,
    covered_by,
    end_that_fits,
    is_rows,
    passed_range,
    types_of,
)
from scripts.helpers.rows.cursor_ranges import CursorRange, ShownRange, cut_at, merged, shown_range, uncovered
from scripts.helpers.rows.slicing import slice_id


class Lookups:
    """The reading half of `Watermarks`. Every read is strongly consistent."""

    def __init__(self, store: Store, clock: Callable[[], datetime], job_id_rule: str) -> None:
        self.table_name = store.table_name
        self._store, self._clock, self._job_id_rule = store, clock, job_id_rule

    def get_most_recent_run_id(self, job_id: str) -> str:
        """Return the run whose watermarks are in force. One strongly consistent read.

        Raises
        ------
        UnknownJobError, NoWatermarkError
            Both are LookupErrors: nothing is known of the job; none of its runs has committed.
        AmbiguousHistoryError
            Only several unordered items of the original class are there.
        """
        return self.latest(job_id).run_id

    def get_watermark(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return a run's item: ``jobName``, ``runId``, ``watermarks`` and when it was committed.

        Parameters
        ----------
        run_id
            By default the most recent run. Its item has the watermarks that are in force, also those
            that a person set or went back to; ``runId`` is None where they were set and no run committed.

        Raises
        ------
        UnknownJobError, NoWatermarkError, UnknownRunError
            All are LookupErrors.
        """
        if run_id is None:
            head = self.latest(job_id)
            declared = head.last is not None and head.last.run_id is None and head.watermarks
            return self._run_item(head, None if declared else head.run_id)
        self._check(job_id)
        check_run_id(run_id)
        stored = self._store.read_head(job_id)
        if stored and stored.last and stored.last.run_id == run_id:
            return self._run_item(stored, run_id)
        item = self._store.read(job_id, run_id)
        if item:
            found = items.run_from_item(item)
            return found | {"watermarks": self._resolved(job_id, found["watermarks"])}
        if stored is None and self._without_head(job_id) == (None, {}):
            raise UnknownJobError(job_id, self.table_name)
        raise UnknownRunError(job_id, run_id)

    def get_watermark_values(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return only the values of a run's watermarks, with the types they went in with."""
        values: dict[str, Any] = self.get_watermark(job_id, run_id)["watermarks"]
        return values

    def latest(self, job_id: str) -> Head:
        """Return what is committed for a job and what is open. One strongly consistent read."""
        self._check(job_id)
        head = self._store.read_head(job_id)
        if head is None:
            head, legacy = self._without_head(job_id)
            head = head or self._legacy_head(job_id, legacy)
        if head is None:
            raise UnknownJobError(job_id, self.table_name)
        return head

    def history(self, job_id: str, limit: int | None = None, before: int | None = None) -> History:
        """Return the versions of a job in the order of their commits, newest first.

        Parameters
        ----------
        limit
            At most so many, in one request; by default all of them, page by page.
        before
            Only versions below this one: the last version of one page starts the next.

        Returns
        -------
        History
            A list of `LogEntry` that shows itself as a table, with `to_pandas`. Each entry has op,
            version, run, previous run, attempt, metrics, duration, who and why. Empty for a job that
            never committed.

        Raises
        ------
        UnknownJobError, InvalidValueError
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidValueError(f"The limit of a history is {limit!r}; it must be a whole number above 0.")
        head = self.latest(job_id)
        below = head.version if before is None else min(before, head.version)
        entries = [head.log_entry] if head.log_entry and (before is None or head.version < before) else []
        if limit is not None and len(entries) >= limit:
            return History(entries, job_id)
        page = None if limit is None else limit - len(entries)
        request = requests.query_log(self.table_name, job_id, below=max(below, 1), page=page)
        found = self._store.query(request, pages=1 if page else None)
        return History([*entries, *(items.log_from_item(item) for item in found)], job_id)

    def state_at(self, version: Head | LogEntry, context: str) -> Any:
        """Return the state of one context in a version of `history` or `latest`; None if it has none there."""
        return self._resolved(version.job_id, {context: version.watermarks.get(context)})[context]

    def list_jobs(self) -> ListedJobs:
        """Return all jobs of the table by name, with their heads; see `job_list.list_jobs` for what it costs.

        Returns
        -------
        ListedJobs
            A list of `ListedJob` that shows itself as a table, with `to_pandas`. Backfills and their
            records are jobs too.

        Raises
        ------
        AccessRefusedError
            The role has no ``dynamodb:Scan``.
        """
        return list_jobs(self._store).jobs

    def coverage(self, job_id: str, context: str) -> Spans:
        """Return which cursor values of a rows context were read, by live runs and by backfills.

        Returns
        -------
        Spans
            A list of (low, high): half-open and rising, merged, in order. A low of None is below
            everything, a high of None above. What was read while it was still being written to is
            covered as well: rows
            that come late are the matter of `delay` and `lookback`.

        Raises
        ------
        UnknownJobError, UnknownContextError
        """
        state = self.rows_state(job_id, context)
        covered = merged([*covered_by(state), *self.backfill_record(job_id, context, state).covered])
        return Spans(self._spans(state, covered), f"{job_id}, {context}: covered")

    def gaps(self, job_id: str, context: str, start: Any = None) -> Spans:
        """Return what a rows context has gone past and never read, for `Backfill` to fill.

        Parameters
        ----------
        start
            Look from here on; by default from the very beginning.

        Returns
        -------
        Spans
            A list of (low, high) as of `coverage`, none of them past the live watermark; empty if
            nothing is missing. Where a slice is begun and not done, it is a gap of its own.
        """
        state = self.rows_state(job_id, context)
        record = self.backfill_record(job_id, context, state)
        low, high = passed_range(state)
        low = max(low, end_that_fits(state, start, "start"))
        gaps = uncovered((low, high), [*covered_by(state), *record.covered])
        return Spans(self._spans(state, cut_at(gaps, record.ends())), f"{job_id}, {context}: gaps")

    def unfinished(self, job_id: str, context: str) -> dict[str, tuple[str, ShownRange]]:
        """Return the slices of a rows context that are begun and not done.

        Returns
        -------
        dict
            By the job of the slice: its name and its bounds, to finish it with `Backfill`.
        """
        state = self.rows_state(job_id, context)
        return {
            slice_id(job_id, context, state, bounds, name): (name, shown_range(bounds, len(types_of(state))))
            for name, bounds in self.backfill_record(job_id, context, state).slices()
        }

    def exists(self, table_name: str | None = None) -> bool:
        """Tell whether a table exists, by default this one."""
        return self._store.table_exists(table_name or self.table_name)

    def create_table(self) -> None:
        """Create the table for local use: keys, billing, TTL and recovery as in terraform/."""
        self._store.create_table()

    # --- within ---------------------------------------------------------------------------------

    def _check(self, job_id: str) -> None:
        """Check a name; of a job that serves another one, the name of that one, if it is there as a whole."""
        served = served_by(job_id) if isinstance(job_id, str) else None
        if served is None or len(job_id) < MAX_NAME or not job_id.isprintable():
            check_job_id(served or job_id, self._job_id_rule)

    def _read_for_change(self, job_id: str) -> tuple[Head | None, Head]:
        """Read the head, with the log complete up to it: (what is stored, what to change)."""
        stored, head = self._read_to_claim(job_id)
        self._complete_log(head)
        return stored, head

    def _read_to_claim(self, job_id: str) -> tuple[Head | None, Head]:
        """Read the head: (what is stored, what to change). Its log entry may still be missing."""
        self._check(job_id)
        stored = self._store.read_head(job_id)
        if stored is None:
            stored, legacy = self._without_head(job_id)
        if stored is None:
            imported = self._legacy_head(job_id, legacy)
            if imported is None:
                return None, Head.first(job_id)
            stored = self._store.swap(None, imported) or imported
        return stored, stored

    def _complete_log(self, head: Head) -> None:
        if head.last and self._store.read(head.job_id, items.log_key(head.version)) is None:
            self._repair_log(head)

    def _repair_log(self, head: Head) -> None:
        if head.log_entry:
            self._store.write_log(head.log_entry)

    def _legacy_head(self, job_id: str, found: Mapping[str, items.Item]) -> Head | None:
        """Make a head from the one item of the original class, if that is all there is."""
        if len(found) > 1:
            raise AmbiguousHistoryError(job_id, list(found))
        return self._import(next(iter(found.values()))) if found else None

    def _without_head(self, job_id: str) -> tuple[Head | None, dict[str, items.Item]]:
        """Read all items of a job that had no head a moment ago, by run id; CorruptItemError if it must have one.

        Should a first run have begun since, its head is returned, and no items.
        """
        query = requests.query_job(self.table_name, job_id)
        found = {item[items.RANGE_KEY]["S"]: item for item in self._store.query(query)}
        found = {range_key: item for range_key, item in found.items() if not items.is_of_job_runs(range_key)}
        ours = [range_key for range_key, item in found.items() if range_key[0] in "!~" or "version" in item]
        if not ours:
            return None, found
        head = self._store.read_head(job_id)
        if head is None:
            raise CorruptItemError(job_id, items.HEAD_KEY, f"it is gone, though {ours[0]!r} is there")
        return head, {}

    def rows_state(self, job_id: str, context: str) -> dict[str, Any]:
        """Read the state of a rows context; UnknownContextError if there is none."""
        head = self.latest(job_id)
        found = self._state_of(head, context)
        if not is_rows(found):
            known = sorted(name for name, state in head.watermarks.items() if is_rows(state))
            raise UnknownContextError(job_id, context, known)
        return dict(found)

    def backfill_record(self, job_id: str, context: str, state: Mapping[str, Any]) -> BackfillRecord:
        """Return what backfills have begun and covered in the life of a context that a state belongs to."""
        record = backfill_record_id(job_id, context, state)
        head = self._store.read_head(record)
        return BackfillRecord.read(self._state_of(head, context) if head else None)

    def _state_of(self, head: Head, context: str) -> Any:
        """Return the state of one context, read back if it was spilled; None if there is none."""
        return self._resolved(head.job_id, {context: head.watermarks.get(context)})[context]

    def _spans(self, state: Mapping[str, Any], intervals: list[CursorRange]) -> list[ShownRange]:
        return [shown_range(interval, len(types_of(state))) for interval in intervals]

    def _import(self, item: items.Item, legacy_items: int = 1) -> Head:
        legacy = items.run_from_item(item)
        return Head.imported(
            legacy["jobName"],
            legacy["runId"],
            legacy["watermarks"],
            now=self._clock(),
            token=new_token(),
            legacy_items=legacy_items,
        )

    def _resolved(self, job_id: str, watermarks: Mapping[str, Any]) -> dict[str, Any]:
        """Return watermarks with spilled ones read back."""

        def read(reference: Spilled) -> Any:
            return self._store.read_spilled(job_id, reference)

        return {
            name: read(value) if isinstance(value, Spilled) else lazy_blobs(value, job_id, read)
            for name, value in watermarks.items()
        }

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
