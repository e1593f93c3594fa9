"""The decisions of an operator about a job: rewind, reset, set, discard, adopt, examine, and move to another table.

Must not depend on sources or sinks. A decision is one conditional write on the head; the history keeps it with who and
why.
"""
