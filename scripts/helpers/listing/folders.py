"""Read the values of ``name=value`` folders that Hive and Spark write, with their types. Pure."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.listing.paths import named_folders

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value that Hive and Spark write for NULL, and for an empty text."""
KINDS = ("string", "int", "bigint", "date")
"""Types of partition columns: those that every reader sorts in the same order."""

Value = str | int | date | None

_SYNONYMS = {"str": "string", "text": "string", "integer": "int", "long": "bigint"}
_BITS = {"int": 32, "bigint": 64}
_DATE = re.compile(r"(\d{4})(-?)(\d{2})\2(\d{2})", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)


def folder_values(key: str) -> list[tuple[str, str | None]]:
    """Return the names and values of the ``name=value`` folders that Spark reads, outermost first; None for NULL.

    >>> folder_values("day=2026-03-16/at=15%3A45/part-0.parquet")
    [('day', '2026-03-16'), ('at', '15:45')]
    """
    pairs = (folder.split("=", 1) for folder in named_folders(key))
    return [(_unescaped(name), None if value == NULL_FOLDER else _unescaped(value)) for name, value in pairs]


def _unescaped(text: str) -> str:
    """Undo Hive's escaping. Each ``%XX`` is one character (ExternalCatalogUtils), not a byte of UTF-8 as in URLs."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text)


def folder_kind(name: str, kind: Any) -> str:
    """Return the type of `KINDS` that a user means: ``int`` for ``integer``. InvalidValueError for an unknown type."""
    found = _SYNONYMS.get(kind, kind) if isinstance(kind, str) else kind
    if found not in KINDS:
        raise InvalidValueError(f"types has {kind!r} for {name!r}. Use one of {', '.join(KINDS)}.")
    return str(found)


def typed_value(source: str, name: str, kind: str, text: str | None) -> Value:
    """Return the value that the text of a folder stands for; SourceError if the text is not of the type."""
    if text is None:
        return None
    if not text:
        raise SourceError(source, f"a folder {name}= has no value, and Spark reads none. Rename it.")
    if kind == "string":
        return text
    if kind == "date":
        found = _DATE.fullmatch(text)
        if found:
            try:
                return date(int(found[1]), int(found[3]), int(found[4]))
            except ValueError:
                pass
    elif _NUMBER.fullmatch(text) and -(2 ** (_BITS[kind] - 1)) <= int(text) < 2 ** (_BITS[kind] - 1):
        return int(text)
    raise SourceError(
        source,
        f"folder {name}={text} holds no {kind}. Correct types=, or leave it out with exclude=.",
    )
