"""The span of a table's history that one batch takes, and the state that is stored for the next batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args

from scripts.helpers.display.options import check_choices, option_error, options_of
from scripts.helpers.errors import SourceError
from scripts.helpers.protocol.fields import MAX_NUMBER, Fields
from scripts.helpers.rows.identity import SOURCE, as_text, remembered
from scripts.helpers.rows.options import RowOptionsGiven, WriteDisposition

# --- options --------------------------------------------------------------------------------------
# Options of `rows_since` for a table that is read by its versions: names, defaults and checks.

Changes = Literal["append", "feed"]
OnLoss = Literal["raise", "take"]
OnOverwrite = Literal["raise", "skip", "take"]

OF_CURSORS = RowOptionsGiven.__annotations__.keys() - {"start_from", "write_disposition", "max_rows"}
"""Options that apply only to sources with a cursor column."""


class TableOptionsGiven(TypedDict, total=False):
    """The arguments of `rows_since` that only `TableOptions` has, for editors and type checkers."""

    changes: Changes
    start_from: int | Literal["now"] | None
    max_versions: int | None
    on_overwrite: OnOverwrite
    on_loss: OnLoss


@dataclass(frozen=True)
class TableOptions:
    """How `rows_since` reads a `DeltaTable` or an `IcebergTable`.

    By default it reads the rows appended since the last run, and raises an error if anything else changed.

    Attributes
    ----------
    changes
        ``append``: the rows that commits appended. ``feed``: inserts, updates and deletes, as the table records them,
        with columns that describe each change; see `spans.FEED_COLUMNS`.
    start_from
        What a first run takes. None: the whole table as it is then. ``"now"``: nothing; the next run takes what was
        committed since. A number: what was committed after that version of Delta or snapshot of Iceberg.
    max_versions
        Most commits in one batch; the next batch continues from there (`IncrementalJob.has_more`). A commit is never
        split, nor is a whole table.
    on_overwrite
        What to do if a commit deletes or overwrites rows and `changes` is ``append``: ``raise`` SourceError, ``skip``
        such commits with a WARNING that counts them, or ``take`` the whole table again.
    on_loss
        What to do if the table no longer has everything since the watermark: ``raise`` an error, or ``take`` the
        whole table again. The error is a SourceLostError. Its reason is ``expired`` if commits or their files are gone,
        ``rolled_back`` if the table was set back to before the watermark, and ``replaced`` if it is another table.
    write_disposition
        ``merge`` if the target replaces rows with the same key. ``take`` requires it, because rows are read again.
    """

    changes: Changes = "append"
    start_from: int | Literal["now"] | None = None
    max_versions: int | None = None
    on_overwrite: OnOverwrite = "raise"
    on_loss: OnLoss = "raise"
    write_disposition: WriteDisposition = "append"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TableOptions:
        """Check the options that a caller gives, and return them.

        Raises
        ------
        InvalidValueError
            An option is unknown, or has an invalid value.
        """
        for name in options:
            if name == "max_rows":
                raise option_error(
                    name, "a table is read by whole commits, which are not split. Give max_versions, or leave it out."
                )
            if name in OF_CURSORS:
                raise option_error(name, "it is of cursor columns, and a table is read by its versions. Leave it out.")
        found = options_of(cls, options, ("transformation_ctx", "on_schema_change"))
        found.check()
        return found

    def check(self) -> None:
        """Raise InvalidValueError for invalid options, before the table is accessed."""
        check_choices(self)
        # Compare the exact type, because True is an int in Python.
        if self.max_versions is not None and (type(self.max_versions) is not int or self.max_versions < 1):
            raise option_error(
                "max_versions", f"{self.max_versions!r} is not a whole number of 1 or more. Omit it for all."
            )
        start = self.start_from
        if not (start is None or start == "now" or (type(start) is int and start >= 0)):
            raise option_error(
                "start_from", f"{start!r} is unknown. Use 'now', the number of a version or snapshot, or leave it out."
            )
        again = [name for name in ("on_overwrite", "on_loss") if getattr(self, name) == "take"]
        if again and self.write_disposition != "merge":
            raise option_error(
                again[0],
                "'take' reads rows again, and write_disposition='append' would keep them twice. Write them with a sink "
                "that merges by key and say write_disposition='merge', or use 'raise'.",
            )
        if self.changes == "feed" and self.on_overwrite != "raise":
            raise option_error(
                "on_overwrite", "it is of changes='append': a feed has what was overwritten. Leave it out."
            )

    def __str__(self) -> str:
        """Return the options as a log shows them."""
        # Do not log the given version: logs show no values.
        start = "given"
        if self.start_from is None:
            start = "everything"
        elif self.start_from == "now":
            start = "now"
        return (
            f"changes={self.changes} start_from={start} max_versions={self.max_versions or 'all'} "
            f"on_overwrite={self.on_overwrite} on_loss={self.on_loss} write_disposition={self.write_disposition}"
        )


# --- spans: the commits of a table that a batch reads ---------------------------------------------

KIND = "table"
Format = Literal["delta", "iceberg"]

CHANGE, VERSION, TIME, ORDER = FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp", "_change_order")
"""Columns that a feed adds: ``insert``, ``update_preimage``, ``update_postimage`` or ``delete``; a number that grows
with each commit; the time of the commit; and 0 for a row that the commit removed, 1 for a row that it wrote."""
GONE = ("delete", "update_preimage")
"""Changes whose ``_change_order`` is 0."""


@dataclass(frozen=True)
class TableState:
    """The stored state of a table that is read by its versions.

    Attributes
    ----------
    format
        ``delta`` or ``iceberg``.
    value
        The number of the last commit that was taken; None while an Iceberg table has none.
    at
        The time of that commit; None if unknown.
    start
        The number of the commit after which the first run started; None if the first run took the whole table.
    source
        The identity of the table (see `rows.identity`).
    others
        Further entries of the stored state, which other modules write, such as the schemas of the rows.
    """

    format: Format
    value: int | None
    at: datetime | None = None
    start: int | None = None
    source: Mapping[str, Any] | None = field(default=None, hash=False)
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any], name: str) -> TableState:
        """Read a state that `to_store` wrote; ImplausibleError for anything else."""
        fields = Fields(stored, name)
        return cls(
            fields.one_of("format", get_args(Format)), commit_in(fields, "value"), fields.moment("at", None),
            commit_in(fields, "start"), remembered(stored, name),
            {key: found for key, found in stored.items() if key not in _OF_STATE},
        )  # fmt: skip

    @classmethod
    def opened(cls, stored: Any, format: Format, context: str, name: str) -> TableState:
        """Read a state; SourceError if it is from rows, files, or another table format."""
        check_same_kind(stored, format, context, name)
        return cls.read(stored, context)

    def to_store(self) -> dict[str, Any]:
        """Return the state as it is stored."""
        given = {name: value for name, value in (("at", self.at), ("start", self.start)) if value is not None}
        return {**stored_identity(self.format, self.source), "value": self.value, **given, **self.others}


_OF_STATE = {"kind", "format", SOURCE, "value", "at", "start"}


@dataclass(frozen=True)
class TableSpan:
    """The part of a table that one batch takes, fixed before rows are read.

    Attributes
    ----------
    format
        ``delta``, whose commits are versions, or ``iceberg``, whose commits are snapshots.
    after
        The number of the last commit before the span; None if there is no such commit.
    until
        The number of the last commit that the span takes; None while an Iceberg table has none.
    whole
        Whether the span takes all rows of the table as of `until`, whichever commit wrote them.
    changes
        As `TableOptions.changes`.
    sequence
        The ``_commit_version`` of all rows, the newest commit's, if a whole table is read as a change feed; else None.
    at
        The time of the commit `until`; None if unknown.
    start
        As `TableState.start`.
    source
        The identity of the table (see `rows.identity`).
    commits
        The number of commits that the span takes; None for a replayed plan.
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
        """Return whether the span takes no commit, and so contains no row."""
        return self.until is None or (self.after == self.until and not self.whole)

    @property
    def is_feed(self) -> bool:
        """Return whether the span is read as a feed of changes."""
        return self.changes == "feed"

    def to_plan(self) -> dict[str, Any]:
        """Return the span as a frozen plan stores it, without defaults because a plan has room for few entries."""
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
        SourceError
            The plan is from another kind of source.
        ImplausibleError
            `to_plan` did not write the plan.
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
        """The watermark to store once the span is processed."""
        return TableState(self.format, self.until, self.at, self.start, self.source).to_store()


def stored_identity(format: Format, source: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entries of a state or plan that identify its table."""
    return {"kind": KIND, "format": format, **({SOURCE: as_text(source)} if source else {})}


def check_same_kind(stored: Mapping[str, Any], format: Format, context: str, name: str) -> None:
    """Raise SourceError if a state or plan is from rows, files, or another table format."""
    fields = stored if isinstance(stored, Mapping) else {}
    if fields.get("kind") != KIND:
        raise SourceError(name, reason="changed", context=context, before=f"a source of kind {fields.get('kind')}")
    if fields.get("format") != format:
        raise SourceError(name, reason="changed", context=context, before=f"a table of format {fields.get('format')}")


def commit_in(fields: Fields, name: str) -> int | None:
    """Return the number of the version or snapshot that a state or plan has under `name`; None if it has none."""
    found: int | None = fields.whole(name, None, most=MAX_NUMBER)
    return found


def check_table_plan(stored: Mapping[str, Any], name: str) -> TableSpan:
    """Read a plan; ImplausibleError if `TableSpan.to_plan` did not write it."""
    return TableSpan.from_plan(stored, Fields(stored, name).one_of("format", get_args(Format)), name, name)
