"""A Delta table that no transaction could write to is refused before the job commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.merging import Merge
from scripts.helpers.sinks.outputs import mark_of
from tests.sinks.contract.targets import spark_schema
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.written import EPOCH, JOB

BATCH, JOB_MARK = BatchId(JOB, EPOCH, 1), mark_of(JOB)
REFUSED = ["clustering", "identityColumns", "rowTracking", "domainMetadata", "typeWidening", "icebergCompatV2",
           "inCommitTimestamp", "allowColumnDefaults", "of-the-future"]  # fmt: skip
TAKEN = ["appendOnly", "checkConstraints", "changeDataFeed", "columnMapping", "deletionVectors", "timestampNtz"]
READER = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening"}


REQUIRED = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": False, "metadata": {}}]}
"""A struct in Delta's log with a field that must have a value."""

CONDITIONS: dict[str, tuple[dict[str, Any], list[Any], list[Any], str]] = {
    "invariant": (
        {"type": "long", "metadata": {"delta.invariants": '{"expression":{"expression":"odd < 5"}}'}},
        [1, 4], [7, 8], r"invariant \(odd < 5\) of column 'odd'",
    ),
    "generated": (
        {"type": "integer", "metadata": {"delta.generationExpression": "length(word)"}},
        [1, 1], [7, 8], r"GENERATED ALWAYS AS \(length\(word\)\) of column 'odd'",
    ),
    "varchar": (
        {"type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}},
        ["abc", "ab "], ["abcd", "\u00e9\u00e9\u00e9\u00e9"], r"varchar\(3\) of column 'odd'",
    ),
    "nested": (
        {"type": REQUIRED, "metadata": {}},
        [{"n": 1}, {"n": 2}], [{"n": None}, None], r"NOT NULL of column 'odd\.n'",
    ),
    "elements": (
        {"type": {"type": "array", "elementType": "long", "containsNull": False}, "metadata": {}},
        [[1], []], [[None], [2, None]], r"NOT NULL of column 'odd\.element'",
    ),
    "within elements": (
        {"type": {"type": "array", "elementType": REQUIRED, "containsNull": True}, "metadata": {}},
        [[{"n": 1}], []], [[{"n": None}], [{"n": 2}, {"n": None}]], r"NOT NULL of column 'odd\.element\.n'",
    ),
    "within values": (
        {"type": {"type": "map", "keyType": "string", "valueType": REQUIRED, "valueContainsNull": True},
         "metadata": {}},
        [[("a", {"n": 1})], []], [[("a", {"n": None})], [("b", {"n": None})]], r"NOT NULL of column 'odd\.value\.n'",
    ),
    "identity": (
        {"type": "long", "metadata": {"delta.identity.start": 1, "delta.identity.step": 1,
                                      "delta.identity.allowExplicitInsert": False}},
        [], [7, 8], "GENERATED ALWAYS AS IDENTITY of column 'odd'",
    ),
}  # fmt: skip
"""What a column `odd` wants of its values, beside values that fit and some that do not, and what the error says."""


def table_with(folder: Path, feature: str) -> Path:
    """Make a Delta table with one feature, as Spark writes it."""
    path = folder / "t"
    write_deltalake(str(path), pa.table({"id": [1]}))
    readers = [feature] if feature in READER else []
    change_log(
        path, "protocol", minReaderVersion=3, minWriterVersion=7, readerFeatures=readers, writerFeatures=[feature]
    )
    return path


def change_log(path: Path, kind: str, **more: Any) -> None:
    """Change fields of the protocol or the metadata in the first entry of a table's log."""
    log = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if kind in action:
            action[kind] |= more
    log.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("feature", REFUSED)
def test_table_is_refused_before_anything_is_staged_when_it_has_a_feature_that_nobody_here_writes(
    tmp_path: Path, feature: str
) -> None:
    path = table_with(tmp_path, feature)

    with pytest.raises(TargetError, match=rf"features {feature}, which the package deltalake does not write.*Spark"):
        staged_by(DeltaSink(str(path)), BATCH, 1, pd.DataFrame({"id": [2]}))

    assert [found.name for found in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("feature", TAKEN)
def test_rows_are_there_when_the_feature_of_a_table_is_written(tmp_path: Path, feature: str) -> None:
    path = table_with(tmp_path, feature)
    sink = DeltaSink(str(path))

    sink.publish(staged_by(sink, BATCH, 1, pd.DataFrame({"id": [2]})))

    assert DeltaTable(str(path)).version() == 1


# `deltalake` cannot write to a table with an identity column, so that feature is one of REFUSED.
@pytest.mark.parametrize(
    ("condition", "engine"),
    [(one, by) for one in CONDITIONS for by in ("deltalake", "spark") if (one, by) != ("identity", "deltalake")],
)
def test_rows_are_counted_and_refused_before_the_commit_when_a_column_wants_more_of_its_values(
    request: pytest.FixtureRequest, tmp_path: Path, condition: str, engine: str
) -> None:
    field, fit, unfit, called = CONDITIONS[condition]
    path = tmp_path / "t"
    inner = pa.struct([("n", pa.int64())])
    kind = {
        "varchar": pa.string(), "nested": inner, "generated": pa.int32(), "elements": pa.list_(pa.int64()),
        "within elements": pa.list_(inner), "within values": pa.map_(pa.string(), inner),
    }  # fmt: skip
    schema = pa.schema([("odd", kind.get(condition, pa.int64())), ("word", pa.string())])
    columns = [{"name": "odd", "nullable": True, **field}, {"name": "word", "type": "string", "nullable": True,
                                                            "metadata": {}}]  # fmt: skip
    write_deltalake(str(path), schema.empty_table())
    change_log(path, "metaData", schemaString=json.dumps({"type": "struct", "fields": columns}))
    change_log(path, "protocol", minReaderVersion=1, minWriterVersion=6 if condition == "identity" else 4)
    spark: Any = request.getfixturevalue("spark_with_tables") if engine == "spark" else None
    sink = DeltaSink(str(path), spark=spark)

    def frame(values: list[Any]) -> Any:
        rows = pa.table({"odd": pa.array(values, schema.field("odd").type), "word": ["a"] * len(values)})
        if spark is None:
            return rows
        listed = [{**row, "odd": dict(row["odd"]) if "values" in condition else row["odd"]} for row in rows.to_pylist()]
        return spark.createDataFrame(listed, spark_schema(schema))

    with pytest.raises(
        TargetError, check=because("unfit_table"), match=f"its {called} refuses 2 rows. Correct or filter them. Nothing"
    ):
        staged_by(sink, BATCH, 1, frame([*fit, *unfit]))
    assert sink.staged(JOB_MARK) == []
    if fit:
        sink.publish(staged_by(sink, BATCH, 1, frame(fit)))
        assert DeltaTable(str(path)).to_pyarrow_table()["odd"].to_pylist() == fit


@pytest.mark.parametrize("text", ["element_at(split(word, 'x'), 1) = 'a'", "word <> '{braces}' AND transform_of(1)"])
def test_batch_is_staged_when_nothing_here_reads_what_a_constraint_of_its_table_says(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"word": ["a"]}))
    change_log(path, "metaData", configuration={"delta.constraints.odd": text})

    output = staged_by(DeltaSink(str(path)), BATCH, 1, pd.DataFrame({"word": ["b"]}))

    assert output.rows == 1


@pytest.mark.parametrize(("text", "count"), [("id / 2 = 2", 1), ("id <> 0 -- none", 0), ("word <> '{rows}'", 2)])
def test_rows_are_counted_as_the_table_counts_them_when_a_constraint_divides_or_has_odd_signs(
    tmp_path: Path, text: str, count: int
) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"id": pa.array([], pa.int64()), "word": pa.array([], pa.string())}))
    change_log(path, "metaData", configuration={"delta.constraints.odd": text})
    rows = pd.DataFrame({"id": [5, 6], "word": ["{rows}", "{rows}"]})

    if count:
        with pytest.raises(TargetError, check=because("unfit_table"), match=f"refuses {count} row"):
            staged_by(DeltaSink(str(path)), BATCH, 1, rows)
    else:
        assert staged_by(DeltaSink(str(path)), BATCH, 1, rows).rows == len(rows)


@pytest.mark.parametrize("engine", ["deltalake", "spark"])
def test_merge_is_refused_before_anything_is_staged_when_a_table_takes_rows_only(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    path, rows = tmp_path / "t", pd.DataFrame({"id": [2], "at": [1]})
    schema = Schema.from_arrow(pa.schema([("id", pa.int64()), ("at", pa.int64())]))
    DeltaTable.create(str(path), schema, configuration={"delta.appendOnly": "true"})
    spark: Any = request.getfixturevalue("spark_with_tables") if engine == "spark" else None
    frame: Any = rows if spark is None else spark.createDataFrame(rows)

    with pytest.raises(TargetError, match=r"delta\.appendOnly"):
        staged_by(DeltaSink(str(path), spark=spark, merge=Merge.of("id", "at")), BATCH, 1, frame)

    assert [found.name for found in tmp_path.iterdir()] == ["t"]
    sink = DeltaSink(str(path), spark=spark)
    sink.publish(staged_by(sink, BATCH, 1, frame))
    assert DeltaTable(str(path)).version() == 1
