"""Find the sink for a target by its name alone, which an operator gives."""

from __future__ import annotations

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.sinks.choice import Layout, sink_for
from scripts.helpers.sinks.delta_log import LOG
from scripts.helpers.sinks.places import place_of
from scripts.helpers.sinks.sink import Sink


def sink_at(target: str) -> Sink:
    """Return the sink for a target: "lake.raw.repairs" is an Iceberg table, a path a Delta table or a folder of files.

    InvalidValueError if the target is a database, or a folder without files.
    """
    if target.startswith("database:"):
        raise InvalidValueError(
            f"Only the job's script reaches {target!r}. Call after_restore(…, sinks=[its DatabaseSink], …) there."
        )
    if "/" not in target:
        return sink_for(target, None, Layout("iceberg"), None)
    place = place_of(target, None, None)
    if not place.files(most=1):
        raise InvalidValueError(f"There are no files at {target!r}. Name the target as the job does.")
    is_delta = bool(place.files(LOG, most=1))
    return sink_for(target, None, Layout("delta" if is_delta else "parquet"), None)
