"""Spark Structured Streaming on a landing server, with a checkpoint that already holds the known objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.landing_server import FOLDERS, hold, known_objects

SOURCE = "s3a://bucket/landing/"
SCHEMA = "object long, row long, value double, at timestamp, note string"


def take_new(spark: Any, checkpoint: str, output: str | None = None) -> int:
    """Take the new files, write them as Parquet if there is an `output`, and commit; return the number of files.

    Without an output the files are not read: a batch whose DataFrame is not used is only found and committed.
    """
    writer = spark.readStream.schema(SCHEMA).json(SOURCE).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", checkpoint)
    if output is None:
        query = writer.foreachBatch(lambda batch, number: None).start()
    else:
        query = writer.format("parquet").start(output)
    query.awaitTermination()
    latest = max((Path(checkpoint) / "sources" / "0").glob("[0-9]*"), key=lambda path: int(path.name.split(".")[0]))
    number = int(latest.name.split(".")[0])
    return sum(json.loads(line)["batchId"] == number for line in latest.read_text().splitlines()[1:])


def fill_checkpoint(spark: Any, endpoint: str, checkpoint: str, output: str | None, objects: int) -> None:
    """Create a checkpoint with all objects that a server has at the start.

    Spark writes two small batches. The lines for all other objects are then added to the source log of the first batch,
    in Spark's format. A first batch of all objects would take hours, because Spark checks each path of a batch
    separately. The second batch stays small, because Spark checks the last batch again when it starts.
    """
    for few in (FOLDERS, 2 * FOLDERS):
        hold(endpoint, few)
        take_new(spark, checkpoint, output)
    hold(endpoint, objects)
    log = Path(checkpoint) / "sources" / "0" / "0"
    written, second = log.read_text().splitlines(), log.with_name("1").read_text().replace('"batchId":1', '"batchId":0')
    lines = dict.fromkeys(_lines(objects))
    if written[0] != "v1" or not {*written[1:], *second.splitlines()[1:]} <= lines.keys():
        raise SystemExit(f"this Spark writes its source log in another form: {written[:2]}")
    for line in second.splitlines()[1:]:
        del lines[line]
    log.write_text("\n".join(["v1", *lines]))
    os.remove(log.with_name(".0.crc"))


def _lines(objects: int) -> Iterator[str]:
    for key, changed in known_objects(objects):
        yield f'{{"path":"s3a://bucket/{key}","timestamp":{changed * 1000},"batchId":0}}'
