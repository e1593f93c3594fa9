"""Fetch the public Glue scripts of `tests.glue.public_scripts` with plain git, each at its commit.

``python -m tests.support.fetch_glue_scripts ~/glue-scripts`` makes that folder; GLUE_SCRIPTS_DIR then names it.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.glue.public_scripts import SCRIPTS

GITHUB = "https://github.com/{owner}/{name}.git"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the scripts go, as owner/name/path")
    parser.add_argument("--url", default=GITHUB, help="of a repository, or of a mirror; default %(default)s")
    given = parser.parse_args()
    wanted: dict[tuple[str, str], set[str]] = {}
    for script in SCRIPTS:
        wanted.setdefault((script.repository, script.commit), set()).update([script.path, *script.modules])
    for (repository, commit), paths in wanted.items():
        owner, _, name = repository.partition("/")
        fetch(given.url.format(owner=owner, name=name), commit, sorted(paths), given.folder / repository)


def fetch(url: str, commit: str, paths: list[str], folder: Path) -> None:
    """Write files of a repository into a folder, as they were at a commit."""
    with TemporaryDirectory() as clone:
        # Fetch neither a work tree nor the contents of other files, because some repositories are large.
        subprocess.run(["git", "clone", "--quiet", "--bare", "--filter=blob:none", url, clone], check=True)
        for path in paths:
            shown = subprocess.run(["git", "-C", clone, "show", f"{commit}:{path}"], check=True, capture_output=True)
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(shown.stdout)


if __name__ == "__main__":
    main()
