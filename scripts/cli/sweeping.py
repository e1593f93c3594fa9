"""`watermarks files JOB --sweep`: delete ledger files that no job refers to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from scripts.cli.contexts import file_bookmark
from scripts.cli.deciding import asked
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, moment, show_facts
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import count_of, printable, size_text

if TYPE_CHECKING:
    from scripts.helpers.batch.sweep import Sweep

SHOWN = 10
"""How many files a sweep names before it asks. JSON output has all of them."""


def sweep(around: Surroundings, job: str, ledger_uri: str, older_than: timedelta | None, *, yes: bool) -> None:
    """Show the files in a ledger's folder that no job refers to, ask for confirmation, and delete them."""
    file_bookmark()  # If the imports below would fail, this raises an error that names the package to install.
    from scripts.helpers.batch.sweep import LedgerSweep
    from scripts.helpers.files.upkeep import DEFAULT_AGE

    age = DEFAULT_AGE if older_than is None else older_than
    opened = LedgerSweep(around.watermarks, job, ledger_uri)
    with progress(around, "looking at all jobs of the table"):
        shown = opened.to_sweep(age)
    if not (around.is_json and yes):
        _show_sweep(around, shown, age)
    deleted = 0
    if shown.leftovers.files:
        asked(around, f"Delete {count_of(len(shown.leftovers.files), 'file')}?", yes=yes)
        with progress(around, "deleting"):
            deleted = opened.sweep(shown, age)
    if around.is_json:
        left = shown.leftovers
        emit({
            "job": job, "folder": shown.folder.uri, "deleted": deleted, "bytes": left.bytes, "live": left.live,
            "young": left.young, "held": left.held, "foreign": left.foreign,
            "files": [file.name for file in left.files],
        })  # fmt: skip
    elif shown.leftovers.files:
        around.out.print(f"Done: {count_of(deleted, 'file')} deleted.", style="green")


def _show_sweep(around: Surroundings, shown: Sweep, age: timedelta) -> None:
    left, out = shown.leftovers, around.shown
    facts: list[tuple[str, Cell]] = [
        ("folder", printable(shown.folder.uri)),
        ("live", f"{count_of(left.live, 'file')} that jobs refer to"),
        ("left over", f"{count_of(len(left.files), 'file')}, {size_text(left.bytes)}"),
    ]
    if left.young:
        facts.append(("too young", f"{count_of(left.young, 'file')}, less than {_days(age)} old"))
    if shown.held_by is not None and shown.held_by.claim is not None:
        claim, holder = shown.held_by.claim, printable(shown.held_by.job_id)
        text = f"{count_of(left.held, 'file')} of after {moment(claim.since)}, when run {printable(claim.run_id)} of "
        facts.append(("held", f"{text}{holder} began. If it is dead: watermarks release {holder}"))
    if left.foreign:
        facts.append(("foreign", f"{count_of(left.foreign, 'file')} with names that no ledger has; they stay"))
    show_facts(out, facts)
    for file in left.files[:SHOWN]:
        out.print(f"  {printable(file.name)}  {size_text(file.size)}  {moment(file.modified)}")
    if len(left.files) > SHOWN:
        out.print(f"  and {len(left.files) - SHOWN:,} more")


def _days(age: timedelta) -> str:
    return count_of(age.days, "day") if age == timedelta(days=age.days) else str(age)
