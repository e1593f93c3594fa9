"""Read a case by any of the calls, and return its rows as texts that are equal for Spark and pandas."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import Any

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.glue import GlueContext
from tests.reading.contract.cases import Case

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def frame_of(way: str, case: Case, folder: Path, spark: Any) -> Any:
    """Return what one call reads of a case; a Spark frame is lazy."""
    is_csv = case.format == "csv"
    if way == "glue":
        options = dict(case.options) | ({"withHeader": True} if is_csv else {})
        context = GlueContext(spark.sparkContext)
        return context.create_data_frame.from_options("file", {"paths": [str(folder)]}, case.format, options)
    delta = FileBookmark(str(folder)).new_files()
    if way == "read_pandas":
        return delta.read_pandas(case.format, **case.options)
    header = {"header": True} if is_csv else {}
    return getattr(delta, way)(spark, case.format, schema=case.schema, **header, **case.options)


def rows_of(frame: Any) -> list[dict[str, str | None]]:
    """Return the rows of a frame, each value as a text; instants are in UTC and end in Z."""
    if hasattr(frame, "sparkSession"):
        from pyspark.sql import functions

        quoted = {name: f"`{name}`" for name, _ in frame.dtypes}
        times = {name for name, kind in frame.dtypes if kind == "timestamp"}
        micros = [
            functions.expr(f"unix_micros({quoted[name]})").alias(name) if name in times else frame[quoted[name]]
            for name in frame.columns
        ]
        found = [dict(zip(frame.columns, row, strict=True)) for row in frame.select(*micros).collect()]
        for row in found:
            row |= {name: EPOCH + timedelta(microseconds=row[name]) for name in times if row[name] is not None}
    else:
        found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{name: None if value is None else text_of(value) for name, value in row.items()} for row in found]


def collected(frames: list[Any], rows_of: Callable[[Any], list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Return the rows of each frame as `rows_of` does; one Spark job collects all frames with the same column types.

    One job also collects all frames that have only texts, whatever the number of their columns.
    """
    found: list[list[dict[str, Any]]] = [[] for _ in frames]
    alike: dict[Any, list[int]] = {}
    for index, frame in enumerate(frames):
        if not hasattr(frame, "sparkSession"):
            found[index] = rows_of(frame)
            continue
        kinds = tuple(kind for _, kind in frame.dtypes)
        alike.setdefault("texts" if set(kinds) == {"string"} else kinds, []).append(index)
    for places in alike.values():
        from pyspark.sql import functions

        names = [f"_{number}" for number in range(max(len(frames[index].columns) for index in places))]
        parts = []
        for index in places:
            own = len(frames[index].columns)
            more = [functions.lit(None).cast("string").alias(name) for name in names[own:]]
            case = functions.lit(index).alias("_case")
            parts.append(frames[index].toDF(*names[:own]).select("*", *more, case))
        for row in rows_of(reduce(lambda one, other: one.union(other), parts)):
            index = int(row.pop("_case"))
            # The names that were added for the columns of other frames are left over.
            found[index].append(dict(zip(frames[index].columns, row.values(), strict=False)))
    return found


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(plain(value))


def plain(value: Any) -> Any:
    """Return structs as dicts and maps as lists of pairs, as Arrow does."""
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    return [*value.items()] if isinstance(value, dict) and "k" in value else value
