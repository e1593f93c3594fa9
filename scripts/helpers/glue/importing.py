"""`import_bookmark`: start from a bookmark that a job has in AWS Glue, and say what cannot be taken over exactly."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import BookmarkImportError, CursorError
from scripts.helpers.glue.glue_states import BandState, KeyState, State, read_bookmark
from scripts.helpers.glue.import_files import FilesAt, files_context
from scripts.helpers.glue.import_report import (
    APPROXIMATE,
    EXACT,
    NOT_POSSIBLE,
    ImportedContext,
    ImportReport,
    TakenContext,
)
from scripts.helpers.protocol.names import new_run_id, new_token
from scripts.helpers.rows.coverage import passed_range, with_coverage
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.watermarks import Watermarks

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

logger = logging.getLogger(__name__)

__all__ = ["FilesAt", "RowsBy", "import_bookmark"]


@dataclass(frozen=True)
class RowsBy:
    """A context that reads a database: its key columns with Spark's types, which Glue's bookmark does not say.

    Attributes
    ----------
    columns
        Such as ``{"id": "bigint"}``, in the order of ``jobBookmarkKeys``.
    descending
        Keys fall (``jobBookmarkKeysSortOrder`` is desc).
    last
        The last values read, one for each column: texts as the database writes them, or numbers. Without
        them they are guessed from names in the bookmark, and the context is approximate.
    """

    columns: Mapping[str, str]
    descending: bool = False
    last: tuple[Any, ...] | None = None


def import_bookmark(
    glue_client: Any,
    watermarks: Watermarks,
    job_name: str,
    sources: Mapping[str, FilesAt | RowsBy],
    *,
    run_id: str | None = None,
    job_id: str | None = None,
    leave_out: Collection[str] = (),
    s3_client: S3Client | None = None,
    dry_run: bool = True,
    why: str | None = None,
    who: str | None = None,
) -> ImportReport:
    """Read a job's bookmark in AWS Glue, and make it the first version of the job here.

    Nothing is changed in Glue. All contexts are written in one write, as an IMPORT of Glue's run.

    Parameters
    ----------
    glue_client
        A boto3 client for Glue; its errors come through as they are.
    sources
        What each context reads, by ``transformation_ctx``.
    run_id
        The bookmark that this run of Glue left; by default the present one.
    job_id
        The name of the job here; by default the same.
    leave_out
        Contexts to go without: the job starts them as on a first run.
    s3_client
        To list the files; by default one from boto3's default session.
    dry_run
        List and report only. This is the default.
    why, who
        Kept in the history.

    Returns
    -------
    ImportReport
        For each context whether it is taken over exactly, and which files would be read again.

    Raises
    ------
    BookmarkImportError
        The bookmark cannot be read, or is empty; `sources` names a context that it does not have. When
        writing also: a context that cannot be taken over and is not in `leave_out`. Nothing is written.
    PlanConflictError
        The job has watermarks here already.
    SourceError
        The files cannot be listed.

    Examples
    --------
    >>> import_bookmark(glue, watermarks, "repairs on glue", {"repairs": RowsBy({"id": "bigint"}, last=("5",))})
    Bookmark of job 'repairs on glue' after run 'jr_7', not written:
      repairs: exact. rows past the last id that Glue read
    """
    request = {"JobName": job_name} | ({} if run_id is None else {"RunId": run_id})
    entry = glue_client.get_job_bookmark(**request)["JobBookmarkEntry"]
    found = read_bookmark(entry.get("JobBookmark"), job_name)
    if not found:
        raise BookmarkImportError(job_name, None, "it is empty, so the job starts here as on a first run.")
    for name in sorted({*sources, *leave_out} - set(found)):
        raise BookmarkImportError(job_name, name, f"it has no such context. It has: {', '.join(sorted(found))}.")
    imported_run = entry.get("RunId") or new_run_id()
    taken = {
        name: _taken(name, state, sources.get(name), imported_run, s3_client)
        for name, state in found.items()
        if name not in leave_out
    }
    contexts = tuple(each.told for each in taken.values())
    if dry_run:
        return ImportReport(job_name, imported_run, contexts, tuple(leave_out))
    for context in contexts:
        if context.outcome == NOT_POSSIBLE:
            raise BookmarkImportError(
                job_name, context.name, f"{context.detail}. Mend that, or name it in leave_out to go without it."
            )
    head = watermarks.set_watermark(
        job_id or job_name,
        {name: state for each in taken.values() for name, state in each.states().items()},
        why=why or f"bookmark of job {job_name} in AWS Glue, version {entry.get('Version')}",
        who=who,
        imported_run=imported_run,
    )
    logger.info(
        "event=imported job=%s version=%d glue_run=%s contexts=%s", head.job_id, head.version, imported_run,
        ",".join(taken),
    )  # fmt: skip
    return ImportReport(job_name, imported_run, contexts, tuple(leave_out), head)


class _Rows(TakenContext):
    def __init__(self, told: ImportedContext, window: RowWindow) -> None:
        super().__init__(told)
        self._window = window

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the state to store: Glue has read everything up to it."""
        state = self._window.state_after
        return {self.told.name: with_coverage(state, None, [passed_range(state)], new_token())}


def _taken(
    name: str, state: State, source: FilesAt | RowsBy | None, run_id: str, s3_client: S3Client | None
) -> TakenContext:
    """Find out how a context can be taken over."""
    if isinstance(state, BandState) and isinstance(source, FilesAt):
        return files_context(name, state, source, run_id, s3_client)
    if isinstance(source, RowsBy) and isinstance(state, KeyState):
        return _rows(name, source, state)
    if isinstance(state, str):
        if isinstance(source, RowsBy) and source.last is not None:
            return _rows(name, source)
        return _impossible(name, state)
    kind, wanted = ("files", "FilesAt") if isinstance(state, BandState) else ("rows", "RowsBy")
    return _impossible(name, f"it reads {kind}, and sources has no {wanted} for it", kind)


def _impossible(name: str, detail: str, kind: str | None = None) -> TakenContext:
    return TakenContext(ImportedContext(name, kind, NOT_POSSIBLE, detail))


def _rows(name: str, source: RowsBy, state: KeyState | None = None) -> TakenContext:
    names = list(source.columns)
    values, descending = source.last, source.descending
    outcome, where = EXACT, "that Glue read"
    if values is None and state is not None:
        found = state.values(names)
        if len(found) != 1:
            return _impossible(name, f"it shows {len(found)} values of {', '.join(names)}; give RowsBy last=", "rows")
        ((values, path),) = found.items()
        outcome, where = APPROXIMATE, f"found at {path}; check it, and give RowsBy last="
        if state.descends not in (None, descending):
            return _impossible(name, "its keys run in the other order; give RowsBy descending=", "rows")
    assert values is not None
    if not names or len(values) != len(names):
        return _impossible(name, f"it has {len(names)} columns and {len(values)} values", "rows")
    try:
        columns = tuple(CursorColumn(column, kind) for column, kind in source.columns.items())
        read = [column.from_text(str(value)) for column, value in zip(columns, values, strict=True)]
        last = columns[-1]
        if descending and last.tick is None:
            return _impossible(name, "texts that fall have no value just below them", "rows")
        after = last.shifted(read[-1], last.tick, -1) if descending else last.next_above(read[-1])
    except (CursorError, OverflowError):
        kinds = ", ".join(source.columns.values())
        return _impossible(name, f"its values of {', '.join(names)} are none of {kinds}", "rows")
    window = RowWindow(columns, (*read[:-1], after), None, descending=descending)
    told = ImportedContext(name, "rows", outcome, f"rows past the last {' and '.join(names)} {where}")
    return _Rows(told, window)
