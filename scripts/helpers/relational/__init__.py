"""Nested rows as related tables, whose ids continue from run to run.

May not know: where the rows come from and where the tables are written.
"""
