"""Altered states and plans: any field of any kind, alone or in pairs, leads to a typed error.

Whatever replaces a field, a run or command raises a WatermarkError, or continues as if that value had been stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.batch.sweep import LedgerSweep
from scripts.helpers.errors import CorruptItemError, InvalidValueError, LedgerError, WatermarkError
from scripts.helpers.file_bookmark import FileBookmark
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.protocol.lookups import NEXT, PLANS, STATES
from scripts.helpers.protocol.packed_json import pack_json
from scripts.helpers.protocol.values import as_stored
from scripts.helpers.states import checked
from scripts.helpers.tables.delta import DeltaTable
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from tests.batch.stored_kinds import GONE, NOW, altered, kinds, paths_of
from tests.protocol.any_values import nested_values
from tests.support.dynamodb import FakeDynamoDB
from tests.support.files_states import set_aside_of
from tests.support.long import cases
from tests.support.steps import commit

KINDS = kinds()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)
ENDS = [
    datetime.min.replace(tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc), date.min, date.max, NOW,
    2**63, 2**63 - 1, -(2**63) - 1, Decimal("1E+8"), Decimal("0.01"), "\U0010ffff", f"{2**128 - 1:x}",
]  # fmt: skip
"""The smallest and largest values of columns: they are read, and must not cause an overflow."""
VALUES = (
    nested_values | st.just(GONE) | JSON.map(pack_json) | st.sampled_from(ENDS)
    | st.sampled_from(["x" * 5_000, 10**120, -1, [[[[]]]], {"kind": "rows"}, b"x" * 99, "", 0, [], {}, False])
)  # fmt: skip
"""Any value that a table can hold, packed values of any form, and a removed field."""
QUICK = settings(
    max_examples=cases(20, long=1_000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}
DAY = timedelta(days=1)


# --- the readers ------------------------------------------------------------------------------------


def is_read(place: str, stored: Any) -> bool:
    """Return whether a value is read. A reader returns it unchanged, or refuses it and names the field."""
    told = ""
    try:
        assert checked(place, "x", stored) is stored
    except ImplausibleError as error:
        told = str(error)
    assert not told or (told.startswith(f"{place}.x.") and len(told) < 1_000)
    return not told


@pytest.mark.parametrize("name", KINDS)
def test_state_or_plan_is_read_when_it_is_what_was_written(name: str) -> None:
    place, stored = KINDS[name]

    assert is_read(place, as_stored({"x": stored})["x"])


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=cases(15, long=2_500))
@given(data=st.data())
def test_state_or_plan_is_read_or_refused_when_any_field_of_it_is_altered(name: str, data: st.DataObject) -> None:
    place, stored = KINDS[name]
    paths = list(paths_of(stored))
    values = data.draw(st.lists(VALUES, min_size=4, max_size=4))

    for path in paths:
        for value in values:
            is_read(place, altered(stored, path, value))
    for one, other in data.draw(st.lists(st.tuples(st.sampled_from(paths), st.sampled_from(paths)), max_size=8)):
        # Replacing the outer field would remove the inner one.
        if one != other[: len(one)] and other != one[: len(other)]:
            is_read(place, altered(altered(stored, one, values[0]), other, values[1]))


@settings(max_examples=cases(100, long=10_000))
@given(JSON.map(pack_json) | st.binary(max_size=40), st.integers(0, 3))
def test_packed_list_is_read_or_refused_when_it_holds_anything(data: bytes, count: int) -> None:
    segment = {"count": count, "sha256": hashlib.sha256(data).hexdigest(), "data": data}
    ledger = FileLedger("s3://landing/", [])

    with suppress(LedgerError):
        set_aside_of({"source": "s3://landing/", "set_aside": {"count": count, "data": data}})
    with suppress(LedgerError):
        ledger.read(segment).to_pylist()
    with suppress(LedgerError):
        ledger.files({"count": count, "packed": data})


ROW = {"key": ["a"], "etag": "e", "version_id": None, "size": 1, "modified": 1, "status": "taken", "version": 1,
       "run_id": "r"}  # fmt: skip
ENTRY = {"key": "a", "etag": "e", "version_id": None, "size": 1, "modified": 1, "reason": "no gzip", "version": 1,
         "run_id": "r", "decision": "waiting"}  # fmt: skip


@pytest.mark.parametrize("name", ROW)
@settings(max_examples=cases(20, long=1_000))
@given(value=JSON)
def test_row_of_a_segment_is_read_or_refused_when_a_field_of_it_is_altered(name: str, value: Any) -> None:
    data = pack_json({**ROW, name: value})
    segment = {"count": 1, "sha256": hashlib.sha256(data).hexdigest(), "data": data}

    with suppress(LedgerError):
        FileLedger("s3://landing/", [segment]).known().latest("a")


@pytest.mark.parametrize("name", ENTRY)
@settings(max_examples=cases(20, long=1_000))
@given(value=JSON)
def test_file_that_was_set_aside_is_read_or_refused_when_a_field_of_it_is_altered(name: str, value: Any) -> None:
    state = {"set_aside": {"count": 1, "data": pack_json([{**ENTRY, name: value}])}}

    with suppress(LedgerError):
        (found,) = set_aside_of(state).values()
        assert (type(found.key), type(found.size), type(found.modified)) == (str, int, datetime)


# --- runs -------------------------------------------------------------------------------------------


class World:
    """A folder, a Delta table and rows, and runs of jobs that read them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.delta = f"{folder}/landing", f"{folder}/delta"
        for day in ("2026-03-15", "2026-03-16"):
            Path(self.folder, f"day={day}").mkdir(parents=True)
            Path(self.folder, f"day={day}", "a.csv").write_text("id\n1\n")
        for number in (1, 2):
            deltalake.write_deltalake(self.delta, pa.table({"id": [number]}), mode="append")
        self.ids = pd.DataFrame({"id": [1, 5, 7], "at": pd.to_datetime([NOW - DAY, NOW, NOW], utc=True)})

    def read(self, name: str, job: IncrementalJob) -> None:
        """Read the source of that name as a run does."""
        if name == "table":
            job.rows_since(DeltaTable(self.delta, returns="arrow"), transformation_ctx="x")
        elif name == "files":
            job.new_files(self.folder, transformation_ctx="x", on_unreadable="set_aside").read_pandas("csv")
        elif name == "partitions":
            job.new_partitions(self.folder, "day", transformation_ctx="x", types={"day": "date"}, whole=True)
        elif name == "latest":
            job.latest_partition(self.folder, "day", transformation_ctx="x", types={"day": "date"})
        else:
            columns = {"numbers": "id", "times": "at", "several": ["at", "id"]}[name]
            job.rows_since(self.ids, columns, transformation_ctx="x", on_schema_change="add")


SOURCES = ("numbers", "times", "several", "files", "partitions", "latest", "table")


class Scanned(FakeDynamoDB):
    """The fake DynamoDB with Scan; segment 0 holds all items."""

    def scan(self, **given: Any) -> dict[str, Any]:
        found = [] if given.get("Segment") else list(self.items.values())
        return {"Items": found, "Count": len(found), "ScannedCount": len(found)}


def table() -> Watermarks:
    return Watermarks("table", Scanned(), clock=lambda: NOW + DAY)  # type: ignore[arg-type]


def left_open(watermarks: Watermarks, plan: Any, following: Any) -> None:
    """Freeze a plan and release the job, as a failed run does."""
    run = watermarks.begin("job", "jr_3")
    run.freeze(plan, following)
    run.abort()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module", params=SOURCES)
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def written(world: World, source: str) -> tuple[Any, Any]:
    """Return the state and the plan of a run that read a source."""
    watermarks = table()
    with IncrementalJob(watermarks, "job", "jr_1", clock=watermarks.clock) as job:
        world.read(source, job)
        job.freeze()
        assert job.run.plan is not None
        plan = job.run.plan.contexts["x"]
    return watermarks.latest("job").watermarks["x"], plan


def taken(world: World, source: str, watermarks: Watermarks) -> bool:
    """Run the job; return whether it was accepted."""
    try:
        with IncrementalJob(watermarks, "job", "jr_9", clock=watermarks.clock) as job:
            world.read(source, job)
    except WatermarkError:
        return False
    return True


def drawn(data: st.DataObject, value: Any) -> Any:
    """Return a state or plan with one or two of its fields altered."""
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(paths_of(value))))
        value = altered(value, path, data.draw(VALUES))
        if not list(paths_of(value)):
            break
    return value


@QUICK
@given(data=st.data())
def test_run_takes_rows_or_is_refused_when_its_state_was_altered(
    world: World, source: str, written: tuple[Any, Any], data: st.DataObject
) -> None:
    watermarks = table()
    commit(watermarks, "job", "jr_1", {"x": drawn(data, written[0])})

    taken(world, source, watermarks)


@QUICK
@given(data=st.data())
def test_run_takes_rows_or_is_refused_when_the_plan_that_it_replays_was_altered(
    world: World, source: str, written: tuple[Any, Any], data: st.DataObject
) -> None:
    state, plan = written
    watermarks = table()
    following = {"x": drawn(data, state) if data.draw(st.booleans()) else state}
    left_open(watermarks, {"x": drawn(data, plan)}, following)

    taken(world, source, watermarks)


def test_run_takes_rows_when_state_and_plan_are_what_was_written(
    world: World, source: str, written: tuple[Any, Any]
) -> None:
    state, plan = written
    first, again = table(), table()
    commit(first, "job", "jr_1", {"x": state})
    left_open(again, {"x": plan}, {"x": state})

    assert (taken(world, source, first), taken(world, source, again)) == (True, True)


@pytest.mark.parametrize("instead", [5, "text", [1], {}, {"low": 1}], ids=str)
def test_run_is_refused_when_a_plan_is_something_else(world: World, source: str, instead: Any) -> None:
    watermarks = table()
    left_open(watermarks, {"x": instead}, {"x": instead})

    assert not taken(world, source, watermarks)


def test_error_names_the_item_the_context_and_the_field_when_a_state_was_altered(world: World) -> None:
    watermarks = table()
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 5, "descending": "no"}
    commit(watermarks, "job", "jr_1", {"repairs": state})

    with pytest.raises(CorruptItemError) as caught, IncrementalJob(watermarks, "job", "jr_2") as job:
        job.rows_since(world.ids, "id", transformation_ctx="repairs")

    found = caught.value
    assert (found.job_id, found.range_key) == ("job", "~latest")
    assert found.detail == "watermarks.repairs.descending is not True or False"


@pytest.mark.parametrize("damaged", [b"no schema", pack_json([["pandas", [["id", 5]]]]), "text"], ids=repr)
@pytest.mark.parametrize("source", ["numbers", "files"])
def test_nothing_is_read_when_the_kept_schemas_are_damaged(world: World, source: str, damaged: Any) -> None:
    watermarks = table()
    taken(world, source, watermarks)
    state = watermarks.latest("job").watermarks["x"]
    commit(watermarks, "job", "jr_1", {"x": {**state, "schemas": damaged}})

    with pytest.raises(CorruptItemError, match=r"watermarks\.x\.schemas is not columns with types that are known"):
        with IncrementalJob(watermarks, "job", "jr_9", clock=watermarks.clock) as job:
            world.read(source, job)

    assert watermarks.latest("job").plan is None
    assert watermarks.latest("job").watermarks["x"]["schemas"] == damaged


@pytest.mark.parametrize("field", ["segments", "listed", "set_aside", "source"])
def test_bookmark_without_a_job_is_refused_when_its_state_was_altered(world: World, field: str) -> None:
    bookmark = FileBookmark(world.folder)
    bookmark.new_files()

    with pytest.raises(WatermarkError):
        FileBookmark(world.folder, state={**bookmark.state_after, field: 5})


# --- commands ---------------------------------------------------------------------------------------

LOOKS: dict[str, Callable[[Watermarks], Any]] = {
    "coverage": lambda watermarks: watermarks.coverage("job", "x"),
    "gaps": lambda watermarks: watermarks.gaps("job", "x"),
    "complete": lambda watermarks: watermarks.complete_up_to("job", "x"),
    "unfinished": lambda watermarks: watermarks.unfinished("job", "x"),
    "references": lambda watermarks: LedgerSweep(watermarks, "job", "ledger/").references(),
    "value": lambda watermarks: watermarks.set_watermark("job", {"value": 7}, transformation_ctx="x", **WHY),
}
"""Calls that read a state, and may be refused."""
ALWAYS: dict[str, Callable[[Watermarks], Any]] = {
    "doctor": lambda watermarks: watermarks.doctor("job"),
    "report": lambda watermarks: build_report(watermarks, now=NOW + DAY),
    "values": lambda watermarks: repr(watermarks.get_watermark("job")),
    "jobs": lambda watermarks: watermarks.list_jobs,
    "reset": lambda watermarks: watermarks.reset("job", transformation_ctx="x", **WHY),
    "rewind": lambda watermarks: watermarks.rewind("job", to_version=1, **WHY),
}
"""Calls with which an operator repairs a job, in this order; none of them may be refused."""


@pytest.mark.parametrize("name", [name for name, (place, _) in KINDS.items() if place == STATES])
@QUICK
@given(data=st.data())
def test_people_can_look_and_repair_when_a_state_was_altered(name: str, data: st.DataObject) -> None:
    watermarks = table()
    stored = KINDS[name][1]
    commit(watermarks, "job", "jr_1", {"x": stored, "other": 5})
    commit(watermarks, "job", "jr_2", {"x": drawn(data, stored), "other": 5})
    left_open(watermarks, {"x": {"kind": "rows"}}, {"x": {"kind": "files"}})

    for look in LOOKS.values():
        with suppress(WatermarkError):
            look(watermarks)
    for repair in ALWAYS.values():
        repair(watermarks)

    assert watermarks.latest("job").watermarks == watermarks.history("job")[-1].watermarks


@pytest.fixture
def damaged() -> Watermarks:
    watermarks = table()
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 5}
    commit(watermarks, "job", "jr_1", {"x": state})
    commit(watermarks, "job", "jr_2", {"x": {**state, "descending": "no"}})
    left_open(watermarks, {"x": {**state, "low": "5"}}, {"x": {**state, "value": "5"}})
    return watermarks


def test_each_damaged_part_is_named_when_a_doctor_looks(damaged: Watermarks) -> None:
    found = [one.detail for one in damaged.doctor("job") if one.kind == "damaged state"]

    assert found == [
        f"~latest: {STATES}.x.descending is not True or False",
        f"~latest: {PLANS}.x.low is not a value of type bigint",
        f"~latest: {NEXT}.x.value is not a value of type bigint",
    ]


def test_job_is_shown_as_damaged_beside_the_others_when_the_page_is_made(damaged: Watermarks) -> None:
    commit(damaged, "good", "jr_1", {"x": {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 5}})

    page = build_report(damaged, now=NOW + DAY)

    assert "watermarks.x.descending is not True or False" in page
    assert 'data-name="good"' in page


@pytest.mark.parametrize(
    ("given_state", "told"),
    [
        ({"value": "x"}, "value is not a value of type bigint"),
        ({"descending": 1}, "descending is not True or False"),
        ({"kind": "rows", "value": 7}, "cursor_column is not a name, or a list of names, with a type for each"),
        (
            {
                "kind": "rows",
                "cursor_column": "id",
                "type": "uuid",
                "value": "f" * 8 + "-ffff" * 3 + "-" + "f" * 12,
                "descending": True,
            },
            "descending is not False, and only numbers are read downwards",
        ),
        ({"kind": "files", "segments": 5}, "format is missing"),
        ({"kind": "ids", "next_id": "7"}, "next_id is not a whole number from 0 to 9,223,372,036,854,775,807"),
        ({"kind": 5}, "kind is not a text of 1 to 64 characters"),
    ],
    ids=str,
)
def test_state_is_refused_by_its_field_when_a_person_sets_what_a_run_would_refuse(
    given_state: dict[str, Any], told: str
) -> None:
    watermarks = table()
    commit(watermarks, "job", "jr_1", {"x": {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 5}})

    with pytest.raises(InvalidValueError) as caught:
        watermarks.set_watermark("job", given_state, transformation_ctx="x", **WHY)

    assert str(caught.value) == f"watermarks.x.{told}, so the next run would refuse it."
    assert watermarks.latest("job").version == 1


@pytest.mark.parametrize(
    "given_state",
    [{"descending": False}, {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 7}],
    ids=["field", "whole"],
)
def test_state_is_repaired_when_a_person_sets_the_damaged_field_or_all_of_it(
    damaged: Watermarks, world: World, given_state: dict[str, Any]
) -> None:
    damaged.set_watermark("job", given_state, transformation_ctx="x", **WHY)

    assert taken(world, "numbers", damaged)
