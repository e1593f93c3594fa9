"""How results show themselves: times, sizes and counts as text, and lists as tables.

May not know: what is shown.
"""
