"""`watermarks ingest-files` and `ingest-table`: the ready-made jobs as commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scripts.cli.main import cli
from scripts.helpers.watermarks import Watermarks
from tests.support.patience import PATIENCE


def test_new_files_are_loaded_from_any_folder_when_the_command_is_run(
    watermarks: Watermarks, endpoint: str, spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 1}')
    given = ["--JOB_NAME", "landed", "--table", watermarks.table_name]

    done = CliRunner().invoke(
        cli, ["ingest-files", *given, "--source", f"{tmp_path}/landing/", "--target", f"{tmp_path}/raw"]
    )

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["job"] == "landed"
    assert [row["id"] for row in spark.read.parquet(f"{tmp_path}/raw").collect()] == [1]


@pytest.mark.parametrize("name", ["ingest-files", "ingest-table"])
def test_help_is_that_of_the_job_when_a_command_is_asked_for_it(name: str, tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "watermarks"

    done = subprocess.run(
        [program, name, "--help"], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: watermarks {name} ")
    assert "--JOB_NAME" in done.stdout


def test_option_before_the_name_is_refused_when_the_job_would_not_see_it() -> None:
    done = CliRunner().invoke(cli, ["--table", "council", "ingest-files", "--JOB_NAME", "x"])

    assert done.exit_code == 2
    assert "--table is given before ingest-files, which does not read it there" in done.output
