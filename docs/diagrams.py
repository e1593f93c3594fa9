"""Draws the pictures of the pages as SVG when the site is built, so that no reader loads a program that draws them.

A page keeps the source in a fence that GitHub draws by itself. What is drawn here is the part of Mermaid that the pages
use: a flowchart, from top to bottom, and the moves of a stateDiagram-v2, one in a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

LETTER, LINE, PAD, GAP = 7.2, 18, 12, 34
"""Pixels: the width of a letter, the height of a line, the space within a box, and that between boxes."""
SIDE = r"(\w+|\[\*\])(?:\[(.+?)\]|\{(.+?)\})?"
ARROW = re.compile(rf"^\s*{SIDE}\s*-->(?:\|(.+?)\|)?\s*{SIDE}(?::\s*(.+))?\s*$")
HEAD = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>'
)


@dataclass(frozen=True)
class Arrow:
    """From one box to another, with what is written beside it."""

    start: str
    end: str
    label: str


@dataclass(frozen=True)
class Box:
    """A text in a rectangle; x and y are those of its middle."""

    lines: Sequence[str]
    x: float
    y: float

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * LETTER + 2 * PAD

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + PAD

    def drawn(self) -> str:
        left, top = self.x - self.width / 2, self.y - self.height / 2
        first = self.y - (len(self.lines) - 1) * LINE / 2 + 4
        rows = [
            text(line, self.x, first + number * LINE)
            for number, line in enumerate(self.lines)
        ]
        frame = (
            f'<rect x="{left:.0f}" y="{top:.0f}" width="{self.width:.0f}" height="{self.height:.0f}" rx="6" '
            'fill="none" stroke="currentColor"/>'
        )
        return frame + "".join(rows)


def text(line: str, x: float, y: float) -> str:
    """Return a line of text, on the page's colour, which parts it from a line below it."""
    below = 'paint-order="stroke" stroke="var(--color-background-primary, #fff)" stroke-width="6"'
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" fill="currentColor" {below}>{escape(line)}</text>'


def parsed(source: str) -> tuple[dict[str, list[str]], list[Arrow]]:
    """Return the lines of each box by its name, and the arrows."""
    boxes: dict[str, list[str]] = {}
    arrows = []
    for line in source.splitlines():
        found = ARROW.match(line)
        if found is None:
            continue
        start, square, round_, label, end, other_square, other_round, after = (
            found.groups()
        )
        for name, shown in (
            (start, square or round_),
            (end, other_square or other_round),
        ):
            if shown or name not in boxes:
                boxes[name] = (
                    (shown or ("start" if name == "[*]" else name))
                    .strip('"')
                    .split("<br>")
                )
        arrows.append(Arrow(start, end, label or after or ""))
    return boxes, arrows


def ranks_of(
    boxes: Mapping[str, Sequence[str]], arrows: Sequence[Arrow]
) -> dict[str, int]:
    """Return how far down each box is: one below the lowest that leads to it. Flowcharts of pages have no circle."""
    ranks = dict.fromkeys(boxes, 0)
    for _ in boxes:
        for arrow in arrows:
            ranks[arrow.end] = max(ranks[arrow.end], ranks[arrow.start] + 1)
    return ranks


def flowchart(source: str) -> str:
    """Draw boxes in rows, and a line for each arrow."""
    lines, arrows = parsed(source)
    ranks = ranks_of(lines, arrows)
    rows = [
        [name for name in lines if ranks[name] == rank]
        for rank in range(max(ranks.values()) + 1)
    ]
    # A box has as much room as what is written at the arrows to it, so that the texts of a row lie side by side.
    room = {name: Box(shown, 0, 0).width for name, shown in lines.items()}
    for arrow in arrows:
        room[arrow.end] = max(room[arrow.end], len(arrow.label) * LETTER)
    width = (
        max(sum(room[name] for name in row) + GAP * (len(row) - 1) for row in rows)
        + 2 * PAD
    )
    placed, y = {}, float(PAD)
    for row in rows:
        height = max(Box(lines[name], 0, 0).height for name in row)
        x = (width - sum(room[name] for name in row) - GAP * (len(row) - 1)) / 2
        for name in row:
            placed[name] = Box(lines[name], x + room[name] / 2, y + height / 2)
            x += room[name] + GAP
        y += height + 2 * GAP
    parts = [box.drawn() for box in placed.values()]
    for arrow in arrows:
        start, end = placed[arrow.start], placed[arrow.end]
        top, bottom = start.y + start.height / 2, end.y - end.height / 2 - 1
        parts.append(line_between(start.x, top, end.x, bottom))
        # Near the end, where lines that begin together have parted.
        parts.append(
            text(
                arrow.label,
                start.x + (end.x - start.x) * 0.88,
                top + (bottom - top) * 0.7,
            )
        )
    return svg(parts, width, y - 2 * GAP + PAD, arrows, lines)


def states(source: str) -> str:
    """Draw each move in a line: from which state, why, and to which."""
    lines, arrows = parsed(source)
    box = max(Box(shown, 0, 0).width for shown in lines.values())
    middle = max(len(arrow.label) for arrow in arrows) * LETTER + 2 * GAP
    width, step = 2 * box + middle + 2 * PAD, LINE + PAD + 10
    parts = []
    for number, arrow in enumerate(arrows):
        y = PAD + step * number + step / 2
        left, right = PAD + box / 2, width - PAD - box / 2
        parts += [
            Box(lines[arrow.start], left, y).drawn(),
            Box(lines[arrow.end], right, y).drawn(),
        ]
        start, end = (
            left + Box(lines[arrow.start], 0, 0).width / 2,
            right - Box(lines[arrow.end], 0, 0).width / 2 - 1,
        )
        parts += [line_between(start, y, end, y), text(arrow.label, width / 2, y - 8)]
    return svg(parts, width, PAD * 2 + step * len(arrows), arrows, lines)


def line_between(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a line with a head."""
    return f'<path d="M{x1:.0f} {y1:.0f} {x2:.0f} {y2:.0f}" stroke="currentColor" marker-end="url(#arrow)"/>'


def svg(
    parts: Sequence[str],
    width: float,
    height: float,
    arrows: Sequence[Arrow],
    lines: Mapping[str, Sequence[str]],
) -> str:
    """Return the picture; a screen reader reads the arrows in words."""
    words = [
        f"{' '.join(lines[arrow.start])} to {' '.join(lines[arrow.end])} {arrow.label}".strip()
        for arrow in arrows
    ]
    return (
        f'<svg role="img" aria-label="{escape("; ".join(words))}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width:{width:.0f}px;width:100%" font-family="sans-serif" font-size="13">'
        f"{HEAD}{''.join(parts)}</svg>"
    )


def draw(source: str) -> str:
    """Return the picture of a block, and below it the text of its note, if there is one."""
    picture = (
        states(source)
        if source.lstrip().startswith("stateDiagram")
        else flowchart(source)
    )
    note = re.search(r"note .*?\n(.*?)end note", source, re.DOTALL)
    return picture + (f"<p>{escape(' '.join(note[1].split()))}</p>" if note else "")


class Picture(Directive):
    """A fenced block of Mermaid."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", draw("\n".join(self.content)), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Draw each block of Mermaid."""
    app.add_directive("mermaid", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
