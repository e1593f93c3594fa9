"""The parts of AWS Glue's API that `glue` and `job_runs` share: its errors, its paginators, and a reader of runs.

These must not depend on the rest of the package, except errors and the filter of log lines. `glue` and `job_runs` both
import it, and never each other.
"""
