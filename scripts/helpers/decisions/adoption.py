"""Taking over a job of the original class: which of its items is the most recent one, when no rule can tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scripts.helpers.decisions.decisions import Decisions
from scripts.helpers.errors import InvalidValueError, PlanConflictError, UnknownRunError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.names import check_run_id

ADOPTED = "it has a committed state already; there is nothing to adopt."
ADOPTED_BY_HAND = "adopted by hand"


class Adoption(Decisions):
    """The part of `Watermarks` that takes over items of the original class by hand."""

    def latest_started(self, job_id: str, runs: Iterable[Mapping[str, Any]]) -> str:
        """Return which of Glue's ``JobRuns`` has an item of the original class and started last.

        Raises
        ------
        PlanConflictError
            The job has a head already, so its latest run is known.
        InvalidValueError
            No run of the list has an item.
        """
        self._check(job_id)
        head = self._store.read_head(job_id)
        found: dict[str, items.Item] = {}
        if head is None:
            head, found = self._without_head(job_id)
        if head is not None:
            raise PlanConflictError(job_id, ADOPTED)
        return _latest_started(job_id, runs, found)

    def adopt(
        self,
        job_id: str,
        run_id: str | None = None,
        *,
        runs: Iterable[Mapping[str, Any]] | None = None,
        why: str = ADOPTED_BY_HAND,
        who: str | None = None,
    ) -> Head:
        """Declare which item of the original class is the most recent one of a job without a head.

        Parameters
        ----------
        run_id
            The run whose item is right.
        runs
            Instead of it, the ``JobRuns`` that Glue's ``get_job_runs`` returns: of the runs that have
            an item, the one with the latest ``StartedOn`` is taken.
        why, who
            Kept in the history.

        Raises
        ------
        UnknownRunError
            There is no such item.
        PlanConflictError
            The job has a head already; nothing is left to adopt.
        InvalidValueError
            Both or neither of the two are given, or no run of the list has an item.
        """
        self._check(job_id)
        if (run_id is None) == (runs is None):
            raise InvalidValueError("adopt takes one of run_id and runs.")
        if run_id is not None:
            check_run_id(run_id)
        order = self._order(who, why)
        current = self._store.read_head(job_id)
        head = None
        if current is None:
            current, found = self._without_head(job_id)
        if current is None:
            run_id = run_id or _latest_started(job_id, runs or (), found)
            if run_id not in found:
                raise UnknownRunError(job_id, run_id)
            head = self._import(found[run_id], len(found)).explained(order)
            current = self._store.swap(None, head)
        if head is None or current is None or current.identity != head.identity:
            raise PlanConflictError(job_id, ADOPTED)
        self._repair_log(head)
        return head


def _latest_started(job_id: str, runs: Iterable[Mapping[str, Any]], found: Mapping[str, Any]) -> str:
    started = {run["Id"]: run["StartedOn"] for run in runs if run.get("Id") in found and "StartedOn" in run}
    if not started:
        known = (
            f"Its items are of runs {', '.join(sorted(found)[:10])}." if found else "It has no items; check the name."
        )
        raise InvalidValueError(f"None of the runs given has an item of job {job_id!r}. {known}")
    return str(max(started, key=started.__getitem__))
