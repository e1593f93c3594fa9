"""The options of `rows_since`: their defaults, and the checks that refuse options before a source is queried. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict

from scripts.helpers.display.options import check_choices
from scripts.helpers.errors import CursorError
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.rows.cursors import EXACT, CursorColumn, Tick
from scripts.helpers.rows.window import Nulls, RowWindow

WriteDisposition = Literal["append", "merge"]
RaiseOrWarn = Literal["raise", "warn"]

DEFAULT_DELAY = timedelta(minutes=5)
"""How far the upper bound of times stays behind the clock: rows that are committed up to five minutes after their stamp
are not lost. Kafka's JDBC source has no delay by default; its issues #172, #915 and #1015 report lost rows."""


class RowOptionsGiven(TypedDict, total=False):
    """The arguments of `rows_since` that become `RowOptions`, for editors and type checkers."""

    delay: timedelta
    lookback: Tick | None
    high: Any
    settled: bool
    start_from: Any
    nulls: Nulls
    descending: bool
    strings: bool
    write_disposition: WriteDisposition
    on_behind: RaiseOrWarn
    on_late: RaiseOrWarn
    on_changed: RaiseOrWarn
    max_rows: int | None


@dataclass(frozen=True)
class RowOptions:
    """How `rows_since` chooses rows.

    By default no row is read twice, and none is lost that becomes visible within `delay`. For numbers and texts, this
    holds only in a database, where a run waits for open transactions (see `open_writers`). In a DataFrame, a number or
    text that becomes visible after a larger one was taken is lost without a `lookback`.

    Attributes
    ----------
    delay
        Longest time between a row's stamp and the moment the row becomes visible on the server that is
        read: the longest transaction, unless the server reports open transactions, plus the lag of a
        replica. For numbers and texts of a database: how long a run may wait for open transactions and, if
        transactions cannot be seen, how long rows stay unread after a run first saw them. 0 waits for none.
    lookback
        How far before the watermark to read again, for rows that become visible later than `delay`. It reads rows
        twice, so the sink has to merge. A timedelta, or a number for cursors that are numbers.
    high
        The upper bound, exclusive, instead of the one found in the source; the delay does not apply to
        it. A tuple for compound cursors. It is refused past the clock, past the bound of a `PostgresSnapshot`, and for
        numbers and texts more than one step past the last row: rows that come later would be lost.
    settled
        Declares that no more rows will come below `high`, even if the last row is far below it. For a partition column
        of files: nothing is added to a partition after it was read.
    start_from
        Where a first run starts, inclusive; by default it reads everything. A lookback reads no further back.
    nulls
        Rows with NULL in a cursor column: ``raise`` an error with their count, ``take`` all of them in
        each run (the sink has to merge), or ``skip`` them, with a WARNING that counts them.
    descending
        The numbers fall from row to row.
    strings
        Allow texts as cursors: they compare byte by byte, which is right only for ASCII keys of fixed width.
    write_disposition
        ``merge`` if written rows replace the rows with the same key.
    on_behind
        If nothing is new and the last row of a database's table is below the last row seen: ``raise``
        SourceError[last_row_behind], or ``warn``, for tables whose newest rows are regularly deleted.
    on_late
        If rows came below a watermark of numbers: ``raise`` SourceError[rows_behind], or ``warn`` and skip the rows,
        which Glue's own readers also skip. Without a `delay`, or with `settled`, it is always a WARNING.
    on_changed
        If the last row taken by a cursor of numbers has changed or is gone: ``raise`` SourceError[last_row_changed],
        for tables whose rows are never updated or deleted, or ``warn``.
    max_rows
        Most new rows in one batch; the next batch continues after them (`IncrementalJob.has_more`). Rows with the same
        cursor stay together, so if there are more of them than this, they are one batch.
    """

    delay: timedelta = DEFAULT_DELAY
    lookback: Tick | None = None
    high: Any = None
    settled: bool = False
    start_from: Any = None
    nulls: Nulls = "raise"
    descending: bool = False
    strings: bool = False
    write_disposition: WriteDisposition = "append"
    on_behind: RaiseOrWarn = "raise"
    on_late: RaiseOrWarn = "raise"
    on_changed: RaiseOrWarn = "warn"
    max_rows: int | None = None

    def check(self, columns: tuple[CursorColumn, ...]) -> None:
        """Refuse invalid options before the source is queried; the error names the option and the remedy."""
        first = columns[0]
        check_choices(self)  # In Python 'no' is true, so settled='no' could lose rows.
        if not isinstance(self.delay, timedelta) or self.delay < timedelta(0):
            raise CursorError(first.name, f"delay={self.delay!r} is not a duration of 0 or more. Give a timedelta.")
        # Compare the type, because in Python True is an int.
        if self.max_rows is not None and (type(self.max_rows) is not int or self.max_rows < 1):
            raise CursorError(
                first.name, f"max_rows={self.max_rows!r} is not a whole number of 1 or more. Omit it for all."
            )
        numbers = [column for column in columns if column.is_number]
        if self.descending and len(numbers) < len(columns):
            raise CursorError(first.name, "descending=True is for numbers only. Leave it out.")
        self._check_lookback(first)
        self._check_disposition(first, self.lookback, self.nulls, "leave the option out")

    def check_replay(self, window: RowWindow) -> None:
        """Refuse invalid options, and an open plan that reads rows again although the sink would append them."""
        self.check(window.columns)
        self._check_disposition(window.columns[0], window.lookback, window.nulls, "discard the plan")

    def _check_disposition(self, first: CursorColumn, lookback: Tick | None, nulls: Nulls, otherwise: str) -> None:
        if self.write_disposition == "append" and (lookback or nulls == "take"):
            why = f"lookback={lookback}" if lookback else "nulls='take'"
            raise CursorError(
                first.name,
                f"{why} reads rows again, and write_disposition='append' would keep them twice. Write them with a sink "
                f"that merges by key and say write_disposition='merge', or {otherwise}.",
            )

    def _check_lookback(self, first: CursorColumn) -> None:
        lookback = self.lookback
        if lookback is None:
            return
        if not _fits(first, lookback):
            raise CursorError(
                first.name,
                f"lookback={lookback!r} does not fit a {first.type}. Give a timedelta for times and dates, a number "
                "for numbers, none for texts.",
            )
        # Refuse a lookback of half a step, because it would move the bound to a value that the column cannot hold.
        if isinstance(lookback, Decimal) and isinstance(first.tick, Decimal) and EXACT.remainder(lookback, first.tick):
            raise CursorError(first.name, f"lookback={lookback} is finer than a {first.type}. Give whole steps of it.")
        if lookback != abs(lookback):
            raise CursorError(first.name, f"lookback={lookback!r} is below 0. Give how far to read back.")

    def to_plan(self) -> dict[str, str]:
        """Return the options as a plan stores them. Leave out defaults, because a plan may have only a few entries."""
        return {} if str(self) == DEFAULTS else {"options": str(self)}

    def __str__(self) -> str:
        """Return the options that a plan stores in addition to the window, as text without cursor values."""
        # Show only whether a bound was given: its value may be personal data, and others can read logs and plans.
        words = [f"delay={self.delay}", f"write_disposition={self.write_disposition}"]
        for name in ("high", "start_from", "settled", "strings"):
            is_given = getattr(self, name) is not None and getattr(self, name) is not False
            words.append(f"{name}={'yes' if is_given else 'no'}")
        policies = {name: getattr(self, name) for name in ("on_behind", "on_late", "on_changed")}
        words += [f"{name}={policy}" for name, policy in policies.items() if policy != getattr(RowOptions, name)]
        if self.max_rows is not None:
            words.append(f"max_rows={self.max_rows}")
        return " ".join(words)


DEFAULTS = str(RowOptions())
WORDS = r"[A-Za-z0-9_=:., -]{1,200}"
"""Pattern of options in a plan, so that no line break and no long text gets from a plan into a log."""


def check_rows_plan(stored: Mapping[str, Any], name: str) -> RowWindow:
    """Read a plan; raise ImplausibleError if it is not what `RowWindow.to_plan` and `RowOptions.to_plan` wrote."""
    Fields(stored, name).text("options", None, pattern=WORDS, what="words of options")
    return RowWindow.read(stored, name)


def _fits(first: CursorColumn, lookback: object) -> bool:
    """Return whether a lookback can be subtracted from the values of a column."""
    # Refuse True: in Python it is the int 1, and would be subtracted as 1.
    if first.type == "string" or isinstance(lookback, bool):
        return False
    if first.is_time or first.is_uuid:
        return isinstance(lookback, timedelta)
    if isinstance(lookback, Decimal):
        return first.type.startswith("decimal") and lookback.is_finite()
    return isinstance(lookback, int)
