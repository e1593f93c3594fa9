"""A table in one file: the same answers as DynamoDB, typed errors, and no loss when processes die."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import (
    AccessRefusedError,
    ConfigurationError,
    CorruptItemError,
    FencedError,
    InvalidValueError,
    StoreUnavailableError,
    TableNotFoundError,
    TableSchemaError,
)
from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.dynamodb import DynamoTable
from scripts.helpers.protocol.requests import Between, Walk, Write
from scripts.helpers.protocol.sqlite import SqliteTable
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.dynamodb import FakeDynamoDB
from tests.support.long import cases
from tests.support.patience import LONG, PATIENCE
from tests.support.places import REPOSITORY
from tests.support.read_only import as_somebody, make_read_only
from tests.support.steps import commit, frozen, large
from tests.support.table_requests import entries, heads, jobs, range_keys, small

NAME = "sqlite:watermarks.db"


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Watermarks:
    """Return a table in a file, without any AWS configuration."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    made = Watermarks(NAME, clock=clock)
    made.create_table()
    made.store.sleep = lambda _: None
    return made


# --- the same answers -----------------------------------------------------------------------------

writes = st.one_of(
    st.builds(requests.put_head, st.none() | heads(), heads()),
    heads().filter(lambda head: head.claim is not None).map(requests.renew_lease),
    st.builds(requests.put_log, entries),
    st.builds(requests.put_run, entries),
    st.builds(requests.put_chunk, jobs, st.just("p#t1-0"), small, st.binary(max_size=9)),
    st.builds(requests.put, st.builds(items.key, jobs, range_keys), if_new=st.booleans()),
)
reads = st.one_of(
    st.builds(items.key, jobs, range_keys),
    st.builds(Between, jobs),
    st.builds(requests.log_query, jobs, below=st.none() | st.integers(1, 3), page=st.none() | st.integers(1, 3)),
)


@settings(max_examples=cases(20, long=300), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(writes | reads, min_size=5, max_size=30))
def test_file_answers_as_dynamodb_does_when_requests_come_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[Any]
) -> None:
    file = SqliteTable(f"sqlite:{tmp_path_factory.mktemp('one')}/t.db")
    file.create()
    double: Any = FakeDynamoDB("t")

    answers = [(answer(file, one), answer(DynamoTable("t", double), one)) for one in sequence]

    assert [of_file for of_file, _ in answers] == [of_dynamodb for _, of_dynamodb in answers]


def answer(table: Any, asked: Any) -> Any:
    """Return the table's answer to a write, a key or a query."""
    if isinstance(asked, Between):
        page = table.query(asked)
        # If a query ends exactly at its limit, DynamoDB reports only with the next page that nothing follows.
        return page.items
    return table.write(asked) if isinstance(asked, Write) else table.get(asked)


def test_walk_finds_every_item_once_when_pages_are_small(marks: Watermarks) -> None:
    for number in range(7):
        commit(marks, f"job-{number}", "jr_1", {"n": number})
    found, page = [], marks.store.table.walk(Walk(0, 2, 3))
    while page.last is not None:
        found += page.items
        page = marks.store.table.walk(Walk(0, 2, 3, page.last))
    found += page.items

    keys = [(item["jobName"]["S"], item["runId"]["S"]) for item in found]

    assert (len(keys), keys) == (len(set(keys)), sorted(keys))
    assert {job for job, _ in keys} == {f"job-{number}" for number in range(7)}
    assert marks.store.table.walk(Walk(1, 2, 3)).items == []


# --- what users do --------------------------------------------------------------------------------


def test_nobody_waits_for_write_units_when_a_large_state_is_stored(marks: Watermarks) -> None:
    waits: list[float] = []
    marks.store.sleep = waits.append

    commit(marks, "parking", "jr_1", {"packed": large(3, 4_000_000)})

    assert waits == []


def test_only_the_owner_may_read_the_file_when_it_is_made(marks: Watermarks, tmp_path: Path) -> None:
    commit(marks, "parking", "jr_1", {"n": 1})

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    assert modes.keys() >= {"watermarks.db", "watermarks.db-wal"}
    assert set(modes.values()) == {0o600}


def test_run_is_refused_when_another_process_has_the_job(marks: Watermarks, clock: Clock) -> None:
    first = marks.begin("parking", "jr_1")
    other = Watermarks(NAME, clock=marks.clock)
    clock.move(days=2)
    second = other.begin("parking", "jr_2")

    with pytest.raises(FencedError):
        first.freeze({}, {"n": 1})
    second.freeze({}, {"n": 2})
    second.commit()

    assert marks.get_watermark_values("parking") == {"n": 2}


def test_expired_items_go_when_something_is_written(marks: Watermarks) -> None:
    now = int(time.time())
    expiries = {"just": now - 9, "five years": now - 4 * 366 * 86_400, "soon": now + 99, "zero": 0, "older": now // 2}
    for name, at in expiries.items():
        marks.store.put(items.key(name, "jr_1") | {"expiresAt": items.number(at)}, if_new=True)

    commit(marks, "parking", "jr_1", {"n": 1})

    assert {name for name in expiries if marks.store.read(name, "jr_1")} == {"soon", "zero", "older"}


@pytest.mark.parametrize("at", ["1.5", "1E+30", "99999999999999999999", "NaN", "-5"])
def test_item_is_kept_when_its_expiry_is_no_time(marks: Watermarks, at: str) -> None:
    marks.store.put(items.key("old", "jr_1") | {"expiresAt": {"N": at}}, if_new=True)

    commit(marks, "parking", "jr_1", {"n": 1})

    assert marks.store.read("old", "jr_1") is not None


# --- faults ---------------------------------------------------------------------------------------


def test_table_is_missed_and_no_file_made_when_its_name_is_wrong(marks: Watermarks, tmp_path: Path) -> None:
    wrong = Watermarks("sqlite:watermark.db")

    with pytest.raises(TableNotFoundError, match=r"'sqlite:watermark\.db'.*create_table"):
        wrong.begin("parking", "jr_1")

    assert (wrong.exists(), (tmp_path / "watermark.db").exists()) == (False, False)


def test_table_is_not_made_twice_when_a_file_is_there(marks: Watermarks) -> None:
    commit(marks, "parking", "jr_1", {"n": 1})

    with pytest.raises(ConfigurationError, match="exists already"):
        marks.create_table()

    assert marks.get_watermark_values("parking") == {"n": 1}


def newer(path: Path) -> None:
    SqliteTable(f"sqlite:{path}").create()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.write_text("id,name\n" * 999), "something else"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE items (a)"), "something else"),
        (newer, "of format 99"),
    ],
)
def test_file_is_refused_and_unchanged_when_it_is_no_watermark_table(tmp_path: Path, make: Any, why: str) -> None:
    path = tmp_path / "other.db"
    make(path)
    before = path.read_bytes()

    with pytest.raises(TableSchemaError, match=why):
        Watermarks(f"sqlite:{path}").begin("parking", "jr_1")

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["folder", "pipe", "device"]
)
def test_table_is_refused_when_its_name_is_not_that_of_a_file(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "other.db")
    table = Watermarks(f"sqlite:{tmp_path}/other.db")

    for call in (table.create_table, table.list_jobs):
        with pytest.raises(TableSchemaError, match=r"is a folder, a pipe or a device\. Choose another name"):
            call()


@pytest.mark.parametrize("name", ["sqlite:", "sqlite: ", "sqlite://watermarks.db", "sqlite://folder/watermarks.db"])
def test_name_is_refused_when_it_has_no_path(name: str) -> None:
    with pytest.raises(InvalidValueError, match="names no file"):
        Watermarks(name)


def test_outcome_is_unknown_and_nothing_written_when_another_program_keeps_the_lock(
    marks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.helpers.protocol.sqlite.BUSY_SECONDS", 0.01)
    holder = sqlite3.connect(tmp_path / "watermarks.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailableError, match=r"locked\. For 0\.01 s others wrote, or one kept its lock: `lsof "):
        Watermarks(NAME, clock=marks.clock).begin("parking", "jr_1")
    holder.execute("ROLLBACK")

    assert marks.lookups.head("parking") is None
    assert marks.begin("parking", "jr_2").version == 0


def test_write_is_refused_and_the_head_stays_when_the_disk_is_full(marks: Watermarks) -> None:
    commit(marks, "parking", "jr_1", {"n": 1})
    table: Any = marks.store.table
    table._connection().execute(f"PRAGMA max_page_count = {10}")

    with pytest.raises(StoreUnavailableError, match="full"):
        commit(marks, "parking", "jr_2", large(3))

    table._connection().execute("PRAGMA max_page_count = 1000000")
    assert marks.get_watermark_values("parking") == {"n": 1}


def test_write_is_refused_and_reads_go_on_when_the_file_is_read_only(clock: Clock) -> None:
    with tempfile.TemporaryDirectory() as folder, as_somebody(folder):
        made = Watermarks(f"sqlite:{folder}/t.db", clock=clock)
        made.create_table()
        commit(made, "parking", "jr_1", {"n": 1})
        make_read_only(Path(folder, "t.db"))

        with pytest.raises(AccessRefusedError, match=r"write.*t\.db"):
            Watermarks(f"sqlite:{folder}/t.db", clock=clock).begin("parking", "jr_2")

        assert Watermarks(f"sqlite:{folder}/t.db").get_watermark_values("parking") == {"n": 1}


def test_table_is_made_when_a_process_died_while_it_made_it(tmp_path: Path) -> None:
    (tmp_path / "t.db").touch()
    made = Watermarks(f"sqlite:{tmp_path}/t.db")

    with pytest.raises(TableNotFoundError):
        made.begin("parking", "jr_1")
    assert not made.exists()
    made.create_table()

    assert made.begin("parking", "jr_1").version == 0


def test_file_is_refused_when_it_has_two_names(marks: Watermarks, tmp_path: Path) -> None:
    commit(marks, "parking", "jr_1", {"n": 1})
    os.link(tmp_path / "watermarks.db", tmp_path / "other.db")

    for name in ("watermarks.db", "other.db"):
        with pytest.raises(TableSchemaError, match="hard link"):
            Watermarks(f"sqlite:{name}").begin("parking", "jr_2")

    (tmp_path / "other.db").unlink()
    assert marks.begin("parking", "jr_2").version == 1


def test_table_is_one_when_links_lead_to_it(marks: Watermarks, tmp_path: Path) -> None:
    commit(marks, "parking", "jr_1", {"n": 1})
    (tmp_path / "link.db").symlink_to("watermarks.db")
    other = Watermarks("sqlite:link.db", clock=marks.clock)

    commit(other, "parking", "jr_2", {"n": 2})

    assert marks.get_watermark_values("parking") == {"n": 2}
    assert other.store.table.place == marks.store.table.place


MOUNTS = r"""
/dev/vda / ext4 rw 0 0
auto /home autofs rw 0 0
server:/home /home nfs4 rw 0 0
//server/team /mnt/team\040drive cifs rw 0 0
bucket /mnt/bucket fuse.rclone rw 0 0
/crypt /mnt/crypt fuse.gocryptfs rw 0 0
nfs /mnt/usb nfs rw 0 0
/dev/sdb /mnt/usb ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "is_local"),
    [("/w.db", True), ("/home/w.db", False), ("/mnt/team drive/w.db", False), ("/mnt/bucket/a/w.db", False),
     ("/mnt/crypt/w.db", True), ("/mnt/usb/w.db", True), ("/homes/w.db", True)],
)  # fmt: skip
def test_drive_of_another_machine_is_refused_when_the_system_reports_it(
    monkeypatch: pytest.MonkeyPatch, path: str, is_local: bool
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: MOUNTS.strip().replace("\\\\", "\\"))

    if is_local:
        assert SqliteTable(f"sqlite:{path}").path == Path(path)
    else:
        with pytest.raises(InvalidValueError, match="drive of another machine"):
            SqliteTable(f"sqlite:{path}")


def test_file_is_another_table_when_it_replaces_the_first_one(marks: Watermarks, tmp_path: Path) -> None:
    commit(marks, "parking", "jr_1", {"n": 1})
    for path in tmp_path.iterdir():
        path.unlink()
    Watermarks(NAME).create_table()

    assert marks.lookups.head("parking") is None


# --- processes ------------------------------------------------------------------------------------

COPIED = """
import os, sys, time
from scripts.helpers.watermarks import Watermarks
name, go = sys.argv[1:]
marks = Watermarks(name)
def commit(run_id, value):
    run = marks.begin("shared", run_id)
    run.freeze({}, {"n": value})
    run.commit()
commit("jr_1", 1)
child = os.fork()
if child == 0:
    marks.get_watermark_values("shared")
    print("ready", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    commit("jr_3", 3)
    os._exit(0)
time.sleep(0.5)
"""


def test_no_commit_is_lost_when_a_forked_process_outlives_its_parent(tmp_path: Path) -> None:
    """The child used to take the dead parent's locks for its own, and to write to a deleted log."""
    marks = Watermarks(f"sqlite:{tmp_path}/t.db")
    marks.create_table()
    command = [sys.executable, "-c", COPIED, marks.table_name, str(tmp_path / "go")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.wait(PATIENCE)
        commit(marks, "shared", "jr_2", {"n": 2})
        (tmp_path / "go").touch()
        assert process.stdout.read() == ""  # Returns when the child has ended.

    assert [entry.change.run_id for entry in marks.history("shared")] == ["jr_3", "jr_2", "jr_1"]


PROCESSES, RUNS = 8, 3
WORK = """
import sys, time
from datetime import timedelta
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.watermarks import Watermarks
from scripts.helpers.errors import WatermarkError
marks = Watermarks(sys.argv[1])
done = 0
while done < int(sys.argv[2]):
    try:
        run = marks.begin("shared", new_run_id(), lease=timedelta(seconds=2))
        value = (run.watermarks or {"n": 0})["n"]
        if run.plan is None:
            run.freeze({"rows": {"low": value}}, {"n": value + 1})
        if run.commit() == "done":
            print(value + 1, flush=True)
            done += 1
    except WatermarkError:
        time.sleep(0.05)
"""


@pytest.mark.timeout(LONG)
def test_each_number_is_committed_once_when_processes_share_a_file_and_some_are_killed(tmp_path: Path) -> None:
    name = f"sqlite:{tmp_path}/t.db"
    Watermarks(name).create_table()
    command = [sys.executable, "-c", WORK, name, str(RUNS)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) for _ in range(PROCESSES)]
    said: Counter[int] = Counter()
    try:
        for process in running[::4]:
            assert process.stdout is not None
            first = process.stdout.readline()  # The process still has work to do, however slow the machine is.
            os.kill(process.pid, signal.SIGKILL)
            said.update(map(int, [first, *process.stdout.read().split()]))
        for process in running:
            if process not in running[::4]:
                said.update(map(int, process.communicate(timeout=PATIENCE)[0].split()))
    finally:
        for process in running:
            process.kill()

    found = Watermarks(name).get_watermark_values("shared")["n"]

    assert max(said.values()) == 1
    # A process may be killed after its commit and before it reports it.
    assert found - len(running[::4]) <= len(said) <= found
    assert set(said) <= set(range(1, found + 1))


# --- what another program wrote -----------------------------------------------------------------------------------


def test_commit_is_refused_when_another_program_altered_the_head_since_the_freeze(
    marks: Watermarks, tmp_path: Path
) -> None:
    run = frozen(marks, "repairs")
    with sqlite3.connect(tmp_path / "watermarks.db") as db:
        db.execute("UPDATE items SET item = replace(item, '{\"N\"', '{\"X\"') WHERE key = '~latest'")
    with pytest.raises(CorruptItemError):
        run.commit()


def test_head_is_of_the_job_that_is_asked_for_when_two_jobs_have_the_same_text(
    marks: Watermarks, tmp_path: Path
) -> None:
    commit(marks, "repairs", "jr_1", {"n": 1})
    with sqlite3.connect(tmp_path / "watermarks.db") as db:
        db.execute("INSERT INTO items SELECT 'parking', key, item, expires FROM items WHERE key = '~latest'")
    assert [marks.latest(job_id).job_id for job_id in ("repairs", "parking")] == ["repairs", "parking"]


@pytest.mark.parametrize(
    ("row", "damaged"),
    [
        ("'aa2', '~latest', CAST(x'ff80fe' AS TEXT), NULL", ["aa2"]),
        ("CAST(x'61ff' AS TEXT), '~latest', '{}', NULL", [r"b'a\xff'"]),
        ("x'6161', '~latest', '{}', NULL", ["b'aa'"]),
        ("'aa', x'7e6c', '{}', NULL", []),
    ],
    ids=["item", "text of a job", "job", "key"],
)
def test_other_jobs_are_listed_when_another_program_wrote_a_row_of_other_bytes_or_types(
    marks: Watermarks, tmp_path: Path, row: str, damaged: list[str]
) -> None:
    for job in ("aa", "good"):
        commit(marks, job, "jr_1", {"n": 1})
    with sqlite3.connect(tmp_path / "watermarks.db") as db:
        db.execute(f"INSERT INTO items VALUES ({row})")

    found = marks.list_jobs()

    assert sorted(job.job_id for job in found) == sorted(["aa", "good", *damaged])
    assert [job.job_id for job in found if job.problem] == damaged


ENDLESS = (
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "
    "SELECT 'a' || n job, '~latest' key, '{}' item, NULL expires FROM c WHERE n < 0 ORDER BY job"
)


@pytest.mark.parametrize(
    "change",
    [
        f"ALTER TABLE items RENAME TO r; CREATE VIEW items AS {ENDLESS}",
        "ALTER TABLE items RENAME TO r; CREATE VIEW items AS SELECT * FROM r",
        "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items; END",
        "CREATE INDEX i ON items (length(item))",
        "DROP TABLE items",
    ],
    ids=["endless view", "view", "trigger", "index", "gone"],
)
def test_file_is_refused_when_another_program_altered_its_schema(
    marks: Watermarks, tmp_path: Path, change: str
) -> None:
    with sqlite3.connect(tmp_path / "watermarks.db") as db:
        db.executescript(change)

    with pytest.raises(TableSchemaError, match=r"was altered by another program: .*\. Restore the file from a backup"):
        Watermarks(NAME).latest("job")


def test_file_is_read_when_its_table_was_renamed_and_renamed_back(marks: Watermarks, tmp_path: Path) -> None:
    commit(marks, "job", "jr_1", {"n": 1})
    with sqlite3.connect(tmp_path / "watermarks.db") as db:
        db.executescript("ALTER TABLE items RENAME TO r; ALTER TABLE r RENAME TO items; ANALYZE")

    assert Watermarks(NAME).latest("job").version == 1


@pytest.mark.parametrize(
    "change", ["name = x'ff' WHERE name = 'expiring'", "sql = CAST(x'435245ff' AS TEXT) WHERE name = 'items'"]
)
def test_file_is_called_damaged_when_another_program_altered_bytes_of_its_schema(
    marks: Watermarks, tmp_path: Path, change: str
) -> None:
    with sqlite3.connect(tmp_path / "watermarks.db") as db:
        db.executescript(f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET {change}")

    with pytest.raises(TableSchemaError, match="is damaged, or a file of something else"):
        Watermarks(NAME).latest("job")
