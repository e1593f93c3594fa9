"""Display of results: times, sizes and counts as text, lists as tables, and log lines without secrets.

May not know: what is shown.
"""
