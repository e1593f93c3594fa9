"""Find objects: complete listings, inventory reports and events, and the S3 client that they use.

May not know: what is new. A listing shows what is there; `files` compares it with the ledger.
"""
