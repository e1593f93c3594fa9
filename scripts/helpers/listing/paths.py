"""Decide which keys Spark would read, and write them as paths. Pure."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from os import PathLike, fspath
from typing import Any

from scripts.helpers._lazy import pa, pc
from scripts.helpers.errors import InvalidValueError, LedgerError, SourceError

_SUSPECT = r"(^|/)\.{0,2}(/|$)"
"""Matches every key that is not plain."""
_HALF = re.compile("[\ud800-\udfff]")


def source_text(source: Any) -> str:
    """Return the path of a source as a string; InvalidValueError if it is not a path, for example a list of paths."""
    if not isinstance(source, (str, PathLike)):
        raise InvalidValueError(
            f"The source of files is a {type(source).__name__}. Name one directory or prefix as a text; call once for "
            "each source, with a transformation_ctx of its own."
        )
    return str(fspath(source))


def is_hidden(relative_key: str) -> bool:
    """Return whether Spark's file sources skip this key below a prefix.

    As in Spark's HadoopFSUtils and PartitioningAwareFileIndex, a key is skipped if any component
    starts with ``.``, starts with ``_`` and contains no ``=``, or ends with ``._COPYING_``. Markers
    for empty folders, of Hadoop and of the S3 console, are not files either.
    """
    *folders, name = relative_key.split("/")
    if not name or name.endswith("_$folder$"):
        return True
    hidden = (folder for folder in folders if not folder.startswith(("_metadata", "_common_metadata")))
    return any(map(_is_hidden_name, [name, *hidden]))


def _is_hidden_name(name: str) -> bool:
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def is_plain(name: str, *, literal: bool = False) -> bool:
    """Return whether all readers find the same file for a name below a root: true of `a/b`, not of `a/../b`.

    Readers may differ if the name is absolute, is not Unicode, or has a component that is empty, ``.`` or ``..``.

    Parameters
    ----------
    literal
        Allow empty components: in S3 they are part of the name, and only Hadoop drops them.
    """
    components = name.split("/")
    return {".", ".."}.isdisjoint(components) and (literal or all(components)) and is_unicode(name)


def is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair. JSON may contain such a half, but no listing does."""
    return _HALF.search(text) is None


def check_keys(source: str, keys: pa.ChunkedArray, where: str, remedy: str) -> None:
    """Raise LedgerError, with `where` and `remedy`, for a key like ``a/../b`` (see `is_plain`) that no listing has."""
    for key in keys.filter(pc.fill_null(pc.match_substring_regex(keys, _SUSPECT), True)).to_pylist():
        if key is None or not is_plain(key):
            raise LedgerError(
                source, f"{where} has the key {key!r}, which leads out of the source or is not the name of a file. "
                f"Nothing was read, moved or deleted. {remedy}",
            )  # fmt: skip


def check_readable(source: str, relative_key: str, *, is_local: bool = False) -> None:
    """Raise SourceError for a key that no Hadoop path can name: Spark would read another file, or fail late."""
    if any(not component for component in relative_key.split("/")):
        reason = "has an empty component, which Hadoop paths drop"
    elif not is_unicode(relative_key):
        reason = "is not valid UTF-8"
    elif is_local and ":" in relative_key.rpartition("/")[2]:
        reason = "has a colon, which Hadoop cannot read locally"
    else:
        return
    raise SourceError(source, f"key {relative_key!r} {reason}, so no job reads it. Rename the object.")


def suffix(key: str) -> str:
    """Return a key's file name extension in lower case, such as ``csv``; empty if it has none."""
    return packing(key).lower()


def packing(key: str) -> str:
    """Return the extension by which Hadoop chooses a codec, as written: Hadoop does not decompress ``x.GZ``."""
    name = key.rpartition("/")[2]
    return name.rpartition(".")[2] if "." in name else ""


def folder_columns(key: str) -> tuple[str, ...]:
    """Return the columns that Spark reads from ``name=value`` folders, such as ``("year",)``.

    As in Spark's PartitioningUtils, only the lowest unbroken chain counts: ``a=1/x/b=2/c=3/f.csv`` has ``b`` and ``c``.
    """
    return tuple(folder.partition("=")[0] for folder in named_folders(key))


def named_folders(key: str) -> list[str]:
    """Return the ``name=value`` folders that Spark reads columns from, outermost first, as they are written."""
    upwards = dropwhile(lambda folder: "=" not in folder, reversed(key.split("/")[:-1]))
    return list(takewhile(lambda folder: "=" in folder, upwards))[::-1]
