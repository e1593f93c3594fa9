"""Two attempts with Spark: the older is stopped in the middle of its write, and continues after the other."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.sinks.choice import opened
from scripts.helpers.sinks.outputs import NOTE
from scripts.helpers.watermarks import Watermarks
from tests.sinks.attempt import ROWS, attempt
from tests.sinks.processes import attempt_of, wait_for, when_free
from tests.support.database_fixtures import written_as
from tests.support.long import is_long
from tests.support.patience import LONG, PATIENCE
from tests.support.standalone import standalone_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a standalone cluster with two workers."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as url:
        yield url


def run_when_free(spark: Any, watermarks: Watermarks, target: str, run_id: str, format: str = "parquet") -> str:
    """Run the job as soon as no other run has the lease; the lease of a stopped run expires."""
    return when_free(lambda: attempt(spark, watermarks, target, run_id, "/nonexistent", format))


ALL = [(newer, place) for newer in ("jr_1", "jr_2") for place in ("directory", "bucket")]
"""The run id of the newer attempt, that of the older or another one after its lease; and where the target is."""


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize(("newer", "place"), ALL if is_long() else [("jr_1", "bucket"), ("jr_2", "directory")])
def test_every_row_is_at_the_target_once_when_a_stopped_attempt_goes_on(
    dynamodb: Any, endpoint: str, s3: Any, bucket: str, spark: Any, tmp_path: Path, place: str, newer: str
) -> None:
    table = f"table-{tmp_path.name}-{place}"
    watermarks = Watermarks(table, dynamodb)
    watermarks.create_table()
    target = f"s3a://{bucket}/raw" if place == "bucket" else f"{tmp_path}/raw"
    gate = tmp_path / "gate"
    gate.mkdir()

    with attempt_of("attempt", table, endpoint, target, "jr_1", str(gate)) as older:
        wait_for(gate / "inside", older)
        os.killpg(older.pid, signal.SIGSTOP)
        outcome = run_when_free(spark, watermarks, target, newer)
        seen_meanwhile = [row.id for row in spark.read.parquet(target).collect()]
        shutil.rmtree(gate)
        os.killpg(older.pid, signal.SIGCONT)
        said, errors = older.communicate(timeout=PATIENCE)

    assert outcome == "done"
    assert (older.returncode, said.splitlines()[-1:]) == (0, ["outcome=already"]), errors
    assert Counter(seen_meanwhile) == Counter(range(ROWS))
    assert Counter(row.id for row in spark.read.parquet(target).collect()) == Counter(range(ROWS))
    assert watermarks.latest("repairs").version == 1
    assert watermarks.latest("repairs").unpublished == ()
    found = s3.list_objects_v2(Bucket=bucket, Prefix="_raw.staging/").get("Contents", [])
    left = [one["Key"] for one in found if not one["Key"].endswith(f"/{NOTE}")]
    assert left + list((tmp_path / "_raw.staging").rglob("part-*")) == []


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("last", ["is-killed", "goes-on"] if is_long() else ["is-killed"])
def test_every_row_is_at_the_target_once_when_an_executor_and_the_driver_of_a_cluster_fail(
    dynamodb: Any, endpoint: str, bucket: str, spark: Any, cluster: str, tmp_path: Path, last: str
) -> None:
    table = f"table-{tmp_path.name}-cluster"
    watermarks = Watermarks(table, dynamodb)
    watermarks.create_table()
    target = f"s3a://{bucket}/raw"
    gate = tmp_path / "gate"
    gate.mkdir()

    with attempt_of("attempt", table, endpoint, target, "jr_1", str(gate), cluster) as older:
        wait_for(gate / "inside", older)
        executor = int((gate / "inside").read_text())
        os.kill(executor, signal.SIGKILL)
        (gate / "inside").unlink()
        # The tasks of the killed executor are retried, on the remaining executor or on a new one.
        wait_for(gate / "inside", older)
        os.kill(older.pid, signal.SIGSTOP)
        outcome = run_when_free(spark, watermarks, target, "jr_1")
        # The executors continue without their driver; the driver continues without them, or is killed.
        shutil.rmtree(gate)
        if last == "is-killed":
            os.killpg(older.pid, signal.SIGKILL)
        else:
            os.kill(older.pid, signal.SIGCONT)
        said, errors = older.communicate(timeout=PATIENCE)

    assert outcome == "done"
    if last == "goes-on":
        assert (older.returncode, said.splitlines()[-1:]) == (0, ["outcome=already"]), errors
    assert Counter(row.id for row in spark.read.parquet(target).collect()) == Counter(range(ROWS))
    assert watermarks.latest("repairs").unpublished == ()
    assert {finding.kind for finding in examine_targets(watermarks, "repairs", spark=spark)} <= {"staged leftover"}


@pytest.mark.timeout(LONG)
def test_every_row_is_at_the_target_once_when_a_slow_task_runs_a_second_time_beside_the_first(
    spark: Any, jdbc: Any, cluster: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    written = written_as(request, "postgres")
    table = written.new_table("id bigint")
    landing, marks = tmp_path / "landing", tmp_path / "marks"
    landing.mkdir()
    marks.mkdir()
    for number in range(4):
        rows = range(number * ROWS, (number + 1) * ROWS)
        (landing / f"{number}.json").write_text("".join(f'{{"id": {row}}}\n' for row in rows))
    where = (f"sqlite:{tmp_path}/watermarks.db", str(landing), f"{tmp_path}/raw", written.url, table)

    with attempt_of("speculated", *where, json.dumps(written.properties), str(marks), cluster) as speculated:
        said, errors = speculated.communicate(timeout=PATIENCE)

    assert said.splitlines()[-1:] == [f"written={[4 * ROWS, 4 * ROWS]}"], errors
    assert sorted(path.name for path in marks.iterdir()) == ["files-0", "files-1", "table-0", "table-1"]
    every = Counter(range(4 * ROWS))
    assert Counter(row.id for row in spark.read.parquet(f"{tmp_path}/raw").collect()) == every
    assert Counter(row for (row,) in written.rows(f"SELECT id FROM {table}")) == every


@pytest.fixture
def seen(spark_with_tables: Any) -> Callable[[str, str], Counter[int]]:
    """Return a function that counts the rows of a table, by format and name."""

    def counted(format: str, target: str) -> Counter[int]:
        spark = spark_with_tables
        if format == "delta":
            rows = spark.read.format("delta").load(target)
        else:
            spark.sql(f"REFRESH TABLE {target}")  # Otherwise Spark uses what this session has cached.
            rows = spark.table(target)
        return Counter(row.id for row in rows.collect())

    return counted


# test_live_tables tells the same stories without Spark, in seconds.
OF_SPARK = pytest.mark.long


@OF_SPARK
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("newer", ["jr_1", "jr_2"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_every_row_is_in_the_table_once_when_a_stopped_attempt_goes_on(
    dynamodb: Any,
    endpoint: str,
    spark_with_tables: Any,
    tmp_path: Path,
    format: str,
    newer: str,
    seen: Callable[[str, str], Counter[int]],
) -> None:
    spark, table = spark_with_tables, f"table-{tmp_path.name}"
    watermarks = Watermarks(table, dynamodb)
    watermarks.create_table()
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse")
    target = f"{tmp_path}/repairs" if format == "delta" else f"lake.raw.repairs_{newer}"
    gate = tmp_path / "gate"
    gate.mkdir()

    with attempt_of("attempt", table, endpoint, target, "jr_1", str(gate), "local[2]", format, warehouse) as older:
        wait_for(gate / "inside", older)
        os.killpg(older.pid, signal.SIGSTOP)
        outcome = run_when_free(spark, watermarks, target, newer, format)
        seen_meanwhile = seen(format, target)
        shutil.rmtree(gate)
        os.killpg(older.pid, signal.SIGCONT)
        said, errors = older.communicate(timeout=PATIENCE)

    assert outcome == "done"
    assert (older.returncode, said.splitlines()[-1:]) == (0, ["outcome=already"]), errors
    assert seen_meanwhile == seen(format, target) == Counter(range(ROWS))
    assert watermarks.latest("repairs").version == 1
    assert watermarks.latest("repairs").unpublished == ()
    (output,) = watermarks.history("repairs")[0].change.outputs
    sink = opened(output, spark, None)
    assert sink is not None
    assert sink.staged(output.job) == []


@OF_SPARK
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("death", ["clear", "publish"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_every_row_is_in_the_table_once_when_the_writer_is_killed_before_the_head_knows_of_its_transaction(
    dynamodb: Any, endpoint: str, spark_with_tables: Any, tmp_path: Path, format: str, death: str,
    seen: Callable[[str, str], Counter[int]],
) -> None:  # fmt: skip
    spark, table = spark_with_tables, f"table-{tmp_path.name}"
    watermarks = Watermarks(table, dynamodb)
    watermarks.create_table()
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse")
    target = f"{tmp_path}/repairs" if format == "delta" else f"lake.raw.killed_{death}"

    with attempt_of(
        "attempt", table, endpoint, target, "jr_1", str(tmp_path / "no-gate"), "local[2]", format, warehouse, death
    ) as older:
        _, errors = older.communicate(timeout=PATIENCE)
    waiting = len(watermarks.latest("repairs").unpublished)
    run_when_free(spark, watermarks, target, "jr_1", format)

    assert (older.returncode, waiting) == (-signal.SIGKILL, 1), errors
    assert seen(format, target) == Counter(range(ROWS))
    assert watermarks.latest("repairs").unpublished == ()
