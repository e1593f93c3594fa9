"""The server of Spark Connect within the JVM of the tests' Spark, on loopback: its jars, drivers and S3 are the same.

Spark's own start would listen on every address, as Spark 3.5 cannot be told otherwise, and take a JVM of its own.
"""

from __future__ import annotations

from typing import Any


class ConnectServer:
    """Spark's service behind gRPC's server.

    Attributes
    ----------
    url
        What `SparkSession.builder.remote` takes.
    """

    def __init__(self, spark: Any) -> None:
        java = spark._jvm
        address = java.java.net.InetSocketAddress("127.0.0.1", 0)
        service = java.org.apache.spark.sql.connect.service.SparkConnectService(False)
        builder = java.org.sparkproject.connect.grpc.netty.NettyServerBuilder.forAddress(address)
        self._server = builder.addService(service).build().start()
        self.url = f"sc://127.0.0.1:{self._server.getPort()}"

    def stop(self) -> None:
        """Stop listening. Spark goes on."""
        self._server.shutdownNow()
