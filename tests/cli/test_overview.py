"""`watermarks` alone lists jobs that need attention and the commands by purpose; errors name the table and region."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import click
import pytest

from scripts.cli.main import cli
from scripts.cli.overview import GROUPS
from scripts.cli.surroundings import Surroundings
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import Command, document


def test_each_command_is_in_one_group_when_all_are_counted() -> None:
    named = [name for commands in GROUPS.values() for name in commands]

    assert sorted(named) == sorted(cli.commands)


@pytest.mark.parametrize("example", [one for commands in GROUPS.values() for one in commands.values()])
def test_example_is_one_that_the_command_takes_when_it_is_pasted(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.jsonl").touch()
    name, *given = shlex.split(example)

    parent = click.Context(cli, info_name="watermarks", **cli.context_settings)
    # --help raises Exit; a wrong argument raises UsageError.
    with suppress(click.exceptions.Exit):
        cli.commands[name].make_context(name, given, parent=parent)


def test_jobs_that_need_attention_are_a_document_when_json_is_asked_for(run: Command, world: Watermarks) -> None:
    found = document(run(world, "--output", "json"))

    assert found == document(run(world, "jobs", "--output", "json"))
    assert [(one["job"], one["state"]) for one in found["jobs"][:2]] == [
        ("libraries", "problem"),
        ("repairs", "open plan"),
    ]
    assert found["jobs"][1]["command"] == "watermarks plan repairs"


def test_others_are_counted_when_more_jobs_need_attention_than_are_named(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.cli.main.MOST_SHOWN", 1)

    shown = run(world).stdout

    assert "repairs: open plan" not in shown
    assert "… and 5 more: watermarks jobs\n2 of 6 jobs need attention." in shown


def test_commands_are_listed_and_the_error_names_table_and_region_when_the_table_is_missing(
    run: Command, endpoint: str
) -> None:
    done = run("nowhere", "--region", "eu-west-2", "--endpoint-url", endpoint)
    asked = run("nowhere", "jobs", "--region", "eu-west-2", "--output", "json")

    assert done.exit_code == asked.exit_code == 78
    assert "watermarks rewind parking --to-version 41" in done.stdout
    assert f"used: table nowhere, region eu-west-2, endpoint {endpoint}" in done.stderr
    used = json.loads(asked.stderr)["used"]
    assert used == {"table": "nowhere", "region": "eu-west-2", "profile": None, "endpoint_url": endpoint}


def test_every_client_gets_profile_region_and_endpoint_when_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile night]\naws_access_key_id = AKIDNIGHT\naws_secret_access_key = none\n"
        "[profile day]\naws_access_key_id = AKIDDAY\naws_secret_access_key = none\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_DEFAULT_PROFILE", "day")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    around = Surroundings(region="eu-north-1", profile="night", endpoint_url="http://127.0.0.1:2")

    with around.everywhere():
        clients: list[Any] = [boto3.client("s3"), around.store.client, around.client("glue"), boto3.client("s3")]

    assert {client.meta.endpoint_url for client in clients} == {"http://127.0.0.1:2"}
    assert {client.meta.region_name for client in clients} == {"eu-north-1"}
    assert {client._request_signer._credentials.access_key for client in clients} == {"AKIDNIGHT"}
    assert dict(os.environ) == before
