"""The handle of one run: freeze its plan, then commit or abort; keep the lease meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from scripts.helpers.display.redaction import redacted
from scripts.helpers.errors import (
    CommitUnknownError,
    CorruptItemError,
    FencedError,
    PlanConflictError,
    StoreUnavailableError,
    WatermarkError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.changes import expire_version
from scripts.helpers.protocol.chunks import MAX_SPILL_BYTES, lazy_blobs, references, spill_large, take_blobs, unused
from scripts.helpers.protocol.head import Change, Head, Outputs, Plan
from scripts.helpers.protocol.heartbeat import Heartbeat
from scripts.helpers.protocol.lookups import NEXT, PLANS, STATES
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.protocol.races import Lost, Written
from scripts.helpers.protocol.store import BUDGET_SECONDS, Store
from scripts.helpers.protocol.values import Spilled, as_stored, same_values

logger = logging.getLogger(__name__)

CLOCK_MARGIN = timedelta(minutes=5)
"""How far a plan's time may be ahead of the clock before a WARNING is logged."""
MOST_TEXT = 2 * items.MAX_FAILURE_BYTES
"""Characters of an error's text that `failure_text` uses."""
MOST_CAUSES = 10
"""Causes of an error that `failure_text` checks. Without a limit, errors that cause each other would never end."""
SHORTEST, QUOTED = 4, 20
"""Shortest quotes of a cause that `failure_text` removes from a text, in characters: a whole line; a line's start."""


class Run:
    """The handle of a run that holds a job until the lease ends or another run takes over. Made by `Watermarks.begin`.

    The writes in their order and, after the dash, what happens if the process dies during a write or just after it:

    1. `begin` claims the head: run id, token, lease, and a fence that is one higher. -- Another run can claim it
       when the lease ends; the same run id, or its retry, at once. The older handle is then fenced.
    2. `freeze` writes the plan's large parts as chunks. -- Nothing refers to them. `doctor` with `repair` deletes them.
    3. `freeze` puts the plan into the head. -- The next run inherits the plan and takes exactly that (`replay`).
       `amend` repeats steps 2 and 3, and deletes the chunks of the plan that it replaced.
    4. The job writes to its sink under `batch_id`. -- The next run writes the same batch under the same id.
    5. `commit` replaces the head: the plan's `next` becomes the watermarks, the version is one higher, claim and
       plan are gone. Before it nothing is committed. -- The job is committed and free. If nothing is new,
       `commit` gets the plan as an argument, and step 3 is not a separate write.
    6. The run item is written, then the log entry. -- The next begin or operator's change writes both, from the head.
    7. With a retention, the expiry of the previous version is set. -- Otherwise that version stays in the history.
    8. Chunks that only the plan needed are deleted. -- `doctor` with `repair` deletes them.

    Attributes
    ----------
    job_id, run_id : str
    replay : bool
        Whether an earlier attempt froze the plan; the run must then take exactly that plan.
    outputs : tuple
        Committed outputs, one per target; none before `commit`. If another attempt committed the plan, its outputs.
    """

    def __init__(
        self,
        store: Store,
        head: Head,
        clock: Callable[[], datetime],
        lease: timedelta,
        retention: timedelta | None = None,
        checked: Callable[[str, str, str, Any], Any] = lambda job_id, place, context, stored: stored,
    ) -> None:
        assert head.claim is not None
        self._store, self._head, self._clock, self._lease, self._retention = store, head, clock, lease, retention
        self._checked = checked
        # Retry a write for at most the lease. After it, another run may hold the job, and retries only delay the error.
        self._budget = min(BUDGET_SECONDS, lease.total_seconds())
        # Two locks. `_calls` is held by freeze, commit or abort from its first to its last request, so only one of
        # them runs at a time. `_lock` is held while the head is replaced: from reading `_head`, through the conditional
        # write, to setting `_head`. A heartbeat takes only `_lock`, so it can renew the lease while a freeze writes
        # chunks for a minute. That is safe because a heartbeat changes only the end of the lease, and freeze, commit
        # and abort read `_head` again under `_lock` before they write, so they keep the later end of the lease.
        # A method that takes both locks takes `_calls` first.
        self._calls, self._lock = threading.RLock(), threading.RLock()
        self._heartbeat: Heartbeat | None = None
        self._closed: str | None = None
        self._written: set[str] = set()
        self._batch_id = head.next_batch
        self.outputs: Outputs = ()
        self.job_id = head.job_id
        self.run_id = head.claim.run_id
        self.attempt = head.claim.attempt
        self.replay = head.plan is not None

    def __repr__(self) -> str:
        state = self._closed or ("planned" if self.plan else "claimed")
        return f"<Run {self.run_id!r} of {self.job_id!r}: {state}, version {self.version}, attempt {self.attempt}>"

    def state(self, context: str) -> Any:
        """Return the committed watermark of one context, read from its chunks if it is large; None on its first run."""
        return self._of(STATES, self.watermarks, context)

    def planned(self, context: str) -> Any:
        """Return one context's part of the frozen plan, read from its chunks if it is large; None if it has none."""
        return self._of(PLANS, self.plan.contexts if self.plan else {}, context)

    def following(self, context: str) -> Any:
        """Return the watermark that a commit of the plan sets for one context, read from its chunks if it is large."""
        return self._of(NEXT, self.plan.next if self.plan else {}, context)

    def _of(self, place: str, contexts: Mapping[str, Any], context: str) -> Any:
        """Return the value of a context in `contexts`; CorruptItemError if this package cannot have written it."""
        return self._checked(self.job_id, place, context, self._resolve(contexts.get(context)))

    @property
    def head(self) -> Head:
        """The head as this run last wrote it; other runs or decisions may have changed it since."""
        return self._head

    @property
    def watermarks(self) -> Mapping[str, Any]:
        """The committed watermarks that this run started from, large ones as references (see `state`)."""
        return self._head.watermarks

    @property
    def version(self) -> int:
        """The committed version: the version at the begin, or one more after the commit."""
        return self._head.version

    @property
    def fence(self) -> int:
        """The fence of this run, for sinks that can check a fencing token."""
        return self._head.fence

    @property
    def plan(self) -> Plan | None:
        """The frozen plan, large parts as references (see `planned`); None before `freeze`."""
        return self._head.plan

    @property
    def batch_id(self) -> BatchId:
        """The key of the batch for an idempotent sink; PlanConflictError before `freeze`, as no batch exists yet."""
        if self.plan is None and self._closed != "committed":
            raise PlanConflictError(self.job_id, "there is no batch before freeze. Freeze the plan first.")
        return self._batch_id

    @property
    def closed(self) -> bool:
        """Whether the run was committed or aborted."""
        return self._closed is not None

    def freeze(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Store what this batch takes, and the watermarks that follow it, before the source is read.

        A run freezes one plan. Freezing the same plan again changes nothing; another plan raises PlanConflictError.
        If the process dies after this call, the next run of the job gets exactly this plan.

        Raises
        ------
        InvalidValueError, FencedError, PlanConflictError, StoreUnavailableError
        """
        with self._calls:
            return self._put_plan("freeze", contexts, next_watermarks, Head.planned)

    def unfrozen(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Return a plan that `commit` stores in its own write; only the large parts of the plan are written now.

        Use it only for a batch of which no row was written to a sink, because then nothing depends on a stored plan.
        """
        with self._calls:
            return self._put_plan("commit", contexts, next_watermarks, None)

    def amend(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Replace the frozen plan by one without unreadable files; the batch keeps its id.

        This is one conditional write of the run that holds the job. If the process dies before it, the next run gets
        the old plan; after it, the new plan. An older attempt at the old plan was fenced when this run began, and
        cannot commit it. Do not commit output that was made from the old plan: stop the run, or read again.

        Raises
        ------
        InvalidValueError, FencedError, PlanConflictError, StoreUnavailableError
        """
        with self._calls:
            before = self.plan
            plan = self._put_plan("amend", contexts, next_watermarks, Head.amended)
            assert before is not None  # Without a frozen plan, `Head.amended` would have raised an error.
            self._delete_unused(before, plan)
            return plan

    def _put_plan(
        self,
        verb: str,
        contexts: Mapping[str, Any],
        next_watermarks: Mapping[str, Any],
        transition: Callable[[Head, Plan], Head] | None,
    ) -> Plan:
        """Write a plan's chunks, and then, if there is a `transition`, the head with the plan in it."""
        self._check_open(verb)
        chunks: dict[str, list[bytes]] = {}
        token = new_token()
        kept = self._kept()
        contexts = take_blobs(contexts, self.job_id, token, chunks, kept)
        following = take_blobs(next_watermarks, self.job_id, token, chunks, kept)
        contexts = as_stored(contexts, "plan", MAX_SPILL_BYTES)
        following = as_stored(following, limit=MAX_SPILL_BYTES)
        if self.plan and self._is_content(self.plan, contexts, following):
            return self.plan
        plan, large = self._spill(contexts, following)
        chunks |= large
        self._store.write_chunks(self.job_id, chunks)
        self._written.update(chunks)
        if transition is None:
            return plan
        with self._lock:
            # A signal handler may have aborted the run in this same thread while chunks were written. Freezing now
            # would claim the job again for a handle that is closed.
            self._check_open(verb)
            before, after = self._head, transition(self._head, plan)
            outcome = self._store.swap(before, after, self._budget)
            if isinstance(outcome, Lost):
                # An earlier freeze of this run may have taken effect although its answer was lost. The head then has
                # the same plan under another id, and refers to the chunks of that freeze.
                if outcome.to is None or not self._is_ours(outcome.to, contexts, following):
                    raise self._fenced(outcome.to)
                after = outcome.to
            self._head = after
        assert after.plan is not None
        logger.info(
            "event=%s job=%s run=%s batch=%s plan=%s fence=%d contexts=%s spilled=%d",
            "plan_frozen" if verb == "freeze" else "plan_amended",
            self.job_id, self.run_id, after.next_batch, after.plan.plan_id, self.fence, ",".join(contexts), len(chunks),
        )  # fmt: skip
        return after.plan

    def _delete_unused(self, before: Plan, after: Plan) -> None:
        """Delete the chunks of a plan that was replaced. A failure does no harm: `doctor` deletes them."""
        gone = unused(before, after.contexts, after.next, self._head.watermarks)
        # Forget that these chunks were written, so that a later plan with the same blob writes them again.
        self._written -= {reference.id for reference in gone}
        try:
            for reference in gone:
                self._store.delete_chunks(self.job_id, reference)
        except WatermarkError as error:
            logger.warning("event=chunks_left job=%s plan=%s error=%s", self.job_id, before.plan_id, error)

    def check(self) -> None:
        """Raise FencedError if another run has taken over. Call this right before writing to a sink."""
        self._check_open("check")
        self._check_claim()

    def commit(self, outputs: Outputs = (), plan: Plan | None = None, /, **metrics: Any) -> str:
        """Make the plan's progress durable in one write, and end the claim on the job.

        Parameters
        ----------
        outputs
            One `Output`, returned by a sink, for each target with staged rows of this attempt. Publish it afterwards.
        plan
            The plan that `unfrozen` returned, if none is frozen.
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
            The store did not answer. Delete nothing; the next run reads whether the commit took effect.
        """
        with self._calls, self._lock:
            self._check_open("commit")
            stored = self._head
            before = stored if plan is None else stored.planned(plan)
            items.encode_metrics(metrics, before.plan.next if before.plan else {})
            after = before.committed(token=new_token(), now=self._clock(), metrics=metrics, outputs=outputs)
            try:
                outcome = self._store.swap(stored, after, self._budget)
            except StoreUnavailableError as error:
                raise CommitUnknownError(self.job_id, self.run_id) from error
            said = "done"
            if isinstance(outcome, Lost):
                # A run that took over replays this same plan. If it has committed, the batch is done under the same
                # batch id: an error now would lead operators to delete rows that are committed.
                made = self._committed_from(before, outcome.to)
                if outcome.to is None or made is None:
                    raise self._fenced(outcome.to)
                said = "already"
                # Publish the committed output: another run's, or this run's own if the answer to its commit was lost.
                self.outputs = made.outputs
                after = replace(after, unpublished=outcome.to.unpublished, retracting=outcome.to.retracting)
            else:
                self.outputs = outputs
            self._head, self._closed = after, "committed"
        self._stop_heartbeat()
        if said == "done":
            self._finish(before, after)
        logger.info("event=committed outcome=%s job=%s run=%s version=%d", said, self.job_id, self.run_id, self.version)
        return said

    @property
    def unpublished(self) -> Outputs:
        """Committed output that, as far as this run knows, is perhaps not visible to readers of its target yet."""
        return self._head.unpublished

    @property
    def retracting(self) -> tuple[Retraction, ...]:
        """Output that operators decided to take back, and that may still be at its target as far as this run knows."""
        return self._head.retracting

    def taken_back(self, retractions: tuple[Retraction, ...]) -> None:
        """Drop retractions whose output is permanently gone from its target; this run's next head write stores that."""
        with self._lock:
            self._head = self._head.taken_back(retractions)

    def forget(self, target: str) -> None:
        """Stop expecting old output at a target that an operator emptied; this run's next head write stores that."""
        with self._lock:
            self._head = self._head.forgotten(target)

    def is_unpublished(self, output: Output) -> bool:
        """Return whether the stored head, which this reads again, still lists an output as unpublished."""
        current = self._store.read_head(self.job_id)
        return current is not None and output in current.unpublished

    def lacks(self, output: Output, last: int) -> None:
        """Store in the head that a target has lost published output, and has only the versions up to `last`.

        Raises
        ------
        FencedError
            Another run took over; it checks the target itself.
        """
        with self._lock:
            before, after = self._head, self._head.published((output,), last)
            outcome = self._store.swap(before, after, self._budget)
            if isinstance(outcome, Lost):
                raise self._fenced(outcome.to)
            self._head = after

    def published(self, outputs: Outputs) -> None:
        """Note that `outputs` are committed and visible at their targets, so that no run publishes them again.

        Before this run's commit, its next head write stores the note. After the commit, this call writes the head.
        """
        with self._lock:
            before = self._head
            self._head = before.published(outputs)
            if self._closed != "committed" or self._head == before:
                return
            try:
                # Do not retry if another run's write won: that run still lists these outputs as unpublished, checks
                # each target, and finds that nothing is left to publish.
                self._store.swap(before, self._head, self._budget)
            except WatermarkError as error:
                logger.warning("event=publish_note_deferred job=%s run=%s error=%s", self.job_id, self.run_id, error)

    def abort(self, error: BaseException | None = None, *, is_run: bool = True) -> None:
        """End the claim on the job. A frozen plan stays, and the next run gets it. Safe to call again.

        Parameters
        ----------
        error
            The error that ended the run. The head keeps it, for operators to read, until the next run ends.
        is_run
            False if an operator's call held the job, such as `forget_target`. Only runs are counted as failed.
        """
        with self._calls, self._lock:
            if self._closed:
                return
            failure = failure_text(error)
            outcome = self._store.swap(self._head, self._head.released(is_run=is_run, failure=failure), self._budget)
            if isinstance(outcome, Lost) and outcome.to is not None and self._is_claimed_by_us(outcome.to):
                # A freeze took effect although its answer was lost, so the head has a plan that this run does not
                # know. Abort again from that head, otherwise the job stays blocked until the lease ends.
                outcome = self._store.swap(outcome.to, outcome.to.released(failure=failure), self._budget)
            self._closed = "aborted"
        self._stop_heartbeat()
        if isinstance(outcome, Written):
            self._head = after = outcome.now
            logger.info("event=aborted job=%s run=%s plan_kept=%s", self.job_id, self.run_id, after.plan is not None)
        else:
            logger.warning("event=abort_skipped job=%s run=%s reason=taken_over", self.job_id, self.run_id)

    def heartbeat(self) -> bool:
        """Renew the lease once; False if the run is closed or fenced. Inside ``with``, a thread calls this."""
        with self._lock:
            if self._closed:
                return False
            before, after = self._head, self._head.renewed(self._clock() + self._lease)
            try:
                outcome = self._store.renew(before, after, self._budget)
            except WatermarkError as error:
                logger.warning("event=heartbeat_failed job=%s run=%s error=%s", self.job_id, self.run_id, error)
                return True  # Keep trying: the store may answer again before the lease is over.
            if isinstance(outcome, Written):
                self._head = outcome.now
                return True
            if outcome.to is not None and self._is_claimed_by_us(outcome.to):
                return True  # The run still holds the job: its own freeze, whose answer was lost, changed the head.
            logger.warning("event=fenced job=%s run=%s: another run took over", self.job_id, self.run_id)
            return False

    def __enter__(self) -> Run:
        """Renew the lease by a heartbeat until the end of the block."""
        if self._heartbeat is None:
            # Renew after a third of the lease: if one heartbeat is lost, the next still comes before the lease ends.
            self._heartbeat = Heartbeat(self, Run.heartbeat, self._lease.total_seconds() / 3)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Abort unless committed, and store the block's error in the head. It is raised even if the abort fails."""
        self._stop_heartbeat()
        if self._closed:
            return
        if error is None:
            logger.warning("event=not_committed job=%s run=%s: nothing was saved", self.job_id, self.run_id)
            self.abort()
            return
        try:
            self.abort(error)
        except WatermarkError as failure:
            logger.warning("event=abort_failed job=%s run=%s error=%s", self.job_id, self.run_id, failure)

    def _check_open(self, verb: str) -> None:
        if self._closed:
            raise run_closed(self.job_id, self.run_id, self._closed, verb)

    def _check_claim(self) -> None:
        current = self._store.read_head(self.job_id)
        if current is None or current.identity != self._head.identity:
            raise self._fenced(current)

    def _fenced(self, current: Head | None) -> FencedError:
        return FencedError(self.job_id, self.run_id, self.fence, current.fence if current else 0)

    def _committed_from(self, before: Head, current: Head | None) -> Change | None:
        """Return the change that made the next version after `before`, if it was made from the same plan."""
        # If the epoch differs, the table was restored, and the version with this number is a different one.
        if current is None or before.plan is None or current.epoch != before.epoch:
            return None
        change = current.last
        # The head has only the change of its own version. If later versions have followed, read the log.
        if current.version > before.version + 1:
            entry = self._store.read_log(self.job_id, before.version + 1)
            change = entry.change if entry else None
        return change if change is not None and change.plan_id == before.plan.plan_id else None

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    # --- large plans and states -----------------------------------------------------------------

    def _spill(self, contexts: dict[str, Any], following: dict[str, Any]) -> tuple[Plan, dict[str, list[bytes]]]:
        plan_id = new_token()
        contexts, plan_chunks = spill_large(contexts, "p", plan_id, "plan")
        following, state_chunks = spill_large(following, "s", plan_id, "watermark", self._head.watermarks)
        now, last = self._clock(), self._head.last_time
        later = last + timedelta(microseconds=1) if last is not None and last >= now else None
        if later is not None and later - now > CLOCK_MARGIN:
            logger.warning(
                "event=clock_behind job=%s run=%s last=%s now=%s: the last version has a later time than this "
                "machine's clock, so planned_at is just after it. Check the clocks of the machines that run this job",
                self.job_id, self.run_id, last, now,
            )  # fmt: skip
        return Plan(plan_id, contexts, following, now, later), plan_chunks | state_chunks

    def _kept(self) -> set[str]:
        """Return the ids of the head's and this run's chunks. A new plan may use them: they do not expire before it."""
        plan = self._head.plan
        values = [self._head.watermarks, *([plan.contexts, plan.next] if plan else [])]
        return {reference.id for reference in references(values)} | self._written

    def _resolve(self, value: Any) -> Any:
        """Read the value of a reference from its chunks. References inside another value are read on first use."""
        return self._read(value) if isinstance(value, Spilled) else lazy_blobs(value, self.job_id, self._read)

    def _read(self, reference: Spilled) -> Any:
        """Read a value from chunks. FencedError if they are gone because another run or an operator took over."""
        try:
            return self._store.read_spilled(self.job_id, reference)
        except CorruptItemError:
            self._check_claim()
            raise

    def _is_content(self, plan: Plan, contexts: dict[str, Any], following: dict[str, Any]) -> bool:
        for stored, given in ((plan.contexts, contexts), (plan.next, following)):
            if stored.keys() != given.keys():
                return False
            for name, value in stored.items():
                # A value that was too large is stored as a reference, so read it back to compare its content.
                if not (same_values(value, given[name]) or self._is_value(value, given[name])):
                    return False
        return True

    def _is_value(self, stored: Any, given: Any) -> bool:
        return isinstance(stored, Spilled) and same_values(self._resolve(stored), given)

    def _is_ours(self, current: Head, contexts: dict[str, Any], following: dict[str, Any]) -> bool:
        if current.plan is None or not self._is_claimed_by_us(current):
            return False
        return self._is_content(current.plan, contexts, following)

    def _is_claimed_by_us(self, current: Head) -> bool:
        # Compare the token, not the run id: a retry under the same id is another process, which fences this one.
        ours, theirs = self._head.claim, current.claim
        return ours is not None and theirs is not None and theirs.token == ours.token

    # --- after the commit -----------------------------------------------------------------------

    def _finish(self, before: Head, after: Head) -> None:
        """Write run item and log entry, and delete unused chunks. If this fails, the next begin or `doctor` does it."""
        assert after.log_entry is not None
        assert before.plan is not None
        try:
            self._store.write_log(after.log_entry)
            # `logged` has no write of its own: the next write of the head, such as in `published`, stores it.
            self._head = replace(self._head, logged=after.version)
            # Set expiry before deleting: a role without DeleteItem must still let versions expire.
            if self._retention is not None and before.log_entry is not None:
                expire_version(self._store, before.log_entry, after, self._clock() + self._retention)
            # Keep the plan's blobs that the new state or the previous version uses, as an operator may rewind to the
            # latter. No other version can use them: a plan has only new blobs and those of the state it started from.
            for reference in unused(before.plan, after.watermarks, before.watermarks):
                self._store.delete_chunks(self.job_id, reference)
        except WatermarkError as error:
            logger.warning("event=log_deferred job=%s version=%d error=%s", self.job_id, after.version, error)


def failure_text(error: BaseException | None) -> str | None:
    """Return what the head keeps of the error that ended a run: its class, and its text if it is one of this package's.

    The texts of other errors may quote rows, such as a value that a database refuses. They are left out, and are also
    removed from the text of an error of this package that quotes its cause.
    """
    if error is None:
        return None
    text = str(error)[:MOST_TEXT] if isinstance(error, WatermarkError) else "the log of the run has its text."
    cause: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if cause is None:
            break
        for line in [] if isinstance(cause, WatermarkError) else str(cause).splitlines():
            quoted = line.strip(" :")[: len(text)]
            while len(quoted) > QUOTED and quoted not in text:
                quoted = quoted[:-1]
            text = text.replace(quoted, "…") if len(quoted) >= SHORTEST else text
        cause = cause.__cause__ or cause.__context__
    kind = getattr(error, "kind", type(error).__name__)
    kept = f"{kind}: {redacted(' '.join(text.split()))}".encode(errors="replace")
    return kept[: items.MAX_FAILURE_BYTES].decode(errors="ignore")


def run_closed(job_id: str, run_id: str, how: str, verb: str) -> PlanConflictError:
    """Return the error of a call that came too late, because the run is committed or aborted already."""
    return PlanConflictError(job_id, reason="run_closed", run_id=run_id, how=how, verb=verb)
