"""Tables of the Data Catalog: excluded files, table formats, and how files are read as rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from scripts.helpers.errors import InvalidValueError, MisfitError, NotOffGlueError
from scripts.helpers.glue import DynamicFrame, GlueContext, Job
from scripts.helpers.reading.fetched_lines import unmarked
from tests.glue.options import ENABLE, Put
from tests.support.reasons import because

Table = Callable[..., str]
HUDI = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
SYMLINKS = "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"


def ids(frame: Any) -> list[Any]:
    return sorted(row["id"] for row in frame.collect())


@pytest.fixture
def lakehouse(spark_with_tables: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> GlueContext:
    """Return a context on a session with the connectors for Delta Lake and Iceberg."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    return GlueContext(spark_with_tables)


def test_files_that_a_crawler_excludes_are_not_read_when_the_table_names_them(
    glue_context: GlueContext, table: Table, put: Put, landing: str
) -> None:
    put("a.json", "tmp/b.json", "c.bak", "d.old")
    excluded = json.dumps([f"{landing}tmp/**", "**.bak"])
    database = table("events", landing, "json", parameters={"exclusions": excluded})

    found = glue_context.create_data_frame.from_catalog(
        database, "events", additional_options={"exclusions": ["**.old"]}
    )

    assert ids(found) == ["a.json"]


def test_exclusions_of_a_table_are_refused_when_they_are_not_a_list(
    glue_context: GlueContext, table: Table, put: Put, landing: str
) -> None:
    put("a.json")
    database = table("events", landing, "json", parameters={"exclusions": '["**.bak"'})

    with pytest.raises(InvalidValueError, check=because("option"), match="'exclusions'"):
        glue_context.create_data_frame.from_catalog(database, "events")


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the location of a Delta table whose second version replaced the rows of the first."""
    folder = tmp_path_factory.mktemp("delta")
    for ids, mode in (([1, 2], "append"), ([3], "overwrite")):
        write_deltalake(folder, pa.table({"id": pa.array(ids, pa.int32())}), mode=mode)  # type: ignore[call-overload]
    return f"file://{folder}/"


@pytest.mark.parametrize("told", ["table_type", "spark.sql.sources.provider", "classification"])
def test_rows_are_those_of_the_last_version_when_the_table_is_one_of_delta(
    told: str, lakehouse: GlueContext, table: Table, delta: str
) -> None:
    kind = {told: "DELTA" if told == "table_type" else "delta"}
    database = table("events", delta, kind.get("classification", "parquet"), parameters=kind)

    found = lakehouse.create_data_frame.from_catalog(database, "events")

    assert ids(found) == [3]


def test_rows_that_a_version_added_are_read_when_a_run_tracks_a_table_of_delta(
    lakehouse: GlueContext, table: Table, tmp_path: Path, landing: str, watermarks: Any
) -> None:
    database = table("events", landing, "delta")
    batches = []
    for number in (1, 2):
        write_deltalake(tmp_path / "landing", pa.table({"id": pa.array([number], pa.int32())}), mode="append")
        job = Job(lakehouse, watermarks)
        job.init("parking", ENABLE)
        frame = lakehouse.create_dynamic_frame.from_catalog(database, "events", transformation_ctx="events")
        batches.append(ids(frame.toDF()))
        job.commit()

    assert batches == [[1], [2]]


@pytest.fixture(scope="module")
def iceberg(spark_with_tables: Any) -> tuple[str, str]:
    """Return the database and the location of an Iceberg table with a deleted row, of which Spark has a catalog."""
    name = "lake.of_iceberg.events"
    spark_with_tables.sql(f"CREATE TABLE {name} (id int) USING iceberg")
    spark_with_tables.sql(f"INSERT INTO {name} VALUES (1), (2)")
    spark_with_tables.sql(f"DELETE FROM {name} WHERE id = 1")
    described = spark_with_tables.sql(f"DESCRIBE EXTENDED {name}").where("col_name = 'Location'").first()
    return "of_iceberg", described["data_type"]


@pytest.fixture
def in_glue(catalog: Any) -> Iterator[Callable[[str, str], None]]:
    """Return a function that registers an Iceberg table at a location in Glue's catalogue until the test ends."""
    made = []

    def register(database: str, location: str) -> None:
        made.append(database)
        catalog.create_database(DatabaseInput={"Name": database})
        storage: Any = {"Location": location, "Columns": []}
        given = {"Name": "events", "StorageDescriptor": storage, "Parameters": {"table_type": "ICEBERG"}}
        catalog.create_table(DatabaseName=database, TableInput=given)

    yield register
    for database in made:
        catalog.delete_table(DatabaseName=database, Name="events")
        catalog.delete_database(Name=database)


def test_rows_are_those_of_the_current_snapshot_when_spark_has_the_table_of_iceberg(
    lakehouse: GlueContext, iceberg: tuple[str, str], in_glue: Callable[[str, str], None]
) -> None:
    in_glue(*iceberg)

    found = lakehouse.create_data_frame.from_catalog(iceberg[0], "events")

    assert ids(found) == [2]


def test_iceberg_table_is_refused_when_spark_has_a_different_table_of_that_name(
    lakehouse: GlueContext, iceberg: tuple[str, str], in_glue: Callable[[str, str], None]
) -> None:
    in_glue(iceberg[0], "s3://lake/elsewhere/")

    with pytest.raises(NotOffGlueError, match="no Iceberg catalog of the Spark session has it"):
        lakehouse.create_data_frame.from_catalog(iceberg[0], "events")


@pytest.mark.parametrize(
    ("storage", "parameters", "kind"),
    [
        ({"InputFormat": HUDI}, {}, "Hudi"),
        ({}, {"spark.sql.sources.provider": "hudi"}, "Hudi"),
        ({"InputFormat": SYMLINKS}, {}, "a symlink manifest"),
    ],
    ids=["input format", "provider", "symlinks"],
)
def test_error_names_the_format_when_the_files_of_a_table_are_not_its_rows(
    storage: dict[str, str],
    parameters: dict[str, str],
    kind: str,
    glue_context: GlueContext,
    catalog: Any,
    table: Table,
    put: Put,
    landing: str,
) -> None:
    put("a.json")
    database = table("other", landing, "parquet")
    catalog.create_table(
        DatabaseName=database,
        TableInput={
            "Name": "events",
            "Parameters": {"classification": "parquet", **parameters},
            "StorageDescriptor": {"Location": landing, "Columns": [], **storage},
        },
    )

    with pytest.raises(NotOffGlueError) as caught:
        glue_context.create_data_frame.from_catalog(database, "events")

    assert f"The format of table '{database}.events', {kind}," in str(caught.value)


@pytest.mark.usefixtures("spark_with_packages")
def test_rows_are_the_elements_of_the_row_tag_when_a_table_of_xml_names_it(
    glue_context: GlueContext, table: Table, put: Put, landing: str
) -> None:
    put("a.xml", body="<bays><bay><id>1</id></bay><bay><id>2</id></bay></bays>")
    database = table("events", landing, "xml", serde={"rowTag": "bay"})

    found = glue_context.create_data_frame.from_catalog(database, "events")

    assert ids(found) == [1, 2]


@pytest.mark.parametrize("is_empty", [False, True])
def test_xml_is_refused_when_nothing_names_its_rows(
    is_empty: bool, glue_context: GlueContext, table: Table, put: Put, landing: str
) -> None:
    put("_a.xml" if is_empty else "a.xml", body="<bays><bay><id>1</id></bay></bays>")
    database = table("events", landing, "xml")

    for read in (
        lambda: glue_context.create_data_frame.from_catalog(database, "events"),
        lambda: glue_context.create_dynamic_frame.from_options("file", {"paths": [landing]}, "xml"),
    ):
        with pytest.raises(InvalidValueError, match="rowTag"):
            read()


def test_sink_is_refused_before_it_writes_when_its_path_is_not_that_of_the_table(
    begin: Callable[..., Job], glue_context: GlueContext, table: Table, landing: str, raw: str, spark: Any, catalog: Any
) -> None:
    begin()
    keys = [{"Name": "m", "Type": "string"}]
    database = table("events", landing, "parquet", PartitionKeys=keys, columns=["id"])
    sink = glue_context.getSink("s3", path=raw, enableUpdateCatalog=True, partitionKeys=["m"])
    sink.setFormat("parquet")
    sink.setCatalogInfo(database, "events")

    with pytest.raises(InvalidValueError, check=because("option"), match="'path'"):
        sink.writeFrame(DynamicFrame.fromDF(spark.createDataFrame([("1", "a")], "id string, m string"), glue_context))

    assert catalog.get_partitions(DatabaseName=database, TableName="events")["Partitions"] == []


LOSING = {
    "text behind a closing quote": b'1,"a"b,c\n',
    "quote that is not closed": b'1,"a,b\nc",d\n',
    "too many values": b"1,a,b,c\n",
    "latin-1": "1,Zo\xeb,b\n".encode("latin-1"),
    "UTF-16": "1,a,b\n".encode("utf-16"),
}
"""Lines of CSV from which Spark reads values that differ from the file's."""
DYNAMIC, DATA = "create_dynamic_frame", "create_data_frame"


def frame_of(context: GlueContext, kind: str, database: str) -> Any:
    """Return a table of the catalogue as a DataFrame, read with the method `kind` of Glue's context."""
    found = getattr(context, kind).from_catalog(database, "events")
    return found.toDF() if kind == DYNAMIC else found


@pytest.mark.parametrize("kind", [DYNAMIC, DATA])
def test_csv_of_a_table_is_refused_when_a_line_would_lose_or_shift_values(
    kind: str, glue_context: GlueContext, table: Table, tmp_path: Path
) -> None:
    outcomes = {}
    for number, (what, body) in enumerate(LOSING.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a.csv").write_text("0,x,y\n")
        (folder / "b.csv").write_bytes(body)
        columns = {"id": "bigint", "name": "string", "note": "string"}
        database = table("events", f"file://{folder}/", "csv", columns=columns)
        try:
            outcomes[what] = str(frame_of(glue_context, kind, database).collect())
        except Exception as error:
            outcomes[what] = type(unmarked(str(error)) or error).__name__

    assert outcomes == dict.fromkeys(LOSING, MisfitError.__name__)


def test_csv_of_a_table_is_refused_when_a_value_does_not_fit_its_column_in_a_data_frame(
    glue_context: GlueContext, table: Table, put: Put, landing: str
) -> None:
    put("a.csv", body="1,a\nx,b\n")
    database = table("events", landing, "csv", columns={"id": "bigint", "name": "string"})

    with pytest.raises(Exception, match="MisfitError") as caught:
        frame_of(glue_context, DATA, database).collect()

    assert getattr(unmarked(str(caught.value)), "column", None) == "id"


@pytest.mark.parametrize("kind", [DYNAMIC, DATA])
def test_last_columns_are_null_when_a_csv_line_has_too_few_values(
    kind: str, glue_context: GlueContext, table: Table, put: Put, landing: str
) -> None:
    put("a.csv", body='1,a\n2,"b,""c""",4\n3\n')
    database = table("events", landing, "csv", columns={"id": "bigint", "name": "string", "n": "bigint"})

    found = frame_of(glue_context, kind, database)

    assert sorted(map(tuple, found.collect())) == [(1, "a", None), (2, 'b,"c"', 4), (3, None, None)]


def test_csv_of_a_table_has_its_own_encoding_when_the_serde_names_it(
    glue_context: GlueContext, table: Table, tmp_path: Path, landing: str
) -> None:
    (tmp_path / "landing" / "month=01").mkdir(parents=True)
    (tmp_path / "landing" / "month=01" / "a.csv").write_bytes("1|Zo\xeb\n".encode("latin-1"))
    serde = {"serialization.encoding": "ISO-8859-1", "field.delim": "|"}
    database = table("events", landing, "csv", columns={"id": "bigint", "name": "string"}, serde=serde)

    found = frame_of(glue_context, DATA, database)

    assert [row.asDict() for row in found.collect()] == [{"id": 1, "name": "Zo\xeb", "month": "01"}]
