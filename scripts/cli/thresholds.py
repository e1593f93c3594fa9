"""The option `--thresholds` of the commands that show which jobs are late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.metrics.freshness import Threshold
from scripts.helpers.metrics.thresholds import thresholds

THRESHOLDS_FILE = "WATERMARKS_THRESHOLDS"
"""Environment variable that names the file if the option is omitted."""

thresholds_option = click.option(
    "--thresholds",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar=THRESHOLDS_FILE,
    metavar="FILE",
    help='JSON by job name or pattern: {"parking*": {"warn": "2h", "error": "1d", "measure": "age"}}.',
)


def read_thresholds(file: Path | None) -> dict[str, Threshold]:
    """Return the thresholds in a file by job name or pattern; {} without a file. InvalidValueError for a wrong file."""
    if file is None:
        return {}
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidValueError(f'{file} must be a JSON object by job name, such as {{"parking*": {{"error": "1d"}}}}.')
    return thresholds(found)
