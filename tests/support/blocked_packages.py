"""A Python of its own in which some packages cannot be imported, as if they were not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection

from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

_START = """
import sys

BLOCKED, CODE = sys.argv.pop(1).split(","), sys.argv.pop(1)

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
exec(compile(CODE, "<string>", "exec"))
"""
"""Compiles the code by itself, so that its own line numbers stand in what it prints."""


def run_without(packages: Collection[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code with `sys.argv[1:]` as given, in a process where the packages cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", _START, ",".join(packages), code, *arguments],
        cwd=REPOSITORY,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
