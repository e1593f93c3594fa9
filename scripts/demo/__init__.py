"""The demo: runs the jobs on a real data set against a local server. Not part of the wheel."""
