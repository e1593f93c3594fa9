"""Stage the frames of a batch: one write for each target."""

from __future__ import annotations

from contextlib import suppress
from os import PathLike, fspath
from typing import Any

from scripts.helpers._lazy import DataFrame, pd
from scripts.helpers.batch.batch import Batch
from scripts.helpers.errors import InvalidValueError, PlanConflictError, StoreUnavailableError, TargetError
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.reading.search import source_error
from scripts.helpers.sinks.choice import Layout, sink_for
from scripts.helpers.sinks.given_frames import check_names
from scripts.helpers.sinks.places import is_within, place_of_name
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.sinks.staged_rows import columns_of

KINDS_STAGED_IN_TABLE = ("database", "iceberg")
"""Kinds of sinks that stage beside the table itself. Another spelling of the table's name leads to the same place."""


def write(
    batch: Batch, df: DataFrame | pd.DataFrame, target: str | PathLike[str] | Sink, layout: Layout
) -> Output | None:
    """Stage rows and return the output, or None if their source has nothing new; see `IncrementalJob.write`."""
    batch.check_open("write")
    is_place = isinstance(target, (str, PathLike)) or hasattr(target, "stage")
    if isinstance(df, (str, PathLike)) or not is_place:
        raise InvalidValueError(
            f"The rows are a {type(df).__name__} and the target is a {type(target).__name__}. Give the rows first, and "
            "then a path or a sink: job.write(rows, target)."
        )
    if isinstance(target, (str, PathLike)):
        sink = sink_for(fspath(target), df, layout, batch.s3_client)
    elif layout == Layout():
        sink = target
    else:
        raise InvalidValueError(f"{layout} is given with a sink, which has its own. Give it to the sink.")
    place, written = place_of_name(sink.name), {place_of_name(other.name) for other, _ in batch.publication.staged}
    if place in written:
        raise _written_twice(batch, sink)
    for other in written if "://" in place else ():
        if place.startswith(other) or other.startswith(place):
            raise TargetError(
                sink.name,
                f"it and the target {other!r} of this run are one in the other, so readers of the outer one would "
                "see the rows of both. Write elsewhere.",
            )
    check_names(df, is_marked=sink.rules is not None)
    rows = sink.check(df)
    _check_apart_from_sources(batch, sink, df)
    contexts: set[str] = set()
    if batch.saves and (batch.frames or batch.counts.names) and hasattr(df, "sparkSession"):
        # Import this here, because only frames of Spark have a plan to inspect.
        from scripts.helpers.batch.parts import contexts_of

        contexts = contexts_of(batch, sink, df)
    batch.wrote(df, contexts)
    batch.publication.witness.ask(sink)
    # In a run that saves nothing, continue even without new rows, to replace what an earlier attempt published.
    if batch.saves and not columns_of(df) and not batch.publication.due:
        return None
    # Freeze the plan before the first byte is written, so that another attempt would write the same rows.
    is_frozen_before = batch.run.plan is not None
    batch_id = batch.freeze().id
    # If the plan was frozen earlier, check that the run still has the job. A freeze just now has checked that.
    if is_frozen_before:
        batch.run.check()
    # First publish earlier batches whose target only this sink can reach, so that readers see batches in order.
    batch.publication.finish(sink)
    with batch.setting_aside_unreadable(), batch.typed_errors():
        try:
            output = sink.stage(batch_id, batch.run.fence, rows, replaces=not batch.saves)
        except TargetError as error:
            # Raise the source's error if that is the cause: the sink blames its table for any error during the write.
            if found := source_error(error):
                raise found from error
            # Raise FencedError if another run took over: that run deletes what is staged here, which causes this error.
            with suppress(StoreUnavailableError):
                batch.run.check()
            raise
    try:
        if batch.saves:
            # Check that the record can be read back, because no run could begin with an unreadable record in the head.
            Output.from_record(output.record(), "its record", output.job_id)
    except ImplausibleError as error:
        sink.drop(output)
        raise TargetError(sink.name, f"{error}. Give it a shorter name.") from error
    if _is_staged_beside_another(batch, sink, output):
        sink.drop(output)
        raise _written_twice(batch, sink)
    batch.publication.add(sink, output)
    return output


def _written_twice(batch: Batch, sink: Sink) -> PlanConflictError:
    return PlanConflictError(
        batch.run.job_id,
        f"this batch was written to {sink.name!r} already, and only one of the two writes would be kept. Union the "
        "frames, or give another target.",
    )


def _is_staged_beside_another(batch: Batch, sink: Sink, output: Output) -> bool:
    """Return whether the batch was staged for this table before, under another name of the table."""
    # Two outputs of a batch may name one table as `repairs` and `public.repairs`, or by two catalogs. A table records
    # a batch only once: it would take one of the two outputs, and the rows of the other would be lost without an error.
    staged = [other.folder for _, other in batch.publication.staged if other.sink == output.sink]
    # A staging table or branch belongs to one table: if `sink` finds one of an earlier output of the batch, both go to
    # that table. Do not compare staging folders, which tables may share: `write` has compared the targets' paths.
    if not staged or output.sink not in KINDS_STAGED_IN_TABLE or "://" in output.staging:
        return False
    return not set(staged).isdisjoint(sink.staged(output.job))


def _check_apart_from_sources(batch: Batch, sink: Sink, df: Any) -> None:
    """Raise TargetError if a folder of the target is within a folder of a source, or the other way round."""
    sources = batch.folders
    # Get the target's folders only if there are sources to compare, because that may take a request to a catalog.
    for place in sink.places(df) if sources else ():
        for source in sources:
            if is_within(place, source):
                raise TargetError(
                    place, f"it is below the source {source!r}, whose next run would read it. Write elsewhere."
                )
            if is_within(source, place):
                raise TargetError(
                    place,
                    f"the source {source!r} is below it, so readers of the target would read the source's files as "
                    "rows, and a clean-up of the table would delete them. Write elsewhere.",
                )
