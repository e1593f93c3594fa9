"""Random stories of truncated uploads: targets match the committed files, and miss no row once all files are whole."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.long import cases

STEPS = 3
TRIES = 4
SCHEMA = "id BIGINT, n BIGINT, name STRING"
NAMES = ["oak", "elm row", "a, b", 'the "lot"', "é", "{x}", "1}"]
Row = tuple[Any, ...]


class Story:
    """A folder of files of one kind, the job that reads them, and what it should have committed."""

    def __init__(self, kind: str, reader: str, seed: int, folder: Path, spark: Any) -> None:
        self.kind, self.reader, self.spark = kind, reader, spark
        self.random = random.Random(seed)
        self.mode = self.random.choice(["raise", "set_aside"] if reader == "read_pandas" else MODES)
        self.landing, self.target = folder / "landing", folder / "raw"
        self.landing.mkdir()
        self.watermarks = Watermarks(f"sqlite:{folder}/watermarks.db")
        self.watermarks.create_table()
        self.rows: dict[str, list[Row]] = {}
        self.cut: dict[str, bytes] = {}
        """The bytes of each truncated file: the first ones of the whole file."""
        self.expected: Counter[Row] = Counter()
        self.runs = 0
        self.told: list[str] = []

    # --- files ----------------------------------------------------------------------------------

    def upload(self) -> None:
        """Add a few files, some of them truncated."""
        for _ in range(self.random.randint(1, 3)):
            name = f"{len(self.rows)}.{self.kind}"
            start = 100 * len(self.rows)
            self.rows[name] = [
                (start + row, self.random.randrange(10, 10**6), self.random.choice(NAMES))
                for row in range(self.random.randint(1, 5))
            ]
            body = self.body(name)
            if self.random.random() < 0.6:
                body = self.cut[name] = body[: self.random.randrange(len(body))]
            (self.landing / name).write_bytes(body)
            self.told.append(f"{name}: {body[-30:]!r}{' is cut off' if name in self.cut else ''}")

    def complete(self, names: list[str]) -> None:
        """Upload the whole files in place of the truncated ones."""
        for name in names:
            del self.cut[name]
            (self.landing / name).write_bytes(self.body(name))
        self.told.append(f"whole now: {names}")

    def body(self, name: str) -> bytes:
        columns, rows = ("id", "n", "name"), self.rows[name]
        if self.kind == "parquet":
            made = pd.DataFrame(rows, columns=[*columns]).astype({"name": "string"})
            return bytes(made.to_parquet(index=False))
        if self.kind == "json":
            return "".join(f"{json.dumps(dict(zip(columns, row, strict=True)))}\n" for row in rows).encode()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        data = text.getvalue().encode()
        return gzip.compress(data, mtime=0) if self.kind == "csv.gz" else data

    def read_of(self, name: str) -> list[Row]:
        """Return the rows that the file has now. A truncated file has those before the cut."""
        start = self.cut.get(name)
        if start is None:
            return self.rows[name]
        if self.kind not in ("csv", "json"):
            assert start == b"", f"{name} of {len(start)} bytes was committed: {self}"
            return []
        *lines, rest = start.split(b"\n")
        count = len(lines) - (self.kind == "csv")
        whole = self.rows[name][: max(count, 0)]
        tail = self.tail(name, rest, count) if rest else None
        return [*whole, tail] if tail is not None else whole

    def tail(self, name: str, rest: bytes, at: int) -> Row | None:
        """Return the truncated line as a row, or None if it is not one. In CSV it may be a row with a shorter text."""
        if self.kind == "json":
            return self.rows[name][at] if rest.endswith(b"}") and is_json(rest) else None
        if at < 0 or rest.count(b'"') % 2:
            return None
        try:
            (values,) = csv.reader([rest.decode()])
        except UnicodeDecodeError:
            return None
        return (int(values[0]), int(values[1]), values[2] or None) if len(values) == len(SCHEMA.split(",")) else None

    # --- runs -----------------------------------------------------------------------------------

    def load(self) -> bool:
        """Run the job until it commits; return False if it stops at a truncated file."""
        for _ in range(TRIES):
            self.runs += 1
            try:
                taken = self.run()
            except WatermarkError as error:
                self.told.append(f"{type(error).__name__}: {error}")
                assert self.cut, self
                if self.mode != "set_aside":
                    return False
            else:
                self.told.append(f"committed: {taken}")
                self.expected.update(row for name in taken for row in self.read_of(name))
                return True
        raise AssertionError(f"no run commits: {self}")

    def run(self) -> list[str]:
        """Run the job once; return the files that the run has committed."""
        with IncrementalJob(self.watermarks, "cut", f"jr_{self.runs}", spark=self.spark) as job:
            landed = job.new_files(
                str(self.landing),
                transformation_ctx="files",
                on_unreadable="set_aside" if self.mode == "set_aside" else "raise",
            )
            planned = [Path(path).name for path in landed.paths]
            if planned:
                job.write(self.frame(landed), str(self.target))
        return [name for name in planned if name not in landed.set_aside]

    def frame(self, landed: Any) -> Any:
        form = self.kind.partition(".")[0]
        if self.reader == "read_pandas":
            return landed.read_pandas(form)
        options = {"rescue": True} if self.mode == "rescue" else {}
        if form == "csv":
            options["header"] = True
        if self.reader == "read_small":
            return landed.read_small(self.spark, form, SCHEMA, **options)
        return landed.read(self.spark, form, schema=SCHEMA, **options)

    def check(self) -> None:
        """Compare the rows at the target with those of the files that were committed."""
        found: Counter[Row] = Counter()
        for file in self.target.glob("*.parquet"):
            rows = pq.read_table(file).to_pylist()
            found.update((row["id"], row["n"], row["name"] or None) for row in rows if row.get("_rescued") is None)
        assert found == self.expected, f"{found - self.expected} or not {self.expected - found}: {self}"

    def __str__(self) -> str:
        return "\n".join([f"{self.kind} by {self.reader}, {self.mode}", *self.told])


MODES = ["raise", "set_aside", "rescue"]


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# Spark runs take seconds, so `make test` runs only one story with Spark.
FEW = [("read", "csv")]
WAYS = [
    pytest.param(
        reader, kind, id=f"{reader}-{kind}",
        marks=[] if reader == "read_pandas" or (reader, kind) in FEW else [pytest.mark.long],
    )
    for reader in ("read_pandas", "read", "read_small")
    for kind in ("csv", "json", "parquet", "csv.gz")
    if (reader, kind) != ("read_small", "parquet")
]  # fmt: skip


@pytest.mark.parametrize("seed", range(cases(1, long=40)))
@pytest.mark.parametrize(("reader", "kind"), WAYS)
def test_rows_are_whole_and_none_is_missing_when_files_are_cut_off_between_runs(
    reader: str, kind: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spark = None if reader == "read_pandas" else request.getfixturevalue("spark")
    story = Story(kind, reader, seed, tmp_path, spark)

    for _ in range(STEPS):
        story.upload()
        if not story.load():
            # The operator reads the error and uploads the truncated files again.
            story.complete([*story.cut])
            if story.watermarks.latest("cut").plan is not None:
                story.watermarks.discard_plan("cut", why="its files are whole now")
            assert story.load(), str(story)
        story.check()
        story.complete([name for name in story.cut if story.random.random() < 0.5])
    story.complete([*story.cut])
    assert story.load(), str(story)
    story.check()

    missing = Counter(row for rows in story.rows.values() for row in rows) - story.expected
    assert not missing, str(story)
