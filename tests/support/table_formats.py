"""Settings of a Spark session for Delta Lake and Iceberg, if Maven has copied their connectors."""

from __future__ import annotations

from tests.support import maven_jars

EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def start_conf() -> dict[str, str]:
    """Return the settings that a session needs at its start, besides the jars; empty without connectors."""
    names = [jar.name for jar in maven_jars.jars().paths]
    return {"spark.sql.extensions": ",".join(EXTENSIONS)} if any(name.startswith("delta-") for name in names) else {}


def catalog_conf(warehouse: str) -> dict[str, str]:
    """Return the settings that may be set later: Delta's catalog, and an Iceberg catalog named `lake`."""
    return {
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The default of 50 means that 50 tasks read the log of each table.
        "spark.databricks.delta.snapshotPartitions": "1",
        # If the zone is not UTC, Delta computes the state of a table a second time after each commit, to compare.
        "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
    }
