"""What a look-up returns to a script: dictionaries that explain a name which they lack. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.helpers.errors import UnknownWatermarkError
from scripts.helpers.protocol.items import HASH_KEY, WATERMARKS


class StoredBytes(bytes):
    """Bytes of a state, such as the files that a bookmark knows: they print as their number."""

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes>"


def without_bytes(state: Any) -> Any:
    """Return a state whose segments of known files print as numbers; any other value as it is."""
    if not isinstance(state, dict) or not isinstance(state.get("segments"), list):
        return state
    return state | {"segments": [_printed(segment) for segment in state["segments"]]}


def _printed(segment: Any) -> Any:
    data = segment.get("data") if isinstance(segment, dict) else None
    return segment | {"data": StoredBytes(data)} if isinstance(data, bytes) else segment


class Watermarked(dict[str, Any]):
    """The values of a run by name. A look-up of another name is an UnknownWatermarkError, which is a KeyError."""

    job_id = ""

    def __missing__(self, name: str) -> Any:
        """Say which names there are: scripts read under another name than they stored, as the playbook's page does."""
        raise UnknownWatermarkError(self.job_id, name, sorted(self))


class WatermarkItem(dict[str, Any]):
    """The item of a run. What the original class kept beside ``watermarks``, by its `key=`, is found in there."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> WatermarkItem:
        """Return a plain item of a look-up as one of these."""
        values = Watermarked(found[WATERMARKS])
        values.job_id = found[HASH_KEY]
        return cls({**found, WATERMARKS: values})

    def __missing__(self, name: str) -> Any:
        """Return the value of the name, as it would be in an item of the original class."""
        values = self[WATERMARKS]
        if name not in values:
            raise UnknownWatermarkError(values.job_id, name, [*self, *sorted(values)])
        return values[name]
