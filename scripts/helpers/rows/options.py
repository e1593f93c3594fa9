"""How `rows_since` chooses rows: its options, their defaults, and what is refused before a source is asked. Pure."""

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
"""How far the upper bound of times stays behind the clock: a transaction that commits up to five
minutes after the time it stamped on its rows is not missed. Kafka's JDBC source defaults to none,
and its issues #172, #915 and #1015 are the rows that were lost."""


class RowOptionsGiven(TypedDict, total=False):
    """The arguments of `rows_since` that are `RowOptions`, for editors and type checkers."""

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

    The defaults repeat nothing, and they lose nothing that shows within `delay`. Numbers and texts of a database wait
    for its open transactions (see `open_writers`). In a DataFrame, one that shows after a larger one was taken is lost
    without a `lookback`.

    Attributes
    ----------
    delay
        Longest time between a row's stamp and the moment the server we read shows the row: the
        longest transaction, unless the server reports those that are open, and the lag if it is a
        replica. Of numbers and texts of a database: how long a run may wait for open transactions,
        and after which time rows count as decided where nobody can tell. 0 waits for none.
    lookback
        How far before the watermark to read again, for rows that show later than `delay`: rows come twice, so it needs
        a sink that merges. A timedelta, or a number for numbers.
    high
        The upper bound, not itself taken, instead of the one that the source gives; no delay is
        kept from it. A tuple for compound cursors. Refused past the clock, past the ceiling, and
        for numbers and texts more than one step past the last: rows that come later would be lost.
    settled
        No row below `high` can come any more, although none of the last ones is near it. For a partition column of
        files: nothing is added to a partition once it was read.
    start_from
        Where a first run starts, itself taken; by default with everything. No lookback goes further.
    nulls
        Rows with NULL in a cursor column: ``raise`` with their count, ``take`` all of them each
        time (needs a sink that merges), or ``skip`` them, with a WARNING that counts them.
    descending
        The numbers fall from row to row.
    strings
        Take texts as cursors: they compare byte by byte, which is right for ASCII keys of fixed width only.
    write_disposition
        ``merge`` if what is written replaces rows of the same key.
    on_behind
        Nothing is new, and the last row of a database's table is below what was seen: ``raise`` SourceBehindError, or
        ``warn``, where the newest rows are deleted as a matter of course.
    on_late
        Rows came below the watermark of numbers: ``raise`` SourceBehindError, or ``warn``, as Glue's own readers pass
        over such rows. Without a `delay`, or with `settled`, they are always a WARNING.
    on_changed
        The last row of numbers that was taken has changed or is gone: ``raise`` SourceBehindError, for tables whose
        rows are never updated or deleted, or ``warn``.
    max_rows
        Most new rows of one batch; the next one continues there (`IncrementalJob.has_more`). Rows of one cursor stay
        together, so more of them than this are one batch.
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
        """Refuse what cannot be meant, before the source is asked; the error names option and remedy."""
        first = columns[0]
        check_choices(self)  # 'no' counts as true in Python, and settled='no' would let rows be lost.
        if not isinstance(self.delay, timedelta) or self.delay < timedelta(0):
            raise CursorError(first.name, f"delay={self.delay!r} is not a duration of 0 or more. Give a timedelta.")
        # True is an int in Python.
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
        """Refuse what cannot be meant, and a sink that would keep twice what an open plan reads again."""
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
        # Moved by half a step, a bound would be no value of the column, and refused like a stored one that is not.
        if isinstance(lookback, Decimal) and isinstance(first.tick, Decimal) and EXACT.remainder(lookback, first.tick):
            raise CursorError(first.name, f"lookback={lookback} is finer than a {first.type}. Give whole steps of it.")
        if lookback != abs(lookback):
            raise CursorError(first.name, f"lookback={lookback!r} is below 0. Give how far to read back.")

    def to_plan(self) -> dict[str, str]:
        """Return what a plan keeps of them: nothing where they are the defaults, as plans hold few entries."""
        return {} if str(self) == DEFAULTS else {"options": str(self)}

    def __str__(self) -> str:
        """Return what a window does not say itself, as a plan keeps it: no value of a cursor."""
        # Only whether a bound was given: its value may be personal, and logs and plans are read by others.
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
"""What a plan keeps of options: no line break and no page of text gets into a log from there."""


def check_rows_plan(stored: Mapping[str, Any], name: str) -> RowWindow:
    """Read a plan; ImplausibleError if it is not one of `RowWindow.to_plan`, with its options."""
    Fields(stored, name).text("options", None, pattern=WORDS, what="words of options")
    return RowWindow.read(stored, name)


def _fits(first: CursorColumn, lookback: object) -> bool:
    """Tell whether a lookback can be taken off the values of a column."""
    # True is an int in Python, and would read one step back.
    if first.type == "string" or isinstance(lookback, bool):
        return False
    if first.is_time or first.is_uuid:
        return isinstance(lookback, timedelta)
    if isinstance(lookback, Decimal):
        return first.type.startswith("decimal") and lookback.is_finite()
    return isinstance(lookback, int)
