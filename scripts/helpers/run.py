"""The handle of one run: freeze its plan, then commit or abort."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from scripts.helpers import items
from scripts.helpers.errors import (
    CommitUnknownError,
    FencedError,
    PlanConflictError,
    RunClosedError,
    StoreUnavailableError,
    WatermarkError,
)
from scripts.helpers.ids import BatchId, new_token
from scripts.helpers.records import Head, Plan
from scripts.helpers.store import Store
from scripts.helpers.values import decode, encode

logger = logging.getLogger(__name__)


def as_stored(given: Mapping[str, Any], what: str = "watermark") -> dict[str, Any]:
    """Return values as a later read gives them: checked, and apart from the caller's own lists and dicts."""
    return decode(*encode(given, what=what))


def same_values(left: Any, right: Any) -> bool:
    """Tell whether two stored values are equal in type as well: 1, 1.0 and True are three values."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_values(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same_values, left, right))
    return bool(left == right)


def _same_content(left: Plan, right: Plan) -> bool:
    return same_values([left.contexts, left.next], [right.contexts, right.next])


class Run:
    """A job that is ours until the lease ends or another run takes over. Made by `Watermarks.begin`.

    Attributes
    ----------
    job_id, run_id : str
    replay : bool
        The plan was frozen by an earlier attempt; take exactly that.
    """

    def __init__(self, store: Store, head: Head, clock: Callable[[], datetime]) -> None:
        assert head.claim is not None
        self._store, self._head, self._clock = store, head, clock
        self._closed: str | None = None
        self._batch_id = head.next_batch
        self.job_id = head.job_id
        self.run_id = head.claim.run_id
        self.attempt = head.claim.attempt
        self.replay = head.plan is not None

    def __repr__(self) -> str:
        state = self._closed or ("planned" if self.plan else "claimed")
        return f"<Run {self.run_id!r} of {self.job_id!r}: {state}, version {self.version}, attempt {self.attempt}>"

    @property
    def watermarks(self) -> Mapping[str, Any]:
        """The committed watermarks that this run started from; empty on a first run."""
        return self._head.watermarks

    @property
    def version(self) -> int:
        """The committed version: that of the start, or one more after the commit."""
        return self._head.version

    @property
    def fence(self) -> int:
        """The fencing token of this run, for sinks that can check one."""
        return self._head.fence

    @property
    def plan(self) -> Plan | None:
        """The frozen plan; None before `freeze`."""
        return self._head.plan

    @property
    def batch_id(self) -> BatchId:
        """The id that a sink is keyed by; PlanConflictError before `freeze`, as no batch exists yet."""
        if self.plan is None and self._closed != "committed":
            raise PlanConflictError(self.job_id, "there is no batch before freeze. Freeze the plan first.")
        return self._batch_id

    @property
    def closed(self) -> bool:
        """Tell whether the run was committed or aborted."""
        return self._closed is not None

    def freeze(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Store what this batch takes, and the watermarks that will follow it, before reading.

        Once only. The same plan again is no change, another one is a PlanConflictError. If the
        process dies after this, the next run of the job gets exactly this plan.

        Raises
        ------
        InvalidValueError, FencedError, PlanConflictError, StoreUnavailableError
        """
        self._check_open("freeze")
        plan = Plan(new_token(), as_stored(contexts, "plan"), as_stored(next_watermarks))
        if self.plan and _same_content(self.plan, plan):
            return self.plan
        before, after = self._head, self._head.planned(plan)
        current = self._store.swap(before, after)
        if current and current.claim == before.claim and current.plan and _same_content(current.plan, plan):
            after = current  # An earlier call that seemed to fail had taken effect.
        self._require(after, current)
        plan = after.plan or plan
        self._head = after
        logger.info(
            "event=plan_frozen job=%s run=%s batch=%s plan=%s fence=%d contexts=%s",
            self.job_id, self.run_id, after.next_batch, plan.plan_id, self.fence, ",".join(map(str, contexts)),
        )  # fmt: skip
        return plan

    def check(self) -> None:
        """Raise FencedError if another run has taken over. Call right before writing to a sink."""
        self._check_open("check")
        self._require(self._head, self._store.read_head(self.job_id))

    def commit(self, **metrics: Any) -> str:
        """Make the plan's progress durable in one write, and let go of the job.

        Parameters
        ----------
        **metrics
            Counts to keep beside the watermark (rows, bytes); none may have a watermark's name.

        Returns
        -------
        str
            ``"done"``, or ``"already"`` if another attempt committed this same plan: a success.

        Raises
        ------
        FencedError
            Another run took over and has not committed this plan.
        CommitUnknownError
            The store did not answer. Delete nothing; the next run finds out.
        """
        self._check_open("commit")
        items.encode_metrics(metrics, self.plan.next if self.plan else {})
        before, after = self._head, self._head.committed(token=new_token(), now=self._clock(), metrics=metrics)
        try:
            current = self._store.swap(before, after)
        except StoreUnavailableError as error:
            raise CommitUnknownError(self.job_id, self.run_id) from error
        outcome = "done"
        if not (current and current.identity == after.identity):
            if not self._committed_by_other(before, current):
                raise self._fenced(current)
            outcome = "already"
        self._head, self._closed = after, "committed"
        if outcome == "done":
            self._write_log(after)
        logger.info(
            "event=committed outcome=%s job=%s run=%s version=%d", outcome, self.job_id, self.run_id, self.version
        )
        return outcome

    def abort(self) -> None:
        """Let go of the job. A frozen plan stays, and the next run gets it. Safe to call again."""
        if self._closed:
            return
        before, after = self._head, self._head.released()
        current = self._store.swap(before, after)
        self._closed = "aborted"
        if current and current.identity == after.identity:
            self._head = after
            logger.info("event=aborted job=%s run=%s plan_kept=%s", self.job_id, self.run_id, after.plan is not None)
        else:
            logger.warning("event=abort_skipped job=%s run=%s reason=taken_over", self.job_id, self.run_id)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Abort unless committed; an error on the way out is kept, and a failing abort does not hide it."""
        if self._closed:
            return
        if error is None:
            logger.warning("event=not_committed job=%s run=%s: nothing was saved", self.job_id, self.run_id)
            self.abort()
            return
        try:
            self.abort()
        except WatermarkError as failure:
            logger.warning("event=abort_failed job=%s run=%s error=%s", self.job_id, self.run_id, failure)

    def _check_open(self, verb: str) -> None:
        if self._closed:
            raise RunClosedError(self.job_id, self.run_id, self._closed, verb)

    def _require(self, expected: Head, current: Head | None) -> None:
        if current is None or current.identity != expected.identity:
            raise self._fenced(current)

    def _fenced(self, current: Head | None) -> FencedError:
        return FencedError(self.job_id, self.run_id, self.fence, current.fence if current else 0)

    def _committed_by_other(self, before: Head, current: Head | None) -> bool:
        """Tell whether another attempt made the version that this run was about to make, from the same plan."""
        if current is None or before.plan is None or current.epoch != before.epoch or current.version <= before.version:
            return False
        change = current.last
        if current.version > before.version + 1:
            entry = self._store.read_log(self.job_id, before.version + 1)
            change = entry.change if entry else None
        return change is not None and change.plan_id == before.plan.plan_id

    def _write_log(self, head: Head) -> None:
        """Write log entry and run item. A failure costs nothing: the next begin writes them from the head."""
        assert head.log_entry is not None
        try:
            self._store.write_log(head.log_entry)
        except WatermarkError as error:
            logger.warning("event=log_deferred job=%s version=%d error=%s", self.job_id, head.version, error)
