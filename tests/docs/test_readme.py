"""The README's examples run unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_command, run_page, shell_commands
from tests.support.doctests import run_doctest
from tests.support.no_aws import no_aws
from tests.support.places import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
WITHOUT_SPARK = 3
"""Number of blocks that run without Spark: a job, its runs, and what the command line shows."""
_, ON_SPARK = README.split("## On Spark")
BLOCKS = re.findall(r"```python\n(.*?)```", ON_SPARK, re.DOTALL)


@pytest.fixture(params=["glue-watermarks", "sqlite:watermarks.db"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the examples' table: in DynamoDB, or in a file when AWS is not configured."""
    name: str = request.param
    monkeypatch.chdir(tmp_path)
    if name == "glue-watermarks":
        request.getfixturevalue("default_table")
    else:
        no_aws(monkeypatch)
        monkeypatch.setenv("WATERMARKS_TABLE", name)
        Watermarks(name).create_table()
    return name


def test_first_minute_goes_as_the_page_shows_when_nothing_but_the_package_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_aws(monkeypatch)
    monkeypatch.chdir(tmp_path)

    assert run_page("README.md", {}, WITHOUT_SPARK) == WITHOUT_SPARK
    assert README.index("## Try it") < README.index("## On Spark")


def test_readme_examples_work_when_run_in_order(table: str, spark: Any, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, "2026-01-01"), (2, "2026-01-02")], "id BIGINT, day STRING")
    rows.selectExpr("id", "cast(day as timestamp) as last_modified").write.parquet(f"{tmp_path}/repairs")
    landing = tmp_path / "landing" / "parking"
    landing.mkdir(parents=True)
    for number in (1, 2):
        (landing / f"{number}.json").write_text(json.dumps({"id": number, "bay": "A"}))
    names: dict[str, Any] = {"spark": spark, "lake": str(tmp_path)}
    examples = [block for block in BLOCKS if not block.startswith(">>>")]
    looked_up = "".join(block for block in BLOCKS if block.startswith(">>>"))

    for block in examples:
        exec(compile(block.replace("glue-watermarks", table), "README.md", "exec"), names)
    report = run_doctest(looked_up.replace("…", "..."), names)
    commands = [command for command in shell_commands("README.md") if command.startswith("watermarks ")]
    _, planned, written = [run_command("README.md", command) for command in commands]

    assert "would take, as version" in planned
    assert written == "Wrote jobs.html.\n"
    assert names["watermarks"].table_name == table
    assert len(examples) == 2
    assert report.attempted == 6
    assert report.failed == 0
    assert spark.read.parquet(f"{tmp_path}/raw/repairs").count() == 2


def test_examples_of_the_playbook_work_when_they_are_typed_on_a_machine_without_aws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_aws(monkeypatch)
    monkeypatch.chdir(tmp_path)
    [by_hand] = [block for block in BLOCKS if "create_watermark_item" in block]
    watermarks = Watermarks("sqlite:watermarks.db")
    watermarks.create_table()
    names: dict[str, Any] = {"watermarks": watermarks}

    exec(compile(by_hand, "README.md", "exec"), names)

    assert names["watermark"]["watermarks"] == {"latest_data": "2023-03-16 15:45:00", "rows_collected": 808}
    assert '`Watermarks("sqlite:watermarks.db")`' in README


@pytest.mark.usefixtures("default_table")
def test_first_example_has_each_pair_when_its_halves_arrive_in_different_runs(spark: Any, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark, "lake": str(tmp_path)}
    landing = tmp_path / "landing" / "parking"
    landing.mkdir(parents=True)
    # The parking file of repair 2 arrives late, as does the row of repair 3. Nothing of repair 4 is late.
    for run, (repairs, bays) in enumerate([((1, 2), (1, 3)), ((3, 4), (2, 4))], start=1):
        rows = spark.createDataFrame([(number, f"2026-01-0{run}") for number in repairs], "id BIGINT, day STRING")
        stamped = rows.selectExpr("id", "cast(day as timestamp) as last_modified")
        stamped.write.mode("append").parquet(f"{tmp_path}/repairs")
        for number in bays:
            (landing / f"{number}.json").write_text(json.dumps({"id": number, "bay": f"bay {number}"}))

        exec(compile(BLOCKS[0], "README.md", "exec"), names)

    sources = spark.read.parquet(f"{tmp_path}/repairs"), spark.read.json(str(landing))
    assert sorted(names["joined"].collect()) == sorted(sources[0].join(sources[1], "id").collect())
