"""AWS Glue as its API shows itself: errors under Glue's names, pages, and the runs that Glue knows.

May not know: other parts of the package, but for errors and the filter of log lines. `glue` and `job_runs` both stand
on it, and never on each other.
"""
