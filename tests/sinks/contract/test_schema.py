"""A later batch with other columns, types or partitions is written whole, or refused before anything is written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from scripts.helpers.errors import TargetError, TargetSchemaError
from tests.sinks.contract.targets import IN_A_BUCKET, Copy, Kind, Target, every, in_one_place

FIRST = pa.table({"id": pa.array([1], pa.int64()), "word": ["a"], "rate": [0.5]})
LATER = pa.table({"id": pa.array([2], pa.int64()), "word": ["b"], "rate": [1.5]})


CHANGES = {
    "more": LATER.append_column("new", pa.array(["x"])), "fewer": LATER.drop_columns("word"),
    "retyped": LATER.set_column(1, "word", pa.array([7], pa.int64())), "moved": LATER.select(["rate", "id", "word"]),
    "renamed": LATER.rename_columns(["id", "Word", "rate"]),
}  # fmt: skip


def refused(kind: Kind) -> dict[str, type[TargetError]]:
    """Return the changes of columns that a target refuses."""
    if kind.family == "database":
        return dict.fromkeys(["more", "retyped", "renamed"], TargetError)
    if kind.family in ("delta", "iceberg"):
        return dict.fromkeys(["more", "fewer", "retyped", "renamed"], TargetSchemaError)
    return dict.fromkeys(
        ["more", "fewer", "retyped", "moved"] if kind.form == "csv" else ["retyped"], TargetSchemaError
    )


NAMED = {"more": ("unknown", ["new"]), "fewer": ("missing", ["word"]), "retyped": ("changed", ["word"])}
"""Of a change: where an error says which columns are concerned, and these."""


@every(where=in_one_place, slow=("pyarrow-s3", "deltalake-s3"))
def test_batch_is_refused_or_its_rows_are_whole_when_its_columns_are_others(target: Target, copy: Copy) -> None:
    target.create(FIRST.schema)
    copy.prepare(FIRST)
    errors = refused(target.kind)
    before, rows = target.contents(), target.read()

    # For files, the reader decides which spelling of a name counts.
    tried = [name for name in CHANGES if not (name == "renamed" and target.kind.family == "files")]
    for name in tried:
        if name in errors:
            error = copy.refused(CHANGES[name], errors[name])
            if isinstance(error, TargetSchemaError) and name in NAMED:
                assert list(getattr(error, NAMED[name][0])) == NAMED[name][1]
    refused_all = target.contents(), target.read()
    for name in tried:
        if name not in errors:
            copy.run(CHANGES[name])

    assert refused_all == (before, rows)
    known = FIRST.column_names
    wanted = [{name: row.get(name) for name in known} for row in rows]
    for name in tried:
        if name not in errors:
            wanted += [{key: row.get(key) for key in known} for row in CHANGES[name].to_pylist()]
    found = [{name: row.get(name) for name in known} for row in target.read()]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


NO_VALUES = [pa.null(), pa.float64(), pa.int64(), pa.bool_(), pa.timestamp("us")]


@every(where=in_one_place, slow=IN_A_BUCKET)
def test_column_without_a_value_takes_the_type_of_the_target_or_is_left_out_when_rows_come_later(
    target: Target, copy: Copy
) -> None:
    # A lazy frame would have to be computed to find out.
    kinds = NO_VALUES[:1] if target.kind.is_lazy else NO_VALUES
    names = [f"word_{at}" for at in range(len(kinds))]
    # CSV identifies a column by its position.
    more = {} if target.kind.form == "csv" else {"new": pa.nulls(1, pa.null() if target.kind.is_lazy else pa.float64())}

    def rows_with(at: int, *columns: pa.Array) -> pa.Table:
        return pa.table({"id": pa.array([at], pa.int64()), **dict(zip(names, columns, strict=True))})

    first, last = (rows_with(at, *[pa.array([word])] * len(names)) for at, word in ((1, "a"), (3, "b")))
    target.create(first.schema)
    copy.prepare(first)

    without = rows_with(2, *(pa.nulls(1, kind) for kind in kinds))
    for name, values in more.items():
        without = without.append_column(name, values)
    copy.run(without)
    retyped = rows_with(3, *[pa.array([7], pa.int64())] * len(names))
    error = copy.refused(retyped, refused(target.kind)["retyped"])
    copy.run(last)

    if isinstance(error, TargetSchemaError):
        assert list(error.changed) == names
    found = {row["id"]: {name: row.get(name) for name in names} for row in target.read()}
    assert found == {at: dict.fromkeys(names, word) for at, word in ((1, "a"), (2, None), (3, "b"))}
    assert {name for row in target.read() for name in row} == {"id", *names}


def has_nested_columns(kind: Kind) -> bool:
    return kind.family != "database" and kind.form != "csv" and in_one_place(kind)


@every(where=has_nested_columns, slow=IN_A_BUCKET)
def test_field_of_a_column_takes_the_type_of_the_target_when_it_has_no_value(target: Target, copy: Copy) -> None:
    def rows_with(at: int, kind: pa.DataType, value: int | None) -> pa.Table:
        inner = pa.struct([("n", kind), ("m", pa.int64())])
        items = [] if value is None and target.kind.engine == "spark" else [value]
        return pa.table({
            "id": pa.array([at], pa.int64()), "items": pa.array([items], pa.list_(kind)),
            "inner": pa.array([{"n": value, "m": at}], inner),
            "deep": pa.array([[{"n": value, "m": at}]], pa.list_(inner)),
        })  # fmt: skip

    batches = [rows_with(1, pa.int64(), 7), rows_with(2, pa.null(), None), rows_with(3, pa.int64(), 8)]

    copy.prepare(batches[0])
    for batch in batches[1:]:
        copy.run(batch)

    found = sorted(target.read(), key=lambda row: row["id"])
    # Spark leaves NULL out of the JSON that it writes.
    assert [(row["inner"]["n"], row["inner"]["m"]) for row in found] == [(7, 1), (None, 2), (8, 3)]
    assert [row["items"] for row in found] == [batch["items"][0].as_py() for batch in batches]
    assert [row["deep"] for row in found] == [batch["deep"][0].as_py() for batch in batches]


@every("partition_by", where=in_one_place, slow=("delta-spark", "iceberg-spark", *IN_A_BUCKET))
def test_batch_is_refused_when_its_partitions_are_others(target: Target, copy: Copy) -> None:
    copy.run(FIRST, partition_by=["word"])
    before = target.contents()

    copy.refused(LATER, TargetError, partition_by=["rate"])
    unchanged = target.contents()
    if target.kind.family == "files":
        copy.refused(LATER, TargetError, partition_by=[])
    else:
        copy.run(LATER)
        copy.batches.append(LATER.set_column(0, "id", pa.array([3], pa.int64())))
    copy.run(*([LATER] if target.kind.family == "files" else []), partition_by=["word"])

    assert unchanged == before
    assert target.ids() == ([1, 2] if target.kind.family == "files" else [1, 2, 3])


@every(where=lambda kind: kind.family == "database")
def test_partitions_are_refused_when_a_target_has_none(target: Target, copy: Copy) -> None:
    target.create(FIRST.schema)

    with pytest.raises(TypeError, match="partition_by"):
        copy.run(FIRST, partition_by=["word"])
