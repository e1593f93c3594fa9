"""A file that keeps Spark's reader busy forever is set aside by the run after the one that hung on it."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.demo.local_s3 import in_place
from tests.support import maven_jars
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

RUN = """
import os, sys

from pyspark.sql import SparkSession
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

folder, kind = sys.argv[1:]
local = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
local["spark.jars"] = os.environ["JARS"]
# A slot for each task that never ends, and one that is left.
builder = SparkSession.builder.master("local[4]")
for name, value in local.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
context = spark.sparkContext
context.setJobGroup("of the script", "its own")
if kind == "connect":
    from pyspark.sql.connect.session import SparkSession as Remote
    from tests.support.connect_server import ConnectServer

    server = ConnectServer(spark)
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    spark = Remote.builder.remote(server.url).create()
watermarks = Watermarks(f"sqlite:{folder}/table.db")
watermarks.create_table()

def files(job):
    return job.new_files(f"{folder}/landing", transformation_ctx="files", on_unreadable="set_aside")

try:
    with IncrementalJob(watermarks, "parking", spark=spark) as job:
        files(job)
        job.freeze()
        raise KeyboardInterrupt("a scheduler ends the run that hangs")
except KeyboardInterrupt:
    pass
with IncrementalJob(watermarks, "parking", spark=spark) as job:
    delta = files(job)
    # Over Connect all of a job counts, also on a machine that is busy.
    delta.readings.seconds = 40 if kind == "connect" else 10
    rows = delta.read(spark, "parquet", schema="id BIGINT")
    group = context.getLocalProperty("spark.jobGroup.id")
    print(sorted(row.id for row in rows.collect()), dict(delta.set_aside), group, flush=True)
os._exit(0)  # Spark would wait for the tasks that never end.
"""


def body_of(values: list[int | None]) -> bytearray:
    body = BytesIO()
    table = pa.table({"id": pa.array(values, pa.int64())})
    options = {"data_page_version": "2.0", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, body, compression="snappy", **options)
    return bytearray(body.getvalue())


def hanging() -> bytearray:
    """Return a Parquet file whose page header says that it is compressed, but which has no bytes to decompress."""
    body = body_of([None] * 10)
    # The page header in Thrift's compact form: type 3, the two sizes, the contents, the lengths of the levels, and then
    # whether the page is compressed (0x12 no, 0x11 yes). Thrift stores each number doubled.
    assert body[4:10] == bytes.fromhex("150615041504")
    body[7] = 20
    place = body.index(bytes.fromhex("15041500121c"))
    body[place + 4] = 0x11
    return body


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_file_is_set_aside_when_its_reader_never_ends(kind: str, tmp_path: Path) -> None:
    found = maven_jars.jars()
    if kind == "connect" and found.unreachable:
        pytest.skip(found.unreachable)
    (tmp_path / "landing").mkdir()
    for name, body in {"1": body_of([1]), "2": hanging(), "3": body_of([3])}.items():
        (tmp_path / "landing" / f"{name}.parquet").write_bytes(body)

    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), kind],
        env={**os.environ, "JARS": in_place([*found.paths])},
        cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "[1, 3] {'2.parquet': 'it cannot be read as parquet: no task ended within "
        f"{40 if kind == 'connect' else 10} seconds'}} of the script"
    )
