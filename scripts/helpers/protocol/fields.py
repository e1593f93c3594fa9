"""Read the fields of stored maps, each checked for type and range: stored data is untrusted until checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final, Literal, TypeVar

T = TypeVar("T")


class ImplausibleError(ValueError):
    """A stored value that this package never writes. The message names the field but not the value."""


MAX_COUNT = 10**15
"""The highest version, fence or other count: one run per microsecond for more than thirty years."""
MAX_TEXT = 2_048
"""Characters of a name or URI: a key of S3 has up to 1,024 bytes, and a scheme and bucket precede it."""
MAX_NAMES = 2_000
"""Names in one list, such as the columns of a key or a partition: a stored map cannot have more entries."""
MAX_NUMBER = 2**63 - 1
"""The highest object size, snapshot number or BIGINT id."""
YEARS = range(1900, 2200)
"""Plausible years for a clock. The value of a cursor or the timestamp of a file may be of any year."""
SHA256 = "[0-9a-f]{64}"
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=timezone.utc), datetime(2200, 1, 1, tzinfo=timezone.utc)
"""The range of times that a clock may have shown. A time in a watermark may be of any year."""
REQUIRED: Final = object()
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""Characters that file systems, databases and request encodings refuse."""


class Fields:
    """A stored map whose fields are read one by one.

    The methods raise ImplausibleError, which names the field and what was expected, but never the value.

    Parameters
    ----------
    found
        The stored map, unchecked.
    name
        Its place in the item, such as ``unpublished[0]``.
    """

    def __init__(self, found: Any, name: str) -> None:
        self._name = name
        if not isinstance(found, Mapping):
            raise ImplausibleError(f"{name} is not a map")
        self._found = found

    def __contains__(self, field: str) -> bool:
        return self._found.get(field) is not None

    def text(
        self, field: str, default: Any = REQUIRED, *, longest: int = MAX_TEXT, pattern: str = "", what: str = ""
    ) -> Any:
        """Return a text of 1 to `longest` characters that fully matches `pattern`; `what` describes it in the error."""
        found = self._given(field, default)
        if found is default:
            return default
        if not (_is_text(found, longest) and found) or (pattern and not re.fullmatch(pattern, found)):
            raise self.wrong(field, what or f"a text of 1 to {longest:,} characters")
        return found

    def whole(self, field: str, default: Any = REQUIRED, *, least: int = 0, most: int = MAX_COUNT) -> Any:
        """Return a whole number from `least` to `most`."""
        found = self._given(field, default)
        if found is default:
            return default
        # Compare the type itself, because isinstance() would accept True as 1.
        if type(found) is not int or not least <= found <= most:
            raise self.wrong(field, f"a whole number from {least:,} to {most:,}")
        return found

    def flag(self, field: str) -> bool:
        """Return True or False; False if the field is missing."""
        return bool(self.of(field, bool, "True or False", False))

    def names(self, field: str, default: Any = REQUIRED) -> Any:
        """Return a list of texts as a tuple."""
        found = self._given(field, default)
        if found is default:
            return default
        is_list = isinstance(found, list | tuple) and len(found) <= MAX_NAMES
        if not is_list or not all(_is_text(name, MAX_TEXT) for name in found):
            raise self.wrong(field, f"a list of up to {MAX_NAMES:,} texts")
        return tuple(found)

    def moment(self, field: str, default: Any = REQUIRED, years: range = YEARS) -> Any:
        """Return a time; it must have a zone and a year in `years`."""
        found = self.of(field, datetime, "a time", default)
        if found is not default and (found.tzinfo is None or found.year not in years):
            raise self.wrong(field, f"a time with its zone, of the years {years[0]} to {years[-1]}")
        return found

    def of(self, field: str, kind: type[T] | tuple[type[T], ...], what: str, default: Any = REQUIRED) -> Any:
        """Return a value of type `kind`; `what` describes it in the error."""
        found = self._given(field, default)
        if found is not default and not isinstance(found, kind):
            raise self.wrong(field, what)
        return found

    def one_of(self, field: str, known: tuple[str, ...], default: Any = REQUIRED) -> Any:
        """Return a text that is one of `known`."""
        found = self._given(field, default)
        if found is not default and found not in known:
            raise self.wrong(field, f"one of {', '.join(known)}")
        return found

    def any(self, field: str) -> Any:
        """Return a value of any type; None if the field is missing."""
        return self._found.get(field)

    def map(self, field: str) -> Fields:
        """Return a field that is a map, as `Fields`. If the field is missing, return the `Fields` of an empty map."""
        return Fields(self._given(field, {}), f"{self._name}.{field}")

    def utc(self, field: str) -> datetime:
        """Return a time that was stored as a text; it must be between `EARLIEST` and `LATEST`."""
        return clock_time(self.text(field), f"{self._name}.{field}")

    def maps(self, field: str, most: int = MAX_NAMES) -> list[Fields]:
        """Return the fields of each map in a list of up to `most` maps."""
        found = self.of(field, (list, tuple), f"a list of up to {most:,} maps")
        if len(found) > most:
            raise self.wrong(field, f"a list of up to {most:,} maps")
        return [Fields(one, f"{self._name}.{field}[{index}]") for index, one in enumerate(found)]

    def wrong(self, field: str, expected: str) -> ImplausibleError:
        """Return the error for a field whose value is not what was expected."""
        return ImplausibleError(f"{self._name}.{field} is not {expected}")

    def _given(self, field: str, default: Any) -> Any:
        found = self._found.get(field)
        if found is None and default is REQUIRED:
            raise ImplausibleError(f"{self._name}.{field} is missing")
        return default if found is None else found


def _is_text(found: Any, longest: int) -> bool:
    return isinstance(found, str) and len(found) <= longest and _NO_TEXT.search(found) is None


def from_utc_string(text: str) -> datetime:
    """Read what `to_utc_string` wrote: an aware datetime in UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment.astimezone(timezone.utc)


def time_of(text: str, name: str) -> datetime:
    """Return a time that was stored as a text; ImplausibleError if it is not a time or has no zone."""
    try:
        return from_utc_string(text)
    except (ValueError, OverflowError):
        raise ImplausibleError(f"{name} is not a time with its zone") from None


def clock_time(text: str, name: str) -> datetime:
    """Return a stored time between `EARLIEST` and `LATEST`; ImplausibleError for any other."""
    found = time_of(text, name)
    if not EARLIEST <= found <= LATEST:
        raise ImplausibleError(f"{name} is a time of the year {found.year}")
    return found


Tag = Literal["S", "N", "B", "M", "L"]
_TAGS: Mapping[str, tuple[str, type]] = {
    "S": ("a text", str), "N": ("a number", str), "B": ("binary", bytes), "M": ("a map", dict), "L": ("a list", list),
}  # fmt: skip


def attribute_of(item: Mapping[str, Any], name: str, tag: Tag) -> Any:
    """Return the value of an attribute of an item; ImplausibleError if it is missing or of another type."""
    what, kind = _TAGS[tag]
    found = item.get(name)
    if found is None:
        raise ImplausibleError(f"{name} is missing")
    if not isinstance(found, dict) or len(found) != 1 or not isinstance(found.get(tag), kind):
        raise ImplausibleError(f"{name} is not {what}")
    return found[tag]
