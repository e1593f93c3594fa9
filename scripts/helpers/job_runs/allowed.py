"""Checks where scripts and modules come from, and their arguments: other users may write the table of jobs and runs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from scripts.helpers.errors import InvalidValueError

RESERVED = ("--JOB_NAME", "--JOB_ID", "--JOB_RUN_ID", "--SECURITY_CONFIGURATION")
"""Arguments that Glue sets for each run, and that no user may pass. A job may set Glue's other arguments, such as
``--TempDir``, which names a folder, and ``--job-bookmark-option``."""
SCRIPT_LOCATION = "--scriptLocation"
SPARK_CONF = "--spark-conf"
"""Argument of this package's own jobs: settings of Spark, as JSON."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]+/.*", re.DOTALL)
_SPECIAL_CHARACTERS = re.compile(r"[%*?\[\]{}\\#,\s]")
"""Characters that Hadoop and Spark read as escapes, patterns, aliases or the end of a name. They are refused, so that
the name that was checked is the name that is read."""
_STEPS = {".", ".."}


def check_places(places: Sequence[str], logs: str) -> None:
    """Raise InvalidValueError for a place of scripts that is malformed, or that overlaps the log folder.

    A place that contains the log folder, or is inside it, is refused because a run can print any text to its log, and
    the next run could execute that text as a script.

    >>> check_places(["/srv/jobs", "s3://scripts/jobs/"], "/var/log/jobs")
    """
    folders = os.path.realpath(logs), _comparable(logs)  # logs=s3://x is the local ./s3:/x for SparkSubmit: check both.
    for place in places:
        # Refuse file://host/x and FILE:///x: for Hadoop they are local files, for `_local` a relative path and a URL.
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
    """Return the error for an argument that a run may not pass."""
    return InvalidValueError(problem, reason="argument", job_id=job_name, argument=argument)


def check_arguments(job_name: str, arguments: Mapping[str, str]) -> None:
    """Raise InvalidValueError, which shows no values, for arguments that a parser would read as other arguments.

    A script receives each name and each value as a word of its own. Python's argparse, and with it
    `getResolvedOptions`, takes a value such as ``--JOB_NAME=other`` for an option, even an abbreviated one, unless the
    part before ``=`` has a space. So a user who may only start a job could make its run commit as another job.
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
    """Raise InvalidValueError for a setting of Spark that `rules` does not name: the setting may load code."""
    for name in names:
        if not any(name == rule or (rule.endswith("*") and name.startswith(rule[:-1])) for rule in rules):
            raise refused(
                job_name, argument,
                f"it sets {name!r}, and a run may set {', '.join(rules) or 'nothing'}. Set it for all runs in "
                "SparkSubmit(conf={...}), or name it in SparkSubmit(run_conf=[...]).",
            )  # fmt: skip


def check_spark_conf(job_name: str, arguments: Mapping[str, str], rules: Sequence[str]) -> None:
    """Check ``--spark-conf``, even abbreviated, by the rules of ``--conf``, because the script applies these settings.

    A value that cannot be a JSON map is allowed, because the script may use the name for something else.
    """
    for option, value in arguments.items():
        if option.startswith("--") and SPARK_CONF.startswith(option) and value.lstrip().startswith("{"):
            try:
                names = list(json.loads(value))
            except (ValueError, RecursionError) as error:  # Refuse bad JSON: the script's parser might accept it.
                raise refused(job_name, option, "it is not a JSON map. Correct it.") from error
            check_settings(job_name, option, names, rules)


def checked(job_name: str, location: str, places: Sequence[str]) -> str:
    """Return a location if it is in one of the places, with links resolved if it is local.

    Raises
    ------
    InvalidValueError
        The location is in none of the places.
    """
    local = _local(location)
    if local is None:
        if _is_plain_url(location) and any(_is_below(_url(location), _url(place)) for place in places):
            return location
    # Resolve links before comparing: a link in an allowed folder may lead out of it.
    elif local and not {os.pathsep, "\0"}.intersection(local):
        path = os.path.realpath(local)
        folders = [os.path.realpath(folder) for folder in map(_local, places) if folder]
        if any(_is_in(path, folder) for folder in folders):
            return path
    raise InvalidValueError(reason="script", job_id=job_name, location=location, allowed=places)


def checked_module(job_name: str, location: str, places: Sequence[str]) -> str:
    """Return a module's location if `checked` accepts it and Spark would not read its name as a pattern."""
    if _SPECIAL_CHARACTERS.search(location):
        raise InvalidValueError(reason="script", job_id=job_name, location=location, allowed=places)
    return checked(job_name, location, places)


def _local(location: str) -> str | None:
    """Return the path of a local file; None for a URL."""
    location = location.removeprefix("file://")
    return None if "://" in location else location


def _comparable(location: str) -> str:
    local = _local(location)
    return _url(location) if local is None else os.path.realpath(local)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _is_plain_url(location: str) -> bool:
    steps = location.partition("://")[2].split("/")
    return (
        bool(_URL.fullmatch(location)) and not _SPECIAL_CHARACTERS.search(location) and not _STEPS.intersection(steps)
    )


def _url(location: str) -> str:
    # s3:// in Glue and s3a:// in Hadoop both mean S3.
    return "s3://" + location.removeprefix("s3a://") if location.startswith("s3a://") else location


def _is_below(url: str, place: str) -> bool:
    return url == place or (place.endswith("/") and "://" in place and url.startswith(place))
