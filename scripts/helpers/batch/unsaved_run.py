"""A run that saves nothing: what a job works on when it is paused or disabled, in place of a `Run`."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from scripts.helpers.batch.modes import Mode
from scripts.helpers.errors import PlanConflictError, RunClosedError
from scripts.helpers.protocol.head import Head, LogEntry, Outputs, Plan
from scripts.helpers.protocol.names import BatchId, check_run_id
from scripts.helpers.watermarks import Watermarks

logger = logging.getLogger(__name__)


class UnsavedRun:
    """A run without lease, plan and commit in the table, which it only reads. Offers what a job needs of a `Run`.

    Another run may hold the job meanwhile, and an open plan stays what it is: neither is looked at.

    Parameters
    ----------
    watermarks, job_id, run_id
        As those of `Watermarks.begin`.
    mode
        One that does not save. Which versions it reads from and up to, `reach.begin` finds out.
    at
        The version that is read from; None for the very beginning.
    until
        The version that a range ends with; None without a range, and where nothing was processed then.
    """

    replay = False
    attempt = 1
    fence = 0

    def __init__(
        self,
        watermarks: Watermarks,
        job_id: str,
        run_id: str,
        mode: Mode,
        at: Head | LogEntry | None = None,
        until: LogEntry | None = None,
    ) -> None:
        self.job_id, self.run_id, self.mode = job_id, check_run_id(run_id), mode
        self.plan: Plan | None = None
        self._watermarks, self._at, self._until = watermarks, at, until
        self._closed: str | None = None

    def __repr__(self) -> str:
        return f"<UnsavedRun {self.run_id!r} of {self.job_id!r}: {self.mode.name}, {self._closed or 'open'}>"

    @property
    def version(self) -> int:
        """The version that is read from: 0 where there is none, or where it is not asked."""
        return self._at.version if self._at else 0

    @property
    def until_version(self) -> int:
        """The version that a range ends with: 0 where nothing was processed then."""
        return self._until.version if self._until else 0

    def state(self, context: str) -> Any:
        """Return the watermark that a context is read from; None for the very beginning."""
        return self._watermarks.lookups.state_at(self._at, context) if self._at else None

    def until(self, context: str) -> Any:
        """Return the watermark that a range ends with; None where the range has nothing of the context."""
        # Both ends may stand for one success. The context has a watermark there, but the range has no run.
        if self._until is None or self.until_version == self.version:
            return None
        return self._watermarks.lookups.state_at(self._until, context)

    def planned(self, context: str) -> None:
        """Return None: no plan is ever inherited."""

    @property
    def watermarks(self) -> Mapping[str, Any]:
        """Empty: nothing follows from this run."""
        return {}

    @property
    def batch_id(self) -> BatchId:
        """The id to key a sink by: a retry under the same run id replaces what it wrote.

        It is made of the mode, the run id, and a hash of the job's name and the range, so that runs of
        other jobs, namespaces and ranges under that run id keep theirs.
        """
        if self.plan is None:
            raise PlanConflictError(self.job_id, "there is no batch before freeze. Freeze the plan first.")
        read = "\n".join([self.job_id, self.mode.name, self.mode.from_run or "", self.mode.to_run or ""])
        digest = hashlib.sha256(read.encode()).hexdigest()[:12]
        return BatchId(self.job_id, f"{self.mode.name}-{quote(self.run_id, safe='')}-{digest}", 1)

    @property
    def closed(self) -> bool:
        """Tell whether the run has ended."""
        return self._closed is not None

    def freeze(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Fix what is taken, for this process only."""
        if self._closed:
            raise RunClosedError(self.job_id, self.run_id, self._closed, "freeze")
        if self.plan is None:
            self.plan = Plan("unsaved", dict(contexts), {}, self._watermarks.clock())
        return self.plan

    def amend(self, contexts: Mapping[str, Any], next_watermarks: Mapping[str, Any]) -> Plan:
        """Fix anew what is taken, for this process only."""
        self.plan = None
        return self.freeze(contexts, next_watermarks)

    def following(self, context: str) -> None:
        """Return None: nothing follows from this run."""

    def check(self) -> None:
        """Raise RunClosedError if the run has ended. No run can take over what is not held."""
        if self._closed:
            raise RunClosedError(self.job_id, self.run_id, self._closed, "check")

    def commit(self, outputs: Outputs = (), plan: Plan | None = None, /, **metrics: Any) -> str:
        """End the run, which saves nothing; return ``"unsaved"``."""
        self._closed = "committed"
        logger.info("event=not_saved job=%s run=%s mode=%s", self.job_id, self.run_id, self.mode.name)
        return "unsaved"

    def abort(self) -> None:
        """End the run. Safe to call again."""
        self._closed = self._closed or "aborted"

    def __enter__(self) -> UnsavedRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.abort()
