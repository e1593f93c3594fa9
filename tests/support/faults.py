"""Faults of the network and of DynamoDB, injected into one boto3 client by botocore's event hooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from scripts.helpers.protocol import items
from tests.support.patience import PATIENCE

ONE_ATTEMPT = Config(read_timeout=PATIENCE, retries={"mode": "standard", "total_max_attempts": 1})
"""Of a client whose requests a test counts: a slow answer of a busy machine is none of the faults it made."""


class Request:
    """One request as it went over the wire."""

    def __init__(self, operation: str, body: dict[str, Any]) -> None:
        self.operation, self.body = operation, body

    def __repr__(self) -> str:
        return f"<{self.operation} {self.range_key}>"

    @property
    def range_key(self) -> str | None:
        key = self.body.get("Item") or self.body.get("Key") or {}
        found: str | None = key.get(items.RANGE_KEY, {}).get("S")
        return found

    @property
    def is_read(self) -> bool:
        return self.operation in ("GetItem", "Query")

    @property
    def is_head_write(self) -> bool:
        return self.operation == "PutItem" and self.range_key == items.HEAD_KEY


class Wire:
    """Every request that a client sends, in order; `clear` starts anew."""

    def __init__(self, client: Any) -> None:
        self.requests: list[Request] = []
        client.meta.events.register("before-send.dynamodb", self._record)

    def _record(self, request: Any, event_name: str, **_: Any) -> None:
        self.requests.append(Request(event_name.rpartition(".")[2], json.loads(request.body)))

    def clear(self) -> None:
        self.requests.clear()

    @property
    def reads(self) -> list[Request]:
        return [request for request in self.requests if request.is_read]

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if not request.is_read and request.operation != "DescribeTable"]

    @property
    def head_writes(self) -> list[Request]:
        return [request for request in self.requests if request.is_head_write]


def head_write(request: Request) -> bool:
    """Match the one write that decides."""
    return request.is_head_write


def log_write(request: Request) -> bool:
    """Match the writes after it: run item and log entry."""
    return request.operation == "PutItem" and not request.is_head_write


def after(count: int, match: Callable[[Request], bool]) -> Callable[[Request], bool]:
    """Match as `match` does, but let the first `count` requests through."""
    seen: list[Request] = []

    def later(request: Request) -> bool:
        if not match(request):
            return False
        seen.append(request)
        return len(seen) > count

    return later


def read(request: Request) -> bool:
    """Match every read."""
    return request.is_read


def anything(request: Request) -> bool:
    """Match every request."""
    return True


class Faults:
    """What goes wrong, and how many times, with requests that match.

    Each method takes effect from now on, for the next `times` matching requests.
    """

    def __init__(self, client: Any) -> None:
        self._events = client.meta.events
        self.hits = 0
        self.healed = False

    def heal(self) -> None:
        """Let everything through from now on."""
        self.healed = True

    def by_name(self, name: str, match: Callable[[Request], bool], times: int = 1) -> None:
        """Inject one of drop, reply_lost, resend, throttle."""
        getattr(self, name)(match, times)

    def drop(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """The request never arrives."""

        def before_send(request: Any, event_name: str, **_: Any) -> None:
            if self._takes(counter, match, _parsed(request, event_name)):
                raise ConnectTimeoutError(endpoint_url=request.url)

        counter = [times]
        self._events.register("before-send.dynamodb", before_send)

    def reply_lost(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """The request is applied, its answer is lost."""
        last: list[Request] = []

        def before_send(request: Any, event_name: str, **_: Any) -> None:
            last[:] = [_parsed(request, event_name)]

        def after_call(**_: Any) -> None:
            if self._takes(counter, match, last[0]):
                raise ReadTimeoutError(endpoint_url="dynamodb")

        counter = [times]
        self._events.register("before-send.dynamodb", before_send)
        self._events.register("after-call.dynamodb", after_call)

    def resend(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """The request is applied, and botocore sends it once more: the second answer is the one that is seen."""
        last: list[Request] = []

        def before_send(request: Any, event_name: str, **_: Any) -> None:
            last[:] = [_parsed(request, event_name)]

        def needs_retry(attempts: int, response: Any, **_: Any) -> float | None:
            applied = response is not None and response[0].status_code == 200
            if attempts == 1 and applied and self._takes(counter, match, last[0]):
                return 0.0
            return None

        counter = [times]
        self._events.register("before-send.dynamodb", before_send)
        self._events.register_first("needs-retry.dynamodb", needs_retry)

    def throttle(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """DynamoDB refuses the request for load."""
        self.refuse("ProvisionedThroughputExceededException", match, times)

    def refuse(self, code: str, match: Callable[[Request], bool] = anything, times: int = 1, status: int = 400) -> None:
        """DynamoDB answers with an error."""

        def before_send(request: Any, event_name: str, **_: Any) -> AWSResponse | None:
            if not self._takes(counter, match, _parsed(request, event_name)):
                return None
            body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected"})
            return AWSResponse(request.url, status, {}, Raw(body.encode()))  # type: ignore[arg-type]

        counter = [times]
        self._events.register("before-send.dynamodb", before_send)

    def _takes(self, counter: list[int], match: Callable[[Request], bool], request: Request) -> bool:
        if self.healed or counter[0] <= 0 or not match(request):
            return False
        counter[0] -= 1
        self.hits += 1
        return True


class Raw(BytesIO):
    """The body of an answer that was made up."""

    def stream(self, **_: Any) -> Any:
        yield self.read()


def _parsed(request: Any, event_name: str) -> Request:
    return Request(event_name.rpartition(".")[2], json.loads(request.body))
