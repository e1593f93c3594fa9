"""Folders by date: which ones can hold anything new since a time. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

MAX_FOLDERS = 1_000
"""With more folders than this to look at, the whole prefix is listed at once."""
AHEAD = timedelta(days=1)
"""Writers may live in a zone that is ahead, and clocks differ."""


def folders_since(layout: str, since: datetime | None, now: datetime) -> list[str]:
    """Return the folders of all dates from `since` until a day ahead of now, in order of time.

    Parameters
    ----------
    layout
        As strftime writes it, such as ``import_year=%Y/import_month=%m/import_day=%d/``.
    since
        The oldest date; None for everything.

    Returns
    -------
    list
        Prefixes below the source. ``[""]``, the whole source, without `since` or for a long time.

    >>> new_years_eve = datetime(2023, 12, 31, 9, tzinfo=timezone.utc)
    >>> folders_since("year=%Y/day=%j/", new_years_eve, new_years_eve)
    ['year=2023/day=365/', 'year=2024/day=001/']
    """
    if since is None:
        return [""]
    step = timedelta(hours=1) if any(code in layout for code in ("%H", "%I", "%-H", "%-I", "%p")) else timedelta(days=1)
    if (now + AHEAD - since) / step > MAX_FOLDERS:
        return [""]
    moment = since.astimezone(timezone.utc).replace(minute=0, second=0, microsecond=0)
    if step == timedelta(days=1):
        moment = moment.replace(hour=0)
    folders: dict[str, None] = {}
    while moment <= now + AHEAD:
        folders[moment.strftime(layout)] = None
        moment += step
    return list(folders)
