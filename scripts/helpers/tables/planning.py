"""Fix what one batch takes of a table: options, the stored watermark, and the table's history, into a span. Pure.

::

    no watermark           the whole table, or from where `start_from` says
    another uuid           on_replaced     SourceReplacedError, or the whole table
    set back               on_rollback     SourceRolledBackError, or the whole table
    commits or files gone  on_expired      SourceExpiredError, or the whole table
    rows taken away        on_overwrite    SourceRewrittenError, or without those commits, or all; a feed has them
    else                   what was committed after the watermark, at most `max_versions` of it
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from scripts.helpers.errors import (
    SourceExpiredError,
    SourceOptionError,
    SourceReplacedError,
    SourceRewrittenError,
    SourceRolledBackError,
)
from scripts.helpers.rows.identity import check_same_source
from scripts.helpers.tables.options import TableOptions
from scripts.helpers.tables.sources import Commit, TableHead, TableHistory, TableSource
from scripts.helpers.tables.spans import TableSpan, check_same_kind

logger = logging.getLogger(__name__)

Why = Literal["replaced", "rollback", "expired", "overwrite"]


def plan_span(
    source: TableSource,
    *,
    state: Mapping[str, Any] | None = None,
    context: str = "rows",
    job_id: str = "JOB",
    options: TableOptions | None = None,
) -> TableSpan:
    """Return what was committed to a table since the watermark. No row is read.

    Parameters
    ----------
    source
        The table.
    state
        What an earlier `TableSpan.state_after` returned; None on a first run.
    context
        Name of the source inside its job, for messages.
    job_id
        The job, for the commands that errors name.
    options
        By default those of `TableOptions`.

    Raises
    ------
    SourceError
        There is no table, or it cannot be reached.
    SourceChangedError
        The state is that of another kind of source.
    SourceReplacedError, SourceRolledBackError, SourceExpiredError, SourceRewrittenError
        What the options do not say otherwise of.
    ChangeFeedError
        A feed was asked for, and the table cannot give it.
    """
    chosen = options or TableOptions()
    head = source.head()
    if state is None:
        return _first(source, head, chosen, context, job_id)
    check_same_kind(state, source.format, context, source.name)
    try:
        check_same_source(state, head.identity, context, job_id)
    except SourceReplacedError:
        if chosen.on_replaced == "raise":
            raise
        return _reread(source, head, chosen, "replaced", context)
    after, start = state.get("value"), state.get("start")
    if after is None:
        # It had no snapshot when it was looked at last, so all that is there came since.
        return whole_span(source, chosen, head)
    return _since(source, head, after, state.get("at"), chosen, context, job_id, start)


def whole_span(source: TableSource, options: TableOptions, head: TableHead | None = None) -> TableSpan:
    """Return the span of all rows, as they are now."""
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
    """Return what was committed from one watermark to a later one: what the runs between them took.

    From the very beginning it is the whole table, as the later watermark left it, or what came after the start that the
    first run was given. Where the later watermark does not follow the earlier one, as after a rewind in between, it is
    nothing.

    Raises
    ------
    SourceOptionError
        `max_versions` or `start_from`: a range ends where its runs did.
    SourceChangedError, SourceReplacedError, SourceRolledBackError, SourceExpiredError, SourceRewrittenError
        As `plan_span`.
    """
    for name in ("max_versions", "start_from"):
        if getattr(options, name) is not None:
            raise SourceOptionError(
                name, "a range of runs begins and ends where they did. Leave it out, or read no range."
            )
    head = source.head()
    for state in (until, before):
        if state is not None:
            check_same_kind(state, source.format, context, source.name)
            check_same_source(state, head.identity, context, job_id)
    end, at = until.get("value"), until.get("at")
    low = until.get("start") if before is None else before.get("value")
    head = replace(head, newest=end, at=at)
    if low is None or end is None:
        span = whole_span(source, options, head)
        return _readable(source, span, context, job_id)
    if low == end:
        return TableSpan(source.format, low, end, changes=options.changes, at=at, source=head.identity, commits=0)
    # A rewind in between looks like a table that was set back: which of both it is, is found out below.
    strict = replace(options, on_rollback="raise")
    try:
        return _since(source, head, low, None if before is None else before.get("at"), strict, context, job_id, None)
    except SourceRolledBackError:
        if not source.history(end, at, replace(head, newest=low)).lost:
            return TableSpan(source.format, end, end, changes=options.changes, at=at, source=head.identity, commits=0)
        if options.on_rollback == "raise":
            raise
        return _reread(source, head, options, "rollback", context)


def _first(source: TableSource, head: TableHead, options: TableOptions, context: str, job_id: str) -> TableSpan:
    """Return the span of a first run."""
    start = options.start_from
    if start is None:
        return whole_span(source, options, head)
    after = head.newest if start == "now" else int(start)
    if after is None:
        # A table without a snapshot: there is nothing to leave out, and nothing to start after.
        return replace(whole_span(source, options, head), sequence=None)
    if start == "now":
        found = TableSpan(source.format, after, after, changes=options.changes, at=head.at, source=head.identity)
        return replace(found, start=after, commits=0)
    history = source.history(after, None, head)
    if history.lost is not None:
        raise SourceOptionError(
            "start_from",
            f"{source.name!r} has no commit {after} in its present history, or not all of those after it any more. "
            "Give a later one, or leave it out for the whole table.",
        )
    return _since(source, head, after, None, options, context, job_id, after)


def _since(
    source: TableSource,
    head: TableHead,
    after: int,
    at: datetime | None,
    options: TableOptions,
    context: str,
    job_id: str,
    start: int | None,
) -> TableSpan:
    """Return the span after a commit, or what the options say where there is more to it."""
    history = source.history(after, at, head)
    if history.lost is not None:
        _check_lost(source, history, options, context, job_id)
        return _reread(source, head, options, history.lost, context)
    commits = list(history.commits[: options.max_versions])
    until, until_at = (commits[-1].number, commits[-1].at) if commits else (after, at)
    span = TableSpan(
        source.format, after, until, changes=options.changes, at=until_at, start=start, source=head.identity,
        commits=len(commits), has_more=len(commits) < len(history.commits),
    )  # fmt: skip
    if span.is_empty:
        return span
    if span.is_feed:
        source.check_feed(span)
    else:
        why = _taken_away(source, commits, options, context, job_id)
        if why is not None:
            return _reread(source, head, options, why, context)
    # Last, as it looks at files. A span that is rid of its files would fail in each replay.
    if source.is_lost(span):
        if options.on_expired == "raise":
            raise SourceExpiredError(source.name, context, job_id)
        return _reread(source, head, options, "expired", context)
    return span


def _check_lost(source: TableSource, history: TableHistory, options: TableOptions, context: str, job_id: str) -> None:
    """Raise what a history that is not whole comes to, unless the option says otherwise."""
    if history.lost == "rollback" and options.on_rollback == "raise":
        raise SourceRolledBackError(source.name, context, job_id, history.common)
    if history.lost == "expired" and options.on_expired == "raise":
        raise SourceExpiredError(source.name, context, job_id)


def _taken_away(
    source: TableSource, commits: list[Commit], options: TableOptions, context: str, job_id: str
) -> Why | None:
    """Tell why the whole table is to be read, where commits took rows away; None where it is not."""
    back = [commit for commit in commits if commit.kind == "rollback"]
    if back:
        if options.on_rollback == "raise":
            raise SourceRolledBackError(source.name, context, job_id)
        return "rollback"
    overwrites = [commit for commit in commits if commit.kind == "overwrite"]
    if not overwrites:
        return None
    operations = sorted({commit.operation for commit in overwrites})
    if options.on_overwrite == "raise":
        raise SourceRewrittenError(source.name, context, operations, len(overwrites))
    if options.on_overwrite == "reread":
        return "overwrite"
    logger.warning(
        "event=overwrites_skipped context=%s source=%s commits=%d operations=%s: rows that they added or removed are "
        "not reported",
        context, source.name, len(overwrites), ",".join(operations),
    )  # fmt: skip
    return None


def _reread(source: TableSource, head: TableHead, options: TableOptions, why: Why, context: str) -> TableSpan:
    logger.warning(
        "event=table_reread context=%s source=%s why=%s: all its rows are read again. Rows that are gone from it are "
        "not among them: compare the keys with those of the target",
        context, source.name, why,
    )  # fmt: skip
    # Rows that were read before may have any number so far, also where the table is back at an older commit.
    return whole_span(source, options, replace(head, sequence=head.highest))


def _readable(source: TableSource, span: TableSpan, context: str, job_id: str) -> TableSpan:
    """Return a span; SourceExpiredError if it cannot be read any more."""
    if not span.is_empty and source.is_lost(span):
        raise SourceExpiredError(source.name, context, job_id)
    return span


def check_replay(source: TableSource, span: TableSpan, context: str, job_id: str) -> None:
    """Raise SourceExpiredError if what a frozen plan takes is gone."""
    if not span.is_empty and source.is_lost(span):
        raise SourceExpiredError(source.name, context, job_id, is_planned=True)
