"""The policies of terraform/ for sources and keys allow exactly the requests that the package sends."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from scripts.helpers.batch.sweep import LedgerSweep
from scripts.helpers.errors import AccessRefusedError, SourceError
from scripts.helpers.glue.catalog import Catalog
from scripts.helpers.job_runs.client import Glue, JobRuns
from scripts.helpers.listing import listing
from scripts.helpers.listing.events import S3EventQueue
from scripts.helpers.listing.inventory import S3Inventory
from scripts.helpers.listing.listing import Location
from tests.infra.guarded_server import GuardedServer
from tests.infra.roles import (
    BUCKET,
    CONNECTION,
    DATABASE,
    HERE,
    LEDGER,
    REPORTS,
    REPORTS_FOLDER,
    client,
    key_arn,
    read_folder,
    tell,
    watermarks_of,
)
from tests.support.iam_policies import Request, is_allowed
from tests.support.iam_requests import ACCOUNT
from tests.support.inventories import Reports, inventory_row
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.if_changed("terraform")

PAGE = (REPOSITORY / "docs" / "permissions.md").read_text(encoding="utf-8")
LEDGER_URI = f"s3://{LEDGER}/marks/"


def asked_by(guard: GuardedServer, role: str) -> set[tuple[str, str]]:
    """Return the actions and resources that a role needed; fail if one was refused."""
    calls = guard.of(role)
    assert all(call.allowed for call in calls), [call for call in calls if not call.allowed]
    return {(call.request.action, call.request.resource) for call in calls}


@pytest.mark.parametrize(
    ("role", "prefix", "options", "actions"),
    [
        pytest.param("listed", "parking/", {}, {"s3:ListBucket", "s3:GetObject"}, id="listed"),
        pytest.param(
            "versions", "kept/", {"versioned": True}, {"s3:ListBucketVersions", "s3:GetObjectVersion"}, id="versioned"
        ),
        pytest.param("open", "open/", {}, {"s3:ListBucket", "s3:GetObject"}, id="unlimited-listing"),
    ],
)
def test_files_are_read_with_these_actions_when_the_source_has_a_policy(
    guard: GuardedServer, landing_bucket: str, role: str, prefix: str, options: dict[str, Any], actions: set[str]
) -> None:
    guard.calls.clear()

    count = read_folder(guard, role, prefix, transformation_ctx="-".join(["files", *options]), **options)

    calls = guard.of(role)
    assert count == 2
    assert all(call.allowed for call in calls), calls
    assert actions <= {call.request.action for call in calls}
    assert all(call.request.resource.startswith(f"arn:aws:s3:::{BUCKET}") for call in calls)


def test_folders_of_dates_are_read_with_these_actions_when_the_source_has_a_policy(
    guard: GuardedServer, landing_bucket: str
) -> None:
    root, key = client(guard, "s3", "root"), "parking/2026/a.json"
    root.put_object(Bucket=landing_bucket, Key=key, Body=b'{"id": 1}\n')
    guard.calls.clear()

    count = read_folder(guard, "listed", "parking/", transformation_ctx="files-layout", layout="%Y/")

    root.delete_object(Bucket=landing_bucket, Key=key)
    assert count == 3
    assert "s3:ListBucket" in {action for action, _ in asked_by(guard, "listed")}


@pytest.mark.parametrize("one_by_one", [1_000, 1])
def test_events_are_taken_and_acknowledged_when_the_source_has_a_queue(
    guard: GuardedServer, landing_bucket: str, one_by_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job looks up each object that an event names; if events name many, it lists the folder instead."""
    monkeypatch.setattr(listing, "APART", one_by_one)
    monkeypatch.setattr(listing, "PAYS", 1)
    queue = S3EventQueue(tell(guard, "a.json", "b .json"), sqs_client=client(guard, "sqs", "told"), wait=0)
    guard.calls.clear()

    count = read_folder(guard, "told", "told/", f"parking-told-{one_by_one}", by_paths=True, events=queue)
    tell(guard, "c.json")
    queue.receive(Location.parse(f"s3://{landing_bucket}/told/"))
    queue.extend(0)
    queue.acknowledge()

    calls = guard.of("told")
    assert count == 2
    assert all(call.allowed for call in calls), calls
    assert {call.request.action for call in calls} == {
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:ChangeMessageVisibility",
        "s3:GetObject",
    } | ({"s3:ListBucket"} if one_by_one == 1 else set())


@pytest.mark.parametrize("prefix", ["secret/", "park/", ""], ids=["other", "begins-alike", "whole-bucket"])
def test_folder_is_not_listed_when_the_policy_is_of_another(
    guard: GuardedServer, landing_bucket: str, prefix: str
) -> None:
    watermarks_of(guard, "root").set_watermark("parking-listed", {"n": 1}, transformation_ctx="files", why="a test")
    before = watermarks_of(guard, "root").latest("parking-listed")

    with pytest.raises(AccessRefusedError, match=f"^AWS refuses s3:ListBucket on 's3://{landing_bucket}/{prefix}'"):
        read_folder(guard, "listed", prefix, transformation_ctx="another")

    after = watermarks_of(guard, "root").latest("parking-listed")
    assert (after.version, after.watermarks, after.plan) == (before.version, before.watermarks, None)


def test_listing_without_a_prefix_is_refused_when_the_policy_is_of_a_folder(
    guard: GuardedServer, landing_bucket: str, documents: dict[str, str]
) -> None:
    with pytest.raises(ClientError, match=r"AccessDenied.* s3:ListBucket on resource: arn:aws:s3:::guarded-landing"):
        client(guard, "s3", "listed").list_objects_v2(Bucket=BUCKET)

    assert client(guard, "s3", "open").list_objects_v2(Bucket=BUCKET)["KeyCount"] >= 10


@pytest.mark.parametrize(
    ("role", "prefix", "granted"),
    [
        pytest.param("listed", "parking/", {"GetObject", "ListBucket"}, id="listed"),
        pytest.param(
            "versions", "kept/", {"GetObject", "GetObjectVersion", "ListBucket", "ListBucketVersions"}, id="versions"
        ),
        pytest.param("told", "told/", {"GetObject", "ListBucket"}, id="told"),
    ],
)
def test_every_other_operation_of_s3_is_refused_when_all_are_tried(
    documents: dict[str, str], role: str, prefix: str, granted: set[str]
) -> None:
    operations = botocore.session.get_session().get_service_model("s3").operation_names
    tried = {f"s3:{name}" for name in [*operations, *granted, "ListBucketVersions", "GetObjectVersion"]}
    inside = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/{prefix}a.json"]
    outside = ["arn:aws:s3:::other", f"arn:aws:s3:::other/{prefix}a.json", f"arn:aws:s3:::{BUCKET}/secret/a.json"]

    def allowed(resources: list[str], listed: str) -> set[str]:
        return {
            action.removeprefix("s3:")
            for action in tried
            for resource in resources
            if is_allowed([documents[role]], Request(action, resource, {"s3:prefix": listed}))
        }

    assert len(tried) > 90
    assert allowed(inside, prefix) == granted
    assert allowed(inside[:1], "secret/") == allowed(outside, prefix) == set()


def test_whole_bucket_is_listed_without_a_condition_when_the_prefix_is_empty(documents: dict[str, str]) -> None:
    statements = json.loads(documents["whole"])["Statement"]

    assert statements[0] == {
        "Sid": "ListTheFolder",
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": "arn:aws:s3:::all-of-it",
    }
    assert statements[1]["Resource"] == "arn:aws:s3:::all-of-it/*"


# --- ledger, inventory, catalogue -----------------------------------------------------------------------


def test_ledger_is_kept_with_these_actions_when_the_source_has_one(guard: GuardedServer, landing_bucket: str) -> None:
    guard.calls.clear()

    counts = [read_folder(guard, "remembered", "remembered/", ledger_uri=LEDGER_URI) for _ in range(2)]

    asked = asked_by(guard, "remembered")
    of_ledger = {(action, resource) for action, resource in asked if LEDGER in resource}
    assert counts == [2, 0]
    assert {action for action, _ in of_ledger} == {"s3:GetObject", "s3:PutObject"}
    assert all(resource.startswith(f"arn:aws:s3:::{LEDGER}/marks/") for _, resource in of_ledger)


def test_ledger_is_swept_with_these_actions_when_a_person_may_see_all_jobs(
    guard: GuardedServer, documents: dict[str, str], landing_bucket: str
) -> None:
    """The module has no policy to delete ledger files; docs/permissions.md adds one to two policies of the module."""
    read_folder(guard, "remembered", "remembered/", "parking-swept", transformation_ctx="files", ledger_uri=LEDGER_URI)
    orphan = "f" * 32 + ".parquet"
    client(guard, "s3", "root").put_object(Bucket=LEDGER, Key=f"marks/{orphan}", Body=b"rows")
    objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[LEDGER].keys
    objects[f"marks/{orphan}"].last_modified -= timedelta(days=9)
    allowed = [("s3:ListBucket", f"arn:aws:s3:::{LEDGER}"), ("s3:DeleteObject", f"arn:aws:s3:::{LEDGER}/marks/*")]
    statements = [{"Effect": "Allow", "Action": [action], "Resource": resource} for action, resource in allowed]
    own = [json.dumps({"Version": "2012-10-17", "Statement": statements[:count]}) for count in (1, 2)]
    outcomes = []

    for document in own:
        guard.policies["sweeper"] = [documents["admin"], documents["lister"], document]
        guard.calls.clear()
        s3_client = client(guard, "s3", "sweeper")
        opened = LedgerSweep(watermarks_of(guard, "sweeper"), "parking-swept", LEDGER_URI, s3_client=s3_client)
        shown = opened.to_sweep()
        with suppress(AccessRefusedError):
            outcomes.append(opened.sweep(shown))

    asked = asked_by(guard, "sweeper")
    assert outcomes == [1]
    assert {action for action, resource in asked if LEDGER in resource} == {"s3:ListBucket", "s3:DeleteObject"}
    assert {action for action, resource in asked if "dynamodb" in resource} == {
        "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:Scan",
    }  # fmt: skip
    assert "| `watermarks files JOB --sweep` | `s3:ListBucket` and `s3:DeleteObject` on that folder" in PAGE


def test_ledger_is_refused_when_it_is_in_another_folder(guard: GuardedServer, landing_bucket: str) -> None:
    before = client(guard, "s3", "root").list_objects_v2(Bucket=LEDGER)["KeyCount"]

    with pytest.raises(AccessRefusedError, match=rf"AWS refuses s3:PutObject on 's3://{LEDGER}/others/"):
        read_folder(guard, "remembered", "remembered/", "parking-elsewhere", ledger_uri=f"s3://{LEDGER}/others/")

    assert client(guard, "s3", "root").list_objects_v2(Bucket=LEDGER)["KeyCount"] == before
    assert watermarks_of(guard, "root").latest("parking-elsewhere").version == 0


def test_inventory_is_read_with_these_actions_when_the_source_has_one(
    guard: GuardedServer, landing_bucket: str
) -> None:
    root = client(guard, "s3", "root")
    reports = Reports(root, REPORTS)
    reports.folder = REPORTS_FOLDER
    shown = root.list_objects_v2(Bucket=BUCKET, Prefix="reported/")["Contents"]
    rows = [inventory_row(one["Key"], bucket=BUCKET, e_tag=one["ETag"].strip('"'), size=one["Size"]) for one in shown]
    reports.write("CSV", rows, sourceBucket=BUCKET)
    guard.calls.clear()

    count = read_folder(
        guard, "reported", "reported/", listing=S3Inventory(reports.uri, s3_client=client(guard, "s3", "reported"))
    )

    asked = asked_by(guard, "reported")
    assert count == 2
    assert {action for action, resource in asked if REPORTS in resource} == {"s3:GetObject", "s3:ListBucket"}
    assert ("s3:ListBucket", f"arn:aws:s3:::{BUCKET}") not in asked


@pytest.fixture
def catalog(guard: GuardedServer, tables: str) -> Catalog:
    """Return the catalogue with the rights of the role `database`."""
    made = client(guard, "glue", "database")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("boto3.client", lambda service: made)
        return Catalog()


def test_catalogue_is_looked_up_with_these_actions_when_the_source_has_one(
    guard: GuardedServer, catalog: Catalog, tables: str
) -> None:
    guard.calls.clear()

    table = catalog.table(tables, "parking")
    catalog.partitions(None, table, "")  # type: ignore[arg-type]
    catalog.connection(CONNECTION)

    start = f"arn:aws:glue:{HERE}:{ACCOUNT}"
    of_table = {f"{start}:catalog", f"{start}:database/{tables}", f"{start}:table/{tables}/parking"}
    assert asked_by(guard, "database") == {
        *((action, resource) for action in ("glue:GetTable", "glue:GetPartitions") for resource in of_table),
        ("glue:GetConnection", f"{start}:catalog"),
        ("glue:GetConnection", f"{start}:connection/{CONNECTION}"),
    }


@pytest.mark.parametrize(
    ("look", "operation"),
    [
        pytest.param(lambda catalog: catalog.table(DATABASE, "rents"), "get_table", id="table"),
        pytest.param(lambda catalog: catalog.table("waste", "parking"), "get_table", id="database"),
        pytest.param(lambda catalog: catalog.connection("another"), "get_connection", id="connection"),
    ],
)
def test_catalogue_lookup_is_refused_when_the_source_does_not_name_it(
    catalog: Catalog, look: Callable[[Catalog], Any], operation: str
) -> None:
    with pytest.raises(SourceError, match=f"{operation} of the Glue catalogue says AccessDeniedException"):
        look(catalog)


def test_source_has_no_rights_in_s3_when_it_is_of_the_catalogue_only(documents: dict[str, str]) -> None:
    statements = json.loads(documents["database"])["Statement"]

    assert [statement["Sid"] for statement in statements] == ["LookUpTables", "LookUpConnections"]


# --- calls of Glue --------------------------------------------------------------------------------------


def test_page_lists_every_action_of_glue_when_all_calls_are_made(
    guard: GuardedServer, documents: dict[str, str]
) -> None:
    """The server records each call before it refuses it."""
    guard.policies["stranger"] = []
    glue = client(guard, "glue", "stranger")
    jobs = JobRuns(engine=Glue(glue))
    command = {"Name": "glueetl"}
    requests: dict[str, dict[str, Any]] = {
        "create_job": {"Name": "a", "Role": "r", "Command": command},
        "get_job": {"JobName": "a"},
        "update_job": {"JobName": "a", "JobUpdate": {"Command": command}},
        "delete_job": {"JobName": "a"},
        "start_job_run": {"JobName": "a"},
        "get_job_run": {"JobName": "a", "RunId": "jr_1"},
        "get_job_runs": {"JobName": "a"},
        "batch_stop_job_run": {"JobName": "a", "JobRunIds": ["jr_1"]},
    }
    guard.calls.clear()
    for name, request in requests.items():
        with suppress(ClientError):
            getattr(jobs, name)(**request)

    section = PAGE.partition("## Other calls")[2].partition("\n## ")[0]
    told = {f"glue:{name}" for name in re.findall(r"`glue:(\w+)`", section)}
    methods = {name for name, _ in inspect.getmembers(JobRuns, inspect.isfunction) if not name.startswith("_")}
    assert methods - {"wait", "get_paginator"} == set(requests)
    assert {call.request.action for call in guard.of("stranger")} == told


# --- keys -------------------------------------------------------------------------------

DECRYPTS = {"Decrypt", "DescribeKey"}
ENCRYPTS = DECRYPTS | {"Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo"}
KEY_USES = {
    "reader": DECRYPTS,
    "writer": ENCRYPTS,
    "admin": ENCRYPTS,
    "lister": DECRYPTS,
    "pipeline": ENCRYPTS | {"CreateGrant"},
}
"""The actions on a customer managed key that DynamoDB performs on behalf of the caller."""
VARIANTS = {"GenerateDataKeyWithoutPlaintext", "GenerateDataKeyPair", "GenerateDataKeyPairWithoutPlaintext"}
"""Actions that the pattern GenerateDataKey* also matches."""


def allowed_of_key(document: str, key: str, service: str | None) -> set[str]:
    """Return which operations of KMS a policy allows through a service, or directly if `service` is None."""
    operations = botocore.session.get_session().get_service_model("kms").operation_names
    context = {"kms:ViaService": f"{service}.{HERE}.amazonaws.com"} if service else {}
    tried = {*operations, "ReEncryptFrom", "ReEncryptTo"} - {"ReEncrypt"}
    assert len(tried) > 50
    return {name for name in tried if is_allowed([document], Request(f"kms:{name}", key_arn(key), context))}


@pytest.mark.parametrize("role", KEY_USES)
def test_key_of_the_table_is_used_through_dynamodb_only_when_a_role_needs_it(
    documents: dict[str, str], role: str
) -> None:
    through_dynamodb = allowed_of_key(documents[role], "table", "dynamodb")

    others = [
        allowed_of_key(documents[role], key, service)
        for key, service in (("table", None), ("table", "s3"), ("another", "dynamodb"))
    ]

    assert through_dynamodb - VARIANTS == KEY_USES[role]
    assert others == [set(), set(), set()]


@pytest.mark.parametrize(
    ("source", "key", "service", "actions"),
    [
        pytest.param("told", "told", "s3", {"Decrypt"}, id="objects"),
        pytest.param("told", "q", "sqs", {"Decrypt"}, id="events"),
        pytest.param("remembered", "ledger", "s3", {"Decrypt", "GenerateDataKey"}, id="ledger"),
        pytest.param("reported", "reports", "s3", {"Decrypt"}, id="inventory"),
    ],
)
def test_key_of_a_source_is_used_through_its_service_only_when_it_has_one(
    documents: dict[str, str], source: str, key: str, service: str, actions: set[str]
) -> None:
    through_service = allowed_of_key(documents[source], key, service)

    others = [
        allowed_of_key(documents[source], other, by)
        for other, by in ((key, None), (key, "dynamodb"), ("another", service))
    ]

    assert through_service == actions
    assert others == [set(), set(), set()]
    assert allowed_of_key(documents["listed"], key, service) == set()
