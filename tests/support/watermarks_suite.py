"""Run the tests of `Watermarks` in a separate pytest, on an existing table."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.patience import LONG
from tests.support.places import REPOSITORY, TEST_ENDPOINT, TEST_TABLE

SUITE = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
WHOLE = ("tests/watermarks", "tests/decisions", "-k", "not spill and not doctor and not crash and not faults")
"""The tests that depend on the table; the others would be the same on any table."""
EVERY_REQUEST = (
    *(f"tests/watermarks/test_{part}.py" for part in ("playbook", "runs", "fence", "retention", "history")),
    "tests/decisions/test_administration.py",
)
"""Each kind of request, and writes that lose a race. `make test-long` runs the whole suite."""
ON_THIS_TABLE = tuple(f"tests/watermarks/test_{part}.py" for part in ("fence", "retention"))
"""Enough for a table whose keys and settings another test compares with those of `create_table`."""


def run_watermarks_suite(endpoint: str, table_name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `Watermarks` in a separate pytest, on an existing table."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*SUITE, *options],
        cwd=REPOSITORY,
        env=kept | {TEST_TABLE: table_name, TEST_ENDPOINT: endpoint},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
