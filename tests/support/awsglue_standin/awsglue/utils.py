# ruff: noqa: N802
"""Arguments."""

import argparse


class GlueArgumentError(Exception):
    pass


def getResolvedOptions(args, options, allow_abbrev=False):
    parser = argparse.ArgumentParser(allow_abbrev=allow_abbrev)
    for name in ("job-bookmark-option", "job-bookmark-from", "job-bookmark-to", "JOB_RUN_ID", "TempDir"):
        parser.add_argument(f"--{name}")
    for name in options:
        parser.add_argument(f"--{name}", required=True)
    found = vars(parser.parse_known_args(args[1:])[0])
    found["job_bookmark_option"] = found["job_bookmark_option"] or "job-bookmark-disable"
    return found
