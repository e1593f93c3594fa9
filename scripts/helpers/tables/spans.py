"""The span of a table's history that one batch takes, and what is remembered of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from scripts.helpers.errors import SourceChangedError
from scripts.helpers.protocol.fields import MAX_NUMBER, Fields
from scripts.helpers.rows.identity import SOURCE, as_text, remembered
from scripts.helpers.tables.options import Changes

KIND = "table"
Format = Literal["delta", "iceberg"]

CHANGE, VERSION, TIME, ORDER = FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp", "_change_order")
"""Columns that a feed adds: ``insert``, ``update_preimage``, ``update_postimage`` or ``delete``; a number that grows
with each commit; when that was; and 0 for a row that a commit took away, 1 for one that is there after it."""
GONE = ("delete", "update_preimage")
"""Changes whose order is 0."""


@dataclass(frozen=True)
class TableState:
    """What is remembered of a table that is read by its versions.

    Attributes
    ----------
    format
        ``delta`` or ``iceberg``.
    value
        The last commit that was taken; None while an Iceberg table had none.
    at
        When it was committed; None where nothing says so.
    start
        Where the first run was told to start; None for everything.
    source
        What the table said of itself (see `rows.identity`).
    others
        What others keep beside it, such as the schemas that rows were read with.
    """

    format: Format
    value: int | None
    at: datetime | None = None
    start: int | None = None
    source: Mapping[str, Any] | None = field(default=None, hash=False)
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any], name: str) -> TableState:
        """Read what `to_store` wrote; ImplausibleError for anything else."""
        fields = Fields(stored, name)
        return cls(
            fields.one_of("format", get_args(Format)), commit_in(fields, "value"), fields.moment("at", None),
            commit_in(fields, "start"), remembered(stored, name),
            {key: found for key, found in stored.items() if key not in _OF_STATE},
        )  # fmt: skip

    @classmethod
    def opened(cls, stored: Any, format: Format, context: str, name: str) -> TableState:
        """Read a state; SourceChangedError if it is that of rows, of files, or of another format of tables."""
        check_same_kind(stored, format, context, name)
        return cls.read(stored, context)

    def to_store(self) -> dict[str, Any]:
        """Return it as it is stored."""
        given = {name: value for name, value in (("at", self.at), ("start", self.start)) if value is not None}
        return {**stored_identity(self.format, self.source), "value": self.value, **given, **self.others}


_OF_STATE = {"kind", "format", SOURCE, "value", "at", "start"}


@dataclass(frozen=True)
class TableSpan:
    """What one batch takes of a table, all fixed before rows are read.

    Attributes
    ----------
    format
        ``delta``, whose commits are versions, or ``iceberg``, whose commits are snapshots.
    after
        The commit that the span comes after; None where it begins with nothing.
    until
        The last commit that it takes; None while an Iceberg table has none.
    whole
        Whether it is all rows of the table as `until` left it, whatever came before.
    changes
        As `TableOptions.changes`.
    sequence
        Of a whole table that is read as a feed: the ``_commit_version`` of its rows. None otherwise.
    at
        When `until` was committed; None where nothing says so.
    start
        Where the first run was told to start; None for everything.
    source
        What the table says of itself (see `rows.identity`).
    commits
        How many commits it takes; None of a plan that is replayed.
    has_more
        Whether a limit left commits for the next batch.

    Examples
    --------
    >>> span = TableSpan("delta", after=3, until=5, source={"uuid": "1"})
    >>> TableSpan.from_plan(span.to_plan(), "delta", "sales", "s3://lake/sales") == span
    True
    """

    format: Format
    after: int | None
    until: int | None
    whole: bool = False
    changes: Changes = "append"
    sequence: int | None = None
    at: datetime | None = None
    start: int | None = None
    source: Mapping[str, Any] | None = field(default=None, hash=False)
    commits: int | None = field(default=None, compare=False)
    has_more: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether the span can hold no row."""
        return self.until is None or (self.after == self.until and not self.whole)

    @property
    def is_feed(self) -> bool:
        """Tell whether rows say what became of them."""
        return self.changes == "feed"

    def to_plan(self) -> dict[str, Any]:
        """Return what the frozen plan stores; defaults are left out, as a plan holds few entries."""
        identity = stored_identity(self.format, self.source)
        plan: dict[str, Any] = {**identity, "after": self.after, "until": self.until, "changes": self.changes}
        for name in ("whole", "sequence", "at", "start", "has_more"):
            value = getattr(self, name)
            if value not in (None, False):
                plan[name] = value
        return plan

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any], format: Format, context: str, name: str) -> TableSpan:
        """Return the span of a frozen plan.

        Raises
        ------
        SourceChangedError
            It is that of another kind of source.
        ImplausibleError
            It does not say what `to_plan` writes.
        """
        check_same_kind(plan, format, context, name)
        fields = Fields(plan, context)
        after, until, sequence, start = (commit_in(fields, one) for one in ("after", "until", "sequence", "start"))
        whole = fields.flag("whole")
        if after is None and until is not None and not whole:
            raise fields.wrong("after", "the number of a commit, and the plan is not of a whole table")
        return cls(
            format, after, until, whole, fields.one_of("changes", get_args(Changes)), sequence,
            fields.moment("at", None), start, remembered(plan, context), has_more=fields.flag("has_more"),
        )  # fmt: skip

    @property
    def state_after(self) -> dict[str, Any]:
        """What the watermark of this context is once the span is processed, as it is stored."""
        return TableState(self.format, self.until, self.at, self.start, self.source).to_store()


def stored_identity(format: Format, source: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a state or plan says of its table."""
    return {"kind": KIND, "format": format, **({SOURCE: as_text(source)} if source else {})}


def check_same_kind(stored: Mapping[str, Any], format: Format, context: str, name: str) -> None:
    """Raise SourceChangedError if a state or plan is that of rows, of files, or of another format of tables."""
    fields = stored if isinstance(stored, Mapping) else {}
    if fields.get("kind") != KIND:
        raise SourceChangedError(context, f"a source of kind {fields.get('kind')}", name)
    if fields.get("format") != format:
        raise SourceChangedError(context, f"a table of format {fields.get('format')}", name)


def commit_in(fields: Fields, name: str) -> int | None:
    """Return the number of a version or snapshot that a state or plan keeps; None for none."""
    found: int | None = fields.whole(name, None, most=MAX_NUMBER)
    return found


def check_table_plan(stored: Mapping[str, Any], name: str) -> TableSpan:
    """Read a plan; ImplausibleError if `TableSpan.to_plan` did not write it."""
    return TableSpan.from_plan(stored, Fields(stored, name).one_of("format", get_args(Format)), name, name)
