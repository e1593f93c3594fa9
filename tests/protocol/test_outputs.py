"""The table's records of staged and retracted output: each has the form that is written, or it is refused."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from scripts.helpers.errors import CorruptItemError
from scripts.helpers.protocol.outputs import MergeColumns, Output, Retraction
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.watermarks import Watermarks
from tests.support.outputs import output_of, output_of_run
from tests.support.steps import frozen
from tests.support.table_items import plant

JOB = "parking"
FULL = output_of(
    "s3://raw/repairs",
    7,
    job_id=JOB,
    files=3,
    bytes=4_000,
    rows=12,
    batch_folders=True,
    replaces=True,
    engine="spark",
    partition_by=("import_date",),
    batch_column="batch",
    merge=MergeColumns(("id",), ("changed",), ("since", "until")),
    snapshot=2**62 + 1,
    table="0f0e",
    columns=True,
    beside_others=True,
)
BACK = Retraction(
    "delta", "s3://raw/repairs", "s3://raw/_repairs.staging", mark_of(JOB), "e1", 2, 9,
    datetime(2026, 3, 16, tzinfo=timezone.utc), "batch", {2: 5, 3: 6}, JOB,
)  # fmt: skip
RECORDS = 20_000


def test_record_is_read_as_it_was_written() -> None:
    stored = json.loads(json.dumps([FULL.record(), output_of().record(), BACK.record()]))

    assert Output.from_record(stored[0], "unpublished[0]", JOB) == FULL
    assert Output.from_record(stored[1], "unpublished[1]", JOB) == output_of()
    assert Retraction.from_record(stored[2], "retracting[0]", JOB) == BACK


SPOILT = {
    "version": "7,'a','b'); DROP TABLE victim; --",
    "fence": "1",
    "epoch": "e1' OR '1'='1",
    "job": "",
    "folder": ["alice"],
    "target": None,
    "sink": "files; --",
    "files": -1,
    "bytes": 1.5,
    "rows": 10**40,
    "batch_folders": "yes",
    "options": [],
}


@pytest.mark.parametrize("name", list(SPOILT))
def test_run_does_not_begin_and_the_field_is_named_when_a_record_is_not_what_is_written(
    watermarks: Watermarks, name: str
) -> None:
    run = frozen(watermarks, JOB)
    run.commit((output_of_run(run),))
    record = output_of_run(run).record() | {name: SPOILT[name]}
    plant(watermarks, JOB, {"unpublished": [record]})

    with pytest.raises(CorruptItemError, match=rf"unpublished\[0\]\.{name}"):
        watermarks.begin(JOB, "r2")


@pytest.mark.parametrize("name", ["first", "last", "epoch", "job", "since", "rows", "batch_column"])
def test_run_does_not_begin_and_the_field_is_named_when_a_retraction_is_not_what_is_written(
    watermarks: Watermarks, name: str
) -> None:
    frozen(watermarks, JOB).commit()
    record = BACK.record() | {name: {"first": 10}.get(name, ["\\"])}
    plant(watermarks, JOB, {"retracting": [record]})

    with pytest.raises(CorruptItemError, match=rf"retracting\[0\]\.({name}|last)"):
        watermarks.begin(JOB, "r2")


HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, 10**40, 0.5, float("nan"), "", "x", "..", "../..", "\\", "'", '"', "`", ";--",
    "\x00", "\ud800", "e1", "9" * 5_000, "a" * 70_000, [], [""], ["x"] * 3, [[]], {}, {"a": 1}, {"": {}}, {"7": "7"},
    "2026-03-16T15:45:00.000000+00:00", "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00+14:00",
]  # fmt: skip


def spoilt(chance: random.Random, record: Any) -> Any:
    """Return a record with one or two fields, at any depth, altered, removed or set to another field's value."""
    made = json.loads(json.dumps(record))
    for _ in range(chance.randint(1, 2)):
        holder = made
        while True:
            name = chance.choice(list(holder)) if holder and chance.random() < 0.95 else "added"
            inner = holder.get(name)
            if not isinstance(inner, dict) or chance.random() < 0.3:
                break
            holder = inner
        if chance.random() < 0.1:
            holder.pop(name, None)
        else:
            holder[name] = chance.choice([*HOSTILE, *holder.values()])
    return made


@pytest.mark.parametrize("kind", [Output, Retraction])
def test_record_is_refused_or_read_in_its_ranges_when_anything_is_in_it(kind: type[Output] | type[Retraction]) -> None:
    chance = random.Random(kind.__name__)
    sound = FULL.record() if kind is Output else BACK.record()
    taken, refusals = 0, []
    for _ in range(RECORDS // 2):
        record = spoilt(chance, sound)
        try:
            read = kind.from_record(record, "x[0]", JOB)
        except ImplausibleError as error:
            refusals.append(str(error))
            continue
        taken += 1
        assert kind.from_record(json.loads(json.dumps(read.record())), "x[0]", JOB) == read
        check_ranges(read)
    assert RECORDS // 40 < taken < RECORDS // 2
    assert all(text.startswith("x[0]") and len(text) < 400 for text in refusals)


def check_ranges(read: Output | Retraction) -> None:
    versions = [read.version] if isinstance(read, Output) else [read.first, read.last]
    assert all(type(version) is int and 1 <= version <= 10**15 for version in versions)
    assert set(read.job) <= set("0123456789abcdef")
    assert len(read.job) in (8, 32)
    assert not set(read.epoch) & set("'\"\\`;/ \x00")
    if isinstance(read, Retraction):
        assert abs(read.since - datetime(2026, 1, 1, tzinfo=timezone.utc)) < timedelta(days=366 * 8_000)
