"""A machine without any AWS configuration."""

from __future__ import annotations

import os

import boto3
import pytest


def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove credentials, region, endpoint and profile, so that not even a DynamoDB client can be created."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "WATERMARKS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
