"""S3 event notifications through an SQS queue, as a source of new objects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from scripts.helpers.display.redaction import aws_client
from scripts.helpers.errors import AccessRefusedError, InvalidValueError, SourceError
from scripts.helpers.listing.event_messages import parse_message
from scripts.helpers.listing.objects import byte_order
from scripts.helpers.listing.s3 import code_of, login_or_load

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

logger = logging.getLogger(__name__)

BATCH = 10
"""The most messages that SQS accepts in one request."""
MAX_WAIT, MAX_VISIBILITY = 20, 12 * 60 * 60
"""Limits of SQS, in seconds."""
_REFUSED = {"AccessDenied", "AccessDeniedException"}
MAX_MESSAGES = 10_000
"""The most messages of one `receive`, because their handles and keys are kept in memory."""
MAX_KEYS = 1_000_000
"""The most keys of one `receive`. S3 names one in each message, other senders may name thousands; all are in memory."""


class Received(NamedTuple):
    """The keys that the messages of one call of `S3EventQueue.receive` name."""

    keys: tuple[str, ...]
    """Keys of objects that were created, changed or deleted: relative to the location, sorted, without duplicates."""
    has_more: bool
    """Whether the limit was reached before the queue was empty."""


@dataclass
class _Message:
    handle: str
    keys: set[str]
    received: int
    """How often SQS has delivered it."""


class S3EventQueue:
    """Notifications of one bucket in an SQS queue: directly from S3, or through SNS or EventBridge.

    A message only names an object; its state is looked up in S3. So messages may come late, repeatedly or
    in any order, and may name an object that no longer exists.
    Only `acknowledge` deletes a message, after the objects that it named were committed.
    S3 usually delivers each notification at least once but can lose one in rare cases, and the queue deletes
    a message after its retention period. So list the whole source from time to time, too.

    Set the queue's visibility timeout to more than a batch takes, or call `extend` during the batch. Messages that
    are not notifications of S3, or are for another bucket or prefix, stay in the queue, with a warning in
    the log: give each source a queue of its own, with a dead-letter queue.

    Parameters
    ----------
    queue_url
        The URL of the queue.
    sqs_client
        A boto3 SQS client; by default one from boto3's default session.
    wait
        Seconds to wait for a message before the queue counts as empty, 0 to 20. With 0, SQS asks only
        some of its servers, and may miss messages until the next call.

    Examples
    --------
    >>> S3EventQueue("https://sqs.eu-west-2.amazonaws.com/111122223333/landing")
    <S3EventQueue 'https://sqs.eu-west-2.amazonaws.com/111122223333/landing': 0 messages received>
    """

    def __init__(self, queue_url: str, *, sqs_client: Any = None, wait: int = 1) -> None:
        if not 0 <= wait <= MAX_WAIT:
            raise InvalidValueError(f"wait is {wait} seconds. Give 0 to {MAX_WAIT}.")
        self.queue_url = queue_url
        self._given_client = sqs_client
        self._wait = wait
        self._messages: dict[str, _Message] = {}

    def __repr__(self) -> str:
        return f"<S3EventQueue {self.queue_url!r}: {len(self._messages):,} messages received>"

    def receive(self, location: Location, at_most: int | None = None) -> Received:
        """Receive messages until the queue has no new one, or until there are `at_most`, 10,000 by default.

        Messages of an earlier call that were not acknowledged are dropped here, because SQS delivers them again.

        Raises
        ------
        SourceError
            The location is a local directory, or SQS refuses the queue or cannot be reached.
        """
        if location.is_local:
            raise SourceError(str(location), "a local directory has no events. Call new_files without them.")
        self._messages = {}
        most = min(at_most or MAX_MESSAGES, MAX_MESSAGES)
        seen: set[str] = set()
        keys: set[str] = set()
        has_more = False
        # Stop at an answer without unseen messages: if the queue's visibility timeout is short, SQS delivers the same
        # messages again and again, and the loop would never end.
        while not has_more:
            fresh = 0
            for message in self._poll(min(BATCH, most - len(seen))):
                fresh += message["MessageId"] not in seen
                seen.add(message["MessageId"])
                keys |= self._take(message, location)
            if not fresh:
                break
            has_more = len(seen) >= most or len(keys) >= MAX_KEYS
        return Received(tuple(sorted(keys, key=byte_order)), has_more)

    def acknowledge(self, *, but: Collection[str] = ()) -> int:
        """Delete the messages of the last `receive`. Call it after the commit, and never before.

        If a message cannot be deleted, a warning is logged and no error is raised. SQS delivers the message
        again, and its objects are skipped because the commit recorded them.

        Parameters
        ----------
        but
            Keys, relative to the location, that were left to a later batch. Their messages stay in the queue. SQS
            delivers a message again at once, and then after growing delays of up to 12 hours. So the message does not
            soon reach the number of deliveries after which SQS moves it to the dead-letter queue.

        Returns
        -------
        int
            The number of deleted messages.
        """
        # A message may name several keys. It stays in the queue while one of them is left to a later batch. When SQS
        # delivers the message again, its other keys are skipped, because the commit recorded them.
        left = set(but)
        done = [name for name, message in self._messages.items() if left.isdisjoint(message.keys)]
        failed = self._send_batches(done, "delete_message_batch", lambda _: {})
        left_messages = self._messages.keys() - done
        self._show_after(left_messages, lambda message: min(60 * (2**message.received - 2), MAX_VISIBILITY))
        for name in done:
            if name not in failed:
                del self._messages[name]
        return len(done) - len(failed)

    def extend(self, seconds: int) -> None:
        """Hide the messages of the last `receive` in the queue for `seconds` from now.

        If that fails for a message, a warning is logged: SQS delivers the message again earlier, which does no harm.
        """
        if not 0 <= seconds <= MAX_VISIBILITY:
            raise InvalidValueError(f"seconds is {seconds}. SQS takes 0 to {MAX_VISIBILITY:,} (12 hours).")
        self._show_after(self._messages, lambda _: seconds)

    def _show_after(self, names: Iterable[str], seconds: Callable[[_Message], int]) -> None:
        self._send_batches(
            list(names), "change_message_visibility_batch", lambda message: {"VisibilityTimeout": seconds(message)}
        )

    @cached_property
    def _client(self) -> Any:
        return self._given_client or aws_client("sqs")

    def _poll(self, count: int) -> list[dict[str, Any]]:
        with self._translated():
            answer = self._client.receive_message(
                QueueUrl=self.queue_url, MaxNumberOfMessages=count, WaitTimeSeconds=self._wait,
                AttributeNames=["ApproximateReceiveCount"],
            )  # fmt: skip
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def _take(self, message: dict[str, Any], location: Location) -> set[str]:
        """Return the keys that a message names; leave it in the queue if it is unreadable or names other sources."""
        name = message["MessageId"]
        try:
            found = parse_message(message["Body"])
        except ValueError as error:
            logger.warning("event=message_unreadable message=%s reason=%s: it stays in the queue", name, error)
            return set()
        ours = {
            one.key[len(location.prefix) :]
            for one in found
            if one.bucket == location.bucket and one.key.startswith(location.prefix)
        }
        if all(one.bucket == location.bucket and one.key.startswith(location.prefix) for one in found):
            # Keep the newest handle of a repeated message, because only the newest one is sure to delete it.
            received = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
            self._messages[name] = _Message(message["ReceiptHandle"], ours, received)
        else:  # Do not delete a message that also names other sources: their consumer needs it.
            logger.warning("event=message_not_of_source message=%s source=%s: it stays in the queue", name, location)
        return ours

    def _send_batches(self, names: Sequence[str], call: str, fields: Callable[[_Message], dict[str, Any]]) -> set[str]:
        """Send a request to SQS for messages, ten at a time, and return the ids of messages for which it failed."""
        failed: set[str] = set()
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            entries = [
                {"Id": str(place), "ReceiptHandle": self._messages[name].handle, **fields(self._messages[name])}
                for place, name in enumerate(batch)
            ]
            try:
                answer = getattr(self._client, call)(QueueUrl=self.queue_url, Entries=entries)
                refused = {int(entry["Id"]): entry["Code"] for entry in answer.get("Failed", [])}
            except (ClientError, BotoCoreError) as error:
                failed.update(names[start:])  # The whole call failed, so the next calls would fail too: skip them.
                logger.warning(
                    "event=queue_failed queue=%s messages=%d reason=%s: SQS delivers the messages again",
                    self.queue_url, len(names) - start, code_of(error),
                )  # fmt: skip
                break
            for place, code in refused.items():
                failed.add(batch[place])
                logger.warning("event=message_refused message=%s reason=%s: SQS delivers it again", batch[place], code)
        return failed

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            code = code_of(error)
            if code in _REFUSED:
                raise AccessRefusedError("sqs:ReceiveMessage", self.queue_url) from error
            raise login_or_load(self.queue_url, error) or SourceError(
                self.queue_url,
                f"SQS refused to receive from it ({code}). Check the URL, its region and sqs:ReceiveMessage.",
            ) from error
