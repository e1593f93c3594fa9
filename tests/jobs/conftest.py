"""A job over rows and files that grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.jobs.world import World
from tests.support.clock import Clock


@pytest.fixture
def world(hooked: Watermarks, clock: Clock, tmp_path: Path) -> World:
    """Return a job that never ran; its requests go through `client`, so that `wire` has them."""
    return World(hooked, clock, tmp_path)
