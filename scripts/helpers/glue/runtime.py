"""Calls that differ between Glue and other runtimes: the only file that imports awsglue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import SparkSession
from scripts.helpers.glue import arguments
from scripts.helpers.glue_api.errors import GlueArgumentError
from scripts.helpers.glue_api.runs import on_glue

if TYPE_CHECKING:
    from pyspark import SparkContext


def glue_session(spark_context: SparkContext | None = None) -> SparkSession:
    """Return the Spark session of Glue's own context. Works on Glue only."""
    from awsglue.context import GlueContext
    from pyspark.context import SparkContext

    session: SparkSession = GlueContext(spark_context or SparkContext.getOrCreate()).spark_session
    return session


def getResolvedOptions(  # noqa: N802
    args: Sequence[str], options: Sequence[str] | None = None, allow_abbrev: bool = False
) -> dict[str, Any]:
    """Resolve the arguments of a job with Glue's own parser on Glue, elsewhere with `arguments.getResolvedOptions`.

    On Glue, awsglue's GlueArgumentError is replaced by this package's, so that one ``except`` works everywhere.
    """
    if not on_glue() or options is None:  # Without `options`, raise this package's error, which names the remedy.
        return arguments.getResolvedOptions(args, options, allow_abbrev)
    from awsglue import utils

    further = {"allow_abbrev": True} if allow_abbrev else {}
    try:
        found: dict[str, Any] = utils.getResolvedOptions(args, options, **further)
    except utils.GlueArgumentError as error:
        raise GlueArgumentError(str(error)) from error
    return found
