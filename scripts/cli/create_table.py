"""`watermarks create-table`: create the table, for a local DynamoDB or a trial."""

from __future__ import annotations

from scripts.cli.commands import command
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings


@command("create-table")
def create_table(around: Surroundings) -> None:
    """Create the DynamoDB table, with the same settings as terraform/, or the file of --table sqlite:PATH."""
    with progress(around, "creating the table"):
        there = around.watermarks.exists()
        if not there:
            around.watermarks.create_table()
    if around.is_json:
        emit({"table": around.table, "created": not there})
    elif there:
        around.out.print(f"Table {around.table} exists already. Nothing was changed.")
    else:
        around.out.print(f"Created table {around.table}.", style="green")
