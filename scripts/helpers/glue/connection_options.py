"""Translates the connection options of Glue's readers to options of this package. Pure."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import Any

from scripts.helpers.glue.paths import folders, glue_option_error
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.tables.spans import TableOptions

logger = logging.getLogger(__name__)

ARCHIVES = {"GLACIER", "DEEP_ARCHIVE"}
IGNORED_OPTIONS = {
    "groupFiles", "groupSize", "useS3ListImplementation", "customJdbcDriverS3Path", "maxBand", "maxFilesInBand",
}  # fmt: skip
"""Glue's options that are ignored with a line in the log, as they do not change what is read here. A band (`maxBand`)
limits which files Glue remembers; this package remembers all."""
REFUSED_OPTIONS = {"sampleQuery", "enableSamplePath", "samplePath", "query"}
"""Options that are refused, because they would change what is read and are not supported here."""
RESERVED = {"include", "exclude", "max_files", "max_bytes"}
"""File options of this package that `folders_to_read` does not pass on: it reads or refuses them by itself."""
MAX_PARTITIONS = 2_000
"""Most partition folders in one request. With more, the pattern that is matched to each key would be too long."""
JDBC_PARTITIONS = 7
"""Number of parallel queries with ``hashfield`` in Glue, unless ``hashpartitions`` is given."""
_SPECIAL = re.compile(r"[\\*?\[\]{}]")
"""Characters with a meaning in globs that may occur in the name of a folder."""
_CONNECTION = {"url", "user", "password", "dbtable", "driver", "connectionName", "useConnectionProperties"}
_SORT_ORDER = ("jobBookmarkKeysSortOrder", "jobBookmarksKeysSortOrder")
"""The option for the sort order of keys: AWS's documentation spells it in both ways."""


@dataclass(frozen=True)
class FoldersToRead:
    """The folders to read in S3 with their options, and the limits of one batch over all folders.

    Attributes
    ----------
    folders
        Pairs of a source as `IncrementalJob.new_files` accepts it, and its own options ``include``
        and ``exclude``.
    options
        Options that apply to all folders; see `FileOptions`.
    """

    folders: tuple[tuple[str, Mapping[str, Any]], ...]
    options: Mapping[str, Any]
    max_files: int | None = None
    max_bytes: int | None = None

    def only(self, below: Collection[str]) -> FoldersToRead:
        """Return these options limited to files below the folders in `below`; if it is empty, no file is read.

        Raises
        ------
        InvalidValueError
            There are more than `MAX_PARTITIONS` folders.
        """
        if len(below) > MAX_PARTITIONS:
            raise glue_option_error(
                "push_down_predicate", f"leaves {len(below):,} partitions; the limit is {MAX_PARTITIONS:,}. Narrow it."
            )
        if not below:
            return replace(self, folders=())  # Drop the folders: an empty list as `include` would select all files.
        globs = [_SPECIAL.sub(r"\\\g<0>", folder) + "**" for folder in sorted(below)]
        return replace(self, folders=tuple((folder, {**own, "include": globs}) for folder, own in self.folders))


@dataclass(frozen=True)
class TableToRead:
    """The database table to read. `keys` is None if the script named no bookmark keys."""

    url: str
    table: str
    properties: Mapping[str, str]
    partitions: int | None
    keys: tuple[str, ...] | None
    options: Mapping[str, Any]


def folders_to_read(
    given: Mapping[str, Any], is_single_file: Callable[[str], bool] = lambda path: False
) -> FoldersToRead:
    """Read the options of a source in S3 or a local directory.

    Glue's own options are ``paths`` (one or several), ``recurse``, ``exclusions`` (a list of globs, or
    JSON of it), ``excludeStorageClasses``, ``boundedFiles`` or ``boundedSize``; numbers may be texts.
    Options of `FileOptions` except ``include`` are accepted under their own names. Unknown options are
    logged in a WARNING.

    Parameters
    ----------
    is_single_file
        A function that returns whether a path is a file; see `paths.folders`.

    Raises
    ------
    InvalidValueError
        A value is invalid. The error's text has the value, the limit and the remedy. Nothing is read.
    """
    # Imported here, because a script that reads no files must not require pyarrow.
    from scripts.helpers.files.rules import FileOptions

    left = dict(given)
    paths = _texts(left, "paths") + _texts(left, "path")
    if not paths:
        raise glue_option_error("paths", "is missing. Give a list such as ['s3://bucket/prefix/'].")
    recurse = _pop_bool(left, "recurse")
    exclusions = exclusions_of(left)
    left.pop("exclusions", None)
    options = _archives(left)
    exclude = _texts(left, "exclude")
    if "include" in left:
        raise glue_option_error("include", "is not taken here. Write paths, with recurse and exclusions.")
    bounds = {name: _whole(left, name) for name in ("boundedFiles", "boundedSize", "max_files", "max_bytes")}
    both = [name for name, limit in bounds.items() if limit is not None]
    if len(both) > 1:
        raise glue_option_error(both[0], f"and {both[1]!r} are both given. Glue takes one limit: leave one.")
    options |= _pop_options(left, {field.name for field in fields_of(FileOptions)} - RESERVED)
    _tell("s3", left)
    found = []
    for folder in folders(paths, recurse=recurse, exclusions=exclusions, is_single_file=is_single_file):
        with_ours = replace(folder, exclude=(*folder.exclude, *exclude))
        found.append((folder.base, with_ours.options))
    return FoldersToRead(
        tuple(found),
        options,
        max_files=bounds["boundedFiles"] or bounds["max_files"],
        max_bytes=bounds["boundedSize"] or bounds["max_bytes"],
    )


def exclusions_of(given: Mapping[str, Any]) -> list[str]:
    """Return the globs of ``exclusions``; raise InvalidValueError unless they are a text or a list of texts."""
    return _texts(dict(given), "exclusions")


def lake_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `TableOptions` has; log a WARNING with the names of all others."""
    left = dict(given)
    found = _pop_options(left, {field.name for field in fields_of(TableOptions)})
    _tell("table", left)
    return found


def table_to_read(given: Mapping[str, Any]) -> TableToRead:
    """Read the options of a JDBC source.

    Glue's own options are ``url``, ``user``, ``password``, ``dbtable``, ``jobBookmarkKeys``,
    ``jobBookmarkKeysSortOrder`` (asc or desc), ``hashfield`` or ``hashexpression`` with
    ``hashpartitions``, and ``customJdbcDriverClassName``. Options of `RowOptions` are
    accepted under their own names. Unknown options are logged in a WARNING.

    Raises
    ------
    InvalidValueError
        As by `folders_to_read`; but no error text shows the URL, the user or the password.
    """
    left = dict(given)
    named = {name: left.pop(name, None) for name in ("url", "dbtable")}
    for name, value in named.items():
        if not isinstance(value, str) or not value:
            raise glue_option_error(name, "is missing. A database needs url and dbtable.")
    # Refuse a query: it has no name, so another query under the same context would use the watermark of this query.
    if named["dbtable"].lstrip().startswith("("):
        raise glue_option_error("dbtable", "is a query. Make a view of it in the database, and name that.")
    properties = {name: str(left.pop(name)) for name in ("user", "password") if left.get(name) is not None}
    driver = left.pop("customJdbcDriverClassName", None) or left.pop("driver", None)
    if driver is not None:
        properties["driver"] = str(driver)
    keys = _texts(left, "jobBookmarkKeys") if "jobBookmarkKeys" in left else None
    if keys is not None and not keys:
        raise glue_option_error("jobBookmarkKeys", "is empty. Name the columns that only grow, such as ['id'].")
    hashed = [left.pop(name) for name in ("hashfield", "hashexpression") if name in left]
    partitions = _whole(left, "hashpartitions") or (JDBC_PARTITIONS if hashed else None)
    # If rows arrive below the bookmark, only log a WARNING: Glue ignores such rows, so an error would stop scripts that
    # run on Glue. If even the table's last row is behind the watermark, an error is still raised.
    options: dict[str, Any] = {"on_late": "warn"}
    if _descending(left):
        options["descending"] = True
    options |= _pop_options(left, {field.name for field in fields_of(RowOptions)})
    _tell("JDBC", left)
    return TableToRead(
        str(named["url"]), str(named["dbtable"]), properties, partitions, None if keys is None else tuple(keys), options
    )


def _texts(left: dict[str, Any], name: str) -> list[str]:
    """Remove an option and return it as a list of texts; it may be one text, a list, or the JSON of a list."""
    value = left.pop(name, None)
    if value is None:
        return []
    found = value
    if isinstance(value, str):
        found = [value]
        if value.lstrip().startswith("["):
            try:
                found = json.loads(value)
            except ValueError as error:
                raise glue_option_error(name, f"is {value!r}, which is not JSON. Write a list of texts.") from error
    if not isinstance(found, (list, tuple)) or not all(isinstance(text, str) and text for text in found):
        raise glue_option_error(name, f"is {value!r}. Write a text or a list of texts, none of them empty.")
    return list(found)


def _whole(left: dict[str, Any], name: str) -> int | None:
    value = left.pop(name, None)
    if value is None:
        return None
    text = str(value)
    # Check the text, because int() would also accept signs, spaces, underscores and the digits of other alphabets.
    is_whole = not isinstance(value, (bool, float)) and text.isdecimal() and text.isascii()
    if not is_whole or int(text) < 1:
        raise glue_option_error(name, f"is {value!r}. Write a whole number from 1, such as '1000'.")
    return int(text)


def _pop_bool(left: dict[str, Any], name: str) -> bool:
    value = left.pop(name, False)
    if str(value).lower() not in ("true", "false"):
        raise glue_option_error(name, f"is {value!r}. Write True or False.")
    return str(value).lower() == "true"


def _archives(left: dict[str, Any]) -> dict[str, Any]:
    classes = _texts(left, "excludeStorageClasses")
    if not classes:
        return {}
    if set(classes) != ARCHIVES:
        raise glue_option_error(
            "excludeStorageClasses",
            f"is {classes!r}. Here {' and '.join(sorted(ARCHIVES))} are left out together, and no others: name these.",
        )
    return {"on_archived": "skip"}


def _descending(left: dict[str, Any]) -> bool:
    descends = False
    for name in _SORT_ORDER:
        if name not in left:
            continue
        order = str(left.pop(name))
        if order.lower() not in ("asc", "desc"):
            raise glue_option_error(_SORT_ORDER[0], f"is {order!r}. Write 'asc' or 'desc'.")
        descends = descends or order.lower() == "desc"
    return descends


def _pop_options(left: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: left.pop(name) for name in names & set(left)}


def _tell(source: str, left: Mapping[str, Any]) -> None:
    """Raise InvalidValueError for an unsupported option that would change what is read; log the names of all others.

    Values are not logged, because they may be passwords.
    """
    for name in sorted(REFUSED_OPTIONS & set(left)):
        raise glue_option_error(name, "changes what is read, and is not here. Filter the DataFrame, or read a view.")
    if IGNORED_OPTIONS & set(left):
        logger.info(
            "event=options_needless source=%s options=%s", source, ",".join(sorted(IGNORED_OPTIONS & set(left)))
        )
    unknown = set(left) - IGNORED_OPTIONS - _CONNECTION
    if unknown:
        logger.warning("event=options_unknown source=%s options=%s: ignored", source, ",".join(sorted(unknown)))
