"""Fixtures: a job over a growing list of rows and a growing folder of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.jobs.world import World
from tests.support.clock import Clock


@pytest.fixture
def world(hooked: Watermarks, clock: Clock, tmp_path: Path) -> World:
    """Return a job that never ran. Its requests go through `client`, so `wire` records them."""
    return World(hooked, clock, tmp_path)
