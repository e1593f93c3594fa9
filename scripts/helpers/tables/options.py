"""How `rows_since` reads a table by its versions: its options, their defaults, and what is refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from scripts.helpers.display.options import check_choice, options_of
from scripts.helpers.errors import SourceOptionError

Changes = Literal["append", "feed"]
OnLoss = Literal["raise", "reread"]
OnOverwrite = Literal["raise", "skip", "reread"]
Sink = Literal["append", "merge"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "changes": get_args(Changes),
    "on_overwrite": get_args(OnOverwrite),
    "on_expired": get_args(OnLoss),
    "on_rollback": get_args(OnLoss),
    "on_replaced": get_args(OnLoss),
    "sink": get_args(Sink),
}
OF_CURSORS = (
    "delay", "lookback", "high", "settled", "initial_value", "nulls", "descending", "strings", "behind",
)  # fmt: skip
"""Options of sources that are read by a cursor column."""


class TableOptionsGiven(TypedDict, total=False):
    """The arguments of `rows_since` that are `TableOptions` alone, for editors and type checkers."""

    changes: Changes
    start_from: int | Literal["now"] | None
    max_versions: int | None
    on_overwrite: OnOverwrite
    on_expired: OnLoss
    on_rollback: OnLoss
    on_replaced: OnLoss


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
        A commit deletes or overwrites rows, and `changes` is ``append``: ``raise`` SourceRewrittenError, ``skip`` such
        commits with a WARNING that counts them, or ``reread`` the whole table.
    on_expired
        Commits since the watermark, or files of them, are gone: ``raise`` SourceExpiredError or ``reread``.
    on_rollback
        The table was set back to before the watermark: ``raise`` SourceRolledBackError or ``reread``.
    on_replaced
        Another table, or the same name for a table made anew: ``raise`` SourceReplacedError or ``reread``.
    sink
        ``merge`` if what is written replaces rows of the same key. ``reread`` needs it: rows come again.
    """

    changes: Changes = "append"
    start_from: int | Literal["now"] | None = None
    max_versions: int | None = None
    on_overwrite: OnOverwrite = "raise"
    on_expired: OnLoss = "raise"
    on_rollback: OnLoss = "raise"
    on_replaced: OnLoss = "raise"
    sink: Sink = "append"

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
        for name, allowed in CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
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
        rereading = [name for name in CHOICES if getattr(self, name) == "reread"]
        if rereading and self.sink != "merge":
            raise SourceOptionError(
                rereading[0],
                "'reread' reads rows again, and sink='append' would keep them twice. Write them with a sink that "
                "merges by key and say sink='merge', or use 'raise'.",
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
            f"on_overwrite={self.on_overwrite} on_expired={self.on_expired} on_rollback={self.on_rollback} "
            f"on_replaced={self.on_replaced} sink={self.sink}"
        )
