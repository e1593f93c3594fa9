"""A Spark Connect server in the JVM of the tests' Spark, on loopback, with the same jars, drivers and S3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.servers import free_port


class ConnectServer:
    """Spark's service behind a gRPC server.

        Attributes
        ----------
        url
    The URL to pass to `SparkSession.builder.remote`.
        stop
            Stops listening. Spark keeps running.
    """

    def __init__(self, spark: Any) -> None:
        service = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService
        if spark.version >= "4":
            port, self.stop = _started(spark, service)
        else:
            port, self.stop = _served(spark, service(False))
        self.url = f"sc://127.0.0.1:{port}"


def _started(spark: Any, service: Any) -> tuple[int, Callable[[], object]]:
    """Start the service as Spark does; Spark 4 has a setting for its address."""
    settings, port = spark._jsc.sc().conf(), free_port()
    settings.set("spark.connect.grpc.binding.address", "127.0.0.1").set("spark.connect.grpc.binding.port", str(port))
    service.start(spark._jsc.sc())
    none = spark._jvm.scala.Option.empty()
    return port, lambda: service.stop(none, none)


def _served(spark: Any, service: Any) -> tuple[int, Callable[[], object]]:
    """Serve the service here, because Spark 3.5 would let it listen on every address."""
    java = spark._jvm
    builder = java.org.sparkproject.connect.grpc.netty.NettyServerBuilder
    server = builder.forAddress(java.java.net.InetSocketAddress("127.0.0.1", 0)).addService(service).build().start()
    return server.getPort(), server.shutdownNow


def without_jvm(**attributes: Any) -> Any:
    """Return a session or frame whose class looks like one of Spark Connect, with the given attributes."""
    return type("Remote", (), {"__module__": "pyspark.sql.connect.session", **attributes})()
