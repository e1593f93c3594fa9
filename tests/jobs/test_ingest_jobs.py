"""The ready-made jobs, run with `python -m`, with `spark-submit` and the wheel, and on bad input."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.utils.config import Config

from scripts.demo.local_s3 import find_jars, spark_conf
from scripts.helpers.errors import FencedError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import exit_codes, ingest_files, ingest_table
from tests.support.components import missing_component
from tests.support.job_runs import Parked
from tests.support.metadata_tables import NAMESPACE, MetadataTables
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.table_items import all_items

Start = Callable[..., "subprocess.Popen[str]"]
SCHEMA = "id BIGINT, name STRING"


@pytest.fixture
def environment(endpoint: str) -> dict[str, str]:
    if not find_jars():
        missing_component("S3A", "pip install --no-deps sagemaker_pyspark==1.4.5")
    return os.environ | {"AWS_ENDPOINT_URL": endpoint, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture
def arguments(live: Watermarks, bucket: str, endpoint: str) -> list[str]:
    settings = spark_conf(endpoint) | {"spark.master": "local[1]", "spark.ui.enabled": "false"}
    return [
        "--JOB_NAME", "parking", "--table", live.table_name,
        "--source", f"s3a://{bucket}/landing/", "--target", f"s3a://{bucket}/raw/",
        "--spark-conf", json.dumps(settings),
    ]  # fmt: skip


@pytest.fixture
def run(environment: dict[str, str]) -> Callable[..., Any]:
    def finish(module: str, *arguments: str, **more: str) -> Any:
        command = [sys.executable, "-m", f"scripts.jobs.{module}", *arguments]
        return subprocess.run(
            command,
            env=environment | more,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return finish


@pytest.fixture
def run_here(
    environment: dict[str, str], arguments: list[str], spark: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that runs a job in this process, checks that it succeeds, and returns its reports.

    The job uses the running Spark. Its own process would start Spark again, which takes longer than all the rest.
    """
    monkeypatch.setenv("AWS_ENDPOINT_URL", environment["AWS_ENDPOINT_URL"])

    def finish(main: Callable[[list[str]], int], *options: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        code = main([*arguments, *options])
        logging.getLogger("scripts").setLevel(logging.NOTSET)
        said = capsys.readouterr()
        assert code == exit_codes.OK, said.err
        return [json.loads(line) for line in said.out.splitlines() if line.startswith("{")]

    return finish


@pytest.fixture
def refused_here(
    environment: dict[str, str],
    arguments: list[str],
    spark: Any,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[Any, str]]:
    """Return a function that runs `ingest_files` in this process and returns its exit code and its output."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", environment["AWS_ENDPOINT_URL"])

    def finish(*options: str) -> tuple[Any, str]:
        try:
            code: Any = ingest_files.main([*arguments, *options])
        except SystemExit as ended:
            code = ended.code
        return code, capsys.readouterr().err + caplog.text

    return finish


def land(s3: Any, bucket: str, name: str, *rows: dict[str, Any]) -> None:
    body = "\n".join(json.dumps(row) for row in rows)
    s3.put_object(Bucket=bucket, Key=f"landing/{name}", Body=body.encode())


class Folders:
    """A local source and target, which need fewer requests than S3, for tests in which S3 is not the point."""

    def __init__(self, root: Path) -> None:
        self.landing, self.raw = root / "landing", root / "raw"
        self.arguments = ["--source", f"file://{self.landing}/", "--target", f"file://{self.raw}/"]
        self.landing.mkdir()

    def land(self, name: str, *rows: dict[str, Any]) -> None:
        (self.landing / name).write_text("\n".join(json.dumps(row) for row in rows))

    def put_table(self, name: str, **columns: Any) -> None:
        pd.DataFrame(columns).to_parquet(self.landing / name)

    @property
    def written(self) -> pd.DataFrame:
        return pd.read_parquet(self.raw)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def started_without_end(watermarks: Watermarks, job: str) -> str:
    """Start a run through the Job Runs API that no engine executes, so that it never ends."""
    jobs = JobRuns(watermarks, SparkSubmit("nowhere", scripts=["/a.py"]))
    jobs.scheduler.engine = Parked()
    jobs.create_job(Name=job, Command={"Name": "pythonshell", "ScriptLocation": "/a.py"})
    run_id: str = jobs.start_job_run(JobName=job)["JobRunId"]
    return run_id


@pytest.mark.parametrize("module", ["ingest_files", "ingest_table"])
def test_help_names_arguments_and_exit_codes_when_asked(module: str, run: Callable[..., Any]) -> None:
    done = run(module, "--help")

    assert done.returncode == 0
    assert "--JOB_RUN_ID" in done.stdout
    assert "75  another run holds the job" in done.stdout
    assert "save nothing (default: enable)" in " ".join(done.stdout.split())
    for option in ("--job-bookmark-from", "--job-bookmark-to", "--continuation-option", "--BOOKMARK_CONTEXT"):
        assert option in done.stdout


def test_ingest_files_takes_each_file_once_when_run_again(
    run_here: Callable[..., list[dict[str, Any]]],
    caplog: pytest.LogCaptureFixture,
    s3: Any,
    bucket: str,
    live: Watermarks,
) -> None:
    land(s3, bucket, "1.json", {"id": 1, "name": "one"})
    s3.put_object(Bucket=bucket, Key="landing/2.csv", Body=b"id,name\n2,two\n3,three\n")

    first = run_here(ingest_files.main, "--schema", SCHEMA, "--reader-options", '{"header": "true"}')
    second = run_here(ingest_files.main, "--schema", SCHEMA)

    assert [report["rows_written"] for report in first] == [3]
    assert "event=plan_frozen job=parking" in caplog.text
    assert [report["files_read"] for report in second] == [0]
    assert [entry.change.metrics.get("rows_written") for entry in live.history("parking")] == [None, 3]


def test_values_stay_as_they_are_when_the_files_of_a_batch_have_several_formats(
    run_here: Callable[..., list[dict[str, Any]]], live: Watermarks, folders: Folders
) -> None:
    people = pa.array([[{"name": "Ada", "town": "Hackney"}]])
    table = pa.table({"id": [9007199254740993], "price": [Decimal("12345678901234567.89")], "people": people})
    pq.write_table(table, folders.landing / "1.parquet")
    folders.land("2.json", {"id": 0.5, "price": 0.5, "people": [{"town": "Leeds", "name": "Bob", "age": 7}]})

    run_here(ingest_files.main, *folders.arguments)

    found = pq.read_table(folders.raw).sort_by("id").to_pylist()
    assert [(row["id"], row["price"]) for row in found] == [
        ("0.5", "0.5"), ("9007199254740993", "12345678901234567.89"),
    ]  # fmt: skip
    assert [row["people"] for row in found] == [
        [{"age": 7, "name": "Bob", "town": "Leeds"}], [{"age": None, "name": "Ada", "town": "Hackney"}],
    ]  # fmt: skip


def test_ingest_files_replays_the_same_batch_when_killed_between_write_and_commit(
    environment: dict[str, str],
    run: Callable[..., Any],
    run_here: Callable[..., list[dict[str, Any]]],
    arguments: list[str],
    s3: Any,
    bucket: str,
    live: Watermarks,
    spark: Any,
) -> None:
    options = ["--schema", SCHEMA, "--format", "csv", "--reader-options", '{"header": "true"}']
    said: list[str] = []

    def land_csv(number: int) -> None:
        s3.put_object(Bucket=bucket, Key=f"landing/{number}.csv", Body=b"id,name\n%d,one\n" % number)

    land_csv(1)
    land_csv(2)
    command = [sys.executable, "-m", "scripts.jobs.ingest_files", *arguments, *options, "--pause-before-commit", "200s"]

    with subprocess.Popen(
        [*command, "--JOB_RUN_ID", "jr_dead"], env=environment, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if "event=pausing" in line:
                refused = run("ingest_files", *arguments, *options)
                process.send_signal(signal.SIGKILL)
                break
    land_csv(3)
    retried = run_here(ingest_files.main, *options, "--JOB_RUN_ID", "jr_dead")
    after = run_here(ingest_files.main, *options)

    assert refused.returncode == exit_codes.TRY_LATER
    assert "jr_dead" in refused.stderr
    (report,) = retried
    assert report | {"replay": True, "rows_written": 2, "attempt": 2} == report
    assert [report["rows_written"] for report in after] == [1]
    assert live.latest("parking").version == 2
    rows = spark.read.parquet(f"s3a://{bucket}/raw/").orderBy("id").collect()
    assert [row["id"] for row in rows] == [1, 2, 3]
    # By default Spark would log this warning for each file.
    assert [line for line in said if "CSV header does not conform" in line] == []


def test_ingest_table_takes_each_row_once_when_rows_are_added(
    run_here: Callable[..., list[dict[str, Any]]], s3: Any, bucket: str, spark: Any
) -> None:
    def put(name: str, *ids: int) -> None:
        s3.put_object(Bucket=bucket, Key=f"landing/{name}", Body=pd.DataFrame({"id": ids}).to_parquet())

    put("0.parquet", *range(5))

    first = run_here(ingest_table.main, "--cursor-column", "id")
    put("1.parquet", 5, 6)
    second = run_here(ingest_table.main, "--cursor-column", "id", "--delay", "0s")

    assert [report["rows_written"] for report in first + second] == [5, 2]
    assert sorted(row["id"] for row in spark.read.parquet(f"s3a://{bucket}/raw/").collect()) == list(range(7))


def test_ingest_table_goes_on_until_no_row_is_left_when_batches_are_limited(
    run_here: Callable[..., list[dict[str, Any]]], live: Watermarks, folders: Folders
) -> None:
    folders.put_table("0.parquet", id=range(5))

    batches = run_here(ingest_table.main, *folders.arguments, "--cursor-column", "id", "--max-rows", "2")

    assert [batch["rows_written"] for batch in batches] == [2, 2, 1]
    assert sorted(folders.written["id"]) == list(range(5))
    assert live.latest("parking").version == 3


def test_ingest_table_stops_when_columns_changed_and_changes_are_refused(
    run_here: Callable[..., list[dict[str, Any]]], arguments: list[str], live: Watermarks, folders: Folders
) -> None:
    options = [*folders.arguments, "--cursor-column", "id", "--delay", "0s", "--on-schema-change", "raise"]
    folders.put_table("0.parquet", id=[0, 1])
    run_here(ingest_table.main, *options)
    folders.put_table("0.parquet", id=[2], colour=["red"])

    code = ingest_table.main([*arguments, *options])
    reported = run_here(ingest_table.main, *options[:-1], "warn")

    assert code == exit_codes.BAD_DATA
    assert [batch["rows_written"] for batch in reported] == [1]
    assert list(folders.written.columns) == ["id"]


def test_ingest_files_rescues_values_and_new_columns_when_told_so(
    run_here: Callable[..., list[dict[str, Any]]],
    arguments: list[str],
    live: Watermarks,
    folders: Folders,
) -> None:
    options = [*folders.arguments, "--on-schema-change", "warn"]
    rescue = ["--rescue", "_rescued"]
    folders.land("1.json", {"id": 1})
    run_here(ingest_files.main, *options, *rescue)
    folders.land("2.json", {"id": "x", "colour": "red"})

    stopped = ingest_files.main([*arguments, *options])
    run_here(ingest_files.main, *options, *rescue)

    assert stopped == exit_codes.BAD_DATA
    rows = [(row["id"], row["_rescued"]) for row in pq.read_table(folders.raw).to_pylist()]
    assert sorted(rows, key=str) == [(1, None), (None, '{"colour":"red","id":"x"}')]


def test_ingest_files_runs_under_spark_submit_when_given_the_wheel(
    environment: dict[str, str], arguments: list[str], folders: Folders, wheel: Path, tmp_path: Path
) -> None:
    folders.land("1.json", {"id": 1, "name": "one"})
    script = tmp_path / "ingest_files.py"
    script.write_text((REPOSITORY / "scripts/jobs/ingest_files.py").read_text())
    package = shutil.copy(
        wheel, tmp_path / "glue_watermarks.zip"
    )  # Spark does not put files named .whl on the Python path.
    submit = Path(sys.executable).parent / "spark-submit"
    *own, _, settings = arguments
    conf = [part for name, value in json.loads(settings).items() for part in ("--conf", f"{name}={value}")]
    command = [str(submit), *conf, "--py-files", str(package), str(script), *own]

    done = subprocess.run(
        [*command, *folders.arguments, "--schema", SCHEMA],
        env=environment | {"PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert '"rows_written": 1' in done.stdout


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (["--where", "a = 1", "--jdbc-secret", "s"], "omit --jdbc-secret, --where"),
        (["--snapshot"], "--source is not a database URL: omit --snapshot"),
        (["--jdbc-secret", "s", "--jdbc-connection", "c"], "not allowed with argument --jdbc-secret"),
    ],
)
def test_options_of_databases_are_refused_when_they_would_have_no_effect(
    changed: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--JOB_NAME", "j", "--source", str(tmp_path), "--target", str(tmp_path), "--cursor-column", "id"]
    with pytest.raises(SystemExit) as ended:
        ingest_table.main([*target, *changed])

    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        (["--table", "no-such-table"], exit_codes.BAD_SET_UP, "no-such-table"),
        (["--JOB_NAME", "~latest"], exit_codes.BAD_DATA, "Job name '~latest'"),
        (["--source", "s3a://no-such-bucket-anywhere/x/"], exit_codes.BAD_DATA, "NoSuchBucket"),
        (["--source", "s3a://bucket/no-slash"], exit_codes.BAD_DATA, "ends with a slash"),
        (["--lease", "0s"], 2, "a lease of 0s is not above 0s and at most 1d"),
        (["--take-over", "jr_1"], exit_codes.FAILED, "holds nothing for job 'parking'"),
        (["--take-over", "jr_1", "--job-bookmark-option", "job-bookmark-pause"], 2, "omit --take-over or"),
        (["--reader-options", "header"], 2, "not a JSON map"),
        (["--reader-options", '{"rescue": "true"}'], 2, "Give --rescue by itself"),
        (["--on-schema-change", "append"], 2, "invalid choice: 'append'"),
        (["--formt", "csv"], 2, "--formt"),
        (["--job-bookmark-option", "bogus"], 2, "invalid choice: 'bogus'"),
        (["--job-bookmark-from", "a", "--job-bookmark-to", "b"], 2, "Invalid option(s)--job-bookmark-from"),
        (
            ["--continuation-option", "continuation-readonly", "--job-bookmark-to", "b"],
            2,
            "Missing option or value for --job-bookmark-from",
        ),
        (["--BOOKMARK_CONTEXT", "a*"], exit_codes.BAD_DATA, "Job name 'a*'"),
        (["--events-queue", "q", "--max-bytes", "1"], exit_codes.BAD_DATA, "max_bytes cannot be used with events"),
        (["--relist", "24h"], 2, "--relist goes with the URL of --events-queue or with --metadata-journal"),
        (["--metadata-journal", "b_landing"], 2, "'b_landing' is not CATALOG.NAMESPACE"),
        (["--events-queue", "q", "--metadata-journal", "s3.b"], 2, "both name changed files. Give one of the two"),
        (["--metadata-journal", "nowhere.b"], exit_codes.BAD_DATA, "pyiceberg has no catalog of that name"),
        (["--metadata-inventory", "nowhere.b"], exit_codes.BAD_DATA, "pyiceberg has no catalog of that name"),
        (["--events-queue", "q", "--source", "/tmp/landing/"], exit_codes.BAD_DATA, "a local directory has no events"),
    ],
)
def test_exit_code_and_error_name_the_cause_when_input_is_bad(
    changed: list[str], code: int, text: str, refused_here: Callable[..., tuple[Any, str]], live: Watermarks
) -> None:
    ended, said = refused_here(*changed)

    assert ended == code, said
    assert text in said
    items = all_items(live).values()
    assert not any(item.get("version", {"N": "0"})["N"] != "0" or "planId" in item for item in items)


def test_ingest_files_asks_for_format_when_the_extension_names_none(
    refused_here: Callable[..., tuple[Any, str]], s3: Any, bucket: str, live: Watermarks
) -> None:
    land(s3, bucket, "1.dat", {"id": 1})

    ended, said = refused_here("--schema", SCHEMA)

    assert ended == exit_codes.BAD_DATA
    assert "'dat' does not determine the format. Pass --format" in said
    assert live.latest("parking").plan is None


def test_job_uses_glues_session_and_passes_over_its_arguments_when_awsglue_is_present(
    run: Callable[..., Any], arguments: list[str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    land(s3, bucket, "1.json", {"id": 1, "name": "one"})
    package = tmp_path / "awsglue"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "context.py").write_text(
        "from pyspark.sql import SparkSession\n"
        "class GlueContext:\n"
        "    def __init__(self, context):\n"
        "        self.spark_session = SparkSession(context)\n"
        "        print('made by GlueContext')\n"
    )
    settings = json.loads(arguments[-1])
    submit = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())

    done = run(
        "ingest_files",
        *arguments,
        "--schema",
        SCHEMA,
        "--TempDir",
        "s3://temporary/",
        PYTHONPATH=str(tmp_path),
        PYSPARK_SUBMIT_ARGS=f"{submit} pyspark-shell",
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "made by GlueContext" in done.stdout
    assert '"rows_written": 1' in done.stdout


def test_plan_of_a_dead_run_is_finished_when_the_command_takes_its_job_over(
    run_here: Callable[..., list[dict[str, Any]]], live: Watermarks, folders: Folders
) -> None:
    folders.land("1.json", {"id": 1, "name": "one"})
    dead = live.begin("parking", "jr_dead")

    options = [*folders.arguments, "--schema", SCHEMA, "--JOB_RUN_ID", "jr_next", "--take-over", "jr_dead"]

    batches = run_here(ingest_files.main, *options)

    assert [batch["version"] for batch in batches] == [1]
    with pytest.raises(FencedError):
        dead.check()
    (entry,) = live.history("parking")
    assert entry.change.run_id == "jr_next"
    (told,) = entry.change.releases
    assert (told.run_id, told.why) == ("jr_dead", "the job was started with --take-over")


@pytest.mark.parametrize("owner", ["jr_lives", "jr_next"])
def test_no_other_run_is_fenced_when_the_run_to_take_over_has_lost_the_job(
    run_here: Callable[..., list[dict[str, Any]]],
    arguments: list[str],
    caplog: pytest.LogCaptureFixture,
    live: Watermarks,
    folders: Folders,
    owner: str,
) -> None:
    """A retry of the run that took the job over enters as usual. A live run is left alone."""
    folders.land("1.json", {"id": 1, "name": "one"})
    run = live.begin("parking", owner)
    options = [*folders.arguments, "--schema", SCHEMA, "--JOB_RUN_ID", "jr_next", "--take-over", "jr_dead"]

    if owner == "jr_next":
        assert [batch["attempt"] for batch in run_here(ingest_files.main, *options)] == [2]
    else:
        assert ingest_files.main([*arguments, *options]) == exit_codes.TRY_LATER
        assert "event=not_taken_over job=parking run=jr_dead: Run 'jr_lives' has job" in caplog.text
        run.check()


def test_command_says_so_when_there_is_nothing_to_take_over(
    run_here: Callable[..., list[dict[str, Any]]],
    live: Watermarks,
    folders: Folders,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folders.land("1.json", {"id": 1, "name": "one"})
    live.begin("parking", "jr_dead").abort()

    run_here(ingest_files.main, *folders.arguments, "--schema", SCHEMA, "--take-over", "jr_dead")

    assert "event=nothing_to_take_over job=parking run=jr_dead: no run has the job" in caplog.text
    assert live.latest("parking").version == 1


def test_batches_go_on_until_nothing_is_left_when_a_batch_is_limited(
    run_here: Callable[..., list[dict[str, Any]]], live: Watermarks, folders: Folders
) -> None:
    for number in range(3):
        folders.land(f"{number}.json", {"id": number, "name": "x"})

    batches = run_here(ingest_files.main, *folders.arguments, "--schema", SCHEMA, "--max-files", "2")

    assert [batch["files_read"] for batch in batches] == [2, 1]
    assert [batch["version"] for batch in batches] == [1, 2]
    assert live.latest("parking").version == 2


def test_only_recorded_files_are_read_when_there_are_metadata_tables(
    run_here: Callable[..., list[dict[str, Any]]],
    s3: Any,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tables = MetadataTables(tmp_path, bucket)
    monkeypatch.setenv("PYICEBERG_CATALOG__S3__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    of_tables = ("--metadata-journal", f"s3.{NAMESPACE}", "--metadata-inventory", f"s3.{NAMESPACE}")
    read = []

    for number, others in enumerate(((), ("--relist", "24h"), ("--relist", "24h"))):
        names = [f"{number}.json", f"{number} of nobody.json"]
        for name in names:
            land(s3, bucket, name, {"id": number, "name": "x"})
        found = s3.head_object(Bucket=bucket, Key=f"landing/{names[0]}")
        row = tables.row(f"landing/{names[0]}", e_tag=found["ETag"], size=found["ContentLength"])
        tables.record(row)
        tables.list(row)
        (report,) = run_here(ingest_files.main, "--schema", SCHEMA, *of_tables, *others)
        read.append(report["files_read"])

    assert read == [1, 1, 1]
    # Only the first run needs all files, and it reads them from the live inventory.
    assert caplog.text.count("event=journal_not_enough") == 1


def test_rest_is_taken_by_the_same_run_when_a_file_turns_out_to_be_unreadable(
    live: Watermarks,
    run_here: Callable[..., list[dict[str, Any]]],
    folders: Folders,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folders.land("1.json", {"id": 1, "name": "x"})
    (folders.landing / "2.json.gz").write_bytes(gzip.compress(b'{"id": 2, "name": "y"}')[:-9])
    options = [*folders.arguments, "--schema", SCHEMA, "--format", "json", "--on-unreadable", "set_aside"]

    batches = run_here(ingest_files.main, *options)

    assert [batch["files_read"] for batch in batches] == [1]
    assert "event=batch_again job=parking error=" in caplog.text
    assert live.latest("parking").version == 1


def test_modes_read_and_save_as_the_arguments_say_when_files_are_ingested(
    live: Watermarks,
    run_here: Callable[..., list[dict[str, Any]]],
    folders: Folders,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ingest(*options: str, run_id: str) -> list[int]:
        own = [*folders.arguments, "--schema", SCHEMA, "--JOB_RUN_ID", run_id]
        batches = run_here(ingest_files.main, *own, *options)
        return [batch["files_read"] for batch in batches]

    pause = ("--job-bookmark-option", "job-bookmark-pause")
    for number in range(1, 5):
        folders.land(f"{number}.json", {"id": number, "name": "x"})
        if number < 4:
            # The job commits the file as `ingest_files` would; it need not be read.
            with IncrementalJob(live, "parking", f"jr_{number}") as job:
                job.new_files(folders.arguments[1])
        if number == 1:
            failed = started_without_end(live, "parking")

    assert ingest(*pause, run_id="jr_p") == [1]
    assert ingest("--continuation-option", "continuation-readonly", run_id="jr_p") == [1]
    assert ingest(*pause, "--job-bookmark-from", "jr_1", "--job-bookmark-to", "jr_3", run_id="jr_p") == [2]
    assert ingest(*pause, "--job-bookmark-from", failed, "--job-bookmark-to", "jr_2", run_id="jr_p") == [1]
    assert ingest("--job-bookmark-option", "job-bookmark-disable", "--max-files", "3", run_id="jr_d") == [3]
    assert "event=more_left job=parking mode=disable: nothing is saved, so no batch follows this one" in caplog.messages
    assert ingest("--BOOKMARK_CONTEXT", "north", run_id="jr_n") == [4]
    assert ingest("--job-bookmark-option", "job-bookmark-enable", run_id="jr_4") == [1]
    assert (live.latest("parking").version, live.latest("parking@@north").version) == (4, 1)


@pytest.fixture
def queue(s3: Any, bucket: str, endpoint: str) -> str:
    """Return the URL of a queue that receives an event for each new object of the landing folder."""
    sqs = boto3.client("sqs", endpoint_url=endpoint)
    url: str = sqs.create_queue(QueueName=bucket)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    folder = {"Key": {"FilterRules": [{"Name": "prefix", "Value": "landing/"}]}}
    told = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"], "Filter": folder}
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [told]})
    return url


def test_queue_is_drained_in_batches_when_files_are_ingested_by_events(
    run_here: Callable[..., list[dict[str, Any]]], s3: Any, bucket: str, endpoint: str, queue: str
) -> None:
    def ingest(url: str, *more: str) -> list[int]:
        batches = run_here(ingest_files.main, "--schema", SCHEMA, "--max-files", "2", "--events-queue", url, *more)
        return [batch["files_read"] for batch in batches]

    def left() -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        sqs = boto3.client("sqs", endpoint_url=endpoint)
        found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))

    for name in ("_hidden-0", "_hidden-1", "_hidden-2", "0", "1", "2"):
        land(s3, bucket, f"{name}.json", {"id": int(name[-1]), "name": "x"})
    told = left()
    batches, after = ingest(queue), left()
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    land(s3, bucket, "lost.json", {"id": 9, "name": "x"})
    by_events, by_listing = ingest(queue), ingest(queue, "--relist", "1h")

    assert (told, after) == (7, 0)  # S3 first sends a test message of its own.
    assert batches == [0, 0, 2, 1]  # A batch without new files does not end the run while messages are left.
    assert (by_events, by_listing) == ([0], [1])
