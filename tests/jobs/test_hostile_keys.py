"""Keys and links that lead out of a source are refused before Spark reads, on the driver and on executors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import CorruptItemError, LedgerError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.spark import SparkFileDelta
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.listing import Location
from scripts.helpers.reading.small_files import typed_fetch_errors
from scripts.helpers.reading.spark import read_files
from scripts.helpers.watermarks import Watermarks
from tests.support.planted import JOB, OUTSIDE, make_secret, plan_of, plant_plan, rows_of, state_of

DISCARD = "Discard the plan: watermarks discard-plan JOB --why"
REFUSED = "leads out of it, by its name or by a link"
READS: dict[str, Callable[[SparkFileDelta, Any], Any]] = {
    "files": lambda delta, spark: delta.files.collect(),
    "read": lambda delta, spark: delta.read(spark, "csv", header=True).collect(),
    "read_small": lambda delta, spark: delta.read_small(spark, "csv", "id int", header=True).collect(),
    "paths": lambda delta, spark: delta.paths,
}


class World:
    """A job whose executors find the files of a folder. Beside the folder is a file that the job must not read."""

    def __init__(self, watermarks: Watermarks, spark: Any, folder: Path) -> None:
        self.watermarks, self.spark, self.folder = watermarks, spark, folder
        self.landing, self.ledger = folder / "landing", str(folder / "ledger")
        self.source = f"file://{self.landing}/"
        (self.landing / "day").mkdir(parents=True)
        for key in ("a.csv", "day/b.csv"):
            (self.landing / key).write_text("id\n1\n")
        self.secret = make_secret(folder)

    def plant(self, *keys: str) -> dict[str, Any]:
        plan = plan_of(self.source, *keys, ledger_uri=self.ledger)
        plant_plan(self.watermarks, plan, state_of(self.source, ledger_uri=self.ledger))
        return plan

    def run(self, read: Callable[[SparkFileDelta, Any], Any], **options: Any) -> Any:
        with IncrementalJob(self.watermarks, JOB, spark=self.spark) as job:
            delta = job.new_files_on_spark(
                self.source, transformation_ctx="files", ledger_uri=self.ledger, **options
            )  # fmt: skip
            with typed_fetch_errors():
                return read(delta, self.spark)


@pytest.fixture
def world(watermarks: Watermarks, spark: Any, tmp_path: Path) -> World:
    return World(watermarks, spark, tmp_path)


def test_plan_is_refused_before_it_is_read_when_executors_compare_its_files(world: World) -> None:
    world.plant("a.csv", OUTSIDE)

    with pytest.raises(LedgerError, match=rf"its open plan has the key {OUTSIDE!r}.*{DISCARD}") as caught:
        world.run(lambda delta, spark: pytest.fail("the delta was given out"))

    assert caught.value.source == world.source


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_plan_is_refused_when_its_files_are_read_without_a_comparison(
    world: World, read: Callable[[SparkFileDelta, Any], Any]
) -> None:
    world.plant("a.csv", OUTSIDE)

    with pytest.raises(LedgerError, match=rf"its open plan has the key {OUTSIDE!r}.*{DISCARD}"):
        world.run(read, on_changed=None)


@pytest.mark.parametrize("name", ["../elsewhere/{}", "{}.parquet"])
def test_plan_is_refused_when_it_names_a_file_that_is_not_of_the_ledger(world: World, name: str) -> None:
    plan = plan_of(world.source, "a.csv", ledger_uri=world.ledger)
    (file,) = plan["files"]["files"]
    (world.folder / "elsewhere").mkdir()
    written = Path(world.ledger, file["file"])
    file["file"] = name.format(file["file"])
    written.rename(Path(world.ledger, file["file"]))
    plant_plan(world.watermarks, plan, state_of(world.source, ledger_uri=world.ledger))

    with pytest.raises(CorruptItemError, match="is not the name of a file of a ledger"):
        world.run(READS["read_small"])


def test_links_out_of_the_source_are_not_taken_when_executors_list_it(world: World) -> None:
    (world.landing / "link.csv").symlink_to(world.secret)
    (world.landing / "folder").symlink_to(world.secret.parent)
    (world.landing / "own.csv").symlink_to("a.csv")

    taken = world.run(lambda delta, spark: sorted(row["key"] for row in delta.files.collect()))

    assert taken == ["a.csv", "day/b.csv", "own.csv"]


@pytest.mark.parametrize("swapped", ["a.csv", "day"])
@pytest.mark.parametrize("reader", ["read", "read_small"])
def test_file_is_refused_when_a_link_out_of_the_source_takes_its_place(
    world: World, spark: Any, swapped: str, reader: str
) -> None:
    delta = FileBookmark(world.source).new_files()
    (world.landing / swapped).rename(world.folder / "elsewhere")
    (world.landing / swapped).symlink_to(world.folder / "elsewhere")

    with pytest.raises(SourceError, match=REFUSED), typed_fetch_errors():
        getattr(delta, reader)(spark, "csv", schema="id int", header=True).collect()


@pytest.mark.parametrize("source", ["{}", "s3a://bucket/landing/"])
@pytest.mark.parametrize("key", [OUTSIDE, "day/../a.csv", "day//b.csv", "/a.csv"])
def test_file_is_refused_when_hadoop_would_resolve_its_key(world: World, spark: Any, source: str, key: str) -> None:
    location = Location.parse(source.format(world.landing))

    with pytest.raises(SourceError, match=f"key {key!r} {REFUSED}"):
        read_files(spark, location, rows_of(str(location), key), "csv", schema="id int")
