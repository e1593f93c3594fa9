"""Avro and XML, which Spark 3 reads only with packages in the session."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import MisfitError, MissingConnectorError, SourceError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.reading.fetched_lines import unmarked
from tests.reading.contract.binary import avro
from tests.support import maven_jars
from tests.support.landing import Landing

BAYS = b'<bays><bay id="1"><state kind="taped">free</state></bay><bay id="2"><state>taken</state></bay></bays>'


@pytest.fixture(params=["local", "s3a"])
def landing(request: pytest.FixtureRequest, tmp_path: Path, spark_with_packages: Any) -> Landing:
    """Return an empty source, in a directory or in S3, for a session that has the packages."""
    if request.param == "local":
        return Landing(spark_with_packages, f"{tmp_path}/landing/")
    source = f"s3a://{request.getfixturevalue('bucket')}/landing/"
    return Landing(spark_with_packages, source, request.getfixturevalue("s3"))


ON_DISK = pytest.mark.parametrize("landing", ["local"], indirect=True)
"""Of what follows from the bytes of a file or the options of a read, wherever the file is."""


def avro_of(*ids: int) -> bytes:
    """Return the bytes of an Avro file with the given ids."""
    return avro({"id": "long"}, *[(one,) for one in ids])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, spark_with_packages: Any) -> Callable[..., list[bytes]]:
    """Return a function that returns two files that Spark wrote in a format; it writes each format once."""

    @cache
    def write(format: str, **options: Any) -> list[bytes]:
        folder = tmp_path_factory.mktemp("made") / "files"
        rows = [(number, state) for number, state in enumerate(["free", "taken", "free", "taken"])]
        frame = spark_with_packages.createDataFrame(rows, "id int, state string").repartitionByRange(2, "id")
        frame.write.format(format).options(**options).save(str(folder))
        return [part.read_bytes() for part in sorted(folder.glob("part-*"))]

    return write


def read(landing: Landing, format: str, before: list[str], **options: Any) -> Any:
    """Read the files of a source that an earlier run has not read."""
    planned = FileBookmark(landing.location.uri(""), s3_client=landing.client).new_files()
    new = planned.split(lambda key: key not in before)[True]
    return new.read(landing.spark, format, **options)


def test_rows_are_those_of_the_planned_files_when_the_format_is_avro(landing: Landing) -> None:
    landing.put("old.avro", avro_of(-1))
    landing.put("month=3/a b%.avro", avro_of(1, 2))
    landing.put("month=4/[x],{1}.avro", avro_of(3))

    frame = read(landing, "avro", ["old.avro"], path_column="file")

    assert frame.dtypes == [("id", "bigint"), ("month", "int"), ("file", "string")]
    first, second = (landing.location.uri(key) for key in ("month=3/a b%.avro", "month=4/[x],{1}.avro"))
    assert sorted(tuple(row) for row in frame.collect()) == [(1, 3, first), (2, 3, first), (3, 4, second)]


@ON_DISK
@pytest.mark.parametrize("kind", ["array", "map"])
def test_nested_values_stay_in_their_fields_when_avro_files_order_them_differently(landing: Landing, kind: str) -> None:
    for file, names in (("a.avro", ["name", "town"]), ("b.avro", ["town", "name"]), ("c.avro", ["name"])):
        fields = [{"name": name, "type": "string"} for name in names]
        record = {"type": "record", "name": "person", "fields": fields}
        of_kind = {"type": "array", "items": record} if kind == "array" else {"type": "map", "values": record}
        person = {name: f"{name} of {file}" for name in names}
        landing.put(file, avro({"people": of_kind}, [[person] if kind == "array" else {"k": person}]))

    rows = [row.asDict(recursive=True)["people"] for row in read(landing, "avro", []).collect()]

    found = [row[0] if kind == "array" else row["k"] for row in rows]
    assert sorted(found, key=lambda person: person["name"]) == [
        {"name": "name of a.avro", "town": "town of a.avro"},
        {"name": "name of b.avro", "town": "town of b.avro"},
        {"name": "name of c.avro", "town": None},
    ]


@ON_DISK
def test_rows_have_the_readers_schema_when_avro_is_given_one(landing: Landing) -> None:
    landing.put("a.avro", avro_of(7))
    fields = [{"name": "id", "type": "long"}, {"name": "state", "type": "string", "default": "free"}]
    schema = json.dumps({"type": "record", "name": "bay", "fields": fields})

    frame = read(landing, "avro", [], avroSchema=schema)

    assert [row.asDict() for row in frame.collect()] == [{"id": 7, "state": "free"}]


def test_rows_are_those_of_the_planned_file_when_the_format_is_xml(landing: Landing) -> None:
    landing.put("old.xml", b"<bays><bay id='-1'/></bays>")
    landing.put("a.xml", BAYS)

    frame = read(landing, "xml", ["old.xml"], rowTag="bay")

    assert [row.asDict(recursive=True) for row in frame.collect()] == [
        {"_id": 1, "state": {"_VALUE": "free", "_kind": "taped"}},
        {"_id": 2, "state": {"_VALUE": "taken", "_kind": None}},
    ]


@pytest.mark.parametrize("schema", [None, "_id INT, month STRING"])
def test_rows_are_those_of_all_planned_files_when_xml_has_several(landing: Landing, schema: str | None) -> None:
    landing.put("month=03/old.xml", b"<bays><bay _id='-1'/></bays>")
    landing.put("month=03/a b%,c.xml", b"<bays><bay id='1'/></bays>")
    landing.put("month=03/{1},[x]*.xml", b"<bays><bay id='2'/></bays>")
    landing.put("month=04/a%20b+c.xml", b"<bays><bay id='3'/><bay id='4'/></bays>")
    landing.put("month=04/x.xml", b"<bays><bay id='5'/></bays>")

    if landing.spark.version >= "4" and schema is None:
        # Spark 4 has its own XML reader, which infers the schema of whole files by their names as patterns.
        with pytest.raises(SourceError, match=r"\{1\},\[x\]\*\.xml' has '\{', which Spark takes for a pattern"):
            read(landing, "xml", ["month=03/old.xml"], rowTag="bay")
        return
    frame = read(landing, "xml", ["month=03/old.xml"], rowTag="bay", path_column="file", schema=schema)

    kinds = ("int", "string") if schema else ("bigint", "int")
    assert frame.dtypes == [("_id", kinds[0]), ("month", kinds[1]), ("file", "string")]
    march, april = ("03", "04") if schema else (3, 4)
    assert sorted(tuple(row) for row in frame.collect()) == [
        (1, march, landing.location.uri("month=03/a b%,c.xml")),
        (2, march, landing.location.uri("month=03/{1},[x]*.xml")),
        (3, april, landing.location.uri("month=04/a%20b+c.xml")),
        (4, april, landing.location.uri("month=04/a%20b+c.xml")),
        (5, april, landing.location.uri("month=04/x.xml")),
    ]


@ON_DISK
def test_folder_of_xml_is_a_misfit_when_its_value_is_not_of_the_type_in_the_schema(landing: Landing) -> None:
    landing.put("month=x/a.xml", BAYS)

    with pytest.raises(Exception, match="a folder's value of column 'month' is not of type") as caught:
        read(landing, "xml", [], rowTag="bay", schema="_id INT, month INT").collect()

    assert isinstance(unmarked(str(caught.value)) or caught.value, MisfitError)


@ON_DISK
def test_elements_of_xml_are_rescued_when_they_come_again(landing: Landing) -> None:
    bays = "<bay><id>1</id><id>2</id><s><n>3</n></s></bay><bay><id>4</id><s><n>5</n></s><s><n>x</n></s></bay>"
    landing.put("a.xml", f"<bays>{bays}</bays>".encode())

    frame = read(landing, "xml", [], rowTag="bay", schema="id STRING, s STRUCT<n: INT>", rescue=True)

    rows = [(row["id"], row["s"], json.loads(row["_rescued"])) for row in frame.collect()]
    assert [(row[0], row[1] and row[1]["n"], row[2]) for row in sorted(rows, key=str)] == [
        ("4", None, {"s": '[{"n":["5"]},{"n":["x"]}]'}), (None, 3, {"id": '["1","2"]', "s": '{"n":"3"}'})
    ]  # fmt: skip


@ON_DISK
def test_values_of_xml_are_rescued_when_they_do_not_fit(landing: Landing) -> None:
    bays = "<bay><id>1</id><n>x</n><d>1.5</d></bay><bay><id>2</id><n>1</n><d>1.005</d></bay><bay><id>3</id><n/></bay>"
    landing.put("a.xml", f"<bays>{bays}</bays>".encode())
    landing.put("b.xml", b"<bays><bay><id>4</m></bay></bays>")

    frame = read(landing, "xml", [], rowTag="bay", schema="id STRING, n BIGINT, d DECIMAL(9,2)", rescue=True)

    rows = {row["id"]: row.asDict() for row in frame.collect()}
    assert {row["_rescued"] for row in rows.values()} == {'{"n":"x"}', '{"d":"1.005"}', None, rows[None]["_rescued"]}
    assert "<id>4</m>" in json.loads(rows[None]["_rescued"])["_corrupt_record"]
    assert [(one, row["n"], str(row["d"])) for one, row in sorted(rows.items(), key=str)] == [
        ("1", None, "1.50"), ("2", 1, "None"), ("3", None, "None"), (None, None, "None")
    ]  # fmt: skip


@ON_DISK
def test_xml_is_refused_when_its_bytes_are_not_of_the_encoding(landing: Landing) -> None:
    landing.put("a.xml", "<bays><bay><id>Zo\xeb</id></bay></bays>".encode("latin-1"))

    # Spark 4 raises an error of another class.
    with pytest.raises(Exception, match=r"not in the encoding of the read|Encountered error while reading|aborted"):
        read(landing, "xml", [], rowTag="bay").collect()


@ON_DISK
def test_xml_is_refused_when_braces_of_one_of_several_keys_are_not_in_pairs(landing: Landing) -> None:
    landing.put("a.xml", BAYS)
    landing.put("}b{.xml", BAYS)

    why = "'}', which Spark takes for a pattern" if landing.spark.version >= "4" else "braces that are not in pairs"
    with pytest.raises(SourceError, match=rf"key '}}b{{\.xml' has {why}"):
        read(landing, "xml", [], rowTag="bay")


@ON_DISK
def test_columns_are_those_of_the_schema_when_xml_is_given_one(landing: Landing) -> None:
    landing.put("a.xml", BAYS)

    frame = read(landing, "xml", [], schema="id int, until date", rowTag="bay", attributePrefix="")

    assert [row.asDict() for row in frame.collect()] == [{"id": 1, "until": None}, {"id": 2, "until": None}]


@pytest.mark.parametrize(
    ("format", "options"),
    [("json", {}), ("csv", {"header": True}), ("parquet", {}), ("orc", {}), ("avro", {}), ("xml", {"rowTag": "ROW"})],
)
def test_rows_are_read_back_when_spark_wrote_the_format(
    landing: Landing, written: Callable[..., list[bytes]], format: str, options: dict[str, Any]
) -> None:
    first, second = written(format, **options)
    landing.put(f"0 50%,.{format}", first)
    landing.put(f"1 50%,.{format}", second)

    frame = read(landing, format, [], schema="id int, state string", **options)

    assert sorted(tuple(row) for row in frame.collect()) == [(0, "free"), (1, "taken"), (2, "free"), (3, "taken")]


@pytest.mark.parametrize("format", ["avro", "xml"] if version("pyspark") < "4" else ["avro"])
def test_package_is_named_when_the_session_does_not_have_it(
    spark_with_packages: Any, tmp_path: Path, format: str
) -> None:
    landing = Landing(spark_with_packages, f"{tmp_path}/landing/")
    landing.put("a", BAYS)
    java = spark_with_packages._jvm.java.lang
    thread = java.Thread.currentThread()
    with_packages = thread.getContextClassLoader()
    package = next(each for each in maven_jars.packages(version("pyspark")) if f"-{format}_" in each)

    # The system class loader has the jars that Spark was started with, and none of spark.jars.
    thread.setContextClassLoader(java.ClassLoader.getSystemClassLoader())
    try:
        with pytest.raises(MissingConnectorError) as caught:
            read(landing, format, [], **({"rowTag": "bay"} if format == "xml" else {}))
    finally:
        thread.setContextClassLoader(with_packages)

    assert caught.value.format == format
    assert str(caught.value).endswith(f"is not installed. Start Spark with --packages {package}.")


@ON_DISK
@pytest.mark.parametrize(
    ("format", "remedy"),
    [
        ("cvs", "Did you mean csv?"),
        ("parqet", "Did you mean parquet?"),
        ("none-such", "Check its name, or start Spark with the package of its reader."),
    ],
)
def test_format_is_named_when_spark_has_no_reader_for_it(landing: Landing, format: str, remedy: str) -> None:
    landing.put("a", BAYS)

    with pytest.raises(MissingConnectorError) as caught:
        read(landing, format, [])

    assert str(caught.value) == f"The connector for format={format!r} is not installed. {remedy}"


@ON_DISK
def test_xml_has_no_rows_when_the_file_is_compressed_and_its_name_does_not_say_so(landing: Landing) -> None:
    landing.put("a.xml", gzip.compress(BAYS, mtime=0))

    assert read(landing, "xml", [], rowTag="bay", schema="_id BIGINT, state STRING").collect() == []
