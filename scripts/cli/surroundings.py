"""What every command receives: the table, the clock, and the two consoles it writes to."""

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
"""Columns of output that is not a terminal, so that its lines are not folded."""


@dataclass
class Surroundings:
    """The shared options of every command, and the objects made from them. No request is sent before it is needed."""

    table: str = DEFAULT_TABLE
    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    is_json: bool = False
    fixed_now: datetime | None = None
    progress_after: float = 2.0
    """Seconds before progress is shown, because a bar for a quicker task would only flicker."""

    def now(self) -> datetime:
        """Return the current time in UTC, or the fixed time of --now."""
        return self.fixed_now or datetime.now(timezone.utc)

    @cached_property
    def out(self) -> Console:
        """The console for results: standard output."""
        return console_on(sys.stdout)

    @cached_property
    def err(self) -> Console:
        """The console for questions, progress and errors: standard error."""
        return console_on(sys.stderr)

    @property
    def shown(self) -> Console:
        """The console for what a user is asked to confirm: standard error if standard output is for a JSON document."""
        return self.err if self.is_json else self.out

    @cached_property
    def store(self) -> Store:
        """The store of the table's items. Raises CredentialsError if the region is missing or the profile unusable."""
        if is_file(self.table):
            given = {"--region": self.region, "--profile": self.profile, "--endpoint-url": self.endpoint_url}
            if options := ",".join(name for name, value in given.items() if value is not None):
                logger.warning(
                    "event=without_effect table=%s options=%s: these options apply to S3 and Glue, not to a file",
                    self.table, options,
                )  # fmt: skip
            return Store(self.table)
        self._use_profile()
        return Store(self.table, make_table_client(self.region, self.endpoint_url))

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Set environment variables, so that profile, region and endpoint apply to all clients and child processes.

        A variable for one service, such as AWS_ENDPOINT_URL_S3, still wins over the endpoint.
        """
        # Set both: botocore reads AWS_DEFAULT_PROFILE before AWS_PROFILE.
        profiles = dict.fromkeys(("AWS_DEFAULT_PROFILE", "AWS_PROFILE"), self.profile)
        given = profiles | {"AWS_DEFAULT_REGION": self.region, "AWS_ENDPOINT_URL": self.endpoint_url}
        chosen = {name: value for name, value in given.items() if value is not None}
        before = {name: os.environ.get(name) for name in chosen}
        os.environ.update(chosen)
        try:
            yield
        finally:
            # Restore the variables, because a program may call the command in its own process.
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def told(self) -> dict[str, str | None]:
        """Return the table, region, profile and endpoint of the command; a value that boto3 chooses itself is None."""
        region = self.region or os.environ.get("AWS_DEFAULT_REGION")
        profile = self.profile or os.environ.get("AWS_PROFILE")
        variables = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL")
        endpoint = self.endpoint_url or next((os.environ[name] for name in variables if name in os.environ), None)
        return {"table": self.table, "region": region, "profile": profile, "endpoint_url": endpoint}

    def client(self, service: str) -> Any:
        """Return a client of another service, with the table's region and profile. CredentialsError as for `store`."""
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
        """The watermarks in the table that the command names."""
        return Watermarks(self.table, self.store.client, clock=self.now)


def console_on(stream: Any) -> Console:
    """Return a console. rich omits colours if NO_COLOR is set or the stream is not a terminal."""
    is_terminal = stream.isatty()
    # A file or a pipe has no width. rich would assume 80 columns and fold lines that programs need unbroken.
    wide = None if is_terminal or "COLUMNS" in os.environ else ENDLESS
    return Console(file=stream, width=wide, highlight=False, markup=False, emoji=False, soft_wrap=not is_terminal)


def is_asked() -> bool:
    """Return whether a user can answer a question."""
    try:
        return sys.stdin.isatty()
    except (ValueError, io.UnsupportedOperation):
        # No user can answer: standard input is closed, or is an object without a file descriptor.
        return False
