"""Fixtures: a real Terraform that works on copies of terraform/ and talks to a moto server, and a server with roles."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.infra.guarded_server import GuardedServer
from tests.infra.roles import BUCKET, CONNECTION, DATABASE, HERE, LEDGER, QUEUE, REPORTS, TABLE, VARIABLES, client
from tests.infra.terraform import PROVIDER, Terraform, copy_of_module, find_plugin_dir
from tests.support.components import missing_component


@pytest.fixture(scope="session")
def terraform_command() -> str:
    """Return the path of the terraform binary."""
    command = shutil.which("terraform")
    if command is None:
        missing_component("terraform", "install Terraform 1.7 or later and put it on PATH")
    assert command is not None
    return command


@pytest.fixture(scope="session")
def plugin_dir() -> Path:
    """Return the folder that holds the AWS provider."""
    found = find_plugin_dir()
    if found is None:
        missing_component(
            "The AWS provider of Terraform", "run `terraform init` in terraform/, or set TF_PLUGIN_DIR to its mirror"
        )
    assert found is not None
    return found


@pytest.fixture(scope="session")
def make_terraform(
    terraform_command: str, plugin_dir: Path, endpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Terraform]:
    """Return a function that initialises a copy of terraform/, or of a part of it, with a state of its own."""

    def make(
        part: str = ".",
        *,
        url: str = endpoint,
        with_provider: bool = True,
        files: Mapping[str, str] = MappingProxyType({}),
        **login: str,
    ) -> Terraform:
        module = copy_of_module(tmp_path_factory.mktemp("terraform"))
        (module / part).mkdir(exist_ok=True)
        for name, text in files.items():
            (module / part / name).write_text(text)
        if with_provider:
            (module / part / "provider.tf").write_text(PROVIDER)
        made = Terraform(terraform_command, module / part, url, **login)
        outcome = made.run("init", f"-plugin-dir={plugin_dir}")
        outcome.succeeded()
        return made

    return make


@pytest.fixture(scope="session")
def applied(make_terraform: Callable[..., Terraform]) -> Terraform:
    """Return Terraform after an apply with all defaults, which creates the table `glue-watermarks`."""
    made = make_terraform()
    outcome = made.apply()
    outcome.succeeded()
    assert "Resources: 1 added, 0 changed, 0 destroyed." in outcome.text
    return made


@pytest.fixture(scope="session")
def outputs(applied: Terraform) -> dict[str, Any]:
    """Return the outputs of the applied configuration."""
    return applied.outputs()


@pytest.fixture(scope="session")
def guard() -> Iterator[GuardedServer]:
    """Return a server that enforces the policies of `documents` for each role."""
    server = GuardedServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def documents(make_terraform: Callable[..., Terraform], guard: GuardedServer) -> dict[str, str]:
    """Create the table, and return the policy documents that Terraform plans, by role or source."""
    made = make_terraform(url=guard.url, access_key="root", region=HERE)
    planned = made.planned_outputs(**VARIABLES)
    found: dict[str, str] = dict(planned["team_policy_documents"]["parking"])
    found |= {"pipeline": planned["pipeline_policy_document"], "lister": planned["lister_policy_document"]}
    found |= planned["source_policy_documents"]
    guard.policies = {role: [document] for role, document in found.items()}
    Watermarks(TABLE, client(guard, "dynamodb", "root")).create_table()
    return found


@pytest.fixture(scope="session")
def landing_bucket(guard: GuardedServer, documents: dict[str, str]) -> str:
    """Return a versioned bucket with two JSON files below each prefix; also create the other buckets and a queue."""
    s3 = client(guard, "s3", "root")
    for name in (BUCKET, LEDGER, REPORTS):
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": HERE})
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    client(guard, "sqs", "root").create_queue(QueueName=QUEUE)
    for prefix in ("parking/", "kept/", "open/", "secret/", "remembered/", "reported/"):
        for name in ("a.json", "b .json"):
            s3.put_object(Bucket=BUCKET, Key=prefix + name, Body=b'{"id": 1}\n')
    return BUCKET


@pytest.fixture(scope="session")
def tables(guard: GuardedServer, documents: dict[str, str]) -> str:
    """Return the name of a catalogue database with a table that the source may read, and one that it may not."""
    glue = client(guard, "glue", "root")
    for database in (DATABASE, "waste"):
        glue.create_database(DatabaseInput={"Name": database})
        for name in ("parking", "rents"):
            place = {"Location": f"s3://{BUCKET}/parking/", "Columns": []}
            table = {"Name": name, "Parameters": {"classification": "json"}, "StorageDescriptor": place}
            glue.create_table(
                DatabaseName=database, TableInput=table | {"PartitionKeys": [{"Name": "month", "Type": "string"}]}
            )
    properties = {"JDBC_CONNECTION_URL": "jdbc:postgresql://db/revenues", "USERNAME": "u", "PASSWORD": "p"}
    for name in (CONNECTION, "another"):
        glue.create_connection(
            ConnectionInput={"Name": name, "ConnectionType": "JDBC", "ConnectionProperties": properties}
        )
    return DATABASE
