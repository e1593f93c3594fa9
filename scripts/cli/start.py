"""Start the command `watermarks`; if one of its packages is missing, say which to install."""

from __future__ import annotations

import sys

NEEDED = ("click", "rich")


def main() -> None:
    """Run the command. If its packages are missing, print one line on standard error and exit with code 78."""
    try:
        from scripts.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        from scripts.jobs.exit_codes import BAD_SET_UP

        # Name this Python, because it runs the command, however the package was installed.
        sys.stderr.write(f"watermarks needs {error.name}: {sys.executable} -m pip install {' '.join(NEEDED)}\n")
        sys.exit(BAD_SET_UP)
    run()
