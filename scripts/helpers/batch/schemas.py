"""`SchemaKeeping`: store the columns of a job's sources, and log when they change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.batch import NOTHING
from scripts.helpers.schemas.frames import columns_of_rows, engine_of, fitted_rows
from scripts.helpers.schemas.kept import MAX_SCHEMAS, schemas_of, with_schema
from scripts.helpers.schemas.kinds import Columns
from scripts.helpers.schemas.policy import NEW, WIDER, Decision, Given, OnSchemaChange, check_policy, decide

if TYPE_CHECKING:
    from scripts.helpers.batch.batch import Batch

logger = logging.getLogger(__name__)

MAX_NAMES = 20
"""Most names of columns in a version's metrics for one source, besides their number: all metrics share 8 KB."""


class SchemaKeeping:
    """Stores the columns of a batch's sources in the watermarks that the batch's commit will store.

    Parameters
    ----------
    batch
        The batch, whose run has begun.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def known(self, context: str | None) -> Mapping[str, Columns]:
        """Return the schemas that the last commit stored for a source, by format or engine; a replay uses them, too."""
        return schemas_of(self._batch.run.state(context)) if context else {}

    def keep(self, context: str | None, source: str, name: str, decision: Decision) -> None:
        """Log how the columns changed, and add them to the watermark to store at the commit.

        If the plan is frozen already, it is replaced by one with these columns, unless it has the same ones.
        """
        self._tell(context, source, name, decision)
        batch = self._batch
        # Store nothing for a source that the plan leaves for the next run.
        if not context or batch.contexts.get(context, NOTHING) == NOTHING:
            return
        following = batch.following(context)
        if not isinstance(following, Mapping) or not batch.saves:
            return
        if batch.run.closed:
            logger.warning(
                "event=schema_not_kept job=%s context=%s of=%s: the run has ended. Read inside the job's with block",
                batch.run.job_id, context, name,
            )  # fmt: skip
            return
        known = schemas_of(following).get(name)
        # Compare lists, not dicts, because the order of the columns is stored, too.
        if known is not None and list(known.items()) == list(decision.kept.items()):
            return
        after = with_schema(following, name, decision.kept)
        if after is None:
            logger.warning(
                "event=schema_not_kept job=%s context=%s of=%s columns=%d: the schema is too large, or the context "
                "keeps %d schemas already. Give parts with different columns a transformation_ctx each",
                batch.run.job_id, context, name, len(decision.kept), MAX_SCHEMAS,
            )  # fmt: skip
            return
        batch.amend(context, batch.contexts[context], after)

    def rows(self, context: str | None, source: str, found: Any, policy: OnSchemaChange | None) -> Any:
        """Return rows with the columns that a policy allows, and store these. Without a policy, return rows unchanged.

        Raises
        ------
        SchemaChangedError
            The policy does not allow a change. Nothing was written.
        """
        if policy is None or not context:
            return found
        engine = engine_of(found)
        known = self.known(context).get(engine)
        decision = decide(Given(source, context), known, columns_of_rows(found), policy)
        self.keep(context, source, engine, decision)
        return found if known is None or policy == "take" else fitted_rows(found, decision)

    def _tell(self, context: str | None, source: str, name: str, decision: Decision) -> None:
        if decision.left_out:
            self._count(context or "", decision)
        if not decision.changes:
            return
        taken = {change.column for change in decision.changes if change.what in (NEW, WIDER)} - set(decision.left_out)
        is_expected = all(change.column in taken and change.column in decision.target for change in decision.changes)
        logger.log(
            logging.INFO if is_expected and not decision.left_out else logging.WARNING,
            "event=schema_changed job=%s context=%s source=%s of=%s columns=%d left_out=%d: %s%s",
            self._batch.run.job_id, context, source, name, len(decision.changes), len(decision.left_out),
            "; ".join(map(str, decision.changes)),
            f". Left out: {', '.join(decision.left_out)}" if decision.left_out else "",
        )  # fmt: skip

    def _count(self, context: str, decision: Decision) -> None:
        told: dict[str, Any] = self._batch.left_out.setdefault(context, {"count": 0, "names": []})
        new = [name for name in decision.left_out if name not in told["names"]]
        told["count"] += len(new)
        told["names"] += new[: max(0, MAX_NAMES - len(told["names"]))]


def policy_in(options: Mapping[str, Any]) -> tuple[OnSchemaChange | None, dict[str, Any]]:
    """Return the policy for schema changes from the options of a source of rows, and the other options.

    Raises
    ------
    InvalidValueError
        There is no policy of that name.
    """
    others = {name: value for name, value in options.items() if name != "on_schema_change"}
    policy = options.get("on_schema_change")
    if policy is not None:
        check_policy(policy)
    return policy, others
