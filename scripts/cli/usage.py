"""Wrong arguments: click's words for people, one JSON document on standard error for programs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import click

from scripts.cli.documents import json_text

INTERRUPTED = 130
"""What a shell expects of a command that Ctrl-C has ended: 128 and the number of SIGINT."""
GONE = {
    "coverage": "Run: watermarks backfill JOB",
    "diff": "Run: watermarks history JOB --diff VERSION OTHER",
    "freshness": "Run: watermarks jobs --fail-on missing",
    "explain": "Run: watermarks files JOB --explain KEY",
    "gaps": "Run: watermarks backfill JOB",
    "ledger": "Run: watermarks files JOB --sweep --ledger-uri URI",
    "rename-cursor": "Run: watermarks set JOB --rename-cursor OLD NEW",
    "runs": "Run: watermarks history JOB --runs",
    "work": "Let Airflow, Step Functions or cron start the runs of jobs.",
}
"""What to do in place of a command of earlier versions."""
_IS_JSON = "scripts.cli.usage"


class _AsJson(click.UsageError):
    """A wrong argument that shows itself as JSON."""

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(error.format_message(), error.ctx)
        self._error = error

    def show(self, file: IO[Any] | None = None) -> None:
        hint = f"{self.ctx.command_path} --help" if self.ctx is not None else None
        document = {"error": type(self._error).__name__, "message": self.message, "hint": hint}
        (file or sys.stderr).write(json_text(document) + "\n")


class Commands(click.Group):
    """A group whose wrong arguments are said in JSON where that is asked for, wherever the option stands."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        """Read the group's own options."""
        is_json = _asks_json(args)
        with _said(is_json):
            made = super().make_context(info_name, args, *rest, **extra)
        made.meta[_IS_JSON] = is_json
        return made

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; click.UsageError names what replaces one that is gone."""
        if cmd_name in GONE:
            raise click.UsageError(f"watermarks {cmd_name} is gone. {GONE[cmd_name]}", ctx)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Read the rest and run the command."""
        try:
            with _said(ctx.meta[_IS_JSON]):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except click.Abort as error:
            # A question ends so as well: click turns Ctrl-C there into what "no" is, too.
            if isinstance(error.__context__, KeyboardInterrupt):
                sys.exit(INTERRUPTED)
            raise


@contextmanager
def _said(is_json: bool) -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        # Both levels of the group pass this way, and the first has made it JSON already.
        if not is_json or isinstance(error, _AsJson):
            raise
        raise _AsJson(error) from error


def _asks_json(args: Sequence[str]) -> bool:
    """Look at the arguments as they stand: those that are wrong cannot be parsed."""
    pairs = itertools.pairwise(args)
    return "--output=json" in args or ("--output", "json") in pairs
