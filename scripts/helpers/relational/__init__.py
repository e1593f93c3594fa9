"""Nested rows as related tables, whose ids continue from run to run.

Must not depend on where the rows come from or where the tables are written.
"""
