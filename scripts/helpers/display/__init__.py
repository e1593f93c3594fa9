"""How results show themselves: times, sizes and counts as text, lists as tables, and log lines without secrets.

May not know: what is shown.
"""
