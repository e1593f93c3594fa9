"""One state and one plan of each kind, made by the package's own writers, with every field that they can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from scripts.helpers.files.set_aside import RETRY, SetAside
from scripts.helpers.files.states import segment_of
from scripts.helpers.protocol.lookups import PLANS, STATES
from scripts.helpers.relational.ids import IdBlock
from scripts.helpers.rows.coverage import BackfillRecord
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.plan import edge_of
from scripts.helpers.rows.sources import SeenRow
from scripts.helpers.rows.states import Undecided, ranges_read
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.schemas.kept import with_schema
from scripts.helpers.tables.spans import TableSpan
from tests.support.files_states import plan_of, state_of, with_list
from tests.support.rows_states import state_of as rows_state
from tests.support.rows_states import with_coverage

Path = tuple[str | int, ...]
NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
SOURCE = "s3://landing/parking/"
HASH = "0" * 64


def _with_schemas(state: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"type": "array", "elementType": "long", "containsNull": True}
    made = with_schema(state, "spark", {"id": "long", "bays": kind})
    assert made is not None
    return made


def rows_of(columns: tuple[CursorColumn, ...], low: tuple[Any, ...], high: tuple[Any, ...]) -> dict[str, Any]:
    """Return a state of rows that has every field."""
    edge = edge_of([SeenRow(low, {"a": "x"})] * 2, 2)
    window = RowWindow(
        columns, low, high, descending=False, start=low, source={"server": "db:5432", "oid": 7}, last=low,
        undecided=Undecided(high, frozenset({"5/7", "5/8"}), NOW), complete=high, edge=edge,
    )  # fmt: skip
    read = [*ranges_read(columns, None, low, False), *ranges_read(columns, low, high, False)]
    return _with_schemas(with_coverage(window.state_after, None, read, "o1"))


def _segments() -> list[dict[str, Any]]:
    file = {"file": f"{'0' * 32}.parquet", "count": 1, "length": 9, "sha256": HASH, "first": "a", "last": "b"}
    return [{"count": 1, "sha256": HASH, "data": b"x"}, segment_of([file]), {"count": 9, "packed": b"x"}]


def _files() -> dict[str, Any]:
    state = state_of(SOURCE, NOW, _segments(), {"uuid": "u", "until": NOW})
    aside = SetAside("a", "e", None, 9, NOW, "no gzip", 3, "jr_1", RETRY)
    listed = with_list(state, {"a": aside})
    return _with_schemas({**listed, "set_aside": {**listed["set_aside"], "data": listed["set_aside"]["data"].data}})


def kinds() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return, by name, each kind of state or plan and the place where it is stored."""
    at, number = CursorColumn("at", "timestamp"), CursorColumn("id", "bigint")
    price, day = CursorColumn("price", "decimal(10,2)"), CursorColumn("day", "date")
    several = (at, number)
    window = RowWindow(
        (number,), (5,), (9,), 3, "take", start=(1,), descending=True, source={"table": "repairs"}, has_more=True
    )
    times = RowWindow((at,), (NOW,), (NOW + timedelta(days=1),), timedelta(hours=1))
    prices = RowWindow((price,), (Decimal("1.25"),), (Decimal("9.5"),), Decimal("0.25"))
    span = TableSpan("delta", 3, 5, True, "feed", 7, NOW, 1, {"uuid": "u"}, has_more=True)
    record = BackfillRecord().begin("again", ((5,), (7,))).begin("b", ((7,), (9,))).finish("b", ((7,), (9,)))
    plan = plan_of(SOURCE, _segments()[1], count=3, bytes=9, has_more=True, gone=1)
    rule = {"columns": ["day"], "whole": True, "latest": False}
    partition = {
        "kind": "partition", "source": SOURCE, "format": 1, "columns": ["year", "day", "bay"],
        "types": ["int", "date", "string"], "value": [2026, date(2026, 3, 16), None], "files": 2, "sha256": HASH,
    }  # fmt: skip
    ids = IdBlock.of_batch("ids", 3, 0, {})
    following = ids.state_after(["root", "root_bays"])
    assert following is not None
    return {
        "times": (STATES, rows_of((at,), (NOW,), (NOW + timedelta(days=1),))),
        "numbers": (STATES, rows_of((number,), (5,), (9,))),
        "days": (STATES, rows_of((day,), (date(2026, 3, 16),), (date(2026, 3, 18),))),
        "several": (STATES, rows_of(several, (NOW, 5), (NOW + timedelta(days=1), None))),
        "window": (PLANS, {**window.to_plan(), **RowOptions(max_rows=5).to_plan()}),
        "window-of-times": (PLANS, times.to_plan()),
        "window-of-prices": (PLANS, prices.to_plan()),
        "files": (STATES, _files()),
        "files-taken": (PLANS, {**plan, "rest": _segments()[0], "set_aside": 2, "partitions": rule}),
        "partition": (STATES, partition),
        "table": (STATES, _with_schemas(span.state_after)),
        "table-span": (PLANS, span.to_plan()),
        "ids": (STATES, following),
        "block": (PLANS, ids.plan),
        "backfills": (STATES, record.to_store(rows_state(rows_of((number,), (5,), (9,))))),
        "nothing": (PLANS, {"kind": "nothing"}),
    }


def paths_of(value: Any, before: Path = ()) -> Iterator[Path]:
    """Yield the path of each field of a state or plan, including fields within maps and lists."""
    steps: Any = ()
    if isinstance(value, Mapping):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    for step, inner in steps:
        yield (*before, step)
        yield from paths_of(inner, (*before, step))


def altered(value: Any, path: Path, instead: Any) -> Any:
    """Return a state or plan with the value at a path replaced, or removed if the new value is `GONE`."""
    made = deepcopy(value)
    holder = made
    for step in path[:-1]:
        holder = holder[step]
    if instead is GONE and isinstance(holder, dict):
        del holder[path[-1]]
    else:
        holder[path[-1]] = None if instead is GONE else instead
    return made


GONE: Any = object
"""A value that removes a field."""
