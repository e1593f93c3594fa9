"""What a frozen plan stores of a batch of files, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.helpers.errors import LedgerError, SourceChangedError
from scripts.helpers.files.ledger import FORMAT
from scripts.helpers.listing.listing import Location


def plan_of(
    location: Location, segment: Mapping[str, Any] | None, count: int, size: int, has_more: bool = False, gone: int = 0
) -> dict[str, Any]:
    """Return what a frozen plan stores of a batch whose rows lie in a segment."""
    return {
        "kind": "files", "source": location.name, "format": FORMAT, "files": segment,
        "count": count, "bytes": size, "has_more": has_more, "gone": gone,
    }  # fmt: skip


def check_source(stored: Mapping[str, Any], location: Location, context: str) -> None:
    """Raise SourceChangedError if a state or plan is that of another source; LedgerError if its format is not known."""
    fields = stored if isinstance(stored, Mapping) else {}
    if fields.get("kind") != "files" or fields.get("source") != location.name:
        before = str(fields.get("source", f"a source of kind {fields.get('kind')}"))
        raise SourceChangedError(context, before, location.name)
    if fields.get("format") != FORMAT:
        raise LedgerError(
            location.name,
            f"its stored file list has format {fields.get('format')!r}, not {FORMAT}. Update the package.",
        )


def check_state(stored: Mapping[str, Any], location: Location, context: str, mode: str) -> None:
    """Raise as `check_source` does, and SourceChangedError if a state is that of another mode of remembering."""
    check_source(stored, location, context)
    if stored.get("mode") != mode:
        raise SourceChangedError(context, f"mode {stored.get('mode')}", f"mode {mode}")
