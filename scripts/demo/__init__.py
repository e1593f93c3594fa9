"""The demo: a local server, a real data set, and the jobs run against both. Not part of the wheel."""
