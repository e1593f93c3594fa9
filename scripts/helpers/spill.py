"""Large entries of a plan or state, cut into immutable chunks outside the head. Pure.

An entry that is too large for the head is replaced by a `Spilled` reference. Its chunks are written
before the head refers to them, and are read back only against their stored count, length and hash.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.helpers.errors import TooLargeError
from scripts.helpers.values import MAX_BYTES, Attribute, Spilled, decode, encode, size_of

CHUNK_BYTES = 350_000
"""DynamoDB's limit for an item is 400 KB; some servers count their own overhead too."""

MAX_SPILL_BYTES = 64 * 1024 * 1024
MAX_RAW_BYTES = 256 * 1024 * 1024
"""Most that is decompressed, whatever a reference says."""
MAX_CHUNKS = 1_000
WORTH_BYTES = 1_000
"""A smaller entry stays where it is: its reference would be no smaller."""


def spill_large(
    entries: Mapping[str, Any], kind: str, token: str, what: str, known: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, list[bytes]]]:
    """Replace the largest entries of a map by references until the rest fits into the head.

    Parameters
    ----------
    kind, token
        Make the ids of the chunks unique: ``kind`` is ``p`` for plans, ``s`` for states.
    known
        The map that is stored already: an entry that has not changed keeps its reference there.

    Returns
    -------
    tuple
        The map with references, and the chunks by the id of their reference.

    Raises
    ------
    TooLargeError
        An entry is too large for chunks, or the map is too large though every large entry is in chunks.
    """
    sizes = {name: _size({name: value}, what) for name, value in entries.items()}
    kept, total, chunks = dict(entries), sum(sizes.values()), {}
    for index, name in enumerate(sorted(sizes, key=sizes.__getitem__, reverse=True)):
        if total <= MAX_BYTES:
            break
        if isinstance(kept[name], Spilled) or sizes[name] < WORTH_BYTES:
            continue
        reference, parts = cut(kept[name], f"{kind}#{token}-{index}", f"{what} {name!r}")
        earlier = known.get(name) if known else None
        if isinstance(earlier, Spilled) and earlier[1:] == reference[1:]:
            kept[name] = earlier
        else:
            kept[name], chunks[reference.id] = reference, parts
        total += _size({name: kept[name]}, what) - sizes[name]
    encode(kept, what=what)
    return kept, chunks


def _size(values: Mapping[str, Any], what: str) -> int:
    attribute, types = encode(values, what=what, limit=MAX_SPILL_BYTES)
    return size_of(attribute) + size_of(types)


def cut(value: Any, id: str, what: str) -> tuple[Spilled, list[bytes]]:
    """Cut one value into chunks; TooLargeError over 64 MB once compressed."""
    attribute, types = encode({"value": value}, what=what, limit=MAX_SPILL_BYTES)
    raw = json.dumps([_to_json(attribute), types], separators=(",", ":")).encode("utf-8")
    packed = zlib.compress(raw, 6)
    for size, limit in ((len(packed), MAX_SPILL_BYTES), (len(raw), MAX_RAW_BYTES)):
        if size > limit:
            raise TooLargeError(what, size, limit, "Part the source into several contexts, or take less in one batch.")
    parts = [packed[start : start + CHUNK_BYTES] for start in range(0, len(packed), CHUNK_BYTES)]
    return Spilled(id, len(parts), len(raw), hashlib.sha256(raw).hexdigest()), parts


def join(reference: Spilled, parts: Sequence[bytes]) -> Any:
    """Read a value back from its chunks. ValueError if anything is missing or altered."""
    check(reference)
    if len(parts) != reference.chunks:
        raise ValueError(f"{len(parts)} of {reference.chunks} chunks")
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(b"".join(parts), reference.length + 1)
    except zlib.error as error:
        raise ValueError("not compressed data") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError("more or less than one compressed stream")
    if len(raw) != reference.length or hashlib.sha256(raw).hexdigest() != reference.sha256:
        raise ValueError("length or checksum differ")
    try:
        attribute, types = json.loads(raw)
        return decode(_from_json(attribute), types)["value"]
    except (KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, binascii.Error) as error:
        raise ValueError("not what was written") from error


def check(reference: Spilled) -> None:
    """Refuse a reference to more than we ever write. ValueError, before anything is read for it."""
    if reference.chunks > MAX_CHUNKS or reference.length > MAX_RAW_BYTES:
        raise ValueError(f"{reference.chunks:,} chunks of {reference.length:,} bytes are more than is ever written")


def references(values: Mapping[str, Any]) -> list[Spilled]:
    """Return the references among a map's entries."""
    return [value for value in values.values() if isinstance(value, Spilled)]


def _to_json(attribute: Attribute) -> Attribute:
    return _map_bytes(attribute, lambda raw: base64.b64encode(raw).decode("ascii"))


def _from_json(attribute: Attribute) -> Attribute:
    return _map_bytes(attribute, lambda text: base64.b64decode(text, validate=True))


def _map_bytes(attribute: Attribute, change: Any) -> Attribute:
    ((tag, value),) = attribute.items()
    if tag == "B":
        return {"B": change(value)}
    if tag == "M":
        return {"M": {name: _map_bytes(item, change) for name, item in value.items()}}
    if tag == "L":
        return {"L": [_map_bytes(item, change) for item in value]}
    return attribute
