"""`watermarks serve`: the page of the report, live."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from scripts.cli.commands import command
from scripts.cli.documents import json_text
from scripts.cli.report import report_package
from scripts.cli.surroundings import Surroundings
from scripts.cli.thresholds import read_thresholds, thresholds_option


@command("serve")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    metavar="N",
    help="Port; 0 chooses a free one.",
)
@click.option("--values", is_flag=True, help="Show watermarks, which may be personal data.")
@click.option("--no-token", is_flag=True, help="Require no token. Every user of this machine can read the page.")
@thresholds_option
def serve(around: Surroundings, port: int, values: bool, no_token: bool, file: Path | None) -> None:
    """Serve the page of `report` live, for this machine only.

    Open the URL that the command prints. Its token gives access to your browser only. The page reads the
    table again every minute. With --output json, the URL is printed as one JSON document, on one line.
    """

    def tell(url: str) -> None:
        sys.stdout.write(json_text({"url": url, "table": around.table}) + "\n")
        # Whoever started the command waits for this line, and standard output may be a pipe, which is buffered.
        sys.stdout.flush()

    report_package().serve(
        around.watermarks,
        port=port,
        values=values,
        token=not no_token,
        thresholds=read_thresholds(file),
        on_start=tell if around.is_json else None,
    )
