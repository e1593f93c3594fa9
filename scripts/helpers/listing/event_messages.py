"""Read which objects S3's notifications name, whether sent directly, through SNS or through EventBridge. Pure.

Only the names are used. Messages arrive late, twice and in any order, so S3 is asked about the current state of each
object that a message names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from scripts.helpers.errors import DAMAGE

MAX_BODY = 1024 * 1024
"""Most characters of a message that SQS accepts."""
MAX_TEXT = 1_024
"""Most bytes of a key in S3; bucket names are shorter."""


class NamedObject(NamedTuple):
    """An object that was created, changed or deleted. `key` is the full key, not URL-encoded."""

    bucket: str
    key: str


def parse_message(body: str) -> list[NamedObject]:
    """Return the objects that the body of a message names. The list is empty for S3's test event.

    Raises
    ------
    ValueError
        The body is not a notification of S3, or has values that S3 never sends. Anyone with the right to send can put
        any text into a queue, so such messages are refused.
    """
    if len(body) > MAX_BODY:
        raise ValueError(f"it has {len(body):,} characters, and the limit is {MAX_BODY:,}")
    try:
        return list(_named(json.loads(body), unwrap=True))
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]!r}") from error
    except ValueError:
        raise
    except DAMAGE as error:
        raise ValueError(f"it is not a notification of S3 ({type(error).__name__}: {error})") from error


def _named(message: Mapping[str, Any], unwrap: bool) -> Iterator[NamedObject]:
    if unwrap and message.get("Type") == "Notification":
        # Unwrap only once: SNS wraps a message once, but another sender could nest messages to any depth.
        yield from _named(json.loads(message["Message"]), unwrap=False)
    elif message.get("Event") == "s3:TestEvent":
        return
    elif message.get("source") == "aws.s3":
        found = message["detail"]
        yield NamedObject(_text("bucket", found["bucket"]["name"]), _text("key", found["object"]["key"]))
    else:
        for record in message["Records"]:
            found = record["s3"]
            # Notifications URL-encode the key, with a plus for a space; EventBridge does not.
            key = unquote_plus(found["object"]["key"], errors="strict")
            yield NamedObject(_text("bucket", found["bucket"]["name"]), _text("key", key))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"its {name} is not a text, or is empty")
    # `encode` raises UnicodeEncodeError, a ValueError, for half a surrogate pair, which JSON allows and Arrow does not.
    if len(value.encode("utf-8")) > MAX_TEXT:
        raise ValueError(f"its {name} has {len(value):,} characters, and S3 allows {MAX_TEXT:,} bytes")
    return value
