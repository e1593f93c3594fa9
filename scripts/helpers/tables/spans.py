"""The span of a table's history that one batch takes, and what is remembered of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args

from scripts.helpers.display.options import check_choices, options_of
from scripts.helpers.errors import SourceChangedError, SourceOptionError
from scripts.helpers.protocol.fields import MAX_NUMBER, Fields
from scripts.helpers.rows.identity import SOURCE, as_text, remembered
from scripts.helpers.rows.options import RowOptionsGiven, WriteDisposition

# --- options --------------------------------------------------------------------------------------
# How `rows_since` reads a table by its versions: its options, their defaults, and what is refused.

Changes = Literal["append", "feed"]
OnLoss = Literal["raise", "take"]
OnOverwrite = Literal["raise", "skip", "take"]

OF_CURSORS = RowOptionsGiven.__annotations__.keys() - {"start_from", "write_disposition", "max_rows"}
"""Options of sources that are read by a cursor column."""


class TableOptionsGiven(TypedDict, total=False):
    """The arguments of `rows_since` that are `TableOptions` alone, for editors and type checkers."""

    changes: Changes
    start_from: int | Literal["now"] | None
    max_versions: int | None
    on_overwrite: OnOverwrite
    on_loss: OnLoss


@dataclass(frozen=True)
class TableOptions:
    """How `rows_since` reads a `DeltaTable` or an `IcebergTable`.

    By default rows that were appended since the last run, and an error wherever these are not all there is to say.

    Attributes
    ----------
    changes
        ``append``: the rows that commits have appended. ``feed``: inserts, updates and deletes, as the table keeps
        them, with columns that say which; see `spans.FEED_COLUMNS`.
    start_from
        What a first run takes. None: the whole table, as it is then. ``"now"``: nothing, and the next run what came
        since. A number: what was committed after that version of Delta or snapshot of Iceberg.
    max_versions
        Most commits of one batch; the next one goes on from there (`IncrementalJob.has_more`). A commit is never
        split, nor is a whole table.
    on_overwrite
        A commit deletes or overwrites rows, and `changes` is ``append``: ``raise`` SourceError, ``skip`` such
        commits with a WARNING that counts them, or ``take`` the whole table again.
    on_loss
        What came since the watermark cannot be told from the table any more: ``raise`` an error, or ``take`` the
        whole table again. The error is SourceExpiredError if commits or their files are gone, SourceRolledBackError
        if the table was set back to before the watermark, and SourceReplacedError if it is another table.
    write_disposition
        ``merge`` if what is written replaces rows of the same key. ``take`` needs it: rows come again.
    """

    changes: Changes = "append"
    start_from: int | Literal["now"] | None = None
    max_versions: int | None = None
    on_overwrite: OnOverwrite = "raise"
    on_loss: OnLoss = "raise"
    write_disposition: WriteDisposition = "append"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TableOptions:
        """Return the options that a caller gives, checked.

        Raises
        ------
        SourceOptionError
            An option that there is not, or a value that it does not have.
        """
        for name in options:
            if name == "max_rows":
                raise SourceOptionError(
                    name, "a table is read by whole commits, which are not split. Give max_versions, or leave it out."
                )
            if name in OF_CURSORS:
                raise SourceOptionError(
                    name, "it is of cursor columns, and a table is read by its versions. Leave it out."
                )
        found = options_of(cls, options, ("transformation_ctx", "on_schema_change"))
        found.check()
        return found

    def check(self) -> None:
        """Refuse what cannot be meant, before the table is asked."""
        check_choices(self)
        # True is an int in Python.
        if self.max_versions is not None and (type(self.max_versions) is not int or self.max_versions < 1):
            raise SourceOptionError(
                "max_versions", f"{self.max_versions!r} is not a whole number of 1 or more. Omit it for all."
            )
        start = self.start_from
        if not (start is None or start == "now" or (type(start) is int and start >= 0)):
            raise SourceOptionError(
                "start_from", f"{start!r} is unknown. Use 'now', the number of a version or snapshot, or leave it out."
            )
        again = [name for name in ("on_overwrite", "on_loss") if getattr(self, name) == "take"]
        if again and self.write_disposition != "merge":
            raise SourceOptionError(
                again[0],
                "'take' reads rows again, and write_disposition='append' would keep them twice. Write them with a sink "
                "that merges by key and say write_disposition='merge', or use 'raise'.",
            )
        if self.changes == "feed" and self.on_overwrite != "raise":
            raise SourceOptionError(
                "on_overwrite", "it is of changes='append': a feed has what was overwritten. Leave it out."
            )

    def __str__(self) -> str:
        """Return what a log shows of them."""
        # A version or a time that was given is a value, which no log shows.
        start = "given"
        if self.start_from is None:
            start = "everything"
        elif self.start_from == "now":
            start = "now"
        return (
            f"changes={self.changes} start_from={start} max_versions={self.max_versions or 'all'} "
            f"on_overwrite={self.on_overwrite} on_loss={self.on_loss} write_disposition={self.write_disposition}"
        )


# --- spans ----------------------------------------------------------------------------------------

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
