"""For each role, the policies of terraform/ allow exactly the requests that the package sends to the table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import botocore.session
import pytest

from scripts.helpers.errors import AccessRefusedError
from scripts.helpers.protocol.jobs import list_jobs
from scripts.helpers.watermarks import Watermarks
from tests.infra.guarded_server import GuardedServer
from tests.infra.roles import FOREIGN, HERE, OWN, TABLE, TABLE_ARN, client, read_folder, watermarks_of
from tests.infra.terraform import Terraform
from tests.infra.work import FILES, WORK, prepare, store_of
from tests.support.doctests import run_doctest
from tests.support.iam_policies import Request, is_allowed
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.if_changed("terraform")

PAGE = (REPOSITORY / "docs" / "permissions.md").read_text(encoding="utf-8")
LEADING = "dynamodb:LeadingKeys"
TEAM = [role for role in WORK if role != "lister"]
READS = {"dynamodb:GetItem", "dynamodb:Query"}
WRITES = {"dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
LOOKS = {"dynamodb:DescribeTable"}
AFTER_RESTORE = {"dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTimeToLive"}
"""For a person who checks whether TTL and recovery are on again; the package does not call these actions."""
GRANTS = {
    "reader": READS | LOOKS,
    "writer": READS | WRITES | LOOKS,
    "admin": READS | WRITES | LOOKS | AFTER_RESTORE,
    "lister": READS | LOOKS | {"dynamodb:Scan"},
    "pipeline": LOOKS
    | AFTER_RESTORE
    | {f"dynamodb:{name}" for name in ("CreateTable", "ListTagsOfResource", "TagResource", "UntagResource")}
    | {f"dynamodb:{name}" for name in ("UpdateContinuousBackups", "UpdateTable", "UpdateTimeToLive")},
}
USES = {role: GRANTS[role] - AFTER_RESTORE for role in WORK}


@pytest.fixture(scope="module")
def worked(guard: GuardedServer, documents: dict[str, str], landing_bucket: str) -> dict[str, set[Request]]:
    """Return the requests that each role sent to the table while it did all of its work, the writer first."""
    prepare(watermarks_of(guard, "root"))
    read_folder(guard, "root", "parking/", FILES)
    guard.policies["reader"] = [documents["reader"], documents["listed"]]
    recorded = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        patch.setenv("AWS_ENDPOINT_URL", guard.url)
        patch.setenv("AWS_DEFAULT_REGION", HERE)
        for role, all_work in WORK.items():
            patch.setenv("AWS_ACCESS_KEY_ID", role)  # Launchers and commands sign with this key.
            guard.calls.clear()
            for work in all_work:
                work(watermarks_of(guard, role, retention=timedelta(days=30)))
            calls = guard.of(role)
            assert [call for call in calls if not call.allowed] == []
            recorded[role] = {
                Request(call.request.action, call.request.resource, _Frozen(call.request.context))
                for call in calls
                if call.request.action.startswith("dynamodb:")
            }
    return recorded


class _Frozen(dict[str, Any]):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


def everything(guard: GuardedServer) -> Any:
    found = client(guard, "dynamodb", "root").scan(TableName=TABLE)["Items"]
    return sorted(json.dumps(item, default=repr, sort_keys=True) for item in found)


@pytest.mark.parametrize("role", WORK)
def test_role_needs_these_actions_when_it_does_its_work(worked: dict[str, set[Request]], role: str) -> None:
    asked_for = worked[role]

    assert {request.action for request in asked_for} == USES[role]
    assert {request.resource for request in asked_for} == {TABLE_ARN}


@pytest.mark.parametrize("role", TEAM)
def test_role_of_a_team_names_its_own_jobs_only_when_it_does_its_work(
    worked: dict[str, set[Request]], role: str
) -> None:
    named = {key for request in worked[role] for key in request.context.get(LEADING, ())}

    assert OWN in named
    assert [key for key in named if not key.startswith("parking-")] == []


@pytest.mark.parametrize("role", WORK)
def test_recorded_calls_are_refused_when_they_are_of_another_table(
    worked: dict[str, set[Request]], documents: dict[str, str], role: str
) -> None:
    tables = [f"{TABLE_ARN}-2", f"{TABLE_ARN}/index/any", TABLE_ARN.replace(HERE, "eu-west-2"), "*"]
    others = [Request(request.action, table, request.context) for request in worked[role] for table in tables]

    allowed = [request for request in others if is_allowed([documents[role]], request)]

    assert len(others) >= 4 * len(USES[role])
    assert allowed == []


@pytest.mark.parametrize("role", TEAM)
def test_recorded_calls_are_refused_when_they_are_of_another_team(
    worked: dict[str, set[Request]], documents: dict[str, str], role: str
) -> None:
    actions = {request.action for request in worked[role] if LEADING in request.context}
    strangers = [(FOREIGN,), (OWN, FOREIGN), ("Parking-files",), ("parking",), ()]
    others = [Request(action, TABLE_ARN, {LEADING: keys}) for action in actions for keys in strangers]
    others += [Request(action, TABLE_ARN, {}) for action in actions]

    allowed = [request for request in others if is_allowed([documents[role]], request)]

    assert actions == USES[role] - LOOKS
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


@pytest.mark.parametrize(
    ("role", "work", "action"),
    [
        pytest.param("reader", lambda marks: marks.latest(FOREIGN), "GetItem", id="read-foreign"),
        pytest.param("reader", lambda marks: marks.begin("parking-new", "jr_1"), "PutItem", id="reader-begins"),
        pytest.param("writer", lambda marks: marks.begin(FOREIGN, "jr_1"), "GetItem", id="run-foreign"),
        pytest.param("writer", lambda marks: marks.create_table(), "CreateTable", id="writer-creates"),
        pytest.param("admin", lambda marks: marks.reset(FOREIGN, why="a test"), "GetItem", id="reset-foreign"),
        pytest.param("admin", lambda marks: marks.create_table(), "CreateTable", id="admin-creates"),
        pytest.param("admin", lambda marks: list_jobs(store_of(marks)), "Scan", id="admin-lists"),
        pytest.param("lister", lambda marks: marks.begin(OWN, "jr_1"), "PutItem", id="lister-begins"),
        pytest.param("lister", lambda marks: marks.reset(FOREIGN, why="a test"), "PutItem", id="lister-resets"),
    ],
)
def test_error_names_the_action_when_a_role_tries_the_work_of_another(
    guard: GuardedServer, worked: dict[str, set[Request]], role: str, work: Callable[[Watermarks], Any], action: str
) -> None:
    before = everything(guard)

    with pytest.raises(AccessRefusedError, match=f"^AWS refuses dynamodb:{action} on '{TABLE}'"):
        work(watermarks_of(guard, role))

    assert everything(guard) == before


@pytest.mark.parametrize("role", WORK)
def test_other_table_is_named_when_a_role_asks_whether_it_exists(
    guard: GuardedServer, worked: dict[str, set[Request]], role: str
) -> None:
    with pytest.raises(AccessRefusedError, match=r"^AWS refuses dynamodb:DescribeTable on 'another-table'"):
        watermarks_of(guard, role).exists("another-table")


def test_page_lists_the_same_actions_when_it_is_compared_with_the_policies(
    guard: GuardedServer, worked: dict[str, set[Request]], documents: dict[str, str]
) -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    [session] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    rows = {cells[1].strip(): cells[3] for cells in (line.split("|") for line in PAGE.splitlines()) if len(cells) == 5}

    report = run_doctest(session, {"Watermarks": Watermarks, "as_writer": client(guard, "dynamodb", "writer")})

    told = {role: {f"dynamodb:{name}" for name in re.findall(r"`(\w+)`", rows[role])} for role in GRANTS}
    of_items, of_table, of_key = json.loads(documents["writer"])["Statement"]
    assert json.loads(shown) == {"Version": "2012-10-17", "Statement": [of_items, of_table]}
    assert of_key["Sid"] == "KeyOfTheTable"
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

    applied.succeeded()
    changed.succeeded()
    assert refused_before_destroy == []
    used = {call.request.action for call in guard.of("pipeline") if call.allowed}
    assert used == GRANTS["pipeline"] | {"sts:GetCallerIdentity", "kms:DescribeKey"}
    assert destroyed.code == 1
    assert "not authorized to perform: dynamodb:DeleteTable" in destroyed.text
    assert name in client(guard, "dynamodb", "root").list_tables()["TableNames"]
