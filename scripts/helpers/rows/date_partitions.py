"""Folders by date as partition columns: the filter that leaves out those of other dates. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.cursors import DAY
from scripts.helpers.rows.dialect import SIGNS, SPARK
from scripts.helpers.rows.sql import SQL, joined, sql, whole


@dataclass(frozen=True)
class DatePartitions:
    """How a table is partitioned by date, largest unit first.

    Parameters
    ----------
    layout
        Partition columns as strftime writes them, of ``%Y``, ``%m`` and ``%d``.
    slack
        How far the date of a row's partition may be from its cursor. The default covers time
        zones; rows that are imported days after their stamp need those days, so a plan whose delay
        and lookback together are longer is refused.

    Examples
    --------
    >>> days = DatePartitions("import_date=%Y%m%d")
    >>> days.predicate({"import_date": "int"}, date(2026, 10, 25), None)
    '((`import_date` >= 20261024) OR `import_date` IS NULL)'
    """

    layout: str
    slack: timedelta = DAY
    parts: tuple[tuple[str, str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse a layout whose order is not that of time; SourceError."""
        parts = []
        known = True
        for part in self.layout.split("/"):
            name, _, form = part.partition("=")
            parts.append((name, form))
            known = known and bool(name and form and re.fullmatch("(%Y)?(-?%m)?(-?%d)?", form))
        # Months without a year, or days before months, do not rise with time: dates between two bounds would be
        # left out.
        codes = list(dict.fromkeys(re.findall("%.", self.layout)))
        if not known or codes != ["%Y", "%m", "%d"][: len(codes)]:
            raise SourceError(
                self.layout, "is not a layout by date. Write it as import_year=%Y/import_month=%m, largest unit first."
            )
        if self.slack < timedelta(0):
            raise SourceError(self.layout, f"slack={self.slack} is below 0. Give how far partitions may be off.")
        object.__setattr__(self, "parts", tuple(parts))

    def predicate(self, types: Mapping[str, str], first: date | None, last: date | None) -> SQL | None:
        """Return the filter on partition columns alone that keeps the dates from `first` to `last`, both taken.

        `types` are the columns' Spark types: whole numbers, dates, or texts. Partitions without a
        readable date are kept. None if there is nothing to leave out.
        """
        # Rounded up: with a slack of an hour, a row of just after midnight may be in the folder of the day before.
        days = -(-self.slack // DAY)
        ends = []
        # A bound that would lie before the first day or after the last one there is leaves out nothing.
        if first is not None and first.toordinal() > days:
            ends.append(self._past(types, first - days * DAY, ">"))
        if last is not None and last.toordinal() + days <= date.max.toordinal():
            ends.append(self._past(types, last + days * DAY, "<"))
        if not ends:
            return None
        # A folder without a readable date, such as Hive's __HIVE_DEFAULT_PARTITION__, may hold rows of any.
        unknown = [sql("{} IS NULL", self._column(types, part, date.min)[0]) for part in self.parts]
        return sql("({} OR {})", joined(" AND ", ends), joined(" OR ", unknown))

    def _past(self, types: Mapping[str, str], day: date, sign: str) -> SQL:
        """Compare from the largest unit on, the day itself included."""
        columns = [self._column(types, part, day) for part in self.parts]
        *larger, (name, last) = columns
        written = sql("{} {}= {}", name, SIGNS[sign], last)
        for column, value in reversed(larger):
            written = sql("{0} {1} {2} OR ({0} = {2} AND ({3}))", column, SIGNS[sign], value, written)
        return sql("({})", written)

    def _column(self, types: Mapping[str, str], part: tuple[str, str], day: date) -> tuple[SQL, SQL]:
        """Return a partition column and what it holds on a day, both as they are compared."""
        name, form = part
        if name not in types:
            raise SourceError(self.layout, f"there is no column {name!r}. The source has: {', '.join(types)}.")
        kind, column = types[name], SPARK.quote(name)
        number = form.replace("%Y", f"{day.year:04d}").replace("%m", f"{day.month:02d}").replace("%d", f"{day.day:02d}")
        # A text is compared as what it stands for: as texts, month 9 is after month 10. try_cast makes NULL of what
        # is no date, where cast would fail the query under ANSI rules.
        if kind == "string":
            kind = "date" if "-" in form else "bigint"
            column = sql("try_cast({} AS {})", column, SPARK.type_name(kind))
        if kind == "date" and form.startswith("%Y"):
            # A folder of a month or a year is written as its first day.
            start = day
            if "%d" not in form:
                start = start.replace(day=1)
            if "%m" not in form:
                start = start.replace(month=1)
            return column, SPARK.date(start)
        if kind in ("tinyint", "smallint", "int", "bigint") and "-" not in form:
            return column, whole(int(number))
        raise SourceError(self.layout, f"column {name!r} is a {kind}, which holds no {form}. Fix the layout.")
