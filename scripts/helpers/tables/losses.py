"""How the loss of files of a table comes out, wherever its rows are read: mostly within the write of a batch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scripts.helpers.errors import SourceExpiredError, TargetError, WatermarkError


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
