"""Nested rows as related tables, whose ids go on over runs.

May not know: where the rows come from and where the tables go.
"""
