"""New files found by Spark's executors, in a separate driver with 2 GB. Prints seconds and memory as a line of JSON.

python -m benchmarks.spark_driver http://127.0.0.1:9000 ledger-folder
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.file_steps import SOURCE, peak_mb
from benchmarks.landing_server import arrive
from benchmarks.local_spark import local_spark
from scripts.helpers.files.bookmark import FileBookmark


def heap_mb(spark: Any) -> float:
    """Return the peak use of the driver's heap: the peaks of its memory pools, added up."""
    factory = spark._jvm.java.lang.management.ManagementFactory
    pools = [pool for pool in factory.getMemoryPoolMXBeans() if pool.getType().name() == "HEAP"]
    return float(sum(pool.getPeakUsage().getUsed() for pool in pools) / 2**20)


def jvm_mb(spark: Any) -> float:
    """Return the peak memory of the driver's JVM, including memory outside the heap."""
    status = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) / 1024


def main() -> None:
    """Take all files, make 100 arrive, take those, and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("ledger")
    given = parser.parse_args()
    spark = local_spark("2g")
    found: dict[str, float] = {}
    state = None
    for name in ("first", "then"):
        started = time.perf_counter()
        bookmark = FileBookmark(SOURCE, state=state, ledger_uri=given.ledger)
        delta = bookmark.new_files_on_spark(spark)
        found[f"{name}_seconds"] = time.perf_counter() - started
        found[f"{name}_count"] = delta.count
        if delta.files.count() != delta.count:
            raise SystemExit("the DataFrame has another number of rows than was counted")
        state = bookmark.state_after
        arrive(given.endpoint)
    found |= {"python_mb": peak_mb(), "heap_mb": heap_mb(spark), "jvm_mb": jvm_mb(spark)}
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
