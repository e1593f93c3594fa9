"""Spark's packages, copied by Maven once and stored with the Python environment: Avro, XML, tables, Spark Connect.

`python -m tests.support.maven_jars` copies them before the tests run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

UNREACHABLE = "Maven cannot be reached"
"""How the reason of a skip starts that CI allows."""
NO_MAVEN = "GLUE_WATERMARKS_NO_MAVEN"
"""Environment variable: if it is set, Maven is not called. No test of the small set needs these packages."""
FOLDER = Path(sys.prefix, "jars")
SECONDS = 120
"""Timeout, because Maven waits for minutes for a registry that does not answer. Copying takes ten seconds."""
FORGET_SECONDS = 600
"""How long all processes of a run reuse one failure, instead of each waiting for the same timeout."""
SPARK_XML = "com.databricks:spark-xml_2.12:0.18.0"
CONNECT = {"3.5": ["org.apache.spark:spark-connect_2.12:3.5.7"]}
"""The last published Spark Connect server for a version of Spark; Spark 4 includes it."""
TABLES = {
    "3.3": ["io.delta:delta-core_2.12:2.3.0", "org.apache.iceberg:iceberg-spark-runtime-3.3_2.12:1.6.1"],
    "3.4": ["io.delta:delta-core_2.12:2.4.0", "org.apache.iceberg:iceberg-spark-runtime-3.4_2.12:1.10.0"],
    "3.5": ["io.delta:delta-spark_2.12:3.3.2", "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.0"],
    "4.0": ["io.delta:delta-spark_2.13:4.0.0", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"],
    "4.1": ["io.delta:delta-spark_2.13:4.2.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"],
}
"""The connectors for tables; each is built for one version of Spark."""
REST_CATALOG = [
    "org.apache.iceberg:iceberg-core:1.10.0",
    "org.apache.iceberg:iceberg-core:1.10.0:tests",
    "org.apache.iceberg:iceberg-open-api:1.10.0:test-fixtures",
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.xerial:sqlite-jdbc:3.50.3.0",
]
"""Iceberg's own REST catalog server, which lists its tables in SQLite. It uses Spark's file systems."""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<classifier>{}</classifier></dependency>"
)
POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>jars</artifactId>"
    "<version>1</version><packaging>pom</packaging><dependencies>{}</dependencies></project>"
)


@dataclass(frozen=True)
class Jars:
    """The jars that were copied, or why there are none.

    Attributes
    ----------
    unreachable
        Maven is missing or cannot reach a registry: tests skip.
    wrong
        The registry answered that there is no such package: tests fail.
    """

    paths: tuple[Path, ...] = ()
    unreachable: str = ""
    wrong: str = ""


def packages(spark: str) -> list[str]:
    """Return Maven's coordinates for a version of Spark; Spark 4 reads XML without a package."""
    minor = ".".join(spark.split(".")[:2])
    tables = [*TABLES.get(minor, []), *CONNECT.get(minor, [])]
    if int(spark.split(".")[0]) >= 4:
        return [f"org.apache.spark:spark-avro_2.13:{spark}", *tables]
    return [f"org.apache.spark:spark-avro_2.12:{spark}", SPARK_XML, *tables]


def jars(folder: Path = FOLDER, coordinates: Sequence[str] = ()) -> Jars:
    """Return the jars of some packages, by default those for the installed Spark; one process copies, others wait."""
    if os.environ.get(NO_MAVEN):
        # The reason must not start with UNREACHABLE: in CI a test that needs the jars has to fail.
        return Jars(unreachable=f"{NO_MAVEN} is set")
    spark = version("pyspark")
    wanted = coordinates or packages(spark)
    # The name depends on the packages, so that an existing environment gets packages that were added later.
    name = f"{spark}-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:8]}"
    copied, failed = folder / name, folder / f"{name}.failed"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if copied.exists():
            return Jars(tuple(sorted(copied.glob("*.jar"))))
        if failed.exists() and time.time() - failed.stat().st_mtime < FORGET_SECONDS:
            return Jars(unreachable=failed.read_text())
        found = _copy(wanted, copied)
        if found.unreachable:
            failed.write_text(found.unreachable)
        return found


def _copy(coordinates: Sequence[str], folder: Path) -> Jars:
    maven = shutil.which("mvn")
    if maven is None:
        return Jars(unreachable=f"{UNREACHABLE}: there is no mvn; apt-get install maven")
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        pom, made = Path(name, "pom.xml"), Path(name, "jars")
        pom.write_text(POM.format("".join(DEPENDENCY.format(*f"{each}:".split(":")[:4]) for each in coordinates)))
        command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={made}"]
        limits = ["-DincludeScope=runtime", "-DexcludeGroupIds=org.scala-lang"]
        try:
            done = subprocess.run(
                [*command, *limits], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Jars(unreachable=f"{UNREACHABLE}: no answer in {SECONDS} seconds")
        if done.returncode:
            said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
            if "Could not find artifact" in said:
                return Jars(wrong=said)
            return Jars(unreachable=f"{UNREACHABLE}: {said.strip().partition(chr(10))[0][:300]}")
        # Only a complete folder gets this name: a process that is killed half-way does not leave one behind.
        os.replace(made, folder)
    return Jars(tuple(sorted(folder.glob("*.jar"))))


if __name__ == "__main__":
    for found in (jars(), jars(coordinates=REST_CATALOG)):
        sys.stdout.write(found.unreachable or found.wrong or f"{len(found.paths)} jars in {found.paths[0].parent}\n")
