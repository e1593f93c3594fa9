"""`watermarks files JOB --sweep`: which files it names, and deletes after confirmation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import BAD_DATA
from tests.cli.stories import Command

JOB = "parking"
REAL_NOW = datetime.now(timezone.utc)
"""The real time, because file times in the folder come from this machine's clock."""
ORPHAN = "f" * 32 + ".parquet"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.csv").write_text("id\n1\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def call(run: Command, make_watermarks: Callable[..., Watermarks], source: Path, folder: Path) -> Callable[..., Any]:
    """Return a function that calls the command for a job that has read five files and has a leftover ledger file."""
    watermarks = make_watermarks(clock=lambda: REAL_NOW)
    take(watermarks, source, folder)
    (folder / ORPHAN).write_bytes(b"rows")
    at = (REAL_NOW - timedelta(days=9)).timestamp()
    for name in os.listdir(folder):
        os.utime(folder / name, (at, at))

    def command(*arguments: str, uri: str | None = f"{folder}/") -> Any:
        given = [] if uri is None else ["--ledger-uri", uri]
        return run(watermarks, "files", JOB, *arguments, *given, now=REAL_NOW)

    command.watermarks = watermarks  # type: ignore[attr-defined]
    return command


def take(watermarks: Watermarks, source: Path, folder: Path, **options: Any) -> int:
    with IncrementalJob(watermarks, JOB) as job:
        return job.new_files(str(source), transformation_ctx="files", ledger_uri=f"{folder}/", **options).count


def live_in(folder: Path) -> Path:
    (name,) = [name for name in os.listdir(folder) if name != ORPHAN]
    return folder / name


def test_left_over_files_go_and_no_others_when_somebody_says_yes(call: Any, folder: Path) -> None:
    asked = call("--sweep")
    still_there = (folder / ORPHAN).exists()
    done = call("--sweep", "--yes")
    again = json.loads(call("--sweep", "--yes", "--output", "json").stdout)

    assert (asked.exit_code, still_there) == (2, True)
    assert "The command asks for confirmation and there is no terminal. Pass --yes." in asked.stderr
    assert done.exit_code == 0, done.output
    assert f"  {ORPHAN}  4 bytes" in done.stdout
    assert "Done: 1 file deleted." in done.stdout
    assert (again["deleted"], again["live"], again["files"]) == (0, 1, [])
    assert os.listdir(folder) == [live_in(folder).name]


def test_left_over_files_are_counted_when_they_are_many(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.cli.sweeping.SHOWN", 0)

    done = call("--sweep", "--yes")

    assert "  and 1 more" in done.stdout.splitlines()
    assert ORPHAN not in done.stdout


def test_young_and_foreign_files_are_counted_when_nothing_may_go(call: Any, folder: Path) -> None:
    (folder / "notes.txt").write_text("keep")

    shown = call("--sweep", "--older-than", "10d", "--yes")

    assert shown.exit_code == 0, shown.output
    assert "1 file, less than 10 days old" in shown.stdout
    assert "1 file with names that no ledger has; they stay" in shown.stdout
    assert "Done" not in shown.stdout


def test_run_is_named_when_it_holds_files_back(call: Any, folder: Path) -> None:
    began = REAL_NOW - timedelta(days=20)
    slow = Watermarks(call.watermarks.table_name, call.watermarks.store.client, clock=lambda: began)
    slow.begin("another", "jr_slow")

    shown = call("--sweep", "--yes")

    assert "when run jr_slow of another began. If it is dead: watermarks release another" in shown.stdout
    assert (folder / ORPHAN).exists()


def test_next_run_takes_what_is_new_when_a_lost_ledger_was_reset_and_starts_from_the_last_run(
    call: Any, source: Path, folder: Path
) -> None:
    live_in(folder).unlink()
    last = call.watermarks.latest(JOB).last.at
    for path in source.iterdir():
        os.utime(path, ((last - timedelta(hours=1)).timestamp(),) * 2)
    (source / "3 new.csv").write_text("id\n7\n")

    call.watermarks.reset(JOB, transformation_ctx="files", why="the bucket lost it")
    taken = take(call.watermarks, source, folder, start_from=last)

    assert (taken, take(call.watermarks, source, folder)) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--older-than", "9d"], 2, "has no effect without --"),
        (["--sweep", "--older-than", "23h", "--yes"], BAD_DATA, "stay for at least 1 day"),
        (["--sweep", "--context", "x", "--yes"], BAD_DATA, "has no context 'x' of files"),
        (["--sweep", "--retry-all", "--yes"], 2, "--retry-all has no effect with --sweep"),
        (["--sweep", "--why", "space", "--yes"], 2, "--why has no effect with --sweep"),
    ],
)
def test_nothing_changes_when_the_options_do_not_fit(
    call: Any, folder: Path, arguments: list[str], code: int, text: str
) -> None:
    before = os.listdir(folder)

    done = call(*arguments)

    assert (done.exit_code, text in done.stderr) == (code, True), done.output
    assert os.listdir(folder) == before
    assert call.watermarks.latest(JOB).version == 1


@pytest.mark.parametrize(
    ("uri", "code", "text"),
    [(None, 2, "Missing option '--ledger-uri'"), ("https://example.com/", BAD_DATA, "https")],
)
def test_sweep_is_refused_when_its_ledger_uri_is_not_usable(call: Any, uri: str | None, code: int, text: str) -> None:
    done = call("--sweep", uri=uri)

    assert (done.exit_code, text in done.stderr) == (code, True), done.output


@pytest.mark.parametrize("is_frozen", [False, True], ids=["before its plan", "after its plan"])
def test_run_commits_what_it_has_written_when_the_folder_is_swept_before_its_commit(
    call: Any, source: Path, folder: Path, is_frozen: bool
) -> None:
    """The run began twenty days ago, its ledger files look nine days old, and it has not committed."""
    (source / "9.csv").write_text("id\n1\n")
    began = REAL_NOW - timedelta(days=20)
    slow = Watermarks(call.watermarks.table_name, call.watermarks.store.client, clock=lambda: began)
    before = set(os.listdir(folder))

    with IncrementalJob(slow, JOB) as job:
        taken = job.new_files(str(source), transformation_ctx="files", ledger_uri=f"{folder}/").count
        if is_frozen:
            job.freeze()
        written = set(os.listdir(folder)) - before
        for name in written:
            os.utime(folder / name, ((REAL_NOW - timedelta(days=9)).timestamp(),) * 2)
        swept = call("--sweep", "--yes")

    assert (taken, swept.exit_code, bool(written)) == (1, 0, True), swept.output
    assert written <= set(os.listdir(folder))
    assert take(call.watermarks, source, folder) == 0
