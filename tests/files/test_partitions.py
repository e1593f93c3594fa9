"""Partitions of files in a job: new files by partition, whole partitions with changes, and the largest partition."""

from __future__ import annotations

import os
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import (
    ArchivedObjectError,
    ChangedObjectError,
    CorruptItemError,
    InvalidValueError,
    PlanConflictError,
    SourceError,
)
from scripts.helpers.files.partition_delta import PartitionDelta
from scripts.helpers.files.partitions import PartitionColumns
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.folders import typed_value
from scripts.helpers.watermarks import Watermarks
from tests.support.landing import put_objects
from tests.support.reasons import because
from tests.support.steps import KilledError, commit

DAY = "import_date"
Shown = dict[str, list[str]]


def shown(delta: PartitionDelta) -> Shown:
    """Return the names of a delta's files by the values of their partition."""
    found = {}
    for partition in delta.partitions:
        values = "/".join(str(value) for value in partition.values.values())
        found[values] = [file.key.rpartition("/")[2] for file in partition.files.files]
    return found


class Lake:
    """A table stored in folders, and the runs of one job over it."""

    def __init__(self, watermarks: Watermarks, root: Path) -> None:
        self.watermarks, self.root = watermarks, root
        self.columns: Any = DAY
        self.options: dict[str, Any] = {}
        self.method = "new_partitions"
        root.mkdir()

    def put(self, *keys: str, text: str = "x") -> None:
        """Write files; each is a new object, even if the path existed."""
        for key in keys:
            path = self.root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(text)

    def delete(self, *keys: str) -> None:
        for key in keys:
            (self.root / key).unlink()

    def take(self, job: IncrementalJob, **options: Any) -> PartitionDelta:
        delta: PartitionDelta = getattr(job, self.method)(str(self.root), self.columns, **self.options, **options)
        return delta

    def run(self, *, die: bool = False, job_options: Any = None, **options: Any) -> Shown:
        with IncrementalJob(self.watermarks, "copy", **(job_options or {})) as job:
            self.delta = self.take(job, **options)
            job.freeze()
            if die:
                raise KilledError
        return shown(self.delta)

    def die(self, **options: Any) -> Shown:
        with pytest.raises(KilledError):
            self.run(die=True, **options)
        return shown(self.delta)


@pytest.fixture
def lake(watermarks: Watermarks, tmp_path: Path) -> Lake:
    return Lake(watermarks, tmp_path / "raw")


def day(number: int, name: str = "a") -> str:
    return f"import_date=202611{number:02}/{name}"


# --- new files by partition -----------------------------------------------------------------------------------------


def test_late_files_of_old_partitions_are_taken_when_they_land(lake: Lake) -> None:
    lake.put(day(23), day(24))
    first = lake.run()
    lake.put(day(1), day(24, "b"))

    assert first == {"20261123": ["a"], "20261124": ["a"]}
    assert lake.run() == {"20261101": ["a"], "20261124": ["b"]}
    assert lake.run() == {}


def test_batch_lacks_a_known_file_when_a_too_small_one_has_overwritten_it(lake: Lake) -> None:
    lake.put(day(20), day(20, "b"), text="xxx")
    lake.run(whole=True, min_size=2)
    lake.put(day(20), text="x")
    lake.put(day(20, "c"), text="xxx")

    without = lake.run(whole=True, min_size=2)
    lake.put(day(20), text="xxxx")

    assert without == {"20261120": ["b", "c"]}
    assert lake.run(whole=True, min_size=2) == {"20261120": ["a", "b", "c"]}
    assert lake.run(whole=True, min_size=2) == {}


def test_partition_is_read_whole_when_a_file_in_it_is_new_changed_or_gone(lake: Lake) -> None:
    lake.put(day(20), day(20, "b"), day(21), day(21, "b"), day(22), day(22, "b"), day(23))
    first = lake.run(whole=True)
    lake.put(day(20, "c"))
    lake.put(day(21, "b"), text="changed")
    lake.delete(day(22, "b"))

    assert first == {"20261120": ["a", "b"], "20261121": ["a", "b"], "20261122": ["a", "b"], "20261123": ["a"]}
    assert lake.run(whole=True) == {"20261120": ["a", "b", "c"], "20261121": ["a", "b"], "20261122": ["a"]}
    assert lake.run(whole=True) == {}


@pytest.mark.parametrize("ledger", [False, True], ids=["in the table", "in files"])
@pytest.mark.parametrize("whole", [False, True])
def test_replay_reads_the_same_files_when_others_landed_after_the_plan(
    lake: Lake, tmp_path: Path, ledger: bool, whole: bool
) -> None:
    if ledger:
        lake.options["ledger_uri"] = f"{tmp_path}/ledger/"
    lake.options["whole"] = whole
    lake.put(day(22), day(23), day(23, "b"))
    lake.run()
    lake.put(day(23, "c"))
    lake.delete(day(22))
    planned = lake.die()
    lake.put(day(23, "d"), day(24))

    replayed = lake.run()

    assert planned == replayed == ({"20261122": [], "20261123": ["a", "b", "c"]} if whole else {"20261123": ["c"]})
    after = {"20261123": ["a", "b", "c", "d"] if whole else ["d"], "20261124": ["a"]}
    assert lake.run() == after


def test_replay_has_no_partition_when_the_plan_had_none(lake: Lake) -> None:
    lake.put(day(1))
    lake.run()
    with pytest.raises(KilledError), IncrementalJob(lake.watermarks, "copy") as job:
        job.new_files(str(lake.root), transformation_ctx="another")
        job.freeze()
        raise KilledError
    lake.put(day(2))

    with IncrementalJob(lake.watermarks, "copy") as job:
        again = job.new_files(str(lake.root), transformation_ctx="another")
        replayed = lake.take(job)

    assert (again.count, replayed.count, replayed.bytes) == (1, 0, 0)
    assert lake.run() == {"20261102": ["a"]}


def test_counts_are_shown_when_partitions_are_printed(lake: Lake) -> None:
    lake.put(day(1), day(1, "b"), day(2), text="four")
    lake.run()

    assert repr(lake.delta) == f"<PartitionDelta '{lake.delta.files.location}': 2 partitions, 3 files>"
    assert repr(lake.delta.partitions[0]) == "<Partition import_date=20261101: 2 files, 8 bytes>"
    assert lake.delta.bytes == 12


def test_file_that_changed_is_left_out_when_a_delta_of_partitions_is_looked_at_again(lake: Lake) -> None:
    lake.put(day(1), day(2))
    lake.run()
    lake.put(day(2), text="other")

    with pytest.raises(ChangedObjectError, match=day(2)):
        lake.delta.unchanged()

    assert shown(lake.delta.unchanged("skip")) == {"20261101": ["a"]}


def test_partition_is_told_as_emptied_when_all_its_files_are_gone(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.put(day(23), day(24))
    lake.run(whole=True)
    lake.delete(day(23))

    assert lake.run(whole=True) == {"20261123": []}
    assert lake.delta.emptied == [{DAY: "20261123"}]
    assert "event=partitions_emptied" in caplog.text
    assert "partitions=1" in caplog.text
    lake.put(day(23))
    assert lake.run(whole=True) == {"20261123": ["a"]}
    assert lake.delta.emptied == []


def test_state_is_that_of_files_when_a_job_changes_from_one_call_to_the_other(lake: Lake) -> None:
    lake.put(day(23), day(24))
    with IncrementalJob(lake.watermarks, "copy") as job:
        job.new_files(str(lake.root), transformation_ctx="partitions")
    lake.put(day(23, "b"))

    assert lake.run(whole=True) == {"20261123": ["a", "b"]}
    with IncrementalJob(lake.watermarks, "copy") as job:
        assert job.new_files(str(lake.root), transformation_ctx="partitions").count == 0


# --- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_partitions_come_smallest_first_when_a_batch_has_a_limit(lake: Lake, whole: bool) -> None:
    lake.options = {"whole": whole, "max_partitions": 2}
    lake.put(day(24), day(3), day(23), day(23, "b"), day(4))

    batches = [(lake.run(), lake.delta.has_more) for _ in range(3)]

    assert batches == [
        ({"20261103": ["a"], "20261104": ["a"]}, True),
        ({"20261123": ["a", "b"], "20261124": ["a"]}, False),
        ({}, False),
    ]


def test_deletions_wait_for_their_batch_when_a_limit_left_their_partition(lake: Lake) -> None:
    lake.options = {"whole": True, "max_partitions": 1}
    lake.put(day(3), day(4), day(4, "b"))
    lake.run()
    lake.run()
    lake.delete(day(4))
    lake.put(day(3, "b"))

    assert [lake.run(), lake.run(), lake.run()] == [{"20261103": ["a", "b"]}, {"20261104": ["b"]}, {}]


@pytest.mark.parametrize(("given", "first"), [("20261104", 4), (("20261105",), 5), ("20270101", 31)])
def test_first_run_begins_with_a_partition_when_it_is_told_to(lake: Lake, given: Any, first: int) -> None:
    lake.put(*[day(number) for number in (3, 4, 5)])

    taken = lake.run(start_from=given)

    assert taken == {f"202611{number:02}": ["a"] for number in (3, 4, 5) if number >= first}
    lake.put(day(3, "late"))
    assert lake.run(start_from=given) == {"20261103": ["late"]}
    lake.put(day(3, "later"))
    assert lake.run(whole=True) == {"20261103": ["a", "late", "later"]}


@pytest.mark.parametrize("start", ["now", datetime(2100, 1, 1, tzinfo=timezone.utc)])
def test_first_run_begins_as_files_do_when_the_start_is_a_time(lake: Lake, start: Any) -> None:
    lake.put(day(3))

    assert lake.run(start_from=start) == {}
    lake.put(day(3, "b"))
    assert lake.run(start_from=start) == {"20261103": ["b"]}


# --- what is not ready ----------------------------------------------------------------------------------------------


def test_partition_waits_whole_when_a_file_in_it_is_too_young(lake: Lake) -> None:
    lake.options = {"whole": True, "delay": timedelta(hours=1)}
    lake.put(day(23), day(24), day(24, "b"))
    an_hour_ago = datetime.now().timestamp() - 3700
    for key in (day(23), day(24)):
        os.utime(lake.root / key, (an_hour_ago, an_hour_ago))

    assert lake.run() == {"20261123": ["a"]}
    os.utime(lake.root / day(24, "b"), (an_hour_ago, an_hour_ago))
    assert lake.run() == {"20261124": ["a", "b"]}


@pytest.mark.parametrize("columns", [DAY, [DAY, "hour"]])
def test_partition_is_taken_once_the_marker_is_in_it_when_one_is_asked_for(lake: Lake, columns: Any) -> None:
    lake.columns = columns
    lake.options = {"whole": True, "ready_marker": "_SUCCESS"}
    lake.put("_SUCCESS", "import_date=20261124/hour=1/part=2/a")

    assert lake.run() == {}
    lake.put("import_date=20261124/_SUCCESS")
    of_day = lake.run()
    lake.put("import_date=20261124/hour=1/_SUCCESS")
    assert [of_day, lake.run()] == ([{"20261124": ["a"]}, {}] if columns == DAY else [{}, {"20261124/1": ["a"]}])


# --- which partition ------------------------------------------------------------------------------------------------


def test_values_are_typed_and_decoded_when_folders_are_as_hive_writes_them(lake: Lake) -> None:
    lake.columns = ["Year", "day", "at", "area"]
    lake.options = {"types": {"year": "int", "day": "date"}}
    lake.put(
        "year=2026/x=1/day=2026-11-24/at=15%3A45/area=caf\u00e9 %2F/deeper/a",
        "year=02026/x=2/day=20261124/at=15%3A45/area=caf\u00e9 %2F/b",
    )

    lake.run()

    (partition,) = lake.delta.partitions
    assert partition.values == {"Year": 2026, "day": date(2026, 11, 24), "at": "15:45", "area": "caf\u00e9 /"}
    assert partition.files.count == 2


@pytest.mark.parametrize(
    "key", ["a", "other=1/a", "import_date=1/import_date=2/a", "import_date=1/plain/x=1/a", "import_date=/a"]
)
def test_file_is_refused_when_its_folder_tells_no_partition(lake: Lake, key: str) -> None:
    lake.put(day(24), key)

    with pytest.raises(SourceError, match=r"exclude=|no value"):
        lake.run()

    assert lake.run(exclude=[key]) == {"20261124": ["a"]}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "20261124x"),
        ("int", "2147483648"),
        ("bigint", str(2**63)),
        ("date", "2026-1-1"),
        ("date", "20261131"),
        ("int", "\u0664"),
    ],
)
def test_folder_is_refused_when_it_holds_no_value_of_its_type(lake: Lake, kind: str, text: str) -> None:
    lake.put(f"import_date={text}/a")

    with pytest.raises(SourceError, match=f"holds no {kind}"):
        lake.run(types={DAY: kind})


@pytest.mark.parametrize(("kind", "bits"), [("int", 32), ("bigint", 64)])
def test_number_is_taken_when_it_is_the_largest_or_smallest_of_its_type(kind: str, bits: int) -> None:
    largest, smallest = 2 ** (bits - 1) - 1, -(2 ** (bits - 1))

    for number in (largest, smallest):
        assert typed_value("s3://lake/", DAY, kind, str(number)) == number
    for number in (largest + 1, smallest - 1):
        with pytest.raises(SourceError, match=f"{DAY}={number} holds no {kind}"):
            typed_value("s3://lake/", DAY, kind, str(number))


def test_partition_of_null_is_refused_taken_or_left_out_when_asked_so(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.put(day(24), "import_date=__HIVE_DEFAULT_PARTITION__/a", "import_date=__HIVE_DEFAULT_PARTITION__/b")

    with pytest.raises(SourceError, match="2 files lie in a partition of NULL"):
        lake.run()
    excluded = lake.run(nulls="skip", whole=True)
    assert "event=nulls_excluded" in caplog.text
    assert "files=2" in caplog.text
    included = lake.run(nulls="take")

    assert (excluded, included) == ({"20261124": ["a"]}, {"None": ["a", "b"]})


def test_order_of_texts_is_refused_when_it_is_not_that_of_their_numbers(lake: Lake) -> None:
    lake.columns = "month"
    lake.put("month=9/a", "month=10/a", "month=11/a")

    with pytest.raises(InvalidValueError, match=r"types={'month': 'int'}"):
        lake.run(max_partitions=1)
    with pytest.raises(InvalidValueError, match=r"types={'month': 'int'}"):
        lake.run(start_from="10")

    assert lake.run(max_partitions=1, types={"month": "int"}) == {"9": ["a"]}
    assert lake.run() == {"10": ["a"], "11": ["a"]}


def test_folder_of_a_delta_table_is_refused_when_it_is_read_as_files(lake: Lake) -> None:
    lake.put(day(24), "_delta_log/00000000000000000000.json")

    with pytest.raises(SourceError, match=r"^Source '[^']+': it is a Delta Lake table"):
        lake.run()


# --- modes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_is_saved_when_the_job_is_paused_or_disabled(lake: Lake, whole: bool) -> None:
    lake.options = {"whole": whole}
    lake.put(day(23), day(24))
    lake.run()
    lake.put(day(24, "b"))
    new = {"20261124": ["a", "b"] if whole else ["b"]}

    assert lake.run(job_options={"mode": "pause"}) == new
    everything = {"20261123": ["a"], "20261124": ["a", "b"]}
    assert lake.run(job_options={"mode": "disable"}, start_from="20270101") == everything
    assert lake.run(transformation_ctx=None) == everything
    assert lake.run() == new


def test_range_of_runs_reads_their_files_when_partitions_are_not_whole(lake: Lake) -> None:
    for number in (21, 22, 23):
        lake.put(day(number))
        lake.run(job_options={"run_id": f"jr_{number}"})
    lake.method = "new_partitions"
    of_range = {"mode": "pause", "from_run": "jr_21", "to_run": "jr_23"}

    assert lake.run(job_options=of_range) == {"20261122": ["a"], "20261123": ["a"]}
    with pytest.raises(InvalidValueError, match="whole=False, or rewind"):
        lake.run(job_options=of_range, whole=True)
    lake.method = "latest_partition"
    with pytest.raises(InvalidValueError, match="A range of runs"):
        lake.run(job_options=of_range)


# --- faults ---------------------------------------------------------------------------------------------------------


def test_commit_is_refused_when_an_old_file_of_a_whole_partition_changed_meanwhile(lake: Lake) -> None:
    lake.put(day(24))
    lake.run(whole=True)
    lake.put(day(24, "b"))

    with pytest.raises(ChangedObjectError, match="20261124/a"), IncrementalJob(lake.watermarks, "copy") as job:
        lake.take(job, whole=True)
        lake.put(day(24), text="changed")


@pytest.mark.parametrize(
    "calls", ["whole, then files", "whole, then new", "new, then whole", "whole, then latest", "other columns"]
)
def test_replay_is_refused_when_the_plan_was_made_by_another_call(lake: Lake, calls: str) -> None:
    lake.columns = ["import_date", "hour"]
    lake.put("import_date=20261124/hour=1/a")
    lake.die(whole=calls != "new, then whole")

    with pytest.raises(PlanConflictError, match="Run the code that made the plan"):
        if calls == "whole, then files":
            with IncrementalJob(lake.watermarks, "copy") as job:
                job.new_files(str(lake.root), transformation_ctx="partitions")
        if calls == "whole, then latest":
            lake.method = "latest_partition"
            lake.run(transformation_ctx="partitions")
        if calls == "other columns":
            lake.columns = "import_date"
        lake.run(whole=calls != "whole, then new")


def test_replay_is_of_the_same_files_when_new_files_made_the_plan(lake: Lake) -> None:
    lake.put(day(24))
    with pytest.raises(KilledError), IncrementalJob(lake.watermarks, "copy") as job:
        job.new_files(str(lake.root), transformation_ctx="partitions")
        job.freeze()
        raise KilledError

    assert lake.run() == {"20261124": ["a"]}


def test_known_file_of_a_whole_partition_is_named_when_it_was_archived_since(
    watermarks: Watermarks, s3: Any, bucket: str
) -> None:
    def run(**options: Any) -> Shown:
        with IncrementalJob(watermarks, "copy", s3_client=s3) as job:
            return shown(job.new_partitions(f"s3://{bucket}/raw/", DAY, whole=True, **options))

    put_objects(s3, bucket, f"raw/{day(24)}")
    run()
    put_objects(s3, bucket, f"raw/{day(24, 'b')}")
    s3.put_object(Bucket=bucket, Key=f"raw/{day(24)}", Body=b"x", StorageClass="GLACIER")

    with pytest.raises(ArchivedObjectError, match="20261124/a"):
        run()
    assert run(on_archived="take") == {"20261124": ["a", "b"]}


def test_changed_file_is_an_error_when_on_modified_says_so(lake: Lake) -> None:
    lake.put(day(24))
    lake.run()
    lake.put(day(24), text="changed")

    with pytest.raises(SourceError, check=because("modified")):
        lake.run(on_modified="raise")


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("", {}), ([], {}), ([1], {}), ([DAY, "IMPORT_DATE"], {}), (DAY, {"types": {"day": "int"}}),
        (DAY, {"types": {DAY: "timestamp"}}), (DAY, {"types": {DAY: 1}}), (DAY, {"nulls": "ignore"}),
        (DAY, {"max_partitions": 0}), (DAY, {"max_partitions": True}), (DAY, {"max_partitions": "1"}),
        (DAY, {"whole": "yes"}), (DAY, {"max_files": 1}), (DAY, {"max_bytes": 1}), (DAY, {"start_from": 1}),
        (DAY, {"start_from": date(2026, 11, 24)}), (DAY, {"start_from": ("1", "2")}), (DAY, {"start_from": ()}),
        (DAY, {"start_from": "x", "types": {DAY: "int"}}), (DAY, {"start_from": True, "types": {DAY: "int"}}),
        (DAY, {"start_from": "", "types": {DAY: "int"}}), (DAY, {"start_from": datetime(2026, 1, 1)}),
        (DAY, {"whole": True, "layout": "import_date=%Y%m%d/"}),
        (DAY, {"whole": True, "on_modified": "skip"}), (DAY, {"whole": True, "on_archived": "skip"}),
        (DAY, {"whole": True, "on_changed": "skip"}),
        (DAY, {"on_changed": "never"}), (DAY, {"events": object()}), (DAY, {"after_commit": "delete"}),
    ],
)  # fmt: skip
def test_option_is_refused_when_it_cannot_be_meant(lake: Lake, columns: Any, options: dict[str, Any]) -> None:
    lake.columns = columns
    lake.put(day(24))

    with pytest.raises(InvalidValueError):
        lake.run(**options)

    lake.columns = DAY
    assert lake.run() == {"20261124": ["a"]}


def test_source_is_refused_when_there_is_no_such_folder(lake: Lake) -> None:
    with pytest.raises(SourceError), IncrementalJob(lake.watermarks, "copy") as job:
        job.new_partitions("nowhere/", DAY)


@pytest.mark.parametrize("call", ["new_partitions", "latest_partition"])
@pytest.mark.parametrize("source", ["raw.repairs", "repairs"])
def test_name_of_a_table_is_refused_with_a_hint_to_its_folder(lake: Lake, call: str, source: str) -> None:
    with (
        pytest.raises(InvalidValueError, check=because("option")) as caught,
        IncrementalJob(lake.watermarks, "copy") as job,
    ):
        getattr(job, call)(source, DAY)

    assert f"its Location in DESCRIBE TABLE EXTENDED {source}." in str(caught.value)
    assert "schema=" in str(caught.value)
    assert lake.watermarks.history("copy") == []


# --- the largest partition ------------------------------------------------------------------------------------------


@pytest.fixture
def snapshots(lake: Lake) -> Lake:
    lake.method = "latest_partition"
    return lake


def test_largest_partition_is_read_when_a_run_asks_for_it(snapshots: Lake) -> None:
    snapshots.put(day(22), day(23), day(23, "b"))
    first = snapshots.run()
    again = snapshots.run()
    snapshots.put(day(24), "import_date=__HIVE_DEFAULT_PARTITION__/a")

    assert first == again == {"20261123": ["a", "b"]}
    assert snapshots.run() == {"20261124": ["a"]}
    assert snapshots.watermarks.latest("copy").watermarks["partition"]["value"] == ["20261124"]


def test_replay_reads_the_planned_partition_when_a_larger_one_came(snapshots: Lake) -> None:
    snapshots.put(day(23))
    planned = snapshots.die()
    snapshots.put(day(24))

    assert planned == snapshots.run() == {"20261123": ["a"]}
    assert snapshots.run() == {"20261124": ["a"]}


def test_same_partition_is_skipped_or_an_error_when_asked_so(snapshots: Lake) -> None:
    snapshots.put(day(23))
    snapshots.run(on_same="raise")

    assert snapshots.run(on_same="skip") == {}
    with pytest.raises(SourceError, check=because("snapshot_unchanged"), match="with the same files"):
        snapshots.run(on_same="raise")
    skipped = snapshots.die(on_same="skip")
    assert (skipped, snapshots.run(on_same="skip")) == ({}, {})
    snapshots.put(day(23, "b"))
    assert snapshots.run(on_same="raise") == {"20261123": ["a", "b"]}


@pytest.mark.parametrize("left", [True, False], ids=["an older one is left", "none is left"])
def test_older_partition_is_refused_when_the_one_taken_is_gone(snapshots: Lake, left: bool) -> None:
    snapshots.put(day(23))
    if left:
        snapshots.put(day(22))
    snapshots.run()
    snapshots.delete(day(23))

    with pytest.raises(
        SourceError, check=because("snapshot_behind"), match="watermarks reset copy --context partition"
    ):
        snapshots.run()
    snapshots.watermarks.reset("copy", transformation_ctx="partition", why="deleted on purpose")
    assert snapshots.run() == ({"20261122": ["a"]} if left else {})


def test_partition_is_passed_over_when_its_marker_is_missing(snapshots: Lake, caplog: pytest.LogCaptureFixture) -> None:
    snapshots.options = {"ready_marker": "_SUCCESS"}
    snapshots.put(day(22), day(23), day(23, "_SUCCESS"), day(24), day(25))

    assert snapshots.run() == {"20261123": ["a"]}
    assert "event=partition_not_ready" in caplog.text
    assert "partitions=2" in caplog.text
    snapshots.put(day(24, "_SUCCESS"))
    assert snapshots.run() == {"20261124": ["a"]}


def test_nothing_is_read_and_it_is_told_when_there_is_no_partition(
    snapshots: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    assert snapshots.run() == {}
    assert "event=no_partition" in caplog.text
    snapshots.put(day(1))
    assert snapshots.run() == {"20261101": ["a"]}


def test_largest_is_by_type_when_texts_would_mislead(snapshots: Lake) -> None:
    snapshots.columns = ["year", "month"]
    snapshots.put("year=2026/month=9/a", "year=2026/month=10/a", "year=2025/month=12/a")

    with pytest.raises(InvalidValueError, match="'int'"):
        snapshots.run()
    assert snapshots.run(types={"month": "int"}) == {"2026/10": ["a"]}
    with pytest.raises(SourceError, check=because("changed"), match="month int"):
        snapshots.run(types={"month": "bigint"})


def test_state_of_the_largest_is_refused_when_a_newer_package_wrote_it(snapshots: Lake) -> None:
    snapshots.put(day(23))
    snapshots.run()
    ((context, state),) = snapshots.watermarks.get_watermark_values("copy").items()
    commit(snapshots.watermarks, "copy", "jr_1", {context: {**state, "format": 2}})

    with pytest.raises(CorruptItemError, match=r"format is not 1, which this version knows\. Update the package"):
        snapshots.run()


def test_nothing_is_saved_of_the_largest_when_the_job_is_paused_or_disabled(snapshots: Lake) -> None:
    snapshots.put(day(23))
    snapshots.run()
    snapshots.put(day(24))

    for options in ({"mode": "pause"}, {"mode": "disable"}):
        assert snapshots.run(job_options=options, on_same="raise") == {"20261124": ["a"]}
    assert snapshots.run(transformation_ctx=None) == {"20261124": ["a"]}
    assert snapshots.run(on_same="raise") == {"20261124": ["a"]}


@pytest.mark.parametrize(
    "options",
    [
        {"on_same": "error"}, {"max_files": 1}, {"layout": "import_date=%Y%m%d/"},
        {"start_from": "now"}, {"on_modified": "skip"}, {"ledger_uri": "/tmp/x"}, {"compare": "mtime"},
        {"on_archived": "skip"}, {"on_changed": "skip"}, {"allowed_lateness": timedelta(1)},
        {"listing": object()}, {"archive_to": "/tmp/x"},
    ],
)  # fmt: skip
def test_option_of_the_largest_is_refused_when_it_cannot_be_meant(snapshots: Lake, options: dict[str, Any]) -> None:
    snapshots.put(day(24))

    with pytest.raises(InvalidValueError):
        snapshots.run(**options)


def test_state_is_refused_when_it_is_of_the_other_call(lake: Lake) -> None:
    lake.put(day(24))
    lake.run(transformation_ctx="one")
    lake.method = "latest_partition"
    with pytest.raises(SourceError, check=because("changed"), match="all files of"):
        lake.run(transformation_ctx="one")
    lake.run(transformation_ctx="two")
    lake.method = "new_partitions"

    with pytest.raises(SourceError, check=because("changed")):
        lake.run(transformation_ctx="two")


def test_values_of_a_caller_are_read_by_type_when_they_name_a_start() -> None:
    columns = PartitionColumns.of(["day", "hour"], {"day": "date", "hour": "integer"})

    assert columns.from_caller("20261124", "start_from") == (date(2026, 11, 24),)
    assert columns.from_caller([date(2026, 11, 24), 7], "start_from") == (date(2026, 11, 24), 7)
