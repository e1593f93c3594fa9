"""Code that executors run for `small_files`: fetch planned objects, many at once, and split them into lines."""

from __future__ import annotations

import bz2
import gzip
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa

from scripts.helpers.errors import (
    AccessRefusedError,
    ArchivedObjectError,
    ChangedObjectError,
    ConfigurationError,
    CredentialsError,
    FileContentError,
    InvalidValueError,
    LedgerError,
    MisfitError,
    SourceError,
    SourceUnavailableError,
    UnreadableObjectError,
    WatermarkError,
)
from scripts.helpers.listing.folders import folder_values
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.paths import packing
from scripts.helpers.listing.s3 import make_client
from scripts.helpers.reading.fetch import WORKERS, ObjectFetcher, Planned, planned_of

_IN_FLIGHT = 64 * 1024 * 1024
"""Bytes that one task fetches ahead of what it has returned. A single object may be larger."""
_BATCH = 2 * 1024 * 1024
"""Bytes of files in one batch for Spark, so that it parses the first batch while later files are fetched."""
_BOM = b"\xef\xbb\xbf"


def _inflated(body: bytes) -> bytes:
    """Decompress all zlib streams in a file, as Hadoop does."""
    found = []
    while body:
        stream = zlib.decompressobj()
        found.append(stream.decompress(body))
        if not stream.eof:
            raise EOFError("a stream is cut off")
        body = stream.unused_data
    return b"".join(found)


DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.decompress,
    "bz2": bz2.decompress,
    "deflate": _inflated,
}
UNKNOWN = ("zst", "snappy", "lz4")
"""Extensions of compressed files that are not decompressed here."""
GZIP = b"\x1f\x8b\x08"
"""The first bytes of a gzip file. Text in UTF-8 cannot begin with them, but text in ISO-8859-1 can."""
NAMED_WRONG = "it is a gz file, and its name does not end in .gz"
_MARK = "glue-watermarks error"
_FACTS: dict[type[WatermarkError], tuple[str, ...]] = {
    AccessRefusedError: ("action", "resource"),
    ArchivedObjectError: ("source", "keys", "count"),
    ChangedObjectError: ("source", "overwritten", "deleted"),
    FileContentError: ("source", "key", "format", "cause"),
    MisfitError: ("source", "column", "type_name", "reason", "detail"),
    SourceUnavailableError: ("source", "cause"),
    UnreadableObjectError: ("source", "key", "cause", "remedy"),
}
"""The attributes from which `unmarked` builds each type of error again."""
_AS_TEXT = (CredentialsError, InvalidValueError, ConfigurationError, WatermarkError)
_KINDS: dict[str, Callable[..., WatermarkError]] = {
    kind.__name__: kind for kind in (*_FACTS, LedgerError, SourceError, *_AS_TEXT)
}
"""Errors that executors may raise. Any other error is sent as its closest base class in this map."""


@dataclass(frozen=True)
class LineRules:
    """How Spark's reader of a format splits a file into records.

    Attributes
    ----------
    whole
        Whether the file is one record.
    separator
        Bytes between lines; by default line feed, carriage return or both.
    blank
        The characters that count as white space. Lines with only these are dropped. None keeps all lines.
    comment
        Prefix of comment lines, which are dropped.
    header
        Whether the first of the remaining lines is a header, which is dropped.
    """

    whole: bool = False
    separator: bytes | None = None
    blank: bytes | None = None
    comment: bytes | None = None
    header: bool = False

    def cut(self, body: bytes) -> list[bytes]:
        """Return the records of one file."""
        lines = self.lines(body)
        return lines[1:] if self.header else lines

    def lines(self, body: bytes) -> list[bytes]:
        """Return the lines of one file, with its header if it has one."""
        if not body:
            return []
        # As in Spark, only whole files of the format text keep their byte order mark. `blank` is None only for text.
        if self.blank is not None or not self.whole:
            body = body.removeprefix(_BOM)
        lines = [body] if self.whole else self._split(body)
        blank, comment = self.blank, self.comment
        if blank is not None:
            lines = [line for line in lines if line.strip(blank)]
        if comment is not None:
            lines = [line for line in lines if not line.startswith(comment)]
        return lines

    def _split(self, body: bytes) -> list[bytes]:
        if self.separator is None:
            return body.splitlines()
        lines = body.split(self.separator)
        if not lines[-1]:  # A separator at the end does not begin another line.
            return lines[:-1]
        return lines


@dataclass(frozen=True)
class Fetching:
    """What one read fetches and how. Executors receive this object by pickle.

    `client_options` are pairs, so that they can be hashed. `folders` is the number of ``name=value`` folders in
    each key, whose values are added as columns. `planned` extracts the objects from the batches that Spark sends to a
    task. `header` is the line that each file with lines must begin with; None skips the comparison.
    """

    location: Location
    rules: LineRules
    folders: int
    skip_changed: bool
    client_options: tuple[tuple[str, Any], ...]
    request_payer: bool
    planned: Callable[[pa.RecordBatch], Iterable[Planned]]
    header: bytes | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fetch the objects that `planned` finds in batches; yield record, path and folder values, for `mapInArrow`."""
        received = read_whole_input(batches)
        try:
            yield from self._records(chain.from_iterable(map(self.planned, received)))
        except WatermarkError as error:
            raise RuntimeError(marked(error)) from error

    def _records(self, planned: Iterator[Planned]) -> Iterator[pa.RecordBatch]:
        fetcher = _fetcher(self.location, self.client_options, self.request_payer)
        records: list[bytes] = []
        counts: list[tuple[str, int]] = []
        size = 0
        for one, body in self._bodies(fetcher, planned):
            found = self._cut(one.key, decompressed(self.location, one.key, body))
            records += found
            counts.append((one.key, len(found)))
            size += len(body)
            if size >= _BATCH:
                yield self._batch(records, counts)
                records, counts, size = [], [], 0
        if records:
            yield self._batch(records, counts)

    def _cut(self, key: str, body: bytes) -> list[bytes]:
        if self.header is None:
            return self.rules.cut(body)
        lines = self.rules.lines(body)
        if lines and lines[0] != self.header:
            raise SourceError(
                str(self.location),
                f"key {key!r} has another header than the first file, by which columns are found. Read with "
                "to_driver().read_small, which finds them in each file, or pass enforceSchema=True to go by position.",
            )
        return lines[1:]

    def _bodies(self, fetcher: ObjectFetcher, planned: Iterator[Planned]) -> Iterator[tuple[Planned, bytes]]:
        """Yield the bytes of objects in order, fetching several at once within bounded memory."""

        def fetch(one: Planned) -> bytes | None:
            try:
                return fetcher.fetch(one)
            except ChangedObjectError:
                if self.skip_changed:
                    return None
                raise

        waiting: deque[tuple[Planned, Future[bytes | None]]] = deque()
        flying = 0
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                for one in planned:
                    # Wait until fewer bytes are in flight. An object that is fetched alone may have any size. Limit the
                    # number of futures as well, because empty files add no bytes.
                    while waiting and (len(waiting) >= 8 * WORKERS or flying + one.size > _IN_FLIGHT):
                        first, future = waiting.popleft()
                        flying -= first.size
                        if (body := future.result()) is not None:
                            yield first, body
                    waiting.append((one, pool.submit(fetch, one)))
                    flying += one.size
                while waiting:
                    first, future = waiting.popleft()
                    if (body := future.result()) is not None:
                        yield first, body
            finally:
                # After an error, or when Spark needs no more rows, cancel the requests that have not started.
                pool.shutdown(wait=False, cancel_futures=True)

    def _batch(self, records: list[bytes], counts: list[tuple[str, int]]) -> pa.RecordBatch:
        places: list[int] = []
        for index, (_, count) in enumerate(counts):
            places += [index] * count
        rows = pa.array(places, pa.int32())
        paths = pa.array([self.location.uri(key) for key, _ in counts], pa.string())
        columns = [pa.array(records, pa.binary()), paths.take(rows)]
        names = ["record", "path"]
        if self.folders:
            values = [folder_values(key)[-self.folders :] for key, _ in counts]
            for index in range(self.folders):
                columns.append(pa.array([value[index][1] for value in values], pa.string()).take(rows))
                names.append(f"folder_{index}")
        return pa.RecordBatch.from_arrays(columns, names)


def read_whole_input(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Read all input that Spark sends to a task, before any of it is processed.

    A Python worker that raises an error closes its socket. If Spark's JVM is still writing to it, Spark reports
    "Broken pipe" or "Socket is closed" in place of that error (PythonRunner.ReaderIterator.handleException), and
    users do not get the typed error. The input of a task is one part of a plan, so it is small.
    """
    return list(batches)


def pack(table: pa.Table) -> bytes:
    """Return planned objects as one Arrow stream, to send them to an executor."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def unpacked(batch: pa.RecordBatch) -> Iterator[Planned]:
    """Yield the planned objects of the plans that `pack` wrote."""
    for packed in batch.column(0).to_pylist():
        yield from planned_of(pa.ipc.open_stream(packed).read_all())


@lru_cache(maxsize=4)
def _fetcher(location: Location, client_options: tuple[tuple[str, Any], ...], request_payer: bool) -> ObjectFetcher:
    """Return a fetcher, cached in the worker: creating a boto3 client takes longer than fetching a hundred objects."""
    client = None if location.is_local else make_client(WORKERS, **dict(client_options))
    return ObjectFetcher(location, client, request_payer)


def decompressed(location: Location, key: str, body: bytes) -> bytes:
    """Return the bytes decompressed according to the key's extension, as Hadoop does."""
    ending = packing(key)
    if ending in UNKNOWN:
        raise SourceError(str(location), f"key {key!r} is compressed ({ending}). Read it with Spark's own reader.")
    try:
        return DECOMPRESS.get(ending, unpacked_text)(body) if body else body
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FileContentError(str(location), key, ending or "text", str(error)) from error


def unpacked_text(body: bytes) -> bytes:
    """Return the bytes of a file without a compression extension, unchanged; raise BadGzipFile if they are gzip."""
    if body.startswith(GZIP):
        raise gzip.BadGzipFile(NAMED_WRONG)
    return body


def marked(error: WatermarkError) -> str:
    """Return an error as text that `unmarked` can find inside the text of a Spark error."""
    kinds = (kind.__name__ for kind in type(error).__mro__)
    facts: dict[str, Any] = {"kind": next(name for name in kinds if name in _KINDS)}
    if type(error) in _FACTS:
        facts |= {name: getattr(error, name) for name in _FACTS[type(error)]}
    elif isinstance(error, SourceError):
        detail = str(error).removeprefix(f"Source {error.source!r}: ")
        # Send the attributes if the error has a reason: the text of such an error is built from them.
        facts |= vars(error) if error.reason else {"source": error.source, "detail": detail}
    else:
        facts |= {"text": str(error), "reason": error.reason}
    return f"{error}\n[{_MARK} {json.dumps(facts)}]"


def unmarked(raised: BaseException | str) -> WatermarkError | None:
    """Return the error that `marked` wrote, found anywhere in an error or its text; None if there is none.

    An AnalysisException is ignored: it shows the plan, including the errors for rows that were never read.
    """
    if any(kind.__name__ == "AnalysisException" for kind in type(raised).__mro__):
        return None
    found = re.search(rf"\[{_MARK} (\{{.*\}})\]", str(raised))
    if found is None:
        return None
    facts = json.loads(found[1])
    kind = _KINDS.get(facts.pop("kind"), SourceError)
    if "text" not in facts:
        return kind(**facts)
    error = kind(facts["text"])
    error.reason = facts["reason"]
    return error
