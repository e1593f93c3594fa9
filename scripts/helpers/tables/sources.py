"""The interface of a table that is read by its versions, with the types for its state and its commits. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeGuard, get_args

from scripts.helpers.display.options import check_choice, option_error
from scripts.helpers.errors import SourceError, SourceLostError, TargetError, WatermarkError
from scripts.helpers.spark.java_errors import reason_of
from scripts.helpers.tables.frames import Returns, frame_of_arrow
from scripts.helpers.tables.spans import Format, TableSpan

Kind = Literal["append", "nothing", "overwrite", "rollback"]


@dataclass(frozen=True)
class TableHead:
    """The present state of a table.

    Attributes
    ----------
    identity
        What identifies the table: its folder (Delta) or name (Iceberg), and its ``uuid``.
    newest
        The number of its last version, or the id of its current snapshot; None for an Iceberg table without a snapshot.
    at
        The time of that commit; None if unknown.
    sequence
        The number of the commit `newest` in the order of commits. A change feed has it as column ``_commit_version``.
    highest
        The highest `sequence` of any commit, also of other branches, and of some commits that were rolled back.
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
        ``append`` adds rows and removes none. ``nothing`` changes no row, such as a compaction. ``overwrite`` removes
        rows. ``rollback`` restores an earlier version.
    operation
        The format's name for the operation.
    at
        The time of the commit; None if unknown.
    """

    number: int
    kind: Kind
    operation: str
    at: datetime | None


@dataclass(frozen=True)
class TableHistory:
    """The commits after a given commit, in order.

    Attributes
    ----------
    commits
        The commits, oldest first, up to the newest; empty if `lost` is set.
    lost
        None if no commit is missing. ``expired``: some were deleted. ``rollback``: the given commit was rolled back.
    common
        After a rollback, the last commit that is in the history before it and after it; None if unknown.
    """

    commits: Sequence[Commit] = ()
    lost: Literal["expired", "rollback"] | None = None
    common: int | None = None


class TableEngine(Protocol):
    """Reads the log of a table, and its files."""

    def whole(self, span: TableSpan) -> Any:
        """Return all rows of the table at the end of a span; for an empty span, no rows, with the same columns."""

    def is_of_connector(self, error: Exception) -> bool:
        """Return whether an error comes from the connector that reads the table: Spark, `deltalake` or `pyiceberg`."""

    def is_gone(self, error: Exception) -> bool:
        """Return whether an error is about commits or files of the table that are gone."""


class TableSource(ABC):
    """A table that `rows_since` reads by its versions: a `DeltaTable` or an `IcebergTable`.

    `name` is for messages and logs, and contains no credentials.
    """

    format: Format
    named_by: str
    """What names the table, ``path`` or ``name``, for error messages."""
    _engine: TableEngine

    def __init__(self, name: str, returns: Returns | None, *, with_spark: bool) -> None:
        check_choice("returns", returns, (*get_args(Returns), None))
        if returns is not None and with_spark:
            raise option_error("returns", "it is of rows without Spark. Leave it out, or leave spark out.")
        self.name, self._returns = name, returns or "pandas"

    def identity(self) -> Mapping[str, Any]:
        """Return what identifies the table; see `TableHead.identity`."""
        return self.head().identity

    @abstractmethod
    def head(self) -> TableHead:
        """Return the present state of the table; SourceError if there is none, or it cannot be reached."""

    @abstractmethod
    def history(self, after: int, at: datetime | None, head: TableHead) -> TableHistory:
        """Return the commits after `after`. `at` is the time of that commit, if known."""

    @abstractmethod
    def check_feed(self, span: TableSpan) -> None:
        """Raise SourceError if the changes of a span cannot be read as rows."""

    @abstractmethod
    def is_lost(self, span: TableSpan) -> bool:
        """Return whether a span can no longer be read, as far as the log and the list of files show."""

    @abstractmethod
    def folder(self) -> str:
        """Return the URI of the folder that holds the table's files."""

    def rows(self, span: TableSpan) -> Any:
        """Return the rows of a span: a lazy Spark DataFrame, a pandas DataFrame, or a pyarrow table."""
        with self._typed(reads_rows=True):
            found = self._engine.whole(span) if span.is_empty or span.whole else self._committed(span)
        return frame_of_arrow(found, self._returns)

    def typed_errors(self, context: str, job_id: str, *, is_planned: bool = True) -> AbstractContextManager[None]:
        """Return a context that raises SourceLostError if rows cannot be read because files are gone."""
        return raising_expired(self._engine.is_gone, self.name, context, job_id, is_planned=is_planned)

    @abstractmethod
    def _committed(self, span: TableSpan) -> Any:
        """Return the rows that the commits of a span appended, or the changes of a feed."""

    @contextmanager
    def _typed(self, *, reads_rows: bool = False) -> Iterator[None]:
        """Raise SourceError in place of the connector's errors.

        Parameters
        ----------
        reads_rows
            Whether the block reads rows. Then errors about missing commits or files are left to `raising_expired`.
        """
        try:
            yield
        except Exception as error:
            if not self._engine.is_of_connector(error) or (reads_rows and self._engine.is_gone(error)):
                raise
            text = f"{reason_of(error)} Check the {self.named_by}, and the rights there."
            raise SourceError(self.name, text) from error


@contextmanager
def raising_expired(
    is_gone: Callable[[Exception], bool], name: str, context: str, job_id: str, *, is_planned: bool
) -> Iterator[None]:
    """Raise SourceLostError in place of an error about missing commits or files of a table."""
    lost = SourceLostError(name, reason="expired_plan" if is_planned else "expired", context=context, job_id=job_id)
    try:
        yield
    except TargetError as error:
        # Check the cause: a write also reads the source, and a target of its format takes a source's error for its own.
        if isinstance(error.__cause__, Exception) and is_gone(error.__cause__):
            raise lost from error
        raise
    except WatermarkError:
        raise
    except Exception as error:
        if is_gone(error):
            raise lost from error
        raise


def is_table(source: object) -> TypeGuard[TableSource]:
    """Return whether a source is a table that is read by its versions."""
    return isinstance(source, TableSource)
