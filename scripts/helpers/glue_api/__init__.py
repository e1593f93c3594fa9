"""The parts of AWS Glue's API that `glue` and `job_runs` share: errors with Glue's names, pages, and Glue's own runs.

Must not depend on other parts of the package, except errors and the filter of log lines. `glue` and `job_runs` both
import it, and never each other.
"""
