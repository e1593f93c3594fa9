"""When a command fails, its error text names the next step and its exit code tells a scheduler what to do."""

from __future__ import annotations

import errno
import io
import json
import sys
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.cli.failures import hint_for, told
from scripts.cli.glue_runs import names_in_glue
from scripts.cli.main import cli
from scripts.cli.surroundings import Surroundings, is_asked
from scripts.cli.usage import GONE
from scripts.helpers.errors import RunInProgressError
from scripts.helpers.watermarks import Watermarks
from tests.cli.between import ARN, EXPIRED, between, denied, s3_that_refuses
from tests.cli.stories import Command, document, put_newer, rows_state
from tests.support.steps import commit


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("parking-permit", "Did you mean parking-permits?"),
        ("PARKING-FINES", "Did you mean parking-fines?"),
        ("parking", "Did you mean parking-fines or parking-permits?"),
        ("zzzzzz", "No name looks like it. See: watermarks jobs"),
    ],
)
def test_nearest_names_are_offered_when_a_job_is_unknown(run: Command, world: Watermarks, name: str, hint: str) -> None:
    done = run(world, "show", name)

    assert done.exit_code == 1
    assert f"Table 'council' holds nothing for job '{name}'" in done.stderr
    assert f"hint: {hint}" in done.stderr
    assert done.stdout == ""


def test_empty_table_is_named_when_a_job_is_unknown(run: Command, watermarks: Watermarks) -> None:
    assert "hint: The table holds no job yet." in run(watermarks, "show", "parking").stderr


def test_error_has_its_class_and_its_reason_when_json_is_asked_for(run: Command, world: Watermarks) -> None:
    done = run(world, "rewind", "rents", "--to-version", "99", "--why", "a", "--yes", "--output", "json")

    told = json.loads(done.stderr.splitlines()[-1])
    assert (told["error"], told["reason"]) == ("NothingThereError", "unknown_version")
    assert told["hint"] == "watermarks history rents"


def test_expired_credentials_are_named_when_aws_refuses_them(run: Command, world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {"*": EXPIRED}) as url:
        done = run(world, "jobs", "--endpoint-url", url)

    assert done.exit_code == 78
    assert "(ExpiredTokenException)" in done.stderr
    assert "hint: aws sso login, or give another --profile" in done.stderr


def test_action_and_resource_are_named_and_nothing_changes_when_a_permission_is_missing(
    run: Command, world: Watermarks, endpoint: str
) -> None:
    before = world.latest("rents")

    with between(endpoint, {"PutItem": denied("PutItem")}) as url:
        done = run(world, "reset", "rents", "--why", "x", "--yes", "--endpoint-url", url)

    assert done.exit_code == 78
    assert "AWS refuses dynamodb:PutItem on 'council'" in done.stderr
    assert f"Missing in the role's policy: dynamodb:PutItem on {ARN}." in done.stderr
    assert world.latest("rents") == before


def test_named_jobs_are_offered_when_a_role_has_no_scan(run: Command, world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {"Scan": denied("Scan")}) as url:
        refused = run(world, "jobs", "--endpoint-url", url)
        named = run(world, "jobs", "rents", "repairs", "--endpoint-url", url)

    assert "A role of one team should not have it. Name the jobs instead: watermarks jobs NAME NAME" in refused.stderr
    assert named.exit_code == 0
    assert "repairs" in named.stdout


def test_unknown_job_stays_the_error_when_a_role_has_no_scan(run: Command, world: Watermarks, endpoint: str) -> None:
    with between(endpoint, {"Scan": denied("Scan")}) as url:
        done = run(world, "show", "parking-permit", "--endpoint-url", url)

    assert done.exit_code == 1
    assert "holds nothing for job 'parking-permit'" in done.stderr
    assert "could not be listed" in done.stderr


def test_glue_permission_is_named_when_it_is_missing(
    run: Command, watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "User: u is not authorized to perform: glue:GetJobRuns on resource: arn:aws:glue:eu-west-2:1:job/old"
    with between(endpoint, {"GetJobRuns": ("AccessDeniedException", text)}) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", url)
        done = run(watermarks, "history", "old", "--runs", "--glue")

    assert done.exit_code == 78
    assert "Missing in the role's policy: glue:GetJobRuns on arn:aws:glue:eu-west-2:1:job/old." in done.stderr


@pytest.mark.parametrize("arguments", [["plan", "parking-fines", "--source", "s3://landing/parking/"],
                                       ["files", "parking-fines", "--explain", "s3://landing/parking/9.csv"]],
                         ids=lambda value: value[0])  # fmt: skip
@pytest.mark.parametrize(
    ("status", "code", "exit_code", "said"),
    [
        (400, "ExpiredToken", 78, ["(ExpiredToken)", "hint: aws sso login"]),
        (403, "InvalidAccessKeyId", 78, ["(InvalidAccessKeyId)", "hint: aws sso login"]),
        (
            403,
            "AccessDenied",
            78,
            [
                "s3:ListBucket on 's3://landing/parking/'",
                "Missing in the role's policy: s3:ListBucket on arn:aws:s3:::landing.",
            ],
        ),
        (503, "SlowDown", 75, ["(SlowDown)"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_error_says_who_must_act_when_s3_refuses(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch, arguments: list[str],
    status: int, code: str, exit_code: int, said: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    text = "User: sam is not authorized to perform: s3:ListBucket on resource: arn:aws:s3:::landing because of nothing"
    before = world.latest("parking-fines")

    with s3_that_refuses(status, code, text) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        done = run(world, *arguments)

    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert [part for part in said if part not in done.stderr] == []
    assert world.latest("parking-fines") == before


@pytest.mark.parametrize(
    "arguments",
    [["show", "newer"], ["history", "newer"], ["plan", "newer"], ["reset", "newer", "--why", "x", "--yes"],
     ["copy", "newer", "--to", "sqlite:jobs.db", "--yes"], ["doctor", "newer"]],
    ids=lambda value: value[0],
)  # fmt: skip
def test_job_of_a_newer_format_is_refused_when_looked_at_or_changed(
    run: Command, watermarks: Watermarks, dynamodb: Any, arguments: list[str]
) -> None:
    put_newer(dynamodb, watermarks.table_name, "newer")
    commit(watermarks, "rents", "jr_1", {"seen": 1})

    done = run(watermarks, *arguments)

    assert done.exit_code == 78
    assert "Job 'newer' is stored in format 99; this version knows up to 1" in done.stderr
    assert "Upgrade glue-watermarks." in done.stderr


def test_other_jobs_are_listed_when_one_is_of_a_newer_format(
    run: Command, watermarks: Watermarks, dynamodb: Any
) -> None:
    put_newer(dynamodb, watermarks.table_name, "newer")
    commit(watermarks, "rents", "jr_1", {"seen": 1})

    done = run(watermarks, "jobs")

    assert done.exit_code == 0
    assert "newer: format 99: upgrade glue-watermarks" in done.stdout
    assert "rents" in done.stdout


def test_region_is_asked_for_when_there_is_none(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")

    done = run(world, "jobs")

    assert done.exit_code == 78
    assert "No AWS region is set." in done.stderr
    assert "hint: Give --region, or set AWS_DEFAULT_REGION." in done.stderr


def test_login_is_asked_for_when_the_name_of_an_unknown_profile_has_the_word_region(
    run: Command, world: Watermarks
) -> None:
    done = run(world, "jobs", "--profile", "second-region")

    assert done.exit_code == 78
    assert "hint: aws sso login --profile second-region, or give another --profile" in done.stderr


def test_region_of_the_command_is_used_when_given(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")

    assert run(world, "jobs", "--region", "eu-west-2").exit_code == 0


def test_profile_is_named_when_there_is_none_of_that_name(run: Command, world: Watermarks) -> None:
    done = run(world, "jobs", "--profile", "nobody")

    assert done.exit_code == 78
    assert "The config profile (nobody) could not be found" in done.stderr
    assert "hint: aws sso login --profile nobody" in done.stderr


def test_profile_wins_over_the_environment_when_given(
    run: Command, world: Watermarks, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    (tmp_path / "config").write_text("[profile far]\nregion = eu-west-1\naws_access_key_id = a\n"
                                     "aws_secret_access_key = b\n")  # fmt: skip
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    done = run(world, "jobs", "--profile", "far", "--region", "eu-west-1")

    assert done.exit_code == 78
    assert "'council' in region 'eu-west-1'" in done.stderr


def test_table_is_named_with_the_way_to_make_it_when_it_is_missing(run: Command) -> None:
    done = run("no-such-table", "jobs")

    assert done.exit_code == 78
    assert "'no-such-table' in region 'eu-west-2'" in done.stderr
    assert "hint: Check --table, --region and --profile. For a local table: watermarks create-table" in done.stderr


def test_remedy_is_a_command_when_runs_of_the_original_class_have_no_order(run: Command, world: Watermarks) -> None:
    done = run(world, "show", "libraries")

    assert done.exit_code == 78
    assert "hint: watermarks adopt libraries --run RUN" in done.stderr


def test_error_says_try_later_when_the_table_does_not_answer(run: Command, world: Watermarks) -> None:
    done = run(world, "show", "rents", "--endpoint-url", "http://127.0.0.1:9")

    assert done.exit_code == 75
    assert "or try later." in done.stderr


def test_backfill_says_that_the_job_has_no_watermarks_when_it_was_reset(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "loans", "jr_1", {"rows": rows_state(5, "bigint")})
    watermarks.reset("loans", transformation_ctx="rows", why="a test")

    done = run(watermarks, "backfill", "loans")

    assert done.exit_code == 65
    assert "It has no watermarks: none of its runs has committed, or it was reset. Run it first." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["files", "rents"], "Job 'rents' has no context of files. It has none: see watermarks show rents"),
        (["files", "parking-fines", "--explain", "a.csv", "--context", "x"], "no context 'x' of files. It has: fines."),
        (
            ["backfill", "parking-fines"],
            "has no context of rows. Its source is files: fines. To check these: watermarks ",
        ),
        (["backfill", "parking-fines"], "doctor parking-fines, watermarks files parking-fines --explain KEY"),
        (
            ["backfill", "parking-permits", "--low", "soon"],
            "Cursor column 'last_modified': --low is not of type timestamp. Write a timestamp as ",
        ),
        (["plan", "rents", "--source", "s3://x/"], "--source is for one context of files. The job has: none."),
        (["jobs", "bad\x07name"], "is not allowed"),
    ],
    ids=["no-files", "other-context", "no-rows", "no-rows-either", "no-bound", "no-source", "no-name"],
)
def test_input_is_refused_when_it_does_not_fit_the_job(
    run: Command, world: Watermarks, arguments: list[str], text: str
) -> None:
    done = run(world, *arguments)

    assert done.exit_code == 65
    assert text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["jobs", "--stale", "soon"], "is not a duration"),
        (["jobs", "--sort", "luck"], "is not one of"),
        (["show"], "Missing argument 'JOB'"),
        (["nothing"], "No such command 'nothing'"),
        (["files", "parking-fines", "--versioned"], "--versioned has no effect without --explain."),
        (["files", "parking-fines", "--ledger-uri", "x"], "--ledger-uri has no effect without --explain or --sweep."),
        (["files", "parking-fines", "--explain", "a", "--yes"], "--yes has no effect with --explain."),
        (["history", "rents", "1", "2"], "VERSION has no effect without --diff."),
        (["history", "rents", "--glue"], "--glue has no effect without --runs."),
        (["history", "rents", "--diff", "--runs"], "--runs has no effect with --diff."),
        (["set", "rents", "--why", "x"], "Missing argument 'NAME=VALUE...'."),
        (["set", "rents", "n=1", "--rename-cursor", "a", "b", "--why", "x"], "has no effect with --rename-cursor."),
        (["history", "rents", "--limit", "0"], "is not in the range"),
        (["plan", "parking-permits", "--spark-conf", "{}"], "No such option '--spark-conf'"),
        (["adopt", "rents"], "Give either --run or --glue."),
        (["adopt", "rents", "--glue", "--run", "jr_1"], "Give either --run or --glue."),
        (["doctor", "rents", "--after-restore"], "--after-restore and --from-log need --why."),
        (["jobs", "--metrics", "--output", "json"], "--metrics has its own output format. Omit --output."),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_usage_is_shown_when_arguments_are_wrong(
    run: Command, world: Watermarks, arguments: list[str], text: str
) -> None:
    done = run(world, *arguments)

    assert done.exit_code == 2
    assert text in done.stderr


@pytest.mark.parametrize("name", GONE)
def test_replacement_is_named_when_a_removed_command_is_typed(run: Command, world: Watermarks, name: str) -> None:
    done = run(world, name, "repairs", "--context", "a")
    programs = run(world, name, "--output", "json")

    assert (done.exit_code, programs.exit_code) == (2, 2)
    assert f"watermarks {name} is gone. {GONE[name]}" in " ".join(done.stderr.split())
    assert json.loads(programs.stderr)["message"].endswith(GONE[name])


@pytest.mark.parametrize("name", [name for name in GONE if GONE[name].startswith("Run: ")])
def test_replacement_of_a_removed_command_exists_with_its_options_when_it_is_typed(name: str) -> None:
    command, *words = GONE[name].removeprefix("Run: watermarks ").split()

    assert {word for word in words if word.startswith("--")} <= {
        option for parameter in cli.commands[command].params for option in parameter.opts
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "json", "nothing"],
        ["show", "--output=json"],
        ["history", "rents", "--limit", "0", "--output", "json"],
        ["rewind", "rents", "--why", "x", "--output", "json"],
        ["--output", "json", "--now", "soon", "jobs"],
    ],
    ids="-".join,
)
def test_usage_is_json_when_that_is_asked_for(run: Command, world: Watermarks, arguments: list[str]) -> None:
    done = run(world, *arguments)

    said = json.loads(done.stderr)
    assert (done.exit_code, set(said)) == (2, {"error", "message", "hint"})
    assert said["message"] and said["hint"].endswith(" --help")
    assert done.stdout == ""


def test_names_of_jobs_are_not_asked_for_when_completing(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_WATERMARKS_COMPLETE", "bash_complete"), ("COMP_CWORD", "4")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMP_WORDS", f"watermarks --table {world.table_name} show ")

    silent = _completed(monkeypatch)
    monkeypatch.setenv("WATERMARKS_COMPLETE_JOBS", "1")
    asked = _completed(monkeypatch)
    monkeypatch.setenv("COMP_WORDS", "watermarks --table not-there show ")
    without_table = _completed(monkeypatch)

    assert silent.strip() == without_table.strip() == ""
    assert "plain,parking-permits" in asked


def _completed(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the completions that the shell receives."""
    from click.testing import CliRunner

    from scripts.cli.main import cli

    done = CliRunner().invoke(cli, [], prog_name="watermarks", complete_var="_WATERMARKS_COMPLETE")
    assert isinstance(done.exception, (SystemExit, type(None)))
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_the_command_when_completion_is_set_up(run: Command, world: Watermarks, shell: str) -> None:
    done = run(world, "completion", shell)

    assert done.exit_code == 0
    assert f"_WATERMARKS_COMPLETE={shell}_complete" in done.stdout


def test_script_is_in_a_document_when_json_is_asked_for(run: Command, world: Watermarks) -> None:
    text = run(world, "completion", "bash").stdout

    assert document(run(world, "completion", "bash", "--output", "json")) == {"shell": "bash", "script": text[:-1]}


def test_type_is_asked_for_when_the_present_value_is_null(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "rents", "jr_1", {"until": None})

    done = run(watermarks, "set", "rents", "until=5", "--why", "x", "--yes")

    assert done.exit_code == 65
    assert "until is null, so its type is unknown. Write until:TYPE=VALUE." in done.stderr
    assert watermarks.get_watermark_values("rents") == {"until": None}


@pytest.mark.parametrize(
    ("altered", "told"),
    [
        ({"cursor_column": ["id", "b"]}, "cursor_column is not a name, or a list of names, with a type for each"),
        ({"type": ["bigint", "bigint"]}, "cursor_column is not a name, or a list of names, with a type for each"),
        ({"type": "nonsense"}, "type is not a type that has an exact order"),
        ({"cursor_column": 5}, "cursor_column is not a name, or a list of names, with a type for each"),
    ],
    ids=str,
)
def test_field_is_named_when_a_value_is_set_and_its_columns_were_altered(
    run: Command, watermarks: Watermarks, altered: dict[str, Any], told: str
) -> None:
    good = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 5}
    commit(watermarks, "job", "jr_1", {"x": {**good, **altered}})

    done = run(watermarks, "set", "job", "value=7", "--context", "x", "--why", "w", "--yes")

    assert done.exit_code == 78
    assert f"Item '~latest' of job 'job' is not readable: watermarks.x.{told}." in done.stderr


def test_jobs_that_are_there_are_shown_when_one_of_the_names_is_unknown(run: Command, world: Watermarks) -> None:
    done = run(world, "jobs", "rents", "nope", "housing")

    assert done.exit_code == 1
    assert "rents" in done.stdout
    assert "housing" in done.stdout
    assert "nope: not in the table; check the name" in done.stdout


def test_names_that_were_read_are_counted_when_the_list_was_cut_short(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.cli.failures.LOOKED_AT", 0)

    assert "None of the 0 names that were read looks like it." in run(world, "show", "zzzzzz").stderr


def test_runs_of_glue_are_those_of_the_region_when_one_is_given(
    run: Command, watermarks: Watermarks, endpoint: str
) -> None:
    import boto3

    glue = boto3.client("glue", region_name="us-east-1", endpoint_url=endpoint)
    glue.create_job(Name="far", Role="r", Command={"Name": "glueetl"})
    run_id = glue.start_job_run(JobName="far")["JobRunId"]

    done = run(watermarks, "history", "far", "--runs", "--glue", "--region", "us-east-1", "--output", "json")

    assert [one["Id"] for one in json.loads(done.stdout)["runs"]] == [run_id]


def test_glue_permission_is_named_beside_the_error_when_names_cannot_be_listed(
    run: Command, watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with between(endpoint, {"ListJobs": denied("ListJobs")}) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", url)
        done = run(watermarks, "history", "not-there", "--runs", "--glue")

    assert "Glue has no job 'not-there'" in done.stderr
    assert "The names of Glue's jobs could not be listed to find one that looks like it (glue:ListJobs)." in done.stderr


def test_names_of_glue_are_read_page_by_page_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {None: {"JobNames": ["a"], "NextToken": "2"}, "2": {"JobNames": ["b"]}}
    glue = SimpleNamespace(list_jobs=lambda **asked: pages[asked.get("NextToken")])
    around = Surroundings()
    monkeypatch.setattr(around, "client", lambda _: glue)

    assert names_in_glue(around) == ["a", "b"]


def test_command_is_the_hint_when_another_run_has_the_job() -> None:
    error = RunInProgressError("my job", "jr_1", datetime(2026, 3, 16, tzinfo=timezone.utc))

    assert hint_for(Surroundings(), error) == "watermarks show 'my job'"


def test_command_prints_no_error_when_its_reader_closes_the_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), told(Surroundings()):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    assert capsys.readouterr().err == ""


def test_no_question_is_asked_when_standard_input_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdin", closed)

    assert not is_asked()
