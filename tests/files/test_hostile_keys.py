"""Keys outside the source, planted in the stored items of a job: no file outside is read, moved or deleted."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.errors import LedgerError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.partitions import PartitionColumns, PartitionRule
from scripts.helpers.files.segment_files import SegmentFiles
from scripts.helpers.files.set_aside import RETRY, SKIP, WAITING
from scripts.helpers.files.states import files_of
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.objects import GONE, IGNORED
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.packed_json import pack_json
from scripts.helpers.watermarks import Watermarks
from tests.support.planted import (
    JOB,
    OUTSIDE,
    SECRET,
    make_secret,
    plan_of,
    plant_plan,
    plant_state,
    rows_of,
    set_aside,
    state_of,
)

LEADING_OUT = [OUTSIDE, "sub/../../secret/credentials.csv", "\n/../../secret/credentials.csv"]
ODD = [*LEADING_OUT, "..", "/a.csv", "./a.csv", "sub/./b.csv", "sub//b.csv", "sub/"]
DISCARD = "Discard the plan: watermarks discard-plan JOB --why"
RESTORE = "Restore the job's item from a backup"


class World:
    """A job that loads a folder into a target and archives the files, and a file outside that it must not touch."""

    def __init__(self, watermarks: Watermarks, folder: Path) -> None:
        self.watermarks, self.folder, self.landing = watermarks, folder, folder / "landing"
        self.source = f"file://{self.landing}/"
        for key in ("a.csv", "sub/b.csv", "\n/c.csv"):
            path = self.landing / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("id\n1\n")
        self.secret = make_secret(folder)
        self.before = self.files

    @property
    def files(self) -> dict[str, bytes]:
        """All files in the folder, with their contents."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def run(self, **options: Any) -> list[int]:
        """Load the new files; return the ids of their rows."""
        with IncrementalJob(self.watermarks, JOB) as job:
            delta = job.new_files(str(self.landing), transformation_ctx="files", **options)
            rows = delta.read_pandas("csv")
            if len(rows):
                job.write(rows, str(self.folder / "raw"))
        return [int(row) for row in rows["id"]] if len(rows) else []


@pytest.fixture
def world(watermarks: Watermarks, tmp_path: Path) -> World:
    return World(watermarks, tmp_path)


# --- plans ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["delete", "archive", None])
@pytest.mark.parametrize("key", ODD)
def test_plan_is_refused_and_no_file_touched_when_a_key_is_not_below_the_source(
    world: World, key: str, after: str | None
) -> None:
    plant_plan(world.watermarks, plan_of(world.source, "a.csv", key), state_of(world.source))
    options = {} if after is None else {"after_commit": after}
    if after == "archive":
        options["archive_to"] = str(world.folder / "archive" / "deep" / "er")

    with pytest.raises(LedgerError) as caught:
        world.run(**options)

    assert caught.value.source == world.source
    assert re.search(rf"has the key {re.escape(repr(key))},.*{DISCARD}", str(caught.value))
    assert world.files == world.before


@pytest.mark.parametrize("key", ["a.csv\0", "sub\0/b.csv"])
def test_plan_is_refused_when_a_key_has_a_nul_as_no_local_file_has(world: World, key: str) -> None:
    plant_plan(world.watermarks, plan_of(world.source, "a.csv", key), state_of(world.source))

    with pytest.raises(
        SourceError, match=rf"key {re.escape(repr(key))} leads out of it.*discard the plan that has the key"
    ):
        world.run()

    assert world.files == world.before


def test_next_run_takes_what_is_new_when_the_planted_plan_was_discarded(world: World) -> None:
    plant_plan(world.watermarks, plan_of(world.source, OUTSIDE), state_of(world.source))

    with suppress(LedgerError):
        world.run()
    world.watermarks.discard_plan(JOB, why="a test")

    assert world.run() == [1, 1, 1]


def test_plan_is_replayed_when_odd_keys_are_only_remembered(world: World) -> None:
    """A bucket may have such keys: they are recorded as ignored, skipped or gone, and never read."""
    plan = plan_of(world.source, "a.csv")
    ledger = FileBookmark(world.source).ledger
    rows = [rows_of(world.source, "a.csv"), rows_of(world.source, "sub//b.csv", status=IGNORED)]
    rows.append(rows_of(world.source, OUTSIDE, status=GONE))
    plant_plan(world.watermarks, {**plan, "files": ledger.stored(pa.concat_tables(rows).sort_by("key"))}, {})

    assert world.run() == [1]


@pytest.mark.parametrize("key", LEADING_OUT)
def test_plan_of_a_bucket_is_refused_when_hadoop_would_read_another_object(key: str) -> None:
    plan = plan_of("s3://bucket/landing/", key)

    with pytest.raises(LedgerError, match=rf"^Source 's3://bucket/landing/': .*{DISCARD}"):
        FileBookmark("s3://bucket/landing/").resume(plan)


# --- whole partitions ----------------------------------------------------------------------------------------------


TODAY = f"day={datetime.now(timezone.utc):%Y%m%d}"


class Lake:
    """A job that reads whole partitions."""

    def __init__(self, watermarks: Watermarks, folder: Path) -> None:
        self.watermarks, self.source = watermarks, f"file://{folder}/landing/"
        path = folder / "landing" / TODAY / "b.csv"
        path.parent.mkdir(parents=True)
        path.write_text("id\n1\n")

    def run(self) -> list[str]:
        with IncrementalJob(self.watermarks, JOB) as job:
            delta = job.new_partitions(self.source, "day", transformation_ctx="files", whole=True)
            return [file.key for file in delta.files.files]

    def recent(self, state: Any) -> list[str]:
        """Return the files that are read if only the folders of the last days are listed."""
        rule = PartitionRule(self.source, PartitionColumns.of("day"), whole=True)
        bookmark = FileBookmark(self.source, state=state, partitions=rule, layout="day=%Y%m%d/")
        return [file.key for file in bookmark.new_files().files]


@pytest.fixture
def lake(watermarks: Watermarks, tmp_path: Path) -> Lake:
    return Lake(watermarks, tmp_path)


@pytest.mark.parametrize("key", [f"z/../../secret/{TODAY}/c.csv", f"/{TODAY}/b.csv", f"z//{TODAY}/b.csv"])
def test_partition_is_not_read_when_the_ledger_has_an_odd_key_in_it(lake: Lake, key: str) -> None:
    with pytest.raises(LedgerError) as caught:
        lake.recent(state_of(lake.source, key))

    assert str(caught.value).startswith(f"Source {lake.source!r}: its ledger has the key {key!r}, which leads out")
    assert RESTORE in str(caught.value)


def test_partition_is_read_when_odd_keys_of_the_ledger_are_in_others(lake: Lake) -> None:
    assert lake.recent(state_of(lake.source, "day=20260101//b.csv")) == [f"{TODAY}/b.csv"]


def test_partition_is_read_without_it_when_an_odd_key_of_the_ledger_is_not_listed(lake: Lake) -> None:
    plant_state(lake.watermarks, state_of(lake.source, f"/{TODAY}/b.csv"))

    assert lake.run() == [f"{TODAY}/b.csv"]


def test_partition_is_not_read_when_the_plan_has_an_odd_key_among_its_known_files(lake: Lake) -> None:
    key = f"z/../../secret/{TODAY}/credentials.csv"
    call = {"columns": ["day"], "whole": True, "latest": False}
    plan = plan_of(lake.source, f"{TODAY}/b.csv") | {"partitions": call, "rest": plan_of(lake.source, key)["files"]}
    plant_plan(lake.watermarks, plan, state_of(lake.source))

    with pytest.raises(LedgerError, match=rf"its open plan has the key {key!r}.*{DISCARD}"):
        lake.run()


# --- files that are set aside --------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [WAITING, RETRY, SKIP])
@pytest.mark.parametrize("key", [OUTSIDE, "./a.csv", "a\ud800.csv"])
def test_nothing_is_taken_when_a_key_leads_out_that_is_set_aside(world: World, key: str, decision: str) -> None:
    plant_state(world.watermarks, set_aside(state_of(world.source), key, decision))

    with pytest.raises(LedgerError) as caught:
        world.run()

    assert re.search(rf"files that are set aside has the key {re.escape(repr(key))}, .*{RESTORE}", str(caught.value))
    assert caught.value.source == world.source
    assert world.files == world.before


def test_list_is_damaged_when_a_key_is_not_a_text(world: World) -> None:
    number: Any = 7
    plant_state(world.watermarks, set_aside(state_of(world.source), number))

    with pytest.raises(LedgerError, match="is damaged"):
        world.run()


def test_no_other_folder_is_looked_into_when_a_key_that_is_set_aside_is_absolute(world: World) -> None:
    key = str(world.secret)
    plant_state(world.watermarks, set_aside(state_of(world.source), key))

    taken = world.run(on_unreadable="set_aside")

    assert taken == [1, 1, 1]
    found = FileBookmark(world.source, state=world.watermarks.get_watermark_values(JOB)["files"]).explain(key)
    assert found.reason.startswith("it is not there any more")


# --- the files of a ledger -----------------------------------------------------------------------------------------

HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize("end", ["first", "last"])
def test_file_of_a_ledger_is_refused_when_an_end_is_half_a_surrogate_pair(end: str) -> None:
    file = {"file": f"{HEX}.parquet", "count": 1, "length": 9, "sha256": "0" * 64, "first": "a", "last": "b"}

    assert files_of({"count": 1, "packed": pack_json([file])}) == [file]
    with pytest.raises(ImplausibleError, match=rf"^segment\.files\[0\]\.{end} is not a key$"):
        files_of({"count": 1, "packed": pack_json([{**file, end: "a\ud800"}])})


@pytest.mark.parametrize(
    "name", [f"../other/{HEX}.parquet", f"sub/{HEX}.parquet", f"/{HEX}.parquet", f"..{HEX}.parquet", "a.parquet", 7]
)
def test_ledger_is_refused_before_its_file_is_opened_when_the_name_is_not_one_of_ours(
    world: World, name: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = world.folder / "ledger"
    state = state_of(world.source, "a.csv", ledger_uri=str(folder))
    (file,) = state["segments"][0]["files"]
    for place in (folder.parent / "other", folder / "sub"):
        place.mkdir()
    (folder / file["file"]).rename(f"{folder}/{name}")
    file["file"] = name

    with pytest.raises(LedgerError) as caught:
        FileBookmark(world.source, state=state, ledger_uri=str(folder)).new_files()

    assert "is not the name of a file of a ledger" in str(caught.value)
    assert RESTORE in str(caught.value)


@pytest.mark.parametrize("name", ["../secret/credentials.csv", "a.csv"])
def test_nothing_is_deleted_when_a_name_is_not_that_of_a_file_of_a_ledger(world: World, name: str) -> None:
    with pytest.raises(LedgerError, match="is not the name of a file of a ledger"):
        SegmentFiles(str(world.landing)).delete([name])

    assert world.files == world.before
    assert world.secret.read_bytes() == SECRET
