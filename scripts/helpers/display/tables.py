"""Lists that are displayed as tables: as text, in a notebook, and as a pandas DataFrame. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, overload

from scripts.helpers._lazy import pd
from scripts.helpers.display.units import count_text, duration_text, printable, size_text, time_text
from scripts.helpers.errors import DAMAGE, ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

MAX_SHOWN = 20
"""Most rows that a printed table shows. A notebook shows five times as many, and `to_pandas` returns all."""
NUMBERS = ("count", "size", "duration")
"""Kinds of columns that are aligned to the right."""


class Column(NamedTuple):
    """One column: its heading, a function that returns its value for a row, and the kind of that value.

    `kind` is ``text``, ``time``, ``duration``, ``count`` or ``size``. The cell of a None is empty.
    """

    heading: str
    value: Callable[[Any], Any]
    kind: str = "text"


class Table(list[T]):
    """A list of records that is displayed as a table; otherwise it behaves as a list.

    Displaying it sends no request to AWS.
    """

    columns: ClassVar[tuple[Column, ...]] = ()

    def __init__(self, rows: Iterable[T] = (), caption: str = "") -> None:
        super().__init__(rows)
        self.caption = caption

    @overload  # type: ignore[override]
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        """Return a row, or for a slice a table of the same class."""
        found: Any = super().__getitem__(index)
        return type(self)(found, self.caption) if isinstance(index, slice) else found

    def __repr__(self) -> str:
        shown, cells = self._filled(MAX_SHOWN)
        head = printable(self.caption) + ":" if self.caption else f"{type(self).__name__}:"
        if not self:
            return f"{head} empty"
        lines = [[_heading(column) for column in shown], *cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        pads = [str.rjust if column.kind in NUMBERS else str.ljust for column in shown]
        text: list[str] = []
        for line in lines:
            padded = [pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)]
            text.append("  ".join(padded).rstrip())
        return "\n".join([head, *text, *self._rest(MAX_SHOWN)])

    def _repr_html_(self) -> str:
        """Return the table as HTML for a notebook, with all text escaped."""
        shown, cells = self._filled(5 * MAX_SHOWN)
        align = ["right" if column.kind in NUMBERS else "left" for column in shown]
        head = "".join(
            f'<th scope="col" style="text-align:{side}">{escape(_heading(column))}</th>'
            for side, column in zip(align, shown, strict=True)
        )
        body = ""
        for line in cells:
            body += "<tr>"
            for side, cell in zip(align, line, strict=True):
                body += f'<td style="text-align:{side}">{escape(cell)}</td>'
            body += "</tr>"
        rest = "".join(f"<p>{escape(line)}</p>" for line in self._rest(5 * MAX_SHOWN))
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        if not self:
            return f"<p>{escape(self.caption or type(self).__name__)}: empty</p>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with a row for each record. Times are aware and in UTC, durations are Timedeltas.

        Raises
        ------
        ConfigurationError
            pandas is not installed.
        """
        pd = need_pandas()
        columns = {}
        for column in self.all_columns():
            found = [column.value(row) for row in self]
            if column.kind == "time":
                columns[column.heading] = pd.Series(pd.to_datetime(found, utc=True))
            elif column.kind == "duration":
                columns[column.heading] = pd.Series(pd.to_timedelta(found))
            else:
                # Give an empty column the type object: older pandas makes it float, and pd.concat would keep float.
                columns[column.heading] = pd.Series(found, dtype=None if found else object)
        return pd.DataFrame(columns)

    def all_columns(self) -> Sequence[Column]:
        """Return the columns that `to_pandas` uses. These are the displayed columns, unless a subclass adds others."""
        return self.columns

    def _filled(self, limit: int) -> tuple[list[Column], list[list[str]]]:
        """Return the columns that have a value in the first `limit` rows, and the cell texts of each of these rows."""
        rows = self[:limit]
        shown: list[Column] = []
        filled: list[list[str]] = []
        for column in self.columns:
            cells = [cell_text(column, row) for row in rows]
            # Omit a column whose cells are all empty, to leave room for the other columns.
            if any(cells):
                shown.append(column)
                filled.append(cells)
        return shown, [list(line) for line in zip(*filled, strict=True)]

    def _rest(self, limit: int) -> list[str]:
        return [f"… and {len(self) - limit:,} more"] if len(self) > limit else []


def need_pandas() -> Any:
    """Import and return pandas, which is optional; raise ConfigurationError if it is missing."""
    # Look for pandas before importing it: an ImportError of the import would mean a broken pandas, not a missing one.
    if find_spec("pandas") is None:
        raise ConfigurationError("to_pandas needs pandas. Install it: pip install pandas.")
    import pandas

    return pandas


def _heading(column: Column) -> str:
    return f"{column.heading} (UTC)" if column.kind == "time" else column.heading


def cell_text(column: Column, row: Any) -> str:
    """Return the text of a column's cell for a row; an empty text for None."""
    # Other programs write to the DynamoDB table too: one malformed record must not hide all others.
    try:
        return _text(column, column.value(row))
    except DAMAGE:
        return "damaged"


def _text(column: Column, value: Any) -> str:
    if value is None:
        return ""
    # `astimezone` would read a time without a zone in this machine's zone, and the text could be hours off.
    if isinstance(value, datetime) and value.tzinfo is not None:
        return time_text(value)
    if isinstance(value, timedelta):
        return duration_text(value)
    return size_text(value) if column.kind == "size" else printable(count_text(value))
