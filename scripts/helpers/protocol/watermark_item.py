"""Dictionaries that look-ups return to scripts. Reading a missing name raises an error that lists all names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.helpers.errors import UnknownWatermarkError
from scripts.helpers.protocol.items import HASH_KEY, WATERMARKS


class StoredBytes(bytes):
    """Bytes in a state, such as a bookmark's list of taken files. They print as their size, not as their content."""

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes>"


def without_bytes(state: Any) -> Any:
    """Return a state whose packed lists of taken files print as their sizes; return any other value unchanged."""
    if not isinstance(state, dict) or not isinstance(state.get("segments"), list):
        return state
    return state | {"segments": [_printed(segment) for segment in state["segments"]]}


def _printed(segment: Any) -> Any:
    data = segment.get("data") if isinstance(segment, dict) else None
    return segment | {"data": StoredBytes(data)} if isinstance(data, bytes) else segment


class Watermarked(dict[str, Any]):
    """The values of a run by name. A look-up of an unknown name raises UnknownWatermarkError, a KeyError."""

    job_id = ""

    def __missing__(self, name: str) -> Any:
        """Raise an error that lists the stored names, because scripts may ask for a name that was never stored."""
        raise UnknownWatermarkError(self.job_id, name, sorted(self))


class WatermarkItem(dict[str, Any]):
    """A run's item. ``item[name]`` finds values in ``watermarks`` and beside it, where the original class kept some."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> WatermarkItem:
        """Return the item that a look-up read, a plain dict, as a `WatermarkItem`."""
        values = Watermarked(found[WATERMARKS])
        values.job_id = found[HASH_KEY]
        return cls({**found, WATERMARKS: values})

    def __missing__(self, name: str) -> Any:
        """Return the watermark of that name. In items of the original class it may be at the top level."""
        values = self[WATERMARKS]
        if name not in values:
            raise UnknownWatermarkError(values.job_id, name, [*self, *sorted(values)])
        return values[name]
