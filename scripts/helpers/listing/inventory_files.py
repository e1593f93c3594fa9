"""Read and sort the data files of an S3 Inventory (CSV, Parquet) with DuckDB. Pure.

Nothing here calls AWS. A report may have more rows than fit into memory: DuckDB keeps the rest on local disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.objects import LISTED, Interval, no_batch, no_rows
from scripts.helpers.rows.sql import SQL, joined, sql, whole

FORMATS = ("CSV", "Parquet")
NEEDED = {"key": "Key", "size": "Size", "e_tag": "ETag", "last_modified_date": "LastModifiedDate"}
"""Columns that a listing needs: their names in Parquet files, and in a CSV schema."""
OPTIONAL = {
    "version_id": "VersionId",
    "is_latest": "IsLatest",
    "is_delete_marker": "IsDeleteMarker",
    "storage_class": "StorageClass",
}
MAX_TEXT = 1_024
"""Most bytes of a key in S3; other texts of a report are shorter. Parquet stores a text once for all rows that have it,
so without a limit a file of a few kilobytes could fill the disk on which its rows are sorted."""
MEMORY = "512MB"
"""Memory for DuckDB. A file that needs more at once is refused, because a few kilobytes can unpack to any size."""
INTERVAL_ROWS = 250_000
"""Rows to compare with the ledger at once: some 100 MB."""

_PREPARE = f"""
SET TimeZone = 'UTC';
CREATE MACRO text(value) AS if(
    strlen(value) > {MAX_TEXT},
    error(format('a text has {{:,}} bytes, and the limit is {MAX_TEXT:,}', strlen(value))),
    value
);
CREATE MACRO needed(value, name, of_key) AS if(
    value IS NULL, error(printf('the row of key %s has no %s', ifnull('''' || of_key || '''', 'None'), name)), value
);
-- Cast alone, 5.5 is 6.
CREATE MACRO whole(value) AS if(
    CAST(value AS VARCHAR) <> CAST(CAST(value AS BIGINT) AS VARCHAR),
    error(value || ' is no Size'),
    CAST(value AS BIGINT)
);
CREATE TABLE listed (
    key VARCHAR, etag VARCHAR, version_id VARCHAR, size BIGINT, modified TIMESTAMPTZ, storage_class VARCHAR
);
"""
_NAMES = {
    "key": sql("key"), "size": sql("size"), "e_tag": sql("e_tag"), "last_modified_date": sql("last_modified_date"),
    "version_id": sql("version_id"), "is_latest": sql("is_latest"), "is_delete_marker": sql("is_delete_marker"),
    "storage_class": sql("storage_class"),
}  # fmt: skip
_PARQUET = sql("read_parquet($path, binary_as_string = TRUE)")
_TEXTS = ("key", "e_tag", "version_id", "storage_class")


def csv_columns(file_schema: str) -> list[str]:
    """Return the columns of a CSV inventory, in their order, under the names that Parquet uses."""
    known = {shown: name for name, shown in (NEEDED | OPTIONAL).items()}
    return [known.get(shown, shown) for shown in re.split(r"\s*,\s*", file_schema.strip())]


def check_columns(source: str, names: Sequence[str]) -> None:
    """Raise SourceError for columns that are missing, named as the inventory's configuration names them."""
    missing = [shown for name, shown in NEEDED.items() if name not in names]
    if "version_id" in names and "is_latest" not in names:
        missing.append(OPTIONAL["is_latest"])
    if missing:
        raise SourceError(
            source,
            f"the inventory has no {', '.join(missing)}. Add what is missing to the fields of the inventory's "
            "configuration, and wait for the next report.",
        )


class Report:
    """Collects the objects below a prefix from the data files of an inventory.

    Parameters
    ----------
    folder
        A folder on local disk for rows that do not fit into memory.
    source
        The name of the inventory for error messages.
    prefix
        The prefix of the keys; keys in the result are relative to it.

    Every method raises OSError if the disk is full.
    """

    def __init__(self, folder: str, source: str, prefix: str) -> None:
        import duckdb

        # Keep DuckDB from downloading extensions, and from reading Python variables as tables.
        self._database = duckdb.connect(config={
            "memory_limit": MEMORY, "temp_directory": folder, "autoinstall_known_extensions": False,
            "autoload_known_extensions": False, "python_enable_replacements": False,
        })  # fmt: skip
        self._database.execute(_PREPARE)
        self._source, self._prefix = source, prefix

    def add(self, path: str, file_format: str, file_schema: str) -> None:
        """Add the current objects of one data file.

        Parameters
        ----------
        file_format, file_schema
            The format of the file, one of FORMATS, and the names of its columns, both as in the manifest.

        Raises
        ------
        SourceError
            Columns are missing.
        ValueError
            The file does not have the given format, or a row has no key, size, ETag or time.
        """
        with _plain_errors():
            if file_format == "CSV":
                names, reader = csv_columns(file_schema), _csv_reader(len(csv_columns(file_schema)))
                # Number the columns, so that no name from the manifest becomes part of the query.
                places = {name: sql("c{}", whole(number)) for number, name in enumerate(names)}
            else:
                names = self._database.sql(sql("SELECT * FROM {}", _PARQUET), params={"path": path}).columns
                places, reader = {name: _NAMES[name] for name in names if name in _NAMES}, _PARQUET
            check_columns(self._source, names)
            if file_format == "CSV":
                # Keys in CSV are URL-encoded as in a listing, with a plus for a space.
                places["key"] = sql("url_decode(replace({}, '+', ' '))", places["key"])
            columns = {name: places.get(name, sql("NULL")) for name in _NAMES}
            columns |= {name: sql("text(CAST({} AS VARCHAR))", columns[name]) for name in _TEXTS}
            columns = {name: sql("{} AS {}", place, _NAMES[name]) for name, place in columns.items()}
            self._database.execute(
                _insert(joined(", ", columns.values()), reader), {"path": path, "prefix": self._prefix}
            )

    def intervals(self) -> Iterator[Interval]:
        """Yield all objects in consecutive intervals of keys. If a key has several rows, only the newest row counts."""
        after, held = None, no_rows(LISTED)
        with _plain_errors():
            batches = self._database.sql("SELECT * FROM listed ORDER BY key, modified").to_arrow_reader(INTERVAL_ROWS)
            for batch, following in pairwise(chain([no_batch(LISTED)], batches, [None])):
                rows = _newest(pa.concat_tables([held, pa.Table.from_batches([batch]).cast(LISTED)]))
                if following is None:
                    yield Interval(after, None, _batch(rows))
                elif rows.num_rows > 1:
                    # Hold back the last key, because the next batch may begin with more rows of it.
                    held, rows = rows[-1:], rows[:-1]
                    until = rows.column("key")[-1].as_py()
                    yield Interval(after, until, _batch(rows))
                    after = until
                else:
                    held = rows


def _csv_reader(columns: int) -> SQL:
    kinds = joined(", ", [sql("c{}: 'VARCHAR'", whole(number)) for number in range(columns)])
    return sql(
        "read_csv($path, columns = {{{}}}, header = FALSE, auto_detect = FALSE, delim = ',', quote = '\"', "
        "escape = '\"', nullstr = '', compression = 'gzip')",
        kinds,
    )


def _insert(columns: SQL, reader: SQL) -> SQL:
    # A row whose flags are null counts as a current object. Select rows without a key too: `needed` then raises an
    # error, otherwise their objects would be missed. Leave out delete markers, which have no size or ETag.
    return sql(
        """
INSERT INTO listed
SELECT
    substr(needed(key, 'Key', key), length($prefix) + 1),
    trim(needed(e_tag, 'ETag', key), '"'),
    version_id,
    whole(needed(size, 'Size', key)),
    CAST(needed(last_modified_date, 'LastModifiedDate', key) AS TIMESTAMPTZ),
    storage_class
FROM (SELECT {} FROM {}) AS rows
WHERE ifnull(starts_with(key, $prefix), TRUE)
    AND CAST(is_latest AS BOOLEAN) IS NOT FALSE AND CAST(is_delete_marker AS BOOLEAN) IS NOT TRUE
""",
        columns,
        reader,
    )


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return next(iter(rows.combine_chunks().to_batches()), no_batch(LISTED))


def _newest(rows: pa.Table) -> pa.Table:
    """Return the last row of each key from rows that are sorted by key and time."""
    keys = rows.column("key").combine_chunks()
    return rows.filter(
        pa.concat_arrays([pc.not_equal(keys[:-1], keys[1:]), pa.array([True] * min(len(keys), 1), pa.bool_())])
    )


@contextmanager
def _plain_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        told = str(error).partition("\n")[0]
        full = "No space left" in told or "offload" in told
        raise (OSError if full else ValueError)(told) from error
    except RuntimeError as error:  # DuckDB raises it if it cannot decode a column's name as UTF-8.
        raise ValueError("the name of a column is not UTF-8") from error
