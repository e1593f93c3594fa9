"""Tables of the Data Catalog: only registered partitions are read, with the catalogue's values and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError

from scripts.helpers.errors import InvalidValueError, NotOffGlueError, SourceError
from scripts.helpers.glue import GlueContext, Job
from scripts.helpers.glue.catalog import Catalog, CatalogTable, Partitions, _csv_options
from scripts.helpers.glue.connection_options import MAX_PARTITIONS, FoldersToRead
from scripts.helpers.glue.context import _limited_to_partitions
from tests.glue.options import Put
from tests.support.reasons import because

Begin = Callable[..., Job]
MONTH = [{"Name": "Month", "Type": "string"}]


@pytest.fixture
def register(catalog: Any) -> Callable[..., None]:
    """Return a function that registers a folder as a partition of the table ``events``."""

    def add(database: str, folder: str, *values: str) -> None:
        given = {"Values": list(values), "StorageDescriptor": {"Location": folder}}
        catalog.create_partition(DatabaseName=database, TableName="events", PartitionInput=given)

    return add


@pytest.fixture
def ansi_mode(spark: Any) -> Iterator[Callable[[str], None]]:
    """Return a function that turns ANSI mode on or off for a test. In Spark 4 it is on by default."""
    yield lambda is_on: spark.conf.set("spark.sql.ansi.enabled", is_on)
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.fixture
def take(begin: Begin, glue_context: GlueContext) -> Callable[..., list[tuple[Any, ...]]]:
    """Return a function that runs the job once over the table and returns the rows."""

    def run(database: str, **options: Any) -> list[tuple[Any, ...]]:
        job = begin()
        df = glue_context.create_data_frame.from_catalog(
            database=database, table_name="events", transformation_ctx="events", additional_options=options
        )
        rows = [(row["id"], row["Month"]) for row in df.collect()] if df.columns else []
        job.commit()
        return sorted(rows)

    return run


def test_keys_have_the_values_and_types_of_the_catalogue_when_folders_are_of_any_name(
    take: Any, table: Any, register: Any, put: Put, landing: str, spark: Any
) -> None:
    database = table("events", landing, "json", PartitionKeys=MONTH)
    for folder, value in (("month=04", "04"), ("2017/05", "05"), ("month=6", "06")):
        put(f"{folder}/{value}", body=f'{{"id": "{value}"}}')
        register(database, f"{landing}{folder}/", value)

    rows = take(database)

    assert rows == [("04", "04"), ("05", "05"), ("06", "06")]
    assert spark.conf.get("spark.sql.sources.partitionColumnTypeInference.enabled") == "true"


def test_files_of_a_folder_are_new_when_it_is_registered_later(
    take: Any, table: Any, register: Any, put: Put, landing: str
) -> None:
    database = table("events", landing, "json", PartitionKeys=MONTH)
    for month in ("04", "05"):
        put(f"month={month}/a", body=f'{{"id": "{month}"}}')
    batches = []
    for month in ("04", "05"):
        register(database, f"{landing}month={month}/", month)
        batches.append(take(database))

    assert batches == [[("04", "04")], [("05", "05")]]


def test_partition_elsewhere_is_refused_before_anything_is_read(
    take: Any, table: Any, register: Any, landing: str, raw: str
) -> None:
    database = table("events", landing, "json", PartitionKeys=MONTH)
    register(database, f"{raw}month=04/", "04")

    with pytest.raises(SourceError, match="a partition lies outside of the table's location"):
        take(database)


def test_paths_are_refused_when_a_table_has_partitions(take: Any, table: Any, landing: str) -> None:
    database = table("events", landing, "json", PartitionKeys=MONTH)

    with pytest.raises(
        InvalidValueError,
        check=because("option"),
        match="'paths' does not go with partition keys: files of other partitions",
    ):
        take(database, paths=[landing])


def test_partitions_are_not_picked_when_there_are_too_many(caplog: pytest.LogCaptureFixture) -> None:
    many = Partitions("db.events", [("day", "int")], {f"day={day}/": (str(day),) for day in range(MAX_PARTITIONS + 1)})
    request = FoldersToRead((("s3://b/", {}),), {})

    with pytest.raises(InvalidValueError, check=because("option"), match="leaves 2,001 partitions; the limit is 2,000"):
        _limited_to_partitions(request, many, {}, has_predicate=True)

    assert _limited_to_partitions(request, many, {}, has_predicate=False) is request
    assert "event=partitions_not_checked table=db.events partitions=2001" in caplog.text


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("month=04/a", None),
        ("month=04/deep/a", None),
        ("month=4%3A5/a", None),
        ("month=04/deep=1/a", None),
        ("month=04/x/deep=1/a", ("04",)),
        ("month=05/a", ("5",)),
        ("2017/a", ("2017",)),
        ("month=99/a", None),
    ],
)
def test_values_come_from_the_catalogue_when_spark_would_not_read_the_same(
    key: str, values: tuple[str, ...] | None
) -> None:
    found = {"month=04/": ("04",), "month=4%3A5/": ("4:5",), "month=05/": ("5",), "2017/": ("2017",)}

    assert Partitions("db.events", [("Month", "string")], found).values_of(key) == values


def test_error_names_the_file_when_it_is_in_no_partition() -> None:
    with pytest.raises(
        SourceError, match=r"file '2018/a' is not in a partition of the catalogue\. Register its folder"
    ):
        Partitions("db.events", [("month", "string")], {"2017/": ("2017",)}).values_of("2018/a")


@pytest.mark.parametrize(
    ("library", "serde", "table_has", "options"),
    [
        ("LazySimpleSerDe", {}, {}, {"separator": "\x01"}),
        ("LazySimpleSerDe", {}, {"delimiter": ";"}, {"separator": ";"}),
        ("OpenCSVSerde", {"escapeChar": "!", "quoteChar": "'"}, {}, {"escaper": "!", "quoteChar": "'"}),
        ("", {"skip.header.line.count": "1"}, {}, {"withHeader": True}),
        ("", {"skip.header.line.count": "0"}, {"skip.header.line.count": "1"}, {}),
    ],
)
def test_csv_is_read_as_the_table_says_when_it_is_in_the_catalogue(
    library: str, serde: dict[str, str], table_has: dict[str, str], options: dict[str, Any]
) -> None:
    assert _csv_options(library, serde, table_has) == options


def test_table_is_refused_when_it_has_more_than_one_line_of_header() -> None:
    with pytest.raises(
        InvalidValueError, check=because("option"), match=r"'skip\.header\.line\.count' is '2' in the catalogue"
    ):
        _csv_options("", {"skip.header.line.count": "2"}, {})


def test_all_tables_are_named_when_a_database_has_more_than_a_page(glue_context: GlueContext, catalog: Any) -> None:
    catalog.create_database(DatabaseInput={"Name": "named"})
    names = [f"table_{number:03}" for number in range(101)]
    for name in names:
        catalog.create_table(DatabaseName="named", TableInput={"Name": name})

    assert sorted(glue_context.tableNames(dbName="named")) == names
    with pytest.raises(SourceError, match="get_tables of the Glue catalogue says EntityNotFoundException"):
        glue_context.tableNames()


@pytest.mark.parametrize(
    ("url", "vendor", "server"),
    [
        ("jdbc:postgresql://db:5432/shop?ssl=true", "postgresql", "jdbc:postgresql://db:5432"),
        ("jdbc:mysql://db/shop", "mysql", "jdbc:mysql://db"),
        ("jdbc:sqlserver://db:1433;databaseName=shop", "sqlserver", "jdbc:sqlserver://db:1433"),
        ("jdbc:oracle:thin://@db:1521/shop", "oracle", "jdbc:oracle:thin://@db:1521"),
    ],
)
def test_vendor_and_server_are_returned_when_a_script_extracts_a_connection(
    url: str, vendor: str, server: str, glue_context: GlueContext, catalog: Any
) -> None:
    login = {"JDBC_CONNECTION_URL": url, "USERNAME": "ann", "PASSWORD": "not-a-secret"}
    catalog.create_connection(
        ConnectionInput={"Name": f"of {vendor}", "ConnectionType": "JDBC", "ConnectionProperties": login}
    )

    assert glue_context.extract_jdbc_conf(f"of {vendor}") == {
        "user": "ann", "password": "not-a-secret", "vendor": vendor, "url": server, "fullUrl": url,
    }  # fmt: skip


def test_connection_is_refused_when_its_url_names_no_server(glue_context: GlueContext, catalog: Any) -> None:
    catalog.create_connection(
        ConnectionInput={
            "Name": "serverless", "ConnectionType": "JDBC", "ConnectionProperties": {"JDBC_CONNECTION_URL": "jdbc:x"},
        }
    )  # fmt: skip

    with pytest.raises(
        InvalidValueError, check=because("option"), match="'serverless', whose JDBC URL names no server"
    ):
        glue_context.extract_jdbc_conf("serverless")


# --- what the catalogue answers ------------------------------------------------------------------------------------


class Answers:
    """A client of the catalogue that returns or raises the given answers in turn and keeps the requests."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answers = iter(answers)

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def answer(**request: Any) -> Any:
            self.asked.append(request)
            found = next(self._answers)
            if isinstance(found, Exception):
                raise found
            return found

        return answer


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Catalog]:
    """Return a function that makes a catalogue whose client returns the given answers."""

    def make(*answers: Any) -> Catalog:
        client = Answers(*answers)
        monkeypatch.setattr("boto3.client", lambda _: client)
        return Catalog()

    return make


@pytest.mark.parametrize(
    ("location", "kind", "error", "text"),
    [
        ("s3://b/a/", "ion", NotOffGlueError,
         "The format of table 'db.events' is Glue's own and not here. Read it with spark.table or with Spark's reader"),
        ("", "json", SourceError, "Source 'db.events': the catalogue gives no location for it. Fix the table"),
    ],
    ids=["format", "location"],
)  # fmt: skip
def test_table_is_refused_when_the_catalogue_does_not_say_how_to_read_it(
    location: str, kind: str, error: Any, text: str, answering: Callable[..., Catalog]
) -> None:
    catalog = answering(
        {"Table": {"StorageDescriptor": {"Location": location}, "Parameters": {"classification": kind}}}
    )

    with pytest.raises(error) as caught:
        catalog.table("db", "events")

    assert str(caught.value) == f"{text}."


def test_tables_of_all_pages_are_named_when_the_catalogue_answers_in_pages(answering: Callable[..., Catalog]) -> None:
    catalog = answering({"TableList": [{"Name": "a"}], "NextToken": "more"}, {"TableList": [{"Name": "b"}]})

    assert catalog.table_names("db") == ["a", "b"]
    assert catalog._client.asked == [{"DatabaseName": "db"}, {"DatabaseName": "db", "NextToken": "more"}]


def test_partitions_of_all_pages_are_found_when_the_catalogue_answers_in_pages(
    answering: Callable[..., Catalog],
) -> None:
    def page(month: str) -> dict[str, Any]:
        return {"Partitions": [{"Values": [month], "StorageDescriptor": {"Location": f"s3://b/{month}/"}}]}

    catalog = answering({**page("04"), "NextToken": "more"}, page("05"))

    found = list(catalog._partitions("db", "events", "month > '03'"))

    asked = {"DatabaseName": "db", "TableName": "events", "Expression": "month > '03'"}
    assert found == [("04", "s3://b/04/"), ("05", "s3://b/05/")]
    assert catalog._client.asked == [asked, {**asked, "NextToken": "more"}]


def test_table_is_not_reported_as_missing_when_access_is_denied(answering: Callable[..., Catalog]) -> None:
    catalog = answering(ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetTable"))

    with pytest.raises(SourceError) as caught:
        catalog.described("db", "events")

    assert str(caught.value) == (
        "Source 'db.events': get_table of the Glue catalogue says AccessDeniedException. Check name and rights."
    )


@pytest.mark.parametrize("error", [EndpointConnectionError(endpoint_url="http://x"), NoCredentialsError()], ids=repr)
def test_region_and_credentials_are_named_when_the_catalogue_does_not_answer(
    error: BotoCoreError, answering: Callable[..., Catalog]
) -> None:
    catalog = answering(error)

    with pytest.raises(SourceError) as caught:
        catalog.check_database("db")

    assert str(caught.value) == (
        f"Source 'db': the Glue catalogue cannot be asked ({type(error).__name__}). Check region and credentials."
    )


def test_partition_is_named_when_the_catalogue_refuses_it(answering: Callable[..., Catalog]) -> None:
    refused = [
        {"PartitionValues": [month], "ErrorDetail": {"ErrorCode": code}}
        for month, code in (("04", "AlreadyExistsException"), ("05", "ResourceNumberLimitExceededException"))
    ]
    catalog = answering({"Errors": refused})

    with pytest.raises(SourceError) as caught:
        catalog.add_partitions("db", "events", [{"Values": ["04"]}, {"Values": ["05"]}])

    assert str(caught.value) == (
        "Source 'db.events': partition ['05'] was refused: ResourceNumberLimitExceededException."
    )


def test_table_of_a_database_is_refused_when_it_names_no_connection(glue_context: GlueContext, table: Any) -> None:
    database = table("events", "shop.public.events", "postgresql")

    with pytest.raises(SourceError) as caught:
        glue_context.create_dynamic_frame.from_catalog(database, "events")

    assert str(caught.value) == (
        "Source 'JDBC': the table names no connection. Use from_options with url, user and password."
    )


def test_predicate_is_refused_when_the_table_has_no_partition_keys(
    glue_context: GlueContext, table: Any, landing: str
) -> None:
    database = table("events", landing, "json")

    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        glue_context.create_dynamic_frame.from_catalog(database, "events", push_down_predicate="month = '04'")

    assert str(caught.value) == (
        f"Option 'push_down_predicate' is given, but '{database}.events' has no partition keys."
    )


@pytest.mark.parametrize("predicate", ["id = 4", "gone = 4", "day = = 4"])
def test_predicate_is_refused_with_the_keys_when_spark_cannot_read_it(
    predicate: str, glue_context: GlueContext, table: Any, register: Any, landing: str
) -> None:
    database = table("events", landing, "json", columns=["id"], PartitionKeys=[{"Name": "day", "Type": "int"}])
    register(database, f"{landing}day=4/", "4")

    with pytest.raises(
        InvalidValueError, check=because("option"), match=r"'push_down_predicate' is refused by Spark: .* keys: day\."
    ) as caught:
        glue_context.create_dynamic_frame.from_catalog(database, "events", push_down_predicate=predicate)

    assert "a place" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"boundedFiles": "2"}], ids=["all", "limited"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_columns_and_keys_have_their_types_when_a_table_has_no_new_files(
    ansi: str, options: Any, glue_context: GlueContext, table: Any, landing: str, ansi_mode: Callable[[str], None]
) -> None:
    keys = [{"Name": "day", "Type": "date"}, {"Name": "no", "Type": "int"}]
    database = table("events", landing, "csv", columns=["id"], PartitionKeys=keys)

    ansi_mode(ansi)

    df = glue_context.create_data_frame.from_catalog(database, "events", additional_options=options)

    assert df.dtypes == [("id", "string"), ("day", "date"), ("no", "int")]
    assert df.collect() == []


@pytest.mark.parametrize(
    "kind",
    [
        "int) AS day, CAST(1 AS int",
        "int) + (SELECT 1",
        "int) + length(java_method('java.lang.System', 'lineSeparator')",
    ],
    ids=["columns", "query", "method of Java"],
)
def test_type_of_a_partition_key_is_refused_when_it_holds_sql(
    kind: str, glue_context: GlueContext, table: Any, register: Any, landing: str
) -> None:
    database = table("events", landing, "json", PartitionKeys=[{"Name": "day", "Type": kind}])
    register(database, f"{landing}day=4/", "4")

    with pytest.raises(InvalidValueError, match="is not the name of a type"):
        glue_context.create_dynamic_frame.from_catalog(database, "events", push_down_predicate="day = 4")


def test_partitions_are_chosen_by_a_key_when_its_name_holds_quotes(
    spark: Any, table: Any, register: Any, landing: str
) -> None:
    keys = [{"Name": "day` string, `more", "Type": "int"}]
    database = table("events", landing, "json", PartitionKeys=keys)
    for day in ("4", "5"):
        register(database, f"{landing}day={day}/", day)

    found = Catalog().partitions(spark, Catalog().table(database, "events"), "`day`` string, ``more` = 4")

    assert found.values == {"day=4/": ("4",)}


def test_csv_column_stays_one_column_when_its_name_holds_quotes() -> None:
    table = CatalogTable("db.events", "s3://b/", "csv", columns=[("id` int, `more", "int")])

    assert table.schema == "`id`` int, ``more` int"


def test_column_of_a_csv_is_refused_when_its_type_holds_another_column() -> None:
    table = CatalogTable("db.events", "s3://b/", "csv", columns=[("id", "int, more string")])

    with pytest.raises(InvalidValueError, match="is not the name of a type"):
        table.schema  # noqa: B018
