"""Charts of the measurements, as SVG files in benchmarks/out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"


def bars(name: str, title: str, unit: str, groups: Mapping[str, Mapping[str, float]]) -> Path:
    """Draw a group of bars with one bar for each tool, on a logarithmic scale."""
    figure, axes = _figure(title)
    tools = list(dict.fromkeys(tool for values in groups.values() for tool in values))
    width = 0.8 / len(tools)
    for index, tool in enumerate(tools):
        places = [place + width * (index - (len(tools) - 1) / 2) for place in range(len(groups))]
        drawn = axes.bar(places, [values.get(tool, 0) for values in groups.values()], width * 0.9, label=tool)
        axes.bar_label(drawn, fmt="%.3g", fontsize=8)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_yscale("log")
    axes.set_ylabel(unit)
    return _saved(figure, axes, name)


def lines(name: str, title: str, unit: str, series: Mapping[str, Mapping[int, float]]) -> Path:
    """Draw one line for each series against the number of objects; both scales are logarithmic."""
    figure, axes = _figure(title)
    for label, points in series.items():
        axes.plot(list(points), list(points.values()), marker="o", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("objects")
    axes.set_ylabel(unit)
    return _saved(figure, axes, name)


def _figure(title: str) -> Sequence[Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.set_title(title)
    return figure, axes


def _saved(figure: Any, axes: Any, name: str) -> Path:
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.svg"
    figure.savefig(path)
    return path
