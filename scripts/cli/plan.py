"""`watermarks plan`: what the next run would take, without beginning it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from shlex import quote
from typing import Any

import click
from rich.text import Text

from scripts.cli.commands import Duration, command, context_option, job_argument, read_job, with_options
from scripts.cli.contexts import file_bookmark, file_options
from scripts.cli.deciding import confirm_place
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, bound_text, commit_text, planned_text, show_rows, window_text
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import count_of, printable, size_text
from scripts.helpers.errors import InvalidValueError, UnknownContextError
from scripts.helpers.files.states import FilesPlan, FilesState, PartitionState
from scripts.helpers.metrics.urgency import activity
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import PLANS
from scripts.helpers.rows.options import DEFAULT_DELAY
from scripts.helpers.rows.states import RowsState, column_values
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.states import typed
from scripts.helpers.tables.spans import TableSpan, TableState

LISTED = 10
"""Keys of a plan that are shown: a batch can have millions, and a few tell where they lie."""

BATCH_OPTIONS = [
    click.option("--max-files", type=click.IntRange(1), metavar="N", help="The same value as in the job."),
    click.option("--max-bytes", type=click.IntRange(1), metavar="N", help="The same value as in the job."),
    click.option(
        "--delay", type=Duration(), metavar="TIME", help="The same value as in the job (5m for rows, 0 for files)."
    ),
    click.option("--ready-marker", metavar="NAME", help="The same value as in the job."),
    click.option("--layout", metavar="FOLDERS", help="The same value as in the job, such as day=%Y-%m-%d/."),
]
"""How a job cuts its batches of files: in its code, not in its state."""

SOURCE_OPTIONS = [
    click.option(
        "--source", metavar="URI", help="The source. Rows are counted with Spark (jdbc:… or files), and files listed."
    ),
    click.option(
        "--format", "format_", default="parquet", metavar="NAME", help="Format of the source files (parquet)."
    ),
    click.option("--jdbc-table", metavar="NAME", help="Table or schema.table."),
    click.option(
        "--jdbc-user-from", default="JDBC_USER", metavar="VARIABLE", help="Variable with the user (JDBC_USER)."
    ),
    click.option(
        "--jdbc-password-from",
        default="JDBC_PASSWORD",
        metavar="VARIABLE",
        help="Variable with the password (JDBC_PASSWORD).",
    ),
    click.option("--jdbc-options", default="{}", metavar="JSON", help="Options for Spark's reader."),
    click.option("--zone", metavar="NAME", help="Zone of times that have none (UTC)."),
    click.option(
        "--lookback", type=Duration(), metavar="TIME", help="The same value as in the job, for rows or with --layout."
    ),
    click.option(
        "--spark-conf", default="{}", metavar="JSON", help='Spark settings, such as {"spark.master": "local[2]"}.'
    ),
]


@command("plan")
@job_argument
@context_option
@file_options
@with_options([*BATCH_OPTIONS, *SOURCE_OPTIONS])
def plan(
    around: Surroundings,
    job: str,
    context: str | None,
    include: Sequence[str],
    exclude: Sequence[str],
    min_size: int,
    versioned: bool,
    ledger_uri: str | None,
    max_files: int | None,
    max_bytes: int | None,
    ready_marker: str | None,
    layout: str | None,
    **source: Any,
) -> None:
    """Show what the next run would take. Changes nothing.

    If a plan is open, the next run takes exactly that plan. Otherwise the command lists sources of files: without
    --source, it shows the source and asks first. For sources of rows and of table versions, it shows where the next
    run starts to read. With --source, Spark counts the rows.
    """
    head = read_job(around, job)
    # A context may be in the open plan only: in that of the first run, or of the run that begins with it.
    known = {*head.watermarks, *(head.plan.contexts if head.plan else ())}
    if context is not None and context not in known:
        raise UnknownContextError(job, context, sorted(head.watermarks))
    parts: dict[str, dict[str, Any]] = {}
    if head.plan is not None:
        for name, part in sorted(head.plan.contexts.items()):
            if context in (None, name):
                parts[name] = _frozen(part)
    else:
        # Of files, lookback is of the folders that a layout names; without one it is of rows, see `source`.
        options = {
            "include": include, "exclude": exclude, "min_size": min_size, "versioned": versioned,
            "ledger_uri": ledger_uri, "max_files": max_files, "max_bytes": max_bytes, "delay": source["delay"],
            "ready_marker": ready_marker, "layout": layout, "lookback": source["lookback"] if layout else None,
        }  # fmt: skip
        # What was not given is left out, so that the class takes its own defaults, as in the job.
        given = {name: value for name, value in options.items() if value}
        parts = _ahead(around, job, head, context, given, source)
    _show(around, head, parts)


def _frozen(part: Any) -> dict[str, Any]:
    """Say what a frozen plan takes of one context."""
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
    around: Surroundings, job: str, head: Head, context: str | None, given: dict[str, Any], source: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Look at the sources of all contexts, or of one."""
    with progress(around, f"reading {printable(job)}"):
        watermarks = {name: typed(around.watermarks.lookups.state_at(head, name)) for name in head.watermarks}
    chosen = {name: state for name, state in sorted(watermarks.items()) if context in (None, name)}
    read = [name for name, state in chosen.items() if isinstance(state, (RowsState, FilesState))]
    if source["source"] is not None and len(read) != 1:
        raise InvalidValueError(f"--source is for one context of rows or files. The job has: "
                                f"{', '.join(read) or 'none'}. Choose with --context.")  # fmt: skip
    parts: dict[str, dict[str, Any]] = {}
    for name, state in chosen.items():
        if isinstance(state, FilesState):
            parts[name] = _files(around, name, state, given, source["source"])
        elif isinstance(state, RowsState):
            with progress(around, f"asking the source of {printable(name)}"):
                parts[name] = _rows(around, name, state, source)
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
    """List the source, once somebody has named it, and compare it with what is known; no ledger is written."""
    bookmark_of = file_bookmark()
    if source is None:
        confirm_place(around, "source", state.source, f"--context {quote(name)} --source {quote(state.source)}")
    # The class refuses a state that is of another source than the one that was named.
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


def _rows(around: Surroundings, name: str, state: RowsState, source: dict[str, Any]) -> dict[str, Any]:
    """Say from where rows are read; with a source also up to where, and how many they are."""
    columns, low, high, count = state.names, state.value, None, None
    named = ", ".join(columns)
    if source["source"] is None:
        low = column_values(state.columns, low, placed=True)
        text = f"rows of {named} from {bound_text(low, 'the beginning')} on; ask the source with --source"
    else:
        # With lookback and delay, the run reads from and to other bounds than the state has.
        low, high, count = _asked(around, name, state, source)
        text = f"{count_of(count, 'row')} of {named} {window_text(low, high)}"
    return {
        "kind": "rows", "cursor_column": columns if len(columns) > 1 else columns[0], "low": low, "high": high,
        "rows": count, "text": text,
    }  # fmt: skip


def _asked(around: Surroundings, name: str, state: RowsState, source: dict[str, Any]) -> tuple[Any, Any, int]:
    """Plan a window as a job does and count its rows, through Spark."""
    from scripts.helpers.rows.plan import plan_window
    from scripts.helpers.spark.jvm import quiet
    from scripts.jobs import session
    from scripts.jobs.ingest_table import source_of

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"} | _json(source, "spark_conf")
    spark = session.make_session("watermarks plan", settings)
    quiet(spark)
    asked = argparse.Namespace(
        source=source["source"], format=source["format_"], jdbc_table=source["jdbc_table"], snapshot=False,
        jdbc_user_from=source["jdbc_user_from"], jdbc_password_from=source["jdbc_password_from"],
        jdbc_options=_json(source, "jdbc_options"), partitions=None, zone=source["zone"],
        jdbc_secret=None, jdbc_connection=None, query=None, where="", columns=None,
    )  # fmt: skip
    rows = source_of(spark, asked)
    delay: timedelta | None = source["delay"]
    lookback: timedelta | None = source["lookback"]
    with rows.asking():
        window = plan_window(
            rows, state.names, now=around.now(), state=state.to_store(), context=name, lookback=lookback,
            delay=DEFAULT_DELAY if delay is None else delay, sink="merge", nulls="skip", strings=True,
            descending=state.descending,
        )  # fmt: skip
    count = 0
    if not window.is_empty:
        with rows.typed_errors():
            count = rows.rows(window).count()
    low, high = (column_values(window.columns, end, placed=True) for end in (window.read_low, window.high))
    return low, high, count


def _json(source: Mapping[str, Any], name: str) -> dict[str, str]:
    try:
        found = json.loads(source[name])
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise click.UsageError(f"--{name.replace('_', '-')} is not a JSON object.")
    return {str(key): str(value) for key, value in found.items()}


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
    """Return a part for programs: without the words for people."""
    return {name: value for name, value in part.items() if name != "text"}
