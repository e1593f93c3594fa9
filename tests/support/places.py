"""The repository's path, the region and the table of tests. Imports nothing, as started processes read it too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REPOSITORY = Path(__file__).parent.parent.parent
REGION: Final = "eu-west-2"
TEST_TABLE = "GLUE_WATERMARKS_TEST_TABLE"
TEST_ENDPOINT = "GLUE_WATERMARKS_TEST_ENDPOINT"
"""Environment variables that run the tests of `Watermarks` on an existing table."""
