"""The source distribution: it builds, and holds the licence and all that a wheel of it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY


def test_source_distribution_holds_licence_and_templates_when_built(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "dist"
    shutil.copytree(REPOSITORY / "scripts", source / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)

    done = subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(output), str(source)],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    [archive] = output.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
        [info] = [member for member in packed.getmembers() if member.name.count("/") == 1 and "PKG-INFO" in member.name]
        told = packed.extractfile(info)
        assert told is not None
        text = told.read().decode()
    assert {"LICENSE", "README.md", "setup.cfg", "scripts/helpers/watermarks.py", "scripts/helpers/py.typed"} <= names
    assert any(name.startswith("scripts/report/templates/") for name in names)
    assert "Author: The glue-watermarks maintainers\n" in text and "Python :: 3.13" in text
