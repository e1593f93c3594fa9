"""The SQL of each database: how to read and write it, query it over a connection, and translate its errors.

Must not depend on which table is read or which target is written to.
"""
