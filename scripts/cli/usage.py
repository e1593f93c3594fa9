"""Report wrong arguments: click's own text for people, one JSON document on standard error for programs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import click

from scripts.cli.documents import json_text

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended, as in shells: 128 plus the number of SIGINT."""
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
"""What to run instead of each command that earlier versions had."""
_IS_JSON = "scripts.cli.usage"


class _AsJson(click.UsageError):
    """A usage error that is printed as JSON."""

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(error.format_message(), error.ctx)
        self._error = error

    def show(self, file: IO[Any] | None = None) -> None:
        hint = f"{self.ctx.command_path} --help" if self.ctx is not None else None
        document = {"error": type(self._error).__name__, "message": self.message, "hint": hint}
        (file or sys.stderr).write(json_text(document) + "\n")


class Commands(click.Group):
    """A group that reports wrong arguments as JSON if ``--output json`` is anywhere among the arguments."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        """Parse the group's own options."""
        is_json = _is_json_requested(args)
        with _said(is_json):
            made = super().make_context(info_name, args, *rest, **extra)
        made.meta[_IS_JSON] = is_json
        return made

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. For one that was removed, raise a click.UsageError that names its replacement."""
        if cmd_name in GONE:
            raise click.UsageError(f"watermarks {cmd_name} is gone. {GONE[cmd_name]}", ctx)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the arguments of the chosen command, and run it."""
        try:
            with _said(ctx.meta[_IS_JSON]):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except click.Abort as error:
            # Click raises Abort for Ctrl-C at a question and for the answer "no". Exit as interrupted only for Ctrl-C.
            if isinstance(error.__context__, KeyboardInterrupt):
                sys.exit(INTERRUPTED)
            raise


@contextmanager
def _said(is_json: bool) -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        # An error passes through here twice, once for each level of the group. Convert it only the first time.
        if not is_json or isinstance(error, _AsJson):
            raise
        raise _AsJson(error) from error


def _is_json_requested(args: Sequence[str]) -> bool:
    """Return whether the raw arguments ask for JSON, because wrong arguments cannot be parsed."""
    pairs = itertools.pairwise(args)
    return "--output=json" in args or ("--output", "json") in pairs
