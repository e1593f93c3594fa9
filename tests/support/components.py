"""What a machine may lack: an error in CI, a skip that says what to install elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

JDBC_JARS = ("postgresql.jar", "mariadb-java-client.jar", "sqlite-jdbc.jar")
JDBC_FOLDER = "GLUE_WATERMARKS_JDBC_JARS"
"""Environment variable: a folder with the drivers, where they are not in /usr/share/java."""
SCRIPTS_NOT_FETCHED = "The public Glue scripts are not on this machine"
"""How the reason of a skip starts where nobody has fetched them; CI allows it."""


def missing_component(name: str, remedy: str) -> None:
    """Skip on a user's machine, saying what to install; fail in CI."""
    message = f"{name} is missing: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def find_jdbc_jars() -> list[tuple[str, Path]]:
    """Return the JDBC drivers that are installed; tests that need another one say so."""
    folder = Path(os.environ.get(JDBC_FOLDER, "/usr/share/java"))
    return [(name, folder / name) for name in JDBC_JARS if (folder / name).exists()]
