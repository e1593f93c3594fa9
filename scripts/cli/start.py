"""Where the command `watermarks` starts: it says what to install where a package of its own is missing."""

from __future__ import annotations

import sys

NEEDED = ("click", "rich")


def main() -> None:
    """Run the command; without its packages, one line on standard error and exit code 78."""
    try:
        from scripts.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        from scripts.jobs.exit_codes import BAD_SET_UP

        # This Python is the one that runs the command, however the package was installed.
        sys.stderr.write(f"watermarks needs {error.name}: {sys.executable} -m pip install {' '.join(NEEDED)}\n")
        sys.exit(BAD_SET_UP)
    run()
