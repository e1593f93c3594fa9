import sys

from awsglue.context import GlueContext
from awsglue.dynamicframe import DynamicFrame
from awsglue.job import Job
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext
from pyspark.sql import functions

args = getResolvedOptions(sys.argv, ["JOB_NAME", "url", "user", "password", "table", "source", "target"])
glue_context = GlueContext(SparkContext.getOrCreate())
job = Job(glue_context)
job.init(args["JOB_NAME"], args)

repairs = glue_context.create_dynamic_frame.from_options(
    connection_type="postgresql",
    connection_options={
        "url": args["url"],
        "user": args["user"],
        "password": args["password"],
        "dbtable": args["table"],
        "jobBookmarkKeys": ["id"],
        "jobBookmarkKeysSortOrder": "asc",
    },
    transformation_ctx="repairs",
)
prices = glue_context.create_dynamic_frame.from_options(
    connection_type="s3",
    connection_options={"paths": [args["source"]]},
    format="json",
)
priced = repairs.toDF().join(prices.toDF(), "part").withColumn("total", functions.expr("price * number"))
glue_context.write_dynamic_frame.from_options(
    frame=DynamicFrame.fromDF(priced, glue_context, "priced"),
    connection_type="s3",
    connection_options={"path": args["target"]},
    format="json",
)

job.commit()
