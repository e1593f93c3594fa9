"""Times, durations, sizes and counts as text for people, and how far in the future a time is still plausible. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_DURATIONS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SIZES = ("bytes", "KB", "MB", "GB", "TB", "PB")
MAX_ID = 16
"""Most characters of an id in a table. Run ids of Glue have 67, and their first characters are distinct enough."""

MAX_AHEAD = timedelta(minutes=15)
"""How far a time from another clock may be ahead of this clock. Continuing from a later time would miss new data."""


def time_text(moment: datetime) -> str:
    """Return a time to the second, in UTC. The zone is not part of the text: the heading of the table names it."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def duration_text(duration: timedelta) -> str:
    """Return a duration in its two largest units, rounded down.

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
        # Round down, as for longer durations: 9.96 s shown as 10 s would suggest that a limit of 10 s was reached.
        return f"{int(seconds * 10) / 10:g} s"
    left, parts = int(seconds), list[tuple[int, str]]()
    for name, size in _DURATIONS:
        # A unit of 0 counts as one of the two shown units: 1 d 0 h 5 min becomes 1 d, not 1 d 5 min.
        if left >= size or parts:
            parts.append((left // size, name))
            left %= size
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)


def size_text(size: int) -> str:
    """Return a number of bytes as text, in units of 1,000.

    Examples
    --------
    >>> size_text(12), size_text(1_234_567)
    ('12 bytes', '1.2 MB')
    """
    step, amount = 0, float(size)
    # An amount that rounds to 1,000 of a unit becomes 1.0 of the next. From 99.95 on, print 100, not 100.0.
    while abs(amount) >= 999.5 and step + 1 < len(_SIZES):
        step, amount = step + 1, amount / 1_000
    digits = f"{amount:.1f}" if step and abs(amount) < 99.95 else f"{amount:.0f}"
    return f"{digits} {_SIZES[step]}"


def printable(text: str) -> str:
    r"""Return a text with control characters escaped: names come from the table, and any program may have written them.

    Examples
    --------
    >>> printable("parking\x1b[2J")
    'parking\\x1b[2J'
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def count_text(count: object) -> str:
    """Return a count with commas between thousands; anything else as its str."""
    return f"{count:,}" if isinstance(count, int | float) and not isinstance(count, bool) else str(count)


def count_of(number: int, word: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def id_text(name: str) -> str:
    """Return an id, such as that of a run. A long id is cut and ends with an ellipsis."""
    return name if len(name) <= MAX_ID else name[: MAX_ID - 1] + "…"
