"""The objects that S3's event messages name, in every form in which the messages arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.listing.event_messages import NamedObject, parse_message
from tests.support.event_bodies import bridged, notification, record, through_sns

STRANGE_KEYS = ["a b", "x+y", "100%25", "50%", "🎉", "\ue000", "new\nline", "a/b=c", 'q"']


@pytest.mark.parametrize(
    "body",
    [
        notification(record("a.csv", version="v1")),
        through_sns(notification(record("a.csv", version="v1"))),
        bridged("a.csv"),
        through_sns(bridged("a.csv")),
    ],
    ids=["straight", "sns", "bridged", "bridged-sns"],
)
def test_object_is_named_when_a_message_comes_one_way_or_another(body: str) -> None:
    assert parse_message(body) == [NamedObject("landing", "a.csv")]


@pytest.mark.parametrize("key", STRANGE_KEYS)
@pytest.mark.parametrize("build", [lambda key: notification(record(key)), bridged], ids=["notified", "bridged"])
def test_key_is_raw_when_strange(build: Any, key: str) -> None:
    (event,) = parse_message(build(key))

    assert event.key == key


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("+% \n"), min_size=1))
def test_key_is_raw_when_random(key: str) -> None:
    assert [event.key for event in parse_message(notification(record(key))) + parse_message(bridged(key))] == [key, key]


@pytest.mark.parametrize(
    "body",
    [
        notification(record("a", event="ObjectCreated:CompleteMultipartUpload")),
        notification(record("a", event="ObjectRemoved:Delete")),
        notification(record("a", event="LifecycleExpiration:DeleteMarkerCreated")),
        notification(record("a", event="ObjectRestore:Completed")),
        notification(record("a", event="SomethingNew:Happened")),
        bridged("a", detail_type="Object Deleted", deletion="Delete Marker Created", version_id="v1"),
        bridged("a", detail_type="Object Tags Added"),
    ],
)
def test_object_is_named_whatever_happened_to_it(body: str) -> None:
    assert [named.key for named in parse_message(body)] == ["a"]


@pytest.mark.parametrize("wrap", [str, through_sns])
def test_no_object_is_named_when_the_message_is_the_test_event_of_s3(wrap: Any) -> None:
    assert parse_message(wrap(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "landing"}))) == []


def test_all_records_are_read_when_a_message_has_several() -> None:
    events = parse_message(notification(record("a"), record("b")))

    assert [event.key for event in events] == ["a", "b"]


def changed(**fields: Any) -> str:
    """Return a notification whose record has other fields; None drops a field. `__` in a name reaches into a field."""
    body = json.loads(notification(record("a")))
    for path, value in fields.items():
        place = body["Records"][0]
        *above, name = path.split("__")
        for step in above:
            place = place[step]
        if value is None:
            del place[name]
        else:
            place[name] = value
    return json.dumps(body)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("", "Expecting value"),
        ("hello", "Expecting value"),
        ("5", "it is not a notification of S3"),
        ("null", "it is not a notification of S3"),
        ("[]", "it is not a notification of S3"),
        ("[" * 100_000, "it is not a notification of S3"),
        ("{}", "it has no 'Records'"),
        ('{"Records": [5]}', "it is not a notification of S3"),
        ('{"Type": "Notification"}', "it has no 'Message'"),
        (through_sns("hello"), "Expecting value"),
        (through_sns(through_sns(notification(record("a")))), "it has no 'Records'"),
        (changed(s3="x"), "it is not a notification of S3"),
        (changed(s3__bucket=None), "it has no 'bucket'"),
        (changed(s3__object=None), "it has no 'object'"),
        (changed(s3__object__key=None), "it has no 'key'"),
        (changed(s3__object__key=""), "its key is not a text, or is empty"),
        (changed(s3__bucket__name=5), "its bucket is not a text, or is empty"),
        (changed(s3__object__key=5), "it is not a notification of S3"),
        (changed(s3__object__key="%FF"), "utf-8"),
        (bridged("\ud800"), "surrogates not allowed"),
    ],
)  # fmt: skip
def test_message_is_refused_when_it_is_no_notification(body: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_message(body)
