"""Durable memory of how far a job got, and the deltas computed from it.

Modules here are doors: what users import. Packages are rooms, one concern each; their docstrings say which.
"""

from pkgutil import extend_path

# As in `scripts`: a job's own helpers and these are found side by side. Before the import below, which needs the path.
__path__ = extend_path(__path__, __name__)

from scripts.helpers import _moved

_moved.install()
