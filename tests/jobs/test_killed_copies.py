"""Copies equal their sources although the driver and Spark's JVM are killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.watermarks import Watermarks
from tests.jobs.copying import DAY, Copies, Settings, merged_rows
from tests.support.databases import PostgresServer
from tests.support.long import cases
from tests.support.patience import LONG
from tests.support.places import REPOSITORY
from tests.support.versioned_tables import DeltaByHand, IcebergByHand

WRITERS = 6
KILLS = cases(1, long=25)
"""Kills of jobs on Spark. After each, a JVM has to start again."""
KILLS_WITHOUT = cases(2, long=60)
Grow = Callable[[], None]

pytestmark = pytest.mark.timeout(LONG)


@contextmanager
def process_of(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    """Start the jobs; at the end, kill every process that belongs to them."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.copying", settings.as_text()],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        # Kill the whole session: Spark's JVM is a separate process, which would go on writing.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def kill_over_and_over(settings: Settings, grow: Grow, chance: random.Random, kills: int, most: int) -> list[str]:
    """Grow the sources at each line of output, and kill the jobs after some lines; return the last line of each."""
    last = []
    for _ in range(kills):
        with process_of(settings) as process:
            assert process.stdout is not None and process.stderr is not None
            for _ in range(chance.randint(1, most)):
                line = process.stdout.readline()
                assert line, process.stderr.read()
                grow()
        last.append(line.strip())
    return last


def drained(copies: Copies) -> None:
    """Run each job twice: the first run replays an open plan, the second reads the rest."""
    for name in copies.settings.jobs:
        for _ in range(2):
            copies.run(name, lambda line: None)


class Writers:
    """Transactions that insert, commit and abort in random order."""

    def __init__(self, postgres: PostgresServer, table: str, chance: random.Random) -> None:
        self.table, self.chance, self.count = table, chance, 0
        self.open = [postgres.connect() for _ in range(WRITERS)]
        for connection in self.open:
            connection.autocommit = False

    def grow(self) -> None:
        for _ in range(2 * WRITERS):
            connection, step = self.chance.choice(self.open), self.chance.random()
            if step < 0.6:
                self.count += 1
                connection.execute(f"INSERT INTO {self.table} (note) VALUES ({self.count})")
            elif step < 0.9:
                connection.commit()
            else:
                connection.rollback()

    def close(self) -> None:
        for connection in self.open:
            connection.commit()
            connection.close()


def test_copies_have_each_id_once_when_driver_and_jvm_are_killed_while_six_writers_commit_in_any_order(
    jdbc: Any, postgres: PostgresServer, live: Watermarks, endpoint: str, tmp_path: Path
) -> None:
    chance = random.Random(KILLS)
    source = postgres.new_table("id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note int")
    merged = postgres.new_table("id bigint PRIMARY KEY, note int")
    settings = Settings(
        str(tmp_path), live.table_name, endpoint, ["ids"], postgres.url, postgres.properties, source, merged
    )

    with closing(Writers(postgres, source, chance)) as writers:
        writers.grow()
        kill_over_and_over(settings, writers.grow, chance, KILLS, most=12)
    drained(Copies(settings, jdbc))

    committed = postgres.sql(f"SELECT id, note FROM {source} ORDER BY id")
    appended = jdbc.read.parquet(f"{tmp_path}/ids").orderBy("id").collect()
    assert [tuple(row) for row in appended] == committed
    assert postgres.sql(f"SELECT id, note FROM {merged} ORDER BY id") == committed
    assert len(committed) > WRITERS


class Lake:
    """Growing and changing partitions of files, and tables of Delta and Iceberg."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance, self.root = chance, folder / "lake"
        self.delta, self.iceberg = DeltaByHand(folder), IcebergByHand(folder)
        self.last = 0
        self.versions: dict[int, int] = {}

    def grow(self) -> None:
        """Add rows to every source, some to old partitions; change a known row, and sometimes delete it from Delta."""
        self.last += 1
        known = self.chance.randint(1, self.last)
        for number in {self.last, known}:
            self.versions[number] = self.versions.get(number, 0) + 1
            folder = self.root / f"{DAY}=2026-11-{self.chance.randint(1, 5):02}"
            folder.mkdir(parents=True, exist_ok=True)
            # Rename the finished file into place, as whole as an object in S3, because the jobs read meanwhile.
            hidden = folder / f".{number}"
            hidden.write_text(json.dumps({"id": number, "version": self.versions[number]}) + "\n")
            hidden.rename(folder / f"{number}-{self.versions[number]}.json")
        self.delta.append(self.last)
        self.iceberg.append(self.last)
        if self.chance.random() < 0.3:
            self.delta.delete(known)


def test_copies_equal_their_sources_when_drivers_of_partitions_delta_and_iceberg_are_killed(
    live: Watermarks, endpoint: str, tmp_path: Path
) -> None:
    chance = random.Random(KILLS_WITHOUT)
    lake = Lake(tmp_path, chance)
    settings = Settings(str(tmp_path), live.table_name, endpoint, ["partitions", "delta", "iceberg"])

    lake.grow()
    kill_over_and_over(settings, lake.grow, chance, KILLS_WITHOUT, most=9)
    drained(Copies(settings))

    assert merged_rows(tmp_path, "partitions", "id", "version") == sorted(lake.versions.items())
    assert [number for (number,) in merged_rows(tmp_path, "delta", "id")] == lake.delta.ids
    assert sorted(pd.read_parquet(f"{tmp_path}/iceberg")["id"]) == lake.iceberg.ids == list(range(1, lake.last + 1))
