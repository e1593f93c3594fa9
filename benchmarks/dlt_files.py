"""dlt's filesystem source on a landing server: finds new objects by `modification_date`, and stores its state.

Runs in a Python with dlt and s3fs, which need another version of botocore than boto3 does. Prints one line of JSON.

    python -m benchmarks.dlt_files http://127.0.0.1:9000 folder found
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from datetime import datetime
from typing import Any

import dlt
from dlt.common.configuration.specs import AwsCredentials
from dlt.sources.filesystem import filesystem, read_jsonl

BEFORE_ARRIVALS = "2023-03-15T23:59:59+00:00"


def files_since(endpoint: str) -> Any:
    """Return a source that lists all objects and yields those newer than every object that its state has seen."""
    credentials = AwsCredentials("bench", "bench", None, None, "eu-west-2", endpoint)  # type: ignore[call-arg]
    newer = dlt.sources.incremental("modification_date", initial_value=datetime.fromisoformat(BEFORE_ARRIVALS))
    return filesystem("s3://bucket/landing", credentials, "**/*.json", incremental=newer)


def main() -> None:
    """Find or load the new objects, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("folder", help="where state and output lie")
    parser.add_argument("step", choices=("found", "whole"), help="only find and store the state, or also load the rows")
    given = parser.parse_args()
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    pipeline = dlt.pipeline(
        f"landing_{given.step}", pipelines_dir=given.folder, dataset_name="raw",
        destination=dlt.destinations.filesystem(f"file://{os.path.abspath(given.folder)}/out"),
    )  # fmt: skip
    started = time.perf_counter()
    files = files_since(given.endpoint)
    if given.step == "found":
        pipeline.extract(files, table_name="found")
    else:
        pipeline.run(files | read_jsonl(), table_name="found", loader_file_format="parquet")
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    items = sum(
        metrics["table_metrics"]["found"].items_count
        for extracted in pipeline.last_trace.last_extract_info.metrics.values()
        for metrics in extracted
        if "found" in metrics["table_metrics"]
    )
    sys.stdout.write(json.dumps({"seconds": seconds, "items": items, "peak_mb": peak}) + "\n")


if __name__ == "__main__":
    main()
