"""The source distribution: it builds, holds the licence, and a wheel can be built from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY


def test_source_distribution_and_a_wheel_of_it_hold_what_they_need_when_built(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "dist"
    shutil.copytree(REPOSITORY / "scripts", source / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)

    done = subprocess.run(
        # Without --sdist or --wheel, build makes the wheel from the unpacked source distribution.
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(source)],
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
    [wheel] = output.glob("*.whl")
    needed = {name for name in names if name.startswith(("scripts/helpers/", "scripts/report/", "scripts/cli/"))}
    assert wheel.name == archive.name.replace(".tar.gz", "-py3-none-any.whl")
    assert {name for name in needed if "." in name} <= set(zipfile.ZipFile(wheel).namelist())
