"""What every command is given: the table, the clock, and the two consoles it writes to."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError
from rich.console import Console

from scripts.helpers.display.redaction import aws_client
from scripts.helpers.errors import CredentialsError
from scripts.helpers.protocol.dynamodb import make_table_client
from scripts.helpers.protocol.names import is_file
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import DEFAULT_TABLE, Watermarks

logger = logging.getLogger(__name__)

ENDLESS = 10_000
"""Columns of what is not a terminal: nothing is folded there."""


@dataclass
class Surroundings:
    """The options that every command has, and what follows from them. Nothing is sent before it is needed."""

    table: str = DEFAULT_TABLE
    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    is_json: bool = False
    fixed_now: datetime | None = None
    progress_after: float = 2.0
    """Seconds from which on progress is shown: what is quicker would only flicker."""

    def now(self) -> datetime:
        """Return the time."""
        return self.fixed_now or datetime.now(timezone.utc)

    @cached_property
    def out(self) -> Console:
        """Where answers go."""
        return console_on(sys.stdout)

    @cached_property
    def err(self) -> Console:
        """Where questions, progress and errors go."""
        return console_on(sys.stderr)

    @property
    def shown(self) -> Console:
        """Where what is asked about is shown: beside the question, where standard output is for one JSON document."""
        return self.err if self.is_json else self.out

    @cached_property
    def store(self) -> Store:
        """The table's items as they are. CredentialsError without a region or with a profile that cannot be used."""
        if is_file(self.table):
            given = {"--region": self.region, "--profile": self.profile, "--endpoint-url": self.endpoint_url}
            if options := ",".join(name for name, value in given.items() if value is not None):
                logger.warning(
                    "event=without_effect table=%s options=%s: the table is a file. They apply to S3 and Glue only",
                    self.table, options,
                )  # fmt: skip
            return Store(self.table)
        self._use_profile()
        return Store(self.table, make_table_client(self.region, self.endpoint_url))

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Let profile, region and endpoint reach all that a command starts: clients of every service, and processes.

        A variable for one service, such as AWS_ENDPOINT_URL_S3, still wins over the endpoint.
        """
        # botocore reads AWS_DEFAULT_PROFILE before AWS_PROFILE.
        profiles = dict.fromkeys(("AWS_DEFAULT_PROFILE", "AWS_PROFILE"), self.profile)
        given = profiles | {"AWS_DEFAULT_REGION": self.region, "AWS_ENDPOINT_URL": self.endpoint_url}
        chosen = {name: value for name, value in given.items() if value is not None}
        before = {name: os.environ.get(name) for name in chosen}
        os.environ.update(chosen)
        try:
            yield
        finally:
            # A program may call the command in its own process, and has variables of its own.
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def told(self) -> dict[str, str | None]:
        """Return where the command asked: table, region, profile and endpoint; None for what boto3 chooses itself."""
        region = self.region or os.environ.get("AWS_DEFAULT_REGION")
        profile = self.profile or os.environ.get("AWS_PROFILE")
        variables = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL")
        endpoint = self.endpoint_url or next((os.environ[name] for name in variables if name in os.environ), None)
        return {"table": self.table, "region": region, "profile": profile, "endpoint_url": endpoint}

    def client(self, service: str) -> Any:
        """Return a client of another service, where the table is asked for, too; CredentialsError as `store`."""
        self._use_profile()
        return aws_client(service)

    def _use_profile(self) -> None:
        if self.profile or self.region:
            try:
                boto3.setup_default_session(profile_name=self.profile, region_name=self.region)
            except BotoCoreError as error:
                raise CredentialsError(
                    f"The AWS credentials cannot be used: {str(error).rstrip('.')}. Fix the profile."
                ) from error

    @cached_property
    def watermarks(self) -> Watermarks:
        """The table."""
        return Watermarks(self.table, self.store.client, clock=self.now)


def console_on(stream: Any) -> Console:
    """Make a console; rich leaves colours out where NO_COLOR is set, and where nobody looks."""
    is_terminal = stream.isatty()
    # A file or a pipe has no width. rich would take 80 columns and cut lines that a program wants whole.
    wide = None if is_terminal or "COLUMNS" in os.environ else ENDLESS
    return Console(file=stream, width=wide, highlight=False, markup=False, emoji=False, soft_wrap=not is_terminal)


def is_asked() -> bool:
    """Tell whether somebody can answer a question."""
    try:
        return sys.stdin.isatty()
    except (ValueError, io.UnsupportedOperation):
        # A stream that is closed, or a stand-in without a descriptor: nobody is there.
        return False
