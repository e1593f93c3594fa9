"""A slice of a backfill as a source of rows: what its source knows, and that its rows are decided. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from scripts.helpers.errors import BoundsError
from scripts.helpers.rows.cursor_ranges import RangeEnd
from scripts.helpers.rows.cursors import SECOND, Bound, CursorColumn, earlier
from scripts.helpers.rows.open_writers import oldest_writer, settled_moment
from scripts.helpers.rows.sources import UNKNOWN, Facts, ForwardingRows, RowSource, Unknown
from scripts.helpers.rows.window import RowWindow


@dataclass
class SliceSource(ForwardingRows):
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
    high: RangeEnd | None
    delay: timedelta
    clock: Callable[[], datetime]
    is_done: bool

    assumes_utc = True
    """A slice ends below a watermark, which the live job placed by the zone that it has, or by UTC."""

    def identity(self) -> Mapping[str, Any] | None:
        """Return what the source says of itself; nothing once the slice was read."""
        return None if self.is_done else self.source.identity()

    def zone_is_known(self, now: datetime) -> bool | None:
        """Tell whether the source knows its zone, or is asked nothing any more."""
        return self.is_done or self.source.zone_is_known(now)

    # A slice is read once, below the watermark of a live job: that job looks after the rows past it, and the last ones.

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Unknown:
        """Say nothing of rows past the slice."""
        return UNKNOWN

    def newest(self, window: RowWindow, most: int) -> Unknown:
        """Let nothing be remembered for a later run, as there is none."""
        return UNKNOWN

    def sequences(self, column: str) -> tuple[()]:
        """Say nothing of numbers that are still to come."""
        return ()

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Ask the source; BoundsError if rows of the slice may still come."""
        if self.is_done:
            return Facts()
        found = self.source.facts(columns, low, descending)
        # Only times have a clock; a slice without an upper end belongs to a cursor that descends, of numbers.
        if columns[0].is_time and self.high is not None:
            now = self.clock()
            source_now = found.now or now.astimezone(found.zone or now.tzinfo)
            self._check_age(columns[0], self.high, source_now)
            self._check_transactions(columns[0], self.high, source_now)
        return found

    def _check_age(self, column: CursorColumn, high: RangeEnd, clock: datetime) -> None:
        try:
            moment = earlier(clock, self.delay)
        except OverflowError:
            raise BoundsError(
                self.context, f"delay={self.delay} reaches before the year 1. Give a shorter one."
            ) from None
        # What a live run would take as its cap. A slice is read once and never again, so a row that comes into it
        # later would be lost for good.
        settled: Any = column.floor(moment)
        if high <= (settled,):
            return
        end: Any = high[0]
        if not isinstance(end, datetime):
            end, settled = datetime.combine(end, time.min), moment.replace(tzinfo=None)
        # Rounded up to a whole second, and never "0:00:00 from now".
        wait = max(SECOND, -((settled - end) // SECOND) * SECOND)
        raise BoundsError(
            self.context,
            f"rows up to high may still come, until delay={self.delay} is over. Run it again {wait} from now, or end "
            "earlier.",
        )

    def _check_transactions(self, column: CursorColumn, high: RangeEnd, clock: datetime) -> None:
        """Refuse a slice that a transaction may still commit rows to, as it is open for longer than the delay."""
        oldest = oldest_writer(self.source, self.delay, self.context, warns=False).oldest
        settled: Any = column.floor(settled_moment(clock, self.delay, oldest))
        if oldest is not None and high > (settled,):
            raise BoundsError(
                self.context,
                f"rows up to high may still come from the transaction {oldest.name!r}, which is open since "
                f"{oldest.began.isoformat(sep=' ', timespec='seconds')}. Run it again once that has ended, or end "
                "earlier.",
            )
