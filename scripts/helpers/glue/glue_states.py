"""What Glue's own bookmark says of each context: its ``JobBookmark`` JSON, and hashes of names in it. Pure.

The JSON is not documented. Files: each context is a ``HadoopDataSourceJobBookmarkState`` whose
``timestamps`` hold, as texts, ``CURR_RUN_START_TIME`` (T), ``HIGH_BAND`` (dt, in milliseconds) and
``INCLUDE_LIST``, hashes of the files read whose time lies in Glue's inconsistent range ``(T - dt, T]``
(AWS Glue, "Tracking processed data using job bookmarks"). Keys of databases: no example is public, so
values are looked for under the names of the key columns, wherever they stand.

Of each file in its band Glue keeps two MD5 sums, as hexadecimal numbers without leading zeros: that of its URI
followed by its time of change in milliseconds since 1970, and that of its URI alone. (No page says so; all hashes
of a published bookmark are of these two forms.) A hash can hit by chance once in 2^128.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from hashlib import md5
from typing import Any

from dateutil.parser import isoparse

from scripts.helpers.errors import BookmarkImportError

FILES = "HadoopDataSourceJobBookmarkState"
RUN, STARTED, BAND, INCLUDED = "RUN", "CURR_RUN_START_TIME", "HIGH_BAND", "INCLUDE_LIST"
PARTITION, PARTITIONS = "CURR_LATEST_PARTITION", "CURR_LATEST_PARTITIONS"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MILLISECOND = timedelta(milliseconds=1)
SCHEMES = ("s3", "s3a", "s3n")
_HASH = re.compile(r"[0-9a-f]{1,32}")
_CLASS = "jsonClass"
_NAMES = ("name", "key", "column", "columnname", "columnName")


@dataclass(frozen=True)
class BandState:
    """A context of files: those not after `low` are known, of those up to `started` the listed ones.

    Attributes
    ----------
    started
        Start of the run that left it, T.
    band
        How far before T files are known by name.
    hashes
        Of the names of the files in the band that were read, as numbers: Glue writes no leading zeros.
    has_partitions
        It remembers partitions of the catalogue as well, by the time they were registered.
    """

    started: datetime
    band: timedelta
    hashes: frozenset[int]
    has_partitions: bool = False

    @property
    def low(self) -> datetime:
        """T less the band: files of this time and before are known."""
        return self.started - self.band


@dataclass(frozen=True)
class KeyState:
    """A context of a database: whatever it holds, with `values` to look keys up in it."""

    fields: Mapping[str, Any]

    def values(self, columns: Sequence[str]) -> dict[tuple[Any, ...], str]:
        """Return the different values that stand under the names of all these columns, whatever their case.

        Returns
        -------
        dict
            By values the JSON path of the object that they were found in first, such as ``$.keys``.
        """
        found: dict[tuple[Any, ...], str] = {}
        for path, record in _records(self.fields):
            by_name = {str(name).lower(): value for name, value in record.items()}
            given = tuple(by_name.get(column.lower()) for column in columns)
            if all(map(_is_key, given)):
                found.setdefault(given, path)
        return found

    @property
    def descends(self) -> bool | None:
        """Tell whether it says that keys fall; None if it says nothing."""
        for _, record in _records(self.fields):
            for name, value in record.items():
                if "sortorder" in str(name).lower() and str(value).lower() in ("asc", "desc"):
                    return str(value).lower() == "desc"
        return None


State = BandState | KeyState | str
"""A context, or why it cannot be read."""


def read_bookmark(text: str | None, job_name: str) -> dict[str, State]:
    """Read all contexts of a bookmark.

    Returns
    -------
    dict
        By context its state, or a text that says why it cannot be read.

    Raises
    ------
    BookmarkImportError
        The text is not one JSON object.
    """
    found = _json(text) if text else {}
    if not isinstance(found, Mapping):
        raise BookmarkImportError(job_name, None, "JobBookmark is not one JSON object. Was it cut off or encrypted?")
    return {str(name): _state(state) for name, state in found.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None


def _state(given: Any) -> State:
    state = _json(given) if isinstance(given, str) else given
    if not isinstance(state, Mapping):
        return "it is not a JSON object"
    kind = state.get(_CLASS)
    if kind == FILES:
        stamps = state.get("timestamps")
        more = sorted(set(state) - {_CLASS, "timestamps"})
        if not isinstance(stamps, Mapping) or more:
            return f"its shape is not known: {FILES} with {', '.join(map(repr, more)) or 'no timestamps'}"
        return _band_state(stamps)
    if "jdbc" in str(kind).lower():
        return KeyState(state)
    return f"its {_CLASS} is {kind!r}, which is not known"


def _band_state(stamps: Mapping[str, Any]) -> State:
    newer = sorted(set(stamps) - {RUN, STARTED, BAND, INCLUDED, PARTITION, PARTITIONS})
    if newer:
        return f"its shape is not known: timestamps with {', '.join(map(repr, newer))}"
    started, band, hashes = _moment(stamps.get(STARTED)), _milliseconds(stamps.get(BAND)), _hashes(stamps.get(INCLUDED))
    for name, value in ((STARTED, started), (BAND, band), (INCLUDED, hashes)):
        if value is None:
            return f"its {name} is missing or cannot be read"
    assert started is not None
    assert band is not None
    assert hashes is not None
    has_partitions = str(stamps.get(PARTITION) or "0") != "0" or bool(stamps.get(PARTITIONS))
    return BandState(started, band, hashes, has_partitions)


def _moment(value: Any) -> datetime | None:
    try:
        # Not eight digits: those are a date, such as 20230316, which isoparse reads.
        if re.fullmatch(r"\d{9,15}", str(value)):
            return EPOCH + int(value) * MILLISECOND
        moment = isoparse(str(value))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _milliseconds(value: Any) -> timedelta | None:
    return timedelta(milliseconds=int(value)) if re.fullmatch(r"\d{1,12}", str(value)) else None


def _hashes(value: Any) -> frozenset[int] | None:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list):
        return None
    texts = [str(part).strip().lower() for part in value]
    texts = [text for text in texts if text]
    if not all(_HASH.fullmatch(text) for text in texts):
        return None
    return frozenset(int(text, 16) for text in texts)


def _records(value: Any, path: str = "$") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all objects in nested JSON with their paths, and lists of name and value as one object."""
    if isinstance(value, Mapping):
        yield path, value
        for name, entry in value.items():
            yield from _records(entry, f"{path}.{name}")
    elif isinstance(value, list):
        if named := _named(value):
            yield path, named
        for index, entry in enumerate(value):
            yield from _records(entry, f"{path}[{index}]")


def _is_key(value: Any) -> bool:
    """Tell whether a value can be one of a key column: bools are numbers to Python, and none here."""
    return isinstance(value, (str, int, Decimal)) and not isinstance(value, bool)


def _named(entries: list[Any]) -> dict[str, Any]:
    found = {}
    for entry in entries:
        if not isinstance(entry, Mapping) or "value" not in entry:
            return {}
        for name in _NAMES:
            if name in entry:
                found[str(entry[name])] = entry["value"]
    return found


# --- hashes of names ---------------------------------------------------------------------------------


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
