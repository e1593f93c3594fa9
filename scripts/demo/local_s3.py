"""Spark settings to read and write S3 on a server of this machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

JARS = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    # Of each class that is not ready-made, such as those of connectors, the JVM proves that its code is sound.
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    # With one compiler the JVM has room for 48 MB of compiled code, and always looks for what it can drop.
    "-XX:ReservedCodeCacheSize=240m"
)
CLASSES = Path(sys.prefix, "spark.jsa")
"""What a JVM loads when Spark starts, ready-made by `python -m scripts.demo.spark_classes`."""

NUMBERS = {
    "threads.keepalivetime": "60",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "multipart.purge.age": "86400",
}
"""The jars' own defaults: the Hadoop of Spark 4 has durations with units there, which they cannot read."""


def short_lived() -> str:
    """Return SPARK_SUBMIT_OPTS for Spark that works on little: it starts in half the time and needs half the CPU.

    The JVM compiles less of itself, and takes the classes of Spark's start as they are if they are ready-made.
    """
    ready = CLASSES.exists() and " " not in str(CLASSES)
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={CLASSES} -Xlog:disable" if ready else SHORT_LIVED


def find_jars() -> list[Path]:
    """Return the two S3A jars from the installed sagemaker_pyspark package; empty if it is absent."""
    spec = importlib.util.find_spec("sagemaker_pyspark")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "jars"
    found = [folder / name for name in JARS]
    return found if all(jar.exists() for jar in found) else []


def in_place(jars: Iterable[Path]) -> str:
    """Return jars as a value of `spark.jars`. Those without `local:` are copied for each session; S3A's have 190 MB."""
    return ",".join(f"local:{jar}" for jar in jars)


def spark_conf(endpoint_url: str) -> dict[str, str]:
    """Return the settings for S3A against one endpoint: path-style, s3:// the same as s3a://."""
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
