"""What somebody can plant: keys that no listing shows, in a job's items; a type that runs code, in a Parquet file."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
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
"""The key of what `make_secret` writes, for a source beside its folder."""


def make_secret(folder: Path) -> Path:
    """Write a file beside the source of a job, which nobody may read for it."""
    path = folder / "secret" / "credentials.csv"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


def rows_of(source: str, *keys: str | None, status: str = TAKEN) -> pa.Table:
    """Return rows of a ledger for keys of a source; those that lead to local files have their identities."""
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
    """Return a state that knows some keys as taken."""
    bookmark = FileBookmark(source, **options)
    segments = [bookmark.ledger.stored(rows_of(source, *keys))] if keys else []
    return bookmark.following(datetime.now(timezone.utc), segments).to_store()


def plan_of(source: str, *keys: str | None, **options: Any) -> dict[str, Any]:
    """Return a plan that takes some keys."""
    bookmark = FileBookmark(source, **options)
    rows = rows_of(source, *keys)
    location = bookmark.location.name
    return {
        "kind": "files", "source": location, "format": 1, "files": bookmark.ledger.stored(rows), "count": rows.num_rows,
        "bytes": 1, "has_more": False, "gone": 0, "dialect": 1,
    }  # fmt: skip


def plant_plan(watermarks: Watermarks, plan: dict[str, Any], following: dict[str, Any]) -> None:
    """Leave a plan open, as a run does that dies."""
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
    """Opens a file to write where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def plant_type(folder: Path, module: str, unpickled: Path) -> None:
    """Write a Parquet file whose metadata, as Spark writes them, name a type of a module, with a pickle.

    The file `unpickled` is there once the pickle was loaded.
    """
    pickled = b64encode(pickle.dumps(Opened(unpickled))).decode()
    planted = {"type": "udt", "pyClass": f"{module}.NoSuch", "serializedClass": pickled, "sqlType": "long"}
    kinds = {"id": "long", "bay": {"type": "array", "elementType": planted, "containsNull": True}}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    row = {"org.apache.spark.sql.parquet.row.metadata": json.dumps({"type": "struct", "fields": fields})}
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "bay": [[1]]}).replace_schema_metadata(row), folder / "1.parquet")
