"""The history of a job: a list of versions that prints as a table, without values of watermarks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts.helpers.display.tables import Column, Table
from scripts.helpers.display.units import id_text
from scripts.helpers.protocol.head import LogEntry, Release
from scripts.helpers.protocol.recent import BYTES, FILES, ROWS, first_count


class History(Table[LogEntry]):
    """The versions of a job, newest first.

    The printed table has the counts that most jobs have; `to_pandas` has all counts, under their own names, and
    ids that are not shortened. Neither shows watermarks: those of an entry are in ``entry.watermarks``.

    Attributes
    ----------
    releases
        The runs that operators released since the newest version. Runs released before a version are in
        its ``change.releases``. Empty for a page of older versions.
    """

    releases: tuple[Release, ...] = ()

    columns = (
        Column("version", lambda entry: entry.version, "count"),
        Column("op", lambda entry: entry.change.op),
        Column("at", lambda entry: entry.change.at, "time"),
        Column("run", lambda entry: id_text(entry.change.run_id) if entry.change.run_id else None),
        Column("attempt", lambda entry: entry.change.attempt if entry.change.attempt > 1 else None, "count"),
        Column("took", lambda entry: entry.duration, "duration"),
        Column("rows", lambda entry: counted(entry, ROWS), "count"),
        Column("files", lambda entry: counted(entry, FILES), "count"),
        Column("bytes", lambda entry: counted(entry, BYTES), "size"),
        Column("columns left out", lambda entry: _left_out(entry.change.metrics.get("columns_left_out"))),
        Column("who", lambda entry: entry.change.who),
        Column("why", lambda entry: entry.change.why),
    )

    def all_columns(self) -> Sequence[Column]:
        """Return the columns of `to_pandas`: everything in an entry except its watermarks."""
        fixed = (
            Column("job", lambda entry: entry.job_id),
            Column("version", lambda entry: entry.version),
            Column("op", lambda entry: entry.change.op),
            Column("at", lambda entry: entry.change.at, "time"),
            Column("run", lambda entry: entry.change.run_id),
            Column("previous_run", lambda entry: entry.change.previous_run_id),
            Column("attempt", lambda entry: entry.change.attempt),
            Column("started", lambda entry: entry.change.started_at, "time"),
            Column("duration", lambda entry: entry.duration, "duration"),
            Column("plan", lambda entry: entry.change.plan_id),
            Column("who", lambda entry: entry.change.who),
            Column("why", lambda entry: entry.change.why),
            Column("released", _released),
        )
        taken = {column.heading for column in fixed}
        names = sorted({name for entry in self for name, count in entry.change.metrics.items() if _is_count(count)})
        headings = {name: f"metric.{name}" if name in taken else name for name in names}
        return *fixed, *(Column(heading, _metric(name)) for name, heading in headings.items())


def counted(entry: LogEntry, names: Sequence[str]) -> int | float | None:
    """Return the count of an entry under the first of `names` that it has; None if it has none of them."""
    return first_count(entry.change.metrics, names)


def _released(entry: LogEntry) -> str | None:
    """Return the runs that operators released before a version, each with who released it and why."""
    return "; ".join(f"{one.run_id} by {one.who}: {one.why}" for one in entry.change.releases) or None


def _left_out(found: Any) -> str | None:
    """Return the columns that a run left out of its rows, as ``"a, b and 3 more; c"`` for two sources; else None."""
    told = []
    for left_out in found.values() if isinstance(found, Mapping) else ():
        if isinstance(left_out, Mapping) and isinstance(left_out.get("names"), list):
            names = list(map(str, left_out["names"]))
            more = int(left_out.get("count", 0)) - len(names)
            told.append(", ".join(names) + (f" and {more:,} more" if more > 0 else ""))
    return "; ".join(told) or None


def _is_count(count: object) -> bool:
    return not isinstance(count, Mapping | list)


def _metric(name: str) -> Callable[[LogEntry], Any]:
    return lambda entry: entry.change.metrics.get(name)
