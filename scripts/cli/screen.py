"""Show jobs to people: values as text, in tables that fit the terminal.

If a table is wider than the terminal, each row is printed as a block of lines. Tables make their cells printable. Any
other text from the table of watermarks must go through `printable` before it is printed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.text import Text

from scripts.cli.documents import as_json
from scripts.helpers.display.tables import NUMBERS, Column, Table, cell_text
from scripts.helpers.display.units import count_of, duration_text, printable, size_text, time_text
from scripts.helpers.files.set_aside import SetAsideList
from scripts.helpers.files.states import FilesPlan, FilesState, PartitionState
from scripts.helpers.metrics.signs_of_life import silence
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.head import Head, Release
from scripts.helpers.protocol.lookups import PLANS
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.cursors import as_list
from scripts.helpers.rows.states import RowsState, column_values
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.schemas.kept import schemas_of
from scripts.helpers.states import typed
from scripts.helpers.tables.spans import TableSpan, TableState

NONE = "-"
GAP = 2
"""Spaces between two columns of a table."""
Cell = str | Text


def ago(duration: timedelta | None) -> str:
    """Return a duration as "2 h ago"."""
    return NONE if duration is None else f"{duration_text(duration)} ago"


def moment(at: datetime | None) -> str:
    """Return a time to the second, in UTC, with a Z."""
    return NONE if at is None else f"{time_text(at)}Z"


def released_text(release: Release) -> str:
    """Return which run was released as dead, when, by whom and why."""
    return f"run {release.run_id} at {moment(release.at)} by {release.who}: {release.why}"


def release_hint(head: Head, now: datetime) -> str:
    """Return what to do about a run that may be dead (`may_be_dead`), with a command that can be pasted."""
    assert head.claim is not None
    silent = silence(head, now)
    said = "" if silent is None else f"gave its last sign of life {ago(silent)} and "
    left = duration_text(head.claim.lease_until - now)
    # Quote the job's name, which may have spaces.
    return (
        f"run {head.claim.run_id} {said}keeps others away for {left}. If it is dead: "
        f"watermarks release {shlex.quote(head.job_id)} --why TEXT"
    )


# --- values of watermarks -----------------------------------------------------------------------


def value_text(value: Any) -> str:
    """Return one value of a watermark as text."""
    if value is None:
        return "null"
    # Check for a datetime first, because it is also a date.
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return f"{value.isoformat(sep=' ')} (zone not known)"
        # Keep the zone's offset: the text then names an instant, and shows the value as it is in the column.
        text = value.isoformat(sep=" ")
        return f"{text.removesuffix('+00:00')}Z" if text.endswith("+00:00") else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, Spilled):
        return f"{size_text(value.length)} in {value.chunks:,} chunks"
    if isinstance(value, Blob):
        return "bytes in chunks"
    if isinstance(value, (Mapping, Sequence, set)) and not isinstance(value, str):
        return json.dumps(as_json(value), ensure_ascii=False)
    return str(value)


def state_text(state: Any) -> str:
    """Return as text the watermark of one context, or one value that a script keeps by hand."""
    found = typed(state)
    if isinstance(found, RowsState):
        value = as_list(column_values(found.columns, found.value, placed=True))
        return _pairs_text(found.names, value) + _schemas_text(state)
    if isinstance(found, FilesState):
        listed = moment(found.listed) if found.listed else "never"
        return f"{count_of(found.count, 'file')} known{_set_aside_text(found.aside)}, listed {listed}" + _schemas_text(
            state
        )
    if isinstance(found, PartitionState):
        return f"{_pairs_text(found.columns, found.value)}, {count_of(found.files, 'file')}"
    if isinstance(found, TableState):
        made = f", made {moment(found.at)}" if found.at else ""
        return f"{commit_text(found.format, found.value, 'no snapshot yet')}{made}{_schemas_text(state)}"
    return value_text(found if isinstance(found, str) else state)


def _pairs_text(names: Sequence[str], values: Sequence[Any]) -> str:
    return ", ".join(f"{name} {value_text(one)}" for name, one in zip(names, values, strict=False))


def commit_text(format: str, value: int | None, none: str) -> str:
    """Return a commit of a table as its format names it, or `none` if there is none."""
    noun = "snapshot" if format == "iceberg" else "version"
    return none if value is None else f"{noun} {value_text(value)}"


def _schemas_text(state: Any) -> str:
    """Return how many columns of a source are stored, such as ", 5 columns" or, by format, ", csv with 5 columns"."""
    kept = schemas_of(state)
    if len(kept) == 1:
        return "".join(f", {count_of(len(columns), 'column')}" for columns in kept.values())
    return "".join(f", {name} with {count_of(len(columns), 'column')}" for name, columns in sorted(kept.items()))


def _set_aside_text(aside: SetAsideList | None) -> str:
    """Return how many files are set aside, and how many of them an operator decided to retry or skip."""
    if aside is None:
        return ""
    decisions = [f"{count:,} to {name}" for name, count in (("retry", aside.retry), ("skip", aside.skip)) if count]
    return f", {aside.count} set aside" + (f" ({', '.join(decisions)})" if decisions else "")


def planned_text(planned: Any) -> str:
    """Return as text what a frozen plan takes from one context."""
    found = typed(planned, PLANS)
    if isinstance(found, FilesPlan):
        aside = f", {found.set_aside:,} set aside" if found.set_aside else ""
        return f"{count_of(found.count, 'file')}, {size_text(found.bytes)}{aside}"
    if isinstance(found, RowWindow):
        names = [column.name for column in found.columns]
        named = names[0] if len(names) == 1 else str(names)
        low, high = (column_values(found.columns, bound, placed=True) for bound in (found.low, found.high))
        last = bound_text(high, "the first row there will be")
        return f"{named} from {bound_text(low, 'the beginning')} to before {last}"
    if isinstance(found, TableSpan):
        until = commit_text(found.format, found.until, "a table without a snapshot")
        if found.whole:
            return f"all rows at {until}"
        what = "changes" if found.is_feed else "appended rows"
        return f"{what} after {commit_text(found.format, found.after, 'the beginning')} up to {until}"
    return value_text(found if isinstance(found, str) else planned)


def bound_text(bound: Any, none: str) -> str:
    """Return one end of a window or a gap as text, or `none` if it is open."""
    if bound is None:
        return none
    if isinstance(bound, (list, tuple)):
        return "(" + ", ".join("any" if one is None else value_text(one) for one in bound) + ")"
    return value_text(bound)


# --- tables -------------------------------------------------------------------------------------


def show_rows(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[Cell]], right: Sequence[str] = ()
) -> None:
    """Print a table without the columns that are empty in all rows. `right` names the columns to align right."""
    names: list[Text] = []
    columns: list[list[Text]] = []
    is_right: list[bool] = []
    for at, heading in enumerate(headings):
        cells = [_cell(row[at]) for row in rows]
        # Keep the first column even if empty: it names the rows, and is the title if rows are shown as cards.
        if at == 0 or not all(map(_is_empty, cells)):
            names.append(Text(heading, "bold"))
            columns.append(cells)
            is_right.append(heading in right)
    lines = [names, *(list(line) for line in zip(*columns, strict=True))]
    widths = []
    for name, cells in zip(names, columns, strict=True):
        widths.append(max(cell.cell_len for cell in (name, *cells)))
    if sum(widths) + GAP * (len(widths) - 1) > console.width:
        _show_cards(console, names, lines[1:])
        return
    for line in lines:
        console.print(_aligned(line, widths, is_right), soft_wrap=True)


def show_table(
    console: Console, table: Table[Any], styles: Mapping[str, Callable[[str], str]] = MappingProxyType({})
) -> None:
    """Print a table under its own headings. `styles` has, by heading, functions that return the colour of a cell."""
    columns = table.columns
    rows: list[list[Cell]] = [
        [_cell_of(column, row, styles.get(column.heading)) for column in columns] for row in table
    ]
    right = [column.heading for column in columns if column.kind in NUMBERS]
    show_rows(console, [column.heading for column in columns], rows, right)


def _cell_of(column: Column, row: Any, style: Callable[[str], str] | None) -> Cell:
    text = cell_text(column, row) or NONE
    if column.kind == "time" and text != NONE:
        text += "Z"
    return text if style is None else Text(text, style(text))


def _aligned(cells: Sequence[Text], widths: Sequence[int], is_right: Sequence[bool]) -> Text:
    """Return one line of a table. Padding is added outside of the cells, so that it gets no colour."""
    line = Text()
    for cell, width, at_right in zip(cells, widths, is_right, strict=True):
        space = " " * (width - cell.cell_len)
        line.append_text(Text.assemble(space, cell) if at_right else Text.assemble(cell, space))
        line.append(" " * GAP)
    line.rstrip()
    return line


def _show_cards(console: Console, headings: Sequence[Text], rows: Sequence[Sequence[Text]]) -> None:
    """Print each row as a block: its first cell as a title, its other cells below the title."""
    for number, row in enumerate(rows):
        if number:
            console.print()
        show_folded(console, Text.assemble((row[0].plain, "bold")))
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if not _is_empty(cell):
                _show_fact(console, Text(f"{heading.plain}: ", "dim"), cell, GAP)


def show_facts(console: Console, facts: Sequence[tuple[str, Cell]]) -> None:
    """Print names with their values, one pair per line, the values aligned."""
    left = max(len(name) for name, _ in facts) + GAP
    for name, cell in facts:
        _show_fact(console, Text(name.ljust(left), "dim"), _cell(cell), 0)


def _show_fact(console: Console, label: Text, text: Text, indent: int) -> None:
    """Print a name with its value; a long value is folded onto indented lines below."""
    if indent + label.cell_len + text.cell_len <= console.width:
        console.print(Text.assemble(" " * indent, label, text), soft_wrap=True)
        return
    label.rstrip()
    console.print(Text.assemble(" " * indent, label), soft_wrap=True)
    show_folded(console, text, indent + GAP)


def show_folded(console: Console, text: Text, indent: int = 0) -> None:
    """Print a text, folded to the width of the console."""
    for line in text.wrap(console, max(console.width - indent, 1), overflow="fold"):
        line.rstrip()
        # The text is folded already. Without `soft_wrap`, rich would fold it again if output is not a terminal.
        console.print(Text.assemble(" " * indent, line), soft_wrap=True)


def _cell(cell: Cell) -> Text:
    """Return a cell without characters that move the cursor, because names and values come from the table."""
    if isinstance(cell, str):
        return Text(printable(cell))
    return cell if cell.plain.isprintable() else Text(printable(cell.plain), cell.style)


def _is_empty(cell: Text) -> bool:
    return cell.plain in ("", NONE)
