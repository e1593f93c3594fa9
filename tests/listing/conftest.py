"""A client of one's own."""

from __future__ import annotations

from typing import Any

import boto3
import pytest


@pytest.fixture
def own_s3(endpoint: str) -> Any:
    """Return a client whose event hooks are this test's alone."""
    return boto3.client("s3", endpoint_url=endpoint)
