"""docs/benchmarks.md marks the goals that are missed, and README.md has the same figures."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import text_of

GOALS = [
    (name, measured, goal)
    for table in re.findall(
        r"^\| \| measured \| goal \|\n\|[-|]+\n((?:\|.*\n)+)", text_of("benchmarks.md"), re.MULTILINE
    )
    for name, measured, goal in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
]
SMALL_GOALS, SMALL_NAMES = ("at most", "MB", "KB"), ("partitions read", "of the window")
"""Words in a goal, or in its name, that mean that a smaller figure is better."""


@pytest.mark.parametrize(("name", "measured", "goal"), GOALS, ids=[name for name, *_ in GOALS])
def test_goal_is_marked_as_missed_when_it_is(name: str, measured: str, goal: str) -> None:
    figures = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", re.sub(r"\(.*?\)", "", measured))]
    wanted = float(re.findall(r"\d+(?:\.\d+)?", goal)[0])
    is_most = any(word in goal for word in SMALL_GOALS) or any(word in name for word in SMALL_NAMES)

    missed = [figure for figure in figures if (figure > wanted if is_most else figure < wanted)]

    assert figures
    assert bool(missed) == ("missed" in goal)


def test_readme_has_the_figures_of_the_page_when_both_are_read() -> None:
    page, readme = text_of("benchmarks.md"), " ".join(text_of("README.md").split())
    [(seconds, streaming, dlt)] = re.findall(
        r"^\| found among 1,000,000 \| ([\d.]+) s \| ([\d.]+) times \| ([\d.]+) times \|$", page, re.MULTILINE
    )
    jobs = re.findall(r"^\| [\d,]+ \| ([\d.]+) s \| [\d.]+ s \| [\d.]+ s \|$", page, re.MULTILINE)

    assert f"committed in {round(float(seconds))} s; Spark's Structured Streaming takes {streaming} times" in readme
    assert f"dlt {dlt} times." in readme
    assert [round(float(whole), 1) for whole in jobs] == [0.3] * 3
    assert "takes 0.3 seconds" in readme
