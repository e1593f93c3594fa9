"""In the style of Glue Studio: filter and join two sources, change them with a function and SQL, and write them."""

import sys
from typing import Any

from awsglue.context import GlueContext
from awsglue.dynamicframe import DynamicFrame, DynamicFrameCollection
from awsglue.job import Job
from awsglue.transforms import DropFields, Filter, Join, SelectFromCollection
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext


def spark_sql_query(glue_context: Any, query: str, mapping: Any, transformation_ctx: str) -> DynamicFrame:
    for alias, frame in mapping.items():
        frame.toDF().createOrReplaceTempView(alias)
    result = spark.sql(query)
    return DynamicFrame.fromDF(result, glue_context, transformation_ctx)


def my_transform(glue_context: Any, dfc: Any) -> DynamicFrameCollection:
    df = dfc.select(next(iter(dfc.keys()))).toDF().withColumnRenamed("distance", "metres")
    return DynamicFrameCollection({"CustomTransform0": DynamicFrame.fromDF(df, glue_context, "df")}, glue_context)


args = getResolvedOptions(sys.argv, ["JOB_NAME", "source", "target"])
sc = SparkContext()
glue_context = GlueContext(sc)
spark = glue_context.spark_session
job = Job(glue_context)
job.init(args["JOB_NAME"], args)

Readings_node1 = glue_context.create_dynamic_frame.from_options(
    format_options={"multiline": False},
    connection_type="s3",
    format="json",
    connection_options={"paths": [args["source"]], "recurse": True},
    transformation_ctx="Readings_node1",
)
Owners_node2 = glue_context.create_dynamic_frame.from_catalog(
    database="shop", table_name="owners", transformation_ctx="Owners_node2"
)
Filter_node3 = Filter.apply(frame=Owners_node2, f=lambda row: row["shared"] != 0, transformation_ctx="Filter_node3")
Join_node4 = Join.apply(
    frame1=Readings_node1, frame2=Filter_node3, keys1=["serialNumber"], keys2=["serialnumber"],
    transformation_ctx="Join_node4",
)  # fmt: skip
DropFields_node5 = DropFields.apply(
    frame=Join_node4, paths=["serialnumber", "shared"], transformation_ctx="DropFields_node5"
)
Custom_node6 = my_transform(glue_context, DynamicFrameCollection({"DropFields_node5": DropFields_node5}, glue_context))
Select_node7 = SelectFromCollection.apply(
    dfc=Custom_node6, key=next(iter(Custom_node6.keys())), transformation_ctx="Select_node7"
)
SQL_node8 = spark_sql_query(
    glue_context, query="select *, metres * 100 as centimetres from far", mapping={"far": Select_node7},
    transformation_ctx="SQL_node8",
)  # fmt: skip
S3_node9 = glue_context.write_dynamic_frame.from_options(
    frame=SQL_node8, connection_type="s3", format="json",
    connection_options={"path": args["target"], "partitionKeys": []}, transformation_ctx="S3_node9",
)  # fmt: skip
job.commit()
