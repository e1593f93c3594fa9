"""The columns of sources: which columns a state keeps, how a source's columns have changed, and what a job does then.

Must not depend on where rows or files come from, or how a state is stored. Pure, except for `frames`, which needs rows
of Spark, pandas or pyarrow, and `spark_frames`, which needs a DataFrame.
"""
