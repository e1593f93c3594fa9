"""The module refuses values that AWS would refuse, or that would do harm, before it creates anything."""

from __future__ import annotations

import shutil
from itertools import zip_longest
from typing import Any

import hcl2
import pytest

from tests.infra.terraform import TERRAFORM_FOLDER, Terraform

pytestmark = pytest.mark.if_changed("terraform")

NOT_A_BOOL = ("perhaps", "a bool is required")
TAG_RULE = "Each of the tags must have a name of 1 to 128 characters and a value of at most 256"
NAME_RULE = "names of 1 to 30 characters out of a-z, 0-9 and '-'"
KEY_RULE = "The sources must have a kms_key_arn that is the ARN of a key"
BUCKET_RULE = "The sources must each have the name of a bucket"
PLACE_RULE = "The sources must each have a bucket and a prefix; only a source with a catalog"
CATALOG_RULE = "The sources must have a catalog with a database, at least one table"
LEDGER_RULE = "The sources must not have a ledger in the folder of another's"
WRITTEN_RULE = "The sources must not have a ledger in a folder that a source is in, or is"
GROUP_RULE = "The sources must have the same notification_group if their events are of the same bucket"
KEY = "arn:aws:kms:eu-west-2:111122223333:key/mrk-0a1b"
ALIAS = "arn:aws:kms:eu-west-2:111122223333:alias/mine"
WINDOW_RULE = "The kms_deletion_window_in_days must be a whole number from 7 to 30"
PREFIX_RULE = "prefixes that keep the rule of job names"
FOLDER_RULE = 'The sources must have prefixes that end in "/", do not begin with it, and hold none of * ? $'
EVENTS_RULE = "visibility_timeout_seconds from 60 to 43200, retention_seconds from 3600 and below the 1209600"
PERIOD_RULE = "The jobs must have a runs_every_seconds from 60 to 86400 (a day) in whole minutes"
TOPIC_RULE = "The alarm_topic_arn must be the ARN of an SNS topic"


def team(*names: str) -> dict[str, Any]:
    return {"job_name_prefixes": list(names)}


def source(**changed: Any) -> dict[str, Any]:
    return {"bucket": "landing", "prefix": "parking/"} | changed


def folder(**changed: Any) -> dict[str, Any]:
    return {"bucket": "ledgers", "prefix": "parking/"} | changed


def job(**changed: Any) -> dict[str, Any]:
    return {"runs_every_seconds": 3600, "stale_after_seconds": 7200} | changed


REFUSED: dict[str, list[tuple[Any, str]]] = {
    "create": [NOT_A_BOOL],
    "table_name": [(name, "The table_name must have 3 to 255 characters") for name in ("ab", "t" * 256, "glue/marks")],
    "name": [(name, "The name must have 1 to 40 characters") for name in ("", "1st", "n" * 41, "a.b")],
    "deletion_protection_enabled": [NOT_A_BOOL],
    "tags": [
        ({f"t{n}": "" for n in range(51)}, "AWS allows 50 on a table"),
        ({"Team": "<parking>"}, TAG_RULE),
        ({"Team": "t" * 257}, TAG_RULE),
        ({"AWS:team": "parking"}, "must not have names that start with 'aws:'"),
    ],
    "create_kms_key": [NOT_A_BOOL],
    "kms_key_arn": [(arn, "The kms_key_arn must be the ARN of a key") for arn in ("alias/mine", "", "0a1b-2c3d")],
    "kms_deletion_window_in_days": [(days, WINDOW_RULE) for days in (6, 31, 7.5)],
    "teams": [
        ({"Parking": team("a")}, f"The teams must have {NAME_RULE}"),
        ({"parking": team()}, "The teams must each have a prefix"),
        ({"parking": team("park*")}, PREFIX_RULE),
        ({"parking": team("park$a")}, PREFIX_RULE),
        ({"parking": team("-a")}, PREFIX_RULE),
        ({"parking": team("a" * 201)}, PREFIX_RULE),
        ({"park": team("park"), "parking": team("parking-")}, "each job name may match the prefix of one team only"),
        ({"one": team("a-"), "two": team("b-", "a-")}, "each job name may match the prefix of one team only"),
    ],
    "create_iam_policies": [NOT_A_BOOL],
    "admin_needs_mfa": [NOT_A_BOOL],
    "sources": [
        ({"In": source()}, f"The sources must have {NAME_RULE}"),
        ({"in-dead": source(events={})}, 'and not end in "-dead"'),
        ({"in": {"bucket": "landing"}}, PLACE_RULE),
        ({"in": {}}, PLACE_RULE),
        ({"in": {"catalog": {"database": "d"}, "events": {}}}, PLACE_RULE),
        ({"in": source(bucket="s3://landing")}, BUCKET_RULE),
        ({"in": source(ledger=folder(bucket="s3://ledgers"))}, BUCKET_RULE),
        ({"in": source(ledger=folder(prefix="parking"))}, FOLDER_RULE),
        ({"in": source(inventory=folder(prefix="*/"))}, FOLDER_RULE),
        ({name: source(ledger=folder()) for name in ("a", "b")}, LEDGER_RULE),
        ({"a": source(ledger=folder()), "b": source(ledger=folder(prefix="parking/b/"))}, LEDGER_RULE),
        ({"a": source(ledger=folder(bucket="landing"))}, WRITTEN_RULE),
        ({"a": source(ledger=folder(bucket="other", prefix="")), "b": source(bucket="other")}, WRITTEN_RULE),
        ({"in": source(kms_key_arn=ALIAS)}, KEY_RULE),
        ({"in": source(events={"kms_key_arn": "0a1b-2c3d"})}, KEY_RULE),
        ({"in": source(ledger=folder(kms_key_arn="alias/mine"))}, KEY_RULE),
        ({"in": source(inventory=folder(kms_key_arn=""))}, KEY_RULE),
        ({"in": source(catalog={"database": "d*"})}, CATALOG_RULE),
        ({"in": source(catalog={"database": "d", "tables": []})}, CATALOG_RULE),
        ({"in": source(catalog={"database": "d", "connections": ["a/b"]})}, CATALOG_RULE),
        ({"in": source(prefix="parking")}, FOLDER_RULE),
        ({"in": source(prefix="/in/")}, FOLDER_RULE),
        ({"in": source(prefix="*/")}, FOLDER_RULE),
        ({"in": source(events={"visibility_timeout_seconds": 43_201})}, EVENTS_RULE),
        ({"in": source(events={"retention_seconds": 60, "max_receive_count": 0})}, EVENTS_RULE),
        ({"in": source(events={"retention_seconds": 1_209_600})}, EVENTS_RULE),
        ({"all": source(prefix="", events={}), "in": source(events={})}, "S3 sends each event to one queue only"),
        ({"a": source(events={"notification_group": "x"}), "b": source(prefix="b/", events={})}, GROUP_RULE),
        (
            {name: source(bucket=name * 3, events={"notification_group": "x"}) for name in ("a", "b")},
            GROUP_RULE,
        ),
    ],
    "manage_bucket_notifications": [NOT_A_BOOL],
    "restrict_dead_letters": [NOT_A_BOOL],
    "create_alarms": [NOT_A_BOOL],
    "jobs": [
        ({"parking*": job()}, "The jobs must have names of 1 to 200 characters that keep the rule of job names"),
        ({"a": job(runs_every_seconds=90)}, PERIOD_RULE),
        ({"a": job(runs_every_seconds=86_460)}, PERIOD_RULE),
        ({"a": job(stale_after_seconds=0)}, "above 0"),
        ({"a": job(plan_open_after_seconds=0)}, "above 0"),
        ({"a": job(measure="rows")}, 'The jobs must have a measure that is "age" or "lag"'),
    ],
    "late_jobs": [([name], "The late_jobs must be names of 1 to 200 characters") for name in ("parking*", "n" * 201)],
    "alarm_topic_arn": [(arn, TOPIC_RULE) for arn in ("alarms", "arn:aws:sns:eu-west-2:111122223333:a.fifo")],
}
ROUNDS = [
    {name: case for name, case in zip(REFUSED, cases, strict=True) if case is not None}
    for cases in zip_longest(*REFUSED.values())
]
"""Each round has one bad value for each variable with any left, because Terraform reports all of them at once."""

ACCEPTED = [
    pytest.param({"table_name": "t.1", "name": "n", "deletion_protection_enabled": False}, id="shortest-names"),
    pytest.param({"table_name": "t" * 255, "name": "n" * 40, "tags": {f"t{n}": "" for n in range(50)}}, id="longest"),
    pytest.param(
        {
            "tags": {"t" * 128: "t" * 256, "Größe": "a b_.:/=+@-"},
            "kms_key_arn": "arn:aws-us-gov:kms:us-gov-west-1:111122223333:key/mrk-0a1b",
            "kms_deletion_window_in_days": 7,
            "teams": {"all": team("*"), "a": team("a" * 200, "b ._/:@=+-"), "c-1": team("0")},
            "sources": {
                "a": source(prefix="a b/ü/", events={}),
                "b": source(prefix="b/", events={"max_receive_count": 1000, "visibility_timeout_seconds": 43_200}),
                "c": source(prefix="", kms_key_arn=KEY, ledger=folder(kms_key_arn=KEY), inventory=folder(prefix="")),
                "c-2": source(ledger=folder(prefix="parking-2/")),
                "c-3": source(ledger=folder(bucket="landing", prefix="parking/_ledger/")),
                "d": {"catalog": {"database": "d", "tables": ["fines", "p*"], "connections": ["a b"]}},
                "e": source(bucket="grouped", events={"notification_group": "g", "kms_key_arn": KEY}),
                "f": source(bucket="grouped", prefix="f/", events={"notification_group": "g"}),
            },
            "jobs": {"a": job(runs_every_seconds=60), "b/c d": job(runs_every_seconds=86_400, measure="lag")},
            "late_jobs": ["a", "b/c d"],
            "alarm_topic_arn": "arn:aws:sns:eu-west-2:111122223333:alarms",
        },
        id="all-signs-and-limits",
    ),
]


@pytest.fixture(scope="module")
def variables_only(terraform_command: str, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """Return Terraform in a folder with only variables.tf, whose rules it checks without starting the provider."""
    folder = tmp_path_factory.mktemp("variables")
    shutil.copy(TERRAFORM_FOLDER / "variables.tf", folder)
    return Terraform(terraform_command, folder, endpoint="http://127.0.0.1:1")


def test_every_variable_has_a_bad_value_here_when_the_file_is_parsed() -> None:
    with (TERRAFORM_FOLDER / "variables.tf").open(encoding="utf-8") as text:
        parsed = hcl2.load(text, serialization_options=hcl2.SerializationOptions(strip_string_quotes=True))

    names = [name for variable in parsed["variable"] for name in variable]

    assert names == list(REFUSED)


@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_plan_is_refused_with_every_message_when_variables_are_bad(variables_only: Terraform, number: int) -> None:
    bad = ROUNDS[number]

    outcome = variables_only.run("plan", variables={name: value for name, (value, _) in bad.items()})

    assert outcome.code == 1
    assert [name for name, (_, message) in bad.items() if message not in outcome.text] == []
    assert [name for name in bad if f'variable "{name}"' not in outcome.text] == []
    assert outcome.text.count("Error:") == len(bad)


@pytest.mark.parametrize("variables", ACCEPTED)
def test_plan_is_made_when_variables_are_at_their_limits(variables_only: Terraform, variables: dict[str, Any]) -> None:
    outcome = variables_only.run("plan", variables=variables)

    outcome.succeeded()
