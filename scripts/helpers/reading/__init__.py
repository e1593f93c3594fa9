"""Reading exactly the objects that were planned: by Spark, by many small fetches, or by pandas.

May not know: why they were planned. A key, its ETag and its version come in; rows, or an error that names the
key, go out.
"""
