"""AWS Glue as its API shows itself: errors under Glue's names, pages, and the runs that Glue knows.

May not know: anything of ours but errors. `glue` and `job_runs` both stand on it, and never on each other.
"""
