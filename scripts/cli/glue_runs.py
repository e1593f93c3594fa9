"""Read from Glue the runs of a job, and the names of jobs."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from scripts.cli.progress import progress
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.errors import NothingThereError

PAGE = 200
"""Maximum runs that Glue returns in one response."""
NAMES, PAGES_OF_NAMES = 1_000, 20
"""Maximum names that Glue returns in one response, and maximum responses that are read."""


def runs_in_glue(around: Surroundings, name: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the runs of a job, newest first. Raise NothingThereError if Glue has no such job."""
    client = around.client("glue")
    found: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"JobName": name, "MaxResults": min(limit or PAGE, PAGE)}
    with progress(around, f"asking Glue for runs of {printable(name)}") as steps:
        try:
            for page in client.get_paginator("get_job_runs").paginate(**asked, PaginationConfig={"MaxItems": limit}):
                found += map(dict, page["JobRuns"])
                steps.at(len(found), unit="runs")
        except ClientError as error:
            if error.response["Error"]["Code"] == "EntityNotFoundException":
                region = client.meta.region_name
                raise NothingThereError(reason="unknown_glue_job", job_id=name, region=region) from error
            raise
    return found


def names_in_glue(around: Surroundings) -> list[str]:
    """Return the names of jobs in Glue (glue:ListJobs), at most the first 20,000."""
    client, found, asked = around.client("glue"), list[str](), dict[str, Any]()
    with progress(around, "listing jobs in Glue") as steps:
        # Read a limited number of pages: a search for a similar name is not worth reading all jobs of a large account.
        for _ in range(PAGES_OF_NAMES):
            answer = client.list_jobs(MaxResults=NAMES, **asked)
            found += answer["JobNames"]
            steps.at(len(found), unit="jobs")
            if not answer.get("NextToken"):
                break
            asked = {"NextToken": answer["NextToken"]}
    return found
