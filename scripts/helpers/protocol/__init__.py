"""One head item per job, and one conditional write for each step of a run.

Must not depend on what a source is. Rows, files, Spark and S3 belong to the packages that import this one; this package
treats a plan as a map and does not interpret its content.
"""
