"""The SQL of each database: how it is read and written, asked by a connection, and what its errors say.

May not know: what is read, and what is written to.
"""
