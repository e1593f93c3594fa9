"""What a table that is read by its versions must offer, and what it tells before a span is fixed. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeGuard, get_args

from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import SourceError, SourceExpiredError, SourceOptionError, TargetError, WatermarkError
from scripts.helpers.spark.java_errors import reason_of
from scripts.helpers.tables.frames import Returns, of_arrow
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


class TableEngine(Protocol):
    """What reads the log of a table, and its files."""

    def whole(self, span: TableSpan) -> Any:
        """Return all rows at the end of a span; of one that is empty none, with the same columns."""

    def is_of_connector(self, error: Exception) -> bool:
        """Tell whether it is the connector that complains."""

    def is_gone(self, error: Exception) -> bool:
        """Tell whether it complains about something of the table that is gone."""


class TableSource(ABC):
    """A table that `rows_since` reads by its versions: `DeltaTable` and `IcebergTable`.

    Its name is for messages and logs, and holds no credentials.
    """

    format: Format
    named_by: str
    """By what the table is named: its path, or its name."""
    _engine: TableEngine

    def __init__(self, name: str, returns: Returns | None, *, with_spark: bool) -> None:
        check_choice("returns", returns, (*get_args(Returns), None))
        if returns is not None and with_spark:
            raise SourceOptionError("returns", "it is of rows without Spark. Leave it out, or leave spark out.")
        self.name, self._returns = name, returns or "pandas"

    def identity(self) -> Mapping[str, Any]:
        """Return which table it is."""
        return self.head().identity

    @abstractmethod
    def head(self) -> TableHead:
        """Look at the table; SourceError where there is none, or it cannot be reached."""

    @abstractmethod
    def history(self, after: int, at: datetime | None, head: TableHead) -> TableHistory:
        """Return what was committed after a commit, which was made at a time that may be known."""

    @abstractmethod
    def check_feed(self, span: TableSpan) -> None:
        """Raise SourceError if the changes of a span cannot be read as rows."""

    @abstractmethod
    def is_lost(self, span: TableSpan) -> bool:
        """Tell whether a span cannot be read any more, as far as that is told without reading its rows."""

    @abstractmethod
    def folder(self) -> str:
        """Return the URI of the folder that its files are in."""

    def rows(self, span: TableSpan) -> Any:
        """Return the rows of a span: a DataFrame of Spark, lazily, or one of pandas, or a table of pyarrow."""
        with self._typed(reads_rows=True):
            found = self._engine.whole(span) if span.is_empty or span.whole else self._committed(span)
        return of_arrow(found, self._returns)

    def typed_errors(self, context: str, job_id: str, *, is_planned: bool = True) -> AbstractContextManager[None]:
        """Let what is raised while rows are read come out as a SourceExpiredError, where files are gone."""
        return expired_where(self._engine.is_gone, self.name, context, job_id, is_planned=is_planned)

    @abstractmethod
    def _committed(self, span: TableSpan) -> Any:
        """Return the rows that commits of a span have appended, or its changes."""

    @contextmanager
    def _typed(self, *, reads_rows: bool = False) -> Iterator[None]:
        """Raise SourceError for what the connector says against the table.

        Parameters
        ----------
        reads_rows
            Let pass what says that something is gone: `expired_where` has the words for it.
        """
        try:
            yield
        except Exception as error:
            if not self._engine.is_of_connector(error) or (reads_rows and self._engine.is_gone(error)):
                raise
            text = f"{reason_of(error)} Check the {self.named_by}, and the rights there."
            raise SourceError(self.name, text) from error


@contextmanager
def expired_where(
    is_gone: Callable[[Exception], bool], name: str, context: str, job_id: str, *, is_planned: bool
) -> Iterator[None]:
    """Raise SourceExpiredError in place of an error that says that something of a table is gone."""
    try:
        yield
    except TargetError as error:
        # A target that is a table of the same format takes all that its connector raises for its own.
        if isinstance(error.__cause__, Exception) and is_gone(error.__cause__):
            raise SourceExpiredError(name, context, job_id, is_planned=is_planned) from error
        raise
    except WatermarkError:
        raise
    except Exception as error:
        if is_gone(error):
            raise SourceExpiredError(name, context, job_id, is_planned=is_planned) from error
        raise


def is_table(source: object) -> TypeGuard[TableSource]:
    """Tell whether a source is a table that is read by its versions."""
    return isinstance(source, TableSource)
