"""Find objects by complete listings, inventory reports and events, and make the S3 client for all of these.

Must not depend on what is new: this room lists what exists, and `files` compares that with the ledger.
"""
