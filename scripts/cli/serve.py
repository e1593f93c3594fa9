"""`watermarks serve`: the page of the report, live."""

from __future__ import annotations

import click

from scripts.cli.commands import command
from scripts.cli.report import report_package
from scripts.cli.surroundings import Surroundings


@command("serve")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8080, show_default=True, metavar="N", help="0: any free."
)
@click.option("--values", is_flag=True, help="Show watermarks too; they may be personal data.")
@click.option("--no-token", is_flag=True, help="Ask for no token: every user of this machine can look.")
def serve(around: Surroundings, port: int, values: bool, no_token: bool) -> None:
    """Serve the same page live, for this machine only.

    Open the URL that it prints: its token is for your browser alone.
    """
    report_package().serve(around.watermarks, port=port, values=values, token=not no_token)
