"""A standalone cluster of Spark on loopback: a master and workers, from PySpark's own package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from scripts.demo.local_s3 import short_lived
from tests.support.servers import free_port, served


@contextmanager
def standalone_cluster(folder: Path, workers: int = 1) -> Iterator[str]:
    """Start a master and workers of two cores each, alternating between two host names; yield the master's URL.

    Spark never runs two attempts at one task on one host at once.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    command = [str(Path(spec.origin).parent / "bin" / "spark-class")]
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    variables = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": short_lived(),
    }

    def daemon(name: str, port: int, *options: str, host: str = "127.0.0.1") -> list[str]:
        where = ["--host", host, "--port", str(port), "--webui-port", "0"]
        return [*command, f"org.apache.spark.deploy.{name}", *where, *options]

    (folder / "master").mkdir(parents=True)
    with ExitStack() as started:
        started.enter_context(served(daemon("master.Master", port), port, folder / "master", variables))
        for number in range(workers):
            place, own = folder / f"worker-{number}", free_port()
            place.mkdir()
            options = ["--cores", "2", "--memory", "1g", "--work-dir", str(place), url]
            worker = daemon("worker.Worker", own, *options, host=("127.0.0.1", "localhost")[number % 2])
            started.enter_context(served(worker, own, place, variables))
        yield url
