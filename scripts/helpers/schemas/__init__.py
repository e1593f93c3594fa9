"""The columns of sources: what they were at each version, what changed since, and what a job does about it.

May not know: where rows or files come from, or how a state is stored. Pure, but for `arrow`, which needs a table of
pyarrow or pandas, and `spark`, which needs a DataFrame.
"""
