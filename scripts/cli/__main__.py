"""`python -m scripts.cli` is the command `watermarks`."""

from scripts.cli.start import main

main()
