"""The `Watermarks` class: what people look up, and how a run begins. The table itself is in `store`."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from scripts.helpers import items
from scripts.helpers.errors import (
    AmbiguousHistoryError,
    CorruptItemError,
    InvalidValueError,
    PlanConflictError,
    RunInProgressError,
    UnknownJobError,
    UnknownRunError,
)
from scripts.helpers.ids import JOB_ID_RULE, check_job_id, check_run_id, new_token
from scripts.helpers.records import Head, LogEntry, Plan
from scripts.helpers.run import Run, as_stored, same_values
from scripts.helpers.store import BACKOFF_SECONDS, Store, make_client
from scripts.helpers.values import encode

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

logger = logging.getLogger(__name__)

DEFAULT_LEASE = timedelta(minutes=15)
MAX_RACES = 100


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Watermarks:
    """The watermarks of all jobs, in one DynamoDB table.

    Nothing is sent before the first call. Every read is strongly consistent, every change is one
    conditional write, and any call may be repeated after an error.

    Parameters
    ----------
    table_name
        Hash key ``jobName`` (S), range key ``runId`` (S).
    dynamodb_client
        A boto3 client; by default one with explicit retries and time-outs.
    region_name, endpoint_url
        For the default client; boto3's own rules apply where they are not given.
    clock
        Returns the time as an aware datetime. It decides leases, never what is correct.
    job_id_rule
        Regular expression that job names must match as a whole.

    Examples
    --------
    >>> watermarks = Watermarks(table_name="glue-watermarks")
    >>> item = watermarks.create_watermark_item(
    ...     job_id="parking", run_id="jr_1", latest_data="2023-03-16 15:45:00", rows_collected=808)
    >>> watermarks.add_watermark(item)
    >>> watermarks.get_most_recent_run_id(job_id="parking")
    'jr_1'
    >>> watermarks.get_watermark_values(job_id="parking")
    {'latest_data': '2023-03-16 15:45:00', 'rows_collected': 808}
    """

    def __init__(
        self,
        table_name: str = "glue-watermarks",
        dynamodb_client: DynamoDBClient | None = None,
        *,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        clock: Callable[[], datetime] = _utc_now,
        job_id_rule: str = JOB_ID_RULE,
    ) -> None:
        self.table_name = table_name
        self._store = Store(table_name, dynamodb_client or make_client(region_name, endpoint_url))
        self._clock = clock
        self._job_id_rule = job_id_rule

    def __repr__(self) -> str:
        return f"Watermarks({self.table_name!r})"

    # --- look up --------------------------------------------------------------------------------

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
            By default the most recent run.

        Raises
        ------
        UnknownJobError, NoWatermarkError, UnknownRunError
            All are LookupErrors.
        """
        if run_id is None:
            head = self.latest(job_id)
            return self._run_item(head, head.run_id)
        self._check(job_id)
        check_run_id(run_id)
        stored = self._store.read_head(job_id)
        if stored and stored.last and stored.last.run_id == run_id:
            return self._run_item(stored, run_id)
        item = self._store.read(job_id, run_id)
        if item:
            return items.run_from_item(item)
        if stored is None and not self._legacy_items(job_id):
            raise UnknownJobError(job_id, self.table_name)
        raise UnknownRunError(job_id, run_id)

    def get_watermark_values(self, job_id: str, run_id: str | None = None) -> dict[str, Any]:
        """Return only the values of a run's watermarks, with the types they went in with."""
        values: dict[str, Any] = self.get_watermark(job_id, run_id)["watermarks"]
        return values

    def latest(self, job_id: str) -> Head:
        """Return what is committed for a job and what is open. One strongly consistent read."""
        self._check(job_id)
        head = self._store.read_head(job_id) or self._legacy_head(job_id)
        if head is None:
            raise UnknownJobError(job_id, self.table_name)
        return head

    def history(self, job_id: str, limit: int | None = None) -> list[LogEntry]:
        """Return the versions of a job, newest first; at most `limit` of them.

        The list is empty for a job that never committed. Raises UnknownJobError for no job.
        """
        head = self.latest(job_id)
        entries = [head.log_entry] if head.log_entry else []
        for item in self._store.query(items.query_log(self.table_name, job_id)):
            if limit is not None and len(entries) >= limit:
                break
            entry = items.log_from_item(item)
            if entry.version < head.version:
                entries.append(entry)
        return entries[:limit]

    def exists(self, table_name: str | None = None) -> bool:
        """Tell whether a table exists, by default this one."""
        return self._store.table_exists(table_name or self.table_name)

    def create_table(self) -> None:
        """Create the table for local use: keys, billing, TTL and recovery as in terraform/."""
        self._store.create_table()

    # --- the playbook's one-shot ----------------------------------------------------------------

    def create_watermark_item(self, job_id: str, run_id: str, **watermarks: Any) -> dict[str, Any]:
        """Make the item that `add_watermark` stores, with every value checked. Nothing is sent.

        Raises
        ------
        InvalidIdError, InvalidValueError, ReservedNameError, TooLargeError
            All are ValueErrors that name the key, the limit and the remedy.
        """
        self._check(job_id)
        check_run_id(run_id)
        encode(watermarks)
        return {"jobName": job_id, "runId": run_id, "watermarks": watermarks}

    def add_watermark(self, watermark_item: Mapping[str, Any]) -> None:
        """Commit a run's watermarks in one call: begin, freeze and commit as one conditional write.

        The same item twice is one commit, also when other runs have committed in between.

        Raises
        ------
        InvalidValueError
            Not an item of `create_watermark_item`.
        RunInProgressError, PlanConflictError
            Another run holds the job, or a frozen plan waits to be replayed.
        StoreUnavailableError
            Call again with the same item: it is committed once.
        """
        names = {"jobName", "runId", "watermarks"}
        given = watermark_item if isinstance(watermark_item, Mapping) else {}
        if set(given) != names or not isinstance(given["watermarks"], Mapping):
            raise InvalidValueError(
                "A watermark item has exactly jobName, runId and a map of watermarks. "
                "Make it with create_watermark_item."
            )
        job_id, run_id, new = given["jobName"], check_run_id(given["runId"]), as_stored(given["watermarks"])
        token = new_token()
        for race in range(MAX_RACES):
            before, head = self._read_for_change(job_id)
            if head.last and head.last.commit_id == token:
                break
            stored = self._store.read(job_id, run_id)
            if stored and "version" in stored and same_values(items.run_from_item(stored)["watermarks"], new):
                break
            if head.plan is not None:
                raise PlanConflictError(
                    job_id, f"plan {head.plan.plan_id} is open; add_watermark would skip it. Run the job that left it."
                )
            now = self._clock()
            claimed = head.claimed(run_id, token=token, now=now, lease=DEFAULT_LEASE)
            after = claimed.planned(Plan(token, {}, new)).committed(token=token, now=now)
            current = self._store.swap(before, after)
            if current and current.identity == after.identity:
                self._repair_log(after)
                break
            self._store.sleep(random.uniform(0, BACKOFF_SECONDS * min(race + 1, 10)))
        else:
            raise RunInProgressError(job_id, "(several)", self._clock())

    # --- runs -----------------------------------------------------------------------------------

    def begin(self, job_id: str, run_id: str, *, lease: timedelta = DEFAULT_LEASE) -> Run:
        """Take a job for a run, together with the plan that a dead run may have left.

        The same run id re-enters at once and fences its older self. Another one takes over when
        the lease has run out.

        Parameters
        ----------
        lease
            How long other runs stay away; longer than the run takes. It protects against wasted
            work only: a run that lost its lease is fenced and can commit nothing.

        Returns
        -------
        Run
            Use it in a ``with`` statement; it is aborted unless committed.

        Raises
        ------
        RunInProgressError
            Another run's lease lives.
        AmbiguousHistoryError
            Several items of the original class and no head; call `adopt` first.
        """
        check_run_id(run_id)
        token = new_token()
        while True:
            before, head = self._read_for_change(job_id)
            after = head.claimed(run_id, token=token, now=self._clock(), lease=lease)
            current = self._store.swap(before, after)
            if current and current.identity == after.identity:
                break
        if after.last is None:
            logger.warning("event=first_run job=%s run=%s: no watermark yet, everything will be read", job_id, run_id)
        return Run(self._store, after, self._clock)

    def adopt(self, job_id: str, run_id: str) -> Head:
        """Declare which item of the original class is the most recent one of a job without a head.

        Raises
        ------
        UnknownRunError
            There is no such item.
        PlanConflictError
            The job has a head already; nothing is left to adopt.
        """
        self._check(job_id)
        check_run_id(run_id)
        current = self._store.read_head(job_id)
        head = None
        if current is None:
            found = self._legacy_items(job_id)
            if run_id not in found:
                raise UnknownRunError(job_id, run_id)
            head = self._import(found[run_id])
            current = self._store.swap(None, head)
        if head is None or current is None or current.identity != head.identity:
            raise PlanConflictError(job_id, "it has a committed state already; there is nothing to adopt.")
        self._repair_log(head)
        return head

    # --- within ---------------------------------------------------------------------------------

    def _check(self, job_id: str) -> None:
        check_job_id(job_id, self._job_id_rule)

    def _read_for_change(self, job_id: str) -> tuple[Head | None, Head]:
        """Read the head, with the log complete up to it: (what is stored, what to change)."""
        self._check(job_id)
        stored = self._store.read_head(job_id)
        if stored is None:
            imported = self._legacy_head(job_id)
            if imported is None:
                return None, Head.first(job_id)
            stored = self._store.swap(None, imported) or imported
        if stored.last and self._store.read(job_id, items.log_key(stored.version)) is None:
            self._repair_log(stored)
        return stored, stored

    def _repair_log(self, head: Head) -> None:
        if head.log_entry:
            self._store.write_log(head.log_entry)

    def _legacy_head(self, job_id: str) -> Head | None:
        """Make a head from the one item of the original class, if that is all there is."""
        found = self._legacy_items(job_id)
        if len(found) > 1:
            raise AmbiguousHistoryError(job_id, list(found))
        return self._import(*found.values()) if found else None

    def _legacy_items(self, job_id: str) -> dict[str, items.Item]:
        """Read all items of a job without a head, by run id; CorruptItemError if it had one."""
        query = items.query_legacy(self.table_name, job_id)
        found = {item[items.RANGE_KEY]["S"]: item for item in self._store.query(query)}
        for range_key in found:
            if range_key.startswith(items.LOG_PREFIX):
                raise CorruptItemError(job_id, items.HEAD_KEY, f"it is gone, though {range_key!r} is there")
        return found

    def _import(self, item: items.Item) -> Head:
        legacy = items.run_from_item(item)
        now = self._clock()
        return Head.imported(legacy["jobName"], legacy["runId"], legacy["watermarks"], now=now, token=new_token())

    def _run_item(self, head: Head, run_id: str) -> dict[str, Any]:
        assert head.last is not None
        found: dict[str, Any] = {"jobName": head.job_id, "runId": run_id, "watermarks": dict(head.watermarks)}
        if head.last.op == "COMMIT":
            found |= {
                "version": head.version,
                "status": "COMMITTED",
                "committedAt": head.last.at,
                "metrics": dict(head.last.metrics),
            }
        return found
