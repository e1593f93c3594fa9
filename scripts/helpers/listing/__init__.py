"""Seeing objects: complete listings, inventory reports and events, and the S3 client that they ask by.

May not know: what is new. A listing says what is there; `files` compares it with what is remembered.
"""
