"""Large entries of a plan or state, cut into immutable chunks outside the head. Pure.

An entry that is too large for the head is replaced by a `Spilled` reference, and so is a `Blob` (bytes), however deep.
Chunks are written before the head refers to them, and their count, length and hash are checked when they are
read back.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import DAMAGE, TooLargeError
from scripts.helpers.protocol.attributes import from_json, to_json
from scripts.helpers.protocol.packed_json import inflated, plain_json
from scripts.helpers.protocol.values import (
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_RAW_BYTES,
    ImplausibleError,
    Spilled,
    decode,
    encode,
    size_of,
)

if TYPE_CHECKING:
    from scripts.helpers.protocol.head import Plan

CHUNK_BYTES = 350_000
"""Below DynamoDB's limit of 400 KB for an item, as some servers count their own overhead too."""

MAX_SPILL_BYTES = 64 * 1024 * 1024
"""Size of one value, compressed: at the pace of one partition (see `store`) it takes more than a minute to write."""
WORTH_BYTES = 1_000
"""A smaller entry is not moved into chunks: its reference would not be smaller."""
MAX_MARKS = 16 * MAX_ENTRIES
"""Commas and opening brackets of a value in chunks, outside texts: an entry with its type has about ten."""
INLINE_BYTES = 2_000
"""A blob of at most this many bytes is stored in place, without a reference."""


class Blob:
    """Immutable bytes that are stored once; every plan and watermark with these bytes refers to them.

    Parameters
    ----------
    data
        The bytes; None to read them back when they are needed.
    reference, job_id, load
        For stored bytes: the reference to their chunks, the job that has them, and the function that reads them.
    """

    def __init__(
        self,
        data: bytes | None = None,
        reference: Spilled | None = None,
        job_id: str | None = None,
        load: Callable[[], bytes] | None = None,
    ) -> None:
        self._data, self.reference, self.job_id, self._load = data, reference, job_id, load

    def __repr__(self) -> str:
        return f"<Blob {self.reference.id if self.reference else 'not stored yet'}>"

    @property
    def data(self) -> bytes:
        """The bytes, read at most once."""
        if self._data is None:
            assert self._load is not None
            self._data = self._load()
        return self._data


def take_blobs(values: Any, job_id: str, token: str, chunks: dict[str, list[bytes]], kept: Collection[str] = ()) -> Any:
    """Return nested values with references in place of blobs; blobs that are not stored yet are added to `chunks`.

    `kept` has the ids of the chunks that do not expire before these values. A blob with other chunks, such as those of
    another job or of an old version, is stored again.
    """

    def stored(blob: Blob) -> Spilled | bytes:
        if blob.reference is None or blob.job_id != job_id or blob.reference.id not in {*kept, *chunks}:
            if len(blob.data) <= INLINE_BYTES:
                return blob.data
            blob.reference, parts = cut(blob.data, f"s#{token}-b{len(chunks)}", "watermark")
            blob.job_id = job_id
            chunks[blob.reference.id] = parts
        return blob.reference

    return _mapped(values, Blob, stored)


def lazy_blobs(values: Any, job_id: str, read: Callable[[Spilled], Any]) -> Any:
    """Return nested values with each reference replaced by a `Blob`, which reads the bytes when they are needed."""
    return _mapped(values, Spilled, lambda reference: Blob(None, reference, job_id, lambda: read(reference)))


def replaced(values: Any, change: Callable[[Spilled], Spilled]) -> Any:
    """Return nested values with each reference replaced by what `change` returns."""
    return _mapped(values, Spilled, change)


def _mapped(values: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(values, kind):
        return change(values)
    if isinstance(values, Mapping):
        return {name: _mapped(value, kind, change) for name, value in values.items()}
    if isinstance(values, list):
        return [_mapped(value, kind, change) for value in values]
    return values


def spill_large(
    entries: Mapping[str, Any], kind: str, token: str, what: str, known: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, list[bytes]]]:
    """Replace the largest entries of a map by references until the rest fits into the head.

    Parameters
    ----------
    kind, token
        Parts of the chunks' ids, which make them unique: ``kind`` is ``p`` for plans, ``s`` for states.
    known
        The map that is already stored: an entry that has not changed keeps its reference.

    Returns
    -------
    tuple
        The map with references, and the chunks by the id of their reference.

    Raises
    ------
    TooLargeError
        An entry is too large for chunks, or the map is too large even with every large entry in chunks.
    """
    # Add 6 bytes per entry, to agree with `sizes`, where each entry has two maps of its own, of 3 extra bytes each.
    if _size(entries, what) + 6 * len(entries) <= MAX_BYTES:
        return dict(entries), {}
    sizes = {name: _size({name: value}, what) for name, value in entries.items()}
    kept, total, chunks = dict(entries), sum(sizes.values()), {}
    for index, name in enumerate(sorted(sizes, key=sizes.__getitem__, reverse=True)):
        if total <= MAX_BYTES:
            break
        # Do not move a reference into a chunk: cleanup searches no chunks, so it would delete what is referred to.
        if sizes[name] < WORTH_BYTES or references({name: kept[name]}):
            continue
        reference, parts = cut(kept[name], f"{kind}#{token}-{index}", f"{what} {name!r}")
        earlier = known.get(name) if known else None
        # Compare references without their ids: if count, length and hash are equal, the same bytes are stored already.
        if isinstance(earlier, Spilled) and earlier[1:] == reference[1:]:
            kept[name] = earlier
        else:
            kept[name], chunks[reference.id] = reference, parts
        total += _size({name: kept[name]}, what) - sizes[name]
    # Refuse a map that is still too large, before any of its chunks are written.
    encode(kept, what=what)
    return kept, chunks


def _size(values: Mapping[str, Any], what: str) -> int:
    attribute, types = encode(values, what=what, limit=MAX_SPILL_BYTES)
    return size_of(attribute) + size_of(types)


def cut(value: Any, id: str, what: str) -> tuple[Spilled, list[bytes]]:
    """Cut one value into chunks; TooLargeError above 64 MB compressed, or 256 MB as JSON."""
    attribute, types = encode({"value": value}, what=what, limit=MAX_SPILL_BYTES)
    raw = json.dumps([to_json(attribute), types], separators=(",", ":")).encode("utf-8")
    packed = zlib.compress(raw, 6)
    for size, limit in ((len(packed), MAX_SPILL_BYTES), (len(raw), MAX_RAW_BYTES)):
        if size > limit:
            raise TooLargeError(what, size, limit, "Part the source into several contexts, or take less in one batch.")
    parts = [packed[start : start + CHUNK_BYTES] for start in range(0, len(packed), CHUNK_BYTES)]
    return Spilled(id, len(parts), len(raw), hashlib.sha256(raw).hexdigest()), parts


def join(reference: Spilled, parts: Sequence[bytes]) -> Any:
    """Return the value that was cut into chunks; raise ValueError if anything is missing or altered."""
    if len(parts) != reference.chunks:
        raise ValueError(f"{len(parts)} of {reference.chunks} chunks")
    if (size := sum(map(len, parts))) > MAX_SPILL_BYTES:
        raise ValueError(f"{size:,} bytes, and the limit is {MAX_SPILL_BYTES:,}")
    # Decompress at most one byte more than was written, which is enough to detect an altered stream. Without a limit, a
    # few kilobytes could decompress until they fill the memory.
    raw = inflated(b"".join(parts), reference.length + 1)
    if len(raw) != reference.length or hashlib.sha256(raw).hexdigest() != reference.sha256:
        raise ValueError("length or checksum differ")
    try:
        # Check the content too: anyone who can write to the table can change a chunk, and the hash in the head with it.
        attribute, types = plain_json(raw, MAX_MARKS)
        return decode(from_json(attribute), types)["value"]
    except ImplausibleError:
        raise
    except DAMAGE as error:
        raise ValueError("not what was written") from error


def unused(plan: Plan, *kept: Any) -> set[Spilled]:
    """Return a plan's references to chunks that no `kept` value refers to, so these can be deleted."""
    return {*references(plan.contexts), *references(plan.next)} - {*references([*kept])}


def references(values: Any) -> list[Spilled]:
    """Return the references, at any depth in `values`, to parts that are stored in chunks."""
    found: list[Spilled] = []
    _mapped(values, Spilled, found.append)
    return found
