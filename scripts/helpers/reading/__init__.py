"""Read exactly the objects that a plan names: with Spark, with many small fetches, or with pandas.

Must not depend on why the objects were planned. The input is a key with its ETag and version; the output is rows, or an
error that names the key.
"""
