import sys

from awsglue.context import GlueContext
from awsglue.job import Job
from awsglue.transforms import ApplyMapping
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext

args = getResolvedOptions(sys.argv, ["JOB_NAME", "source", "target"])
glue_context = GlueContext(SparkContext.getOrCreate())
job = Job(glue_context)
job.init(args["JOB_NAME"], args)

landed = glue_context.create_dynamic_frame.from_options(
    connection_type="s3",
    connection_options={
        "paths": args["source"].split(","),
        "recurse": True,
        "exclusions": '["**.tmp"]',
        "groupFiles": "inPartition",
    },
    format="csv",
    format_options={"withHeader": True, "separator": ";"},
    transformation_ctx="landed",
)
mapped = ApplyMapping.apply(
    frame=landed,
    mappings=[("id", "string", "id", "long"), ("bay", "string", "bay", "string")],
    transformation_ctx="mapped",
)
glue_context.write_dynamic_frame.from_options(
    frame=mapped,
    connection_type="s3",
    connection_options={"path": args["target"], "partitionKeys": ["bay"]},
    format="parquet",
    transformation_ctx="written",
)

job.commit()
