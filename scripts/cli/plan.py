"""`watermarks plan`: show what the next run would take, without beginning it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import Duration, command, context_option, job_argument, read_job, with_options
from scripts.cli.contexts import file_bookmark, file_options
from scripts.cli.deciding import confirm_place
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, bound_text, commit_text, planned_text, show_rows
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import count_of, printable, size_text
from scripts.helpers.errors import InvalidValueError, NothingThereError
from scripts.helpers.files.states import FilesPlan, FilesState, PartitionState
from scripts.helpers.metrics.urgency import activity
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import PLANS
from scripts.helpers.rows.states import RowsState, column_values
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.states import typed
from scripts.helpers.tables.spans import TableSpan, TableState

LISTED = 10
"""How many keys of a batch are shown: it can have millions, and a few are enough to show where the files are."""

BATCH_OPTIONS = [
    click.option("--source", metavar="URI", help="The source of files to list."),
    click.option("--max-files", type=click.IntRange(1), metavar="N", help="The same value as in the job."),
    click.option("--max-bytes", type=click.IntRange(1), metavar="N", help="The same value as in the job."),
    click.option("--delay", type=Duration(), metavar="TIME", help="The same value as in the job (0)."),
    click.option("--ready-marker", metavar="NAME", help="The same value as in the job."),
    click.option("--layout", metavar="FOLDERS", help="The same value as in the job, such as day=%Y-%m-%d/."),
    click.option("--allowed-lateness", type=Duration(), metavar="TIME", help="The same value as in the job (1d)."),
]
"""The source of files, and options with which a job limits its batches: those are in its code, not in its state."""


@command("plan")
@job_argument
@context_option
@file_options
@with_options(BATCH_OPTIONS)
def plan(around: Surroundings, job: str, context: str | None, source: str | None, **options: Any) -> None:
    """Show what the next run would take. Changes nothing.

    If a plan is open, the next run takes exactly that plan. Otherwise the command lists sources of files: without
    --source, it asks before it lists a source that the job's state names. For sources of rows and of table versions,
    it shows where the next run starts to read.
    """
    head = read_job(around, job)
    # If the open plan is the first to read a context, the plan has this context, but the watermarks do not have it yet.
    known = {*head.watermarks, *(head.plan.contexts if head.plan else ())}
    if context is not None and context not in known:
        raise NothingThereError(reason="unknown_context", job_id=job, context=context, known=sorted(head.watermarks))
    parts: dict[str, dict[str, Any]] = {}
    if head.plan is not None:
        for name, part in sorted(head.plan.contexts.items()):
            if context in (None, name):
                parts[name] = _frozen(part)
    else:
        # Omit options that were not given, so that `FileBookmark` uses its own defaults, as in the job.
        given = {name: value for name, value in options.items() if value}
        parts = _ahead(around, job, head, context, given, source)
    _show(around, head, parts)


def _frozen(part: Any) -> dict[str, Any]:
    """Return what a frozen plan takes from one context."""
    found, text = typed(part, PLANS), planned_text(part)
    if isinstance(found, FilesPlan):
        return {"kind": "files", "files": found.count, "bytes": found.bytes, "text": text}
    if isinstance(found, RowWindow):
        return {"kind": "rows", **{name: part.get(name) for name in ("cursor_column", "low", "high")}, "text": text}
    if isinstance(found, TableSpan):
        facts = {name: getattr(found, name) for name in ("format", "after", "until", "whole", "changes")}
        return {"kind": "table", **facts, "text": text}
    return {"kind": "other", "text": text}


def _ahead(
    around: Surroundings, job: str, head: Head, context: str | None, given: dict[str, Any], source: str | None
) -> dict[str, dict[str, Any]]:
    """Return what the next run would take from all contexts or from `context`. For files, this lists the source."""
    with progress(around, f"reading {printable(job)}"):
        watermarks = {name: typed(around.watermarks.lookups.state_at(head, name)) for name in head.watermarks}
    chosen = {name: state for name, state in sorted(watermarks.items()) if context in (None, name)}
    files = [name for name, state in chosen.items() if isinstance(state, FilesState)]
    if source is not None and len(files) != 1:
        raise InvalidValueError(f"--source is for one context of files. The job has: {', '.join(files) or 'none'}. "
                                "Choose with --context.")  # fmt: skip
    parts: dict[str, dict[str, Any]] = {}
    for name, state in chosen.items():
        if isinstance(state, FilesState):
            parts[name] = _files(around, name, state, given, source)
        elif isinstance(state, RowsState):
            low = column_values(state.columns, state.value, placed=True)
            start = bound_text(low, "the beginning")
            text = f"rows of {', '.join(state.names)} from {start} on; the job asks its source"
            cursor = state.names if len(state.names) > 1 else state.names[0]
            parts[name] = {"kind": "rows", "cursor_column": cursor, "low": low, "text": text}
        elif isinstance(state, PartitionState):
            text = f"the largest partition by {', '.join(state.columns)} that {state.source} has then"
            parts[name] = {"kind": "partition", "source": state.source, "text": text}
        elif isinstance(state, TableState):
            after = commit_text(state.format, state.value, "the beginning")
            text = f"what was committed after {after}; the job asks its table"
            parts[name] = {"kind": "table", "format": state.format, "after": state.value, "text": text}
        else:
            parts[name] = {"kind": "value", "text": "a value of the job's own; what it means is in its code"}
    return parts


def _files(
    around: Surroundings, name: str, state: FilesState, given: dict[str, Any], source: str | None
) -> dict[str, Any]:
    """List the source, once the operator has named or confirmed it, and return what is new. Record nothing as taken."""
    bookmark_of = file_bookmark()
    if source is None:
        confirm_place(around, "source", state.source, f"--context {quote(name)} --source {quote(state.source)}")
    # `FileBookmark` itself raises an error if the state belongs to a source other than the named one.
    bookmark = bookmark_of(
        source or state.source, state=state.to_store(), transformation_ctx=name, saves=False, **given
    )
    with progress(around, f"listing {printable(state.source)}"):
        delta = bookmark.new_files()
    text = f"{count_of(delta.count, 'file')}, {size_text(delta.bytes)}"
    if delta.gone:
        text += f"; {count_of(delta.gone, 'known file')} {'is' if delta.gone == 1 else 'are'} gone"
    if delta.has_more:
        text += "; more are left for the batch after it"
    first = delta.table.slice(0, LISTED).column("key").to_pylist()
    return {
        "kind": "files", "source": state.source, "files": delta.count, "bytes": delta.bytes, "gone": delta.gone,
        "has_more": delta.has_more, "first": first, "text": text,
    }  # fmt: skip


def _show(around: Surroundings, head: Head, parts: Mapping[str, dict[str, Any]]) -> None:
    now = around.now()
    state, is_replay = activity(head, now), head.plan is not None
    if around.is_json:
        contexts = [{"context": name, **_facts(part)} for name, part in parts.items()]
        emit(
            {"job": head.job_id, "state": state, "replay": is_replay, "version": head.version + 1, "contexts": contexts}
        )
        return
    verb = f"would replay the open plan {printable(head.plan.plan_id)}" if head.plan else "would take"
    what = f"{verb}, as version {head.version + 1:,}"
    around.out.print(Text.assemble("The next run of ", (printable(head.job_id), "bold"), f" {what}:"))
    if head.claim is not None and state == "at work":
        around.out.print(f"Run {printable(head.claim.run_id)} is at work. The next run waits for it.", style="yellow")
    if not parts:
        around.out.print("Everything: the job has no watermarks.")
        return
    rows: list[Sequence[Cell]] = [[name, part["kind"], part["text"]] for name, part in parts.items()]
    show_rows(around.out, ("context", "kind", "takes"), rows)
    for part in parts.values():
        for key in part.get("first", ()):
            around.out.print(f"  {printable(key)}", style="dim")
        if part.get("files", 0) > LISTED and "first" in part:
            around.out.print(f"  … and {part['files'] - LISTED:,} more", style="dim")


def _facts(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the JSON output has of one context: all except `text`, which is for people."""
    return {name: value for name, value in part.items() if name != "text"}
