"""What a person may do about a job: rewind, reset, set, discard, adopt, examine, and move it to another table.

May not know: sources and sinks. A decision is one conditional write on the head, kept in the history with who
and why.
"""
