"""Delta Lake as a target: each committed batch is in the table once, with Spark and without."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from scripts.helpers.errors import (
    InvalidValueError,
    MissingConnectorError,
    StagedFilesLostError,
    TargetError,
    TargetSchemaError,
    UnprovenError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks import staged_rows, table_sink
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.given_frames import given_rows
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.outputs import MANIFEST
from scripts.helpers.sinks.places import LocalPlace, Place
from scripts.helpers.sinks.staged_rows import arrow_rows
from scripts.helpers.watermarks import Watermarks
from tests.sinks.rights import RIGHTS, refusing, staged_in
from tests.support.blocked_packages import run_without
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.steps import KilledError

JOB = "repairs"
SINCE = datetime(2026, 11, 23, tzinfo=timezone.utc)
ENGINES = ["spark", "deltalake"]


class Table:
    """A Delta table, a way to write it, and the rows that its readers see."""

    def __init__(self, path: str, spark: Any = None) -> None:
        self.path, self.spark = path, spark

    def sink(self, **options: Any) -> DeltaSink:
        return DeltaSink(self.path, spark=self.spark, **options)

    def frame(self, rows: list[int], **columns: Any) -> Any:
        frame = pd.DataFrame({"id": rows, "kind": [f"k{row % 2}" for row in rows], **columns})
        if self.spark is None:
            return frame
        return self.spark.createDataFrame(pa.Table.from_pandas(frame).to_pylist(), "id long, kind string")

    def stage(self, version: int, rows: list[int], fence: int = 7, epoch: str = "e1", **options: Any) -> Output:
        return staged_by(self.sink(**options), BatchId(JOB, epoch, version), fence, self.frame(rows))

    @property
    def seen(self) -> list[int]:
        """The rows that readers see, by a reader that is neither Spark nor this package."""
        if not DeltaTable.is_deltatable(self.path):
            return []
        return sorted(DeltaTable(self.path).to_pyarrow_table()["id"].to_pylist())

    @property
    def places(self) -> list[Place]:
        return [self.sink().staging.place]

    @property
    def staged(self) -> list[str]:
        (place,) = self.places
        return sorted(name.rpartition("/")[2] for name in place.files() if "part-" in name or MANIFEST in name)


@pytest.fixture(params=ENGINES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    spark = request.getfixturevalue("spark_with_tables") if request.param == "spark" else None
    return Table(f"{tmp_path}/repairs", spark)


@pytest.fixture
def arrow(tmp_path: Path) -> Table:
    return Table(f"{tmp_path}/repairs")


def die(*_: Any) -> None:
    raise KilledError


def test_rows_are_refused_and_counted_when_a_partition_of_the_table_would_keep_their_empty_text_as_null(
    table: Table,
) -> None:
    write_deltalake(table.path, pa.table({"id": [1], "kind": ["k1"]}), partition_by=["kind"])
    frame: Any = pd.DataFrame({"id": [2, 3, 4, 5], "kind": ["", "k", None, ""]})
    if table.spark is not None:
        frame = table.spark.createDataFrame([(2, ""), (3, "k"), (4, None), (5, "")], "id long, kind string")

    with pytest.raises(InvalidValueError, check=because("unfit_partition"), match="'kind': 2 rows have") as caught:
        staged_by(table.sink(), BatchId(JOB, "e1", 2), 7, frame)

    assert (caught.value.column, caught.value.count, table.staged) == ("kind", 2, [])


@pytest.mark.parametrize(
    ("value", "is_spark_error"),
    [
        pytest.param("x" * 251, None, id="long"),
        pytest.param("\u00e9" * 50, False, id="long-when-escaped"),
        pytest.param("=" * 84, None, id="signs"),
        pytest.param("a\0b", True, id="nul"),
        pytest.param(5e-324, False, id="number"),
    ],
)
def test_rows_are_refused_before_the_commit_when_no_folder_can_have_the_name_of_their_partition(
    table: Table, value: str | float, is_spark_error: bool | None
) -> None:
    """Only `deltalake` escapes letters, and writes a tiny number with all its zeros."""
    rows = [(1, value), (2, value[:1] if isinstance(value, str) else 1.5)]
    frame: Any = pd.DataFrame(rows, columns=["id", "kind"])
    if table.spark is not None:
        frame = table.spark.createDataFrame(rows, f"id long, kind {'string' if isinstance(value, str) else 'double'}")
    sink, batch = table.sink(partition_by=["kind"]), BatchId(JOB, "e1", 1)

    if is_spark_error in (None, table.spark is not None):
        with pytest.raises(InvalidValueError, check=because("unfit_partition"), match="'kind': 1 row has"):
            staged_by(sink, batch, 7, frame)
        assert table.staged == []
    else:
        sink.publish(staged_by(sink, batch, 7, frame))
        assert table.seen == [1, 2]


def test_file_without_rows_has_no_times_of_int96_when_spark_makes_the_table(
    spark_with_tables: Any, tmp_path: Path
) -> None:
    sink = DeltaSink(f"{tmp_path}/t", spark=spark_with_tables)

    sink.publish(staged_by(sink, BatchId(JOB, "e1", 1), 7, spark_with_tables.sql("SELECT 1 id, now() at")))

    files = [pq.ParquetFile(file) for file in tmp_path.glob("t/*.parquet")]
    assert sorted(file.metadata.num_rows for file in files) == [0, 1]
    assert {file.schema.column(1).physical_type for file in files} == {"INT64"}


def test_rows_are_refused_before_the_commit_when_deltalake_would_write_their_partition_wrong(arrow: Table) -> None:
    """It writes -1.50 as -1.-50, and a table with that in its log cannot be read."""
    kind = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    prices = [Decimal("1.00"), Decimal("2.50")]
    write_deltalake(arrow.path, pa.table({"id": [1, 2], "price": prices}, kind), partition_by=["price"])
    below, above = (
        pa.table({"id": [number], "price": [Decimal(price)]}, kind).to_pandas(types_mapper=pd.ArrowDtype)
        for number, price in ((3, "-0.50"), (4, "0.50"))
    )

    with pytest.raises(
        InvalidValueError, check=because("unfit_partition"), match="'price': 1 row has a fraction below zero"
    ):
        staged_by(arrow.sink(), BatchId(JOB, "e1", 1), 7, below)
    arrow.sink().publish(staged_by(arrow.sink(), BatchId(JOB, "e1", 1), 7, above))

    assert arrow.seen == [1, 2, 4]


def test_delete_is_merged_when_it_has_an_empty_text_where_the_table_is_partitioned(arrow: Table) -> None:
    rows = pd.DataFrame({"id": [1, 2], "at": [1, 1], "kind": ["a", "b"]})
    arrow.sink(partition_by=["kind"]).publish(
        staged_by(arrow.sink(partition_by=["kind"]), BatchId(JOB, "e1", 1), 7, rows)
    )
    sink, rules = arrow.sink(), Merge.of("id", "at")
    gone = pd.DataFrame({"id": [2], "at": [2], "kind": [""], DELETED: [True]})

    output = staged_by(sink.merging(rules), BatchId(JOB, "e1", 2), 7, gone)
    sink.merging(rules).publish(output)
    with pytest.raises(InvalidValueError, check=because("unfit_partition"), match="'kind': 1 row has"):
        staged_by(sink.merging(rules), BatchId(JOB, "e1", 3), 7, gone.assign(**{DELETED: [False], "at": [3]}))

    assert arrow.seen == [1]


@pytest.mark.parametrize(
    "merge",
    [pytest.param(None, id="append"), pytest.param(Merge.of("id", "at", False), id="merge", marks=pytest.mark.long)],
)
def test_rows_are_in_the_table_when_its_path_looks_like_a_pattern(
    spark_with_tables: Any, tmp_path: Path, merge: Merge | None
) -> None:
    table = Table(f"{tmp_path}/[raw] {{a,b}}*/repairs", spark_with_tables)
    rows = spark_with_tables.createDataFrame([(1, 1), (2, 1)], "id long, at long")
    sink = table.sink(merge=merge)

    sink.publish(staged_by(sink, BatchId(JOB, "e1", 1), 7, rows))

    assert table.seen == [1, 2]


def test_column_is_null_when_the_table_got_it_after_the_rows_were_staged(arrow: Table) -> None:
    arrow.sink().publish(arrow.stage(1, [1]))
    output = arrow.stage(2, [2])
    DeltaTable(arrow.path).alter.add_columns(Field("later", PrimitiveType("long")))

    arrow.sink().publish(output)

    found = DeltaTable(arrow.path).to_pyarrow_table().sort_by("id")
    assert found.select(["id", "later"]).to_pylist() == [{"id": 1, "later": None}, {"id": 2, "later": None}]


def test_nothing_is_written_when_the_rows_are_none(arrow: Table) -> None:
    output = arrow.stage(1, [])
    arrow.sink().publish(output)
    merged = staged_by(arrow.sink(merge=Merge.of("id", "at")), BatchId(JOB, "e1", 2), 7, pd.DataFrame())

    assert (output.rows, arrow.seen, DeltaTable.is_deltatable(arrow.path)) == (0, [], False)
    assert (merged.rows, merged.files) == (0, 0)


def test_write_is_refused_when_the_target_is_no_table(table: Table) -> None:
    Path(table.path).mkdir()
    Path(table.path, "part-00000.parquet").write_bytes(b"x")

    with pytest.raises(
        TargetError, check=because("not_a_table"), match=r"'part-00000\.parquet' and is not a Delta table"
    ):
        table.stage(1, [1])

    assert table.staged == []


@pytest.mark.parametrize(
    ("target", "options", "why"),
    [
        ("raw.repairs", {}, r"has no slash\. Write s3://bucket/prefix/, or \./raw\.repairs for a folder here"),
        ("s3://lake", {}, "whole bucket"),
        ("/lake/repairs", {"partition_by": "day"}, "list of columns"),
        ("/lake/repairs", {"staging": "/lake/repairs/staging"}, "^staging '/lake/repairs/staging' .* overlap"),
    ],
)
def test_sink_is_refused_when_its_paths_make_no_sense(target: str, options: Any, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        DeltaSink(target, **options)


def test_connector_is_named_when_spark_was_started_without(arrow: Table) -> None:
    conf: dict[str, str] = {}
    session: Any = SimpleNamespace(conf=conf)  # Extensions cannot be removed from a session in use.

    with pytest.raises(MissingConnectorError, match=r"format='delta' is not installed\. .*delta-spark_2"):
        DeltaSink(f"file://{arrow.path}", spark=session).check(SimpleNamespace(sparkSession=session, columns=["id"]))


@pytest.mark.parametrize(
    ("packages", "merge"),
    [(["deltalake"], "None"), (["duckdb"], "None"), (["duckdb"], "Merge.of('id', 'at')")],
    ids=["deltalake", "duckdb", "duckdb-merge"],
)
def test_package_is_named_before_the_plan_is_frozen_when_rows_are_written_without_it(
    arrow: Table, packages: list[str], merge: str
) -> None:
    code = """
import pandas as pd, sys
from scripts.helpers.sinks import DeltaSink, Merge
DeltaSink(sys.argv[1], merge=MERGE).check(pd.DataFrame({"id": [1], "at": [1]}))
"""
    done = run_without(packages, code.replace("MERGE", merge), arrow.path)

    assert "MissingConnectorError" in done.stderr
    assert f"format='delta' is not installed. Install it: pip install {packages[0]} pyarrow" in done.stderr


def test_sink_without_spark_is_refused_rows_of_spark(spark: Any, arrow: Table) -> None:
    with pytest.raises(InvalidValueError, match="was made for deltalake"):
        arrow.sink().check(spark.range(1))


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (pd.DataFrame({"id": [1], "kind": [None]}), "Column 'kind' has no value"),
        (pd.DataFrame({"id": [1, "x"]}), "'id' has values of several types: int, str"),
        (pd.DataFrame({"id": [1j]}), r"no one type .*: .*column id with type complex128\. Give one\.$"),
        (pd.DataFrame({"id": pd.arrays.SparseArray([1.0])}), r"no one .*\(column id\) not supported\. Give one\.$"),
        ([1, 2], "are a list"),
    ],
)
def test_rows_are_refused_when_they_make_no_table(arrow: Table, frame: Any, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        staged_by(arrow.sink(), BatchId(JOB, "e1", 1), 1, frame)

    assert arrow.staged == []


def test_rows_of_spark_are_refused_when_a_column_has_no_type(spark_with_tables: Any, tmp_path: Path) -> None:
    table = Table(f"{tmp_path}/repairs", spark_with_tables)

    with pytest.raises(InvalidValueError, match=r"Column 'kind' has no value in any row.*Cast it"):
        staged_by(table.sink(), BatchId(JOB, "e1", 1), 1, spark_with_tables.sql("SELECT 1L AS id, NULL AS kind"))

    assert table.staged == []


def test_pyarrow_is_named_when_rows_cannot_be_staged_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingConnectorError, match=r"format='parquet' is not installed\. .*pip install pyarrow"):
        given_rows(pd.DataFrame({"id": [1]}), "repairs")


def test_texts_are_plain_when_they_are_within_other_values() -> None:
    inner = pa.struct([("n", pa.large_string())])
    rows = pa.table({
        "tags": pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int64())),
        "inner": pa.array([{"n": "x"}], inner),
    })  # fmt: skip

    found = arrow_rows(rows)

    assert found.schema.types == [pa.map_(pa.string(), pa.int64()), pa.struct([("n", pa.string())])]
    assert found.to_pylist() == [{"tags": [("a", 1)], "inner": {"n": "x"}}]


def test_types_are_those_of_the_table_when_pandas_has_others(arrow: Table) -> None:
    frame = pd.DataFrame(
        {
            "id": [1],
            "at": pd.to_datetime(["2026-11-23T10:00:00.123456000Z"]).tz_convert("Europe/London"),
            "kind": pd.Categorical(["a"]),
            "tags": [["a", "b"]],
        }
    )  # fmt: skip
    for version in (1, 2):
        arrow.sink().publish(staged_by(arrow.sink(), BatchId(JOB, "e1", version), 1, frame))

    found = DeltaTable(arrow.path).to_pyarrow_table()
    assert [str(found.schema.field(name).type) for name in ("id", "at", "kind")] == [
        "int64",
        "timestamp[us, tz=UTC]",
        "string",
    ]
    assert found["at"].to_pylist() == [pd.Timestamp("2026-11-23T10:00:00.123456Z")] * 2


def test_batch_is_there_once_when_another_publishes_between_look_and_append(
    arrow: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.sinks")
    for version in (1, 2):
        output = arrow.stage(version, [version])
        overtaken: list[str] = []

        def overtake(found: Any, output: Output = output, overtaken: list[str] = overtaken) -> Any:
            if not overtaken:
                overtaken.append("once")
                arrow.sink().publish(output)
            return found

        look = "is_deltatable" if version == 1 else "transaction_version"
        original: Callable[..., Any] = getattr(DeltaTable, look)
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, look, lambda *given, original=original: overtake(original(*given)))
            arrow.sink().publish(output)

        assert overtaken
        assert arrow.seen == list(range(1, version + 1))
    assert f"event=delta_retried target={arrow.sink().name} version=2: " in caplog.text


def test_batch_is_there_once_when_another_publishes_and_clears_it_before_its_files_are_read(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = table.stage(1, [1])
    pending = [output]

    def late(read: Callable[..., Any]) -> Callable[..., Any]:
        def overtaken(*given: Any) -> Any:
            if pending:
                table.sink().publish(pending.pop())
                table.sink().clear(output)
            return read(*given)

        return overtaken

    for name in ("read_rows", "read_spark"):
        monkeypatch.setattr(staged_rows, name, late(getattr(staged_rows, name)))
    table.sink().publish(output)

    assert (pending, table.seen) == ([], [1])


def test_loss_is_told_to_a_publisher_and_to_a_person_who_asks_when_staged_files_are_gone(arrow: Table) -> None:
    arrow.sink().publish(arrow.stage(1, [1]))
    output, other = arrow.stage(2, [2]), arrow.stage(3, [3])
    arrow.sink().drop(output)

    with pytest.raises(StagedFilesLostError, match=rf"of version 2 are gone \(.*/{output.folder}/{MANIFEST}\)"):
        arrow.sink().check_staged(output)
    with pytest.raises(UnprovenError, match=r"of version 2 .* is of another attempt"):
        arrow.sink().check_staged(replace(output, folder=other.folder))
    arrow.sink().check_staged(other)
    with pytest.raises(StagedFilesLostError, match="1 staged files of version 2 are gone"):
        arrow.sink().publish(output)

    assert arrow.seen == [1]


def test_batch_is_left_as_it_is_when_the_script_stages_elsewhere_by_now(arrow: Table, tmp_path: Path) -> None:
    output = arrow.stage(1, [1])

    with pytest.raises(
        TargetError, match=r"version 1 is staged in .*_repairs\.staging', and this job stages in .*elsewhere"
    ):
        arrow.sink(staging=str(tmp_path / "elsewhere")).publish(output)
    arrow.sink().publish(output)
    arrow.sink(staging=str(tmp_path / "elsewhere")).publish(output)

    assert arrow.seen == [1]


def test_nothing_is_published_again_when_it_is_there_and_its_record_was_altered(arrow: Table) -> None:
    output, other = arrow.stage(1, [1]), arrow.stage(2, [2])
    arrow.sink().publish(output)

    arrow.sink().publish(replace(output, folder=other.folder))

    assert arrow.seen == [1]


def test_reason_is_told_when_a_table_cannot_be_looked_at(table: Table) -> None:
    write_deltalake(table.path, pa.table({"id": [1], "kind": ["k1"]}))
    Path(table.path, "_delta_log", f"{0:020d}.json").write_text("not a log")
    if table.spark is not None:
        table.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    with pytest.raises(TargetError, match=r"repairs': .* Check the name, and the rights there"):
        table.stage(2, [2])


@pytest.mark.parametrize("missing", ["valid_to", "valid_from"])
def test_history_is_refused_before_anything_is_staged_when_the_table_lacks_an_end(table: Table, missing: str) -> None:
    columns = {"id": [1], "kind": ["k1"], "valid_from": ["k1"], "valid_to": ["k2"]}
    write_deltalake(table.path, pa.table({name: values for name, values in columns.items() if name != missing}))

    with pytest.raises(TargetSchemaError, match=missing):
        table.stage(1, [2], merge=Merge.of("id", "kind", history=True))

    assert table.staged == []


def test_reason_is_told_at_once_when_the_table_refuses_the_rows(arrow: Table) -> None:
    arrow.sink().publish(arrow.stage(1, [1]))
    output = arrow.stage(2, [2])
    DeltaTable(arrow.path).alter.add_constraint({"first": "id < 2"})

    with pytest.raises(TargetError, match=r"repairs': .* Publishing again is safe") as caught:
        arrow.sink().publish(output)

    assert ("others came between" in str(caught.value), arrow.seen) == (False, [1])


def test_publication_ends_and_may_be_repeated_when_others_commit_each_time(
    arrow: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow.sink().publish(arrow.stage(1, [1]))
    output = arrow.stage(2, [2])

    def refuse(*_: Any, **__: Any) -> None:
        raise CommitFailedError("version 1 is taken.")

    with monkeypatch.context() as patch:
        patch.setattr(table_sink, "TRIES", 2)
        patch.setattr(DeltaTable, "create_write_transaction", refuse)
        with pytest.raises(
            TargetError, match=r"others came between 2 times: version 1 is taken\. Publishing"
        ) as caught:
            arrow.sink().publish(output)
    arrow.sink().publish(output)

    assert (caught.value.target, arrow.seen) == (arrow.sink().name, [1, 2])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (CommitFailedError("version 1 is taken."), "': others came between 2 times: version 1 is taken."),
        (OSError("no right to write."), "': no right to write."),
    ],
    ids=["others", "refused"],
)
def test_reason_is_told_when_a_batch_cannot_be_taken_back(
    arrow: Table, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    output = arrow.stage(1, [1])
    arrow.sink().publish(output)
    taken = Retraction("delta", arrow.sink().name, output.staging, output.job, "e1", 1, 1, SINCE)

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(table_sink, "TRIES", 2)
    monkeypatch.setattr("deltalake.write_deltalake", refuse)
    with pytest.raises(TargetError) as caught:
        arrow.sink().retract(taken)

    assert (caught.value.target, str(caught.value).endswith(message)) == (arrow.sink().name, True)


def test_error_is_not_hidden_when_it_is_none_of_the_connector(arrow: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    output = arrow.stage(1, [1])
    arrow.sink().publish(output)
    taken = Retraction("delta", arrow.sink().name, output.staging, output.job, "e1", 1, 1, SINCE)

    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr("deltalake.write_deltalake", fail)

    with pytest.raises(KeyError, match="a fault"):
        arrow.sink().retract(taken)


# Merges by Spark take seconds, and look at the table as often as appends by Spark do.
LOOKS = [
    pytest.param(engine, look, rules, marks=[pytest.mark.long] if (engine, kind) == ("spark", "merge") else [],
                 id=f"{engine}-{['first', 'second'][look - 1]}-look-{kind}")
    for engine in ENGINES
    for look in (1, 2)
    for kind, rules in (("append", None), ("merge", Merge(("id",), ("kind",))))
]  # fmt: skip


@pytest.mark.parametrize(("table", "read_before", "rules"), LOOKS, indirect=["table"])
def test_first_batch_never_comes_when_it_is_taken_back_after_its_publisher_has_read_it(
    table: Table, monkeypatch: pytest.MonkeyPatch, read_before: int, rules: Merge | None
) -> None:
    """There is no table yet that could record that the batch must not appear."""
    output = table.stage(1, [1, 2], merge=rules)
    taken = Retraction("delta", table.sink().name, output.staging, output.job, "e1", 1, 1, SINCE)
    reads: list[str] = []

    def sleeping(read: Callable[..., Any]) -> Callable[..., Any]:
        def in_memory(*given: Any) -> Any:
            rows = read(*given)
            if table.spark is not None:
                rows = table.spark.createDataFrame(rows.collect(), rows.schema)
            elif isinstance(rows, pa.RecordBatchReader):
                rows = pa.table(rows.read_all()).to_reader()
            reads.append("once")
            if len(reads) == read_before:
                table.sink().retract(taken)
            return rows

        return in_memory

    with monkeypatch.context() as patch:
        for name in ("read_rows", "read_spark"):
            patch.setattr(staged_rows, name, sleeping(getattr(staged_rows, name)))
        patch.setattr(LocalPlace, "copy", sleeping(LocalPlace.copy))
        with suppress(StagedFilesLostError):
            table.sink().publish(output)
    woken = table.seen
    # Version 2 was the decision itself.
    table.sink().publish(table.stage(3, [3], merge=rules))

    assert (len(reads) >= read_before, woken, table.seen) == (True, [], [3])


def test_nothing_is_deleted_when_a_batch_is_taken_back_before_there_is_a_table(arrow: Table) -> None:
    output = arrow.stage(1, [1])
    taken = Retraction("delta", arrow.sink().name, output.staging, output.job, "e1", 1, 1, SINCE)

    assert (arrow.sink().retract(taken), arrow.staged, Path(arrow.path).exists()) == (0, [], False)


def test_batch_is_published_by_what_staged_it_when_there_is_a_session_as_well(arrow: Table) -> None:
    session: Any = SimpleNamespace(conf={})
    output = Table(f"file://{arrow.path}").stage(1, [1])

    found = DeltaSink.of(output, spark=session)

    assert found is not None
    found.check(arrow.frame([1]))


@pytest.mark.parametrize(("action", "named"), RIGHTS)
def test_action_is_named_before_anything_is_staged_when_it_is_not_allowed(
    s3: Any, bucket: str, action: str, named: str
) -> None:
    with refusing(s3, action), pytest.raises(TargetError) as caught:
        staged_by(DeltaSink(f"s3://{bucket}/raw", s3_client=s3), BatchId(JOB, "e1", 1), 7, pd.DataFrame({"id": [1]}))

    assert named.format(bucket=bucket) in str(caught.value)
    assert staged_in(s3, bucket) == []


# --- in a job -------------------------------------------------------------------------------------


def run(watermarks: Watermarks, table: Table, rows: list[int], run_id: str) -> IncrementalJob:
    job = IncrementalJob(watermarks, JOB, run_id, spark=table.spark).__enter__()
    job.write(job.rows_since(table.frame(rows), "id"), table.path, format="delta")
    return job


def test_output_of_spark_waits_for_it_when_the_next_run_begins_without(
    watermarks: Watermarks, spark_with_tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    table = Table(f"{tmp_path}/repairs", spark_with_tables)
    job = run(watermarks, table, [1], "jr_1")
    with monkeypatch.context() as patch:
        patch.setattr(DeltaSink, "publish", die)
        with pytest.raises(KilledError):
            job.commit()

    with IncrementalJob(watermarks, JOB, "jr_2") as later:  # Many scripts pass no session: the frames have it.
        later.write(later.rows_since(table.frame([1, 2]), "id"), table.path, format="delta")

    assert "event=publication_waits" in caplog.text
    assert (table.seen, table.staged) == ([1, 2], [])


def test_retry_keeps_what_was_published_when_the_run_saves_nothing(
    watermarks: Watermarks, arrow: Table, caplog: pytest.LogCaptureFixture
) -> None:
    for rows in ([1, 2], [1, 2, 3]):
        with IncrementalJob(watermarks, JOB, "jr_1", mode="disable") as job:
            job.write(job.rows_since(arrow.frame(rows), "id"), arrow.path, format="delta")

    assert (arrow.seen, arrow.staged) == ([1, 2], [])
    assert "event=kept" in caplog.text


@pytest.mark.parametrize("options", [{"batch_folders": True}, {"beside_others": True}, {"compression": "gzip"}])
def test_option_is_refused_when_it_is_one_of_files(watermarks: Watermarks, arrow: Table, options: Any) -> None:
    with pytest.raises(InvalidValueError, match="takes no option"), IncrementalJob(watermarks, JOB) as job:
        job.write(job.rows_since(arrow.frame([1]), "id"), arrow.path, format="delta", **options)

    assert not Path(arrow.path).exists()
    assert watermarks.latest(JOB).plan is None
