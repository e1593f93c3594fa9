"""The `Watermarks` class: the playbook's calls and how a run begins, on top of look-ups and administration."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from scripts.helpers.decisions.administration import Administration
from scripts.helpers.errors import InvalidValueError, PlanConflictError, RunInProgressError, WatermarkError
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.head import Head, Plan
from scripts.helpers.protocol.names import JOB_ID_RULE, check_run_id, new_token, served_by
from scripts.helpers.protocol.retention import expire_version
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.store import BACKOFF_SECONDS, BUDGET_SECONDS, Store, make_client
from scripts.helpers.protocol.values import as_stored, encode, same_values

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

logger = logging.getLogger(__name__)

DEFAULT_LEASE = timedelta(minutes=15)
MAX_RACES = 30
RACE_GROWTH, MAX_RACE_PAUSE_SECONDS = 3, 15.0
"""Pauses between races grow so that fifty writers soon stop disturbing each other."""


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Watermarks(Administration):
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
    retention
        How long log entries and run items are kept once a newer version is there; None: for ever.

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
        retention: timedelta | None = None,
    ) -> None:
        if retention is not None and retention <= timedelta(0):
            raise InvalidValueError(f"The retention is {retention.total_seconds():g} seconds; it must be above 0.")
        store = Store(table_name, dynamodb_client or make_client(region_name, endpoint_url))
        super().__init__(store, clock, job_id_rule)
        self._retention = retention

    def __repr__(self) -> str:
        return f"Watermarks({self.table_name!r})"

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
            if self._is_repeated(head, run_id, new):
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
                if self._retention is not None and head.log_entry is not None:
                    expire_version(self._store, head.log_entry, after, now + self._retention)
                break
            self._store.sleep(random.uniform(0, min(MAX_RACE_PAUSE_SECONDS, BACKOFF_SECONDS * RACE_GROWTH**race)))
        else:
            raise RunInProgressError(job_id, "(several)", self._clock())

    def _is_repeated(self, head: Head, run_id: str, watermarks: dict[str, Any]) -> bool:
        """Tell whether a run has committed these values already, and nobody has decided otherwise since."""
        stored = self._store.read(head.job_id, run_id)
        if stored is None or "version" not in stored:
            return False
        found = items.run_from_item(stored)
        if not same_values(found["watermarks"], watermarks):
            return False
        later = items.log_key(found["version"] + 1), items.log_key(head.version + 1)
        entries = self._store.query(requests.query_between(self.table_name, head.job_id, *later))
        return all(items.log_from_item(entry).change.op == "COMMIT" for entry in entries)

    # --- runs -----------------------------------------------------------------------------------

    def begin(self, job_id: str, run_id: str, *, lease: timedelta = DEFAULT_LEASE, take_over: bool = False) -> Run:
        """Take a job for a run, together with the plan that a dead run may have left.

        The same run id re-enters at once and fences its older self. Another one takes over when
        the lease has run out.

        Parameters
        ----------
        lease
            How long other runs stay away. Inside a ``with`` statement a heartbeat renews it. It
            protects against wasted work only: a run that lost it is fenced and can commit nothing.
        take_over
            Take the job from a run whose lease lives, because you know that it is dead.

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
        if lease <= timedelta(0):
            raise InvalidValueError(f"The lease is {lease.total_seconds():g} seconds; it must be above 0.")
        token = new_token()
        before, head = self._read_to_claim(job_id)
        while True:
            after = head.claimed(run_id, token=token, now=self._clock(), lease=lease, take_over=take_over)
            current = self._store.swap(before, after, min(BUDGET_SECONDS, lease.total_seconds()))
            if current and current.identity == after.identity:
                break
            before, head = (current, current) if current else self._read_to_claim(job_id)
        run = Run(self._store, after, self._clock, lease, self._retention)
        try:
            self._complete_log(after)
        except WatermarkError:
            with suppress(WatermarkError):
                run.abort()
            raise
        if not after.watermarks and served_by(job_id) is None:
            logger.warning("event=first_run job=%s run=%s: no watermark yet, everything will be read", job_id, run_id)
        return run
