"""Windows of rows that no watermark follows from: everything, or what runs of the past took. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scripts.helpers.errors import CursorError
from scripts.helpers.row_options import RowOptions
from scripts.helpers.row_plan import check_nulls
from scripts.helpers.row_sources import RowSource
from scripts.helpers.row_window import RowWindow, check_source, check_types, precedes


def whole_window(source: RowSource, names: Sequence[str], strings: bool) -> RowWindow:
    """Return the window of all rows, those without cursor as well."""
    return RowWindow(source.columns(names, strings), None, None, nulls="include", whole=True)


def window_between(
    source: RowSource,
    names: Sequence[str],
    before: Mapping[str, Any] | None,
    until: Mapping[str, Any],
    options: RowOptions,
    context: str,
) -> RowWindow:
    """Return the window from one watermark to a later one: what the runs between them took, as it is there now.

    `lookback` and `nulls` are those of the caller; unless they are included, the source is asked how many there are.
    Where the range starts at the very beginning, `initial_value` is that of the first run. Where the later
    watermark is not past the earlier one, as after a rewind or reset in between, the window is empty.

    Parameters
    ----------
    before
        The watermark to start from; None for the very beginning, or where the first run was told to start.
    until
        The watermark to end with.

    Raises
    ------
    SourceChangedError, CursorError
        A watermark is that of other columns, of files, or of another type or order; an option does not fit, or
        is an upper bound, which a range has of its own; or there are NULLs, and nothing was said about them.
    """
    for name in ("high", "settled"):
        if getattr(options, name) not in (None, False):
            raise CursorError(
                names[0], f"{name}= is given, but a range of runs ends where they did. Leave it out, or read no range."
            )
    columns = source.columns(names, options.strings)
    options.check(columns)
    for state in (until, before):
        if state is not None:
            check_source(state, names, context)
            check_types(columns, state.get("type"))
    if before is not None and bool(before.get("descending")) != bool(until.get("descending")):
        raise CursorError(columns[0].name, "its order changed between the two runs. Take a range on one side of that.")
    low = until.get("start") if before is None else before.get("value")
    stored = {**until, "low": low, "high": until.get("value")}
    window = replace(RowWindow.from_plan(stored, names, context), columns=columns, nulls=options.nulls)
    if options.nulls != "include":
        check_nulls(columns, source.facts(columns, window.low, window.descending).nulls, options.nulls, context)
    if window.low is not None and (
        window.high is None or precedes(window.high, window.low, descending=window.descending)
    ):
        return replace(window, high=window.low)
    return replace(window, lookback=None if before is None else options.lookback)
