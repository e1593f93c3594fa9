"""The README's first minute on a machine that has only Python: the seconds from a clone to the first rows.

The commands and the code are those of the README. They run in a new virtual environment without variables: no Java, no
AWS, no packages of this repository's environment. pip downloads into an empty cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.goals import Goal, judge, say

REPOSITORY = Path(__file__).resolve().parent.parent
MOST_SECONDS = 60
PASTED = """
import doctest, sys, tempfile
exec(sys.argv[1])
session = doctest.DocTestParser().get_doctest(sys.argv[2], dict(globals()), "README.md", None, 0)
sys.exit(doctest.DocTestRunner().run(session).failed)
"""
"""Runs the two blocks as a user pastes them. The second block is a session, whose output is checked."""


def main() -> int:
    """Run all steps once, print the seconds of each, and compare their sum with the goal."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    job, session = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[:2]
    packages = re.findall(r"`pip install ('.*?')`", readme)[0].strip("'")
    git, python = shutil.which("git"), getattr(sys, "_base_executable", sys.executable)
    taken: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as empty:
        clone, own = Path(empty, "clone"), f"{empty}/venv/bin"
        clone.mkdir()
        steps = {
            "git clone": (str(git), "clone", "--quiet", str(REPOSITORY), "."),
            "venv": (python, "-m", "venv", f"{empty}/venv"),
            f"pip install '{packages}'": (f"{own}/pip", "install", "--quiet", packages),
            "the README's blocks": (f"{own}/python", "-c", PASTED, job, session),
            "watermarks history": (f"{own}/watermarks", "history", "parking", "--table", "sqlite:watermarks.db"),
        }
        for name, command in steps.items():
            before = time.monotonic()
            subprocess.run(command, cwd=clone, env={"HOME": empty, "PATH": own, **_of_pip()}, check=True)
            taken[name] = time.monotonic() - before
    for name, seconds in taken.items():
        say(f"{name:40} {seconds:6.1f} s")
    return judge([Goal("from the clone to the rows, seconds", sum(taken.values()), MOST_SECONDS, more=False)])


def _of_pip() -> dict[str, str]:
    """Return the variables for pip's package index, proxy and certificates, the only ones that the steps keep."""
    kept = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http", "NO_PROXY", "no_proxy")
    return {name: value for name, value in os.environ.items() if name.startswith(kept)}


if __name__ == "__main__":
    sys.exit(main())
