"""Commands that change a job show what they do, ask for confirmation, and record the reason in the history."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import click
import pytest

from scripts.cli import deciding
from scripts.cli.documents import as_json, with_spans
from scripts.helpers.errors import StaleError
from scripts.helpers.rows.identity import as_text
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, Command, document, leave_open, put_legacy, rows_state
from tests.support.clock import Clock
from tests.support.files_states import state_of
from tests.support.steps import commit

FIRST, SECOND = datetime(2026, 3, 1, tzinfo=timezone.utc), datetime(2026, 3, 2, tzinfo=timezone.utc)


@pytest.fixture
def job(watermarks: Watermarks) -> str:
    """Return a job with two versions."""
    return make_job(watermarks)


@pytest.fixture(scope="module")
def kept(dynamodb: Any) -> Watermarks:
    """Return a table with the same job, which no test changes."""
    watermarks = Watermarks("kept", dynamodb, clock=Clock())
    watermarks.create_table()
    make_job(watermarks)
    return watermarks


def make_job(watermarks: Watermarks) -> str:
    for number, value in ((1, FIRST), (2, SECOND)):
        commit(watermarks, "repairs", f"jr_{number}", {"repairs": rows_state(value), "seen": number})
    return "repairs"


DECISIONS = [
    (["rewind", "repairs", "--to-version", "1"], "REWIND"),
    (["rewind", "repairs", "--to-run", "jr_1"], "REWIND"),
    (["rewind", "repairs", "--to-version", "1", "--context", "repairs"], "REWIND"),
    (["reset", "repairs"], "RESET"),
    (["reset", "repairs", "--context", "repairs"], "RESET"),
    (["set", "repairs", "seen=7"], "SET"),
]


every_decision = pytest.mark.parametrize(
    ("arguments", "op"), DECISIONS, ids=["version", "run", "version-context", "reset", "reset-context", "set"]
)


@every_decision
def test_decision_is_applied_and_recorded_when_yes_is_passed(
    run: Command, watermarks: Watermarks, job: str, arguments: list[str], op: str
) -> None:
    done = document(run(watermarks, *arguments, "--why", "a test", "--who", "sam", "--yes", "--output", "json"))

    newest = watermarks.history(job)[0]
    assert (newest.version, newest.change.op, newest.change.why, newest.change.who) == (3, op, "a test", "sam")
    assert (done["before"]["version"], done["after"]["version"]) == (2, 3)


@pytest.mark.parametrize(
    "arguments",
    [arguments for arguments, _ in DECISIONS]
    + [
        ["set", "repairs", "value=2026-03-05T00:00:00Z", "--context", "repairs"],
        ["set", "repairs", "value=2026-02-01T00:00:00Z", "--context", "repairs"],
        [
            "set",
            "repairs",
            "value=2026-02-01T00:00:00Z",
            "--context",
            "fines",
            "--cursor-column",
            "at",
            "--type",
            "timestamp",
        ],
    ],
    ids=["version", "run", "version-context", "reset", "reset-context", "set", "forward", "back", "new-context"],
)
def test_preview_equals_the_change_when_a_decision_is_taken(
    run: Command, watermarks: Watermarks, job: str, arguments: list[str]
) -> None:
    before = watermarks.latest(job).watermarks

    changes = document(run(watermarks, *arguments, "--why", "a test", "--yes", "--output", "json"))["changes"]

    after = watermarks.latest(job).watermarks
    differing = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {change["watermark"] for change in changes} == differing
    for change in changes:
        assert change["to"] == as_json(with_spans(after.get(change["watermark"])))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["set", "repairs", "repairs:int=5"], "is the state of a source, which one value cannot replace"),
        (["set", "repairs", "type=nonsense", "--context", "repairs"], "so the next run would refuse it"),
        (["rewind", "repairs", "--to-version", "1", "--context", "fines"], "Neither version 1 nor the present one"),
        (["reset", "repairs", "--context", "fines"], "has no context 'fines'"),
        (["release", "repairs", "--run", "jr_9"], "Run 'jr_3' has job 'repairs' now"),
    ],
    ids=["set-source", "set-type", "rewind", "reset", "release"],
)
def test_decision_is_refused_before_the_question_when_it_cannot_be_taken(
    run: Command, watermarks: Watermarks, job: str, answers: None, arguments: list[str], text: str
) -> None:
    leave_open(watermarks, job, "jr_3", SECOND, NOW)
    before = watermarks.latest(job)

    done = run(watermarks, *arguments, "--why", "a test", input="y\n")

    assert done.exit_code not in (0, 2)
    assert text in " ".join(done.stderr.split())
    assert "[y/N]" not in done.stderr
    assert watermarks.latest(job) == before


@every_decision
def test_nothing_is_changed_when_the_answer_is_no(
    run: Command, kept: Watermarks, answers: None, arguments: list[str], op: str
) -> None:
    before = kept.latest("repairs")

    done = run(kept, *arguments, "--why", "a test", input="n\n")

    assert done.exit_code == 1
    assert "Change job repairs?" in done.stderr
    assert "Nothing was changed." in done.stderr
    assert kept.latest("repairs") == before


@every_decision
def test_decision_is_refused_when_nobody_can_be_asked(
    run: Command, kept: Watermarks, arguments: list[str], op: str
) -> None:
    before = kept.latest("repairs")

    done = run(kept, *arguments, "--why", "a test")

    assert done.exit_code == 2
    assert "The command asks for confirmation and there is no terminal. Pass --yes." in done.stderr
    assert kept.latest("repairs") == before


@pytest.mark.parametrize("arguments", [["rewind", "repairs", "--to-version", "1"], ["reset", "repairs"],
                                       ["set", "repairs", "seen=7"], ["discard-plan", "repairs"]],
                         ids=lambda value: value[0])  # fmt: skip
def test_decision_is_refused_when_there_is_no_reason(run: Command, kept: Watermarks, arguments: list[str]) -> None:
    done = run(kept, *arguments, "--yes")

    assert done.exit_code == 2
    assert "--why" in done.stderr
    assert kept.latest("repairs").version == 2


def test_decision_is_shown_with_the_plan_and_the_run_it_ends_when_a_run_is_at_work(
    run: Command, watermarks: Watermarks, job: str, answers: None, clock: Clock
) -> None:
    clock.now = NOW
    leave_open(watermarks, job, "jr_3", SECOND, NOW)

    done = run(watermarks, "rewind", job, "--to-version", "1", "--why", "a test", input="y\n")

    assert done.exit_code == 0
    assert "version 2 becomes 3" in done.stdout
    assert "This drops the open plan (repairs). Data that a sink of your own wrote for it stays." in done.stdout
    assert "Run jr_3 is at work, lease until 2026-03-16 16:00:00Z. It will not be able to commit." in done.stdout
    assert "2026-03-02 00:00:00Z" in done.stdout
    assert "2026-03-01 00:00:00Z" in done.stdout
    assert "Done: version 3, REWIND." in done.stdout


@every_decision
def test_nothing_is_changed_when_the_job_changes_while_it_is_asked_about(
    run: Command, watermarks: Watermarks, job: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str], op: str
) -> None:
    def meanwhile(*_: Any, **__: Any) -> None:
        commit(watermarks, job, "jr_3", {"seen": 3})

    monkeypatch.setattr(deciding, "asked", meanwhile)

    done = run(watermarks, *arguments, "--why", "a test")

    assert done.exit_code == 1
    assert "changed while you looked: version 2 was shown and it is at 3" in done.stderr
    assert watermarks.history(job)[0].change.op == "COMMIT"


def test_what_a_run_commits_is_kept_when_a_new_job_is_set_meanwhile(
    run: Command, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "asked", lambda *_, **__: commit(watermarks, "loans", "jr_1", {"seen": 3}))

    done = run(watermarks, "set", "loans", "seen=1", "--new", "--why", "a test")

    assert done.exit_code == 1
    assert "Job 'loans' changed while you looked: version 0 was shown and it is at 1" in done.stderr
    assert watermarks.get_watermark_values("loans") == {"seen": 3}


@pytest.mark.parametrize(
    "arguments",
    [["reset", "old"], ["set", "old", "rows_collected=1"], ["rewind", "old", "--to-run", "jr_1"],
     ["doctor", "old", "--after-restore"]],
    ids=lambda value: value[0],
)  # fmt: skip
def test_decision_is_taken_when_a_job_has_one_item_of_the_original_class(
    run: Command, watermarks: Watermarks, dynamodb: Any, arguments: list[str]
) -> None:
    put_legacy(dynamodb, watermarks.table_name, "old", "jr_1")

    done = run(watermarks, *arguments, "--why", "a test", "--yes")

    assert done.exit_code == 0, done.output
    assert [entry.version for entry in watermarks.history("old")] == [2, 1]


@pytest.mark.parametrize(
    "first",
    [["set", "repairs", "seen=9"], ["reset", "repairs", "--context", "seen"], ["discard-plan", "repairs"]],
    ids=lambda value: value[0],
)
def test_rewind_to_the_latest_run_works_when_a_decision_followed_it(
    run: Command, watermarks: Watermarks, job: str, first: list[str]
) -> None:
    if first[0] == "discard-plan":
        leave_open(watermarks, job, "jr_3", SECOND, NOW)
    assert run(watermarks, *first, "--why", "a test", "--yes").exit_code == 0

    done = run(watermarks, "rewind", job, "--to-run", "jr_2", "--why", "a test", "--yes")

    assert done.exit_code == 0, done.output
    assert watermarks.get_watermark_values(job)["seen"] == 2


def test_plan_is_discarded_when_told_to(run: Command, watermarks: Watermarks, job: str) -> None:
    leave_open(watermarks, job, "jr_3", SECOND, NOW)

    done = document(run(watermarks, "discard-plan", job, "--why", "wrong files", "--yes", "--output", "json"))

    assert done["before"]["open_plan"] is not None
    assert watermarks.latest(job).plan is None
    assert watermarks.history(job)[0].change.op == "DISCARD"


def test_discard_is_refused_when_there_is_no_plan(run: Command, kept: Watermarks) -> None:
    done = run(kept, "discard-plan", "repairs", "--why", "a test", "--yes")

    assert done.exit_code == 1
    assert "there is no open plan to discard" in done.stderr


@pytest.mark.parametrize(
    ("assigned", "name", "value"),
    [
        ("seen=9", "seen", 9),
        ("name=nine=9", "name", "nine=9"),
        ("name:int=9", "name", 9),
        ("name:float=1.5", "name", 1.5),
        ("name:decimal=1.50", "name", Decimal("1.5")),
        ("name:bool=true", "name", True),
        ("name:null=", "name", None),
        ("name:date=2026-03-01", "name", date(2026, 3, 1)),
        ("name:datetime=2026-03-01T01:00:00+01:00", "name", FIRST),
        ("na:me=x", "na:me", "x"),
    ],
    ids=lambda value: value if isinstance(value, str) and "=" in value else "",
)
def test_value_is_set_with_its_type_when_assigned(
    run: Command, watermarks: Watermarks, job: str, assigned: str, name: str, value: Any
) -> None:
    done = run(watermarks, "set", job, assigned, "--why", "a test", "--yes")

    found = watermarks.get_watermark_values(job)
    assert done.exit_code == 0
    assert (found[name], type(found[name])) == (value, type(value))
    assert set(found) == {"repairs", "seen", name}


def test_cursor_has_the_type_of_its_column_when_it_is_set(run: Command, watermarks: Watermarks, job: str) -> None:
    done = run(watermarks, "set", job, "value=2026-03-05T00:00:00Z", "--context", "repairs", "--why", "x", "--yes")

    state = watermarks.get_watermark_values(job)["repairs"]
    assert done.exit_code == 0
    assert state["value"] == datetime(2026, 3, 5, tzinfo=timezone.utc)
    assert watermarks.gaps(job, "repairs") == [(SECOND, datetime(2026, 3, 5, tzinfo=timezone.utc))]


def test_source_is_forgotten_and_the_cursor_kept_when_the_command_of_the_error_is_run(
    run: Command, watermarks: Watermarks, job: str
) -> None:
    source = as_text({"table": "repairs"})
    watermarks.set_watermark(job, {"source": source}, transformation_ctx="repairs", why="a table")
    before = watermarks.get_watermark_values(job)["repairs"]
    assert before.pop("source") == source

    done = run(watermarks, "set", job, "--context", "repairs", "source:null=", "--why", "moved", "--yes")

    assert done.exit_code == 0
    assert watermarks.get_watermark_values(job)["repairs"] == before


def test_job_is_made_when_a_watermark_is_set_before_its_first_run(run: Command, watermarks: Watermarks) -> None:
    cursor = ["--context", "rows", "--cursor-column", "id", "--type", "bigint"]

    done = run(watermarks, "set", "loans", "value=500", *cursor, "--new", "--why", "loaded by hand", "--yes")

    state = watermarks.get_watermark_values("loans")["rows"]
    assert done.exit_code == 0
    assert (state["cursor_column"], state["type"], state["value"]) == ("id", "bigint", 500)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["set", "repairs", "seen=nine"], 65, "seen is not of type int"),
        (["set", "repairs", "seen=1_000"], 65, "seen is not of type int"),
        (["set", "repairs", "a:float=1_000"], 65, "a is not of type float"),
        (["set", "repairs", "a:datetime=2026"], 65, "a is not of type datetime"),
        (["set", "repairs", "a:date=20260110"], 65, "a is not of type date"),
        (["set", "repairs", "seen"], 2, "is not NAME=VALUE"),
        (["set", "repairs", "value=soon", "--context", "repairs"], 65, "last_modified"),
        (["set", "repairs", "value=2026", "--context", "repairs"], 65, "value is not of type timestamp"),
        (["set", "repairs", "value=1", "--context", "other"], 2, "Give --cursor-column and --type"),
        (["set", "repairs", "a:datetime=2026-03-01T01:00:00"], 65, "without a time zone"),
        (["rewind", "repairs"], 2, "Give either --to-version or --to-run."),
        (["rewind", "repairs", "--to-version", "9"], 1, "Version 9 of job 'repairs' is not in its log"),
        (["rewind", "repairs", "--to-run", "jr_9"], 1, "Run 'jr_9' of job 'repairs' has no watermark"),
        (["reset", "repairs", "--context", "fines"], 65, "has no context 'fines'. It has: repairs, seen."),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_decision_is_refused_when_its_arguments_do_not_fit(
    run: Command, kept: Watermarks, arguments: list[str], code: int, text: str
) -> None:
    before = kept.latest("repairs")

    done = run(kept, *arguments, "--why", "a test", "--yes")

    assert done.exit_code == code
    assert text in done.stderr
    assert kept.latest("repairs") == before


def test_job_of_the_original_class_is_adopted_when_its_run_is_named(
    run: Command, watermarks: Watermarks, dynamodb: Any
) -> None:
    for run_id in ("jr_1", "jr_2"):
        put_legacy(dynamodb, watermarks.table_name, "old", run_id)

    shown = run(watermarks, "adopt", "old", "--run", "jr_2")
    done = document(run(watermarks, "adopt", "old", "--run", "jr_2", "--why", "moved", "--yes", "--output", "json"))

    assert "2023-03-16 15:45:00" in shown.stdout
    assert done["after"]["last"]["run"] == "jr_2"
    assert watermarks.get_most_recent_run_id("old") == "jr_2"
    assert next(iter(watermarks.history("old"))).change.why == "moved"


def test_job_of_the_original_class_is_adopted_when_glue_knows_its_runs(
    run: Command, watermarks: Watermarks, dynamodb: Any, endpoint: str
) -> None:
    import boto3

    glue = boto3.client("glue", endpoint_url=endpoint)
    glue.create_job(
        Name="old in glue", Role="r", Command={"Name": "glueetl"}, ExecutionProperty={"MaxConcurrentRuns": 9}
    )
    run_ids = [glue.start_job_run(JobName="old in glue")["JobRunId"] for _ in range(2)]
    for run_id in run_ids:
        put_legacy(dynamodb, watermarks.table_name, "old", run_id)

    done = run(watermarks, "adopt", "old", "--glue", "--glue-job", "old in glue", "--yes")

    assert done.exit_code == 0
    assert f"Run {run_ids[1]} started last, according to Glue." in done.stdout
    assert watermarks.get_most_recent_run_id("old") == run_ids[1]


def test_nothing_is_adopted_when_the_item_changes_while_it_is_asked_about(
    run: Command, watermarks: Watermarks, dynamodb: Any, answers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_legacy(dynamodb, watermarks.table_name, "old", "jr_1")

    def meanwhile(*_: Any, **__: Any) -> bool:
        put_legacy(dynamodb, watermarks.table_name, "old", "jr_1", latest_data="2023-03-17 00:00:00")
        return True

    monkeypatch.setattr(click, "confirm", meanwhile)

    done = run(watermarks, "adopt", "old", "--run", "jr_1")

    assert done.exit_code == 1
    assert "changed while you looked" in done.stderr
    assert watermarks.store.read_head("old") is None


def test_adoption_is_refused_when_the_job_has_a_state(run: Command, kept: Watermarks) -> None:
    done = run(kept, "adopt", "repairs", "--run", "jr_1", "--yes")

    assert done.exit_code == 1
    assert "nothing to adopt" in done.stderr


def test_table_is_created_once_when_asked_for_twice(run: Command, dynamodb: Any) -> None:
    made = document(run("made-by-hand", "create-table", "--output", "json"))
    again = document(run("made-by-hand", "create-table", "--output", "json"))
    said = run("made-in-words", "create-table")

    assert (made["created"], again["created"]) == (True, False)
    assert said.stdout == "Created table made-in-words.\n"
    assert dynamodb.describe_table(TableName="made-by-hand")["Table"]["TableStatus"] == "ACTIVE"


def test_only_json_is_on_standard_output_when_a_question_is_asked(
    run: Command, watermarks: Watermarks, job: str, answers: None
) -> None:
    done = run(watermarks, "reset", job, "--why", "a test", "--output", "json", input="y\n")

    assert json.loads(done.stdout)["after"]["version"] == 3
    assert "version 2 becomes 3" in done.stderr
    assert "Change job repairs?" in done.stderr


def test_doctor_says_what_it_drops_before_it_asks_when_a_backup_was_restored(
    run: Command, watermarks: Watermarks, job: str, answers: None
) -> None:
    before = watermarks.latest(job)

    done = run(watermarks, "doctor", job, "--after-restore", "--repair", "--why", "a test", input="n\n")

    assert done.exit_code == 1
    assert done.stdout == "Starts a new epoch, and drops an open plan.\nThere is nothing to repair.\n"
    assert done.stderr.startswith("Repair job repairs?")
    assert watermarks.latest(job) == before


def test_nothing_is_changed_when_the_question_has_no_answer(
    run: Command, watermarks: Watermarks, job: str, answers: None
) -> None:
    done = run(watermarks, "reset", job, "--why", "a test", input="")

    assert done.exit_code == 1
    assert done.stderr.endswith("Aborted!\n")
    assert watermarks.latest(job).version == 2


@pytest.mark.parametrize(
    ("assigned", "value"),
    [("7, 2026-03-05", [7, date(2026, 3, 5)]), ("7", [7, None])],
    ids=["all-columns", "first-column"],
)
def test_cursor_of_several_columns_is_set_when_its_parts_are_separated_by_commas(
    run: Command, watermarks: Watermarks, assigned: str, value: Any
) -> None:
    state = {"kind": "rows", "cursor_column": ["id", "day"], "type": ["bigint", "date"], "value": [5, None]}
    commit(watermarks, "loans", "jr_1", {"loans": state})

    done = run(watermarks, "set", "loans", f"value={assigned}", "--context", "loans", "--why", "x", "--yes")

    assert done.exit_code == 0, done.output
    assert watermarks.get_watermark_values("loans")["loans"]["value"] == value


@pytest.mark.parametrize(
    ("assigned", "text"),
    [
        ("value=7,8,9", "value has 3 values for 2 columns. Give one each."),
        ("options=7", "A dict cannot be given on the command line. Call set_watermark in Python."),
    ],
    ids=["parts", "kind"],
)
def test_value_is_refused_when_a_context_cannot_have_it(
    run: Command, watermarks: Watermarks, assigned: str, text: str
) -> None:
    state = {"kind": "rows", "cursor_column": ["id", "part"], "type": ["bigint", "bigint"], "value": [5, 6]}
    commit(watermarks, "loans", "jr_1", {"loans": {**state, "options": {}}})

    done = run(watermarks, "set", "loans", assigned, "--context", "loans", "--why", "x", "--yes")

    assert done.exit_code == 65
    assert text in done.stderr


DIRECT: dict[str, Any] = {
    "rewind": lambda marks, **given: marks.rewind("repairs", to_version=1, **given),
    "reset": lambda marks, **given: marks.reset("repairs", **given),
    "set": lambda marks, **given: marks.set_watermark("repairs", {"seen": 9}, **given),
    "discard": lambda marks, **given: marks.discard_plan("repairs", **given),
    "restore": lambda marks, **given: marks.decisions.restore("repairs", {}, **given),
}


@pytest.mark.parametrize("name", DIRECT)
def test_decision_is_refused_when_the_job_is_not_as_expected(watermarks: Watermarks, job: str, name: str) -> None:
    expected = watermarks.latest(job)
    leave_open(watermarks, job, "jr_3", SECOND, NOW)
    before = watermarks.latest(job)

    with pytest.raises(StaleError, match="Job 'repairs' changed while you looked: version 2 was shown"):
        DIRECT[name](watermarks, why="a test", expected=expected)

    assert watermarks.latest(job) == before


# --- effects of a decision ---------------------------------------------------------------------------

AGAIN = "again: a target that appends then has them twice, unless you delete what it has of them."
NEVER = "unless you backfill them."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rewind", "repairs", "--to-version", "1"],
         f"repairs: the next runs read rows from 2026-03-01 00:00:00Z to before 2026-03-02 00:00:00Z {AGAIN}"),
        (["set", "repairs", "--context", "repairs", "value=2026-02-01T00:00:00Z"],
         f"repairs: the next runs read rows from 2026-02-01 00:00:00Z to before 2026-03-02 00:00:00Z {AGAIN}"),
        (["set", "repairs", "--context", "repairs", "value=2026-03-05T00:00:00Z"],
         f"repairs: no run reads rows from 2026-03-02 00:00:00Z to before 2026-03-05 00:00:00Z, {NEVER}"),
        (["reset", "repairs"], f"repairs: the next runs read everything {AGAIN}"),
    ],
    ids=["rewind", "set back", "set forward", "reset"],
)  # fmt: skip
def test_preview_names_rows_that_are_read_again_or_never_when_a_watermark_moves(
    run: Command, kept: Watermarks, answers: None, arguments: list[str], told: str
) -> None:
    done = run(kept, *arguments, "--why", "a test", input="n\n")

    assert told in " ".join(done.stdout.split())
    assert ("again:" in done.stdout, "no run reads" in done.stdout) == ("again:" in told, "no run reads" in told)


def test_preview_says_nothing_of_rows_when_another_value_is_set(run: Command, kept: Watermarks, answers: None) -> None:
    done = run(kept, "set", "repairs", "seen=7", "--why", "a test", input="n\n")

    assert "read" not in done.stdout


def test_preview_counts_files_when_they_are_read_again(run: Command, watermarks: Watermarks, answers: None) -> None:
    one = {"count": 2, "sha256": "0" * 64, "data": b"x"}
    for number in (1, 3):
        commit(watermarks, "sources", f"jr_{number}", {"files": state_of("s3://in/", NOW, [one] * number)})

    done = run(watermarks, "rewind", "sources", "--to-version", "1", "--why", "a test", input="n\n")

    assert f"files: the next runs read 4 files {AGAIN}" in " ".join(done.stdout.split())
