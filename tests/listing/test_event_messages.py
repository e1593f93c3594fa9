"""What a message of S3 says, in each of the shapes in which it comes."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.listing.event_messages import CREATED, OTHER, REMOVED, newest, parse_message
from tests.support.event_bodies import bridged, notification, record, through_sns

TIME = datetime(2026, 3, 16, 15, 45, 0, 123000, tzinfo=timezone.utc)
STRANGE_KEYS = ["a b", "x+y", "100%25", "50%", "🎉", "\ue000", "new\nline", "a/b=c", 'q"']


@pytest.mark.parametrize(
    "body",
    [
        notification(record("a.csv", version="v1")),
        through_sns(notification(record("a.csv", version="v1"))),
        notification(record("a.csv", event="s3:ObjectCreated:Put", version="v1")),
        notification(record("a.csv", etag='"e1"', version="v1")),
    ],
    ids=["straight", "sns", "prefixed", "quoted"],
)
def test_creation_has_all_its_fields_when_notified(body: str) -> None:
    (event,) = parse_message(body)

    assert (event.kind, event.bucket, event.key, event.time) == (CREATED, "landing", "a.csv", TIME)
    assert (event.etag, event.size, event.version_id, event.sequencer) == ("e1", 5, "v1", "0055aed6dcd90281e5")
    assert not event.hides


@pytest.mark.parametrize("body", [bridged("a.csv"), through_sns(bridged("a.csv"))], ids=["straight", "sns"])
def test_creation_has_all_its_fields_when_bridged(body: str) -> None:
    (event,) = parse_message(body)

    assert (event.kind, event.bucket, event.key, event.time) == (
        CREATED,
        "landing",
        "a.csv",
        TIME.replace(microsecond=0),
    )
    assert (event.etag, event.size, event.version_id, event.sequencer) == ("e1", 5, None, "617f08299329d189")


@pytest.mark.parametrize("key", STRANGE_KEYS)
@pytest.mark.parametrize("build", [lambda key: notification(record(key)), bridged], ids=["notified", "bridged"])
def test_key_is_raw_when_strange(build: Any, key: str) -> None:
    (event,) = parse_message(build(key))

    assert event.key == key


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("+% \n"), min_size=1))
def test_key_is_raw_when_random(key: str) -> None:
    assert [event.key for event in parse_message(notification(record(key))) + parse_message(bridged(key))] == [key, key]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ObjectCreated:Put", CREATED),
        ("ObjectCreated:Post", CREATED),
        ("ObjectCreated:Copy", CREATED),
        ("ObjectCreated:CompleteMultipartUpload", CREATED),
        ("ObjectRemoved:Delete", REMOVED),
        ("ObjectRemoved:DeleteMarkerCreated", REMOVED),
        ("LifecycleExpiration:Delete", REMOVED),
        ("LifecycleExpiration:DeleteMarkerCreated", REMOVED),
        ("ObjectRestore:Completed", OTHER),
        ("ObjectTagging:Put", OTHER),
        ("ObjectAcl:Put", OTHER),
        ("LifecycleTransition", OTHER),
        ("SomethingNew:Happened", OTHER),
    ],
)
def test_kind_is_that_of_the_event_when_notified(name: str, kind: str) -> None:
    (event,) = parse_message(notification(record("a", event=name)))

    assert event.kind == kind


@pytest.mark.parametrize(
    ("detail_type", "kind"),
    [("Object Created", CREATED), ("Object Deleted", REMOVED), ("Object Tags Added", OTHER)],
)
def test_kind_is_that_of_the_event_when_bridged(detail_type: str, kind: str) -> None:
    (event,) = parse_message(bridged("a", detail_type=detail_type))

    assert event.kind == kind


@pytest.mark.parametrize(
    ("body", "hides"),
    [
        (notification(record("a", event="ObjectRemoved:Delete")), True),
        (notification(record("a", event="ObjectRemoved:Delete", version="v1")), False),
        (notification(record("a", event="ObjectRemoved:DeleteMarkerCreated", version="v2")), True),
        (bridged("a", detail_type="Object Deleted"), True),
        (bridged("a", detail_type="Object Deleted", deletion="Permanently Deleted", version_id="v1"), False),
        (bridged("a", detail_type="Object Deleted", deletion="Delete Marker Created", version_id="v1"), True),
    ],
)
def test_removal_hides_the_key_when_it_is_not_of_one_version(body: str, hides: bool) -> None:
    (event,) = parse_message(body)

    assert event.hides is hides


@pytest.mark.parametrize("wrap", [str, through_sns])
def test_test_event_says_nothing_when_read(wrap: Any) -> None:
    assert parse_message(wrap(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "landing"}))) == []


def test_all_records_are_read_when_a_message_has_several() -> None:
    events = parse_message(notification(record("a"), record("b")))

    assert [event.key for event in events] == ["a", "b"]


def changed(**fields: Any) -> str:
    """Return a notification whose record has other fields; None drops one. Names with a dot reach into ``s3``."""
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
        ("5", "it is no notification of S3"),
        ("null", "it is no notification of S3"),
        ("[]", "it is no notification of S3"),
        ("[" * 100_000, "it is no notification of S3"),
        ("{}", "it has no 'Records'"),
        ('{"Records": [5]}', "it is no notification of S3"),
        ('{"Type": "Notification"}', "it has no 'Message'"),
        (through_sns("hello"), "Expecting value"),
        (through_sns(through_sns(notification(record("a")))), "it has no 'Records'"),
        (changed(eventName=None), "it has no 'eventName'"),
        (changed(eventTime=None), "it has no 'eventTime'"),
        (changed(eventTime="yesterday"), "invalid literal"),
        (changed(eventTime="2026-03-16T15:45:00.123"), "its time has no zone"),
        (changed(eventTime=5), "it is no notification of S3"),
        (changed(s3="x"), "it is no notification of S3"),
        (changed(s3__bucket=None), "it has no 'bucket'"),
        (changed(s3__object=None), "it has no 'object'"),
        (changed(s3__object__key=None), "it has no 'key'"),
        (changed(s3__object__key=""), "its key is empty"),
        (changed(s3__object__key=5), "it is no notification of S3"),
        (changed(s3__object__key="%FF"), "utf-8"),
        (changed(s3__object__eTag=None), "it has no 'eTag'"),
        (changed(s3__object__eTag='""'), "its ETag is empty"),
        (changed(s3__object__size=None), "it has no 'size'"),
        (changed(s3__object__size="5"), "its size is no number of bytes"),
        (changed(s3__object__size=-1), "its size is no number of bytes"),
        (changed(s3__object__size=True), "its size is no number of bytes"),
        (changed(s3__object__size=2**63), "its size is no number of bytes"),
        (bridged("\ud800"), "surrogates not allowed"),
    ],
)  # fmt: skip
def test_message_is_refused_when_it_is_no_notification(body: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_message(body)


# --- what became of a key -----------------------------------------------------------------------------------


def created(etag: str, sequencer: str | None = None, second: int = 0, **fields: Any) -> Any:
    (event,) = parse_message(notification(record("a", etag=etag, sequencer=sequencer, second=second, **fields)))
    return event


def removed(sequencer: str | None = None, second: int = 0, event: str = "ObjectRemoved:Delete", **fields: Any) -> Any:
    (found,) = parse_message(notification(record("a", event=event, sequencer=sequencer, second=second, **fields)))
    return found


def test_later_sequencer_wins_when_the_times_say_otherwise() -> None:
    found = newest([created("old", "00A1", second=9), created("new", "00A2", second=1)])

    assert found is not None
    assert found.etag == "new"


def test_case_makes_no_difference_when_sequencers_are_compared() -> None:
    found = newest([created("new", "00b1"), created("old", "00A2")])

    assert found is not None
    assert found.etag == "new"


@pytest.mark.parametrize(("one", "other"), [("00FF", "0100FF"), (None, "00A1"), (None, None)])
def test_later_time_wins_when_sequencers_cannot_be_compared(one: str | None, other: str | None) -> None:
    events = [created("new", one, second=2), created("old", other, second=1)]

    found = newest(events)

    assert found is not None
    assert found.etag == "new"


def test_sequencers_decide_when_an_event_of_another_kind_has_none() -> None:
    (tagged,) = parse_message(notification(record("a", event="ObjectTagging:Put", sequencer=None)))

    found = newest([created("old", "00A1", second=9), tagged, created("new", "00A2", second=1)])

    assert found is not None
    assert found.etag == "new"


def test_removal_wins_when_it_is_the_newest() -> None:
    found = newest([removed("00A2"), created("old", "00A1")])

    assert found is not None
    assert found.hides


def test_creation_wins_when_it_comes_after_the_removal() -> None:
    found = newest([removed("00A1"), created("new", "00A2")])

    assert found is not None
    assert found.etag == "new"


def test_creation_wins_when_a_removal_is_of_the_same_moment() -> None:
    for events in ([removed(), created("new")], [removed("00A1"), created("new", "00A1")]):
        found = newest(events)

        assert found is not None
        assert found.etag == "new"


def test_creation_of_another_version_stands_when_one_is_removed_by_its_id() -> None:
    found = newest([created("new", "00A1", version="v2"), removed("00A2", version="v1")])

    assert found is not None
    assert found.etag == "new"


def test_nothing_is_known_when_the_created_version_is_removed_by_its_id() -> None:
    assert newest([created("new", "00A1", version="v1"), removed("00A2", version="v1")]) is None


events = st.lists(
    st.builds(
        lambda kind, etag, sequencer, second, version: (
            created(etag, sequencer, second, version=version) if kind else removed(sequencer, second, version=version)
        ),
        st.booleans(),
        st.sampled_from(["e1", "e2"]),
        st.sampled_from(["00A1", "00A2", "A3", None]),
        st.integers(0, 3),
        st.sampled_from([None, "v1", "v2"]),
    ),
    max_size=6,
)


@given(events=events, data=st.data())
def test_newest_is_the_same_when_events_are_shuffled_and_repeated(events: list[Any], data: st.DataObject) -> None:
    repeated = events + (data.draw(st.lists(st.sampled_from(events), max_size=4)) if events else [])

    assert newest(data.draw(st.permutations(repeated))) == newest(events)
