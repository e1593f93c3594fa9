"""In the style of a data platform: copy each table of a catalogue database, and add the day of the import."""

import re
import sys

from awsglue.context import GlueContext
from awsglue.dynamicframe import DynamicFrame
from awsglue.job import Job
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext
from pyspark.sql import functions

args = getResolvedOptions(sys.argv, ["JOB_NAME", "database", "filter", "target"])
glue_context = GlueContext(SparkContext.getOrCreate())
logger = glue_context.get_logger()
job = Job(glue_context)
job.init(args["JOB_NAME"], args)

for table in glue_context.tableNames(dbName=args["database"]):
    if not re.match(args["filter"], table):
        continue
    df = glue_context.create_dynamic_frame.from_catalog(
        name_space=args["database"], table_name=table, transformation_ctx=f"{table}_source"
    ).toDF()
    if len(df.columns) == 0:
        logger.info(f"{table} has nothing new")
        continue
    imported = DynamicFrame.fromDF(df.withColumn("import_date", functions.lit("20260101")), glue_context, table)
    glue_context.write_dynamic_frame.from_options(
        frame=imported,
        connection_type="s3",
        format="parquet",
        connection_options={"path": f"{args['target']}{table}/", "partitionKeys": ["import_date"]},
        transformation_ctx=f"{table}_target",
    )
job.commit()
