"""Iceberg's own REST catalog server in a JVM, behind a proxy that imitates the catalogs of AWS and their failures."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from werkzeug.serving import WSGIRequestHandler, make_server

NO_STAGED_TABLES = {"error": {"message": "stage-create is not supported", "type": "BadRequestException", "code": 400}}
UNKNOWN = {"error": {"message": "No answer", "type": "InternalServerError", "code": 504}}


class RestCatalog:
    """A REST catalog on loopback.

    Attributes
    ----------
    url
        The ``uri`` for Spark and `pyiceberg`.
    stages_tables
        Whether a table can be created in a transaction. The endpoints of Glue and S3 Tables refuse it.
    lose
        How many of the next commits are applied, but answered with a gateway timeout.
    lost
        How many commits were answered so.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.stages_tables, self.lose, self.lost = True, 0, 0
        self._server = make_server("127.0.0.1", 0, self._answer, True, request_handler=_Silent)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        is_chunked = environ.get("wsgi.input_terminated", False)
        body = environ["wsgi.input"].read(*[] if is_chunked else [int(environ.get("CONTENT_LENGTH") or 0)])
        method, target = environ["REQUEST_METHOD"], environ["RAW_URI"]
        if not self.stages_tables and target.endswith("/tables") and json.loads(body or b"{}").get("stage-create"):
            return _said(400, NO_STAGED_TABLES, start)
        asked = http.client.HTTPConnection("127.0.0.1", self._port)
        asked.request(method, target, body, {"Content-Type": environ.get("CONTENT_TYPE") or "application/json"})
        answer = asked.getresponse()
        text = answer.read()
        asked.close()
        if self.lose and method == "POST" and "/tables/" in target and answer.status == 200:
            self.lose, self.lost = self.lose - 1, self.lost + 1
            return _said(504, UNKNOWN, start)
        start(f"{answer.status} {answer.reason}", [("Content-Type", "application/json")])
        return [text]


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


def _said(status: int, error: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start(f"{status} -", [("Content-Type", "application/json")])
    return [json.dumps(error).encode()]


@contextmanager
def rest_catalog(jars: Iterable[Path], folder: Path) -> Iterator[RestCatalog]:
    """Serve a catalog whose tables are in a folder.

    The server's own main class listens on every address, so its parts are put together here.
    """
    import pyspark

    of_spark = Path(pyspark.__file__).parent / "jars"
    # Hadoop's file systems write the metadata of tables.
    needed = [*jars, *of_spark.glob("hadoop-client-*.jar"), *of_spark.glob("jcl-over-slf4j-*.jar")]
    port, token, process = launch_gateway(
        jarpath=str(next(of_spark.glob("py4j-*.jar"))),
        classpath=os.pathsep.join(map(str, needed)),
        javaopts=["-XX:TieredStopAtLevel=1", "-Xmx256m"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        served = RestCatalog(_started(gateway.jvm, folder))
        try:
            yield served
        finally:
            served.stop()
    finally:
        gateway.close()
        process.terminate()
        process.wait()


def _started(java: Any, folder: Path) -> int:
    """Start the server and return its port."""
    iceberg, jetty = java.org.apache.iceberg, java.org.eclipse.jetty
    settings = {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"file://{folder}", "jdbc.schema-version": "V1"}
    hadoop = java.org.apache.hadoop.conf.Configuration()
    tables = iceberg.CatalogUtil.loadCatalog("org.apache.iceberg.jdbc.JdbcCatalog", "tables", settings, hadoop)
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(tables))
    server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
    handler = jetty.servlet.ServletContextHandler()
    handler.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
    server.setHandler(handler)
    server.start()
    port: int = server.getConnectors()[0].getLocalPort()
    return port
