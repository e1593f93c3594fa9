"""Split nested rows into related tables, joined by ids. No two batches have the same ids.

Must not depend on where the rows come from or where the tables are written.
"""
