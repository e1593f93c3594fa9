"""Partition columns with any name and value are read back equal by each engine that reads partition folders."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from tests.sinks.contract.targets import Copy, Files, Rows, Target, every, literal, shown, spark_schema

WORDS = [
    " ", "  x ", "a b", "\u00e9", "\U0001f600", "a/b", "a=b", "a%b", "a%20b", "%41", "a:b", "a\\b", "'", '"', "?", "#",
    "*", "+", "{x}", "[x]", "a\nb", "\x7f", ".", "~", "007", "1.0", "true", "NULL", "null", "NaN", "2026-01-01", None,
]  # fmt: skip
COLUMNS: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "a=b": (pa.string(), WORDS, "VARCHAR"),
    "a%41": (pa.date32(), [date(1, 1, 1), date(1500, 1, 1), date(2026, 11, 27), None], "DATE"),
    "a/b": (
        pa.timestamp("us"), [datetime(1, 1, 1), datetime(2026, 3, 29, 1, 30, 0, 120_000), datetime(2026, 3, 29), None],
        "TIMESTAMP",
    ),
    "\u00fc b": (pa.int64(), [7, -(2**63), None], "BIGINT"),
    "Flag": (pa.bool_(), [True, False, None], "BOOLEAN"),
}  # fmt: skip
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _, _) in COLUMNS.items())])
ESCAPED = {"a%3Db": "a=b", "a%2541": "a%41", "a%2Fb": "a/b"}
"""DuckDB leaves the names of columns as folders have them."""


def by_pyarrow(path: str) -> Rows:
    found: Rows = ds.dataset(path, partitioning=ds.partitioning(SCHEMA.remove(0), flavor="hive")).to_table().to_pylist()
    return found


def by_pandas(path: str) -> Rows:
    parted = ds.partitioning(SCHEMA.remove(0), flavor="hive")
    found: pd.DataFrame = pd.read_parquet(path, partitioning=parted, dtype_backend="pyarrow")
    return pa.Table.from_pandas(found).to_pylist()


def by_duckdb(path: str) -> Rows:
    folders = {name: kind for name, (_, _, kind) in COLUMNS.items()}
    types = {next((one for one, of in ESCAPED.items() if of == name), name): kind for name, kind in folders.items()}
    listed = ", ".join(f"'{name}': {kind}" for name, kind in types.items())
    text = f"FROM read_parquet('{path}/**/*.parquet', hive_partitioning=true, hive_types={{{listed}}})"
    found = pa.table(duckdb.execute(text).to_arrow_table())
    return found.rename_columns([ESCAPED.get(name, name) for name in found.column_names]).to_pylist()


READERS: list[Callable[[str], Rows]] = [by_pyarrow, by_pandas, by_duckdb]


@every("partition_by", where=lambda kind: kind.family == "files" and kind.form == "parquet" and not kind.on_s3)
def test_rows_are_read_back_by_four_engines_when_folders_have_odd_names_and_values(
    target: Target, copy: Copy, spark: SparkSession
) -> None:
    assert isinstance(target, Files)
    columns = {
        name: pa.array([values[at % len(values)] for at in range(len(WORDS))], kind)
        for name, (kind, values, _) in COLUMNS.items()
    }
    rows = pa.table({"id": pa.array(range(len(WORDS)), pa.int64()), **columns}, SCHEMA)

    copy.run(rows, partition_by=list(COLUMNS))

    wanted = shown(rows.to_pylist())
    for read in READERS:
        assert shown(read(target.place.uri)) == wanted, read.__name__
    found = spark.read.schema(spark_schema(SCHEMA)).parquet(literal(target.place.uri)).collect()
    assert shown([row.asDict() for row in found]) == wanted
