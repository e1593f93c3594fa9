"""Charts as inline SVG. Pure.

Charts contain only shapes, in a box that the page stretches to its width. Numbers and dates are HTML
next to the chart, so that they keep their size on a phone. Colours are classes of the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 600, 100
"""Size of a chart's box, in units of its own, because the page stretches it."""
SPARK_WIDTH, SPARK_HEIGHT = 96, 20
"""Size of a sparkline in pixels, as in the style sheet."""
SPARK_LOW, SPARK_HIGH = 60.0, 30 * 86_400.0
"""Seconds at the bottom and at the top of a sparkline. All sparklines share this scale, so that jobs can be compared.
It is logarithmic, because some jobs run every minute and others every week."""


FOOT = 5
"""Height of the mark for an empty period, in a chart's box. It is also the minimum height of a bar, so that a small
count does not look like none."""


def bars(
    chart_id: str,
    title: str,
    description: str,
    values: Sequence[float | None],
    bad: Sequence[float] | None = None,
    unknown: int = 0,
) -> Markup:
    """Draw one bar for each value, with the `bad` count on top of it in another colour.

    A value of None means that nothing happened, and is marked at the foot of the chart. The first `unknown` values are
    older than the versions read, and are marked over the whole height. Title and description are for screen readers.
    """
    marks = bad or [0] * len(values)
    counts = [value or 0 for value in values]
    top = max((count + mark for count, mark in zip(counts, marks, strict=True)), default=0) or 1
    step = WIDTH / max(len(values), 1)
    wide = max(step - 1.5, step * 0.7)
    shapes = [_rect("nothing", 0, 0, unknown * step, HEIGHT)] if unknown else []
    empty = [value is None and not mark for value, mark in zip(values, marks, strict=True)]
    for start, end in _stretches(empty, unknown):
        shapes.append(_rect("empty", start * step, HEIGHT - FOOT, (end - start - 1) * step + wide, FOOT))
    for index, (value, mark) in enumerate(zip(values, marks, strict=True)):
        left, bottom = index * step, float(HEIGHT)
        if value is not None:
            height = max(value / top * HEIGHT, FOOT)
            bottom -= height
            shapes.append(_rect("bar", left, bottom, wide, height))
        if mark:
            height = max(mark / top * HEIGHT, FOOT)
            shapes.append(_rect("bad", left, bottom - height, wide, height))
    return _svg(chart_id, title, description, "".join(shapes))


def area(chart_id: str, title: str, description: str, values: Sequence[float | None]) -> Markup:
    """Draw a line with the area below it. The line breaks where values are None, and the gap is marked."""
    step = WIDTH / max(len(values), 1)
    gaps = _stretches([value is None for value in values])
    shapes = [_rect("nothing", start * step, 0, (end - start) * step, HEIGHT) for start, end in gaps]
    for start, points in _runs(values, WIDTH, HEIGHT):
        line = " ".join(f"{x:.0f},{y:.1f}" for x, y in points)
        end = points[-1][0]
        shapes.append(f'<path class="area" d="M{start:.0f},{HEIGHT} L{line} L{end:.0f},{HEIGHT} Z"/>')
        shapes.append(f'<polyline class="line" points="{line}"/>')
    return _svg(chart_id, title, description, "".join(shapes))


def spark(values_by_range: Mapping[str, Sequence[float | None]]) -> Markup:
    """Draw a sparkline of lags in seconds for each time range. The page shows one range at a time, beside the lag."""
    lines = []
    for name, values in values_by_range.items():
        scaled = [None if value is None else _spark_share(value) for value in values]
        drawn = "".join(_steps(points) for _, points in _runs(scaled, SPARK_WIDTH, SPARK_HEIGHT - 2, 1, top=1.0))
        lines.append(f'<path class="line" data-in="{name}" d="{drawn}"/>')
    box = f"0 0 {SPARK_WIDTH} {SPARK_HEIGHT}"
    return Markup(f'<svg class="spark" viewBox="{box}" aria-hidden="true" focusable="false">{"".join(lines)}</svg>')


def _steps(points: Sequence[tuple[float, float]]) -> str:
    """Return the SVG path of a stepped line, as short as possible because a page has thousands of them."""
    x, y = points[0]
    written = f"M{x:.0f} {y:.0f}"
    level = f"{y:.0f}"
    # The line has level parts. Each part has two points: its beginning and its end.
    for (_, y), (end, _) in zip(points[::2], points[1::2], strict=True):
        if f"{y:.0f}" != level:
            level = f"{y:.0f}"
            written += f"H{x:.0f}V{level}"
        x = end
    return f"{written}H{x:.0f}"


def _spark_share(seconds: float) -> float:
    """Return the height of a value in a sparkline, from 0 to 1."""
    share = math.log(max(seconds, SPARK_LOW) / SPARK_LOW) / math.log(SPARK_HIGH / SPARK_LOW)
    return min(share, 1.0)


def _stretches(marked: Sequence[bool], first: int = 0) -> list[tuple[int, int]]:
    """Return (first index, index after the last) of each run of True values, from the index `first` on."""
    found: list[tuple[int, int]] = []
    for index in range(first, len(marked)):
        if not marked[index]:
            continue
        if found and found[-1][1] == index:
            found[-1] = found[-1][0], index + 1
        else:
            found.append((index, index + 1))
    return found


def _runs(
    values: Sequence[float | None], width: float, height: float, above: float = 0, top: float | None = None
) -> list[tuple[float, list[tuple[float, float]]]]:
    """Return the start (x) and the points of each run of values without None. The value `top` is drawn at the top."""
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
