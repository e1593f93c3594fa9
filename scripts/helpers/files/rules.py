"""The options of a bookmark, and the rules for new files that need no state. Pure.

The command line reads options where pyarrow is not installed, so only the functions that work on rows import it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Literal, TypedDict

from scripts.helpers._lazy import pa, pc
from scripts.helpers.display.options import check_choices
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.listing.paths import is_hidden

ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes whose objects are listed but cannot be read before they are restored."""

LAYOUT_CODES = "YymdjbBaAuwUWVGHIp%"
"""The strftime codes allowed in date folders: years down to hours, and ``%%``. Codes for minutes are refused."""

_SUSPECT = r"(^|/)[._]|\._COPYING_(/|$)|_\$folder\$$|/$|^$"
"""Matches every hidden key, and few other keys."""


class PartitionOptionsGiven(TypedDict, total=False):
    """Keyword arguments that are fields of `FileOptions`, declared for calls such as `new_files`, for type checkers."""

    on_modified: Literal["raise", "skip", "take"]
    compare: Literal["etag", "mtime"]
    delay: timedelta
    ready_marker: str | None
    include: Sequence[str]
    exclude: Sequence[str]
    min_size: int
    on_archived: Literal["raise", "skip", "take"]
    on_unreadable: Literal["raise", "set_aside"]
    max_files: int | None
    max_bytes: int | None
    layout: str | None
    allowed_lateness: timedelta
    versioned: bool
    request_payer: bool
    workers: int
    ledger_uri: str | None


class FileOptionsGiven(PartitionOptionsGiven, total=False):
    """The keyword arguments of calls in which ``start_from`` is a time or a key, and not a partition."""

    start_from: str | datetime | None


@dataclass(frozen=True)
class FileOptions:
    """The options by which a bookmark chooses files. The defaults take every object once, and again if it changes.

    Attributes
    ----------
    start_from
        Which objects a bookmark without a state takes first. Earlier objects are stored as ignored, and are new if
        they change. ``"now"``: objects that appear after the first listing. An aware datetime: objects whose
        LastModified is not before it. Any other text: objects whose key below the source is after it. By default all.
    on_modified
        What to do with a known key that has another identity: ``take`` it again, ``skip`` it, or ``raise`` an error.
    compare
        ``etag``: the same bytes written again are the same object. ``mtime``: they are another object.
    delay
        Leave objects younger than this for the next run, by the clock of the source. Late files need no delay, unlike
        late rows: a file is new whenever it appears.
    ready_marker
        Take only files of folders that hold an object of this name, such as ``_SUCCESS``.
    include
        Take only files whose key below the prefix matches a glob: ``*`` and ``?`` match within a folder, ``**`` across.
    exclude
        Leave out files whose key below the prefix matches a glob.
    min_size
        Leave out objects with fewer bytes; 1 leaves out empty objects.
    on_archived
        What to do with objects in GLACIER or DEEP_ARCHIVE: ``raise`` an error before anything is taken, ``skip``
        them until they are copied out of the archive, or ``take`` them if they are restored.
    on_unreadable
        A planned file that cannot be read: ``raise`` an error, or ``set_aside`` to list it in the state with the reason
        and take the rest of the batch. An operator decides about set-aside files. If no file of a batch can be read,
        the run fails, but sets aside a batch of up to nine files, so the next run continues. See `readings.Readings`.
    max_files, max_bytes
        Most files and most bytes of one batch, oldest first; at least one file. The rest is left for the next batch.
    layout, allowed_lateness
        Date folders as strftime writes them, such as ``import_year=%Y/import_month=%m/``: only folders since the last
        run less `allowed_lateness` are listed. Files that are written to older folders are not found.
    versioned
        Make the VersionId part of the identity (requires s3:ListBucketVersions).
    request_payer
        Pay for the requests to a bucket of another account.
    workers
        Number of parallel requests.
    ledger_uri
        Folder for the ledger as Parquet files, ``s3://bucket/prefix/`` or local; by default the ledger is in
        the table, up to 64 MB compressed (about a million objects).
    """

    start_from: str | datetime | None = None
    on_modified: Literal["raise", "skip", "take"] = "take"
    compare: Literal["etag", "mtime"] = "etag"
    delay: timedelta = timedelta(0)
    ready_marker: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    min_size: int = 0
    on_archived: Literal["raise", "skip", "take"] = "raise"
    on_unreadable: Literal["raise", "set_aside"] = "raise"
    max_files: int | None = None
    max_bytes: int | None = None
    layout: str | None = None
    allowed_lateness: timedelta = timedelta(days=1)
    versioned: bool = False
    request_payer: bool = False
    workers: int = 16
    ledger_uri: str | None = None

    def __post_init__(self) -> None:
        """Raise InvalidValueError for a value that is not allowed. It names option, value and remedy."""
        check_choices(self)
        for name in ("max_files", "max_bytes", "workers"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidValueError(f"{name} is {value!r}. Use a whole number from 1.")
        for name in ("delay", "allowed_lateness"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or value < timedelta(0):
                raise InvalidValueError(f"{name} is {value!r}. Use a timedelta that is not negative.")
        if self.layout is None and self.allowed_lateness != FileOptions.allowed_lateness:
            raise InvalidValueError(f"allowed_lateness is {self.allowed_lateness!r}. Omit it, or pass layout.")
        if type(self.min_size) is not int or self.min_size < 0:
            raise InvalidValueError(f"min_size is {self.min_size!r}. Use a whole number from 0.")
        for name in ("include", "exclude"):
            if isinstance(getattr(self, name), str):
                raise InvalidValueError(f"{name} is {getattr(self, name)!r}. Use a list of globs.")
            for glob in getattr(self, name):
                check_glob(glob)
        _check_start(self.start_from)
        if self.ready_marker is not None and (not self.ready_marker or "/" in self.ready_marker):
            raise InvalidValueError(f"ready_marker is {self.ready_marker!r}. Name an object, such as _SUCCESS.")
        if self.layout is not None and (not self.layout.endswith("/") or "%Y" not in self.layout):
            raise InvalidValueError(
                f"layout is {self.layout!r}. Use folders with a year and a slash at the end: day=%Y-%m-%d/."
            )
        unknown = set(re.findall("%-?(.?)", self.layout or "")) - set(LAYOUT_CODES)
        if unknown:
            raise InvalidValueError(
                f"layout is {self.layout!r}, and %{min(unknown)} in it is not a date or hour. End it before that "
                "folder."
            )

    @property
    def limits(self) -> Limits:
        """The limits of a batch."""
        return Limits(self.max_files, self.max_bytes)

    def chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the objects that the rules admit: neither hidden from Spark, nor excluded, nor too small."""
        keys = rows.column("key")
        mask = pc.invert(hidden(keys))
        if self.min_size:
            mask = pc.and_(mask, pc.greater_equal(rows.column("size"), self.min_size))
        if self.include:
            mask = pc.and_(mask, pc.match_substring_regex(keys, _any_of(self.include)))
        if self.exclude:
            mask = pc.and_(mask, pc.invert(pc.match_substring_regex(keys, _any_of(self.exclude))))
        return rows.filter(mask)

    def before_start(self, new: pa.Table, started: datetime) -> pa.Array:
        """Return for each object whether it is before `start_from`; with ``"now"``, all objects are."""
        if isinstance(self.start_from, datetime):
            moment = pa.scalar(self.start_from, new.schema.field("modified").type)
            return pc.less(new.column("modified"), moment)
        if self.start_from == "now":
            return pa.repeat(True, new.num_rows)
        # Arrow compares texts by their UTF-8 bytes, which is the order of listings.
        return pc.less_equal(new.column("key"), self.start_from)

    def waiting(self, left: pa.Table) -> pa.Table:
        """Return the objects in `left` that a later batch can take as they are: all except skipped archived objects.

        A skipped object must first be copied out of the archive, and S3 reports the copy like a new object.
        """
        if self.on_archived != "skip":
            return left
        is_archived = pc.is_in(left.column("storage_class"), value_set=pa.array(ARCHIVES, pa.string()))
        return left.filter(pc.invert(is_archived))

    def ready_folders(self, rows: pa.RecordBatch) -> set[str]:
        """Return the folders of the ready markers among the rows, such as ``a/b/`` for ``a/b/_SUCCESS``."""
        assert self.ready_marker is not None
        keys = rows.column("key")
        found = keys.filter(pc.match_substring_regex(keys, f"(^|/){re.escape(self.ready_marker)}$"))
        return {key[: -len(self.ready_marker)] for key in found.to_pylist()}

    def reason_against(self, key: str, size: int) -> str | None:
        """Return a text that says why the rules leave out a key; None if they admit it."""
        if is_hidden(key):
            return "Spark hides it: a name in its path starts with _ or ., or it marks a folder"
        if size < self.min_size:
            return f"its {size} bytes are fewer than min_size={self.min_size}"
        keys = pa.array([key], pa.string())
        if self.include and not pc.match_substring_regex(keys, _any_of(self.include))[0].as_py():
            return f"no glob of include={list(self.include)} fits"
        if self.exclude and pc.match_substring_regex(keys, _any_of(self.exclude))[0].as_py():
            return f"a glob of exclude={list(self.exclude)} fits"
        return None


def hidden(keys: pa.Array) -> pa.Array:
    """Return for each key whether Spark would skip it; see `paths.is_hidden`."""
    suspect = pc.match_substring_regex(keys, _SUSPECT)
    if not pc.any(suspect, min_count=0).as_py():
        return suspect
    # Check each match by Spark's rule, because the regular expression also matches names that Spark reads: _a=1.
    found: list[bool] = []
    for is_suspect, key in zip(suspect.to_pylist(), keys.to_pylist(), strict=True):
        found.append(is_suspect and is_hidden(key))
    # Avoid `pa.array`, which imports pandas. Most runs get here: most sources have a hidden file such as `_SUCCESS`.
    return pa.Array.from_buffers(pa.uint8(), len(found), [None, pa.py_buffer(bytes(found))]).cast(pa.bool_())


def _check_start(start_from: str | datetime | None) -> None:
    if isinstance(start_from, datetime):
        if start_from.tzinfo is None:
            raise InvalidValueError(f"start_from is {start_from!r}, without zone. Give an aware datetime.")
    elif start_from is not None and (not isinstance(start_from, str) or not start_from):
        raise InvalidValueError(f"start_from is {start_from!r}. Use 'now', an aware datetime or a key.")


def folders_of(keys: pa.Array) -> pa.Array:
    """Return the folder of each key, with its slash; an empty text for keys at the top."""
    return pc.replace_substring_regex(keys, r"[^/]*$", "")


OLDEST_FIRST = [("modified", "ascending"), ("key", "ascending")]
"""Sort order of a batch. The key breaks ties of time, so that two runs over the same objects choose the same ones."""


@dataclass(frozen=True)
class Limits:
    """Most files and bytes of a batch; None means no limit."""

    max_files: int | None = None
    max_bytes: int | None = None

    @property
    def is_any(self) -> bool:
        """Whether there is a limit."""
        return self.max_files is not None or self.max_bytes is not None

    def fit(self, files: int, size: int) -> bool:
        """Return whether the oldest `files` files, of `size` bytes together, fit into a batch."""
        if files <= 1:
            return True  # One file always fits: otherwise a file larger than the limit would stop the job forever.
        if self.max_files is not None and files > self.max_files:
            return False
        return self.max_bytes is None or size <= self.max_bytes


def oldest_first(
    rows: pa.Table, max_files: int | None, max_bytes: int | None, one_more: bool = False
) -> tuple[pa.Table, bool]:
    """Return the oldest objects within the limits, and whether other objects are left. One object always fits.

    With `one_more`, the first object that does not fit is returned too.
    """
    limits = Limits(max_files, max_bytes)
    if not limits.is_any:
        return rows, False
    oldest = pc.sort_indices(rows, OLDEST_FIRST)
    sums = pc.cumulative_sum(rows.column("size").combine_chunks().take(oldest))
    counts = range(1, rows.num_rows + 1)
    count = bisect_left(counts, True, key=lambda files: not limits.fit(files, sums[files - 1].as_py()))
    has_more = count < rows.num_rows
    if one_more and has_more:
        count += 1
    # Filter before sorting: Arrow filters chunk by chunk, but sorts keys in one array, which holds up to 2 GiB.
    first = pc.is_in(_numbers(rows.num_rows), value_set=oldest.slice(0, count))
    return rows.filter(first).sort_by(OLDEST_FIRST).combine_chunks(), has_more


def _numbers(count: int) -> pa.Array:
    """Return the numbers from 0 to `count` - 1 as uint64, the type of the indices that Arrow's sort returns."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.uint64()), count)), pa.scalar(1, pa.uint64()))


def check_glob(glob: str) -> None:
    """Raise InvalidValueError for a glob that is not valid."""
    try:
        pc.match_substring_regex(pa.array([""], pa.string()), glob_to_regex(glob))
    except pa.ArrowInvalid as error:
        raise InvalidValueError(f"The glob {glob!r} is not valid. Check its brackets.") from error


def _any_of(globs: Sequence[str]) -> str:
    return "^(" + "|".join(glob_to_regex(glob) for glob in globs) + ")$"


def glob_to_regex(glob: str) -> str:
    r"""Return the RE2 expression of a glob, which has the syntax of Glue's exclusions.

    >>> print(glob_to_regex("year=20??/**/*.{csv,json}"))
    (?s:year=20[^/][^/]/.*/[^/]*\.(csv|json))
    """
    parts, depth, position = [], 0, 0
    while position < len(glob):
        rest = glob[position:]
        character = rest[0]
        bracket = re.match(r"\[(!?)([^\]]+)\]", rest)
        if rest.startswith("**"):
            parts.append(".*")
            position += 2
            continue
        if bracket:
            inner = bracket[2].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            parts.append(f"[{'^' if bracket[1] else ''}{inner}]")
            position += bracket.end()
            continue
        if character == "\\" and len(rest) > 1:
            parts.append(re.escape(rest[1]))
            position += 2
            continue
        position += 1
        if character == "*":
            parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "{":
            parts.append("(")
            depth += 1
        elif character == "}" and depth:  # Outside of braces, "}" and "," stand for themselves.
            parts.append(")")
            depth -= 1
        elif character == "," and depth:
            parts.append("|")
        else:
            parts.append(re.escape(character))
    if depth:
        raise InvalidValueError(f"The glob {glob!r} has an open brace. Close it, or escape it as \\{{.")
    return f"(?s:{''.join(parts)})"


MAX_FOLDERS = 1_000
"""Most date folders that are listed one by one. With more, the whole prefix is listed at once."""
AHEAD = timedelta(days=1)
"""How far ahead of now folders are listed: a writer may be in a zone that is ahead, and clocks differ."""

_YEARS = r"(?=((?:19[7-9]|2[01]\d)\d))"
"""Finds each possible year from 1970 to 2199 in a folder name, at any position."""


def folders_since(layout: str, since: datetime | None, now: datetime) -> list[str]:
    """Return the folders of all dates from `since` until a day after `now`, in order of time.

    Parameters
    ----------
    layout
        A layout for strftime, such as ``import_year=%Y/import_month=%m/import_day=%d/``.
    since
        The oldest date; None for all dates.

    Returns
    -------
    list
        Prefixes below the source. ``[""]``, the whole source, if `since` is None or too long ago.

    >>> new_years_eve = datetime(2023, 12, 31, 9, tzinfo=timezone.utc)
    >>> folders_since("year=%Y/day=%j/", new_years_eve, new_years_eve)
    ['year=2023/day=365/', 'year=2024/day=001/']
    """
    if since is None or (now + AHEAD - since) / _step(layout) > MAX_FOLDERS:
        return [""]
    return list(_written(layout, since, now + AHEAD))


def outside_layout(layout: str, keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the keys that are not in a date folder of `layout`; only a listing of the whole source shows them."""
    folders = pc.replace_substring_regex(keys, f"(?s)^((?:[^/]*/){{{layout.count('/')}}}).*", r"\1")

    @cache
    def of_year(year: str) -> dict[str, None]:
        first = datetime(int(year), 1, 1, tzinfo=timezone.utc)
        return _written(layout, first, first + timedelta(days=366, hours=-1))

    dated = []
    for folder in folders.unique().to_pylist():
        if any(folder in of_year(year) for year in re.findall(_YEARS, folder)):
            dated.append(folder)
    return keys.filter(pc.invert(pc.is_in(folders, value_set=pa.array(dated, pa.string()))))


def _step(layout: str) -> timedelta:
    return timedelta(hours=1) if re.search("%-?[HIp]", layout) else timedelta(days=1)


def _written(layout: str, first: datetime, last: datetime) -> dict[str, None]:
    """Return the folders of all dates from `first` to `last`, in order of time, as keys of a dict."""
    step = _step(layout)
    # Start at the full hour or day: from 10:30 to 12:10, steps of an hour would miss the folder of 12 o'clock.
    moment = first.astimezone(timezone.utc).replace(minute=0, second=0, microsecond=0)
    if step == timedelta(days=1):
        moment = moment.replace(hour=0)
    folders: dict[str, None] = {}
    while moment <= last:
        folders[moment.strftime(layout)] = None
        moment += step
    return folders
