"""`watermarks verify` reads source and target with Spark; the exit code says whether they are equal."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scripts.cli import deciding
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import ingest_table, session
from scripts.jobs.exit_codes import BAD_DATA, BAD_SET_UP, FAILED
from tests.cli.stories import NOW, Command, commit_rows, document, rows_state
from tests.support.outputs import output_of_run
from tests.support.steps import commit

JOB = "repairs"
LATER = datetime(2026, 11, 1, tzinfo=timezone.utc)


@pytest.fixture
def loaded(watermarks: Watermarks, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the source of a job and its target, both Parquet, and make the command use the tests' Spark session."""
    monkeypatch.setattr(session, "make_session", lambda *_: spark)
    source, target = str(tmp_path / "source"), str(tmp_path / "raw")
    spark.sql(
        "SELECT id, timestamp'2026-01-01 00:00:00Z' + make_interval(0, 0, 0, 0, CAST(id AS INT)) AS at FROM range(100)"
    ).coalesce(1).write.parquet(source)
    with IncrementalJob(watermarks, JOB, spark=spark, clock=lambda: LATER) as job:
        job.write(job.rows_since(spark.read.parquet(source), "at"), target)
    return source, target


def test_command_says_that_all_is_equal_and_finds_the_target_in_the_log(
    run: Command, watermarks: Watermarks, loaded: tuple[str, str], answers: None
) -> None:
    source, target = loaded

    shown = run(watermarks, "verify", JOB, "--target", target, "--", "--source", source)
    as_json = json.loads(
        run(watermarks, "verify", JOB, "--output", "json", "--", "--source", source, input="y\n").stdout
    )

    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[-1] == "5 of 5 intervals compared, all equal."
    assert (as_json["equal"], as_json["target"].removeprefix("file://")) == (True, target)
    assert [one["source"] for one in as_json["intervals"]] == [4, 24, 24, 24, 24]


def test_command_names_the_interval_that_differs_and_how_to_read_it_again(
    run: Command, watermarks: Watermarks, loaded: tuple[str, str], spark: Any
) -> None:
    source, target = loaded
    kept = [row for row in spark.read.parquet(target).collect() if row.id != 30]
    for file in Path(target).glob("*.parquet"):
        file.unlink()
    spark.createDataFrame(kept, "id bigint, at timestamp").coalesce(1).write.mode("append").parquet(target)

    shown = run(
        watermarks, "verify", JOB, "--target", target, "--recent", "0", "--all-intervals", "--", "--source", source
    )
    few = ("--recent", "3", "--sample", "0")
    others = run(watermarks, "verify", JOB, "--target", target, *few, "--", f"--source={source}")

    assert shown.exit_code == FAILED
    [found] = [line.split() for line in shown.stdout.splitlines() if "differs" in line]
    assert found == ["2026-01-02", "00:00:00Z", "2026-01-03", "00:00:00Z", "24", "23", "1", "0", "0", "differs"]
    words = shlex.split(shown.stdout.splitlines()[-1])
    assert words[:2] == ["watermarks", "ingest-table"]
    slice_of = session.parse(ingest_table.make_parser(), words[2:])
    assert (slice_of.source, slice_of.target, slice_of.write_disposition) == (source, target, "merge")
    assert (slice_of.cursor_column, slice_of.backfill_name) == (["at"], "verify")
    assert (slice_of.backfill_low, slice_of.backfill_high) == (
        ["2026-01-02T00:00:00+00:00"], ["2026-01-03T00:00:00+00:00"],
    )  # fmt: skip
    assert others.exit_code == 0
    assert "3 of 5 intervals compared, all equal." in others.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([JOB], 2, "The source is missing"),
        ([JOB, "--", "--source", "x", "--query", "SELECT 1"], 2, "--source is not a database URL"),
        ([JOB, "--", "--source", "x", "--no-such"], 2, "unrecognized arguments: --no-such"),
        ([JOB, "--interval", "many", "--", "--source", "x"], BAD_DATA, "many"),
        ([JOB, "--target", "t", "--recent", "0", "--sample", "0", "--", "--source", "x"], BAD_DATA, "compare nothing"),
        ([JOB, "--recent", "-1", "--", "--source", "x"], 2, "-1"),
        ([JOB, "--", "--source", "x"], BAD_DATA, "wrote to 0 targets: none that is known. Choose with --target"),
        (["numbers", "--interval", "1d", "--", "--source", "x"], BAD_DATA, "is not a number. The cursor"),
        (["files", "--", "--source", "x"], BAD_DATA, "has no context of rows"),
        (["into a database", "--", "--source", "x"], BAD_DATA, "Compare it in Python: job.verify"),
        (["twice", "--", "--source", "x"], BAD_DATA, "wrote to 2 targets: s3://b, s3://a"),
    ],
)
def test_command_says_what_is_wrong_before_spark_is_started(
    run: Command, watermarks: Watermarks, arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_rows(watermarks, JOB, "jr_1", NOW, 5)
    commit(watermarks, "numbers", "jr_1", {"rows": rows_state(5, "bigint")})
    commit(watermarks, "files", "jr_1", {"f": {"kind": "files"}})
    for job, outputs in (("into a database", ["shop/repairs"]), ("twice", ["s3://a", "s3://b"])):
        for number, target in enumerate(outputs):
            held = watermarks.begin(job, f"jr_{number}")
            held.freeze({"rows": {**rows_state(None), "low": None, "high": NOW}}, {"rows": rows_state(NOW)})
            held.commit((output_of_run(held, target, sink="files" if "s3:" in target else "database"),))

    done = run(watermarks, "verify", *arguments)

    assert (done.exit_code, text in done.stderr + capsys.readouterr().err) == (code, True), done.output


@pytest.mark.usefixtures("dynamodb")
def test_all_targets_are_named_when_the_versions_are_more_than_a_page_of_dynamodb(
    run: Command, watermarks: Watermarks
) -> None:
    for number in range(24):
        held = watermarks.begin(JOB, f"jr_{number}")
        window = {**rows_state(None), "low": None, "high": NOW}
        held.freeze({"rows": window}, {"rows": rows_state(NOW), "note": "x" * 60_000})
        held.commit((output_of_run(held, "s3://a" if number == 0 else "s3://b"),))

    done = run(watermarks, "verify", JOB, "--", "--source", "x")

    assert "wrote to 2 targets: s3://b, s3://a" in done.stderr


@pytest.fixture
def lacking(watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the target of a job of numbers, which lacks a row of its source. Neither needs Spark."""
    with IncrementalJob(watermarks, JOB, clock=lambda: LATER) as job:
        job.write(job.rows_since(pa.table({"id": [1, 2, 30]}), "id"), str(tmp_path / "raw"))
    source = pa.table({"id": [1, 2, 3, 30], "note": ["a", "b", "c", "d"]})
    monkeypatch.setattr(session, "make_session", lambda *_: None)
    monkeypatch.setattr(ingest_table, "source_of", lambda *_: source)
    return str(tmp_path / "raw")


@pytest.mark.parametrize("width", ["10", "10.0"])
def test_each_interval_that_differs_has_its_command_when_json_is_asked_for(
    run: Command, watermarks: Watermarks, lacking: str, width: str
) -> None:
    options = ("--target", lacking, "--interval", width, "--output", "json")
    done = run(watermarks, "verify", JOB, *options, "--", "--source", "s3://raw/")

    found = json.loads(done.stdout)
    command = [
        "watermarks", "ingest-table", f"--JOB_NAME={JOB}", f"--table={watermarks.table_name}", "--context=rows",
        "--cursor-column=id", "--backfill-name=verify", "--backfill-high=10", "--source", "s3://raw/",
        f"--target={found['target']}", "--write-disposition=merge",
    ]  # fmt: skip
    assert done.exit_code == FAILED
    assert [(one["low"], one["high"], one["differs"], one.get("command")) for one in found["intervals"]] == [
        (30, 31, False, None), (20, 30, False, None), (10, 20, False, None), (None, 10, True, command),
    ]  # fmt: skip
    assert found["columns_left_out"] == {"note": "only in the source"}


def test_interval_width_may_be_a_fraction_when_the_cursor_is_decimal(
    run: Command, watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"sum": pa.array([Decimal("0.10"), Decimal("1.40")], pa.decimal128(9, 2))})
    with IncrementalJob(watermarks, JOB, clock=lambda: LATER) as job:
        job.write(job.rows_since(rows, "sum"), str(tmp_path / "raw"))
    monkeypatch.setattr(session, "make_session", lambda *_: None)
    monkeypatch.setattr(ingest_table, "source_of", lambda *_: rows)

    options = ("--target", f"{tmp_path}/raw", "--interval", "0.5", "--output", "json")
    done = run(watermarks, "verify", JOB, *options, "--", "--source", "s3://raw/")

    assert [(one["low"], one["high"], one["source"]) for one in document(done)["intervals"]] == [
        ("1.00", "1.41", 1), ("0.50", "1.00", 0), (None, "0.50", 1),
    ]  # fmt: skip


def test_column_that_is_not_compared_is_named_when_one_side_lacks_it(
    run: Command, watermarks: Watermarks, lacking: str
) -> None:
    done = run(watermarks, "verify", JOB, "--target", lacking, "--interval", "10", "--", "--source", "s3://raw/")

    assert "Column note is not compared: only in the source." in done.stdout.splitlines()


@pytest.mark.parametrize("answer", [None, "n\n"])
def test_target_that_only_the_items_name_is_not_opened_when_nobody_confirms_it(
    run: Command, watermarks: Watermarks, lacking: str, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    monkeypatch.setattr(deciding, "is_asked", lambda: answer is not None)
    monkeypatch.setattr(ingest_table, "source_of", pytest.fail)

    done = run(watermarks, "verify", JOB, "--", "--source", "s3://raw/", input=answer)

    assert done.exit_code == (2 if answer is None else FAILED), done.output
    assert f"The job's items say that its target is file://{lacking}" in done.stdout
    assert (f"If that is the target of the job, pass --target file://{lacking}" in done.stderr) is (answer is None)


def test_package_is_named_when_it_is_missing(
    run: Command, watermarks: Watermarks, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr(session, "make_session", missing)

    done = run(watermarks, "verify", JOB, "--target", lacking, "--", "--source", "s3://raw/")

    assert done.exit_code == BAD_SET_UP
    assert "This command requires pyspark. Install it: pip install pyspark." in done.stderr
