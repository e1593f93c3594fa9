"""Make commands that handle errors and share options, which a user may type before or after the command's name."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import click
from click.core import ParameterSource

from scripts.cli.failures import told
from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.errors import InvalidValueError, WatermarkError
from scripts.helpers.metrics.freshness import duration
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.jobs import list_jobs
from scripts.helpers.watermarks import DEFAULT_TABLE, TABLE_VARIABLE

PROGRAM = "watermarks"
COMPLETE_VARIABLE = "_WATERMARKS_COMPLETE"
"""Environment variable with which a shell asks the command for completions."""
COMPLETE_JOBS = "WATERMARKS_COMPLETE_JOBS"
"""Environment variable that turns on completion of job names, which sends requests to AWS at each press of Tab."""
MAX_COMPLETION_REQUESTS = 50
"""Maximum requests for one press of Tab, because the user is waiting."""


class JobName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The name of a job."""

    name = "job"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return names of jobs for completion; [] unless the user has set WATERMARKS_COMPLETE_JOBS."""
        if not os.environ.get(COMPLETE_JOBS):
            return []
        try:
            found = list_jobs(surroundings(ctx).store, max_requests=MAX_COMPLETION_REQUESTS).jobs
        except WatermarkError:
            return []
        names = (job.job_id for job in found)
        return [click.shell_completion.CompletionItem(name) for name in names if name.startswith(incomplete)]


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A duration such as 90s, 15m, 2h or 1d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse a duration. A usage error shows the format."""
        try:
            return value if isinstance(value, timedelta) else duration(value)
        except InvalidValueError as error:
            self.fail(str(error), param, ctx)


class Moment(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time with its zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse a time. A usage error shows the format."""
        try:
            found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            found = datetime.min
        if found.tzinfo is None:
            self.fail(f"{value!r} is not a time with a zone, such as 2026-01-31T10:00:00+00:00", param, ctx)
        return found.astimezone(timezone.utc)


SHARED: list[Callable[[Any], Any]] = [
    click.option("--table", envvar=TABLE_VARIABLE, metavar="NAME", help=f"Table ({DEFAULT_TABLE}) or sqlite:FILE."),
    click.option("--region", metavar="NAME", help="AWS region."),
    click.option("--profile", metavar="NAME", help="Profile in the AWS configuration."),
    click.option("--endpoint-url", metavar="URL", help="URL for all AWS services, such as a local server."),
    click.option("--output", type=click.Choice(["text", "json"]), help="json: print one JSON document."),
    click.option("--now", type=Moment(), hidden=True),
    click.option("--progress-after", type=float, hidden=True),
]
NAMES = ("table", "region", "profile", "endpoint_url", "output", "now", "progress_after")


def with_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return a decorator that adds options to a command, in the order of `options`."""

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


shared = with_options(SHARED)


def surroundings(ctx: click.Context) -> Surroundings:
    """Return the shared options. A typed option wins over its environment variable. If typed twice, the last one wins.

    By itself, click ignores an option typed before the command's name if the option's environment variable is set.
    """
    given: dict[str, Any] = {}
    for is_typed in (True, False):
        context: click.Context | None = ctx
        while context is not None:
            for name in NAMES:
                found = context.params.get(name)
                if (
                    found is not None
                    and (context.get_parameter_source(name) is ParameterSource.COMMANDLINE) is is_typed
                ):
                    given.setdefault(name, found)
            context = context.parent
    made = Surroundings(
        table=given.get("table", DEFAULT_TABLE),
        region=given.get("region"),
        profile=given.get("profile"),
        endpoint_url=given.get("endpoint_url"),
        is_json=given.get("output") == "json",
        fixed_now=given.get("now"),
    )
    if "progress_after" in given:
        made.progress_after = given["progress_after"]
    return made


def command(name: str, **options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command of a function whose first parameter is `Surroundings`."""

    def make(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def run(**arguments: Any) -> Any:
            around = surroundings(click.get_current_context())
            own = {name: value for name, value in arguments.items() if name not in NAMES}
            with around.everywhere(), told(around):
                return function(around, **own)

        decorate: Callable[[Any], click.Command] = click.command(name, **options)
        return decorate(shared(run))

    return make


job_argument = click.argument("job", type=JobName())
context_option = click.option(
    "--context", metavar="NAME", help="Transformation context. Required if the job has several."
)


def check_options(modes: Mapping[str, Container[str]]) -> str:
    """Return the option that sets the command's mode, or "" if none is given.

    Parameters
    ----------
    modes
        The parameters that have an effect, by mode. A mode is the option that sets it, or "" without an option.

    Raises
    ------
    click.UsageError
        A parameter was given that has no effect in this mode.
    """
    context = click.get_current_context()
    given = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given[name] = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
    chosen = next((name for name in modes if name in given), "")
    for name, shown in given.items():
        if name in ("job", chosen, *NAMES) or name in modes[chosen]:
            continue
        if chosen:
            raise click.UsageError(f"{shown} has no effect with {given[chosen]}.")
        needed = " or ".join(f"--{mode.replace('_', '-')}" for mode, names in modes.items() if name in names)
        raise click.UsageError(f"{shown} has no effect without {needed}.")
    return chosen


def read_job(around: Surroundings, job: str) -> Head:
    """Return the head of a job, which has its committed state and its open plan."""
    with progress(around, f"reading {printable(job)}"):
        return around.watermarks.latest(job)
