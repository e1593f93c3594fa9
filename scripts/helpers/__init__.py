"""Durable memory of how far a job got, and the deltas computed from it.

Modules here are doors: what users import. Packages are rooms, one concern each; their docstrings say which.
"""

from scripts.helpers import _moved

_moved.install()
