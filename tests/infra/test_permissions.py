"""The policies of terraform/ allow what the package asks for on the wire, role by role, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError

from scripts.helpers.errors import AccessRefusedError, SourceError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_list import list_jobs
from scripts.helpers.object_listing import Location
from scripts.helpers.s3_events import S3EventQueue
from scripts.helpers.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.conftest import REPOSITORY
from tests.doubles.guarded_server import GuardedServer
from tests.doubles.iam_policies import Request, is_allowed
from tests.doubles.iam_requests import ACCOUNT
from tests.infra.conftest import Terraform
from tests.integration.test_readme import run_doctest

PAGE = (REPOSITORY / "docs" / "permissions.md").read_text(encoding="utf-8")
HERE = "eu-west-1"
TABLE = "glue-watermarks"
TABLE_ARN = f"arn:aws:dynamodb:{HERE}:{ACCOUNT}:table/{TABLE}"
OWN, FOREIGN = "parking-files", "waste-files"
LEADING = "dynamodb:LeadingKeys"
LARGE = [f"{number:0100d}" for number in range(900)]
BUCKET, QUEUE = "guarded-landing", "glue-watermarks-told"
VARIABLES = {
    "teams": {"parking": {"job_name_prefixes": ["parking-"]}, "waste": {"job_name_prefixes": ["waste-"]}},
    "sources": {
        "listed": {"bucket": BUCKET, "prefix": "parking/"},
        "versions": {"bucket": BUCKET, "prefix": "kept/", "versioned": True},
        "told": {"bucket": BUCKET, "prefix": "told/", "events": {}},
        "open": {"bucket": BUCKET, "prefix": "open/", "limit_listing": False},
        "whole": {"bucket": "all-of-it", "prefix": ""},
    },
}
READS = {"dynamodb:GetItem", "dynamodb:Query"}
WRITES = {"dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
LOOKS = {"dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"}
USES = {"reader": READS, "writer": READS | WRITES, "admin": READS | WRITES | {"dynamodb:DescribeTable"}}
GRANTS = {
    "reader": READS,
    "writer": READS | WRITES,
    "admin": READS | WRITES | LOOKS,
    "lister": {"dynamodb:Scan"},
    "pipeline": LOOKS
    | {f"dynamodb:{name}" for name in ("CreateTable", "ListTagsOfResource", "TagResource", "UntagResource")}
    | {f"dynamodb:{name}" for name in ("UpdateContinuousBackups", "UpdateTable", "UpdateTimeToLive")},
}


class Actor(NamedTuple):
    """One role at work."""

    role: str
    watermarks: Watermarks


@pytest.fixture(scope="module")
def guard() -> Iterator[GuardedServer]:
    server = GuardedServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def documents(make_terraform: Callable[..., Terraform], guard: GuardedServer) -> dict[str, str]:
    """Return the policy documents by role, as Terraform plans them, and make the table."""
    made = make_terraform(url=guard.url, access_key="root", region=HERE)
    planned = made.planned_outputs(**VARIABLES)
    found: dict[str, str] = dict(planned["team_policy_documents"]["parking"])
    found |= {"pipeline": planned["pipeline_policy_document"], "lister": planned["lister_policy_document"]}
    found |= planned["source_policy_documents"]
    guard.policies = {role: [document] for role, document in found.items()}
    Watermarks(TABLE, client(guard, "dynamodb", "root")).create_table()
    return found


def client(guard: GuardedServer, service: str, role: str) -> Any:
    return boto3.client(
        service, endpoint_url=guard.url, region_name=HERE, aws_access_key_id=role, aws_secret_access_key="testing"
    )


def watermarks_of(guard: GuardedServer, role: str, **options: Any) -> Watermarks:
    return Watermarks(TABLE, client(guard, "dynamodb", role), **options)


def as_reader(marks: Watermarks) -> None:
    run_id = marks.get_most_recent_run_id(OWN)
    marks.get_watermark(OWN, run_id)
    marks.get_watermark_values(OWN)
    marks.latest(OWN)
    marks.history(OWN)
    marks.doctor(OWN)


def as_writer(marks: Watermarks) -> None:
    """Commit in one call, with a large plan and state, over an expiring version; keep alive, abort, take over."""
    marks.add_watermark(marks.create_watermark_item(job_id=OWN, run_id="jr_1", latest_data="2026-03-16"))
    for number in (2, 3):
        with marks.begin(OWN, f"jr_{number}") as run:
            run.freeze({"files": LARGE}, {"files": [*LARGE, str(number)]})
            run.state("files"), run.planned("files")
            assert run.heartbeat()
            run.commit(rows_collected=number)
    marks.begin(OWN, "jr_4").abort()
    marks.begin(OWN, "jr_5")
    marks.begin(OWN, "jr_6", take_over=True).abort()


def as_admin(marks: Watermarks) -> None:
    assert marks.exists(TABLE)
    marks.rewind(OWN, to_version=1, why="a test")
    marks.set_watermark(OWN, {"latest_data": "2026-03-17"}, why="a test")
    marks.begin(OWN, "jr_7").freeze({"files": LARGE}, {"latest_data": "2026-03-18"})
    marks.discard_plan(OWN, why="a test")
    marks.doctor(OWN, repair=True)
    marks.reset(OWN, why="a test")


WORK: dict[str, Callable[[Watermarks], None]] = {"writer": as_writer, "reader": as_reader, "admin": as_admin}


@pytest.fixture(scope="module")
def worked(guard: GuardedServer, documents: dict[str, str]) -> dict[str, set[Request]]:
    """Return what each role asked for when it did all of its work, the writer first."""
    recorded = {}
    for role, work in WORK.items():
        guard.calls.clear()
        work(watermarks_of(guard, role, retention=timedelta(days=30)))
        assert all(call.allowed for call in guard.calls), [call for call in guard.calls if not call.allowed]
        recorded[role] = {
            Request(call.request.action, call.request.resource, _Frozen(call.request.context))
            for call in guard.of(role)
        }
    return recorded


class _Frozen(dict[str, Any]):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


# --- the table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", WORK)
def test_role_needs_these_actions_of_its_own_jobs_when_it_does_its_work(
    worked: dict[str, set[Request]], role: str
) -> None:
    asked_for = worked[role]

    assert {request.action for request in asked_for} == USES[role]
    assert {request.resource for request in asked_for} == {TABLE_ARN}
    assert {request.context.get(LEADING) for request in asked_for} - {None} == {(OWN,)}


@pytest.mark.parametrize("role", WORK)
def test_recorded_calls_are_refused_when_they_are_of_another_table_or_team(
    worked: dict[str, set[Request]], documents: dict[str, str], role: str
) -> None:
    of_items = [request for request in worked[role] if LEADING in request.context]
    tables = [f"{TABLE_ARN}-2", f"{TABLE_ARN}/index/any", TABLE_ARN.replace(HERE, "eu-west-2"), "*"]
    others = [
        *(Request(request.action, table, request.context) for request in worked[role] for table in tables),
        *(
            Request(request.action, TABLE_ARN, {LEADING: keys})
            for request in of_items
            for keys in [(FOREIGN,), (OWN, FOREIGN), ("Parking-files",), ("parking",), ()]
        ),
        *(Request(request.action, TABLE_ARN, {}) for request in of_items),
    ]

    allowed = [request for request in others if is_allowed([documents[role]], request)]

    assert len(others) >= 12 * len(of_items) / 2
    assert allowed == []


@pytest.mark.parametrize("role", GRANTS)
def test_every_other_operation_of_dynamodb_is_refused_when_all_are_tried(documents: dict[str, str], role: str) -> None:
    operations = botocore.session.get_session().get_service_model("dynamodb").operation_names
    partiql = ["PartiQLSelect", "PartiQLInsert", "PartiQLUpdate", "PartiQLDelete", "ConditionCheckItem"]
    tried = [f"dynamodb:{name}" for name in [*operations, *partiql]]

    allowed = {
        action for action in tried if is_allowed([documents[role]], Request(action, TABLE_ARN, {LEADING: (OWN,)}))
    }

    assert len(tried) > 50
    assert allowed == GRANTS[role]


def test_roles_get_no_more_actions_than_they_use_when_documents_are_compared(
    worked: dict[str, set[Request]], documents: dict[str, str]
) -> None:
    granted = {
        role: {action for statement in json.loads(documents[role])["Statement"] for action in statement["Action"]}
        for role in WORK
    }

    unused = {role: granted[role] - {request.action for request in worked[role]} for role in WORK}

    # For a person who looks whether TTL and recovery are on again after a restore; the package does not ask.
    after_restore = {"dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTimeToLive"}
    assert unused == {"reader": set(), "writer": set(), "admin": after_restore}


@pytest.mark.parametrize(
    ("role", "work", "action"),
    [
        pytest.param("reader", lambda marks: marks.latest(FOREIGN), "GetItem", id="read-foreign"),
        pytest.param("reader", lambda marks: marks.begin("parking-new", "jr_1"), "PutItem", id="reader-begins"),
        pytest.param("writer", lambda marks: marks.begin(FOREIGN, "jr_1"), "GetItem", id="run-foreign"),
        pytest.param("writer", lambda marks: marks.exists(TABLE), "DescribeTable", id="writer-describes"),
        pytest.param("writer", lambda marks: marks.create_table(), "CreateTable", id="writer-creates"),
        pytest.param("admin", lambda marks: marks.reset(FOREIGN, why="a test"), "GetItem", id="reset-foreign"),
        pytest.param("admin", lambda marks: marks.create_table(), "CreateTable", id="admin-creates"),
        pytest.param("admin", lambda marks: list_jobs(store(marks)), "Scan", id="admin-lists"),
        pytest.param("lister", lambda marks: marks.latest(OWN), "GetItem", id="lister-reads"),
    ],
)
def test_work_of_another_is_refused_with_its_action_when_a_role_tries(
    guard: GuardedServer, documents: dict[str, str], role: str, work: Callable[[Watermarks], Any], action: str
) -> None:
    before = everything(guard)

    with pytest.raises(AccessRefusedError) as caught:
        work(watermarks_of(guard, role))

    expected = f"AWS refuses dynamodb:{action} on {TABLE!r}. Allow it in the role's policy."
    assert str(caught.value) == expected
    assert everything(guard) == before


def test_all_jobs_are_listed_when_the_role_is_the_lister(guard: GuardedServer, documents: dict[str, str]) -> None:
    watermarks_of(guard, "root").set_watermark(FOREIGN, {"latest_data": "2026-03-16"}, why="a test")

    found = list_jobs(store(watermarks_of(guard, "lister")))

    assert FOREIGN in [job.job_id for job in found.jobs]


def store(marks: Watermarks) -> Store:
    return marks._store


def everything(guard: GuardedServer) -> Any:
    found = client(guard, "dynamodb", "root").scan(TableName=TABLE)["Items"]
    return sorted(json.dumps(item, default=repr, sort_keys=True) for item in found)


def test_page_tells_the_same_when_it_is_compared_with_the_documents(
    guard: GuardedServer, documents: dict[str, str]
) -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    [session] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    rows = {cells[1].strip(): cells[3] for cells in (line.split("|") for line in PAGE.splitlines()) if len(cells) == 5}

    report = run_doctest(session, {"Watermarks": Watermarks, "as_writer": client(guard, "dynamodb", "writer")})

    told = {role: {f"dynamodb:{name}" for name in re.findall(r"`(\w+)`", rows[role])} for role in GRANTS}
    assert json.loads(shown) == json.loads(documents["writer"])
    assert told == GRANTS
    assert (report.attempted, report.failed) == (1, 0)


# --- the pipeline ---------------------------------------------------------------------------------------


def test_pipeline_makes_and_changes_the_table_and_cannot_delete_it_when_terraform_runs_as_it(
    make_terraform: Callable[..., Terraform], guard: GuardedServer, documents: dict[str, str]
) -> None:
    made = make_terraform(url=guard.url, access_key="pipeline", region=HERE)
    name = "by-pipeline"
    guard.policies["pipeline"] = [documents["pipeline"].replace(f"table/{TABLE}", f"table/{name}")]
    guard.calls.clear()

    applied = made.apply(table_name=name, tags={"Team": "parking"})
    changed = made.apply(table_name=name, tags={"Owner": "platform"}, deletion_protection_enabled=False)
    refused_before_destroy = [call for call in guard.of("pipeline") if not call.allowed]
    destroyed = made.destroy(table_name=name, deletion_protection_enabled=False)

    assert applied.code == 0, applied.text
    assert changed.code == 0, changed.text
    assert refused_before_destroy == []
    used = {call.request.action for call in guard.of("pipeline") if call.allowed}
    assert used == GRANTS["pipeline"] | {"sts:GetCallerIdentity", "kms:DescribeKey"}
    assert destroyed.code == 1
    assert "not authorized to perform: dynamodb:DeleteTable" in destroyed.text
    assert name in client(guard, "dynamodb", "root").list_tables()["TableNames"]


# --- sources --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket(guard: GuardedServer, documents: dict[str, str]) -> str:
    """Return a versioned bucket with two JSON files below each prefix, and a queue that is told of them."""
    s3, sqs = client(guard, "s3", "root"), client(guard, "sqs", "root")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": HERE})
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    sqs.create_queue(QueueName=QUEUE)
    told = {"QueueArn": f"arn:aws:sqs:{HERE}:{ACCOUNT}:{QUEUE}", "Events": ["s3:ObjectCreated:*"]}
    s3.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration={"QueueConfigurations": [told]})
    for prefix in ("parking/", "kept/", "told/", "open/", "secret/"):
        for name in ("a.json", "b .json"):
            s3.put_object(Bucket=BUCKET, Key=prefix + name, Body=b'{"id": 1}\n')
    return BUCKET


def read_folder(guard: GuardedServer, role: str, prefix: str, **options: Any) -> int:
    """Take what is new below a prefix, read it and commit; S3 and SQS as one role, the table as root."""
    s3 = client(guard, "s3", role)
    with IncrementalJob(watermarks_of(guard, "root"), f"parking-{role}", s3_client=s3) as job:
        delta = job.new_files(f"s3://{BUCKET}/{prefix}", **options)
        return len(delta.read_pandas("json", s3_client=s3))


@pytest.mark.parametrize(
    ("role", "prefix", "options", "actions"),
    [
        pytest.param("listed", "parking/", {}, {"s3:ListBucket", "s3:GetObject"}, id="listed"),
        pytest.param("listed", "parking/", {"layout": "%Y/"}, {"s3:ListBucket"}, id="date-folders"),
        pytest.param(
            "versions", "kept/", {"versioned": True}, {"s3:ListBucketVersions", "s3:GetObjectVersion"}, id="versioned"
        ),
        pytest.param("open", "open/", {}, {"s3:ListBucket", "s3:GetObject"}, id="unlimited-listing"),
    ],
)
def test_files_are_read_with_these_actions_when_the_source_has_a_policy(
    guard: GuardedServer, bucket: str, role: str, prefix: str, options: dict[str, Any], actions: set[str]
) -> None:
    guard.calls.clear()

    count = read_folder(guard, role, prefix, transformation_ctx="-".join(["files", *options]), **options)

    calls = guard.of(role)
    assert count == 2
    assert all(call.allowed for call in calls), calls
    assert actions <= {call.request.action for call in calls}
    assert all(call.request.resource.startswith(f"arn:aws:s3:::{bucket}") for call in calls)


def test_events_are_taken_and_acknowledged_when_the_source_has_a_queue(guard: GuardedServer, bucket: str) -> None:
    root, sqs = client(guard, "sqs", "root"), client(guard, "sqs", "told")
    url = root.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    queue = S3EventQueue(url, sqs_client=sqs, wait=0)
    guard.calls.clear()

    count = read_folder(guard, "told", "told/", events=queue)
    client(guard, "s3", "root").put_object(Bucket=bucket, Key="told/c.json", Body=b"{}")
    queue.receive(Location.parse(f"s3://{bucket}/told/"))
    queue.extend(0)

    calls = guard.of("told")
    assert count == 2
    assert all(call.allowed for call in calls), calls
    assert {call.request.action for call in calls if call.request.action.startswith("sqs:")} == {
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:ChangeMessageVisibility",
    }
    assert not {call.request.action for call in calls} & {"s3:ListBucket"}


@pytest.mark.parametrize("prefix", ["secret/", "park/", ""], ids=["other", "begins-alike", "whole-bucket"])
def test_folder_is_not_listed_when_the_policy_is_of_another(guard: GuardedServer, bucket: str, prefix: str) -> None:
    before = watermarks_of(guard, "root").latest("parking-listed")

    with pytest.raises(SourceError) as caught:
        read_folder(guard, "listed", prefix, transformation_ctx="another")

    assert "S3 refused to list it (AccessDenied). Allow s3:ListBucket" in str(caught.value)
    after = watermarks_of(guard, "root").latest("parking-listed")
    assert (after.version, after.watermarks, after.plan) == (before.version, before.watermarks, None)


def test_listing_without_a_prefix_is_refused_when_the_policy_is_of_a_folder(
    guard: GuardedServer, bucket: str, documents: dict[str, str]
) -> None:
    with pytest.raises(ClientError, match=r"AccessDenied.* s3:ListBucket on resource: arn:aws:s3:::guarded-landing"):
        client(guard, "s3", "listed").list_objects_v2(Bucket=bucket)

    assert client(guard, "s3", "open").list_objects_v2(Bucket=bucket)["KeyCount"] >= 10


@pytest.mark.parametrize(
    ("role", "prefix", "granted"),
    [
        pytest.param("listed", "parking/", {"GetObject", "ListBucket"}, id="listed"),
        pytest.param(
            "versions", "kept/", {"GetObject", "GetObjectVersion", "ListBucket", "ListBucketVersions"}, id="versions"
        ),
        pytest.param("told", "told/", {"GetObject", "GetObjectVersion", "ListBucket"}, id="told"),
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
