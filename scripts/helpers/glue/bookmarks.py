"""`JobBookmarks`: Glue's calls for job bookmarks, with Glue's names and shapes, answered from this package's table."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from scripts.helpers.errors import NothingThereError, UnknownJobError, WatermarkError
from scripts.helpers.files.states import FORMAT, FilesState
from scripts.helpers.glue_api import errors
from scripts.helpers.glue_api.errors import (
    EntityNotFoundException,
    GlueApiError,
    InvalidInputException,
    ValidationException,
    named_as_by_glue,
)
from scripts.helpers.glue_api.pages import paginator
from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.lookups import STATES
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.states import TICK, ZONE, RowsState, stored_bound, stored_identity
from scripts.helpers.states import typed
from scripts.helpers.watermarks import Watermarks

MAX_NAME_BYTES, MAX_RESULTS = 255, 200
"""Limits of Glue's own calls: the length of a name, and the entries of a page."""
ALL_RETURNED = 1
"""Value of NextToken when all entries have been returned."""

Json = dict[str, Any]


class JobBookmarks:
    """The job bookmarks of all jobs of one table, as a boto3 client for Glue returns them.

    Every read is strongly consistent. As in boto3, arguments are keyword-only and answers are dicts.
    Errors are those of Glue's model (`glue_api.errors`), also available as attributes of `exceptions`.

    Parameters
    ----------
    watermarks
        The table that stores the bookmarks.

    Examples
    --------
    >>> run = watermarks.begin("parking", "jr_1")
    >>> run.freeze({}, {"up_to": 42}).contexts
    {}
    >>> run.commit()
    'done'
    >>> bookmarks = JobBookmarks(watermarks)
    >>> bookmarks.get_job_bookmark(JobName="parking")["JobBookmarkEntry"]["JobBookmark"]
    '{"up_to": {"kind": "value", "type": "int", "value": 42}}'
    >>> try:
    ...     bookmarks.get_job_bookmark(JobName="barking")
    ... except bookmarks.exceptions.EntityNotFoundException as error:
    ...     print(error.response["Error"]["Message"])
    Continuation for job barking not found
    """

    exceptions = errors
    """The error classes, as on a boto3 client, so that ``except client.exceptions...`` works unchanged."""

    def __init__(self, watermarks: Watermarks) -> None:
        self._watermarks = watermarks

    def __repr__(self) -> str:
        return f"JobBookmarks({self._watermarks!r})"

    def get_job_bookmark(self, *, JobName: str, RunId: str | None = None, Version: int | None = None) -> Json:
        """Return the current bookmark, the one that a run saved, or one version. Takes 1 read, or up to 4 with `RunId`.

        Parameters
        ----------
        JobName
            1 to 255 bytes.
        RunId
            A run that committed; the entry of its last version is returned.
        Version
            A version number from 1; with `RunId`, a version that this run made. boto3 no longer has this parameter.

        Returns
        -------
        dict
            ``{"JobBookmarkEntry": {...}}`` with ``JobName``, ``Version`` (+1 at every change), ``Run`` (+1
            at every success), ``Attempt`` (how many runs failed before this one), ``PreviousRunId`` and
            ``RunId`` if there are such runs, and ``JobBookmark``, JSON text with one object per context.

        Raises
        ------
        EntityNotFoundException
            The job, the run or the version has no bookmark, or its entry has expired.
        ValidationException, InternalServiceException, OperationTimeoutException
            In this order: an argument is invalid; the table cannot be used; the table does not answer in time.
        """
        operation = "GetJobBookmark"
        _check_names(operation, ValidationException, JobName=JobName, RunId=RunId)
        if Version is not None and (type(Version) is not int or Version < 1):
            raise ValidationException(f"Version is {Version!r}; it must be a whole number from 1.", operation)
        with _glue_errors(operation, JobName, RunId):
            if Version is not None:
                return {"JobBookmarkEntry": self._entry(self._entry_of_version(JobName, Version, RunId))}
            if RunId is None:
                return {"JobBookmarkEntry": self._current_entry(JobName)}
            return {"JobBookmarkEntry": self._entry(self._entry_of_run(JobName, RunId), RunId)}

    def get_job_bookmarks(self, *, JobName: str, MaxResults: int = MAX_RESULTS, NextToken: int | None = None) -> Json:
        """Return the entries of a job page by page, newest version first. boto3 no longer has this call.

        Parameters
        ----------
        MaxResults
            The most entries of a page, 1 to 200.
        NextToken
            The NextToken of the previous page.

        Returns
        -------
        dict
            ``JobBookmarkEntries``, and ``NextToken``: 1 on the last page, a higher number on every other page.
            Versions that are made between two calls do not appear on later pages.

        Raises
        ------
        EntityNotFoundException, InvalidInputException, InternalServiceException, OperationTimeoutException
        """
        operation = "GetJobBookmarks"
        _check_names(operation, InvalidInputException, JobName=JobName)
        if type(MaxResults) is not int or not 1 <= MaxResults <= MAX_RESULTS:
            raise InvalidInputException(f"MaxResults is {MaxResults!r}; it must be 1 to {MAX_RESULTS}.", operation)
        if NextToken is not None and (type(NextToken) is not int or NextToken < ALL_RETURNED):
            raise InvalidInputException(f"NextToken is {NextToken!r}; give that of the page before.", operation)
        with _glue_errors(operation, JobName, None):
            head = self._watermarks.latest(JobName)
            found = list(self._watermarks.lookups.versions(head, MaxResults + 1, NextToken))
            if not found and NextToken is None:
                raise UnknownJobError(JobName, self._watermarks.table_name)
            shown = found[:MaxResults]
            token = shown[-1].version if len(found) > len(shown) else ALL_RETURNED
            return {"JobBookmarkEntries": [self._entry(entry) for entry in shown], "NextToken": token}

    def get_paginator(self, operation_name: str) -> Any:
        """Return a paginator for ``get_job_bookmarks``, like botocore's for other calls."""
        return paginator(operation_name, {"get_job_bookmarks": ("JobBookmarkEntries", self._page)})

    def reset_job_bookmark(self, *, JobName: str, RunId: str | None = None) -> Json:
        """Reset the bookmark to nothing, or to what a run saved; the next run reads all later data again.

        As in Glue, no target is changed, and with `RunId` the next run reads what came after that run (AWS Glue,
        "Tracking processed data using job bookmarks"). Unlike in Glue, a run that is at work is fenced, so it
        cannot commit, and the history keeps the earlier versions.

        Parameters
        ----------
        RunId
            A run that committed; without it the next run reads everything, as on the job's first run.

        Returns
        -------
        dict
            ``{"JobBookmarkEntry": {...}}``, the entry of the new version.

        Raises
        ------
        EntityNotFoundException, InvalidInputException, InternalServiceException, OperationTimeoutException
        """
        operation = "ResetJobBookmark"
        _check_names(operation, InvalidInputException, JobName=JobName, RunId=RunId)
        with _glue_errors(operation, JobName, RunId):
            if RunId is None:
                after = self._watermarks.reset(JobName, why="ResetJobBookmark")
            else:
                after = self._watermarks.rewind(JobName, to_run=RunId, why="ResetJobBookmark with RunId")
            return {"JobBookmarkEntry": self._entry_of(after)}

    # --- helpers --------------------------------------------------------------------------------

    def _page(self, **request: Any) -> Json:
        """Return a page of entries. On the last page `NextToken` is None, which ends botocore's paginator."""
        page = self.get_job_bookmarks(**request)
        return page if page["NextToken"] != ALL_RETURNED else {**page, "NextToken": None}

    def _current_entry(self, job_id: str) -> Json:
        """Return the current entry. States too large for the head are read from the items that hold them."""
        while True:
            head = self._watermarks.latest(job_id)
            if not any(isinstance(state, Spilled) for state in head.watermarks.values()):
                return self._entry_of(head)
            values = self._watermarks.get_watermark_values(job_id)
            # If a run committed between the two reads, values and head are of different versions: read both again.
            if self._watermarks.latest(job_id).version == head.version:
                return self._entry_of(replace(head, watermarks=values))

    def _entry_of_run(self, job_id: str, run_id: str) -> LogEntry:
        """Return the entry of the last version that a run made."""
        item = self._watermarks.get_watermark(job_id, run_id)
        version = item.get("version")
        found = self._watermarks.history(job_id, limit=1, before=None if version is None else version + 1)
        if not found or found[0].change.run_id != run_id or found[0].version != (version or found[0].version):
            raise NothingThereError(run_id)
        return replace(found[0], watermarks=item["watermarks"])

    def _entry_of_version(self, job_id: str, version: int, run_id: str | None) -> LogEntry:
        """Return the entry of a version. States too large for a log entry are read from the items that hold them."""
        found = self._watermarks.history(job_id, limit=1, before=version + 1)
        if not found or found[0].version != version or run_id not in (None, found[0].change.run_id):
            raise NothingThereError(f"version {version}")
        entry = found[0]
        states = {name: self._watermarks.lookups.stored_at(entry, name) for name in entry.watermarks}
        return replace(entry, watermarks=states)

    def _entry_of(self, head: Head) -> Json:
        """Return the entry of a head; if a run is at work, `Attempt` counts the failed runs before that run."""
        if head.log_entry is None:
            raise NothingThereError(head.job_id)
        entry = self._entry(head.log_entry, items.HEAD_KEY)
        return entry | {"Attempt": head.begun - 1} if head.begun else entry

    def _entry(self, entry: LogEntry, range_key: str = "") -> Json:
        """Return an entry as Glue does. For a damaged state, raise CorruptItemError with the item's key."""
        runs = {"PreviousRunId": entry.change.previous_run_id, "RunId": entry.change.run_id}
        where = range_key or items.log_key(entry.version)
        for name, state in entry.watermarks.items():
            self._watermarks.lookups.checked(entry.job_id, STATES, name, state, where)
        return {
            "JobName": entry.job_id,
            "Version": entry.version,
            "Run": entry.change.runs,
            "Attempt": entry.change.failed,
            **{name: run_id for name, run_id in runs.items() if run_id is not None},
            "JobBookmark": job_bookmark(entry.watermarks),
        }


def _check_names(operation: str, error: Callable[[str, str], GlueApiError], **names: Any) -> None:
    """Raise `error` for a name that Glue would refuse: a name is a str of 1 to 255 bytes."""
    for name, value in names.items():
        if value is None and name != "JobName":
            continue
        if not isinstance(value, str):
            raise error(f"{name} is a {type(value).__name__}; it must be a str.", operation)
        length = len(value.encode("utf-8", "surrogatepass"))
        if not 1 <= length <= MAX_NAME_BYTES:
            raise error(f"{name} has {length} bytes; it must have 1 to {MAX_NAME_BYTES}.", operation)


@contextmanager
def _glue_errors(operation: str, job_name: str, run_id: str | None) -> Iterator[None]:
    """Translate this package's errors into Glue's errors for the same cases."""
    try:
        yield
    except NothingThereError as error:
        of_run = "" if run_id is None else f" and run {run_id}"
        raise EntityNotFoundException(f"Continuation for job {job_name}{of_run} not found", operation) from error
    except WatermarkError as error:
        raise named_as_by_glue(error, operation) from error


# --- the bookmark as JSON ---------------------------------------------------------------------------


def job_bookmark(watermarks: Mapping[str, Any]) -> str:
    """Return all contexts of a job, and values without a context, as one readable JSON object.

    Times are ISO 8601 with zone, dates are ISO 8601, decimals are exact text. A value stored in chunks is
    shown only by its size, and a list of files only by the number of files.

    Examples
    --------
    >>> job_bookmark({"repairs": {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 42}})
    '{"repairs": {"kind": "rows", "column": "id", "type": "bigint", "value": 42}}'
    >>> job_bookmark({"latest_data": date(2023, 3, 16)})
    '{"latest_data": {"kind": "value", "type": "date", "value": "2023-03-16"}}'
    """
    return json.dumps({name: context(state) for name, state in watermarks.items()}, ensure_ascii=False)


def context(state: Any) -> dict[str, Any]:
    """Return the state of one context, or a value that was stored without a context, as an object for JSON."""
    found = typed(state, unpacks=False)
    if isinstance(found, RowsState):
        return _rows(found)
    if isinstance(found, FilesState):
        return _files(found)
    if isinstance(state, Mapping) and isinstance(state.get("kind"), str):
        return {name: _plain(value) for name, value in state.items()}
    if isinstance(state, Spilled):
        return {"kind": "large", "bytes": state.length, "chunks": state.chunks}
    return {"kind": "value", "type": type(state).__name__, "value": _plain(state)}


def _rows(state: RowsState) -> dict[str, Any]:
    identity = stored_identity(state.columns, state.descending, None)
    for name in (TICK, ZONE):
        identity.pop(name, None)
    shown = {"kind": "rows", "column": identity.pop("cursor_column"), **identity}
    start = {} if state.start is None else {"start": _plain(stored_bound(state.start))}
    return {**shown, **start, "value": _plain(stored_bound(state.value))}


def _files(state: FilesState) -> dict[str, Any]:
    shown = {
        "kind": "files", "prefix": state.source, "version": FORMAT, "objects": state.count,
        "segments": len(state.segments),
    }  # fmt: skip
    return shown if state.listed is None else {**shown, "listed": _plain(state.listed)}


def _plain(value: Any) -> Any:
    """Return a stored value in JSON's types: times and dates as ISO 8601, decimals as exact text, bytes as base64."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Blob):
        return {"bytes": value.reference.length} if value.reference else {}
    if isinstance(value, Spilled):
        return {"bytes": value.length}
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, set):
        return [_plain(entry) for entry in sorted(value)]
    return value
