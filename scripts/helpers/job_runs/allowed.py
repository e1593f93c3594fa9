"""Where scripts and modules may run from, and what a run may pass to them. Others may write what the table has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from scripts.helpers.errors import InvalidValueError

RESERVED = ("--JOB_NAME", "--JOB_ID", "--JOB_RUN_ID", "--SECURITY_CONFIGURATION")
"""Arguments that Glue sets for each run, and nobody gives. The others that Glue knows are the job's own business: they
choose a folder (``--TempDir``), or how its bookmark is used (``--job-bookmark-option`` and the like)."""
SCRIPT_LOCATION = "--scriptLocation"
SPARK_CONF = "--spark-conf"
"""Argument of this package's own jobs with settings of Spark, as JSON."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]+/.*", re.DOTALL)
_MEANT_OTHERWISE = re.compile(r"[%*?\[\]{}\\#,\s]")
"""Signs that Hadoop and Spark take for escapes, patterns, aliases or the end of a name: what is checked must be what
is read."""
_STEPS = {".", ".."}


def check_places(places: Sequence[str], logs: str) -> None:
    """Refuse places that would allow more than they seem to; InvalidValueError.

    As does one that has the folder or the URL of logs in it, or is in it. A run prints what its arguments say: in a
    place of scripts the next run could execute that.

    >>> check_places(["/srv/jobs", "s3://scripts/jobs/"], "/var/log/jobs")
    """
    folders = os.path.realpath(logs), _comparable(logs)  # `SparkSubmit` would keep s3://logs here.
    for place in places:
        # With a host or in capitals Hadoop reads a file of this machine, which is compared as a URL here.
        is_file = place.lower().startswith("file:")
        is_url = "://" in place and not is_file
        if not place or (is_file and not place.startswith("file:///")) or (is_url and not _is_plain_url(place)):
            raise InvalidValueError(
                f"scripts: {place!r} is not a place that scripts can run from. Name a folder or file of this machine, "
                "or a URL with a bucket or host, such as s3://bucket/jobs/."
            )
        path = _comparable(place)
        if any(_is_in(folder, path) or _is_in(path, folder) for folder in folders):
            raise InvalidValueError(
                f"logs={logs!r} and {place!r} of scripts overlap, so what a job prints could be run as a script. Use "
                "folders of which neither is inside the other."
            )


def refused(job_name: str, argument: str, problem: str) -> InvalidValueError:
    """Return the error for an argument that a run may not have."""
    return InvalidValueError(problem, reason="argument", job_id=job_name, argument=argument)


def check_arguments(job_name: str, arguments: Mapping[str, str]) -> None:
    """Refuse arguments that a parser would read as others; InvalidValueError, without their values.

    A script gets each name and its value as two words. Python's argparse, and with it `getResolvedOptions`, reads any
    word as an option that begins with dashes and has no space in its name, also as ``--name=value`` or abbreviated.
    So anybody who may only start a job could make its run commit under the name of another job.
    """
    for name, value in arguments.items():
        option, equals, _ = name.partition("=")
        if option == SCRIPT_LOCATION or (option.startswith("--") and any(one.startswith(option) for one in RESERVED)):
            problem = "it is set for each run, or by the job's Command, also where it is abbreviated. Leave it out."
        elif equals:
            problem = "there is a = in its name. Give what is behind it as its value."
        elif value.startswith("--") and " " not in value.partition("=")[0]:
            problem = "scripts would read its value as another argument. Give it with a space in front."
        else:
            continue
        raise refused(job_name, option, problem)


def check_settings(job_name: str, argument: str, names: Iterable[str], rules: Sequence[str]) -> None:
    """Refuse settings of Spark that no rule names, as others may load code; InvalidValueError."""
    for name in names:
        if not any(name == rule or (rule.endswith("*") and name.startswith(rule[:-1])) for rule in rules):
            raise refused(
                job_name, argument,
                f"it sets {name!r}, and a run may set {', '.join(rules) or 'nothing'}. Set it for all runs in "
                "SparkSubmit(conf={...}), or name it in SparkSubmit(run_conf=[...]).",
            )  # fmt: skip


def check_spark_conf(job_name: str, arguments: Mapping[str, str], rules: Sequence[str]) -> None:
    """Hold ``--spark-conf``, also abbreviated, to the rules of ``--conf``: it sets the same, once the script runs.

    Other text is allowed if it cannot be a JSON map: the script may mean something else by such a name.
    """
    for option, value in arguments.items():
        if option.startswith("--") and SPARK_CONF.startswith(option) and value.lstrip().startswith("{"):
            try:
                names = list(json.loads(value))
            except (ValueError, RecursionError) as error:  # Another Python may read what this one cannot.
                raise refused(job_name, option, "it is not a JSON map. Correct it.") from error
            check_settings(job_name, option, names, rules)


def checked(job_name: str, location: str, places: Sequence[str]) -> str:
    """Return a location that is in one of the places, a local one with its links resolved.

    Raises
    ------
    InvalidValueError
        It is in none of them.
    """
    local = _local(location)
    if local is None:
        if _is_plain_url(location) and any(_is_below(_url(location), _url(place)) for place in places):
            return location
    # Links first: one in a folder that is allowed may lead to one that is not.
    elif local and not {os.pathsep, "\0"}.intersection(local):
        path = os.path.realpath(local)
        folders = [os.path.realpath(folder) for folder in map(_local, places) if folder]
        if any(_is_in(path, folder) for folder in folders):
            return path
    raise InvalidValueError(reason="script", job_id=job_name, location=location, allowed=places)


def checked_module(job_name: str, location: str, places: Sequence[str]) -> str:
    """Return a module as `checked` does; none whose name Spark would take for a pattern."""
    if _MEANT_OTHERWISE.search(location):
        raise InvalidValueError(reason="script", job_id=job_name, location=location, allowed=places)
    return checked(job_name, location, places)


def _local(location: str) -> str | None:
    """Return the path of a local file; None of a URL."""
    location = location.removeprefix("file://")
    return None if "://" in location else location


def _comparable(location: str) -> str:
    local = _local(location)
    return _url(location) if local is None else os.path.realpath(local)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _is_plain_url(location: str) -> bool:
    steps = location.partition("://")[2].split("/")
    return bool(_URL.fullmatch(location)) and not _MEANT_OTHERWISE.search(location) and not _STEPS.intersection(steps)


def _url(location: str) -> str:
    # Both are names of S3: the one of Glue, and the one of Hadoop.
    return "s3://" + location.removeprefix("s3a://") if location.startswith("s3a://") else location


def _is_below(url: str, place: str) -> bool:
    return url == place or (place.endswith("/") and "://" in place and url.startswith(place))
