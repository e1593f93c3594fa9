"""A user who may write the items of one job can spoil that job, but nothing at the targets of another job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pandas as pd
import pytest

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import CorruptItemError, UnprovenError, WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId, new_run_id
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import FileSink
from scripts.helpers.sinks.outputs import MANIFEST, folder_of
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.watermarks import Watermarks
from tests.sinks.directory_copy import JOB, DirectoryCopy
from tests.support.neighbours import (
    KINDS,
    PLANTED,
    PLANTER,
    VICTIM,
    DeltaOnSpark,
    FileNeighbours,
    IcebergOnSpark,
    Made,
    Neighbours,
    SparkNeighbours,
    as_own_of_their_epoch,
    as_own_versions,
    as_theirs,
    both,
    check_that_the_other_one_goes_on,
    folders_of_others,
    record_of,
    retraction_of,
)
from tests.support.staging import staged_by
from tests.support.steps import KilledError
from tests.support.table_items import Item, all_items, item_of, plant, put_back, put_item

MANY = 1_000_000_000


class Built(NamedTuple):
    """Two jobs as `both` leaves them: a copy of their files, their sources, and the items of their table."""

    files: Path
    source: dict[str, list[int]]
    items: Collection[Item]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the folder of the jobs of one kind, because records and tables name its path."""
    return cache(lambda kind: tmp_path_factory.mktemp(kind) / "lake")


@pytest.fixture(scope="module")
def built() -> dict[str, Built]:
    """Return the jobs that tests of this module have built, by kind."""
    return {}


@pytest.fixture(params=list(KINDS))
def two(
    request: pytest.FixtureRequest,
    watermarks: Watermarks,
    folders: Callable[[str], Path],
    built: dict[str, Built],
) -> Neighbours:
    """Return two jobs that have each written two batches; one also has a third batch that no reader sees yet."""
    kind, folder = request.param, folders(request.param)
    if kind not in built:
        folder.mkdir()
        first = both(KINDS[kind](watermarks, folder))
        files = Path(shutil.copytree(folder, folder.with_name("copy")))
        built[kind] = Built(
            files, {job: list(ids) for job, ids in first.source.items()}, all_items(watermarks).values()
        )
        return first
    shutil.rmtree(folder)
    shutil.copytree(built[kind].files, folder)
    put_back(watermarks, dict(enumerate(built[kind].items)))
    made = KINDS[kind](watermarks, folder)
    made.source = {job: list(ids) for job, ids in built[kind].source.items()}
    return made


def planted(two: Neighbours, make: Made, kind: str) -> None:
    own = record_of(two.watermarks, PLANTER)
    record = make(own, record_of(two.watermarks, VICTIM))
    last = {} if record["job"] == own["job"] else {"last": MANY}
    plant(two.watermarks, PLANTER, {kind: [retraction_of(record, **last) if kind == "retracting" else record]})


@pytest.mark.parametrize("make", PLANTED)
@pytest.mark.parametrize("kind", ["retracting", "unpublished"])
def test_target_of_another_job_stays_when_an_item_names_it(
    two: Neighbours, make: Made, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    planted(two, make, kind)
    before = two.of_others()

    with suppress(WatermarkError):  # The planter's own run may fail.
        two.run(PLANTER, 3)

    assert two.rows(VICTIM) == [1, 2]
    if make in (as_theirs, as_own_of_their_epoch):
        assert "event=unproven_record job=planter" in caplog.text
    check_that_the_other_one_goes_on(two, before)


@pytest.mark.parametrize("kind", [DeltaOnSpark, IcebergOnSpark])
def test_table_of_another_job_stays_when_an_item_names_it_and_spark_would_take_it_back(
    watermarks: Watermarks, tmp_path: Path, spark_with_tables: Any, kind: type[SparkNeighbours]
) -> None:
    two = kind(watermarks, tmp_path, spark_with_tables)
    two.run(VICTIM, 1)
    two.run(PLANTER, 1)
    before = two.of_others()
    after = []

    for row, make in enumerate((as_theirs, as_own_versions), 2):
        planted(two, make, "retracting")
        with suppress(WatermarkError):
            two.run(PLANTER, row)
        after.append(two.of_others())

    assert after == [before, before]
    two.run(VICTIM, 2)
    assert two.rows(VICTIM) == [1, 2]
    assert two.watermarks.latest(VICTIM).unpublished == ()


@pytest.mark.parametrize("number", range(4))
def test_what_is_elsewhere_stays_when_an_output_names_it_as_its_folder(two: Neighbours, number: int) -> None:
    record = folders_of_others(two)[number]
    plant(two.watermarks, PLANTER, {"unpublished": [record]})
    before = two.of_others()

    with suppress(WatermarkError):
        two.run(PLANTER, 3)

    check_that_the_other_one_goes_on(two, before)
    assert set(two.rows(PLANTER)) <= {1, 2, 3}


def test_prefix_of_a_bucket_stays_when_an_output_names_it(watermarks: Watermarks, s3: Any) -> None:
    s3.create_bucket(Bucket="lakes", CreateBucketConfiguration={"LocationConstraint": "eu-west-2"})
    s3.put_object(Bucket="lakes", Key="other/team/2024/1.csv", Body=b"id\n1\n")

    class Bucket(FileNeighbours):
        def sink(self, job: str) -> Sink:
            return FileSink(f"s3://lakes/{job}", s3_client=s3)

    two = Bucket(watermarks, Path())
    two.run(PLANTER, 1, s3_client=s3)
    record = record_of(watermarks, PLANTER)
    plant(watermarks, PLANTER, {"unpublished": [{**record, "staging": "s3://lakes/other", "folder": "team"}]})

    with suppress(WatermarkError):
        two.run(PLANTER, 2, s3_client=s3)

    assert s3.get_object(Bucket="lakes", Key="other/team/2024/1.csv")["Body"].read() == b"id\n1\n"


@pytest.mark.parametrize("delete", ["drop", "clear"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_what_another_job_has_staged_stays_when_an_attempt_names_its_folder(
    watermarks: Watermarks, tmp_path: Path, kind: str, delete: str
) -> None:
    two = KINDS[kind](watermarks, tmp_path)
    sink = two.sink(VICTIM)
    own, theirs = (staged_by(sink, BatchId(job, "e1", 1), 1, two.frame([1])) for job in (PLANTER, VICTIM))

    with pytest.raises(UnprovenError, match="not of an attempt of the job"):
        getattr(sink, delete)(replace(own, folder=theirs.folder))
    sink.publish(theirs)

    assert two.rows(VICTIM) == [1]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "sqlite"])
def test_rows_are_published_when_the_record_of_their_attempt_does_not_count_them(
    watermarks: Watermarks, tmp_path: Path, kind: str
) -> None:
    two = KINDS[kind](watermarks, tmp_path)
    sink = two.sink(VICTIM)
    output = replace(staged_by(sink, BatchId(VICTIM, "e1", 1), 1, two.frame([1])), rows=None)

    sink.check_staged(output)
    sink.publish(output)

    assert two.rows(VICTIM) == [1]


# --- what only the job's own name proves ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["delta", "iceberg", "sqlite"])
def test_rows_of_another_job_stay_when_both_write_to_one_table_and_their_epoch_is_the_same(
    watermarks: Watermarks, tmp_path: Path, kind: str
) -> None:
    """The item of a job decides its epoch, and versions are small numbers: both can be made the same."""
    two = KINDS[kind](watermarks, tmp_path)
    shared = two.sink(VICTIM)
    two.sink = lambda job: shared  # type: ignore[method-assign]
    two.run(PLANTER, 11)
    two.run(VICTIM, 1)
    head = item_of(watermarks, PLANTER)
    own = head["epoch"]["S"]
    put_item(watermarks, head | {"epoch": item_of(watermarks, VICTIM)["epoch"], "epochs": {"M": {own: {"N": "1"}}}})
    two.run(PLANTER, 12)
    two.run(VICTIM, 2)

    watermarks.rewind(PLANTER, to_version=1, retract=True, why="a test")
    two.run(PLANTER)
    two.run(VICTIM, 3)

    assert two.rows(VICTIM) == [1, 2, 3, 11, 12]


@pytest.fixture
def world(watermarks: Watermarks, tmp_path: Path) -> DirectoryCopy:
    """Return a job with one published batch and one that is committed and waits to be published."""
    made = DirectoryCopy(watermarks, tmp_path)
    made.source = []
    made.run_with(1)
    with patch.object(FileSink, "publish", side_effect=KilledError), pytest.raises(KilledError):
        made.run_with(2)
    return made


def manifest_of(world: DirectoryCopy) -> Path:
    (found,) = world.staging.rglob("_manifest")
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [("job", "0" * 32), ("epoch", "e0"), ("version", 3), ("fence", 9), ("target", "/another"), ("files", ["part"])],
)
def test_batch_is_left_and_named_when_its_list_is_of_another_attempt_or_for_another_target(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, name: str, value: Any
) -> None:
    path = manifest_of(world)
    altered = json.dumps(json.loads(path.read_text()) | {name: value})
    path.write_text(altered)
    world.run_with(3)

    ((kind, detail),) = [(one.kind, one.detail) for one in examine_targets(world.watermarks, JOB)]

    assert (world.seen, path.read_text()) == ([1, 3], altered)
    assert "event=unproven_record job=repairs" in caplog.text
    assert (kind, "version 2" in detail, str(world.target) in detail) == ("unproven record", True, True)


@pytest.mark.parametrize("name", ["../../raw/part-1.parquet", "/etc/passwd", "a/../../b", "", "./x"])
def test_nothing_is_moved_when_a_list_names_what_is_not_in_its_folder(world: DirectoryCopy, name: str) -> None:
    path = manifest_of(world)
    altered = json.loads(path.read_text())
    altered["files"][name] = 3
    path.write_text(json.dumps(altered))
    before = {path: path.read_bytes() for path in world.target.rglob("*.parquet")}

    world.run_with(3)

    assert world.seen == [1, 3]
    assert {path: path.read_bytes() for path in before} == before


def test_batch_of_an_earlier_epoch_is_published_when_the_table_of_watermarks_was_restored(
    world: DirectoryCopy,
) -> None:
    before = world.watermarks.latest(JOB)

    world.watermarks.decisions.restore(JOB, {}, why="a test")
    after = world.watermarks.latest(JOB)
    world.run_with(3)

    assert (after.epochs, after.epoch != before.epoch) == ({before.epoch: before.version}, True)
    assert (world.seen, world.watermarks.latest(JOB).unpublished) == ([1, 2, 3], ())


@pytest.mark.parametrize(("epoch", "version"), [("e0", 2), (None, 3), (None, 10**9)])
def test_record_is_left_and_named_when_the_head_does_not_name_its_epoch_or_has_not_come_to_its_version(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, epoch: str | None, version: int
) -> None:
    (waiting,) = world.watermarks.latest(JOB).unpublished
    foreign = output_of_version(waiting, epoch or waiting.epoch, version)
    plant(world.watermarks, JOB, {"unpublished": [waiting.record(), foreign.record()]})

    findings = [one.kind for one in examine_targets(world.watermarks, JOB)]
    world.run_with(3)

    assert (findings, world.seen) == (["unproven record"], [1, 2, 3])
    assert "event=unproven_record job=repairs" in caplog.text


def output_of_version(output: Output, epoch: str, version: int) -> Output:
    folder = folder_of(BatchId(JOB, epoch, version), output.fence, "0a1b2c3d")
    return replace(output, epoch=epoch, version=version, folder=folder)


# --- what a record says of a target of its own job --------------------------------------------------


def test_copy_of_the_files_stays_when_an_item_names_its_folder_as_the_target(
    watermarks: Watermarks, tmp_path: Path, two_files: FileNeighbours
) -> None:
    """An archive keeps file names, so the archived files have the mark of the job that wrote them."""
    archive = tmp_path / "archive"
    shutil.copytree(tmp_path / PLANTER, archive)
    shutil.copytree(tmp_path / f"_{PLANTER}.staging", tmp_path / "_archive.staging")
    before = sorted(path.name for path in archive.rglob("*"))
    own = record_of(watermarks, PLANTER)
    elsewhere = {**own, "target": f"file://{archive}", "staging": f"file://{tmp_path}/_archive.staging"}
    plant(watermarks, PLANTER, {"retracting": [retraction_of(elsewhere)]})

    two_files.run(PLANTER, 3)

    assert sorted(path.name for path in archive.rglob("*")) == before
    assert two_files.rows(PLANTER) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_rows_are_not_published_when_an_item_names_a_place_of_its_writer_for_them(
    watermarks: Watermarks, tmp_path: Path, kind: str
) -> None:
    """Anyone with a folder of their own can put files there as an attempt would stage them, for any target."""
    two = both(KINDS[kind](watermarks, tmp_path))
    two.leave_waiting(PLANTER, 3)
    own, theirs = record_of(watermarks, PLANTER), record_of(watermarks, VICTIM)
    mine = tmp_path / "mine"
    (folder,) = tmp_path.rglob(own["folder"])
    shutil.copytree(folder, mine / own["folder"])
    manifest = json.loads((mine / own["folder"] / MANIFEST).read_text()) | {"target": theirs["target"]}
    (mine / own["folder"] / MANIFEST).write_text(json.dumps(manifest))
    forged = {**own, "target": theirs["target"], "staging": f"file://{mine}"}
    plant(watermarks, PLANTER, {"unpublished": [forged]})
    before = two.of_others()

    with suppress(WatermarkError):
        two.run(PLANTER, 4)

    check_that_the_other_one_goes_on(two, before)


def merged(two: Neighbours, job: str, sink: Any, *ids: int) -> None:
    """Run a job that merges rows into a table that both jobs write."""
    two.source[job] += ids
    rows = pd.DataFrame({"team": job, "id": two.source[job]})
    rows["at"] = rows["id"] * 10 + (job == PLANTER)
    with IncrementalJob(two.watermarks, job, new_run_id()) as began:
        began.merge(began.rows_since(rows, "id"), sink, keys=["team", "id"], sequence_by="at")


@pytest.mark.parametrize("kind", ["delta", "iceberg", "sqlite"])
def test_rows_of_another_job_stay_in_a_shared_table_when_an_item_says_another_merge(
    watermarks: Watermarks, tmp_path: Path, kind: str
) -> None:
    two: Any = KINDS[kind](watermarks, tmp_path)
    two.batch_column = None
    if kind == "sqlite":
        two.ask("CREATE TABLE shared (team varchar(20), id bigint, at bigint)")
    sink = two.sink("shared")
    merged(two, VICTIM, sink, 1, 2)
    merged(two, PLANTER, sink, 1)
    with patch.object(type(sink), "publish", side_effect=KilledError), pytest.raises(KilledError):
        merged(two, PLANTER, sink, 2)
    (waiting,) = json.loads(item_of(watermarks, PLANTER)["unpublished"]["S"])
    waiting["options"]["merge"] = {"keys": ["id"], "sequence_by": ["at"]}
    plant(watermarks, PLANTER, {"unpublished": [waiting]})

    with suppress(WatermarkError):
        merged(two, PLANTER, sink, 3)

    merged(two, VICTIM, sink, 3)
    assert {10, 20, 30, 11} <= set(two.rows("shared", "at"))


@pytest.mark.parametrize(("name", "value"), [("batch_folders", True), ("sink", "delta"), ("replaces", True)])
def test_files_are_left_and_named_when_an_item_says_another_way_to_publish_them(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture, name: str, value: Any
) -> None:
    (waiting,) = world.watermarks.latest(JOB).unpublished
    plant(world.watermarks, JOB, {"unpublished": [waiting.record() | {name: value}]})

    with suppress(WatermarkError):
        world.run_with(3)

    assert set(world.seen) <= {1, 3}
    assert not (world.target / "_delta_log").exists()
    assert "unproven_record" in caplog.text


@pytest.mark.parametrize(
    "text", ["file:///lake/a\0b", "file:///lake/\ud800", "file:///lake/other/../raw", "s3://b/./x"]
)
def test_item_is_damaged_when_a_record_names_no_place(world: DirectoryCopy, text: str) -> None:
    (waiting,) = world.watermarks.latest(JOB).unpublished
    plant(world.watermarks, JOB, {"unpublished": [waiting.record() | {"target": text}]})

    with pytest.raises(CorruptItemError, match=r"unpublished\[0\]\.target is not"):
        world.run_with(3)


def test_log_has_no_line_of_its_own_when_the_name_of_a_target_holds_one(
    world: DirectoryCopy, caplog: pytest.LogCaptureFixture
) -> None:
    (waiting,) = world.watermarks.latest(JOB).unpublished
    name = f"{waiting.target}\nevent=retracted job={VICTIM}\x1b[1A"
    plant(world.watermarks, JOB, {"unpublished": [waiting.record() | {"target": name, "job": "0" * 32}]})

    world.run_with(3)

    assert "event=retracted" in caplog.text
    assert not any(character in record.getMessage() for record in caplog.records for character in "\n\x1b")


@pytest.fixture
def two_files(watermarks: Watermarks, tmp_path: Path) -> FileNeighbours:
    made = FileNeighbours(watermarks, tmp_path)
    for row in (1, 2):
        made.run(PLANTER, row)
    return made
