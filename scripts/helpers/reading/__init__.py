"""Read exactly the objects that a plan names: with Spark, with many small fetches, or with pandas.

The modules of this package must not depend on why the objects were planned. Their input is a key with its ETag and
version; their output is rows, or an error that names the key.
"""
