"""How times, durations, sizes and counts are written for people, and which times are no clock's. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_DURATIONS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SIZES = ("bytes", "KB", "MB", "GB", "TB", "PB")
MAX_ID = 16
"""Characters of an id in a table: a run's id of Glue has 67, and the first ones tell the runs of a table apart."""

MAX_AHEAD = timedelta(minutes=15)
"""How far a time of another clock may be ahead of the one here. What continues from a later one would miss much."""


def time_text(moment: datetime) -> str:
    """Write a time to the second, in UTC and without saying so: the table around it does."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def duration_text(duration: timedelta) -> str:
    """Write a duration in its two largest units, rounded down.

    Examples
    --------
    >>> duration_text(timedelta(hours=27, minutes=5))
    '1 d 3 h'
    >>> duration_text(timedelta(seconds=0.25))
    '0.2 s'
    """
    seconds = duration.total_seconds()
    if seconds < 0:
        return f"-{duration_text(-duration)}"
    if seconds < 10:
        # Rounded down, as longer ones are: 9.96 s shown as 10 s would say that a limit of 10 s was reached.
        return f"{int(seconds * 10) / 10:g} s"
    left, parts = int(seconds), list[tuple[int, str]]()
    for name, size in _DURATIONS:
        # Also a unit of nothing, once there is a larger one: 1 d 0 h 5 min is 1 d, and not 1 d 5 min.
        if left >= size or parts:
            parts.append((left // size, name))
            left %= size
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)


def size_text(size: int) -> str:
    """Write a number of bytes in units of 1,000.

    Examples
    --------
    >>> size_text(12), size_text(1_234_567)
    ('12 bytes', '1.2 MB')
    """
    step, amount = 0, float(size)
    # What would be rounded up to 1,000 of a unit is 1.0 of the next; likewise 99.95, which would be 100.0.
    while abs(amount) >= 999.5 and step + 1 < len(_SIZES):
        step, amount = step + 1, amount / 1_000
    digits = f"{amount:.1f}" if step and abs(amount) < 99.95 else f"{amount:.0f}"
    return f"{digits} {_SIZES[step]}"


def printable(text: str) -> str:
    r"""Return a text in which nothing can move the cursor: names come from the table, and anybody may have put them.

    Examples
    --------
    >>> printable("parking\x1b[2J")
    'parking\\x1b[2J'
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def count_text(count: object) -> str:
    """Write a count with commas between thousands; anything else as it is."""
    return f"{count:,}" if isinstance(count, int | float) and not isinstance(count, bool) else str(count)


def count_of(number: int, word: str) -> str:
    """Write how many of something there are."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def id_text(name: str) -> str:
    """Write the beginning of a long id, such as a run's; an ellipsis says that there is more."""
    return name if len(name) <= MAX_ID else name[: MAX_ID - 1] + "…"
