"""What an attacker can plant: keys that no listing shows, in the items of a job; code and garbage, in files."""

from __future__ import annotations

import json
import pickle
import random
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.set_aside import RETRY, SetAside
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import LEDGER, TAKEN, local_etag
from scripts.helpers.watermarks import Watermarks
from tests.support.files_states import with_list
from tests.support.steps import commit, frozen

JOB = "parking"
SECRET = b"id\n666\n"
OUTSIDE = "../secret/credentials.csv"
"""The key of the file that `make_secret` writes, relative to a source next to its folder."""


ROW = "org.apache.spark.sql.parquet.row.metadata"
"""The name under which Spark writes its schema in the footer of a Parquet file."""
GARBAGE = ["", "{", "[]", "null", "1", '"long"', "long", "\0", "[" * 100_000, '{"type":' * 5_000, "9" * 100_000]
"""Texts that are not valid JSON or no valid type, are nested too deeply, or are too long."""
WRONG: list[Any] = [
    None, -1, "", [], {}, True, 1e308, "x" * 1_000, "decimal(99,9)", "time(9)", "\ud800", "\0", "a.b", "`", "udt",
]  # fmt: skip
"""Values that replace a value of JSON."""


def make_secret(folder: Path) -> Path:
    """Write a file next to the source of a job, which nobody must be able to read through the job."""
    path = folder / "secret" / "credentials.csv"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


def rows_of(source: str, *keys: str | None, status: str = TAKEN) -> pa.Table:
    """Return ledger rows for keys of a source; keys of existing local files get the files' identities."""
    rows = []
    for key in keys:
        etag, size = "e", 1
        location = Location.parse(source)
        if location.is_local and key is not None and Path(location.prefix + key).is_file():
            found = Path(location.prefix + key).stat()
            etag, size = local_etag(found), found.st_size
        rows.append(
            {
                "key": key, "etag": etag, "version_id": None, "size": size, "modified": _now(), "status": status,
                "version": 1, "run_id": "jr_0",
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, LEDGER).sort_by("key")


def state_of(source: str, *keys: str, **options: Any) -> dict[str, Any]:
    """Return a state in which some keys count as read."""
    bookmark = FileBookmark(source, **options)
    segments = [bookmark.ledger.stored(rows_of(source, *keys))] if keys else []
    return bookmark.following(datetime.now(timezone.utc), segments).to_store()


def plan_of(source: str, *keys: str | None, **options: Any) -> dict[str, Any]:
    """Return a plan that reads some keys."""
    bookmark = FileBookmark(source, **options)
    rows = rows_of(source, *keys)
    location = bookmark.location.name
    return {
        "kind": "files", "source": location, "format": 1, "files": bookmark.ledger.stored(rows), "count": rows.num_rows,
        "bytes": 1, "has_more": False, "gone": 0, "dialect": 1,
    }  # fmt: skip


def plant_plan(watermarks: Watermarks, plan: dict[str, Any], following: dict[str, Any]) -> None:
    """Leave a plan open, as a run that dies does."""
    frozen(watermarks, JOB, "jr_0", plan={"files": plan}, following={"files": following}).abort()


def plant_state(watermarks: Watermarks, state: dict[str, Any]) -> None:
    """Commit a state."""
    commit(watermarks, JOB, "jr_0", {"files": state})


def set_aside(state: dict[str, Any], key: str, decision: str = RETRY) -> dict[str, Any]:
    """Return a state with a file on the list of those that could not be read."""
    return with_list(state, {key: SetAside(key, "e", None, 1, _now(), "a test", 1, "jr_0", decision)})


def _now() -> datetime:
    return datetime(2026, 3, 16, tzinfo=timezone.utc)


class Opened:
    """Opens a file for writing when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        # The path has a fixed length, so that `plant_footer` cuts and alters the same bytes in each folder.
        return open, (str(self.path).rjust(300, "/"), "w")


def plant_type(folder: Path, module: str, unpickled: Path) -> None:
    """Write a Parquet file whose Spark metadata names a type of a module and contains a pickle.

    The file `unpickled` exists once the pickle was loaded.
    """
    pickled = b64encode(pickle.dumps(Opened(unpickled))).decode()
    planted = {"type": "udt", "pyClass": f"{module}.NoSuch", "serializedClass": pickled, "sqlType": "long"}
    kinds = {"id": "long", "bay": {"type": "array", "elementType": planted, "containsNull": True}}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    row = {ROW: json.dumps({"type": "struct", "fields": fields})}
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "bay": [[1]]}).replace_schema_metadata(row), folder / "1.parquet")


# --- the footer of a Parquet file -------------------------------------------------------------------


def plant_schema(path: Path, text: str) -> None:
    """Write a Parquet file with one column, and a text in place of Spark's schema."""
    pq.write_table(pa.table({"id": [1]}).replace_schema_metadata({ROW: text}), path)


def plant_extension(path: Path, name: str, said: bytes) -> None:
    """Write a Parquet file with a column of an extension type, and the footer's description of that type."""
    names = {"ARROW:extension:name": name, "ARROW:extension:metadata": said}
    fields = [pa.field("id", pa.int64()), pa.field("at", pa.int64(), metadata=names)]
    pq.write_table(pa.table([[1], [1]], pa.schema(fields)), path)


def plant_footer(path: Path, chance: random.Random, module: str, unpickled: Path) -> None:
    """Write a Parquet file with metadata of Spark, pandas and Arrow as an attacker may write it; see `plant_type`."""
    kinds = [(pa.string(), "A"), (pa.int64(), 1), (pa.binary(16), b"A" * 16), (pa.list_(pa.int64()), [1])]
    kind, value = chance.choice(kinds)
    table = pa.table({"id": [1], "bay": pa.array([value], kind)})
    code = b64encode(pickle.dumps(Opened(unpickled))).decode()
    makers = {
        ROW: lambda: _of_spark(chance, module, code),
        "pandas": lambda: _of_pandas(chance, module),
        "ARROW:schema": lambda: _of_arrow(chance, table.schema, unpickled),
        "org.apache.spark.version": lambda: chance.choice(GARBAGE),
        "org.apache.spark.timeZone": lambda: chance.choice(["Nowhere/X", *GARBAGE]),
    }
    planted = {name: make() for name, make in makers.items() if chance.random() < 0.6}
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({name: text.encode(errors="surrogatepass") for name, text in planted.items()})


def _of_spark(chance: random.Random, module: str, code: str) -> str:
    kinds: dict[str, Any] = {"id": "long", "bay": chance.choice(["string", "long", "binary"])}
    if chance.random() < 0.7:
        planted: Any = {"type": "udt", "sqlType": chance.choice(["long", "string", None, {}])}
        planted["pyClass"] = f"{chance.choice([module, 'os', 'pyspark.ml.linalg'])}.NoSuch"
        planted |= {"serializedClass": code} if chance.random() < 0.8 else {}
        planted |= {"class": "java.lang.Runtime"} if chance.random() < 0.2 else {}
        for _ in range(chance.choice([0, 0, 1, 2])):
            field = {"name": "x", "type": planted, "nullable": True, "metadata": {}}
            planted = chance.choice(
                [
                    {"type": "array", "elementType": planted, "containsNull": True},
                    {"type": "map", "keyType": "string", "valueType": planted, "valueContainsNull": True},
                    {"type": "struct", "fields": [field]},
                ]
            )
        kinds[chance.choice(list(kinds))] = planted
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    text = _spoiled(chance, {"type": "struct", "fields": fields})
    # An escaped spelling of the same name, which a search in the file's text would miss.
    return text.replace("serializedClass", "serialized\\u0043lass") if chance.random() < 0.2 else text


def _of_pandas(chance: random.Random, module: str) -> str:
    span = {"kind": "range", "name": "id", "start": 0, "stop": 10**18, "step": 1}
    numpy_types = ["int64", "category", "datetime64[ns]", "object", f"{module}.NoSuch", "period[D]"]
    columns = [
        {
            "name": name, "field_name": name, "pandas_type": chance.choice(["int64", "unicode", "datetimetz"]),
            "numpy_type": chance.choice(numpy_types), "metadata": chance.choice([None, {"timezone": "Nowhere/X"}]),
        }
        for name in ("id", "bay")
    ]  # fmt: skip
    index = chance.choice([[], ["bay"], ["nosuch"], [span]])
    made = {"index_columns": index, "column_indexes": [], "columns": columns, "pandas_version": "2.0"}
    return _spoiled(chance, made)


def _of_arrow(chance: random.Random, schema: pa.Schema, unpickled: Path) -> str:
    kinds = ["arrow.py_extension_type", "arrow.uuid", "arrow.json", "arrow.fixed_shape_tensor", "pandas.period", "x.X"]
    contents = [b"", b"{}", b'{"shape":[-1,99999999999]}', b'{"freq":1}', b"[" * 50_000, b"\xff"]
    fields = []
    for field in schema:
        content = pickle.dumps(Opened(unpickled)) if chance.random() < 0.4 else chance.choice(contents)
        names = {b"ARROW:extension:name": chance.choice(kinds).encode(), b"ARROW:extension:metadata": content}
        fields.append(field.with_metadata(names))
    data = bytearray(pa.schema(fields).serialize().to_pybytes())
    for _ in range(chance.choice([0, 0, 0, 3])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return chance.choice([b64encode(data).decode()] * 5 + ["", "!", "AAAA", "A" * 100_000])


def _spoiled(chance: random.Random, made: Any) -> str:
    """Return JSON with one value replaced, cut off or replaced as a whole, or unchanged."""
    if chance.random() < 0.4:
        holder, name = chance.choice(list(_places(made)))
        holder[name] = chance.choice(WRONG)
    text = json.dumps(made)
    return chance.choice([*[text] * 8, text[: chance.randrange(len(text))], chance.choice(GARBAGE)])


def _places(made: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each value within JSON, as its container and its name or index there."""
    for name in made if isinstance(made, dict) else range(len(made)):
        yield made, name
        if isinstance(made[name], (dict, list)):
            yield from _places(made[name])


# --- an SQLite file ---------------------------------------------------------------------------------


def altered_bytes(data: bytes, chance: random.Random, page: int = 4096) -> bytes:
    """Return the bytes of an SQLite file cut off, or with a page, a header, a page's header or any bytes altered."""
    if chance.random() < 0.2:
        return data[: chance.randrange(len(data))]
    altered = bytearray(data)
    at = chance.randrange(len(data) // page) * page
    if chance.random() < 0.2:
        altered[at : at + page] = chance.choice([bytes(page), b"\xff" * page, chance.randbytes(page), data[:page]])
    first, size = chance.choice([(0, 100), (at, 12), (0, len(data)), (0, page)])
    for _ in range(chance.choice([1, 3, 30])):
        altered[first + chance.randrange(size)] = chance.randrange(256)
    return bytes(altered)
