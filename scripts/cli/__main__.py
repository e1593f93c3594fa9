"""`python -m scripts.cli` is the command `watermarks`."""

from scripts.cli.main import main

main()
