"""What a table that is read by its versions must offer, and what it tells before a span is fixed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeGuard

from scripts.helpers.tables.spans import Format, TableSpan

Kind = Literal["append", "nothing", "overwrite", "rollback"]


@dataclass(frozen=True)
class TableHead:
    """A table as it is now.

    Attributes
    ----------
    identity
        Which table it is, with its ``uuid``.
    newest
        Its last version or current snapshot; None for an Iceberg table without one.
    at
        When that was committed; None where nothing says so.
    sequence
        The number of that commit, for ``_commit_version``: what follows it in the table's history has higher ones.
    highest
        The highest of all commits, also of other branches and of some that were taken back.
    """

    identity: Mapping[str, Any]
    newest: int | None
    at: datetime | None
    sequence: int
    highest: int


@dataclass(frozen=True)
class Commit:
    """One version of a Delta table, or snapshot of an Iceberg table.

    Attributes
    ----------
    number
        The version, or the id of the snapshot.
    kind
        ``append`` adds rows and takes none away. ``nothing`` changes no row, such as a compaction. ``overwrite`` takes
        rows away. ``rollback`` brings an earlier version back.
    operation
        What the format calls it.
    at
        When it was; None where nothing says so.
    """

    number: int
    kind: Kind
    operation: str
    at: datetime | None


@dataclass(frozen=True)
class TableHistory:
    """What came after a commit, in order.

    Attributes
    ----------
    commits
        All of them, up to the newest. None where `lost` says why they cannot be told.
    lost
        ``expired``: some are gone. ``rollback``: the table's history has the commit no more.
    common
        After a rollback, the last commit that both histories have, if that is known.
    """

    commits: Sequence[Commit] = ()
    lost: Literal["expired", "rollback"] | None = None
    common: int | None = None


class TableSource(Protocol):
    """A table that `rows_since` reads by its versions: `DeltaTable` and `IcebergTable`."""

    name: str
    """For messages and logs; holds no credentials."""
    format: Format

    def identity(self) -> Mapping[str, Any]:
        """Return which table it is."""

    def head(self) -> TableHead:
        """Look at the table; SourceError where there is none, or it cannot be reached."""

    def history(self, after: int, at: datetime | None, head: TableHead) -> TableHistory:
        """Return what was committed after a commit, which was made at a time that may be known."""

    def check_feed(self, span: TableSpan) -> None:
        """Raise ChangeFeedError if the changes of a span cannot be read as rows."""

    def is_lost(self, span: TableSpan) -> bool:
        """Tell whether a span cannot be read any more, as far as that is told without reading its rows."""

    def rows(self, span: TableSpan) -> Any:
        """Return the rows of a span: a DataFrame of Spark, lazily, or one of pandas, or a table of pyarrow."""

    def folder(self) -> str:
        """Return the URI of the folder that its files are in."""

    def typed_errors(self, context: str, job_id: str, *, is_planned: bool = True) -> AbstractContextManager[None]:
        """Let what is raised while rows are read come out as a SourceExpiredError, where files are gone."""


def is_table(source: object) -> TypeGuard[TableSource]:
    """Tell whether a source is a table that is read by its versions."""
    return callable(getattr(type(source), "history", None)) and callable(getattr(type(source), "check_feed", None))
