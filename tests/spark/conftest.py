"""Fixtures for a session of Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.support import maven_jars
from tests.support.components import missing_component
from tests.support.connect_server import ConnectServer


@pytest.fixture(scope="session")
def connect_client(spark: Any) -> Iterator[Any]:
    if find_spec("grpc_status") is None:
        missing_component("The client of Spark Connect", "pip install grpcio grpcio-status googleapis-common-protos")
    from pyspark.sql.connect.session import SparkSession

    # Spark 4 includes its server.
    if spark.version < "4" and maven_jars.jars().unreachable:
        pytest.skip(maven_jars.jars().unreachable)
    server = ConnectServer(spark)
    session = SparkSession.builder.remote(server.url).create()
    yield session
    session.client.close()
    server.stop()


@pytest.fixture
def connect(connect_client: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a session of Spark Connect; PySpark's functions work with it as long as the test runs."""
    # `SparkSession.builder.remote` sets it for good, but other tests in this process need the classic functions.
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    return connect_client
