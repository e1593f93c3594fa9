"""Find objects by complete listings, inventory reports and events, and make the S3 client for all of these.

Must not depend on which objects are new: this package lists all objects, and `files` compares them with the ledger.
"""
