"""One head item per job, and one conditional write for each step of a run.

May not know: what a source is. Rows, files, Spark and S3 are for the rooms above; a plan is a map here,
whatever is in it.
"""
