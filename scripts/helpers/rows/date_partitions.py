"""Filter on date partition columns, so that folders of other dates are not read. Pure."""

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
        Partition columns with strftime formats of ``%Y``, ``%m`` and ``%d``, such as ``year=%Y/month=%m``.
    slack
        How far the date of a row's partition may be from its cursor. The default of a day covers time zones.
        If rows are imported days after their stamp, add those days. A plan is refused if its delay and
        lookback together are longer than the slack.

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
        """Raise SourceError if partitions of this layout do not sort by time, or if `slack` is negative."""
        parts = []
        known = True
        for part in self.layout.split("/"):
            name, _, form = part.partition("=")
            parts.append((name, form))
            known = known and bool(name and form and re.fullmatch("(%Y)?(-?%m)?(-?%d)?", form))
        # Refuse months without a year, and days before months: they do not rise with time, so the filter would leave
        # out dates that are between the bounds.
        codes = list(dict.fromkeys(re.findall("%.", self.layout)))
        if not known or codes != ["%Y", "%m", "%d"][: len(codes)]:
            raise SourceError(
                self.layout, "is not a layout by date. Write it as import_year=%Y/import_month=%m, largest unit first."
            )
        if self.slack < timedelta(0):
            raise SourceError(self.layout, f"slack={self.slack} is below 0. Give how far partitions may be off.")
        object.__setattr__(self, "parts", tuple(parts))

    def predicate(self, types: Mapping[str, str], first: date | None, last: date | None) -> SQL | None:
        """Return a filter on only the partition columns that keeps the dates from `first` to `last`, inclusive.

        `types` are the columns' Spark types: whole numbers, dates, or texts. The filter keeps partitions
        without a readable date. Return None if the filter would keep all partitions.
        """
        # Round up: with a slack of an hour, a row from just after midnight may be in the folder of the day before.
        days = -(-self.slack // DAY)
        ends = []
        # Skip a bound before the first possible day or after the last one: all partitions satisfy it.
        if first is not None and first.toordinal() > days:
            ends.append(self._past(types, first - days * DAY, ">"))
        if last is not None and last.toordinal() + days <= date.max.toordinal():
            ends.append(self._past(types, last + days * DAY, "<"))
        if not ends:
            return None
        # Keep folders without a readable date, such as __HIVE_DEFAULT_PARTITION__, which may have rows of any date.
        unknown = [sql("{} IS NULL", self._column(types, part, date.min)[0]) for part in self.parts]
        return sql("({} OR {})", joined(" AND ", ends), joined(" OR ", unknown))

    def _past(self, types: Mapping[str, str], day: date, sign: str) -> SQL:
        """Return SQL that is true for folders of `day` or later (`sign` ``>``), of `day` or earlier (``<``)."""
        columns = [self._column(types, part, day) for part in self.parts]
        *larger, (name, last) = columns
        written = sql("{} {}= {}", name, SIGNS[sign], last)
        for column, value in reversed(larger):
            written = sql("{0} {1} {2} OR ({0} = {2} AND ({3}))", column, SIGNS[sign], value, written)
        return sql("({})", written)

    def _column(self, types: Mapping[str, str], part: tuple[str, str], day: date) -> tuple[SQL, SQL]:
        """Return SQL for a partition column, and for its value on a day, cast so that the two can be compared."""
        name, form = part
        if name not in types:
            raise SourceError(self.layout, f"there is no column {name!r}. The source has: {', '.join(types)}.")
        kind, column = types[name], SPARK.quote(name)
        number = form.replace("%Y", f"{day.year:04d}").replace("%m", f"{day.month:02d}").replace("%d", f"{day.day:02d}")
        # Cast texts to numbers or dates, because as text, month 9 is after month 10. try_cast turns text that is not
        # a date into NULL, where cast would fail the query in ANSI mode.
        if kind == "string":
            kind = "date" if "-" in form else "bigint"
            column = sql("try_cast({} AS {})", column, SPARK.type_name(kind))
        if kind == "date" and form.startswith("%Y"):
            # If a date column stands for a whole month or year, it holds the first day of that period.
            start = day
            if "%d" not in form:
                start = start.replace(day=1)
            if "%m" not in form:
                start = start.replace(month=1)
            return column, SPARK.date(start)
        if kind in ("tinyint", "smallint", "int", "bigint") and "-" not in form:
            return column, whole(int(number))
        raise SourceError(self.layout, f"column {name!r} is a {kind}, which holds no {form}. Fix the layout.")
