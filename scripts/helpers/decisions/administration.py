"""Decisions of people about a job: rewind, reset, set, discard, and the doctor. Each is kept in the history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from scripts.helpers.decisions.adoption import Adoption
from scripts.helpers.decisions.decisions import check_expected
from scripts.helpers.decisions.doctor import Finding, examine
from scripts.helpers.errors import InvalidValueError, PlanConflictError, UnknownRunError, WatermarkError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import take_blobs
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.names import check_run_id, new_token
from scripts.helpers.protocol.values import as_stored
from scripts.helpers.rows.coverage import backfill_record_id, is_rows, passed_range, with_coverage_kept
from scripts.helpers.rows.cursor_ranges import uncovered

logger = logging.getLogger(__name__)


class Administration(Adoption):
    """The part of `Watermarks` that changes a job without running it.

    Every decision is one conditional write that is legal from any state. It makes a new version,
    fences the run that is at work and drops its plan. Nothing is deleted at targets: clean those
    by hand where a decision makes rows come again. `who` is the system's user unless given.
    """

    def rewind(
        self,
        job_id: str,
        *,
        to_version: int | None = None,
        to_run: str | None = None,
        context: str | None = None,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Go back to the watermarks of an earlier version or run; what came after is taken again.

        So are rows past the watermark that a backfill has read: a WARNING names the record of it.

        Parameters
        ----------
        to_version, to_run
            One of the two: a version of the history, or a run that committed.
        context
            Only this transformation context; by default the whole job.
        why, who
            Kept in the history.
        expected
            The job as it was when the decision was made, of `latest`: nothing is decided if any run or
            decision has changed it since.

        Raises
        ------
        UnknownJobError, UnknownRunError, UnknownVersionError
            There is no such version or run, it never committed, or its log entry expired.
        StaleError
            The job is not as expected.
        InvalidValueError
            Both or neither of the two are given, or `why` is empty.
        """
        if (to_version is None) == (to_run is None):
            raise InvalidValueError("A rewind takes one of to_version and to_run.")
        if to_version is not None and (type(to_version) is not int or to_version < 1):
            raise InvalidValueError(
                f"A rewind goes to version 1 or later, not {to_version!r}. To forget everything call reset."
            )
        order = self._order(who, why)
        self._check_context(context)

        def change(head: Head) -> Head:
            version = to_version if to_run is None else self.version_of(head, to_run)
            assert version is not None
            entry = self._entry(head, version)
            if context is not None and context not in entry.watermarks and context not in head.watermarks:
                raise InvalidValueError(f"Neither version {version} nor the present one has a context {context!r}.")
            return head.rewound(self._copied(head, entry, context), order, context)

        after = self._decide(job_id, change, expected=expected)
        with suppress(WatermarkError):
            for name, state in after.watermarks.items():
                if context in (None, name) and is_rows(state):
                    self._warn_of_backfills(after, name, state)
        return after

    def reset(
        self,
        job_id: str,
        *,
        context: str | None = None,
        why: str,
        who: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Forget a job's watermarks, or those of one context: the next run takes everything there.

        Versions go on growing, so an idempotent sink takes the coming batches as new ones. With
        `expected`, StaleError if the job is not any more what `latest` returned.
        """
        order = self._order(who, why)
        self._check_context(context)

        def change(head: Head) -> Head:
            if context is not None and context not in head.watermarks:
                raise InvalidValueError(f"Job {job_id!r} has no context {context!r} to reset.")
            return head.reset(order, context)

        return self._decide(job_id, change, expected=expected)

    def set_watermark(
        self,
        job_id: str,
        watermarks: Mapping[str, Any],
        *,
        context: str | None = None,
        why: str,
        who: str | None = None,
        imported_run: str | None = None,
        expected: Head | None = None,
    ) -> Head:
        """Declare "processed up to here" without running; also for a job that has never run.

        Parameters
        ----------
        watermarks
            All values of the job, or the whole state of one `context`. A rows context keeps what it
            has covered; what it jumps over is a gap that `gaps` names.
        imported_run
            The run of another system that left these watermarks. It is in force from then on, and the
            version is an IMPORT; PlanConflictError if the job has watermarks already.
        expected
            The job as it was when the decision was made, of `latest`; ``Head.first(job_id)`` where
            there was none. StaleError if it has changed since.
        """
        order = self._order(who, why)
        self._check_context(context)
        if imported_run is not None:
            order = replace(order, imported_run=check_run_id(imported_run))
        if not isinstance(watermarks, Mapping):
            raise InvalidValueError(f"Watermarks are a map of names to values, not a {type(watermarks).__name__}.")
        chunks: dict[str, list[bytes]] = {}
        values = as_stored(take_blobs(watermarks, job_id, new_token(), chunks))
        if chunks:
            before, head = self._read_for_change(job_id)
            check_expected(head, expected)
            if before is None:
                self._store.swap(None, head)  # Chunks without a head would be taken for a damaged job.
            self._store.write_chunks(job_id, chunks)

        def change(head: Head) -> Head:
            if imported_run is not None and head.watermarks:
                raise PlanConflictError(job_id, "it has watermarks already. Import into a new job, or reset it first.")
            states = values if context is None else {context: values}
            states = {
                name: with_coverage_kept(value, self._state_of(head, name), order.token) if is_rows(value) else value
                for name, value in states.items()
            }
            if head.last is None:
                return head.declared(states if context is None else states[context], order, context)
            return self._declared(head, states if context is None else {**head.watermarks, **states}, order)

        return self._decide(job_id, change, may_be_new=True, expected=expected)

    def discard_plan(self, job_id: str, *, why: str, who: str | None = None, expected: Head | None = None) -> Head:
        """Drop the open plan; the next run makes a new one from the committed watermarks.

        What a dead run wrote under the plan's batch id stays at the sink: the next batch has another id.
        With `expected`, StaleError if the job is not any more what `latest` returned.
        """
        order = self._order(who, why)
        return self._decide(job_id, lambda head: head.discarded(order), expected=expected)

    def version_of(self, head: Head, run_id: str) -> int:
        """Return the version that a run has made; UnknownRunError if none is known."""
        check_run_id(run_id)
        item = self._store.read(head.job_id, run_id)
        version = items.run_from_item(item).get("version") if item else None
        if version is None and head.last and head.last.run_id == run_id:
            version = head.version
        if version is None:
            raise UnknownRunError(head.job_id, run_id)
        found: int = version
        return found

    def doctor(
        self,
        job_id: str,
        *,
        repair: bool = False,
        after_restore: bool = False,
        why: str = "after a restore",
        who: str | None = None,
        expected: Head | None = None,
    ) -> list[Finding]:
        """Look for what is wrong with a job; change nothing unless told.

        Parameters
        ----------
        repair
            Write missing log entries that the head still knows, and delete chunks that nothing refers to.
        after_restore
            Start a new epoch, so that no batch id of before the restore is used again.
        why, who
            Kept in the history, where `after_restore` makes a version.
        expected
            The job as `latest` returned it: with `after_restore`, StaleError if it has changed since.

        Returns
        -------
        list of Finding
            What was found, each with its remedy; empty if all is well.
        """
        self._check(job_id)
        if after_restore:
            order = self._order(who, why)
            self._decide(job_id, lambda head: head.restored(order), expected=expected)
        return examine(self._store, job_id, self._clock(), repair)

    # --- within ---------------------------------------------------------------------------------

    def _warn_of_backfills(self, head: Head, context: str, state: Mapping[str, Any]) -> None:
        """Say that the next runs read rows again that a backfill has read."""
        record, gone_past = backfill_record_id(head.job_id, context, state), passed_range(state)
        covered = self.backfill_record(head.job_id, context, state).covered
        if any(uncovered(interval, [gone_past]) for interval in covered):
            logger.warning(
                "event=backfilled_again job=%s context=%s record=%s: its history names the slices whose rows the next "
                "runs read again", head.job_id, context, record,
            )  # fmt: skip
