"""Readers and writers: files are selected by time and a band, rows by keys above the last ones."""

import fnmatch
import json
from datetime import datetime, timezone

import boto3
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from awsglue.dynamicframe import DynamicFrame
from awsglue.job import Job

BAND_SECONDS = 900


class GlueContext:
    def __init__(self, spark_context):
        self.spark_session = SparkSession.builder.getOrCreate()
        self.create_dynamic_frame, self.write_dynamic_frame = Reader(self), Writer()


class Reader:
    def __init__(self, context):
        self.context, self.spark = context, context.spark_session

    def from_options(
        self, connection_type, connection_options=None, format=None, format_options=None, transformation_ctx=""
    ):
        if connection_type == "s3":
            df = self.files(connection_options, format, format_options or {}, transformation_ctx)
        else:
            df = self.rows(connection_options, transformation_ctx)
        return DynamicFrame(df, self.context, transformation_ctx)

    def files(self, options, format, format_options, context):
        now = datetime.now(timezone.utc).timestamp()
        listed = [found for path in options["paths"] for found in listing(path, options)]
        start, until = (Job.start.get(context), (Job.until or {}).get(context)) if Job.tracks(context) else (None, None)
        new = [
            (path, time)
            for path, time in listed
            if not was_processed(path, time, start) and (Job.until is None or was_processed(path, time, until))
        ]
        if Job.tracks(context):
            low = now - BAND_SECONDS
            Job.contexts[context] = {"low": low, "high": now, "band": [path for path, time in listed if time > low]}
        if not new:
            return self.spark.createDataFrame([], StructType([]))
        names = {"withHeader": "header", "separator": "sep"}
        reader = self.spark.read.format(format)
        for name, value in format_options.items():
            reader = reader.option(names[name], value)
        return reader.load([path for path, _ in new])

    def rows(self, options, context):
        (key,) = options["jobBookmarkKeys"]
        last = Job.start.get(context) if Job.tracks(context) else None
        where = "" if last is None else f" WHERE {key} > {last}"
        until = (Job.until or {}).get(context)
        if until is not None:
            where += f"{' AND' if where else ' WHERE'} {key} <= {until}"
        df = (
            self.spark.read.format("jdbc")
            .option("driver", "org.postgresql.Driver")
            .option("url", options["url"])
            .option("user", options["user"])
            .option("password", options["password"])
            .option("query", f"SELECT * FROM {options['dbtable']}{where}")
            .load()
        )
        if Job.tracks(context):
            largest = df.agg({key: "max"}).collect()[0][0]
            Job.contexts[context] = last if largest is None else largest
        return df


class Writer:
    def from_options(
        self, frame, connection_type, connection_options=None, format=None, format_options=None, transformation_ctx=""
    ):
        df = frame.toDF()
        if df.columns:
            keys = connection_options.get("partitionKeys", [])
            df.write.format(format).partitionBy(*keys).mode("append").save(connection_options["path"])
        return frame


def listing(path, options):
    bucket, _, prefix = path.removeprefix("s3://").partition("/")
    excluded = json.loads(options.get("exclusions", "[]"))
    for page in boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for found in page.get("Contents", []):
            if not any(fnmatch.fnmatch(found["Key"], glob.replace("**", "*")) for glob in excluded):
                yield f"s3://{bucket}/{found['Key']}", found["LastModified"].timestamp()


def was_processed(path, time, state):
    """Return whether a file was processed: below the band all were, inside it those that were seen, above it none."""
    return state is not None and (time <= state["low"] or (time <= state["high"] and path in state["band"]))
