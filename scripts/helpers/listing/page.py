"""One page of an S3 listing, read straight from its XML into Arrow columns. Pure.

botocore's own parser makes a dict of every object and takes some 50 times as long. This one reads
pages whose objects all look like the first one, and leaves all others to botocore's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.listing.objects import LISTED, SEPARATOR, cut_texts, no_batch

_NEEDED = {b"Key", b"ETag", b"Size", b"LastModified"}
_NEEDED_OF_VERSION = _NEEDED | {b"VersionId", b"IsLatest"}
_LEAF = re.compile(rb"<(\w+)>([^<]*)</\1>")
_TAGS_ONLY = re.compile(rb"(?:</?\w+>\s*)*")
_QUOTE = b"&quot;"
_QUOTED = re.compile(rb"&quot;[^&]*&quot;")
_EXTRAS = re.compile(rb"<(Owner|RestoreStatus|DeleteMarker)>.*?</\1>\s*|<(Checksum\w+)>[^<]*</\2>\s*", re.DOTALL)
"""What some objects of a page may show and others not, and nobody here asks for."""
_ENTITIES = ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&apos;", b"'"), (b"&amp;", b"&"))
_URL_ENCODED = b"<EncodingType>url</EncodingType>"
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_FEW_ESCAPES = 16
"""Kinds of encoded characters that are replaced one after another, each in a pass over the text. With more of them,
as in names of many alphabets, the one pass of urllib is faster."""
_PERCENT = b"\xfe"
"""For a decoded per cent sign: no UTF-8 text has this byte."""


def take_objects(body: bytes, tag: str) -> tuple[bytes, pa.RecordBatch | None]:
    """Cut the objects out of a page.

    Parameters
    ----------
    tag
        ``Contents`` in ListObjectsV2; ``Version`` in ListObjectVersions, of which only the latest are taken.

    Returns
    -------
    tuple
        The body without the objects, and the objects as rows of LISTED with whole keys. The body as
        it was and None, if anything about them is unusual.
    """
    opening, closing = f"<{tag}>".encode(), f"</{tag}>".encode()
    first, last = body.find(opening), body.rfind(closing)
    if not 0 <= first < last:
        return body, None
    last += len(closing)
    block, rest = body[first:last], body[:first] + body[last:]
    if b"<!" in rest or SEPARATOR in block:
        return body, None  # Comments, CDATA or a DTD: tags in them are no tags. Or bytes that are no text.
    try:
        found = _read(block, closing) or _read(_EXTRAS.sub(b"", block), closing)
        if found is None or not (_NEEDED_OF_VERSION if tag == "Version" else _NEEDED) <= found.keys():
            return body, None
        return rest, _rows(found, _URL_ENCODED in rest)
    except (pa.ArrowInvalid, UnicodeError):
        return body, None


def _read(block: bytes, closing: bytes) -> dict[bytes, Sequence[bytes]] | None:
    """Read the fields of all objects, if these differ in nothing else: such objects are the whole block."""
    end = block.find(closing) + len(closing)
    gap = block[end : max(end, block.find(b"<", end))]
    first, block = block[:end] + gap, block + gap
    leaves = list(_LEAF.finditer(first))
    names = [leaf[1] for leaf in leaves]
    # What stands between the values of the first object stands between those of all.
    literals: list[bytes] = []
    start = 0
    for leaf in leaves:
        value_start, value_end = _bounds(leaf)
        literals.append(first[start:value_start])
        start = value_end
    literals.append(first[start:])
    if len(set(names)) < len(names) or not _TAGS_ONLY.fullmatch(b"".join(literals).replace(_QUOTE, b"")):
        return None
    found = re.findall(b"([^<]*)".join(map(re.escape, literals)), block)
    columns = list(zip(*found, strict=True))
    # The expression finds objects anywhere in the block. Only if they add up to all of it was none passed over that
    # looks otherwise, and which would be missing from the listing.
    length = len(found) * len(b"".join(literals))
    for column in columns:
        length += len(b"".join(column))
    if length != len(block):
        return None
    return dict(zip(names, columns, strict=True))


def _bounds(leaf: re.Match[bytes]) -> tuple[int, int]:
    """Return where a field begins and ends: the quotes of an ETag are no part of it."""
    start, stop = leaf.span(2)
    if leaf[1] == b"ETag" and _QUOTED.fullmatch(leaf[2]):
        return start + len(_QUOTE), stop - len(_QUOTE)
    return start, stop


def _rows(found: Mapping[bytes, Sequence[bytes]], encoded: bool) -> pa.RecordBatch:
    count = len(found[b"Key"])
    joined = {name: SEPARATOR.join(values) for name, values in found.items()}
    keys = _unescaped(joined[b"Key"])
    if encoded:
        keys = _url_decoded(keys)
        if keys.count(SEPARATOR) != count - 1:  # %FF in a key: it would be cut in two, and move all keys behind it.
            raise pa.ArrowInvalid("a key is not UTF-8")
    rows = pa.RecordBatch.from_arrays(
        [
            cut_texts(keys),
            pc.utf8_trim(cut_texts(_unescaped(joined[b"ETag"])), '"'),
            cut_texts(joined[b"VersionId"]) if b"VersionId" in found else pa.nulls(count, pa.string()),
            pc.cast(cut_texts(joined[b"Size"]), pa.int64()),
            pc.cast(cut_texts(joined[b"LastModified"]), pa.timestamp("us", tz="UTC")),
            cut_texts(joined[b"StorageClass"]) if b"StorageClass" in found else pa.nulls(count, pa.string()),
        ],
        schema=LISTED,
    )
    if b"IsLatest" in found:
        if not {b"true", b"false"}.issuperset(found[b"IsLatest"]):
            raise pa.ArrowInvalid("neither true nor false")
        rows = rows.filter(pc.equal(cut_texts(joined[b"IsLatest"]), cut_texts(b"true")[0]))
    return rows


def _unescaped(text: bytes) -> bytes:
    if b"\r" in text:
        raise pa.ArrowInvalid("XML reads a carriage return as a line feed")
    if b"&" in text:
        if b"&#" in text:
            raise pa.ArrowInvalid("characters by number are left to botocore")
        for entity, character in _ENTITIES:  # The ampersand last, or &amp;lt; would become < instead of &lt;.
            text = text.replace(entity, character)
    return text


def _url_decoded(text: bytes) -> bytes:
    """Decode as urllib does, in a fraction of the time where few kinds of characters are encoded."""
    decoded = text.replace(b"+", b" ").replace(b"%25", _PERCENT)
    for _ in range(_FEW_ESCAPES):
        at = decoded.find(b"%")
        if at < 0:
            return decoded.replace(_PERCENT, b"%")
        escape = decoded[at : at + 3]
        if not _ESCAPE.fullmatch(escape) or bytes([int(escape[1:], 16)]) in (SEPARATOR, _PERCENT):
            break
        decoded = decoded.replace(escape, bytes([int(escape[1:], 16)]))
    return unquote_to_bytes(text.replace(b"+", b" "))


def from_parsed(objects: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Make rows of objects as botocore parses them: Contents, or Versions of which only the latest are taken."""
    latest = [found for found in objects if found.get("IsLatest", True)]
    if not latest:
        return no_batch(LISTED)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([found["Key"] for found in latest], pa.string()),
            pa.array([found["ETag"].strip('"') for found in latest], pa.string()),
            pa.array([found.get("VersionId") for found in latest], pa.string()),
            pa.array([found["Size"] for found in latest], pa.int64()),
            pa.array([found["LastModified"] for found in latest], pa.timestamp("us", tz="UTC")),
            pa.array([found.get("StorageClass") for found in latest], pa.string()),
        ],
        schema=LISTED,
    )
