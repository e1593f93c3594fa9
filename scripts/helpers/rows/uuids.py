"""UUIDs as cursors: version 7 rises with time, byte by byte; no other one does. Pure.

The first 48 bits of a version 7 are the milliseconds since 1970 of the clock that made it, so a window can stay behind
them by a delay, as it stays behind the stamps of a time column. Where others than the source make the UUIDs, the delay
has to cover the difference of their clocks, too.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from uuid import UUID

from scripts.helpers.errors import CursorError
from scripts.helpers.rows.cursors import EPOCH, CursorColumn

MILLISECOND = timedelta(milliseconds=1)
_FORM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
REASONS = {
    1: "a UUID of version 1 begins with the lowest digits of its time",
    4: "a UUID of version 4 is random",
    6: "a UUID of version 6 is made of another clock than version 7, and not read here",
}


def is_uuid(value: object) -> bool:
    """Tell whether a value is written as a UUID is."""
    return isinstance(value, str) and _FORM.fullmatch(value) is not None


def check_uuid(column: CursorColumn, value: str) -> None:
    """Raise CursorError for a UUID that has no order to resume from, with the reason.

    Parameters
    ----------
    value
        The last value of a column, written as a UUID is: one of another version is likely to be the last one, as most
        of a version 4 are above all of version 7.
    """
    version = UUID(value).version
    if version != 7:
        reason = REASONS.get(version or 0, "it is a UUID of no known version")
        raise CursorError(
            column.name,
            f"{reason}, so a new one is not above those that were read. Only version 7 rises with time. Use a time "
            "column, or let the table make UUIDs of version 7.",
        )
    if value != value.lower():
        raise CursorError(
            column.name, "it holds UUIDs in capitals, which sort before small letters. Write all in small letters."
        )


def moment_of(value: str) -> datetime:
    """Return when a UUID of version 7 was made, to the millisecond; later than all times where that is after 9999.

    >>> moment_of("018bcfe5-6800-7000-8000-000000000000").isoformat()
    '2023-11-14T22:13:20+00:00'
    """
    try:
        return EPOCH + (UUID(value).int >> 80) * MILLISECOND
    except OverflowError:
        return datetime.max.replace(tzinfo=EPOCH.tzinfo)


def first_at(moment: datetime) -> str:
    """Return the smallest UUID of version 7 that can be made from the millisecond of a time on.

    >>> first_at(moment_of("018bcfe5-6800-7abc-8def-0123456789ab"))
    '018bcfe5-6800-7000-8000-000000000000'
    """
    milliseconds = max(0, (moment - EPOCH) // MILLISECOND)
    return str(UUID(int=(milliseconds << 80) | (7 << 76) | (0b10 << 62)))
