"""S3 notifications through SQS: which messages are received, and which stay in the queue."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import (
    AccessRefusedError,
    CredentialsError,
    InvalidValueError,
    SourceError,
    SourceUnavailableError,
    WatermarkError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.events import Received, S3EventQueue
from scripts.helpers.listing.listing import Location
from scripts.helpers.watermarks import Watermarks
from tests.support.event_bodies import bridged, notification, record, through_sns
from tests.support.faults import Raw
from tests.support.long import cases

LANDING = Location.parse("s3://landing/in/")
_numbers = itertools.count(1)


@pytest.fixture
def sqs(endpoint: str) -> Any:
    """Return a client for one test, without retries."""
    return boto3.client("sqs", endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1}))


class Queue:
    """A new queue, accessed without the package."""

    def __init__(self, sqs: Any) -> None:
        self.sqs = sqs
        self.url = sqs.create_queue(QueueName=f"queue-{next(_numbers)}")["QueueUrl"]

    @property
    def arn(self) -> str:
        return str(
            self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        )

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def count(self) -> tuple[int, int]:
        """Return the number of messages that can be received, and the number in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])


@pytest.fixture
def queue(sqs: Any) -> Queue:
    return Queue(sqs)


@pytest.fixture
def events(queue: Queue) -> S3EventQueue:
    return S3EventQueue(queue.url, sqs_client=queue.sqs, wait=0)


def keys(received: Received) -> list[str]:
    return list(received.keys)


# --- from a bucket to keys -------------------------------------------------------------------------------------


@pytest.fixture
def watched(s3: Any, bucket: str, queue: Queue) -> Location:
    """Return a location in a bucket that sends its events to the queue."""
    s3.put_bucket_notification_configuration(
        Bucket=bucket,
        NotificationConfiguration={
            "QueueConfigurations": [
                {"QueueArn": queue.arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]},
            ]
        },
    )
    return Location.parse(f"s3://{bucket}/in/")


def test_keys_are_those_of_a_listing_when_a_bucket_sends_events(
    s3: Any, events: S3EventQueue, watched: Location
) -> None:
    names = ["b", "a b+c%25", "🎉", "\ue000", "x/y=1/z"]
    for name in names:
        s3.put_object(Bucket=watched.bucket, Key=f"in/{name}", Body=name.encode())
    s3.delete_object(Bucket=watched.bucket, Key="in/gone")

    received = events.receive(watched)

    listed = s3.list_objects_v2(Bucket=watched.bucket, Prefix="in/")["Contents"]
    assert [key for key in keys(received) if key != "gone"] == [found["Key"][3:] for found in listed]


def test_queue_is_empty_when_a_bucket_s_events_are_acknowledged(
    s3: Any, queue: Queue, events: S3EventQueue, watched: Location
) -> None:
    for number in range(23):
        s3.put_object(Bucket=watched.bucket, Key=f"in/{number}", Body=b"x")
    events.receive(watched)

    acknowledged = events.acknowledge()

    assert acknowledged == 24  # including S3's test event
    assert queue.count() == (0, 0)


# --- receiving -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [str, through_sns])
def test_object_is_received_when_it_comes_through_others(queue: Queue, events: S3EventQueue, wrap: Any) -> None:
    queue.send(wrap(bridged("in/a b+c%25")))

    assert keys(events.receive(LANDING)) == ["a b+c%25"]


def test_nothing_is_received_when_the_queue_is_empty(events: S3EventQueue) -> None:
    received = events.receive(LANDING)

    assert received == ((), False)


def test_keys_are_in_byte_order_and_named_once_when_received(queue: Queue, events: S3EventQueue) -> None:
    for key in ("z", "🎉", "\ue000", "a"):
        queue.send(notification(record(f"in/{key}"), record(f"in/{key}", event="ObjectRemoved:Delete")))

    received = events.receive(LANDING)

    assert keys(received) == ["a", "z", "\ue000", "🎉"]


def test_no_more_messages_are_taken_than_are_asked_for_when_there_are_more(queue: Queue, events: S3EventQueue) -> None:
    queue.send(*(notification(record(f"in/{number:02}")) for number in range(15)))

    first, second = events.receive(LANDING, 12), events.receive(LANDING)

    assert (len(first.keys), first.has_more) == (12, True)
    assert (len(second.keys), second.has_more) == (3, False)


def test_receiving_ends_when_the_same_messages_come_again_at_once(queue: Queue, events: S3EventQueue) -> None:
    queue.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"VisibilityTimeout": "0"})
    queue.send(*(notification(record(f"in/{number}")) for number in range(3)))

    received = events.receive(LANDING)

    assert keys(received) == ["0", "1", "2"]
    assert events.acknowledge() == 3
    assert queue.count() == (0, 0)


deliveries = st.lists(
    st.builds(
        lambda key, event: notification(record(f"in/{key}", event=event)),
        st.sampled_from(["a", "b c", "🎉"]),
        st.sampled_from(["ObjectCreated:Put", "ObjectRemoved:Delete"]),
    ),
    min_size=1,
    max_size=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(8, long=100), deadline=None)
@given(bodies=deliveries, data=st.data())
def test_result_is_the_same_when_deliveries_are_shuffled_and_repeated(
    sqs: Any, bodies: list[str], data: st.DataObject
) -> None:
    repeated = bodies + data.draw(st.lists(st.sampled_from(bodies), max_size=5))
    results = []
    for order in (bodies, data.draw(st.permutations(repeated))):
        queue = Queue(sqs)
        queue.send(*order)
        results.append(S3EventQueue(queue.url, sqs_client=sqs, wait=0).receive(LANDING))
        sqs.delete_queue(QueueUrl=queue.url)

    assert results[0] == results[1]


# --- what stays in the queue ----------------------------------------------------------------------------------------


def test_messages_come_again_when_they_were_not_acknowledged(queue: Queue, events: S3EventQueue) -> None:
    queue.send(notification(record("in/a")))
    first = events.receive(LANDING)
    events.extend(0)

    again = events.receive(LANDING)

    assert again == first


def test_only_messages_of_the_last_call_are_acknowledged_when_there_were_two(
    queue: Queue, events: S3EventQueue
) -> None:
    queue.send(notification(record("in/a")))
    events.receive(LANDING)
    queue.send(notification(record("in/b")))
    events.receive(LANDING)

    acknowledged = events.acknowledge()

    assert acknowledged == 1
    assert queue.count() == (0, 1)


@pytest.mark.parametrize("body", ["hello", "{}", notification(record("in/a") | {"s3": "?"})])
def test_message_stays_with_a_warning_when_it_is_malformed(
    queue: Queue, events: S3EventQueue, caplog: pytest.LogCaptureFixture, body: str
) -> None:
    queue.send(body, notification(record("in/good")))

    received = events.receive(LANDING)
    acknowledged = events.acknowledge()

    assert keys(received) == ["good"]
    assert acknowledged == 1
    assert queue.count() == (0, 1)
    (logged,) = caplog.records
    assert logged.levelno == logging.WARNING
    assert "event=message_unreadable message=" in logged.getMessage()


@pytest.mark.parametrize("other", [{"bucket": "other"}, {"key": "inbox/a"}, {"key": "a"}], ids=str)
def test_message_stays_with_a_warning_when_it_is_of_another_source(
    queue: Queue, events: S3EventQueue, caplog: pytest.LogCaptureFixture, other: dict[str, Any]
) -> None:
    queue.send(notification(record(**({"key": "in/a"} | other))))

    received = events.receive(LANDING)

    assert received.keys == ()
    assert events.acknowledge() == 0
    assert queue.count() == (0, 1)
    assert "event=message_not_of_source" in caplog.text
    assert "source=s3://landing/in/" in caplog.text


def test_message_stays_but_its_part_is_taken_when_it_is_of_two_sources(queue: Queue, events: S3EventQueue) -> None:
    queue.send(notification(record("in/a"), record("elsewhere/b")))

    received = events.receive(LANDING)

    assert keys(received) == ["a"]
    assert events.acknowledge() == 0
    assert queue.count() == (0, 1)


def test_message_is_acknowledged_when_it_names_no_object(queue: Queue, events: S3EventQueue) -> None:
    queue.send('{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "landing"}')
    received = events.receive(LANDING)

    acknowledged = events.acknowledge()

    assert received.keys == ()
    assert acknowledged == 1
    assert queue.count() == (0, 0)


def test_messages_of_some_keys_stay_when_these_are_left_to_a_later_batch(queue: Queue, events: S3EventQueue) -> None:
    queue.send(*(notification(record(f"in/{key}")) for key in ("a", "b", "c", "b")))
    queue.send(notification(record("in/a"), record("in/b")))
    events.receive(LANDING)

    acknowledged = events.acknowledge(but=["b"])
    events.extend(0)

    assert acknowledged == 2
    assert keys(events.receive(LANDING)) == ["a", "b"]


def test_message_comes_again_later_and_later_when_its_file_is_left_each_time(
    queue: Queue, events: S3EventQueue
) -> None:
    queue.send(notification(record("in/waits")))
    hidden: list[int] = []

    def note(params: Any, **_: Any) -> None:
        hidden.extend(entry["VisibilityTimeout"] for entry in params["Entries"])

    queue.sqs.meta.events.register("provide-client-params.sqs.ChangeMessageVisibilityBatch", note)
    for _ in range(20):
        events.receive(LANDING)
        events.acknowledge(but=["waits"])
        events.extend(0)

    delays = hidden[::2]
    assert delays[:4] == [0, 120, 360, 840]
    assert delays == sorted(delays)
    assert delays[-1] == 12 * 60 * 60
    assert sum(delays) > 6 * 24 * 60 * 60


def test_all_files_are_taken_and_no_message_is_dead_when_each_batch_has_one(
    s3: Any, queue: Queue, events: S3EventQueue, watched: Location, watermarks: Watermarks, job_id: str
) -> None:
    dead = Queue(queue.sqs)
    redrive = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2})
    queue.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"RedrivePolicy": redrive})
    for number in range(6):
        s3.put_object(Bucket=watched.bucket, Key=f"in/{number}", Body=b"x")
    taken: list[str] = []
    has_more = True

    while has_more:
        with IncrementalJob(watermarks, job_id, s3_client=s3) as job:
            delta = job.new_files(str(watched), events=events, max_files=2)
        taken += [file.key for file in delta.files]
        has_more = delta.has_more

    assert sorted(taken) == ["0", "1", "2", "3", "4", "5"]
    assert (queue.count(), dead.count()) == ((0, 0), (0, 0))


def test_limit_of_bytes_is_refused_when_events_name_the_files(
    events: S3EventQueue, watched: Location, watermarks: Watermarks, job_id: str
) -> None:
    with (
        pytest.raises(InvalidValueError, match="max_bytes cannot be used with events"),
        IncrementalJob(watermarks, job_id) as job,
    ):
        job.new_files(str(watched), events=events, max_bytes=1)


def test_nothing_is_deleted_when_acknowledged_twice_or_before_receiving(queue: Queue, events: S3EventQueue) -> None:
    queue.send(notification(record("in/a")))

    counts = [events.acknowledge()]
    events.receive(LANDING)
    counts += [events.acknowledge(), events.acknowledge()]

    assert counts == [0, 1, 0]


# --- SQS at fault -----------------------------------------------------------------------------------------------------


def spoil(params: dict[str, Any], **_: Any) -> None:
    """Give one message of a full batch a receipt handle that SQS does not know."""
    if len(params["Entries"]) == 10:
        params["Entries"][3]["ReceiptHandle"] = "spoilt"


def test_other_messages_are_deleted_when_sqs_refuses_one(
    queue: Queue, events: S3EventQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.send(*(notification(record(f"in/{number:02}")) for number in range(12)))
    events.receive(LANDING)
    queue.sqs.meta.events.register("provide-client-params.sqs.DeleteMessageBatch", spoil)

    acknowledged = events.acknowledge()

    assert acknowledged == 11
    assert "event=message_refused message=" in caplog.text
    assert "reason=ReceiptHandleIsInvalid" in caplog.text
    assert queue.count() == (0, 1)


def test_message_is_deleted_by_the_next_call_when_sqs_refused_it_once(queue: Queue, events: S3EventQueue) -> None:
    queue.send(*(notification(record(f"in/{number:02}")) for number in range(10)))
    events.receive(LANDING)
    queue.sqs.meta.events.register("provide-client-params.sqs.DeleteMessageBatch", spoil)

    counts = [events.acknowledge(), events.acknowledge()]

    assert counts == [9, 1]
    assert queue.count() == (0, 0)


def refusal(code: str, status: int) -> Callable[..., AWSResponse]:
    """Return a function that answers a request with an error of SQS."""

    def answer(request: Any, **_: Any) -> AWSResponse:
        body = f'{{"__type": "com.amazonaws.sqs#{code}", "message": "no"}}'
        headers = HTTPHeaders.from_dict({"Content-Type": "application/x-amz-json-1.0"})
        return AWSResponse(request.url, status, headers, Raw(body.encode()))

    return answer


denied = refusal("AccessDenied", 403)


def unreachable(**_: Any) -> None:
    raise EndpointConnectionError(endpoint_url="sqs")


faults = pytest.mark.parametrize(
    ("fault", "reason"),
    [(denied, "AccessDenied"), (unreachable, "EndpointConnectionError")],
    ids=["denied", "unreachable"],
)


@faults
@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("DeleteMessageBatch", S3EventQueue.acknowledge),
        ("ChangeMessageVisibilityBatch", lambda events: events.extend(60)),
    ],
    ids=["acknowledge", "extend"],
)
def test_failure_is_logged_and_messages_stay_when_sqs_fails_after_receiving(
    queue: Queue,
    events: S3EventQueue,
    caplog: pytest.LogCaptureFixture,
    fault: Callable[..., Any],
    reason: str,
    operation: str,
    act: Callable[[S3EventQueue], Any],
) -> None:
    queue.send(*(notification(record(f"in/{number:02}")) for number in range(12)))
    events.receive(LANDING)
    queue.sqs.meta.events.register(f"before-send.sqs.{operation}", fault)

    assert not act(events)

    assert queue.count() == (0, 12)
    (logged,) = caplog.records
    assert logged.getMessage().startswith("event=queue_failed queue=")
    assert f"messages=12 reason={reason}" in logged.getMessage()


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (denied, AccessRefusedError, "AWS refuses sqs:ReceiveMessage on '{url}'. Allow it"),
        (refusal("ExpiredTokenException", 400), CredentialsError, "(ExpiredTokenException). Renew them."),
        (refusal("InvalidSignatureException", 400), CredentialsError, "(InvalidSignatureException). Renew them."),
        (refusal("RequestThrottled", 403), SourceUnavailableError, "'{url}': it is unreachable or closed the connect"),
        (refusal("InternalFailure", 500), SourceUnavailableError, "(InternalFailure). Run again later"),
        (unreachable, SourceUnavailableError, "(EndpointConnectionError). Run again later"),
        (refusal("InvalidAddress", 404), SourceError, "'{url}': SQS refused to receive from it (InvalidAddress)."),
    ],
)
def test_receiving_raises_when_sqs_fails(
    queue: Queue,
    events: S3EventQueue,
    fault: Callable[..., Any],
    kind: type[WatermarkError],
    text: str,
) -> None:
    queue.send(notification(record("in/a")))
    queue.sqs.meta.events.register("before-send.sqs.ReceiveMessage", fault)

    with pytest.raises(WatermarkError) as caught:
        events.receive(LANDING)
    queue.sqs.meta.events.unregister("before-send.sqs.ReceiveMessage", fault)

    assert type(caught.value) is kind
    assert text.format(url=queue.url) in str(caught.value)
    assert keys(events.receive(LANDING)) == ["a"]


def test_receiving_raises_when_there_is_no_such_queue(queue: Queue) -> None:
    events = S3EventQueue(f"{queue.url}-missing", sqs_client=queue.sqs, wait=0)

    with pytest.raises(SourceError, match=r"NonExistentQueue.*Check the URL, its region and sqs:ReceiveMessage"):
        events.receive(LANDING)


def test_receiving_is_refused_when_the_source_is_a_directory(queue: Queue, events: S3EventQueue) -> None:
    queue.send(notification(record("in/a")))

    with pytest.raises(SourceError, match="a local directory has no events"):
        events.receive(Location.parse("/landing"))

    assert queue.count() == (1, 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"wait": -1}, "wait is -1 seconds. Give 0 to 20"),
        ({"wait": 21}, "wait is 21 seconds. Give 0 to 20"),
    ],
)
def test_option_is_refused_when_out_of_range(options: dict[str, int], told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        S3EventQueue("url", **options)


@pytest.mark.parametrize("seconds", [-1, 43_201])
def test_extension_is_refused_when_out_of_range(events: S3EventQueue, seconds: int) -> None:
    with pytest.raises(InvalidValueError, match=rf"seconds is {seconds}. SQS takes 0 to 43,200 \(12 hours\)"):
        events.extend(seconds)


def test_visibility_is_extended_for_all_messages_when_there_are_many(queue: Queue, events: S3EventQueue) -> None:
    queue.send(*(notification(record(f"in/{number:02}")) for number in range(12)))
    events.receive(LANDING)
    sent: list[dict[str, Any]] = []
    queue.sqs.meta.events.register(
        "provide-client-params.sqs.ChangeMessageVisibilityBatch", lambda params, **_: sent.extend(params["Entries"])
    )

    events.extend(3600)

    assert [entry["VisibilityTimeout"] for entry in sent] == [3600] * 12
    assert len({entry["ReceiptHandle"] for entry in sent}) == 12
