"""Jobs and commands work under the rendered policies of all services, and need every grant of their sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner

from scripts.cli.main import cli
from scripts.helpers.glue.catalog import Catalog
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_runs.client import JobRuns
from scripts.helpers.listing.events import S3EventQueue
from scripts.helpers.listing.inventory import S3Inventory
from scripts.helpers.listing.listing import Location
from scripts.helpers.protocol import items
from tests.infra.guarded_server import Call, GuardedServer
from tests.infra.roles import (
    BUCKET,
    CONNECTION,
    HERE,
    LEDGER,
    QUEUE,
    REPORTS,
    REPORTS_FOLDER,
    TABLE,
    TABLE_ARN,
    client,
    key_arn,
    tell,
    watermarks_of,
)
from tests.support.iam_policies import is_allowed
from tests.support.iam_requests import ACCOUNT
from tests.support.inventories import Reports, inventory_row

ROWS, FILES, VALUES, OPEN, OLD = (f"parking-used-{name}" for name in ("rows", "files", "values", "open", "old"))
STATE = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10}
ENCRYPTED = {
    TABLE_ARN: key_arn("table"),
    f"arn:aws:s3:::{BUCKET}/told/": key_arn("told"),
    f"arn:aws:s3:::{LEDGER}/": key_arn("ledger"),
    f"arn:aws:s3:::{REPORTS}/": key_arn("reports"),
    f"arn:aws:sqs:{HERE}:{ACCOUNT}:{QUEUE}": key_arn("q"),
}
"""ARN of the key, by the start of the ARN of the resource that it encrypts."""
WHY = ["--why", "a test", "--yes"]


@pytest.fixture(scope="module")
def recorder(guard: GuardedServer, documents: dict[str, str], landing_bucket: str) -> Iterator[GuardedServer]:
    """Return the server, which also requires the rights to keys while this module uses it."""
    guard.keys = dict(ENCRYPTED)
    s3 = client(guard, "s3", "root")
    s3.create_bucket(Bucket="all-of-it", CreateBucketConfiguration={"LocationConstraint": HERE})
    s3.put_object(Bucket="all-of-it", Key="a.json", Body=b'{"id": 1}\n')
    yield guard
    guard.keys = {}


def unused(document: str, calls: list[Call]) -> set[tuple[str, str]]:
    """Return each statement and action of a policy that no call needed."""
    found = set()
    for statement in json.loads(document)["Statement"]:
        for action in statement["Action"]:
            alone = {"Version": "2012-10-17", "Statement": [{**statement, "Action": [action]}]}
            if not any(is_allowed([alone], call.request) for call in calls):
                found.add((statement["Sid"], action))
    return found


# --- jobs -----------------------------------------------------------------------------------------------


def run(guard: GuardedServer, role: str, uri: str, **options: Any) -> int:
    """Read what is new and commit, with the table, source, queue and ledger as one role."""
    s3 = client(guard, "s3", role)
    with IncrementalJob(watermarks_of(guard, role), f"parking-used-{role}", s3_client=s3) as job:
        delta = job.new_files(uri, transformation_ctx="files", **options)
        return len(delta.read_pandas("json", s3_client=s3))


def listed(guard: GuardedServer, role: str) -> int:
    return run(guard, role, f"s3://{BUCKET}/parking/")


def of_versions(guard: GuardedServer, role: str) -> int:
    return run(guard, role, f"s3://{BUCKET}/kept/", versioned=True)


def told(guard: GuardedServer, role: str) -> int:
    sqs = client(guard, "sqs", role)
    queue = S3EventQueue(tell(guard, "a.json", "b .json"), sqs_client=sqs, wait=0)
    count = run(guard, role, f"s3://{BUCKET}/told/", events=queue)
    tell(guard, "c.json")
    queue.receive(Location.parse(f"s3://{BUCKET}/told/"))
    queue.extend(0)
    queue.acknowledge()
    return count


def unlimited(guard: GuardedServer, role: str) -> int:
    return run(guard, role, f"s3://{BUCKET}/open/")


def whole(guard: GuardedServer, role: str) -> int:
    return run(guard, role, "s3://all-of-it/")


def remembered(guard: GuardedServer, role: str) -> int:
    uri, ledger = f"s3://{BUCKET}/remembered/", f"s3://{LEDGER}/marks/"
    return sum(run(guard, role, uri, ledger_uri=ledger) for _ in range(2))


def reported(guard: GuardedServer, role: str) -> int:
    root = client(guard, "s3", "root")
    reports = Reports(root, REPORTS)
    reports.folder = REPORTS_FOLDER
    shown = root.list_objects_v2(Bucket=BUCKET, Prefix="reported/")["Contents"]
    rows = [inventory_row(one["Key"], bucket=BUCKET, e_tag=one["ETag"].strip('"'), size=one["Size"]) for one in shown]
    reports.write("CSV", rows, sourceBucket=BUCKET)
    listing = S3Inventory(reports.uri, s3_client=client(guard, "s3", role))
    return run(guard, role, f"s3://{BUCKET}/reported/", listing=listing)


def looked_up(guard: GuardedServer, role: str) -> int:
    catalog = Catalog()
    table = catalog.table("council", "parking")
    catalog.partitions(None, table, "")  # type: ignore[arg-type]
    catalog.connection(CONNECTION)
    return 0


JOBS: dict[str, tuple[Callable[[GuardedServer, str], int], int]] = {
    "listed": (listed, 2),
    "versions": (of_versions, 2),
    "told": (told, 2),
    "open": (unlimited, 2),
    "whole": (whole, 1),
    "remembered": (remembered, 2),
    "reported": (reported, 2),
    "database": (looked_up, 0),
}
"""For each source, a job that reads it and the number of rows that it reads."""
LISTING = ("ListTheFolder", "s3:ListBucket")
NOT_BY_PANDAS = {"told": {LISTING}, "reported": {LISTING}, "versions": {LISTING, ("ReadItsObjects", "s3:GetObject")}}
"""Grants for Spark only: it finds an object by name and reads its newest version, so the job checks it again."""


@contextmanager
def signed_as(guard: GuardedServer, role: str) -> Iterator[None]:
    """Make clients without credentials of their own, such as those of commands, sign as a role."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        for name, value in (("AWS_ENDPOINT_URL", guard.url), ("AWS_DEFAULT_REGION", HERE), ("AWS_ACCESS_KEY_ID", role)):
            patch.setenv(name, value)
        yield


@pytest.mark.if_changed("terraform")
@pytest.mark.parametrize("source", JOBS)
def test_job_needs_all_of_its_policies_and_no_more_when_it_reads_its_source(
    recorder: GuardedServer, documents: dict[str, str], tables: str, source: str
) -> None:
    role = f"job-{source}"
    recorder.policies[role] = [documents["writer"], documents[source]]
    recorder.calls.clear()
    work, expected = JOBS[source]

    with signed_as(recorder, role):
        count = work(recorder, role)

    calls = recorder.of(role)
    assert count == expected
    assert [call.request for call in calls if not call.allowed] == []
    assert unused(documents[source], calls) == NOT_BY_PANDAS.get(source, set())


@pytest.mark.if_changed("terraform")
def test_every_source_of_the_plan_has_a_job_here(documents: dict[str, str]) -> None:
    assert set(JOBS) == set(documents) - {"reader", "writer", "admin", "lister", "pipeline"}


# --- commands -------------------------------------------------------------------------------------------

EVERY_VERDICT = ["jobs", "--fail-on", "missing"]
"""This command may exit with 1, because the jobs of other tests may be late."""
NOT_RUN = {"completion", "ingest-files", "ingest-table", "verify"}
"""`completion` sends no request. The others need Spark: two are the jobs above under another name, and `verify` reads
what `history` reads."""


def commands(folder: Path) -> list[tuple[str, list[str]]]:
    """Return the commands in the order of their run, each with the role that docs/permissions.md names for it."""
    page, copied = str(folder / "page.html"), f"sqlite:{folder}/jobs.db"
    file = f"s3://{BUCKET}/parking/a.json"
    looks = [
        ["jobs", VALUES], ["show", VALUES], ["history", VALUES], ["history", VALUES, "--diff", "1", "2"],
        ["history", VALUES, "--runs"], ["complete-up-to", ROWS], ["backfill", ROWS],
        ["jobs", VALUES, "--fail-on", "missing"], ["jobs", VALUES, "--metrics"],
        ["doctor", VALUES], ["plan", FILES, "--source", f"s3://{BUCKET}/parking/"], ["files", FILES, "--explain", file],
        ["files", FILES],
        ["report", VALUES, ROWS, "--html", page],
    ]  # fmt: skip
    every = [["jobs"], ["report", "--html", page, "--yes"], EVERY_VERDICT]
    decisions = [
        ["create-table"],
        ["set", VALUES, "n=3", *WHY],
        ["rewind", VALUES, "--to-version", "1", *WHY],
        ["release", OPEN, *WHY],
        ["discard-plan", OPEN, *WHY],
        ["doctor", VALUES, "--repair", "--yes"],
        ["doctor", VALUES, "--after-restore", *WHY],
        ["adopt", OLD, "--run", "jr_old_1", *WHY],
        ["set", ROWS, "--rename-cursor", "id", "number", *WHY],
        ["files", FILES, "--retry-all", *WHY],
        ["reset", ROWS, *WHY],
        ["copy", ROWS, "--to", copied, "--yes"],
        ["copy", ROWS, "--from", copied, "--to", TABLE, "--yes"],
    ]
    by_role = [("reader", looks), ("lister", every), ("admin", decisions)]
    return [(role, arguments) for role, all_of_it in by_role for arguments in all_of_it]


def test_every_command_is_called_or_said_not_to_be_when_commands_are_listed(tmp_path: Path) -> None:
    assert {arguments[0] for _, arguments in commands(tmp_path)} | NOT_RUN == set(cli.commands)


@pytest.mark.if_changed("terraform")
def test_every_command_is_allowed_when_the_role_that_it_is_for_calls_it(
    recorder: GuardedServer, documents: dict[str, str], tmp_path: Path
) -> None:
    root = watermarks_of(recorder, "root")
    root.set_watermark(ROWS, STATE, transformation_ctx="rows", why="a test")
    for number in (1, 2):
        root.set_watermark(VALUES, {"n": number}, why="a test")
    root.begin(OPEN, "jr_1").freeze({"n": 1}, {"n": 2})
    for run_id in ("jr_old_1", "jr_old_2"):
        root.store.put(items.key(OLD, run_id) | {"watermarks": {"M": {"rows_collected": {"N": "808"}}}}, if_new=True)
    JobRuns(root).create_job(Name=VALUES, Command={"Name": "pythonshell", "ScriptLocation": "script.py"})
    with IncrementalJob(root, FILES, s3_client=client(recorder, "s3", "root")) as job:
        job.new_files(f"s3://{BUCKET}/parking/", transformation_ctx="files")
    for role in ("reader", "writer", "admin"):
        recorder.policies[role] = [documents[role], documents["listed"]]
    recorder.policies["lister"] = [documents["lister"]]
    recorder.calls.clear()

    for role, arguments in commands(tmp_path):
        with signed_as(recorder, role):
            done = CliRunner().invoke(cli, ["--table", TABLE, *arguments], prog_name="watermarks")
        answers = {0, 1} if arguments is EVERY_VERDICT else {0}
        assert done.exit_code in answers, (role, arguments, done.output, done.exception)

    refused = [call for call in recorder.calls if not call.allowed]
    assert refused == []
    asked = {role: {call.request.action for call in recorder.of(role)} for role in ("reader", "lister", "admin")}
    assert asked["reader"] == {
        "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query", "kms:Decrypt", "s3:ListBucket",
    }  # fmt: skip
    assert asked["lister"] == {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan", "kms:Decrypt"}
    assert {"dynamodb:DescribeTable", "dynamodb:PutItem", "kms:GenerateDataKey"} <= asked["admin"]
