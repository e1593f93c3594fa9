"""What no transaction of a Delta table could do is said before the job commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.merging import Merge
from tests.support.written import EPOCH, JOB

BATCH = BatchId(JOB, EPOCH, 1)
REFUSED = ["clustering", "identityColumns", "rowTracking", "domainMetadata", "typeWidening", "icebergCompatV2",
           "inCommitTimestamp", "allowColumnDefaults", "of-the-future"]  # fmt: skip
TAKEN = ["appendOnly", "checkConstraints", "changeDataFeed", "columnMapping", "deletionVectors", "timestampNtz"]
READER = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening"}


def table_with(folder: Path, feature: str) -> Path:
    """Make a Delta table that has one feature, as Spark writes it."""
    path = folder / "t"
    write_deltalake(str(path), pa.table({"id": [1]}))
    log = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            readers = [feature] if feature in READER else []
            action["protocol"] = {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": [feature],
            }  # fmt: skip
    log.write_text("\n".join(map(json.dumps, actions)))
    return path


@pytest.mark.parametrize("feature", REFUSED)
def test_table_is_refused_before_anything_is_staged_when_it_has_a_feature_that_nobody_here_writes(
    tmp_path: Path, feature: str
) -> None:
    path = table_with(tmp_path, feature)

    with pytest.raises(TargetError, match=rf"features {feature}, which the package deltalake does not write.*Spark"):
        DeltaSink(str(path)).stage(BATCH, 1, pd.DataFrame({"id": [2]}))

    assert [found.name for found in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("feature", TAKEN)
def test_rows_are_there_when_the_feature_of_a_table_is_written(tmp_path: Path, feature: str) -> None:
    path = table_with(tmp_path, feature)
    sink = DeltaSink(str(path))

    sink.publish(sink.stage(BATCH, 1, pd.DataFrame({"id": [2]})))

    assert DeltaTable(str(path)).version() == 1


@pytest.mark.parametrize("engine", ["deltalake", "spark"])
def test_merge_is_refused_before_anything_is_staged_when_a_table_takes_rows_only(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    path, rows = tmp_path / "t", pd.DataFrame({"id": [2], "at": [1]})
    schema = Schema.from_arrow(pa.schema([("id", pa.int64()), ("at", pa.int64())]))
    DeltaTable.create(str(path), schema, configuration={"delta.appendOnly": "true"})
    spark: Any = request.getfixturevalue("spark_with_tables") if engine == "spark" else None
    frame: Any = rows if spark is None else spark.createDataFrame(rows)

    with pytest.raises(TargetError, match=r"delta\.appendOnly"):
        DeltaSink(str(path), spark=spark, merge=Merge.of("id", "at")).stage(BATCH, 1, frame)

    assert [found.name for found in tmp_path.iterdir()] == ["t"]
    sink = DeltaSink(str(path), spark=spark)
    sink.publish(sink.stage(BATCH, 1, frame))
    assert DeltaTable(str(path)).version() == 1
