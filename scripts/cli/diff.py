"""`watermarks history JOB --diff`: the differences between two versions, which are also shown before a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from scripts.cli.documents import emit, entry_json, with_spans
from scripts.cli.progress import progress
from scripts.cli.screen import NONE, Cell, bound_text, moment, show_folded, show_rows, state_text, value_text
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import count_of, duration_text, id_text, printable
from scripts.helpers.errors import NothingThereError
from scripts.helpers.files.states import FilesState
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.values import ImplausibleError, same_values
from scripts.helpers.rows.cursor_ranges import CursorRange, shown_range, uncovered
from scripts.helpers.rows.states import RowsState, column_values
from scripts.helpers.schemas.kept import schemas_of
from scripts.helpers.schemas.policy import changes_between
from scripts.helpers.states import typed
from scripts.helpers.tables.spans import TableState


class WatermarkDifference(NamedTuple):
    """A watermark that differs between two versions. `before` or `after` is None if that version does not have it."""

    name: str
    before: Any
    after: Any

    def as_json(self) -> dict[str, Any]:
        """Return the difference in types that JSON has."""
        return {"watermark": self.name, "from": with_spans(self.before), "to": with_spans(self.after)}


def show_diff(around: Surroundings, job: str, version: int | None, other: int | None) -> None:
    """Show the differences between two versions. By default `other` is the current one, `version` the one before it."""
    with progress(around, f"reading versions of {printable(job)}"):
        head = around.watermarks.latest(job)
        newest = history_entry(around, job, other or head.version, head)
        # The only version of a job is compared with itself: there is no difference, and no error.
        oldest = history_entry(around, job, version or max(newest.version - 1, 1), head)
    changes = differences(oldest.watermarks, newest.watermarks)
    if around.is_json:
        ends = {"from": entry_json(oldest), "to": entry_json(newest)}
        emit({"job": job, **ends, "changes": [change.as_json() for change in changes]})
        return
    _show_end(around, "from", oldest)
    _show_end(around, "to", newest)
    if not changes:
        around.out.print("No watermark differs.")
        return
    show_differences(around.out, changes)


def _show_end(around: Surroundings, name: str, entry: LogEntry) -> None:
    change = entry.change
    by = f" by {printable(id_text(change.run_id))}" if change.run_id else ""
    said = f"{name.ljust(5)}version {entry.version:,}: {printable(change.op)}, {moment(change.at)}{by}"
    around.out.print(said, style="dim")


def history_entry(around: Surroundings, job: str, version: int, head: Head) -> LogEntry:
    """Return one version of the history. Raise NothingThereError if it never existed or has expired."""
    found = around.watermarks.history(job, 1, version + 1) if version <= head.version else []
    # `history` returns the newest entry below `version + 1`: an older entry, if the one of `version` has expired.
    if not found or found[0].version != version:
        raise NothingThereError(reason="unknown_version", job_id=job, version=version, current=head.version)
    return found[0]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[WatermarkDifference]:
    """Return the watermarks that differ, sorted by name."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        # A watermark may exist with the value None, which differs from not existing.
        is_in_both = name in before and name in after
        if not is_in_both or not same_values(before[name], after[name]):
            found.append(WatermarkDifference(name, before.get(name), after.get(name)))
    return found


def show_differences(console: Console, changes: Sequence[WatermarkDifference]) -> None:
    """Print the watermarks that differ, with both values."""
    rows: list[list[Cell]] = []
    for name, old, new in changes:
        then, now = (NONE if state is None else state_text(state) for state in (old, new))
        # Show both states in full if their short texts are equal, as when only the ranges of the rows read differ.
        if then == now:
            then, now = value_text(with_spans(old)), value_text(with_spans(new))
        rows.append([name, then, now, _moved(typed(old), typed(new))])
    show_rows(console, ("watermark", "before", "after", "moved by"), rows)
    for name, old, new in changes:
        for line in _columns_changed(old, new):
            show_folded(console, Text(printable(f"{name}: {line}")))


def consequences(change: WatermarkDifference) -> list[str]:
    """Return what the next runs read again, and what no run reads, after the watermark of a source changes."""
    old, new = typed(change.before), typed(change.after)
    again, skipped = [], []
    if isinstance(old, RowsState) and isinstance(new, RowsState) and old.names == new.names:
        again = [f"rows {_span_text(span, old)}" for span in uncovered(old.passed, [new.passed])]
        # Do not count as skipped what a run has recorded as read. A state that was set by hand has no such record.
        read = [] if new.covered is None else new.ranges
        skipped = [f"rows {_span_text(span, new)}" for span in uncovered(new.passed, [old.passed, *read])]
    elif isinstance(old, FilesState) and isinstance(new, FilesState) and old.count > new.count:
        again = [count_of(old.count - new.count, "file")]
    elif isinstance(change.before, Mapping) and change.after is None:
        again = ["everything"]
    twice = "a target that appends then has them twice, unless you delete what it has of them"
    told = [f"the next runs read {what} again: {twice}" for what in again]
    return told + [f"no run reads {what}, unless you backfill them" for what in skipped]


def _span_text(span: CursorRange, state: RowsState) -> str:
    low, high = (column_values(state.columns, end, placed=True) for end in shown_range(span, len(state.columns)))
    return f"from {bound_text(low, 'the beginning')} to before {bound_text(high, 'the end')}"


def _columns_changed(old: Any, new: Any) -> list[str]:
    """Return a line for each column of a source that differs between two versions."""
    found: list[str] = []
    try:
        before, after = schemas_of(old), schemas_of(new)
    except ImplausibleError:
        return found  # Compare no columns: the table that the command printed before already shows the damage.
    for name in sorted(before.keys() & after.keys()):
        found += [f"{name}: column {change}" for change in changes_between(before[name], after[name])]
    return found


def _moved(old: Any, new: Any) -> str:
    """Return how far a watermark has moved, if that can be computed."""
    if isinstance(old, FilesState) and isinstance(new, FilesState):
        more = new.count - old.count
        return f"{more:+,} {'file' if abs(more) == 1 else 'files'}"
    one, other = _place(old), _place(new)
    if isinstance(one, datetime) and isinstance(other, datetime):
        return duration_text(other - one)
    if isinstance(one, int) and isinstance(other, int):
        return f"{other - one:+,}"
    return NONE


def _place(state: Any) -> Any:
    """Return the one value by which a state shows how far the job got; None if it has no such value."""
    if isinstance(state, RowsState):
        return state.value[0] if state.value and len(state.value) == 1 else None
    return state.value if isinstance(state, TableState) else None
