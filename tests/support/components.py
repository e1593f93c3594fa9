"""Optional components of a machine: if one is missing, tests fail in CI and skip elsewhere, saying what to install."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

JDBC_JARS = ("postgresql.jar", "mariadb-java-client.jar", "sqlite-jdbc.jar")
JDBC_FOLDER = "GLUE_WATERMARKS_JDBC_JARS"
"""Environment variable: a folder with the drivers, if they are not in /usr/share/java."""
SCRIPTS_NOT_FETCHED = "The public Glue scripts are not on this machine"
"""How the reason of a skip starts if the scripts were not fetched; CI allows it."""


def missing_component(name: str, remedy: str) -> None:
    """Skip on a user's machine, saying what to install; fail in CI."""
    message = f"{name} is missing: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def find_jdbc_jars() -> list[tuple[str, Path]]:
    """Return the JDBC drivers that are installed. Tests that need another driver report it."""
    folder = Path(os.environ.get(JDBC_FOLDER, "/usr/share/java"))
    return [(name, folder / name) for name in JDBC_JARS if (folder / name).exists()]
