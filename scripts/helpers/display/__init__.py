"""Display of results: times, sizes and counts as text, lists as tables, and log lines without secrets.

Must not depend on the modules whose results it displays.
"""
