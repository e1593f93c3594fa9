"""Under which names a context of several folders is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scripts.helpers.job import IncrementalJob


def folder_context(context: str, place: str, index: int) -> str:
    """Return the context of one of several folders on a first run: the first keeps the context's own name."""
    return context if index == 0 else f"{context}#{sha256(place.encode()).hexdigest()[:8]}"


def folder_contexts(job: IncrementalJob | None, context: str, folders: Sequence[str]) -> list[str | None]:
    """Name the state of each folder; None where nothing is tracked.

    The context's own name stays with the folder that it was given to first, wherever that stands in
    the list, and if it is gone from it. Other folders have a hash behind it.
    """
    if job is None or not context:
        return [None] * len(folders)
    from scripts.helpers.listing.listing import Location

    places = [Location.parse(folder).name for folder in folders]
    hashed = [folder_context(context, place, 1) for place in places]
    owner = _source(job, context)
    if owner in places:
        return [context if place == owner else name for place, name in zip(places, hashed, strict=True)]
    known = [_source(job, name) is not None for name in hashed]
    if all(known) or (owner is not None and any(known)):
        return list(hashed)
    first = known.index(False)
    return [context if index == first else name for index, name in enumerate(hashed)]


def _source(job: IncrementalJob, context: str) -> str | None:
    """Return the folder that a context remembers, in its state, in an inherited plan or at the end of a range."""
    run = job.run
    until = getattr(run, "until", None)
    for known in (run.planned(context), run.state(context), until(context) if until is not None else None):
        if isinstance(known, Mapping) and known.get("kind") != "nothing":
            return str(known.get("source", known.get("kind")))
    return None
