"""The SQL of each database: how to read and write it, query it over a connection, and translate its errors.

May not know: which table is read, and which target is written to.
"""
