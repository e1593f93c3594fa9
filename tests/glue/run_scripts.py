"""Run scripts in this process, one for each line of JSON on standard input: ``{"script": path, "args": [...]}``.

A folder passed as argument goes first on Python's path; the tests pass the folder of the awsglue stand-in.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

from pyspark.sql import SparkSession


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[:0] = sys.argv[1:]
    builder = SparkSession.builder
    for name, value in json.loads(os.environ["SPARK_SETTINGS"]).items():
        builder = builder.config(name, value)
    builder.getOrCreate().sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        asked = json.loads(line)
        sys.argv = [asked["script"], *asked["args"]]
        runpy.run_path(asked["script"], run_name="__main__")
        answers.write("done\n")
        answers.flush()


if __name__ == "__main__":
    main()
