"""The lines of an export file: a first one that says what it is, the items, a last one that proves them whole. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from scripts.helpers.errors import DAMAGE, CorruptItemError, ExportFileError, NewerFormatError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.attributes import from_json, to_json
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.head import Head

KIND, FORMAT = "glue-watermarks-export", 1
"""What the first line of a file says. A later format is refused."""
MAX_LINE_BYTES = 2 * 1024 * 1024
"""An item has at most 400 KB; base64 and escapes make more of it."""


@dataclass
class Exported:
    """What a file holds, once all of it was checked: each job's heads, and the hash of each item by its range key."""

    table: str
    jobs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Items in all."""
        return sum(map(len, self.jobs.values()))


def first_line(table: str, at: str, jobs: int, count: int) -> bytes:
    """Write the first line: format, where from, when, how much."""
    return _line({"kind": KIND, "format": FORMAT, "table": table, "exportedAt": at, "jobs": jobs, "items": count})


def item_line(item: items.Item) -> bytes:
    """Write one item as DynamoDB's own JSON, binary in base64, names in order: the same item is the same line."""
    return _line({name: to_json(value) for name, value in item.items()})


def last_line(sha256: str) -> bytes:
    """Write the last line: the hash of all bytes before it."""
    return _line({"sha256": sha256})


def digest(line: bytes) -> bytes:
    """Return what tells two lines apart."""
    return hashlib.sha256(line).digest()


def item_of(line: bytes) -> items.Item | None:
    """Read the item of a line; None for the first and the last."""
    content = json.loads(line)
    if items.HASH_KEY not in content:
        return None
    return {name: from_json(value) for name, value in content.items()}


def read_item(item: items.Item) -> Head | None:
    """Read an item as an import will; return the head where it is one.

    Raises
    ------
    CorruptItemError, NewerFormatError
        They name the job and the item.
    """
    range_key = item[items.RANGE_KEY]["S"]
    if range_key == items.HEAD_KEY:
        return items.head_from_item(item)
    if range_key.startswith(items.LOG_PREFIX):
        items.log_from_item(item)
    elif "data" not in item and "watermarks" in item:
        items.run_from_item(item)
    return None


def chunks_of(head: Head) -> set[str]:
    """Return the range keys of all chunks that a head needs."""
    needed = references(head.watermarks)
    if head.plan:
        needed += references(head.plan.contexts)
        needed += references(head.plan.next)
    keys: set[str] = set()
    for reference in needed:
        keys.update(items.chunk_key(reference.id, index) for index in range(reference.chunks))
    return keys


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of a longer one than any item has, a part that `checked_export` refuses."""
    return iter(lambda: file.readline(MAX_LINE_BYTES + 1), b"")


def checked_export(path: str, lines: Iterable[bytes]) -> Exported:
    """Read a whole file and refuse it for anything that is not as it was written.

    Raises
    ------
    ExportFileError
        It names the line. Nothing may be taken from such a file.
    NewerFormatError
        An item is of a later format than this version knows.
    """
    reading = _Reading(path)
    for number, line in enumerate(lines, 1):
        reading.number = number
        try:
            reading.take(line)
        except ExportFileError:
            raise
        except NewerFormatError:
            raise
        except (CorruptItemError, *DAMAGE) as error:
            raise reading.refused(f"it is not what an export writes ({type(error).__name__})") from error
    return reading.whole()


class _Reading:
    def __init__(self, path: str) -> None:
        self.path, self.number = path, 0
        self._hash, self._sha256 = hashlib.sha256(), ""
        self._header: dict[str, Any] = {}
        self._found = Exported("")
        self._needed: dict[str, set[str]] = {}
        self._job = ""

    def refused(self, detail: str) -> ExportFileError:
        return ExportFileError(self.path, self.number, detail)

    def take(self, line: bytes) -> None:
        if self._sha256:
            raise self.refused("it comes after the last one")
        if not line.endswith(b"\n") or len(line) > MAX_LINE_BYTES:
            raise self.refused(f"it is cut off, or longer than any item: the limit is {MAX_LINE_BYTES:,} bytes")
        content = json.loads(line)
        if self.number == 1:
            self._begin(content)
        elif set(content) == {"sha256"}:
            self._sha256 = content["sha256"]
            if self._sha256 != self._hash.hexdigest():
                raise self.refused("the hash of the file is another one, so it was changed after the export")
        else:
            self._item({name: from_json(value) for name, value in content.items()}, line)
        # After the comparison above: the hash in the last line is that of the lines before it.
        self._hash.update(line)

    def _begin(self, content: Any) -> None:
        if not isinstance(content, Mapping) or content.get("kind") != KIND:
            raise self.refused("this is not an export of glue-watermarks")
        if type(content["format"]) is not int or content["format"] > FORMAT:
            raise self.refused(f"its format is {content['format']}, and this version knows {FORMAT}")
        self._header, self._found.table = dict(content), str(content["table"])

    def _item(self, item: items.Item, line: bytes) -> None:
        job_id, range_key = item[items.HASH_KEY]["S"], item[items.RANGE_KEY]["S"]
        # An import writes job by job, each with its head last. Of a job in two places it would write two halves.
        if job_id != self._job and job_id in self._found.jobs:
            raise self.refused("the items of its job are not all in one place")
        self._job = job_id
        known = self._found.jobs.setdefault(job_id, {})
        if range_key in known:
            raise self.refused("its item is in the file already")
        known[range_key] = digest(line)
        head = read_item(item)
        if head is not None:
            self._found.heads[job_id] = head
            self._needed[job_id] = chunks_of(head)

    def whole(self) -> Exported:
        """Return what was read, if nothing is missing."""
        self.number += 1
        if not self._sha256:
            raise self.refused("the last one, with the hash, is missing: the file is cut off")
        found = self._found
        self.number = 1
        if (self._header["jobs"], self._header["items"]) != (len(found.jobs), found.count):
            raise self.refused(
                f"it counts other items than the {found.count:,} of {len(found.jobs):,} jobs in the file"
            )
        for job_id, needed in self._needed.items():
            if missing := needed - found.jobs[job_id].keys():
                raise self.refused(f"job {job_id!r} lacks {len(missing):,} chunks that its head refers to")
        return found


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
