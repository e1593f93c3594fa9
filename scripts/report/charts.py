"""Charts as inline SVG. Pure.

Only shapes are drawn, in a box that the page stretches to its width; numbers and dates stand in
HTML beside it, so that they keep their size on a phone. Colours are classes of the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 600, 100
SPARK_WIDTH, SPARK_HEIGHT = 96, 20
SPARK_LOW, SPARK_HIGH = 60.0, 30 * 86_400.0
"""Seconds at the bottom and at the top of a small line. All have this scale, as they stand below each other and are
compared; it is logarithmic, as some jobs run every minute and others every week."""


def bars(
    chart_id: str, title: str, description: str, values: Sequence[float], bad: Sequence[float] | None = None
) -> Markup:
    """Draw one bar for each value; what of it is `bad` stands on top, in another colour.

    Title and description are what a screen reader says.
    """
    marks = bad or [0] * len(values)
    top = max((value + mark for value, mark in zip(values, marks, strict=True)), default=0) or 1
    step = WIDTH / max(len(values), 1)
    shapes = []
    for index, (value, mark) in enumerate(zip(values, marks, strict=True)):
        left, wide = index * step, max(step - 1.5, step * 0.7)
        good_height, bad_height = value / top * HEIGHT, mark / top * HEIGHT
        if value:
            shapes.append(_rect("bar", left, HEIGHT - good_height, wide, good_height))
        if mark:
            shapes.append(_rect("bad", left, HEIGHT - good_height - bad_height, wide, bad_height))
    return _svg(chart_id, title, description, "".join(shapes))


def area(chart_id: str, title: str, description: str, values: Sequence[float | None]) -> Markup:
    """Draw a line with the area below it; where a value is None it breaks, and the gap is marked."""
    step = WIDTH / max(len(values), 1)
    shapes = [_rect("nothing", index * step, 0, step, HEIGHT) for index, value in enumerate(values) if value is None]
    for start, points in _runs(values, WIDTH, HEIGHT):
        line = " ".join(f"{x:.0f},{y:.1f}" for x, y in points)
        end = points[-1][0]
        shapes.append(f'<path class="area" d="M{start:.0f},{HEIGHT} L{line} L{end:.0f},{HEIGHT} Z"/>')
        shapes.append(f'<polyline class="line" points="{line}"/>')
    return _svg(chart_id, title, description, "".join(shapes))


def spark(values: Sequence[float | None]) -> Markup:
    """Draw a small line of seconds without words; what it shows must stand beside it."""
    scaled = [None if value is None else _spark_share(value) for value in values]
    lines = "".join(
        f'<polyline class="line" points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in points)}"/>'
        for _, points in _runs(scaled, SPARK_WIDTH, SPARK_HEIGHT - 2, 1, top=1.0)
    )
    box = f"0 0 {SPARK_WIDTH} {SPARK_HEIGHT}"
    return Markup(f'<svg class="spark" viewBox="{box}" aria-hidden="true" focusable="false">{lines}</svg>')


def _spark_share(seconds: float) -> float:
    """Return how high a value of a small line is, from 0 to 1."""
    share = math.log(max(seconds, SPARK_LOW) / SPARK_LOW) / math.log(SPARK_HIGH / SPARK_LOW)
    return min(share, 1.0)


def _runs(
    values: Sequence[float | None], width: float, height: float, above: float = 0, top: float | None = None
) -> list[tuple[float, list[tuple[float, float]]]]:
    """Return the points of each stretch without None, with where it starts; `top` is the largest of them by default."""
    if top is None:
        top = max((value for value in values if value is not None), default=0) or 1
    step = width / max(len(values), 1)
    runs: list[tuple[float, list[tuple[float, float]]]] = []
    open_run = False
    for index, value in enumerate(values):
        if value is None:
            open_run = False
            continue
        if not open_run:
            runs.append((index * step, []))
            open_run = True
        y = above + height - value / top * height
        runs[-1][1].extend([(index * step, y), ((index + 1) * step, y)])
    return runs


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _svg(chart_id: str, title: str, description: str, shapes: str) -> Markup:
    frame = Markup(
        '<svg class="chart" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        'aria-labelledby="{id}-t {id}-d"><title id="{id}-t">{title}</title><desc id="{id}-d">{description}</desc>'
    )
    head = frame.format(width=WIDTH, height=HEIGHT, id=chart_id, title=title, description=description)
    return head + Markup(shapes) + Markup("</svg>")
