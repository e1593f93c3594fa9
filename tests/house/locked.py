"""Readers of the lock files in .ci: packages, their versions and hashes."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.utils import canonicalize_name


def packages(path: Path) -> dict[str, str]:
    """Return version and hashes, as one text, of each package that a file locks, by the package's canonical name."""
    blocks = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8").strip())
    return {canonicalize_name(name): rest for name, rest in (block.split("==", 1) for block in blocks)}


def versions(path: Path) -> dict[str, str]:
    """Return the version of each package that a file locks, by the package's canonical name."""
    return {name: rest.split()[0] for name, rest in packages(path).items()}
