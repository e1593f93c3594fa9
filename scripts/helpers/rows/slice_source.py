"""The rows of one slice of a backfill: no younger than the delay allows, and none once the slice is done. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from scripts.helpers.errors import BoundsError
from scripts.helpers.rows.cursors import SECOND, Bound, CursorColumn, earlier
from scripts.helpers.rows.intervals import Point
from scripts.helpers.rows.sources import Facts, RowSource
from scripts.helpers.rows.window import RowWindow


@dataclass
class SliceSource:
    """A source that answers for one slice.

    Attributes
    ----------
    source, context
        What is read, and the name of it for messages.
    high
        Where the slice ends; None is above everything.
    delay
        How long rows may come after their stamp.
    clock
        The job's time, for a source without a clock.
    is_done
        The slice was read, and nothing is asked any more.
    """

    source: RowSource
    context: str
    high: Point | None
    delay: timedelta
    clock: Callable[[], datetime]
    is_done: bool

    @property
    def name(self) -> str:
        """The name of the source, for messages."""
        return self.source.name

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns of the source."""
        return self.source.columns(names, strings)

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Ask the source; BoundsError if rows of the slice may still come."""
        if self.is_done:
            return Facts()
        found = self.source.facts(columns, low, descending)
        if columns[0].is_time and self.high is not None:
            now = self.clock()
            self._check_age(columns[0], self.high, found.now or now.astimezone(found.zone or now.tzinfo))
        return found

    def _check_age(self, column: CursorColumn, high: Point, clock: datetime) -> None:
        try:
            moment = earlier(clock, self.delay)
        except OverflowError:
            raise BoundsError(
                self.context, f"delay={self.delay} reaches before the year 1. Give a shorter one."
            ) from None
        settled: Any = column.floor(moment)
        if high <= (settled,):
            return
        end: Any = high[0]
        if not isinstance(end, datetime):
            end, settled = datetime.combine(end, time.min), moment.replace(tzinfo=None)
        wait = max(SECOND, -((settled - end) // SECOND) * SECOND)
        raise BoundsError(
            self.context,
            f"rows up to high may still come, until delay={self.delay} is over. Run it again {wait} from now, or end "
            "earlier.",
        )

    def rows(self, window: RowWindow) -> Any:
        """Return the rows of a window."""
        return self.source.rows(window)

    def typed_errors(self) -> AbstractContextManager[None]:
        """Return what makes errors of a read those of the source."""
        return self.source.typed_errors()
