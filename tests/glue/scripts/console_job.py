"""In the style of Glue's console: map and resolve a table of the catalogue, and write it to another with a sink."""

import sys

from awsglue.context import GlueContext
from awsglue.job import Job
from awsglue.transforms import ApplyMapping, DropNullFields, ResolveChoice
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext

args = getResolvedOptions(sys.argv, ["JOB_NAME", "target"])
sc = SparkContext()
glue_context = GlueContext(sc)
spark = glue_context.spark_session
job = Job(glue_context)
job.init(args["JOB_NAME"], args)

datasource0 = glue_context.create_dynamic_frame.from_catalog(
    database="shop", table_name="landed", transformation_ctx="datasource0"
)
applymapping1 = ApplyMapping.apply(
    frame=datasource0,
    mappings=[("part no", "long", "part_no", "long"), ("area", "string", "area", "string")],
    transformation_ctx="applymapping1",
)
resolvechoice2 = ResolveChoice.apply(frame=applymapping1, choice="make_struct", transformation_ctx="resolvechoice2")
dropnullfields3 = DropNullFields.apply(frame=resolvechoice2, transformation_ctx="dropnullfields3")
sink = glue_context.getSink(
    path=args["target"], connection_type="s3", updateBehavior="UPDATE_IN_DATABASE", partitionKeys=["area"],
    compression="snappy", enableUpdateCatalog=True, transformation_ctx="sink",
)  # fmt: skip
sink.setCatalogInfo(catalogDatabase="shop", catalogTableName="parts")
sink.setFormat("glueparquet")
sink.writeFrame(dropnullfields3)
job.commit()
