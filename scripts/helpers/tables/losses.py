"""What comes out of errors of a connector: where it is asked, and where files turn out to be gone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from scripts.helpers.errors import SourceError, SourceExpiredError, TargetError, WatermarkError
from scripts.helpers.sinks.java_errors import reason_of


class Complaints(Protocol):
    """What tells the errors of a connector from others."""

    def is_of_connector(self, error: Exception) -> bool:
        """Tell whether it is the connector that complains."""

    def is_gone(self, error: Exception) -> bool:
        """Tell whether it complains about something of the table that is gone."""


@contextmanager
def source_errors(engine: Complaints, name: str, what: str, *, reads_rows: bool = False) -> Iterator[None]:
    """Raise SourceError for what a connector says against a table.

    Parameters
    ----------
    what
        By what the table is named: its path, or its name.
    reads_rows
        Let pass what says that something is gone: `expired_where` has the words for it.
    """
    try:
        yield
    except Exception as error:
        if not engine.is_of_connector(error) or (reads_rows and engine.is_gone(error)):
            raise
        raise SourceError(name, f"{reason_of(error)} Check the {what}, and the rights there.") from error


@contextmanager
def expired_where(
    is_gone: Callable[[Exception], bool], name: str, context: str, job_id: str, *, is_planned: bool
) -> Iterator[None]:
    """Raise SourceExpiredError in place of an error that says that something of a table is gone.

    Parameters
    ----------
    is_gone
        Tells whether an error of the connector says so.
    name, context, job_id, is_planned
        As those of the error.
    """
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
