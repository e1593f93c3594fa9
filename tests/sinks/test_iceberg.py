"""Iceberg as a target: each committed batch is in the table once, with Spark and without."""

from __future__ import annotations

import logging
import re
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError
from pyiceberg.types import LongType
from pyiceberg.utils.config import Config
from sqlalchemy.exc import OperationalError

from scripts.helpers.errors import (
    InvalidValueError,
    MissingConnectorError,
    StagedFilesLostError,
    TargetError,
    TargetSchemaError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks.choice import Layout, opened, sink_for
from scripts.helpers.sinks.iceberg import IcebergSink, MovedError
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.outputs import branch_of, folder_of, mark_of
from scripts.helpers.sinks.places import LocalPlace, Place, place_of
from scripts.helpers.watermarks import Watermarks
from tests.support import table_formats
from tests.support.blocked_packages import run_without
from tests.support.outputs import output_of
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.steps import KilledError

pytestmark = pytest.mark.if_changed("targets")

JOB = "repairs"
SINCE = datetime(2026, 11, 23, tzinfo=timezone.utc)


class Table:
    """An Iceberg table, a way to write it, and the rows that its readers see."""

    def __init__(self, name: str, spark: Any = None, catalog: Any = None) -> None:
        self.name, self.spark, self.catalog = name, spark, catalog

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink(self.name, spark=self.spark, catalog=self.catalog, **options)

    def frame(self, rows: list[int]) -> Any:
        kinds = [f"k{row % 2}" for row in rows]
        if self.spark is None:
            return pd.DataFrame({"id": rows, "kind": kinds})
        return self.spark.createDataFrame(list(zip(rows, kinds, strict=True)), "id long, kind string")

    def stage(self, version: int, rows: list[int], fence: int = 7, epoch: str = "e1", **options: Any) -> Output:
        return staged_by(self.sink(**options), BatchId(JOB, epoch, version), fence, self.frame(rows))

    def make(self, definition: str, schema: pa.Schema) -> None:
        if self.spark is not None:
            self.spark.sql(f"CREATE TABLE {self.name} ({definition}) USING iceberg")
        else:
            self.catalog.create_table(self.name.partition(".")[2], schema)

    @property
    def seen(self) -> list[int]:
        """The rows that readers see."""
        if self.spark is not None:
            if not self.spark.catalog.tableExists(self.name):
                return []
            self.spark.sql(f"REFRESH TABLE {self.name}")
            return sorted(row.id for row in self.spark.table(self.name).collect())
        try:
            return sorted(self.catalog.load_table(self.name.partition(".")[2]).scan().to_arrow()["id"].to_pylist())
        except NoSuchTableError:
            return []

    @property
    def location(self) -> Path:
        """The location that the table has, or would be given."""
        _, namespace, name = self.name.split(".")
        if self.spark is not None:
            return Path(self.spark.conf.get("spark.sql.catalog.lake.warehouse"), namespace, name)
        return Path(self.catalog.properties["warehouse"].removeprefix("file://"), namespace, name)

    @property
    def places(self) -> list[Place]:
        """The places where files are staged; none with Spark, which stages in the table itself."""
        if self.spark is not None:
            return []
        location = Path(self.catalog.load_table(self.name.partition(".")[2]).location().removeprefix("file://"))
        return [place_of(str(location.parent / f"_{location.name}.staging"), None, None)]

    @property
    def staged(self) -> list[str]:
        """The branches or files that attempts have staged."""
        if self.spark is not None:
            names = [row.name for row in self.spark.sql(f"SELECT name FROM {self.name}.refs").collect()]
            return sorted(name for name in names if name != "main")
        place = Path(self.catalog.load_table(self.name.partition(".")[2]).location().removeprefix("file://"))
        return sorted(path.name for path in (place.parent / f"_{place.name}.staging").rglob("part-*"))


@pytest.fixture
def arrow(tmp_path: Path) -> Table:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("raw")
    return Table("lake.raw.repairs", catalog=catalog)


@pytest.fixture(params=["spark", "pyiceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    if request.param == "pyiceberg":
        return request.getfixturevalue("arrow")
    return Table(f"lake.raw.t{abs(hash(tmp_path))}", request.getfixturevalue("spark_with_tables"))


def die(*_: Any) -> None:
    raise KilledError


def test_rows_are_seen_once_when_many_publish_at_once_and_others_write(table: Table) -> None:
    for version in (1, 2):  # Version 1 is the table's first snapshot, version 2 follows another job's.
        output = table.stage(version, [version])
        other = table.stage(version, [version * 10], epoch="e2")
        todo = [output, output, other, output]
        threads = [threading.Thread(target=table.sink().publish, args=(each,)) for each in todo]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert table.seen == [1, 2, 10, 20]


RENAMED = "': the table that version 2 was staged in is no longer here: it was renamed"


def renamed(table: Table, back: bool = False) -> None:
    """Rename a table, or give it its old name back."""
    elsewhere = table.location.with_name(f"elsewhere_{table.location.name}")
    old, new = (elsewhere, table.location) if back else (table.location, elsewhere)
    if table.spark is None:
        table.catalog.rename_table(f"raw.{old.name}", f"raw.{new.name}")
        return
    # The tests' Spark catalog cannot rename tables. Moving the folder looks the same to a reader.
    shutil.rmtree(new, ignore_errors=True)
    old.rename(new)
    table.spark.sql(f"REFRESH TABLE {table.name}")


def test_batch_waits_and_the_error_says_why_when_its_table_is_renamed_before_the_publication(table: Table) -> None:
    table.sink().publish(table.stage(1, [1]))
    output = table.stage(2, [2])
    renamed(table)

    with pytest.raises(TargetError, match=RENAMED):
        table.sink().publish(output)
    renamed(table, back=True)
    table.sink().publish(output)

    assert table.seen == [1, 2]


def test_error_does_not_speak_of_lost_files_when_another_table_has_the_name_of_a_renamed_one(
    spark_with_tables: Any, tmp_path: Path
) -> None:
    table = Table(f"lake.raw.n{abs(hash(tmp_path))}", spark_with_tables)
    output = table.stage(2, [2])
    renamed(table)
    table.make("id bigint, kind string", pa.schema([]))

    with pytest.raises(TargetError, match=RENAMED) as caught:
        table.sink().publish(output)
    renamed(table, back=True)
    table.sink().publish(output)

    assert not isinstance(caught.value, StagedFilesLostError)
    assert table.seen == [2]


def test_branches_are_found_when_another_session_has_made_them_meanwhile(
    spark_with_tables: Any, tmp_path: Path
) -> None:
    session, name = spark_with_tables.newSession(), f"raw.b{abs(hash(tmp_path))}"
    warehouse = spark_with_tables.conf.get("spark.sql.catalog.lake.warehouse")
    for key, value in table_formats.catalog_conf(warehouse).items():
        session.conf.set(key.replace("catalog.lake", "catalog.own"), value)
    table, elsewhere = Table(f"lake.{name}", spark_with_tables), Table(f"own.{name}", session)

    first = table.stage(1, [1])
    found = [elsewhere.sink().staged(first.job)]
    second = table.stage(2, [2])
    found += [elsewhere.sink().staged(first.job), table.sink().staged(first.job)]

    assert found == [[first.folder], [first.folder, second.folder], [first.folder, second.folder]]


@pytest.mark.parametrize(
    ("columns", "why"), [(["day"], "names 'day', which the rows do not have"), (["kind", "kind"], "names 'kind' twice")]
)
def test_no_table_is_made_when_partition_by_does_not_go_with_the_rows(
    arrow: Table, columns: list[str], why: str
) -> None:
    with pytest.raises(InvalidValueError, match=why):
        arrow.stage(1, [1], partition_by=columns)

    assert arrow.catalog.list_tables("raw") == []


@pytest.mark.parametrize("text", ["x" * 254, "\u00e9" * 50], ids=["long", "long-when-escaped"])
def test_rows_are_refused_before_the_commit_when_no_folder_can_have_the_name_of_their_partition(
    arrow: Table, text: str
) -> None:
    rows = pd.DataFrame({"id": [1, 2], "kind": [text, "k"]})

    with pytest.raises(InvalidValueError, check=because("unfit_partition"), match="'kind': 1 row has a value too long"):
        staged_by(arrow.sink(partition_by=["kind"]), BatchId(JOB, "e1", 1), 7, rows)

    assert arrow.staged == []


def test_loss_is_told_when_what_was_staged_is_gone(table: Table) -> None:
    table.sink().publish(table.stage(1, [1]))
    output = table.stage(2, [2])
    table.sink().drop(output)
    if table.spark is not None:
        table.spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{table.name}', older_than => timestamp'2100-01-01 00:00:00')"
        ).collect()

    with pytest.raises(StagedFilesLostError, match="of version 2 are gone") as caught:
        table.sink().publish(output)

    assert caught.value.target == table.name
    assert table.seen == [1]


def test_loss_is_told_with_the_file_when_one_of_those_staged_is_gone(arrow: Table) -> None:
    output = arrow.stage(1, [1])
    (place,) = arrow.places
    (name,) = [name for name in place.files() if "part-" in name]
    place.delete([name])

    with pytest.raises(StagedFilesLostError, match=rf"of version 1 are gone \(.*/{name}\)"):
        arrow.sink().publish(output)

    assert arrow.seen == []


def having_looked_before(table: Table, output: Output, monkeypatch: pytest.MonkeyPatch) -> IcebergSink:
    """Return a sink whose first look, at the table or its branches, is done now, before anything else is published."""
    sink = table.sink(staging=output.staging or None)
    look = "refs" if table.spark is not None else "table"
    looked, again = [getattr(sink._log, look)()], getattr(sink._log, look)
    monkeypatch.setattr(sink._log, look, lambda: looked.pop() if looked else again())
    return sink


def test_rows_are_seen_once_when_snapshots_expire_before_or_after_clearing(
    spark_with_tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"lake.raw.x{abs(hash(tmp_path))}", spark_with_tables)
    output = table.stage(1, [1])
    has_looked_before = having_looked_before(table, output, monkeypatch)
    table.sink().publish(output)
    spark_with_tables.sql(f"INSERT INTO {table.name} VALUES (2, 'k')")
    expire = f"CALL lake.system.expire_snapshots(table => '{table.name}', older_than => timestamp'2100-01-01 00:00:00')"
    spark_with_tables.sql(expire).collect()

    table.sink().publish(output)
    table.sink().clear(output)
    spark_with_tables.sql(expire).collect()
    has_looked_before.publish(output)

    assert table.seen == [1, 2]


def test_staged_rows_are_published_when_branches_expire_before(spark_with_tables: Any, tmp_path: Path) -> None:
    table = Table(f"lake.raw.e{abs(hash(tmp_path))}", spark_with_tables)
    table.sink().publish(table.stage(1, [1]))
    spark_with_tables.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')")
    output = table.stage(2, [2])
    # Another snapshot moves `main` off the branch's snapshot, and makes the branch older than a millisecond.
    spark_with_tables.sql(f"INSERT INTO {table.name} VALUES (3, 'k')")
    spark_with_tables.sql(
        f"CALL lake.system.expire_snapshots(table => '{table.name}', older_than => timestamp'2100-01-01 00:00:00')"
    ).collect()

    table.sink().publish(output)

    assert table.seen == [1, 2, 3]


def test_column_is_null_when_the_table_got_it_after_the_rows_were_staged(arrow: Table) -> None:
    arrow.sink().publish(arrow.stage(1, [1]))
    output = arrow.stage(2, [2])
    with arrow.catalog.load_table("raw.repairs").update_schema() as update:
        update.add_column("later", LongType())

    arrow.sink().publish(output)

    found = arrow.catalog.load_table("raw.repairs").scan().to_arrow().sort_by("id")
    assert found.select(["id", "later"]).to_pylist() == [{"id": 1, "later": None}, {"id": 2, "later": None}]


def test_values_are_not_left_out_when_their_column_got_another_name_after_they_were_staged(arrow: Table) -> None:
    arrow.sink().publish(arrow.stage(1, [1]))
    output = arrow.stage(2, [2])
    with arrow.catalog.load_table("raw.repairs").update_schema() as update:
        update.rename_column("kind", "sort")

    with pytest.raises(TargetSchemaError, match="the rows lack 'sort'; the table lacks 'kind'"):
        arrow.sink().publish(output)

    assert arrow.seen == [1]


REQUIRED = pa.field("n", pa.int64(), nullable=False)
INNER, STRUCT = pa.struct([("n", pa.int64())]), pa.struct([REQUIRED])
WITHIN: dict[str, tuple[pa.DataType, pa.DataType, list[Any], list[Any], str]] = {
    "field": (STRUCT, INNER, [{"n": 1}], [{"n": None}], "'v.n' has 1 NULL"),
    "element": (pa.list_(REQUIRED), pa.list_(pa.int64()), [[1], None], [[1, None], [None]], "'v.element' has 2 NULLs"),
    "field-of-elements": (
        pa.list_(STRUCT), pa.list_(INNER), [[{"n": 1}], []], [[{"n": None}]], "'v.element.n' has 1 NULL",
    ),
    "field-of-values": (
        pa.map_(pa.string(), STRUCT), pa.map_(pa.string(), INNER),
        [[("a", {"n": 1})], None], [[("a", {"n": 1}), ("b", {"n": None})]], "'v.value.n' has 1 NULL",
    ),
}  # fmt: skip
"""Types of a column in a table and in the rows, values that fit and some that do not, and what the error says."""


@pytest.mark.parametrize("rules", [None, Merge.of("id", "at")], ids=["append", "merge"])
@pytest.mark.parametrize("within", WITHIN)
def test_rows_are_refused_before_the_commit_when_a_required_value_within_a_column_is_missing(
    arrow: Table, within: str, rules: Merge | None
) -> None:
    kind, given, fit, unfit, told = WITHIN[within]
    ids = [("id", pa.int64()), ("at", pa.int64())]
    arrow.make("", pa.schema([*ids, ("v", kind)]))
    sink = arrow.sink() if rules is None else arrow.sink().merging(rules)

    def stage(version: int, values: list[Any]) -> Output:
        numbers = pa.array(range(len(values)), pa.int64())
        rows = pa.table({"id": numbers, "at": numbers, "v": pa.array(values, given)})
        if rules is not None:
            rows = rows.append_column(DELETED, pa.array([False] * len(values)))
        return staged_by(sink, BatchId(JOB, "e1", version), 1, rows)

    with pytest.raises(InvalidValueError, match=re.escape(told)):
        stage(1, [*fit, *unfit])
    sink.publish(stage(1, fit))

    found = arrow.catalog.load_table(arrow.name.partition(".")[2]).scan().to_arrow().sort_by("id")
    assert found["v"].to_pylist() == fit


def test_nothing_is_staged_when_the_rows_have_no_columns(table: Table) -> None:
    """A source without new rows returns such a frame."""
    table.sink().publish(table.stage(1, [1]))
    before, sink = table.staged, table.sink(batch_column="batch", partition_by=["kind"])

    output = staged_by(
        sink, BatchId(JOB, "e1", 2), 7, pd.DataFrame() if table.spark is None else table.frame([2]).select()
    )
    sink.publish(output)
    sink.clear(output)

    assert (output.files, output.bytes, output.rows, table.staged, table.seen) == (0, 0, 0, before, [1])


@pytest.mark.parametrize(
    ("target", "options", "why"),
    [
        ("raw.repairs", {}, "catalog.namespace.table"),
        ("s3://lake/raw.x/a.b.c", {}, "catalog.namespace.table"),
        ("lake.raw.repairs", {"partition_by": "day"}, "list of columns"),
    ],
)
def test_sink_is_refused_when_its_name_makes_no_sense(target: str, options: Any, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        IcebergSink(target, **options)


def test_option_is_refused_when_it_is_one_of_files(arrow: Table) -> None:
    with pytest.raises(InvalidValueError, match="format='iceberg' takes no option 'beside_others'"):
        sink_for("lake.raw.repairs", arrow.frame([1]), Layout("iceberg", beside_others=True), None)


def test_catalog_is_named_when_it_is_another_or_unknown(
    arrow: Table, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidValueError, match=r"Write lake\.raw\.repairs"):
        IcebergSink("lakes.raw.repairs", catalog=arrow.catalog)
    with pytest.raises(InvalidValueError, match="begins with 'nowhere', and pyiceberg has no catalog"):
        IcebergSink("nowhere.raw.repairs").check(arrow.frame([1]))
    with pytest.raises(InvalidValueError, match=r"Set spark\.sql\.catalog\.nowhere"):
        IcebergSink("nowhere.raw.repairs", spark=spark).check(spark.range(1))
    with pytest.raises(TargetError, match=r"^Target 'lake\.nowhere\.repairs': .* Check the name"):
        Table("lake.nowhere.repairs", catalog=arrow.catalog).stage(1, [1])


def test_table_is_named_when_it_is_not_there(arrow: Table) -> None:
    with pytest.raises(TargetError, match=r"^Target 'lake\.raw\.repairs': "):
        arrow.sink().staged("5e8c9902")


def test_reason_is_told_when_the_catalog_cannot_be_reached(arrow: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"no login at {name}.")

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", refuse)

    with pytest.raises(
        TargetError, match=r"^Target 'lake\.raw\.repairs': its catalog cannot be reached: no login at lake\."
    ):
        IcebergSink(arrow.name).check(arrow.frame([1]))


def test_package_is_named_when_it_is_not_installed() -> None:
    code = """
import pandas as pd
from scripts.helpers.sinks.iceberg import IcebergSink
IcebergSink("lake.raw.repairs").check(pd.DataFrame({"id": [1]}))
"""
    done = run_without(["pyiceberg"], code)

    assert "MissingConnectorError" in done.stderr
    assert "format='iceberg'" in done.stderr
    assert "pip install pyiceberg pyarrow" in done.stderr


def test_package_is_named_when_rows_are_merged_without_it() -> None:
    code = """
import pandas as pd
from scripts.helpers.sinks import IcebergSink, Merge
IcebergSink("lake.raw.repairs", merge=Merge.of("id", "at")).check(pd.DataFrame({"id": [1], "at": [1]}))
"""
    done = run_without(["duckdb"], code)

    assert "MissingConnectorError" in done.stderr
    assert "format='iceberg' is not installed. Install it: pip install duckdb pyarrow" in done.stderr


@contextmanager
def loading_with(loader: Any, spark: Any) -> Iterator[IcebergSink]:
    """Let a class loader find the classes of a connector, and yield a sink whose catalog needs one."""
    session, thread = spark.newSession(), spark._jvm.java.lang.Thread.currentThread()
    session.conf.set("spark.sql.catalog.other", "org.example.Catalog")
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(loader)
    try:
        yield IcebergSink("other.raw.repairs", spark=session)
    finally:
        thread.setContextClassLoader(before)


def test_jar_is_named_when_spark_was_started_without(spark: Any) -> None:
    loader = spark._jvm.java.lang.ClassLoader.getSystemClassLoader()
    told = r"format='iceberg' is not .*iceberg-spark-runtime"

    with loading_with(loader, spark) as sink, pytest.raises(MissingConnectorError, match=told):
        sink.check(spark.range(1))


def test_reason_is_told_when_the_jar_does_not_go_with_spark(spark: Any, tmp_path: Path) -> None:
    """The classes are found, but fail when they are initialised."""
    name = "org/apache/iceberg/spark/Spark3Util"
    file = tmp_path / f"{name}.class"
    file.parent.mkdir(parents=True)
    texts = [name, "java/lang/Object", "<clinit>", "()V", "Code"]
    pool = b"".join(struct.pack(">BH", 1, len(text)) + text.encode() for text in texts) + b"\7\0\1\7\0\2"
    throws_null = struct.pack(">HHI2sHH", 1, 0, 2, b"\x01\xbf", 0, 0)
    method = struct.pack(">HHHHHI", 8, 3, 4, 1, 5, len(throws_null)) + throws_null
    start = struct.pack(">IHHH", 0xCAFEBABE, 0, 49, 8)
    file.write_bytes(start + pool + struct.pack(">HHHHHH", 0x21, 6, 7, 0, 0, 1) + method + b"\0\0")
    java = spark._jvm.java
    folders = spark.sparkContext._gateway.new_array(java.net.URL, 1)
    folders[0] = java.net.URL(f"file://{tmp_path}/")
    loader = java.net.URLClassLoader(folders, java.lang.ClassLoader.getSystemClassLoader())
    told = r"format='iceberg' is not installed\. It cannot be loaded: java\.lang\."

    with loading_with(loader, spark) as sink, pytest.raises(MissingConnectorError, match=told):
        sink.check(spark.range(1))


def test_no_folder_is_named_when_rows_without_columns_make_no_table(table: Table) -> None:
    rows = pd.DataFrame() if table.spark is None else table.spark.range(0).drop("id")

    assert table.sink().places(rows) == []


@pytest.mark.parametrize("conf", [{}, {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}])
def test_setting_is_named_when_spark_was_started_without_what_merges(conf: dict[str, str]) -> None:
    session: Any = SimpleNamespace(conf=conf)  # Extensions cannot be removed from a session in use.
    sink = IcebergSink("lake.raw.repairs", spark=session, merge=Merge.of("id", "at"))

    with pytest.raises(
        MissingConnectorError, match=r"format='iceberg' .* To merge rows, set spark\.sql\.extensions=org\."
    ):
        sink.check(SimpleNamespace(sparkSession=session, columns=["id", "at"]))


def test_rows_are_refused_when_they_are_no_frame(arrow: Table) -> None:
    with pytest.raises(InvalidValueError, match=r"'lake\.raw\.repairs' are a list"):
        staged_by(arrow.sink(), BatchId(JOB, "e1", 1), 1, [1, 2])


def test_rows_of_spark_are_refused_when_the_sink_was_made_without(arrow: Table) -> None:
    with pytest.raises(InvalidValueError, match=r"was made for pyiceberg\. Give spark= to the sink for rows of Spark"):
        arrow.sink().check(SimpleNamespace(sparkSession=SimpleNamespace(), columns=["id"]))


def test_type_is_asked_for_when_a_column_of_a_new_table_has_no_value(arrow: Table) -> None:
    with pytest.raises(InvalidValueError, match=r"Column 'kind' has no value .* 'lake\.raw\.repairs' has no type"):
        staged_by(arrow.sink(), BatchId(JOB, "e1", 1), 7, pa.table({"id": [1], "kind": pa.nulls(1)}))

    assert arrow.catalog.list_tables("raw") == []


def test_folder_to_stage_in_is_asked_for_when_the_table_is_a_whole_bucket(
    arrow: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = arrow.sink()
    monkeypatch.setattr(sink._log, "location", lambda: "s3://lake")

    with pytest.raises(InvalidValueError, match=r"'lake\.raw\.repairs' is a whole bucket\. .* staging='s3://"):
        sink.staged("5e8c9902")


def test_column_is_named_when_a_new_table_has_no_type_for_it_on_spark(spark_with_tables: Any, tmp_path: Path) -> None:
    table = Table(f"lake.raw.v{abs(hash(tmp_path))}", spark_with_tables)

    with pytest.raises(InvalidValueError, match=r"Column 'kind' has no value in any row.*Cast it"):
        staged_by(table.sink(), BatchId(JOB, "e1", 1), 7, spark_with_tables.sql("SELECT 1L AS id, NULL AS kind"))

    assert not table.location.exists()


def test_rows_are_counted_once_when_the_first_batch_makes_the_table(
    spark_with_tables: Any, tmp_path: Path, watermarks: Watermarks
) -> None:
    table = Table(f"lake.raw.n{abs(hash(tmp_path))}", spark_with_tables)

    with IncrementalJob(watermarks, "repairs", spark=spark_with_tables) as job:
        job.write(job.rows_since(spark_with_tables.range(0, 50, 1, 4), "id"), table.name, format="iceberg")

    metrics = watermarks.history("repairs")[0].change.metrics
    assert (metrics["rows_collected"], metrics["rows_written"]) == (50, 50)


def test_error_of_the_rows_is_none_of_the_target_when_they_are_staged_in_files(
    spark_with_tables: Any, tmp_path: Path
) -> None:
    table = Table(f"lake.raw.u{abs(hash(tmp_path))}", spark_with_tables)
    rows = spark_with_tables.sql("SELECT 1L AS id, CAST(raise_error('no word') AS bigint) AS at")

    with pytest.raises(Exception, match="no word") as caught:
        staged_by(table.sink(merge=Merge.of("id", "at")), BatchId(JOB, "e1", 1), 7, rows)

    assert not isinstance(caught.value, TargetError)


def test_branch_is_dropped_when_the_last_batch_was_merged_and_one_before_was_appended(
    spark_with_tables: Any, tmp_path: Path
) -> None:
    table = Table(f"lake.raw.m{abs(hash(tmp_path))}", spark_with_tables)
    left = table.stage(1, [1])
    sink = table.sink(staging=str(tmp_path / "staging"), merge=Merge.of("id", "kind"))
    merged = staged_by(sink, BatchId(JOB, "e1", 2), 7, table.frame([2]))
    shown = sink.left_at(left.folder), sink.left_at(merged.folder)

    sink.drop(replace(merged, folder=left.folder))

    assert (table.staged, sink.staged(left.job)) == ([], [merged.folder])
    assert shown[0].startswith("1 row on branch")
    assert " files in file:" in shown[1]


def test_no_table_is_made_when_spark_cannot_tell_whether_it_is_there(
    spark_with_tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"lake.raw.w{abs(hash(tmp_path))}", spark_with_tables)
    sink, rows = table.sink(), table.frame([1])

    def refuse() -> None:
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(sink._log, "table", refuse)
    with pytest.raises(ConnectionError):
        sink.places(rows.select())
    with pytest.raises(ConnectionError):
        staged_by(sink, BatchId(JOB, "e1", 1), 7, rows)

    assert not table.location.exists()


def test_batch_is_there_once_when_another_publishes_between_look_and_commit(
    arrow: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.sinks")
    for version in (1, 2):
        output = arrow.stage(version, [version])
        overtaken: list[str] = []
        original = type(arrow.catalog).commit_table

        def overtake(
            *given: Any, output: Output = output, overtaken: list[str] = overtaken, original: Any = original
        ) -> Any:
            if not overtaken:
                overtaken.append("once")
                arrow.sink().publish(output)
            return original(*given)

        with monkeypatch.context() as patch:
            patch.setattr(type(arrow.catalog), "commit_table", overtake)
            arrow.sink().publish(output)

        assert overtaken
        assert arrow.seen == list(range(1, version + 1))
    assert f"event=iceberg_retried target={arrow.name} version=2: " in caplog.text


def test_batch_is_there_once_when_another_publishes_between_two_looks(
    arrow: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = arrow.stage(1, [1])
    has_looked_before = having_looked_before(arrow, output, monkeypatch)
    arrow.sink().publish(output)

    has_looked_before.publish(output)

    assert arrow.seen == [1]


def test_batch_is_there_once_when_another_publishes_and_clears_it_before_its_files_are_copied(
    arrow: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = arrow.stage(1, [1])
    pending = [output]

    copy = LocalPlace.copy

    def late(*given: Any) -> Any:
        if pending:
            arrow.sink().publish(pending.pop())
            arrow.sink().clear(output)
        return copy(*given)

    monkeypatch.setattr(LocalPlace, "copy", late)
    arrow.sink().publish(output)

    assert (pending, arrow.seen) == ([], [1])


@pytest.mark.parametrize(
    ("refusal", "count", "why"),
    [
        (ForbiddenError("no right to commit."), 1, "no right to commit"),
        (CommitFailedException("main has moved."), 10, "others came between 10 times: main has moved"),
    ],
)
def test_publication_fails_when_the_catalog_refuses_it_for_good_or_each_time(
    arrow: Table, monkeypatch: pytest.MonkeyPatch, refusal: Exception, count: int, why: str
) -> None:
    output = arrow.stage(1, [1])
    tries = []

    def refuse(*_: Any) -> None:
        tries.append("once")
        raise refusal

    with monkeypatch.context() as patch:
        patch.setattr(type(arrow.catalog), "commit_table", refuse)
        with pytest.raises(TargetError, match=rf"^Target 'lake\.raw\.repairs': {why}\. Publishing again is safe"):
            arrow.sink().publish(output)
    arrow.sink().publish(output)

    assert (len(tries), arrow.seen) == (count, [1])


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        (ValueError("no right to commit."), "': no right to commit"),
        (ValueError("CommitFailedException: main has moved."), "others came between 10 times: CommitFailedException"),
        (MovedError("main has moved."), "others came between 10 times: main has moved"),
    ],
)
def test_publication_fails_when_spark_refuses_it_for_good_or_each_time(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, why: str
) -> None:
    def refuse() -> None:
        raise refusal

    transaction: Any = SimpleNamespace(manageSnapshots=refuse)
    session: Any = SimpleNamespace()
    sink = IcebergSink("lake.raw.repairs", spark=session)
    there = SimpleNamespace(properties=dict, newTransaction=lambda: transaction)
    output = output_of(sink.name, sink="iceberg", rows=1, engine="spark")
    ref = SimpleNamespace(snapshotId=lambda: 1)
    there.refs = lambda: {branch_of(output.folder): ref}
    there.snapshot = lambda _: ref
    monkeypatch.setattr(sink._log, "table", lambda: there)

    with pytest.raises(TargetError, match=f"{why}.*Publishing again is safe"):
        sink.publish(output)


def test_batch_is_not_published_when_another_engine_has_staged_it(arrow: Table) -> None:
    output = replace(arrow.stage(1, [1]), engine="spark")

    with pytest.raises(
        TargetError, match=r"repairs': version 1 was staged with spark, and is published by it only, not by pyiceberg"
    ):
        arrow.sink().publish(output)

    assert arrow.seen == []


def test_error_is_not_hidden_when_it_is_none_of_the_connector(arrow: Table, tmp_path: Path) -> None:
    output = arrow.stage(1, [1])
    arrow.catalog.close()
    (tmp_path / "catalog.db").unlink()

    with pytest.raises(OperationalError, match="no such table"):
        arrow.sink().staged(output.job)
    with pytest.raises(OperationalError, match="no such table"):
        arrow.stage(2, [2])


def test_batch_is_published_without_its_script_when_pyiceberg_finds_the_catalog(
    arrow: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = arrow.stage(1, [1])
    unknown = IcebergSink.of(output)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())

    found = opened(output, None, None)
    assert found is not None
    found.publish(output)

    assert (unknown, IcebergSink.of(replace(output, engine="spark")), arrow.seen) == (None, None, [1])


def test_batch_is_published_without_its_script_when_spark_has_staged_it(spark_with_tables: Any, tmp_path: Path) -> None:
    table = Table(f"lake.raw.s{abs(hash(tmp_path))}", spark_with_tables)
    output = table.stage(1, [1])

    found = IcebergSink.of(output, spark=spark_with_tables)
    assert found is not None
    found.publish(output)

    assert table.seen == [1]


def looked_at(table: Table, output: Output) -> Callable[[], None]:
    """Return a function that restores the staged files, as if a publisher had read them before their deletion."""
    read = {name: place.read(name) for place in table.places for name in place.files(output.folder)}

    def put_back() -> None:
        for place in table.places:
            for name, data in read.items():
                place.write(name, data or b"")

    return put_back


def test_batch_never_comes_when_its_publisher_wakes_up_after_it_was_taken_back(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table.sink().publish(table.stage(1, [1]))
    output = table.stage(2, [2])
    put_back = looked_at(table, output)
    log: Any = table.sink()._log
    refs = log.refs() if table.spark is not None else None
    looks = [having_looked_before(table, output, monkeypatch) for _ in range(2)]
    taken = Retraction("iceberg", table.name, output.staging, output.job, "e1", 2, 2, SINCE)

    table.sink().retract(taken)
    # Version 3 was the decision itself.
    later = table.stage(4, [4])
    table.sink().retract(taken)
    said = caplog.text
    put_back()
    table.sink().publish(output)
    for has_looked_before, is_kept in zip(looks, (False, True), strict=True):
        if refs is not None:
            monkeypatch.setattr(has_looked_before._log, "recorded", lambda _: 1)
            monkeypatch.setattr(has_looked_before._log, "refs", lambda: refs)
        has_looked_before.publish(replace(output, replaces=is_kept))
    retracted = table.seen
    table.sink().publish(later)

    assert ("retraction_left" in said, retracted, table.seen) == (False, [1], [1, 4])


def before_commit(number: int, do: Callable[[], None], catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `do` before the n-th commit to a catalog, between look and commit."""
    commit = type(catalog).commit_table
    left = [number]

    def late(*given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            do()
        return commit(*given)

    monkeypatch.setattr(type(catalog), "commit_table", late)


def test_rows_that_stay_are_told_when_they_are_published_between_look_and_decision(
    arrow: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    output = arrow.stage(1, [1])
    taken = Retraction("iceberg", arrow.name, output.staging, output.job, "e1", 1, 1, SINCE)
    put_back = looked_at(arrow, output)

    def late() -> None:
        put_back()
        arrow.sink().publish(output)

    before_commit(1, late, arrow.catalog, monkeypatch)

    with pytest.raises(TargetError):
        arrow.sink().retract(taken)
    arrow.sink().retract(taken)

    assert (arrow.seen, f"event=retraction_left target={arrow.name} versions=1-1" in caplog.text) == ([1], True)


def test_rows_of_others_are_not_counted_when_they_come_between_look_and_delete(
    arrow: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = arrow.stage(1, [1], batch_column="batch")
    arrow.sink().publish(output)
    other = arrow.stage(1, [8, 9], epoch="e2", batch_column="batch")
    taken = Retraction("iceberg", arrow.name, output.staging, output.job, "e1", 1, 1, SINCE, batch_column="batch")
    before_commit(2, lambda: arrow.sink().publish(other), arrow.catalog, monkeypatch)

    with pytest.raises(TargetError):
        arrow.sink().retract(taken)

    assert (arrow.sink().retract(taken), arrow.seen) == (1, [8, 9])


def test_table_has_no_new_snapshot_and_nothing_is_warned_of_when_a_decision_is_carried_out_again(
    arrow: Table, recwarn: pytest.WarningsRecorder
) -> None:
    output = arrow.stage(1, [1], batch_column="batch")
    taken = Retraction("iceberg", arrow.name, output.staging, output.job, "e1", 1, 1, SINCE, batch_column="batch")
    deleted, snapshots = [], []

    for _ in range(2):
        deleted.append(arrow.sink().retract(taken))
        snapshots.append(len(arrow.catalog.load_table("raw.repairs").snapshots()))

    assert (deleted, snapshots) == ([0, 0], [1, 1])
    assert [str(one.message) for one in recwarn if "Delete operation" in str(one.message)] == []


def test_nothing_is_taken_back_when_the_catalog_does_not_tell_what_is_published(
    arrow: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = arrow.stage(1, [1])
    taken = Retraction("iceberg", arrow.name, output.staging, output.job, "e1", 1, 1, SINCE)

    def refuse(*_: Any) -> None:
        raise ForbiddenError("no right to look.")

    with monkeypatch.context() as patch:
        patch.setattr(type(arrow.catalog), "load_table", refuse)
        with pytest.raises(TargetError, match=r"repairs': no right to look\.$"):
            arrow.sink().retract(taken)

    assert len(arrow.staged) == 1


def test_nothing_is_said_to_stay_when_the_rows_were_deleted_before(
    arrow: Table, caplog: pytest.LogCaptureFixture
) -> None:
    output = arrow.stage(1, [1], batch_column="batch")
    arrow.sink().publish(output)
    arrow.catalog.load_table("raw.repairs").delete("id = 1")
    taken = Retraction("iceberg", arrow.name, output.staging, output.job, "e1", 1, 1, SINCE, batch_column="batch")

    assert (arrow.sink().retract(taken), "retraction_left" in caplog.text) == (0, False)


def test_published_rows_go_when_the_script_has_cached_the_table(spark_with_tables: Any, tmp_path: Path) -> None:
    table = Table(f"lake.raw.c{abs(hash(tmp_path))}", spark_with_tables)
    outputs = [table.stage(version, [version], batch_column="a `batch`") for version in (1, 2)]
    spark_with_tables.sql(f"CACHE TABLE {table.name}")
    spark_with_tables.sql(f"REFRESH TABLE {table.name}")
    taken = Retraction("iceberg", table.name, "", outputs[0].job, "e1", 2, 2, SINCE, batch_column="a `batch`")
    counts = [table.sink().retract(replace(taken, epoch="e0"))]
    for output in outputs:
        table.sink().publish(output)

    counts += [table.sink().retract(taken) for _ in range(2)]

    spark_with_tables.sql(f"UNCACHE TABLE {table.name}")
    assert (counts, table.seen) == ([0, 1, 0], [1])


def test_branch_is_dropped_once_when_another_drops_it_after_the_look(
    spark_with_tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"lake.raw.d{abs(hash(tmp_path))}", spark_with_tables)
    output, sink = table.stage(1, [1]), table.sink()
    looked: Any = dict.fromkeys(table.staged)
    monkeypatch.setattr(sink._log, "refs", lambda: looked)

    sink.drop(output)
    sink.drop(output)

    assert (len(looked), table.staged) == (1, [])
    spark_with_tables.sql(f"DROP TABLE {table.name}")
    with pytest.raises(TargetError, match=f"^Target '{table.name}': "):
        sink.drop(output)


@pytest.mark.parametrize("name", ["spark.wap.id", "spark.wap.branch"])
def test_nothing_is_staged_or_deleted_when_spark_would_put_it_aside(
    spark_with_tables: Any, tmp_path: Path, name: str
) -> None:
    table = Table(f"lake.raw.a{abs(hash(tmp_path))}", spark_with_tables.newSession())
    for key, value in table_formats.catalog_conf(
        spark_with_tables.conf.get("spark.sql.catalog.lake.warehouse")
    ).items():
        table.spark.conf.set(key, value)
    table.spark.sql(
        f"CREATE TABLE {table.name} (id bigint, kind string, batch_id string) USING iceberg "
        "TBLPROPERTIES ('write.wap.enabled' = 'TRUE')"
    )
    sink = table.sink(batch_column="batch_id")
    output = staged_by(sink, BatchId(JOB, "e1", 1), 7, table.frame([1]))
    sink.publish(output)
    table.spark.conf.set(name, "audit")

    with pytest.raises(TargetError, match=f"^Target '{table.name}': .* Unset {name}"):
        staged_by(sink, BatchId(JOB, "e1", 2), 7, table.frame([2]))
    with pytest.raises(TargetError, match=f"^Target '{table.name}': .* Unset {name}"):
        sink.retract(Retraction("iceberg", table.name, "", output.job, "e1", 1, 1, SINCE, "batch_id"))

    table.spark.conf.unset(name)
    assert (table.seen, table.staged) == ([1], [])


def test_decision_is_carried_out_when_the_table_was_dropped_before(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise no run could start any more: each one first deletes what was taken back."""
    output = table.stage(1, [1], batch_column="batch")
    places = table.places
    table.sink().publish(output)
    later = table.stage(2, [2], batch_column="batch")
    if table.spark is None:
        table.catalog.drop_table("raw.repairs")
    else:
        table.spark.sql(f"DROP TABLE {table.name}")
    taken = Retraction("iceberg", table.name, later.staging, later.job, "e1", 1, 2, SINCE, batch_column="batch")

    assert table.sink().retract(taken) == 0

    assert f"event=retraction_left target={table.name} versions=1-2: there is no such table" in caplog.text
    assert [name for place in places for name in place.files()] == []


def test_staged_files_go_when_spark_finds_no_table(spark_with_tables: Any, tmp_path: Path) -> None:
    """These are the files of a merge, for which Spark stages files; other batches are staged in the table."""
    table, place = Table(f"lake.raw.g{abs(hash(tmp_path))}", spark_with_tables), place_of(str(tmp_path), None, None)
    place.write(f"{folder_of(BatchId(JOB, 'e1', 1), 7, '0a1b2c3d')}/part-0.parquet", b"x")

    table.sink().retract(Retraction("iceberg", table.name, str(tmp_path), mark_of(JOB), "e1", 1, 1, SINCE))

    assert place.files() == {}


# --- in a job -------------------------------------------------------------------------------------


def run(watermarks: Watermarks, table: Table, rows: list[int], run_id: str, **options: Any) -> IncrementalJob:
    job = IncrementalJob(watermarks, JOB, run_id, spark=table.spark, **options).__enter__()
    taken = job.rows_since(table.frame(rows), "id")
    if table.spark is not None:
        job.write(taken, table.name, format="iceberg")
    else:
        job.write(taken, table.sink())
    return job


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    ("source", "reason"),
    [("link", "is below the source"), ("data/../landing", "the source .* is below it")],
)
def test_write_is_refused_when_source_and_table_lie_within_each_other(
    watermarks: Watermarks, table: Table, tmp_path: Path, source: str, reason: str, is_there: bool
) -> None:
    place = table.location
    if is_there:
        table.make("id bigint, kind string", pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    (place / "landing").mkdir(parents=True)
    (tmp_path / "link").symlink_to(place.parent)
    before = sorted(place.rglob("*"))

    with pytest.raises(TargetError, match=reason), IncrementalJob(watermarks, JOB, "jr_1", spark=table.spark) as job:
        job.new_files(str(tmp_path / "link" if source == "link" else f"{place}/{source}"))
        job.write(table.frame([1]), table.sink())

    assert sorted(place.rglob("*")) == before
    assert watermarks.latest(JOB).plan is None


@pytest.mark.parametrize("is_staged", [True, False])
def test_write_is_refused_when_other_folders_of_the_table_lie_below_a_source(
    watermarks: Watermarks, arrow: Table, tmp_path: Path, is_staged: bool
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    elsewhere = f"file://{landing}/elsewhere"
    properties = {} if is_staged else {"write.data.path": elsewhere}
    schema = pa.schema([("id", pa.int64()), ("kind", pa.string())])
    arrow.catalog.create_table("raw.repairs", schema, properties=properties)

    with pytest.raises(TargetError, match="it is below the source"):
        with IncrementalJob(watermarks, JOB, "jr_1") as job:
            job.new_files(str(landing))
            job.write(arrow.frame([1]), arrow.sink(staging=elsewhere if is_staged else None))

    assert list(landing.iterdir()) == []


def test_table_is_written_when_a_source_of_files_lies_elsewhere(
    watermarks: Watermarks, table: Table, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()

    for number in (1, 2):
        with IncrementalJob(watermarks, JOB, f"jr_{number}", spark=table.spark) as job:
            job.new_files(str(tmp_path / "landing"))
            job.write(table.frame([number]), table.sink())

    assert table.seen == [1, 2]


def test_rows_are_there_once_when_a_run_dies_before_it_clears_what_it_has_published(
    watermarks: Watermarks, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(watermarks, table, [1, 2], "jr_1")
    with monkeypatch.context() as patch:
        patch.setattr(IcebergSink, "clear", die)
        with pytest.raises(KilledError):
            job.commit()
    run(watermarks, table, [1, 2, 3], "jr_2").__exit__(None, None, None)

    assert (table.seen, table.staged) == ([1, 2, 3], [])
    assert watermarks.latest(JOB).unpublished == ()


def test_retry_keeps_what_was_published_when_the_run_saves_nothing(
    watermarks: Watermarks, arrow: Table, caplog: pytest.LogCaptureFixture
) -> None:
    for rows in ([1, 2], [1, 2, 3]):
        run(watermarks, arrow, rows, "jr_1", mode="disable").__exit__(None, None, None)

    assert (arrow.seen, arrow.staged) == ([1, 2], [])
    assert "event=kept" in caplog.text
