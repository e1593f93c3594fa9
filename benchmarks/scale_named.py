"""New objects among many known ones, found without a listing, by events or a journal. Prints one line of JSON.

    python -m benchmarks.scale_named folder --known 100000 --new 1000 --keys random --by journal

It starts from the state that `benchmarks.scale_driver` saved in the folder, in a process without Spark. Keys by date
are the last ones of each folder; random keys are between the known ones.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.file_steps import SOURCE, peak_mb
from benchmarks.landing_server import FOLDERS, SIZE, etags
from benchmarks.scale_driver import loaded
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.listing.metadata_tables import CHANGES


class Named(NamedTuple):
    """The keys that messages name."""

    keys: list[str]
    has_more: bool = False


def objects_of(known: int, new: int, kind: str) -> list[tuple[int, int, str]]:
    """Return folder, number and key of each new object."""
    each, rng = known // FOLDERS, random.Random(4)
    if kind == "dates":
        places = [(index % FOLDERS, each + index // FOLDERS) for index in range(new)]
    else:
        places = [divmod(place, each) for place in rng.sample(range(known), new)]
    late = "-late" if kind == "random" else ""
    return [(folder, number, f"day={folder:05d}/part-{number:09d}{late}.json") for folder, number in places]


def main() -> None:
    """Find the named objects, and print seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--known", type=int, required=True)
    parser.add_argument("--new", type=int, required=True)
    parser.add_argument("--keys", choices=["dates", "random"], required=True)
    parser.add_argument("--by", choices=["events", "journal"], required=True)
    given = parser.parse_args()
    state, _ = loaded(given.folder / "state.json")
    folders, numbers, keys = zip(*objects_of(given.known, given.new, given.keys), strict=True)
    raw = etags(np.array(folders), np.array(numbers))
    identities = [row.tobytes().decode() for row in raw]
    started = time.perf_counter()
    bookmark = FileBookmark(SOURCE, state=state, ledger_uri=str(given.folder / "ledger"))
    now = datetime.now(timezone.utc)
    if given.by == "events":
        found = bookmark.find_among(Named(list(keys)), now)
    else:
        columns = [keys, identities, [None] * given.new, [SIZE] * given.new, [False] * given.new]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGES, strict=True)]
        recorded = bookmark.find_recorded(pa.Table.from_arrays(arrays, schema=CHANGES), now, {})
        assert recorded is not None
        found = recorded
    seconds = time.perf_counter() - started
    if found.delta.count != given.new:
        raise SystemExit(f"{found.delta.count:,} of {given.new:,} new objects were found")
    sys.stdout.write(json.dumps({"seconds": seconds, "mb": peak_mb()}) + "\n")


if __name__ == "__main__":
    main()
