"""Which objects S3's notifications name, whether they come straight, through SNS or through EventBridge. Pure.

Nothing else of a message is believed. Messages come late, twice and in any order, and each object that one names is
looked at: S3 says then what it is now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from scripts.helpers.errors import DAMAGE

MAX_BODY = 1024 * 1024
"""Characters of a message: SQS takes no larger one."""
MAX_TEXT = 1_024
"""Bytes of a key, as of S3. Its other texts are shorter."""


class NamedObject(NamedTuple):
    """An object to which something happened. `key` is whole and raw."""

    bucket: str
    key: str


def parse_message(body: str) -> list[NamedObject]:
    """Read the body of a message. The list is empty for S3's test event.

    Raises
    ------
    ValueError
        It is no notification of S3, or holds what S3 never says: a queue takes messages from whoever may send there,
        so nothing else may come out of here.
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
        # SNS wraps once. Unwrapped again and again, a message could nest as deep as its sender likes.
        yield from _named(json.loads(message["Message"]), unwrap=False)
    elif message.get("Event") == "s3:TestEvent":
        return
    elif message.get("source") == "aws.s3":
        found = message["detail"]
        yield NamedObject(_text("bucket", found["bucket"]["name"]), _text("key", found["object"]["key"]))
    else:
        for record in message["Records"]:
            found = record["s3"]
            # In a notification the key is URL-encoded, with a plus for a space; EventBridge has it raw.
            key = unquote_plus(found["object"]["key"], errors="strict")
            yield NamedObject(_text("bucket", found["bucket"]["name"]), _text("key", key))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"its {name} is not a text, or is empty")
    # UnicodeEncodeError, a ValueError, for half a surrogate pair, which JSON may hold and no Arrow array.
    if len(value.encode("utf-8")) > MAX_TEXT:
        raise ValueError(f"its {name} has {len(value):,} characters, and S3 allows {MAX_TEXT:,} bytes")
    return value
