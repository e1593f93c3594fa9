"""A job that does not exist: in Glue, in the Job Runs API, or among several. `test_commands` has every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command
from tests.support.steps import commit

NAME = "parking-permit"
WHY = ["--why", "x", "--yes"]


@pytest.mark.parametrize("arguments", [["history", "old-jobs", "--runs", "--glue"],
                                       ["adopt", "old", "--glue", "--glue-job", "old-jobs", "--yes"]],
                         ids=lambda value: value[0])  # fmt: skip
def test_names_of_glue_are_offered_when_glue_has_no_such_job(
    run: Command, watermarks: Watermarks, endpoint: str, arguments: list[str]
) -> None:
    glue = boto3.client("glue", region_name="eu-north-1", endpoint_url=endpoint)
    if "old-job" not in glue.list_jobs()["JobNames"]:
        glue.create_job(Name="old-job", Role="r", Command={"Name": "glueetl"})
    there = Watermarks("far", boto3.client("dynamodb", region_name="eu-north-1", endpoint_url=endpoint))
    if not there.exists():
        there.create_table()
        for run_id in ("jr_1", "jr_2"):
            item = items.key("old", run_id) | {"watermarks": {"M": {"n": {"N": "1"}}}}
            there.store.client.put_item(TableName="far", Item=item)

    done = run("far", *arguments, "--region", "eu-north-1")

    assert done.exit_code == 1
    assert "Glue has no job 'old-jobs' in region 'eu-north-1'. Check the name and the region." in done.stderr
    assert "hint: Did you mean old-job?" in done.stderr


def test_jobs_are_known_when_they_are_only_defined_or_of_the_original_class(
    run: Command, world: Watermarks, watermarks: Watermarks
) -> None:
    watermarks.store.put(items.key("defined", items.JOB_RECORD_KEY) | {"token": {"S": "t"}}, if_new=True)

    legacy, defined = run(world, "history", "libraries", "--runs"), run(watermarks, "show", "defined")

    assert (legacy.exit_code, legacy.stdout) == (0, "No runs.\n")
    assert (
        "hint: It is defined, and none of its runs has begun. See: watermarks history defined --runs" in defined.stderr
    )


def test_page_has_the_others_when_one_of_the_named_jobs_is_unknown(
    run: Command, world: Watermarks, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"

    done = run(world, "report", "rents", NAME, "--html", str(path))
    again = run(world, "report", "rents", NAME, "--html", str(path), "--yes", "--output", "json")

    assert done.exit_code == again.exit_code == 1
    assert f"hint: {NAME}: Did you mean parking-permits?" in done.stderr
    assert json.loads(again.stdout)["unknown"] == [NAME]
    assert 'data-name="rents"' in path.read_text()


@pytest.mark.parametrize("arguments", [["jobs"], ["jobs", "--metrics"]], ids=["list", "metrics"])
def test_nearest_names_are_offered_when_one_of_several_jobs_is_unknown(
    run: Command, world: Watermarks, arguments: list[str]
) -> None:
    done = run(world, *arguments, "rents", NAME)

    assert done.exit_code == 1
    assert "rents" in done.stdout
    assert f"hint: {NAME}: Did you mean parking-permits?" in done.stderr


def test_job_is_not_changed_when_it_is_declared_as_new_and_is_there(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "rents", "jr_1", {"seen": 1})
    before: Any = watermarks.latest("rents")

    done = run(watermarks, "set", "rents", "seen=2", "--new", *WHY)

    assert done.exit_code == 65
    assert "Job 'rents' exists already, at version 1. Omit --new." in done.stderr
    assert watermarks.latest("rents") == before
