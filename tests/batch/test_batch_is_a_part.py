"""A WARNING if a job computes from a batch a result that needs the whole source, with real Spark."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from scripts.helpers.batch import parts
from scripts.helpers.errors import TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks.database import DatabaseSink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.watermarks import Watermarks

SALES = "sale INT, day STRING, amount INT, last_modified TIMESTAMP"
JOIN, AGGREGATE, WINDOW, DISTINCT = "a join", "an aggregate", "a window", "a distinct"
EVENT = re.compile(r"event=batch_is_a_part job=sales target=\S+: its rows are computed by (.*) of new rows alone")


class Sources:
    """A job's new rows, all rows of their source, and two sets of new files; some also as views."""

    def __init__(self, spark: Any, job: IncrementalJob, folder: Path) -> None:
        self.spark, self.job, self.folder = spark, job, folder
        sales = spark.read.schema(SALES).json(f"{folder}/sales")
        self.new = job.rows_since(sales, "last_modified", transformation_ctx="sales")
        self.whole = job.rows_since(sales, "last_modified", transformation_ctx=None)
        shops = job.new_files(f"{folder}/shops", transformation_ctx="shops")
        self.shops = shops.read(spark, "json", schema="sale INT, shop STRING")
        days = job.new_partitions(f"{folder}/days", "day", transformation_ctx="days", whole=True)
        self.days = days.read(spark, "json", schema="sale INT, day STRING")
        self.related = job.relationalize(self.new.select("sale", F.array("amount").alias("of")))
        for name in ("new", "whole", "shops", "days"):
            getattr(self, name).createOrReplaceTempView(name)

    def write(self, rows: Any) -> None:
        self.job.write(rows, f"{self.folder}/target")

    def merge(self, rows: Any) -> None:
        sink = DatabaseSink("sales", spark=self.spark, url="jdbc:postgresql://127.0.0.1:1/shop")
        self.job.merge(rows, sink, keys="sale", sequence_by="last_modified")

    def sql(self, text: str) -> Any:
        return self.spark.sql(text)

    def newest(self, *by: str) -> Any:
        place = F.row_number().over(Window.partitionBy(*by).orderBy(F.desc("last_modified")))
        return self.new.withColumn("place", place).where("place = 1").drop("place")


@pytest.fixture(scope="module")
def sources(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    folder = tmp_path_factory.mktemp("part")
    sale = {"sale": 1, "day": "mon", "amount": 10, "last_modified": "2026-01-05T12:00:00Z"}
    for name, line in (("sales", sale), ("shops", {"sale": 1, "shop": "north"}), ("days/day=mon", {"sale": 1})):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.json").write_text(json.dumps(line))
    watermarks = Watermarks(f"sqlite:{folder}/watermarks.db")
    watermarks.create_table()
    with IncrementalJob(watermarks, "sales", spark=spark) as job:
        yield Sources(spark, job, folder)


def newest_of(column: str) -> Any:
    return F.max_by(column, "last_modified").alias(column)


Warned = Callable[[Callable[[Any], Any], Any], "list[str]"]


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Warned:
    """Return a function that writes rows and returns the operations that the WARNING names."""

    def warned(write: Callable[[Any], Any], rows: Any) -> list[str]:
        caplog.clear()
        with pytest.raises(TargetError):
            write(rows)
        records = [record for record in caplog.records if "event=batch_is_a_part" in record.getMessage()]
        assert {record.levelno for record in records} <= {logging.WARNING}
        return [found[1] for record in records if (found := EVENT.match(record.getMessage()))]

    return warned


WRONG: dict[str, tuple[Callable[[Sources], Any], str]] = {
    "join": (lambda of: of.new.join(of.shops, "sale"), JOIN),
    "join in SQL": (lambda of: of.sql("SELECT new.*, shop FROM shops LEFT JOIN new USING (sale)"), JOIN),
    "new rows with a new partner": (lambda of: of.new.join(of.shops, "sale", "left_semi"), JOIN),
    "aggregate": (lambda of: of.new.groupBy("day").sum("amount"), AGGREGATE),
    "aggregate of files": (lambda of: of.shops.groupBy("shop").count(), AGGREGATE),
    "aggregate in SQL": (
        lambda of: of.sql("WITH t AS (SELECT day, sum(amount) AS total FROM new GROUP BY day) SELECT * FROM t"),
        AGGREGATE,
    ),
    "aggregate of rows beside it": (
        lambda of: of.new.join(of.new.groupBy("day").agg(F.sum("amount")), "day"), AGGREGATE,
    ),
    "aggregate of joined rows": (
        lambda of: of.new.select("sale").join(of.whole, "sale").groupBy("day").count(), AGGREGATE,
    ),
    "window": (lambda of: of.new.withColumn("to", F.sum("amount").over(Window.partitionBy("day"))), WINDOW),
    "window without a merge": (lambda of: of.newest("sale"), WINDOW),
    "distinct": (lambda of: of.new.select("day").distinct(), DISTINCT),
    "distinct in SQL": (lambda of: of.sql("SELECT DISTINCT shop FROM shops"), DISTINCT),
    "distinct of columns": (lambda of: of.new.dropDuplicates(["day"]), DISTINCT),
    "all of it": (
        lambda of: of.new.join(of.shops, "sale").dropDuplicates(["day"]).groupBy("day").count(),
        f"{DISTINCT} and {JOIN} and {AGGREGATE}",
    ),
}  # fmt: skip
RIGHT: dict[str, Callable[[Sources], Any]] = {
    "each row": lambda of: of.new.where("amount > 0").withColumn("more", F.col("amount") + 1).orderBy("sale"),
    "each row of files": lambda of: of.shops,
    "union": lambda of: of.new.select("sale").union(of.shops.select("sale")),
    "join with a whole table": lambda of: of.new.join(of.whole.select("sale", F.col("day").alias("also")), "sale"),
    "both halves": lambda of: of.new.join(of.whole.select("sale"), "sale").union(
        of.whole.join(of.shops.select("sale"), "sale")
    ),
    "aggregate of a whole table": lambda of: of.whole.groupBy("day").count(),
    "join with an aggregate of a whole table": lambda of: of.new.join(of.whole.groupBy("day").count(), "day"),
    "aggregate of the days that changed": (
        lambda of: of.whole.join(of.new.select("day").distinct(), "day", "left_semi").groupBy("day").count()
    ),
    "aggregate of the days that changed, by an inner join": (
        lambda of: of.whole.join(of.new.select("day").distinct(), "day").groupBy("day").sum("amount")
    ),
    "aggregate of the days that changed, in SQL": lambda of: of.sql(
        "WITH changed AS (SELECT DISTINCT day FROM new UNION SELECT DISTINCT shop FROM shops) "
        "SELECT day, sum(amount) AS total FROM whole JOIN changed USING (day) GROUP BY day"
    ),
    "aggregate of the days in a subquery": lambda of: of.sql(
        "SELECT day, sum(amount) AS total FROM whole WHERE day IN (SELECT day FROM new) GROUP BY day"
    ),
    "aggregate of whole partitions": lambda of: of.days.groupBy("day").count(),
    "related tables": lambda of: of.related["roottable"].join(of.related["roottable_of"], F.col("of") == F.col("id")),
    "a text that looks like a plan": lambda of: of.new.withColumn("text", F.lit("1\nAggregate [day]\n+- Window [a]")),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop each write before its first row; the plan was examined by then."""

    def refuse(sink: Any, *rows: Any, **options: Any) -> None:
        raise TargetError(sink.name, "not in this test")

    monkeypatch.setattr(FileSink, "stage", refuse)
    monkeypatch.setattr(DatabaseSink, "recorded", refuse)


@pytest.mark.parametrize(("rows", "what"), WRONG.values(), ids=WRONG)
def test_warning_names_what_a_part_cannot_answer_when_it_is_written(
    sources: Sources, warned: Warned, rows: Callable[[Sources], Any], what: str
) -> None:
    assert warned(sources.write, rows(sources)) == [what]


@pytest.mark.parametrize("rows", RIGHT.values(), ids=RIGHT)
def test_no_warning_when_rows_are_written_for_themselves_or_computed_of_the_whole(
    sources: Sources, warned: Warned, rows: Callable[[Sources], Any]
) -> None:
    assert warned(sources.write, rows(sources)) == []


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (lambda of: of.newest("sale"), []),
        (lambda of: of.new.dropDuplicates(["sale"]), []),
        (lambda of: of.new.distinct(), []),
        (lambda of: of.sql("SELECT DISTINCT * FROM new"), []),
        (lambda of: of.newest("day"), [WINDOW]),
        (lambda of: of.new.dropDuplicates(["day"]), [DISTINCT]),
        (lambda of: of.new.groupBy("sale").agg(F.max("last_modified").alias("last_modified")), [AGGREGATE]),
        (lambda of: of.new.groupBy("sale").agg(newest_of("amount"), newest_of("day"), newest_of("last_modified")), []),
        (lambda of: of.new.groupBy("sale").agg(newest_of("day"), F.max("last_modified").alias("last_modified")), []),
        (
            lambda of: (
                of.new.groupBy("sale").agg(F.max(F.struct("last_modified", "day")).alias("of")).select("sale", "of.*")
            ),
            [],
        ),
        (
            lambda of: of.sql(
                "SELECT sale, max(last_modified) AS last_modified, "
                "max_by(day, last_modified) AS day FROM new GROUP BY sale"
            ),
            [],
        ),
        (
            lambda of: of.new.groupBy("sale").agg(
                newest_of("day"), newest_of("last_modified"), F.max("amount").alias("amount")
            ),
            [AGGREGATE],
        ),
        (
            lambda of: of.new.groupBy("sale").agg(
                newest_of("day"), newest_of("last_modified"), F.sum("amount").alias("amount")
            ),
            [AGGREGATE],
        ),
        (
            lambda of: of.new.groupBy("sale").agg(
                newest_of("day"), newest_of("last_modified"), F.max_by("amount", "day").alias("amount")
            ),
            [AGGREGATE],
        ),
        (lambda of: of.new.groupBy("day").agg(newest_of("sale"), newest_of("last_modified")), [AGGREGATE]),
    ],
    ids=[
        "newest of key",
        "one of key",
        "distinct",
        "distinct in SQL",
        "newest of day",
        "one of day",
        "aggregate",
        "newest by max_by",
        "newest by max_by and max",
        "newest by a struct",
        "newest in SQL",
        "newest and largest",
        "newest and sum",
        "newest of two orders",
        "newest of another key",
    ],
)
def test_merge_warns_unless_rows_are_deduplicated_by_its_keys(
    sources: Sources, warned: Warned, rows: Callable[[Sources], Any], what: list[str]
) -> None:
    assert warned(sources.merge, rows(sources)) == what


def test_no_warning_and_no_error_when_the_plan_cannot_be_read(
    sources: Sources, warned: Warned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(rows: Any) -> None:
        raise RuntimeError("no plan")

    monkeypatch.setattr(parts, "analysed_plan", refuse)

    assert warned(sources.write, sources.new.groupBy("day").count()) == []


def test_no_warning_when_a_run_reads_everything(sources: Sources, warned: Warned, spark: Any) -> None:
    with IncrementalJob(Watermarks("sqlite:no.db"), "all", spark=spark, mode="disable") as job:
        everything = Sources(spark, job, sources.folder)

        assert warned(everything.write, everything.new.groupBy("day").count()) == []
        job.abort()
