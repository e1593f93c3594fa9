"""Export and import: what arrives is what left, and a broken file changes nothing."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.decisions.export_lines import item_line
from scripts.helpers.decisions.transfer import export_jobs, import_jobs, plan_import
from scripts.helpers.errors import StaleError, UnknownJobError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import (
    NOW,
    ORDER,
    Command,
    document,
    leave_open,
    put_legacy,
    put_runs,
    rows_state,
)
from tests.support.clock import Clock
from tests.support.steps import commit
from tests.support.table_items import all_items

Make = Callable[..., Watermarks]


@pytest.fixture(scope="module")
def source(dynamodb: Any) -> Watermarks:
    """Return a table, which tests only read, with a history, an open plan, chunks, and a job of the original class."""
    watermarks = Watermarks("moved-from", dynamodb, clock=Clock())
    watermarks.create_table()
    commit(watermarks, "repairs", "jr_1", {"repairs": rows_state(NOW), "blob": b"\x00\xff", "none": None, "yes": True})
    commit(watermarks, "repairs", "jr_2", {"repairs": rows_state(NOW), "large": "x" * 70_000}, rows_collected=3)
    watermarks.reset("repairs", transformation_ctx="large", why="too large", who="sam")
    commit(watermarks, "repairs", "jr_3", {"large": "y" * 90_000})
    leave_open(watermarks, "parking", "jr_1", NOW, NOW)
    put_legacy(dynamodb, watermarks.table_name, "old", "jr_1")
    put_legacy(dynamodb, watermarks.table_name, "old", "jr_2")
    return watermarks


@pytest.fixture
def target(make_watermarks: Make) -> Watermarks:
    return make_watermarks()


@pytest.fixture(scope="module")
def exported(source: Watermarks) -> bytes:
    """Return an export of the whole source."""
    file = io.BytesIO()
    export_jobs(source.store, ["old", "parking", "repairs"], file, NOW)
    return file.getvalue()


@pytest.fixture
def file(exported: bytes, tmp_path: Path) -> Path:
    """Return a file of its own with the export."""
    path = tmp_path / "jobs.jsonl"
    path.write_bytes(exported)
    return path


@pytest.fixture(scope="module")
def empty(dynamodb: Any) -> Watermarks:
    """Return a table into which nothing is imported."""
    watermarks = Watermarks("moved-nowhere", dynamodb)
    watermarks.create_table()
    return watermarks


def test_every_item_arrives_as_it_was_when_jobs_are_moved(
    run: Command, source: Watermarks, target: Watermarks, file: Path
) -> None:
    done = document(run(target, "import", str(file), "--why", "moving", "--yes", "--output", "json"))

    assert all_items(target) == all_items(source)
    assert done["jobs"] == {"old": "new", "parking": "new", "repairs": "new"}


def test_open_plan_is_replayed_under_the_same_batch_id_when_jobs_are_moved(
    run: Command, source: Watermarks, target: Watermarks, file: Path
) -> None:
    run(target, "import", str(file), "--why", "moving", "--yes")

    before = source.latest("parking")
    with target.begin("parking", "jr_9", take_over=True) as begun:
        assert begun.replay
        assert begun.batch_id == before.next_batch


def test_first_and_last_line_prove_the_file_when_exported(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    first, last = json.loads(lines[0]), json.loads(lines[-1])

    assert (first["kind"], first["format"], first["jobs"]) == ("glue-watermarks-export", 1, 3)
    assert first["items"] == len(lines) - 2
    assert last == {"sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}


def test_same_table_gives_the_same_file_when_exported_again(
    run: Command, source: Watermarks, file: Path, tmp_path: Path
) -> None:
    run(source, "export", "--all", "--file", str(tmp_path / "again"))

    assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_counts_are_a_document_when_a_file_is_exported_as_json(
    run: Command, source: Watermarks, file: Path, tmp_path: Path
) -> None:
    path = str(tmp_path / "again")

    done = document(run(source, "export", "--all", "--file", path, "--output", "json"))

    items = len(file.read_bytes().splitlines()) - 2
    assert (done["table"], done["file"], done["jobs"], done["items"]) == (source.table_name, path, 3, items)


def test_only_some_jobs_are_exported_when_named(run: Command, source: Watermarks, target: Watermarks) -> None:
    named = run(source, "export", "repairs")
    prefixed = run(source, "export", "--prefix", "rep")

    assert named.exit_code == prefixed.exit_code == 0
    assert named.stdout_bytes == prefixed.stdout_bytes
    piped = run(target, "import", "-", "--why", "moving", "--yes", input=named.stdout_bytes)
    assert piped.exit_code == 0, piped.output
    assert {job for job, _ in all_items(target)} == {"repairs"}


def test_jobs_at_work_are_named_when_exported(run: Command, watermarks: Watermarks, clock: Any, tmp_path: Path) -> None:
    clock.now = NOW
    watermarks.begin("parking", "jr_1")

    done = run(watermarks, "export", "--all", "--file", str(tmp_path / "jobs"))

    assert "warning: a run was at work on parking: stop it, and export again." in done.stderr


def test_twenty_jobs_at_work_are_named_when_more_are_exported(
    run: Command, watermarks: Watermarks, clock: Any, tmp_path: Path
) -> None:
    clock.now = NOW
    names = [f"load-{number:02d}" for number in range(21)]
    for name in names:
        watermarks.begin(name, "jr_1")

    done = run(watermarks, "export", "--all", "--file", str(tmp_path / "jobs"))

    assert f"warning: a run was at work on {', '.join(names[:20])}: stop it" in done.stderr


def test_nothing_is_written_again_when_an_import_is_repeated(
    run: Command, source: Watermarks, target: Watermarks, file: Path
) -> None:
    run(target, "import", str(file), "--why", "moving", "--yes")
    before = all_items(target)

    again = document(run(target, "import", str(file), "--why", "moving", "--yes", "--output", "json"))

    assert set(again["jobs"].values()) == {"same"}
    assert all_items(target) == before


def test_runs_of_jobs_stay_where_they_are_when_jobs_are_moved(
    make_watermarks: Make, target: Watermarks, tmp_path: Path
) -> None:
    origin, path = make_watermarks(), tmp_path / "jobs"
    commit(origin, "repairs", "jr_1", {"n": 1})
    moved = set(all_items(origin))
    put_runs(origin, "repairs")
    there = put_runs(target, "repairs")

    with path.open("wb") as file:
        summary = export_jobs(origin.store, ["repairs"], file, NOW)
    plan = plan_import(target.store, path)
    import_jobs(target.store, plan, ORDER)
    commit(origin, "repairs", "jr_2", {"n": 2})
    kept = put_runs(origin, "repairs")
    import_jobs(origin.store, plan_import(origin.store, path, replace=True), ORDER)

    assert (summary.items, plan.steps) == (len(moved), {"repairs": "new"})
    assert set(all_items(target)) == moved | set(there)
    assert set(kept) <= set(all_items(origin))
    with pytest.raises(UnknownJobError):
        put_runs(origin, "runs only")
        export_jobs(origin.store, ["runs only"], io.BytesIO(), NOW)


def test_runs_of_jobs_are_left_out_when_a_file_holds_them(source: Watermarks, target: Watermarks, file: Path) -> None:
    lines = lines_of(file)
    line = item_line(items.key("repairs", items.JOB_RECORD_KEY) | {"state": {"S": "WAITING"}})
    count = json.loads(lines[0])["items"]
    file.write_bytes(signed([*header(lines, items=count + 1), line]))

    for step in ("new", "same"):
        plan = plan_import(target.store, file)
        assert plan.steps["repairs"] == step
        import_jobs(target.store, plan, ORDER)

    assert all_items(target) == all_items(source)


@pytest.mark.parametrize("left", [1, 4, 6])
def test_import_goes_on_when_an_earlier_one_died_half_way(
    run: Command, source: Watermarks, target: Watermarks, file: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    put, count = Store.put, [left]

    def dying(self: Store, item: Any, **options: Any) -> bool:
        count[0] -= 1
        if count[0] < 0:
            raise KeyboardInterrupt
        return put(self, item, **options)

    monkeypatch.setattr("scripts.helpers.decisions.transfer.JOBS_AT_ONCE", 1)
    monkeypatch.setattr(Store, "put", dying)
    with pytest.raises(KeyboardInterrupt):
        import_jobs(target.store, plan_import(target.store, file), ORDER)
    monkeypatch.setattr(Store, "put", put)

    done = document(run(target, "import", str(file), "--why", "moving", "--yes", "--output", "json"))

    assert "continue" in done["jobs"].values()
    assert all_items(target) == all_items(source)


def test_job_cannot_begin_when_its_import_died_half_way(
    source: Watermarks, target: Watermarks, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.helpers.errors import CorruptItemError

    put = Store.put

    def no_head(self: Store, item: Any, **options: Any) -> bool:
        return item[items.RANGE_KEY]["S"] == items.HEAD_KEY or put(self, item, **options)

    monkeypatch.setattr(Store, "put", no_head)
    import_jobs(target.store, plan_import(target.store, file), ORDER)

    with pytest.raises(CorruptItemError, match="it is gone"):
        target.begin("repairs", "jr_9")


def test_jobs_that_exist_are_refused_when_not_told_to_replace(
    run: Command, source: Watermarks, target: Watermarks, file: Path
) -> None:
    commit(target, "repairs", "jr_other", {"seen": 1})
    before = all_items(target)

    done = run(target, "import", str(file), "--why", "moving", "--yes")

    assert done.exit_code == 65
    assert "holds 1 of these jobs already: 'repairs'" in done.stderr
    assert "watermarks import --replace" in done.stderr
    assert all_items(target) == before


def test_job_is_replaced_in_a_new_epoch_when_told_to(
    run: Command, source: Watermarks, target: Watermarks, file: Path
) -> None:
    for number in range(6):
        commit(target, "repairs", f"jr_other_{number}", {"seen": number})
    replaced, origin = target.latest("repairs"), source.latest("repairs")

    done = document(
        run(target, "import", str(file), "--replace", "--why", "moving", "--who", "sam", "--yes", "--output", "json")
    )

    now = target.latest("repairs")
    assert done["jobs"]["repairs"] == "replace"
    assert now.epoch not in (replaced.epoch, origin.epoch)
    assert now.version == origin.version + 1
    assert target.get_watermark_values("repairs") == source.get_watermark_values("repairs")
    assert [(entry.change.op, entry.change.who, entry.change.why) for entry in target.history("repairs", 1)] == [
        ("SET", "sam", "moving")
    ]
    assert [entry.version for entry in target.history("repairs")] == [5, 4, 3, 2, 1]
    assert not [key for job, key in all_items(target) if key.startswith("jr_other")]
    assert target.doctor("repairs") == []


def test_run_of_the_replaced_job_can_commit_nothing_when_it_is_replaced(
    run: Command, source: Watermarks, target: Watermarks, file: Path
) -> None:
    zombie = target.begin("repairs", "jr_other")
    zombie.freeze({"rows": {"kind": "rows"}}, {"seen": 1})

    run(target, "import", str(file), "--replace", "--why", "moving", "--yes")

    with pytest.raises(StaleError):
        zombie.commit()
    assert "seen" not in target.get_watermark_values("repairs")


def test_copy_has_batch_ids_of_its_own_when_a_new_epoch_is_asked_for(
    run: Command, source: Watermarks, target: Watermarks, file: Path
) -> None:
    done = run(target, "import", str(file), "--new-epoch", "--why", "a copy for tests", "--yes")

    assert done.exit_code == 0
    assert target.latest("repairs").epoch != source.latest("repairs").epoch
    assert target.history("repairs")[0].change.why == "a copy for tests"
    assert target.doctor("repairs") == []


def test_jobs_are_counted_when_an_import_has_many(
    run: Command, target: Watermarks, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.cli.import_.SHOWN", 1)

    done = run(target, "import", str(file), "--why", "moving", "--yes")

    assert "… and 2 more" in done.stdout.splitlines()


def test_nothing_is_written_when_the_answer_is_no(
    run: Command, target: Watermarks, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.cli import deciding

    monkeypatch.setattr(deciding, "is_asked", lambda: True)

    done = run(target, "import", str(file), "--why", "moving", input="n\n")

    assert done.exit_code == 1
    assert "Import 3 jobs into table" in done.stderr
    assert all_items(target) == {}


# --- broken files ---------------------------------------------------------------------------------


def lines_of(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def signed(lines: list[bytes]) -> bytes:
    """Return a file whose hash is right, whatever else is wrong with it."""
    body = b"".join(lines)
    return body + json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"


def header(lines: list[bytes], **changed: Any) -> list[bytes]:
    return [json.dumps(json.loads(lines[0]) | changed).encode() + b"\n", *lines[1:-1]]


def without(lines: list[bytes], text: bytes) -> list[bytes]:
    kept = [line for line in lines[:-1] if text not in line]
    return header([*kept, b""], items=len(kept) - 1)


def changed(lines: list[bytes], old: bytes, new: bytes) -> list[bytes]:
    assert any(old in line for line in lines)
    return [line.replace(old, new) for line in lines[:-1]]


BROKEN: dict[str, tuple[Callable[[list[bytes]], bytes], str]] = {
    "empty": (lambda lines: b"", "the last one, with the hash, is missing"),
    "no-last-line": (lambda lines: b"".join(lines[:-1]), "the last one, with the hash, is missing"),
    "cut-off": (lambda lines: b"".join(lines)[:-3], "it is cut off"),
    "cut-in-the-middle": (lambda lines: b"".join(lines)[:2_000], "it is cut off"),
    "a-byte-changed": (lambda lines: b"".join(lines).replace(b"jr_2", b"jr_7", 1), "the hash of the file is another"),
    "a-line-left-out": (lambda lines: b"".join(lines[:3] + lines[4:]), "the hash of the file is another one"),
    "more-after-the-end": (lambda lines: b"".join(lines) + lines[1], "it comes after the last one"),
    "not-json": (lambda lines: signed([*lines[:2], b"hello\n"]), "it is not what an export writes"),
    "not-an-export": (lambda lines: signed([b'{"a": 1}\n']), "this is not an export"),
    "a-list": (lambda lines: signed([b"[]\n"]), "this is not an export"),
    "newer-file": (lambda lines: signed(header(lines, format=2)), "its format is 2, and this version knows 1"),
    "wrong-count": (lambda lines: signed(header(lines, items=1)), "it counts other items than the"),
    "item-twice": (lambda lines: signed([lines[0], lines[1], lines[1]]), "its item is in the file already"),
    "job-in-two-places": (lambda lines: signed([lines[0], lines[1], lines[-2], lines[2]]), "not all in one place"),
    "no-key": (lambda lines: signed([lines[0], b'{"jobName":{"S":"a"}}\n']), "it is not what an export writes"),
    "unknown-type": (
        lambda lines: signed([lines[0], b'{"jobName":{"S":"a"},"runId":{"S":"b"},"c":{"X":"d"}}\n']),
        "it is not what an export writes (ValueError)",
    ),
    "not-base64": (lambda lines: signed(changed(lines, b'{"B":"', b'{"B":"*')), "it is not what an export writes"),
    "head-damaged": (lambda lines: signed(changed(lines, b'"fence"', b'"fance"')), "it is not what an export writes"),
    "chunk-missing": (lambda lines: signed(without(lines, b'"data"')), "chunks that its head refers to"),
    "no-head": (lambda lines: signed(header(lines, jobs=0)), "it counts other items"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_nothing_is_written_when_the_file_is_broken(run: Command, empty: Watermarks, file: Path, name: str) -> None:
    spoil, text = BROKEN[name]
    file.write_bytes(spoil(lines_of(file)))

    done = run(empty, "import", str(file), "--why", "moving", "--yes")

    assert done.exit_code == 65
    assert text in done.stderr
    assert "Nothing was imported." in done.stderr
    assert all_items(empty) == {}


def test_nothing_is_written_when_an_item_is_of_a_newer_format(run: Command, empty: Watermarks, file: Path) -> None:
    newer = changed(lines_of(file), b'"fmt":{"N":"1"}', b'"fmt":{"N":"99"}')
    file.write_bytes(signed(newer))

    done = run(empty, "import", str(file), "--why", "moving", "--yes")

    assert done.exit_code == 78
    assert "stored in format 99" in done.stderr
    assert all_items(empty) == {}


def test_nothing_is_written_when_the_file_changes_after_the_check(target: Watermarks, file: Path) -> None:
    plan = plan_import(target.store, file)
    file.write_bytes(b"".join(lines_of(file)).replace(b"jr_2", b"jr_7"))

    with pytest.raises(Exception, match="the file has changed since it was checked"):
        import_jobs(target.store, plan, ORDER)

    assert not [key for job, key in all_items(target) if key == items.HEAD_KEY]


def test_file_is_refused_when_it_is_not_there(run: Command, target: Watermarks) -> None:
    done = run(target, "import", "/nowhere/jobs.jsonl", "--why", "moving", "--yes")

    assert done.exit_code == 1
    assert "/nowhere/jobs.jsonl: No such file or directory" in done.stderr


def test_half_a_file_is_left_nowhere_when_an_export_fails(run: Command, source: Watermarks, tmp_path: Path) -> None:
    done = run(source, "export", "repairs", "unknown", "--file", str(tmp_path / "jobs"))

    assert done.exit_code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["export"], "Give either names of jobs, --prefix or --all."),
        (["export", "repairs", "--all"], "Give either names of jobs, --prefix or --all."),
        (["export", "--all", "--output", "json"], "Give --file"),
    ],
    ids=["nothing", "both", "two-documents"],
)
def test_command_is_refused_when_its_arguments_do_not_fit(
    run: Command, source: Watermarks, arguments: list[str], text: str
) -> None:
    done = run(source, *arguments)

    assert done.exit_code == 2
    assert text in done.stderr


def test_import_is_refused_when_its_file_comes_where_answers_would(
    run: Command, source: Watermarks, target: Watermarks
) -> None:
    data = run(source, "export", "repairs").stdout_bytes

    done = run(target, "import", "-", "--why", "moving", input=data)

    assert done.exit_code == 2
    assert (
        "The file is read from standard input, so the command cannot ask for confirmation. Pass --yes." in done.stderr
    )
    assert all_items(target) == {}
