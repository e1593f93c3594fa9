"""A target is asked what it has recorded of a job: no table that was restored, lost or mixed up doubles its rows."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.batch import after_restore, examine_targets
from scripts.helpers.errors import FencedError, InvalidValueError, TargetAheadError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.iceberg import IcebergSink
from scripts.helpers.watermarks import Watermarks
from tests.support.database_fixtures import written_as
from tests.support.table_items import all_items, put_item

JOB = "parking"


@dataclass
class Target:
    """A target of a test: what makes its sink, and what reads the ids in it, in order."""

    sink: Callable[[], Any]
    ids: Callable[[], list[int]]
    frame: Callable[[pd.DataFrame], Any] = lambda rows: rows
    has_batches: bool = True


def files(request: pytest.FixtureRequest) -> Target:
    folder = request.getfixturevalue("tmp_path") / "t"
    return Target(lambda: FileSink(str(folder)), lambda: sorted(pd.read_parquet(folder)["id"]))


def files_on_s3(request: pytest.FixtureRequest) -> Target:
    s3, bucket = request.getfixturevalue("s3"), request.getfixturevalue("bucket")
    request.getfixturevalue("monkeypatch").setenv("AWS_ENDPOINT_URL", request.getfixturevalue("endpoint"))

    def ids() -> list[int]:
        found = []
        for listed in s3.list_objects_v2(Bucket=bucket, Prefix="lake/t/").get("Contents", []):
            if listed["Key"].endswith(".parquet"):
                local = request.getfixturevalue("tmp_path") / f"{uuid.uuid4().hex}.parquet"
                s3.download_file(bucket, listed["Key"], str(local))
                found += list(pd.read_parquet(local)["id"])
        return sorted(found)

    return Target(lambda: FileSink(f"s3://{bucket}/lake/t", s3_client=s3), ids)


def delta(request: pytest.FixtureRequest) -> Target:
    from deltalake import DeltaTable

    folder = str(request.getfixturevalue("tmp_path") / "t")
    return Target(
        lambda: DeltaSink(folder, batch_column="batch"),
        lambda: sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()),
    )


def delta_without_batches(request: pytest.FixtureRequest) -> Target:
    made = delta(request)
    folder = str(request.getfixturevalue("tmp_path") / "t")
    return Target(lambda: DeltaSink(folder), made.ids, has_batches=False)


def delta_on_spark(request: pytest.FixtureRequest) -> Target:
    spark, folder = request.getfixturevalue("spark_with_tables"), str(request.getfixturevalue("tmp_path") / "t")
    return Target(
        lambda: DeltaSink(folder, spark=spark, batch_column="batch"),
        lambda: sorted(row.id for row in spark.read.format("delta").load(folder).collect()),
        spark.createDataFrame,
    )


def iceberg(request: pytest.FixtureRequest) -> Target:
    folder = request.getfixturevalue("tmp_path")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("raw")
    return Target(
        lambda: IcebergSink("lake.raw.t", catalog=catalog, batch_column="batch"),
        lambda: sorted(catalog.load_table("raw.t").scan().to_arrow()["id"].to_pylist()),
    )


def iceberg_on_spark(request: pytest.FixtureRequest) -> Target:
    spark, name = request.getfixturevalue("spark_with_tables"), f"lake.raw.t{uuid.uuid4().hex[:8]}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
    return Target(
        lambda: IcebergSink(name, spark=spark, batch_column="batch"),
        lambda: sorted(row.id for row in spark.table(name).collect()),
        spark.createDataFrame,
    )


def database(kind: str) -> Callable[[pytest.FixtureRequest], Target]:
    def make(request: pytest.FixtureRequest) -> Target:
        written = written_as(request, kind)
        table = written.new_table("id bigint, batch varchar(100)")
        return Target(
            lambda: written.sink(table, batch_column="batch"),
            lambda: sorted(row[0] for row in written.rows(f"SELECT id FROM {table}")),
        )

    return make


KINDS = {
    "files": files, "files-on-s3": files_on_s3, "delta": delta, "delta-without-batches": delta_without_batches,
    "delta-on-spark": delta_on_spark, "iceberg": iceberg, "iceberg-on-spark": iceberg_on_spark,
    "sqlite": database("sqlite"), "postgres": database("postgres"), "maria": database("maria"),
}  # fmt: skip


SLOW = ("delta-on-spark", "iceberg-on-spark")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.long] if name in SLOW else []) for name in KINDS])
def target(request: pytest.FixtureRequest) -> Target:
    return KINDS[request.param](request)


@pytest.fixture(params=list(KINDS))
def any_target(request: pytest.FixtureRequest) -> Target:
    """Return a target of any kind, those of Spark, which take long, among them."""
    return KINDS[request.param](request)


def load(watermarks: Watermarks, target: Target, last: int, run_id: str, **options: Any) -> None:
    """Bring the rows up to `last` that are new to the target."""
    with IncrementalJob(watermarks, JOB, run_id, **options) as job:
        rows = job.rows_since(pd.DataFrame({"id": range(1, last + 1)}), "id")
        job.write(target.frame(rows), target.sink())


def restored(watermarks: Watermarks, target: Target) -> None:
    """Load five rows, and then five more of which the table forgets all, as a backup of before comes back."""
    load(watermarks, target, 5, "jr_1")
    backup = all_items(watermarks)
    load(watermarks, target, 10, "jr_2")
    for job_id, key in all_items(watermarks):
        watermarks.store.delete(job_id, key)
    for item in backup.values():
        put_item(watermarks, item)


def test_no_run_writes_when_the_table_came_back_from_a_backup(watermarks: Watermarks, target: Target) -> None:
    restored(watermarks, target)

    with pytest.raises(TargetAheadError, match="version 2 of job 'parking'") as caught:
        load(watermarks, target, 12, "jr_3")

    assert list(caught.value.ahead.values()) == [(2, 2)]
    assert target.ids() == list(range(1, 11))
    head = watermarks.latest(JOB)
    assert (head.version, head.claim, head.plan) == (1, None, None)
    (found,) = [one for one in examine_targets(watermarks, JOB, sinks=[target.sink()]) if one.kind == "target ahead"]
    assert "versions 2 to 2" in found.detail


def test_rows_are_there_once_when_the_batches_are_taken_back(watermarks: Watermarks, any_target: Target) -> None:
    restored(watermarks, any_target)
    with pytest.raises(TargetAheadError):
        load(watermarks, any_target, 12, "jr_3")

    if not any_target.has_batches:
        before = watermarks.latest(JOB)
        with pytest.raises(InvalidValueError, match="the rows of versions 2 to 2 cannot be taken back"):
            after_restore(watermarks, JOB, sinks=[any_target.sink()], retract=True, why="a backup came back")
        assert watermarks.latest(JOB) == before
        return
    after_restore(watermarks, JOB, sinks=[any_target.sink()], retract=True, why="a backup came back")
    load(watermarks, any_target, 12, "jr_3")
    load(watermarks, any_target, 13, "jr_4")

    assert any_target.ids() == list(range(1, 14))
    assert {one.kind for one in examine_targets(watermarks, JOB, sinks=[any_target.sink()])} == {"retraction"}


def test_rows_come_again_and_nothing_is_asked_twice_when_the_batches_are_kept(
    watermarks: Watermarks, target: Target
) -> None:
    restored(watermarks, target)

    after_restore(watermarks, JOB, sinks=[target.sink()], retract=False, why="a backup came back")
    load(watermarks, target, 12, "jr_3")
    load(watermarks, target, 13, "jr_4")

    assert target.ids() == sorted([*range(1, 14), *range(6, 11)])


def test_nothing_is_changed_when_nobody_says_what_becomes_of_the_batches(
    watermarks: Watermarks, target: Target
) -> None:
    restored(watermarks, target)
    before = watermarks.latest(JOB)

    with pytest.raises(TargetAheadError):
        after_restore(watermarks, JOB, sinks=[target.sink()], why="a backup came back")

    assert watermarks.latest(JOB) == before


def test_first_run_stops_when_the_table_is_another_one(
    watermarks: Watermarks, make_watermarks: Callable[..., Watermarks], target: Target
) -> None:
    load(watermarks, target, 5, "jr_1")
    other = make_watermarks()

    with pytest.raises(TargetAheadError, match="version 1 of job"):
        load(other, target, 5, "jr_1")

    assert target.ids() == [1, 2, 3, 4, 5]
    assert other.latest(JOB).version == 0
    after_restore(other, JOB, sinks=[target.sink()], retract=False, why="the table was lost")
    load(other, target, 6, "jr_2")
    assert target.ids() == sorted([*range(1, 6), *range(1, 7)])


def test_former_batches_go_first_when_the_table_was_lost(
    watermarks: Watermarks, make_watermarks: Callable[..., Watermarks], tmp_path: Path
) -> None:
    target = Target(
        lambda: FileSink(str(tmp_path / "t")), lambda: sorted(pd.read_parquet(tmp_path / "t")["id"])
    )  # fmt: skip
    load(watermarks, target, 5, "jr_1")
    other = make_watermarks()
    with pytest.raises(TargetAheadError):
        load(other, target, 5, "jr_1")

    after_restore(other, JOB, sinks=[target.sink()], retract=True, why="the table was lost")
    load(other, target, 6, "jr_2")

    assert target.ids() == list(range(1, 7))


def test_a_run_stops_as_it_begins_when_its_last_target_is_ahead(watermarks: Watermarks, tmp_path: Path) -> None:
    target = Target(lambda: str(tmp_path / "t"), list)
    restored(watermarks, target)

    with pytest.raises(TargetAheadError), IncrementalJob(watermarks, JOB, "jr_3"):
        pytest.fail("the run has begun")

    assert watermarks.latest(JOB).claim is None


def test_an_attempt_is_fenced_when_another_one_has_published_meanwhile(watermarks: Watermarks, target: Target) -> None:
    load(watermarks, target, 1, "jr_1")

    with pytest.raises(FencedError), IncrementalJob(watermarks, JOB, "jr_2") as slow:
        rows = slow.rows_since(pd.DataFrame({"id": [1, 2]}), "id")
        load(watermarks, target, 2, "jr_2")
        slow.write(target.frame(rows), target.sink())

    assert target.ids() == [1, 2]


def test_nothing_is_found_when_runs_save_nothing_or_others_write_there(watermarks: Watermarks, target: Target) -> None:
    load(watermarks, target, 2, "jr_1")
    load(watermarks, target, 3, "jr_2", mode="pause")
    with IncrementalJob(watermarks, "libraries", "jr_1") as job:
        job.write(target.frame(job.rows_since(pd.DataFrame({"id": [7]}), "id")), target.sink())

    load(watermarks, target, 4, "jr_3")

    assert target.ids() == [1, 2, 3, 3, 4, 7]
    assert [one.kind for one in examine_targets(watermarks, JOB, sinks=[target.sink()])] == []


def test_runs_go_on_when_earlier_epochs_were_retracted(watermarks: Watermarks, target: Target) -> None:
    load(watermarks, target, 2, "jr_1")
    load(watermarks, target, 4, "jr_2")
    after_restore(watermarks, JOB, sinks=[target.sink()], why="to be sure")
    load(watermarks, target, 5, "jr_3")

    watermarks.rewind(JOB, to_version=1, retract=target.has_batches, why="once more")
    load(watermarks, target, 5, "jr_4")
    load(watermarks, target, 6, "jr_5")

    assert target.ids() == (list(range(1, 7)) if target.has_batches else [1, 2, 3, 3, 4, 4, 5, 5, 6])


def test_a_target_is_named_when_only_its_script_can_ask_it(
    watermarks: Watermarks, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    target = database("sqlite")(request)
    restored(watermarks, target)

    after_restore(watermarks, JOB, why="a backup came back")

    assert f"event=target_not_asked job={JOB} target={target.sink().name}" in caplog.text
    with pytest.raises(TargetAheadError, match=r"after_restore\(…, sinks="):
        load(watermarks, target, 12, "jr_3")


def test_a_target_is_named_once_when_many_versions_have_written_to_it(
    watermarks: Watermarks, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    target = database("sqlite")(request)
    for last in (1, 2, 3):
        load(watermarks, target, last, f"jr_{last}")

    after_restore(watermarks, JOB, why="to be sure")

    assert caplog.text.count("event=target_not_asked") == 1


def test_a_warning_names_the_target_when_it_was_emptied(
    watermarks: Watermarks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target(lambda: str(tmp_path / "t"), lambda: sorted(pd.read_parquet(tmp_path / "t")["id"]))
    load(watermarks, target, 2, "jr_1")
    (tmp_path / "t").rename(tmp_path / "old")
    (found,) = examine_targets(watermarks, JOB)

    with caplog.at_level(logging.WARNING):
        load(watermarks, target, 3, "jr_2")
        load(watermarks, target, 4, "jr_3")

    assert found.kind == "target behind"
    assert caplog.text.count("event=target_behind") == 1
    assert target.ids() == [3, 4]


def test_requests_to_s3_are_as_many_when_the_target_has_many_batches(
    watermarks: Watermarks, s3: Any, bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    target = f"s3://{bucket}/lake/t"
    sent: list[str] = []

    def run(last: int) -> dict[str, int]:
        sent.clear()
        with IncrementalJob(watermarks, JOB, f"jr_{last}", s3_client=s3) as job:
            job.write(job.rows_since(pd.DataFrame({"id": range(1, last + 1)}), "id"), target)
        return {name: sent.count(name) for name in sent}

    s3.meta.events.register("before-call.s3", lambda model, **_: sent.append(model.name))
    found = [run(last) for last in range(1, 13)]

    assert found[2] == found[11]
    (record,) = s3.list_objects_v2(Bucket=bucket, Prefix="lake/t/_glue_watermarks/")["Contents"]
    assert record["Key"].endswith("-0000000012")
