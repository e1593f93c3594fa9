"""Scripts written for AWS Glue run unchanged on a stand-in for awsglue, and with our imports both there and here."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from scripts.helpers.watermarks import Watermarks
from tests.support.places import REPOSITORY

SCRIPTS = Path(__file__).parent / "scripts"
STANDIN = REPOSITORY / "tests" / "support" / "awsglue_standin"
HERE, ON_GLUE = "ap-southeast-1", "ap-southeast-2"
"""Separate regions, because the scripts use the table with the default name."""
Run = Callable[..., None]


def twin_of(script: Path) -> str:
    """Return a script with its imports changed, and nothing else."""
    return re.sub(r"^from awsglue[.\w]* import", "from scripts.helpers.glue import", script.read_text(), flags=re.M)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of Parquet files in a folder, with the keys of its partitions."""
    return pq.read_table(folder, partitioning="hive").to_pylist()


def made_table(region: str, endpoint: str) -> Watermarks:
    """Create the table with the default name in a region, and return it."""
    table = Watermarks(dynamodb_client=boto3.client("dynamodb", region_name=region, endpoint_url=endpoint))
    table.create_table()
    return table


@pytest.fixture(scope="module")
def on_glue(spark: Any, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return a function that runs a script in a process with the awsglue stand-in on its path."""
    settings = {
        name: value
        for name, value in spark.sparkContext.getConf().getAll()
        # The scripts use neither Delta Lake nor Iceberg, and a JVM takes seconds to load their extensions.
        if name.startswith(("spark.hadoop", "spark.sql")) and name != "spark.sql.extensions"
    } | {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.jars": spark.sparkContext.getConf().get("spark.jars"),
    }
    bookmarks = tmp_path_factory.mktemp("standin") / "bookmarks.json"
    environment = os.environ | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": ON_GLUE,
        "PYTHONPATH": str(REPOSITORY),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SETTINGS": json.dumps(settings),
        "STANDIN_BOOKMARKS": str(bookmarks),
    }
    log = bookmarks.with_name("log")
    with log.open("w") as errors, subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "run_scripts.py"), str(STANDIN)],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as process:  # fmt: skip

        def run(script: str, *args: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"script": str(SCRIPTS / script), "args": args}) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n", log.read_text()[-3000:]

        yield run
        process.kill()


@pytest.fixture
def moved(on_glue: Run, endpoint: str, tmp_path: Path) -> Iterator[Run]:
    """Return a function that runs the twin of a script with the awsglue stand-in on the path, as on Glue."""
    table = made_table(ON_GLUE, endpoint)

    def run(script: str, *args: str) -> None:
        twin = tmp_path / "moved" / script
        twin.parent.mkdir(exist_ok=True)
        twin.write_text(twin_of(SCRIPTS / script))
        on_glue(str(twin), *args)

    yield run
    table.store.client.delete_table(TableName=table.table_name)


@pytest.fixture
def here(spark: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Return a function that runs the twin of a script in this process, with the table of the default name."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", HERE)
    table = made_table(HERE, endpoint)

    def run(script: str, *args: str) -> None:
        twin = tmp_path / script
        twin.write_text(twin_of(SCRIPTS / script))
        monkeypatch.setattr(sys, "argv", [str(twin), *args])
        runpy.run_path(str(twin), run_name="__main__")

    yield run
    table.store.client.delete_table(TableName=table.table_name)


@pytest.fixture
def both(on_glue: Run, here: Run) -> dict[str, Run]:
    return {"glue": on_glue, "here": here}


def test_twin_differs_in_its_imports_only_when_made() -> None:
    for script in SCRIPTS.glob("*.py"):
        before, after = script.read_text().splitlines(), twin_of(script).splitlines()

        changed = [line for line, twin in zip(before, after, strict=True) if line != twin]

        assert changed
        assert all(line.startswith("from awsglue") for line in changed)


def test_targets_are_the_same_when_files_come_in_and_are_read_in_each_mode(
    both: dict[str, Run], s3: Any, bucket: str, tmp_path: Path
) -> None:
    def land(name: str, body: str) -> None:
        s3.put_object(Bucket=bucket, Key=name, Body=body.encode())

    def run(side: str, run_id: str, target: str, *option: str) -> None:
        both[side](
            "load_files.py", "--JOB_NAME", f"files-{bucket}", "--JOB_RUN_ID", run_id,
            "--source", f"s3://{bucket}/landing/,s3://{bucket}/more/",
            "--target", f"file://{tmp_path}/{side}/{target}/", *option,
        )  # fmt: skip

    enable = ("--job-bookmark-option", "job-bookmark-enable")
    steps = [
        ("jr_1", {"landing/a.csv": "id;bay\n1;north\n", "landing/b.tmp": "no\n"}),
        ("jr_2", {"landing/sub/c.csv": "id;bay\n2;north\n", "more/c.csv": "id;bay\n3;south\n"}),
        ("jr_3", {"landing/d.csv": "id;bay\nx;west\n"}),
    ]
    for run_id, files in steps:
        for name, body in files.items():
            land(name, body)
        for side in both:
            run(side, run_id, "raw", *enable)
    pause = ("--job-bookmark-option", "job-bookmark-pause")
    for side in both:
        run(side, "jr_4", "again", *pause, "--job-bookmark-from", "jr_1", "--job-bookmark-to", "jr_2")
    land("more/e.csv", "id;bay\n4;north\n")
    for side in both:
        run(side, "jr_5", "paused", *pause)
        run(side, "jr_6", "whole")

    def rows(side: str, target: str) -> list[tuple[Any, ...]]:
        return sorted(((row["id"], row["bay"]) for row in rows_in(tmp_path / side / target)), key=str)

    assert rows("here", "raw") == rows("glue", "raw") == [(1, "north"), (2, "north"), (3, "south"), (None, "west")]
    assert rows("here", "again") == rows("glue", "again") == [(2, "north"), (3, "south")]
    assert rows("here", "paused") == rows("glue", "paused") == [(4, "north")]
    assert rows("here", "whole") == rows("glue", "whole")
    assert len(rows("here", "whole")) == 5


def test_targets_are_the_same_when_a_table_grows_over_three_runs(
    both: dict[str, Run], s3: Any, bucket: str, jdbc: Any, postgres: Any, tmp_path: Path
) -> None:
    name = postgres.new_table("id bigint PRIMARY KEY, part text, number integer")
    s3.put_object(
        Bucket=bucket, Key="prices/1.json", Body=b'{"part": "belt", "price": 7}\n{"part": "lamp", "price": 9}'
    )
    login = [text for key, value in postgres.properties.items() for text in (f"--{key}", value)]
    for number, rows in enumerate(["(1, 'belt', 2), (5, 'lamp', 1)", "(6, 'belt', 1), (4, 'lamp', 4)", ""]):
        if rows:
            postgres.sql(f"INSERT INTO {name} VALUES {rows}")
        for side, run in both.items():
            run(
                "load_table.py", "--JOB_NAME", f"table-{bucket}", "--JOB_RUN_ID", f"jr_{number}", "--url", postgres.url,
                *login, "--table", name, "--source", f"s3://{bucket}/prices/", "--target", f"file://{tmp_path}/{side}/",
                "--job-bookmark-option", "job-bookmark-enable",
            )  # fmt: skip

    written = {
        side: [json.loads(line) for path in (tmp_path / side).glob("*.json") for line in path.open()] for side in both
    }
    found = {side: sorted((row["id"], row["total"]) for row in rows) for side, rows in written.items()}

    assert found["here"] == found["glue"] == [(1, 14), (5, 9), (6, 7)]


def test_target_is_the_same_when_the_moved_script_runs_on_glue_after_a_run_that_failed(
    on_glue: Run, moved: Run, s3: Any, bucket: str, endpoint: str, tmp_path: Path
) -> None:
    glue = boto3.client("glue", region_name=ON_GLUE, endpoint_url=endpoint)
    name, sides = f"moved-{bucket}", {"glue": on_glue, "moved": moved}
    glue.create_job(Name=name, Role="role", Command={"Name": "glueetl", "ScriptLocation": "s3://b/a.py"})

    def run(run_id: str, target: str, *option: str) -> None:
        for side, script in sides.items():
            script(
                "load_files.py", "--JOB_NAME", name, "--JOB_RUN_ID", run_id, "--source", f"s3://{bucket}/landing/",
                "--target", f"file://{tmp_path}/{side}/{target}/", "--job-bookmark-option", *option,
            )  # fmt: skip

    runs = []
    for number in (1, 2):
        s3.put_object(Bucket=bucket, Key=f"landing/{number}.csv", Body=f"id;bay\n{number};north\n".encode())
        run(f"jr_{number}", "raw", "job-bookmark-enable")
        runs.append(glue.start_job_run(JobName=name)["JobRunId"])
    sides.pop("glue")
    run("jr_3", "again", "job-bookmark-pause", "--job-bookmark-from", runs[0], "--job-bookmark-to", "jr_2")

    def ids(folder: str) -> list[Any]:
        return sorted(row["id"] for row in rows_in(tmp_path / folder))

    assert ids("moved/raw") == ids("glue/raw") == [1, 2]
    assert ids("moved/again") == [2]


SESSION_IS_GLUES = """
import awsglue.context
from pyspark.context import SparkContext
from scripts.helpers.glue import GlueContext, getResolvedOptions

class Watched(awsglue.context.GlueContext):
    def __init__(self, context):
        super().__init__(context)
        self.spark_session = self.spark_session.newSession()
        made.append((context, self.spark_session))

made, awsglue.context.GlueContext = [], Watched
context = SparkContext.getOrCreate()
ours = GlueContext(context)
assert made == [(context, ours.spark_session)]
assert "JOB_ID" not in getResolvedOptions(["job.py"], [])  # The stand-in's parser leaves it out.
"""


def test_session_and_arguments_are_glues_when_its_library_is_there(on_glue: Run, tmp_path: Path) -> None:
    script = tmp_path / "session.py"
    script.write_text(SESSION_IS_GLUES)

    on_glue(str(script))
