"""Faults of a store: injected into one boto3 client of DynamoDB by botocore's event hooks, or into any table."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeVar

from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from scripts.helpers.errors import StoreUnavailableError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.items import Item
from scripts.helpers.protocol.requests import Between, Delete, ItemPage, Put, Walk, Write
from scripts.helpers.protocol.store import ItemTable
from tests.support.patience import PATIENCE

T = TypeVar("T")

ONE_ATTEMPT = Config(read_timeout=PATIENCE, retries={"mode": "standard", "total_max_attempts": 1})
"""For a client whose requests a test counts: a slow answer of a busy machine must not look like an injected fault."""


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
    """Every request that a client or a `WatchedTable` sends, in order; `clear` empties the list."""

    def __init__(self, client: Any = None) -> None:
        self.requests: list[Request] = []
        if client is not None:
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
    """Match the write that decides the outcome: that of the head."""
    return request.is_head_write


def log_write(request: Request) -> bool:
    """Match the writes after the head write: run item and log entry."""
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
    """Faults for requests that match, a given number of times, for every kind of store.

    Each method takes effect from now on, for the next `times` matching requests.
    """

    def __init__(self) -> None:
        self.hits = 0
        self.healed = False

    def heal(self) -> None:
        """Let all requests through from now on."""
        self.healed = True

    def by_name(self, name: str, match: Callable[[Request], bool], times: int = 1) -> None:
        """Inject one of drop, reply_lost, resend, throttle."""
        getattr(self, name)(match, times)

    def drop(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """The request never arrives."""
        raise NotImplementedError

    def reply_lost(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """The request is applied, but its answer is lost."""
        raise NotImplementedError

    def resend(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """The request is applied and sent once more; the caller sees the second answer."""
        raise NotImplementedError

    def throttle(self, match: Callable[[Request], bool], times: int = 1) -> None:
        """The store refuses the request because of load."""
        raise NotImplementedError

    def meanwhile(self, match: Callable[[Request], bool], do: Callable[[], object], times: int = 1) -> None:
        """Call `do` just before each matching request, as another process would act."""
        raise NotImplementedError

    def _takes(self, counter: list[int], match: Callable[[Request], bool], request: Request) -> bool:
        if self.healed or counter[0] <= 0 or not match(request):
            return False
        counter[0] -= 1
        self.hits += 1
        return True


class ClientFaults(Faults):
    """Faults of the network and of DynamoDB."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._events = client.meta.events

    def drop(self, match: Callable[[Request], bool], times: int = 1) -> None:
        def before_send(request: Any, event_name: str, **_: Any) -> None:
            if self._takes(counter, match, _parsed(request, event_name)):
                raise ConnectTimeoutError(endpoint_url=request.url)

        counter = [times]
        self._events.register("before-send.dynamodb", before_send)

    def reply_lost(self, match: Callable[[Request], bool], times: int = 1) -> None:
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
        """Send the request twice, as botocore does when it retries."""
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
        self.refuse("ProvisionedThroughputExceededException", match, times)

    def refuse(self, code: str, match: Callable[[Request], bool] = anything, times: int = 1, status: int = 400) -> None:
        """Let DynamoDB answer with an error."""

        def before_send(request: Any, event_name: str, **_: Any) -> AWSResponse | None:
            if not self._takes(counter, match, _parsed(request, event_name)):
                return None
            body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected"})
            return AWSResponse(request.url, status, {}, Raw(body.encode()))  # type: ignore[arg-type]

        counter = [times]
        self._events.register("before-send.dynamodb", before_send)

    def meanwhile(self, match: Callable[[Request], bool], do: Callable[[], object], times: int = 1) -> None:
        def before_send(request: Any, event_name: str, **_: Any) -> None:
            if self._takes(counter, match, _parsed(request, event_name)):
                do()

        counter = [times]
        self._events.register_first("before-send.dynamodb", before_send)


class WatchedTable:
    """A table whose requests are recorded and may fail, wherever its items are stored.

    Attributes
    ----------
    wire : Wire
        The requests so far, under DynamoDB's names.
    before, after : list of callable
        Called with each request before it is applied, and after.
    repeats : list of callable
        Called with each request that was applied; if one of them returns True, it is applied again.
    """

    client = None

    def __init__(self, table: ItemTable) -> None:
        self.table, self.name, self.place, self.wire = table, table.name, table.place, Wire()
        self.before: list[Callable[[Request], None]] = []
        self.after: list[Callable[[Request], None]] = []
        self.repeats: list[Callable[[Request], bool]] = []

    def get(self, key: Item) -> Item | None:
        return self._send(Request("GetItem", {"Key": key, "ConsistentRead": True}), lambda: self.table.get(key))

    def write(self, write: Write) -> bool:
        if isinstance(write, Put):
            request = Request("PutItem", {"Item": write.item})
        else:
            request = Request("DeleteItem" if isinstance(write, Delete) else "UpdateItem", {"Key": write.key})
        return self._send(request, lambda: self.table.write(write))

    def query(self, wanted: Between) -> ItemPage:
        return self._send(
            Request("Query", {"Limit": wanted.limit, "ConsistentRead": True}), lambda: self.table.query(wanted)
        )

    def walk(self, wanted: Walk) -> ItemPage:
        return self._send(Request("Scan", {}), lambda: self.table.walk(wanted))

    def exists(self, table_name: str) -> bool:
        return self._send(Request("DescribeTable", {}), lambda: self.table.exists(table_name))

    def create(self) -> None:
        self.table.create()

    def eventual_replicas(self, table_name: str | None = None) -> list[str]:
        return self.table.eventual_replicas(table_name)

    def _send(self, request: Request, apply: Callable[[], T]) -> T:
        self.wire.requests.append(request)
        for step in self.before:
            step(request)
        answer = apply()
        if any(step(request) for step in self.repeats):
            answer = apply()
        for step in self.after:
            step(request)
        return answer


class TableFaults(Faults):
    """Faults of a table: an error before a request is applied, or after it."""

    def __init__(self, table: WatchedTable) -> None:
        super().__init__()
        self._table = table

    def drop(self, match: Callable[[Request], bool], times: int = 1) -> None:
        self._table.before.append(self._failing(match, times, "database is locked"))

    def reply_lost(self, match: Callable[[Request], bool], times: int = 1) -> None:
        self._table.after.append(self._failing(match, times, "disk I/O error"))

    def resend(self, match: Callable[[Request], bool], times: int = 1) -> None:
        counter = [times]
        self._table.repeats.append(lambda request: self._takes(counter, match, request))

    def throttle(self, match: Callable[[Request], bool], times: int = 1) -> None:
        self.drop(match, times)

    def meanwhile(self, match: Callable[[Request], bool], do: Callable[[], object], times: int = 1) -> None:
        def before(request: Request) -> None:
            if self._takes(counter, match, request):
                do()

        counter = [times]
        self._table.before.insert(0, before)

    def _failing(self, match: Callable[[Request], bool], times: int, reason: str) -> Callable[[Request], None]:
        def fail(request: Request) -> None:
            if self._takes(counter, match, request):
                raise StoreUnavailableError(self._table.name, "read" if request.is_read else "write", reason)

        counter = [times]
        return fail


class Raw(BytesIO):
    """The body of a made-up answer."""

    def stream(self, **_: Any) -> Any:
        yield self.read()


def _parsed(request: Any, event_name: str) -> Request:
    return Request(event_name.rpartition(".")[2], json.loads(request.body))
