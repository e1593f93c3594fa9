"""Spark settings to read and write S3 on a local server."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

JARS = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    # Without these options the JVM verifies the bytecode of classes that are not in `CLASSES`, such as connectors.
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    # Allow more compiled code: with one compiler the default is 48 MB, and the JVM would keep looking for code to drop.
    "-XX:ReservedCodeCacheSize=240m"
)
CLASSES = Path(sys.prefix, "spark.jsa")
"""Archive of the classes that a JVM loads when Spark starts, written by `python -m scripts.demo.spark_classes`."""

NUMBERS = {
    "threads.keepalivetime": "60",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "multipart.purge.age": "86400",
}
"""The jars' own defaults. Spark 4's Hadoop has durations with units here, which these older jars cannot parse."""


def short_lived() -> str:
    """Return SPARK_SUBMIT_OPTS for small Spark jobs: Spark starts in half the time and needs half the CPU.

    The JVM compiles less code, and loads the classes of Spark's start from the archive `CLASSES` if it exists.
    """
    ready = CLASSES.exists() and " " not in str(CLASSES)
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={CLASSES} -Xlog:disable" if ready else SHORT_LIVED


def find_jars() -> list[Path]:
    """Return the two S3A jars of the installed sagemaker_pyspark package; an empty list if they are missing."""
    spec = importlib.util.find_spec("sagemaker_pyspark")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "jars"
    found = [folder / name for name in JARS]
    return found if all(jar.exists() for jar in found) else []


def in_place(jars: Iterable[Path]) -> str:
    """Return jars as a value of `spark.jars`. Without `local:`, each session would copy them; S3A's are 190 MB."""
    return ",".join(f"local:{jar}" for jar in jars)


def spark_conf(endpoint_url: str) -> dict[str, str]:
    """Return the settings of S3A for one endpoint: path-style access, and s3:// equal to s3a://."""
    return {
        "spark.jars": in_place(find_jars()),
        "spark.hadoop.fs.s3a.endpoint": endpoint_url,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.attempts.maximum": "3",
        "spark.hadoop.fs.s3a.retry.limit": "3",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in NUMBERS.items()},
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    }
