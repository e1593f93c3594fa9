"""What AWS Glue's API has in all its parts: errors under Glue's names, pages, and the runs that Glue has recorded.

May not know: other parts of the package, except errors and the filter of log lines. `glue` and `job_runs` both import
it, and never each other.
"""
