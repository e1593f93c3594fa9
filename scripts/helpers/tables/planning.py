"""Plan which part of a table a batch takes, from options, stored watermark and the table's history. Pure.

::

    what is found          option          what the batch takes
    no watermark           start_from      the whole table, or the commits after `start_from`
    another uuid           on_loss         SourceLostError, or the whole table
    rolled back            on_loss         SourceLostError, or the whole table
    commits or files gone  on_loss         SourceLostError, or the whole table
    rows removed           on_overwrite    SourceError, skip those commits, or whole table; changes="feed" returns them
    otherwise              max_versions    the commits after the watermark, at most that many
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from shlex import quote
from typing import Any, Literal

from scripts.helpers.display.options import option_error
from scripts.helpers.errors import SourceError, SourceLostError
from scripts.helpers.rows.identity import check_same_source
from scripts.helpers.tables.sources import TableHead, TableSource
from scripts.helpers.tables.spans import TableOptions, TableSpan, TableState

logger = logging.getLogger(__name__)

Why = Literal["replaced", "rollback", "expired", "overwrite"]


def plan_span(
    source: TableSource, *, state: Mapping[str, Any] | None, context: str, job_id: str, options: TableOptions
) -> TableSpan:
    """Return the span that was committed to a table since the watermark. No row is read.

    Parameters
    ----------
    state
        The `TableSpan.state_after` of an earlier run; None on a first run.
    context, job_id
        The name of the source in its job, and the name of the job, for error messages and the commands in them.

    Raises
    ------
    SourceError
        There is no table, it cannot be reached, or it cannot provide the requested feed.
    SourceError
        The state is from another kind of source.
    SourceLostError, SourceError
        The table has changed in a way for which an option says ``raise``; see the list at the top of this module.
    """
    planning, head = _Planning(source, options, context, job_id), source.head()
    if state is None:
        return planning.first(head)
    before = TableState.opened(state, source.format, context, source.name)
    try:
        check_same_source(before.source, head.identity, context, job_id)
    except SourceLostError as error:
        return planning.reread(head, "replaced", error)
    if before.value is None:
        # The table had no snapshot at the last run, so all its rows are new.
        return whole_span(source, options, head)
    return planning.since(head, before.value, before.at, before.start)


def whole_span(source: TableSource, options: TableOptions, head: TableHead | None = None) -> TableSpan:
    """Return the span of all rows in the table as it is now."""
    head = head or source.head()
    return TableSpan(
        source.format,
        after=None,
        until=head.newest,
        whole=True,
        changes=options.changes,
        sequence=head.sequence if options.changes == "feed" else None,
        at=head.at,
        source=head.identity,
    )


def span_between(
    source: TableSource,
    before: Mapping[str, Any] | None,
    until: Mapping[str, Any],
    *,
    context: str,
    job_id: str,
    options: TableOptions,
) -> TableSpan:
    """Return the span from the watermark `before` to the later watermark `until`: what the runs between them took.

    If `before` is None, the span is the whole table as of `until`, or what was committed after the first run's
    `start_from`. If `until` is not later than `before`, because the job was rewound in between, the span is empty.

    Raises
    ------
    InvalidValueError
        `max_versions` or `start_from` is given: a range begins and ends with its runs.
    SourceLostError, SourceError
        As in `plan_span`.
    """
    for name in ("max_versions", "start_from"):
        if getattr(options, name) is not None:
            raise option_error(name, "a range of runs begins and ends where they did. Leave it out, or read no range.")
    head = source.head()
    last = TableState.opened(until, source.format, context, source.name)
    first = None if before is None else TableState.opened(before, source.format, context, source.name)
    for state in (last, first or last):
        check_same_source(state.source, head.identity, context, job_id)
    end, at = last.value, last.at
    low = last.start if first is None else first.value
    head = replace(head, newest=end, at=at)
    if low is None or end is None:
        span = whole_span(source, options, head)
        check_not_lost(source, span, context, job_id)
        return span
    nothing = TableSpan(source.format, end, end, changes=options.changes, at=at, source=head.identity, commits=0)
    if low == end:
        return nothing
    # Return no rows if `low` follows `end` (a rewind). If neither follows the other (a restore), raise or read all.
    planning = _Planning(source, options, context, job_id)
    try:
        return replace(planning, options=replace(options, on_loss="raise")).since(
            head, low, None if first is None else first.at
        )
    except SourceLostError as error:
        if error.reason != "rolled_back":
            return planning.reread(head, "expired", error)
        if not source.history(end, at, replace(head, newest=low)).lost:
            return nothing
        return planning.reread(head, "rollback", error)


@dataclass(frozen=True)
class _Planning:
    """Plans one read of a source by its options. The names of the context and the job are for messages."""

    source: TableSource
    options: TableOptions
    context: str
    job_id: str

    def first(self, head: TableHead) -> TableSpan:
        """Return the span of a first run."""
        source, options = self.source, self.options
        whole, start = whole_span(source, options, head), options.start_from
        if start is None:
            return whole
        after = head.newest if start == "now" else int(start)
        if after is None:
            # Take the whole table: it has no snapshot yet, so no commit to start after, and no row to leave out.
            return replace(whole, sequence=None)
        if start == "now":
            return replace(whole, after=after, whole=False, sequence=None, start=after, commits=0)
        if source.history(after, None, head).lost is not None:
            raise option_error(
                "start_from",
                f"{source.name!r} has no commit {after} in its present history, or not all of those after it any more. "
                "Give a later one, or leave it out for the whole table.",
            )
        return self.since(head, after, None, after)

    def since(self, head: TableHead, after: int, at: datetime | None, start: int | None = None) -> TableSpan:
        """Return the span after a commit. If commits did more than append rows, do what the options say."""
        source, options = self.source, self.options
        history = source.history(after, at, head)
        if history.lost == "rollback":
            return self.reread(head, "rollback", self._lost("rolled_back", history.common))
        if history.lost == "expired":
            return self.reread(head, "expired", self._lost("expired"))
        commits = list(history.commits[: options.max_versions])
        until, until_at = (commits[-1].number, commits[-1].at) if commits else (after, at)
        span = TableSpan(
            source.format, after, until, changes=options.changes, at=until_at, start=start, source=head.identity,
            commits=len(commits), has_more=len(commits) < len(history.commits),
        )  # fmt: skip
        if span.is_empty:
            return span
        kinds = {commit.kind for commit in commits}
        if span.is_feed:
            source.check_feed(span)
        elif "rollback" in kinds:
            return self.reread(head, "rollback", self._lost("rolled_back"))
        elif "overwrite" in kinds:
            overwrites = [commit.operation for commit in commits if commit.kind == "overwrite"]
            operations = sorted(set(overwrites))
            if options.on_overwrite != "skip":
                facts: dict[str, Any] = {"context": self.context, "operations": operations, "count": len(overwrites)}
                error = SourceError(source.name, reason="rewritten", **facts)
                return self.reread(head, "overwrite", error)
            logger.warning(
                "event=overwrites_skipped context=%s source=%s commits=%d operations=%s: the run skips rows that these "
                "commits added or removed",
                self.context, source.name, len(overwrites), ",".join(operations),
            )  # fmt: skip
        # Check for deleted files: a frozen plan that needs one fails in each run. Check last: this takes requests.
        if source.is_lost(span):
            return self.reread(head, "expired", self._lost("expired"))
        return span

    def _lost(self, reason: str, common: int | None = None) -> SourceLostError:
        """Return a SourceLostError. `common` is the last commit that is in the history before and after a rollback."""
        job = f"{quote(self.job_id)} --context {quote(self.context)}"
        detail = (
            "" if common is None else
            " To continue from the last commit that both have, delete from the target what came after it, then run "
            f"`watermarks set {job} value:int={common} --why TEXT`."
        )  # fmt: skip
        facts: dict[str, Any] = {"context": self.context, "job_id": self.job_id, "common": common}
        return SourceLostError(self.source.name, detail, reason=reason, **facts)

    def reread(self, head: TableHead, why: Why, error: SourceError) -> TableSpan:
        """Return the span of the whole table, or raise `error`, depending on the option for this case."""
        if (self.options.on_overwrite if why == "overwrite" else self.options.on_loss) == "raise":
            raise error
        logger.warning(
            "event=table_reread context=%s source=%s why=%s: all rows of the table are read again, but not those that "
            "are gone from it. To find these at the target, compare its keys with those of the table",
            self.context, self.source.name, why,
        )  # fmt: skip
        # Give rows the highest commit number, so that rows of earlier batches never seem newer, even after a rollback.
        return whole_span(self.source, self.options, replace(head, sequence=head.highest))


def check_not_lost(
    source: TableSource, span: TableSpan, context: str, job_id: str, *, is_planned: bool = False
) -> None:
    """Raise SourceLostError if commits or files of a span are gone; `is_planned` for the span of a frozen plan."""
    if not span.is_empty and source.is_lost(span):
        raise SourceLostError(
            source.name, reason="expired_plan" if is_planned else "expired", context=context, job_id=job_id
        )
