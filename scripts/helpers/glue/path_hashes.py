"""The names that Glue keeps of files in its band, as hashes, and which listed objects they are. Pure.

Of each file Glue keeps two MD5 sums, as hexadecimal numbers without leading zeros: that of its URI followed
by its time of change in milliseconds since 1970, and that of its URI alone. (No page says so; all hashes of
a published bookmark are of these two forms.) A hash can hit by chance once in 2^128.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from hashlib import md5

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MILLISECOND = timedelta(milliseconds=1)
SCHEMES = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class Matched:
    """Which objects are among the hashes.

    Attributes
    ----------
    read
        Read as they are now.
    changed
        Read, and by their hashes changed since.
    unsure
        Read; whether they have changed since, the hashes do not say.
    unknown
        How many hashes are of no object: of deleted ones, or of a form that is not known.
    """

    read: list[str]
    changed: list[str]
    unsure: list[str]
    unknown: int


def path_hash(uri: str, modified: datetime | None = None) -> int:
    """Return Glue's hash of a file's URI, with its time of change or without.

    >>> f"{path_hash('s3://bucket/a.csv'):x}"
    'e266a32288b3399967ec9a348f7ba6f8'
    """
    text = uri if modified is None else f"{uri}{(modified - EPOCH) // MILLISECOND}"
    return int.from_bytes(md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest(), "big")


def match(hashes: Collection[int], objects: Iterable[tuple[str, datetime]]) -> Matched:
    """Find objects among the hashes.

    Parameters
    ----------
    objects
        Of each its URI without scheme, as ``bucket/prefix/name.csv``, and its time of change.
    """
    read, named, left = [], [], set(hashes)
    for place, modified in objects:
        uris = [f"{scheme}://{place}" for scheme in SCHEMES]
        names, exact = {path_hash(uri) for uri in uris}, {path_hash(uri, modified) for uri in uris}
        if not left.isdisjoint(exact):
            read.append(place)
        elif not left.isdisjoint(names):
            named.append(place)
        left -= names | exact
    if not read and not left:  # Only names are kept: nothing is left that could be a name with another time.
        return Matched(named, [], [], 0)
    return Matched(read, named if read else [], [] if read else named, len(left))
