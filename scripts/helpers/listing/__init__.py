"""Find objects by complete listings, inventory reports and events, and make the S3 client for all of these.

Must not depend on what is new. A listing shows what is there; `files` compares it with the ledger.
"""
