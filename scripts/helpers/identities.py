"""The identity of an object (key, ETag, size), and sets of identities packed for storage. Pure."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

MAX_UNPACKED_BYTES = 256 * 1024 * 1024


class Identity(NamedTuple):
    """What an object is. Another ETag or size under the same key is another object.

    The ETag is opaque: it is no MD5 for multipart or KMS objects. The time of change is no part
    of an identity: a multipart upload shows the time at which it was started.
    """

    key: str
    etag: str
    size: int


def in_order(identities: Iterable[Identity]) -> list[Identity]:
    """Sort by the UTF-8 bytes of the key, the order in which S3 lists."""
    return sorted(identities, key=lambda identity: identity.key.encode("utf-8"))


def pack(identities: Iterable[Identity]) -> dict[str, Any]:
    """Compress a set of identities into a map that `values.encode` can store."""
    rows = in_order(identities)
    raw = json.dumps(rows, separators=(",", ":")).encode("ascii")
    return {
        "count": len(rows),
        "bytes": sum(row.size for row in rows),
        "packed": zlib.compress(raw, 9),
        "length": len(raw),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }


def unpack(packed: Mapping[str, Any]) -> list[Identity]:
    """Read what `pack` wrote. ValueError or KeyError if anything does not fit.

    The stored length bounds the decompression, so that an altered item cannot fill the memory.
    """
    length = int(packed["length"])
    if not 0 <= length <= MAX_UNPACKED_BYTES:
        raise ValueError(f"a length of {length}")
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(packed["packed"], length + 1)
    except zlib.error as error:
        raise ValueError("not compressed data") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError("more or less than one compressed stream")
    if len(raw) != length or hashlib.sha256(raw).hexdigest() != packed["sha256"]:
        raise ValueError("length or checksum differ")
    try:
        rows = [Identity(str(key), str(etag), int(size)) for key, etag, size in json.loads(raw)]
    except RecursionError:
        raise ValueError("not a list of identities") from None
    if len(rows) != packed["count"]:
        raise ValueError("the count differs")
    return rows
