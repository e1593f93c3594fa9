"""What S3's notifications say, whether they come straight, through SNS or through EventBridge. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from dateutil.parser import isoparse

from scripts.helpers.errors import DAMAGE

MAX_BODY = 1024 * 1024
"""Characters of a message: SQS takes no larger one."""
MAX_TEXT = 1_024
"""Bytes of a key, as of S3. Its other texts are shorter."""
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=timezone.utc), datetime(2200, 1, 1, tzinfo=timezone.utc)
CREATED, REMOVED, OTHER = "created", "removed", "other"


class ObjectEvent(NamedTuple):
    """One thing that happened to one object. `key` is whole and raw."""

    kind: str
    bucket: str
    key: str
    time: datetime
    sequencer: str
    """Hexadecimal, in lower case; empty if the message has none."""
    version_id: str | None
    etag: str
    size: int
    hides: bool
    """A removal after which the key is gone, other than that of one version by its id."""


def parse_message(body: str) -> list[ObjectEvent]:
    """Read the body of a message. The list is empty for S3's test event.

    Raises
    ------
    ValueError
        It is no notification of S3, lacks something that one has, or holds what S3 never says: a queue takes messages
        from whoever may send there, so nothing else may come out of here.
    """
    if len(body) > MAX_BODY:
        raise ValueError(f"it has {len(body):,} characters, and the limit is {MAX_BODY:,}")
    try:
        return list(_events(json.loads(body), unwrap=True))
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]!r}") from error
    except ValueError:
        raise
    except DAMAGE as error:
        raise ValueError(f"it is no notification of S3 ({type(error).__name__}: {error})") from error


def _events(message: Mapping[str, Any], unwrap: bool) -> Iterator[ObjectEvent]:
    if unwrap and message.get("Type") == "Notification":
        # SNS wraps once. Unwrapped again and again, a message could nest as deep as its sender likes.
        yield from _events(json.loads(message["Message"]), unwrap=False)
    elif message.get("Event") == "s3:TestEvent":
        return
    elif message.get("source") == "aws.s3":
        yield _bridged(message)
    else:
        for record in message["Records"]:
            yield _notified(record)


def _notified(record: Mapping[str, Any]) -> ObjectEvent:
    """Read a record of a notification, whose key is URL-encoded with a plus for a space."""
    name = str(record["eventName"]).removeprefix("s3:")
    group, _, action = name.partition(":")
    found = record["s3"]["object"]
    kind = {"ObjectCreated": CREATED, "ObjectRemoved": REMOVED, "LifecycleExpiration": REMOVED}.get(group, OTHER)
    version_id = _text("version id", found.get("versionId") or "") or None
    return ObjectEvent(
        kind=kind,
        bucket=_text("bucket", record["s3"]["bucket"]["name"]),
        key=_valid(unquote_plus(found["key"], errors="strict")),
        time=_time(record["eventTime"]),
        sequencer=_sequencer(found),
        version_id=version_id,
        etag=_etag(found["eTag"]) if kind == CREATED else "",
        size=_size(found["size"]) if kind == CREATED else 0,
        hides=kind == REMOVED and (action == "DeleteMarkerCreated" or version_id is None),
    )


def _bridged(event: Mapping[str, Any]) -> ObjectEvent:
    """Read an event of EventBridge, whose key is raw."""
    detail = event["detail"]
    found = detail["object"]
    kind = {"Object Created": CREATED, "Object Deleted": REMOVED}.get(event["detail-type"], OTHER)
    version_id = _text("version id", found.get("version-id") or "") or None
    return ObjectEvent(
        kind=kind,
        bucket=_text("bucket", detail["bucket"]["name"]),
        key=_valid(found["key"]),
        time=_time(event["time"]),
        sequencer=_sequencer(found),
        version_id=version_id,
        etag=_etag(found["etag"]) if kind == CREATED else "",
        size=_size(found["size"]) if kind == CREATED else 0,
        hides=kind == REMOVED and (detail.get("deletion-type") == "Delete Marker Created" or version_id is None),
    )


def newest(events: Iterable[ObjectEvent]) -> ObjectEvent | None:
    """Return what became of one key: its newest creation, or the removal that hides it, or None.

    The order in which the events come, and how often, makes no difference. S3's sequencers order them
    as long as they are equally long. For others AWS has documented padding on the left at times and
    on the right at times; those, and events without one, are ordered by their time.

    The removal of one version by its id undoes the creation of that version only: what the key shows
    after it, the events do not tell.
    """
    known = {event for event in events if event.kind != OTHER}
    lengths = {len(event.sequencer) for event in known}
    by_sequencer = len(lengths) == 1

    def order(event: ObjectEvent) -> tuple[Any, ...]:
        place = (event.sequencer, event.time) if by_sequencer else (event.time, event.sequencer)
        # The rest only decides between events that nothing else orders, so that each run decides alike. A creation
        # wins: an object that is taken without need is listed as gone later, one that is missed is missed for good.
        return (*place, event.kind == CREATED, event.etag, event.size, event.version_id or "", event.hides)

    removed_versions = {event.version_id for event in known if event.kind == REMOVED and not event.hides}
    standing: list[ObjectEvent] = []
    for event in known:
        was_undone = (event.version_id or "") in removed_versions
        if event.hides or (event.kind == CREATED and not was_undone):
            standing.append(event)
    return max(standing, key=order, default=None)


def _valid(key: str) -> str:
    if not _text("key", key):
        raise ValueError("its key is empty")
    return key


def _text(name: str, value: Any) -> str:
    text = str(value)
    # UnicodeEncodeError, a ValueError, for half a surrogate pair, which JSON may hold and no Arrow array.
    if len(text.encode("utf-8")) > MAX_TEXT:
        raise ValueError(f"its {name} has {len(text):,} characters, and S3 allows {MAX_TEXT:,} bytes")
    return text


def _sequencer(found: Mapping[str, Any]) -> str:
    # Sequencers are compared as texts, and there "B" comes before "a".
    return _text("sequencer", found.get("sequencer") or "").lower()


def _etag(value: str) -> str:
    etag = _text("ETag", value.strip('"'))
    if not etag:
        raise ValueError("its ETag is empty")
    return etag


def _size(value: int) -> int:
    # JSON's true is an int to Python. The ledger keeps sizes in 64 bits, with a sign.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError("its size is no number of bytes")
    return value


def _time(text: str) -> datetime:
    time = isoparse(text)
    if time.tzinfo is None:
        raise ValueError("its time has no zone")
    # Of a time in the last hours of the year 9999 only the zone need be changed, and it is none any more.
    if not EARLIEST <= time <= LATEST:
        raise ValueError(f"its time is of the year {time.year}")
    return time
