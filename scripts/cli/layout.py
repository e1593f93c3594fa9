"""Tables that fit the terminal: side by side where there is room, one below the other where there is not."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from scripts.cli.texts import NONE, as_json
from scripts.helpers.display.units import printable

GAP = 2
Cell = str | Text


def emit(document: Any) -> None:
    """Write one JSON document, and nothing else, to standard output."""
    sys.stdout.write(json_text(as_json(document), indent=2) + "\n")


def json_text(document: Any, indent: int | None = None) -> str:
    """Write JSON in which nothing can move a terminal's cursor: what is not printable is escaped."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def show_rows(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[Cell]], right: Sequence[str] = ()
) -> None:
    """Write a table; columns in which no row has anything are left out. `right` names those of numbers."""
    texts = [[_cell(cell) for cell in row] for row in rows]
    filled = [at for at in range(len(headings)) if at == 0 or any(row[at].plain not in ("", NONE) for row in texts)]
    names = [Text(headings[at], "bold") for at in filled]
    lines = [names, *([row[at] for at in filled] for row in texts)]
    widths = [max(line[place].cell_len for line in lines) for place in range(len(filled))]
    if sum(widths) + GAP * (len(widths) - 1) > console.width:
        show_cards(console, names, lines[1:])
        return
    justify = ["right" if headings[at] in right else "left" for at in filled]
    for line in lines:
        console.print(_line(line, widths, justify), soft_wrap=True)


def _line(cells: Sequence[Text], widths: Sequence[int], justify: Sequence[str]) -> Text:
    line = Text()
    for cell, width, side in zip(cells, widths, justify, strict=True):
        space = " " * (width - cell.cell_len)
        line.append_text(Text.assemble(space, cell) if side == "right" else Text.assemble(cell, space)).append(
            " " * GAP
        )
    line.rstrip()
    return line


def show_cards(console: Console, headings: Sequence[Text], rows: Sequence[Sequence[Text]]) -> None:
    """Write each row as a block: its first cell as a title, the others below it."""
    for number, row in enumerate(rows):
        if number:
            console.print()
        show_folded(console, Text.assemble((row[0].plain, "bold")))
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if cell.plain not in ("", NONE):
                _show_fact(console, Text(f"{heading.plain}: ", "dim"), cell, GAP)


def show_facts(console: Console, facts: Sequence[tuple[str, Cell]]) -> None:
    """Write names with what they are, one a line, the second column aligned."""
    left = max(len(name) for name, _ in facts) + GAP
    for name, cell in facts:
        _show_fact(console, Text(name.ljust(left), "dim"), _cell(cell), 0)


def _show_fact(console: Console, label: Text, text: Text, indent: int) -> None:
    """Write one name with what it is; a long one goes on below, further in."""
    if indent + label.cell_len + text.cell_len <= console.width:
        console.print(Text.assemble(" " * indent, label, text), soft_wrap=True)
        return
    label.rstrip()
    console.print(Text.assemble(" " * indent, label), soft_wrap=True)
    show_folded(console, text, indent + GAP)


def show_folded(console: Console, text: Text, indent: int = 0) -> None:
    """Write a text over as many lines as it needs."""
    for line in text.wrap(console, max(console.width - indent, 1), overflow="fold"):
        line.rstrip()
        console.print(Text.assemble(" " * indent, line), soft_wrap=True)


def _cell(cell: Cell) -> Text:
    """Return a cell without anything that moves the cursor."""
    if isinstance(cell, str):
        return Text(printable(cell))
    return cell if cell.plain.isprintable() else Text(printable(cell.plain), cell.style)
