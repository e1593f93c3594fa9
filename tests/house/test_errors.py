"""Errors: one root class, families by the caller's next step, and texts that state the facts and a remedy."""

from __future__ import annotations

import ast
import inspect
from datetime import datetime, timezone
from string import Formatter

import pytest

from scripts.helpers import errors
from scripts.helpers.display.options import option_error
from scripts.helpers.errors import REASONS, WatermarkError
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.protocol.run import run_closed
from tests.support.imports import files_below, parse
from tests.support.places import REPOSITORY

LEASE_END = datetime(2026, 3, 16, 16, tzinfo=timezone.utc)

EVERY_ERROR = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, Exception)]

BUILT = [
    (errors.UnknownJobError("parking", "t"), ["'parking'", "'t'", "Check the name"]),
    (errors.NoWatermarkError("parking"), ["'parking'", "read everything, then commit"]),
    (
        errors.NothingThereError(reason="unknown_glue_job", job_id="parking", region="eu-west-2"),
        ["'parking'", "'eu-west-2'", "Check the name"],
    ),
    (errors.UnknownRunError("parking", "jr_1"), ["'parking'", "'jr_1'", "history(job_id)"]),
    (
        errors.NothingThereError(reason="unplaced_run", job_id="parking", run_id="jr_1"),
        ["'parking'", "'jr_1'", "Name a run that history", "job_runs="],
    ),
    (
        errors.NothingThereError(reason="unknown_version", job_id="parking", version=4, current=9),
        ["'parking'", "Version 4", "at version 9", "history(job_id)"],
    ),
    (
        errors.NothingThereError(reason="unknown_context", job_id="parking", context="parts", known=["repairs"]),
        ["'parking'", "'parts'", "It has: repairs", "Check the name", "set_watermark"],
    ),
    (
        errors.NothingThereError(reason="no_cursor", job_id="parking", context="parts", known=[], kind="table"),
        ["'parking'", "'parts'", "of kind 'table'", "have one: none"],
    ),
    (
        errors.RunInProgressError("parking", "jr_1", LEASE_END),
        ["'parking'", "'jr_1'", "2026-03-16T16:00:00+00:00", "Start again"],
    ),
    (errors.FencedError("parking", "jr_1", 3, 4), ["'parking'", "'jr_1'", "fence 3", "at 4", "Stop this run"]),
    (errors.PlanConflictError("parking", "two plans."), ["'parking'", "two plans."]),
    (run_closed("parking", "jr_1", "committed", "freeze"), ["'jr_1'", "committed", "freeze", "begin"]),
    (errors.CommitUnknownError("parking", "jr_1"), ["'parking'", "'jr_1'", "Delete no output", "Run the job again"]),
    (
        errors.InvalidValueError(reason="reserved_name", name="runId", reserved=["jobName", "runId"]),
        ["'runId'", "jobName, runId", "Rename it"],
    ),
    (errors.TooLargeError("The list", 70_000, 65_536, "Split it."), ["The list", "70,000", "65,536", "Split it."]),
    (errors.TargetError("s3://raw/repairs", "list it: Denied."), ["'s3://raw/repairs'", "list it: Denied."]),
    (
        errors.SchemaChangedError("bays", "files", [("id", "'id' was int and is string")], "add"),
        ["'bays'", "'files'", "'id' was int and is string", "'add' keeps types", "on_schema_change='take'"],
    ),
    (
        errors.MisfitError("bays", "id", "int"),
        ["'bays'", "'id'", "not of type int", "rescue=True", "mode='PERMISSIVE'"],
    ),
    (
        errors.MisfitError("bays", None, "csv"),
        ["'bays'", "a record cannot be parsed", "rescue=True", "escape='\\\\'", "multiLine=True"],
    ),
    (
        errors.TargetAheadError("repairs", "s3://raw/repairs", {"e1": (4, 5)}, by_script=False),
        ["'s3://raw/repairs'", "versions 4 to 5", "--target s3://raw/repairs --why TEXT --retract", "--keep"],
    ),
    (
        errors.RowsMissingError("repairs", "s3://raw/repairs", (2, 3), present=3, back_to=1),
        ["'s3://raw/repairs'", "versions 2 to 3 of job 'repairs'", "--back-to 1", "back_to=1", "--back-to 3"],
    ),
    (
        errors.TargetError("s3://raw/repairs", reason="taken", found="a.csv"),
        ["'s3://raw/repairs'", "'a.csv'", "beside_others=True"],
    ),
    (errors.TargetError("s3://raw/repairs", "is flat.", reason="layout"), ["'s3://raw/repairs'", "is flat."]),
    (
        errors.TargetError("s3://raw/a", reason="other_format", format="csv", name="a.json", other="json"),
        ["'s3://raw/a'", "format='csv', but 'a.json' is json", "Name another folder"],
    ),
    (
        errors.TargetError("s3://raw/a", reason="other_option", option="sep", now=",", before=";"),
        ["'s3://raw/a'", "'sep' is ',', and ';'", "Write with the same option"],
    ),
    (
        errors.UnpublishedError("parking", 5, "s3://raw/repairs"),
        ["'parking'", "version 5", "'s3://raw/repairs'", "next run"],
    ),
    (
        errors.StagedFilesLostError("s3://raw/repairs", 5, ["a", "b", "c", "d"]),
        [
            "'s3://raw/repairs'",
            "4 staged files of version 5",
            "a, b, c …",
            "watermarks rewind JOB --to-version 4 --retract",
        ],
    ),
    (
        errors.TargetSchemaError("s3://raw/repairs", ["day"], ["x"], {"id": ("string", "bigint")}),
        ["'s3://raw/repairs'", "lack 'day'", "lacks 'x'", "'id' is string in the rows and bigint", "alter the table"],
    ),
    (
        errors.TargetError("s3://raw/repairs", reason="not_a_table", format="Delta", found="a.csv"),
        ["'s3://raw/repairs'", "'a.csv'", "not a Delta table", "Name an empty folder"],
    ),
    (errors.MissingConnectorError("delta", "pip install deltalake."), ["format='delta'", "pip install deltalake"]),
    (
        errors.UnsupportedVersionError("Spark", "3.2.4", "3.3", "Use Glue 4.0."),
        ["Spark 3.2.4", "needs Spark 3.3 or newer", "Use Glue 4.0."],
    ),
    (errors.NoJvmError("GlueContext", "Use IncrementalJob."), ["GlueContext needs", "Connect. Use IncrementalJob."]),
    (
        errors.TargetError("s3://raw/repairs", reason="retraction", job_id="parking", first=2, last=5),
        ["'parking'", "versions 2 to 5", "'s3://raw/repairs'", "each run tries again"],
    ),
    (
        errors.InvalidValueError("Reset it.", reason="retracted", job_id="parking", version=4, first=2, last=5),
        ["'parking'", "Version 4", "versions 2 to 5", "Reset it."],
    ),
    (
        errors.UnprovenError("s3://raw/repairs", 5, "its list is for another target"),
        ["'s3://raw/repairs'", "version 5", "its list is for another target", "Restore the item"],
    ),
    (
        errors.StagedFilesLostError("shop/repairs", 5, ["glue_watermarks_1"], is_table=True),
        [
            "'shop/repairs'",
            "'glue_watermarks_1' of version 5 is gone",
            "watermarks rewind JOB --to-version 4 --retract",
        ],
    ),
    (
        errors.TargetError("shop/repairs", "it has no column.", reason="unfit_table"),
        ["'shop/repairs'", "it has no column."],
    ),
    (
        errors.TargetError(
            "shop/repairs", "GRANT SELECT", reason="refused", doing="rows cannot be read", shown="SQLSTATE 42501"
        ),
        ["'shop/repairs': rows cannot be read", "SQLSTATE 42501", "GRANT SELECT."],
    ),
    (
        errors.TargetUnavailableError(
            "shop/repairs", reason="unreachable", doing="rows cannot be read", shown="SQLSTATE 08001"
        ),
        ["'shop/repairs': rows cannot be read", "SQLSTATE 08001", "Run again later"],
    ),
    (
        errors.TargetUnavailableError(
            "shop/repairs", reason="locked", doing="rows cannot be read", shown="SQLSTATE 55P03", is_deadlock=False
        ),
        ["'shop/repairs': rows cannot be read: another", "SQLSTATE 55P03", "pg_stat_activity", "run the job again"],
    ),
    (
        errors.InvalidValueError(reason="script", job_id="parking", location="/evil.py", allowed=["/jobs"]),
        ["'parking'", "'/evil.py'", "runs scripts from: /jobs", "scripts=[...]"],
    ),
    (
        errors.InvalidValueError("it sets 'a'.", reason="argument", job_id="parking", argument="--conf"),
        ["'parking'", "'--conf'", "it sets 'a'."],
    ),
    (
        errors.ConfigurationError("is a link", reason="log_folder", folder="/logs/a"),
        ["'/logs/a'", "is a link", "Correct that"],
    ),
    (errors.KeyColumnError("id", reason="merge_null", count=2), ["'id'", "2 rows have NULL", "Filter or fill"]),
    (
        errors.InvalidValueError(reason="unfit_partition", column="city", count=1_000, value="an empty text"),
        ["'city'", "1,000 rows have an empty text", "get NULL", "Replace it"],
    ),
    (
        errors.InvalidValueError(
            reason="merge_tie",
            target="shop/repairs",
            keys=["id"],
            sequence_by=["at", "line"],
            count=1,
            where="of the batch",
        ),
        ["'shop/repairs'", "1 row has the same id, at, line", "of the batch", "Add a column to sequence_by"],
    ),
    (errors.CursorError("seen", "is gone."), ["'seen'", "is gone."]),
    (errors.BoundsError("repairs", "none."), ["'repairs'", "none."]),
    (errors.KeyColumnError("id", "is gone."), ["'id'", "is gone."]),
    (
        errors.InvalidValueError(
            reason="name_collision", what="column 'a.b' of table 'root'", first=["a.b"], second=["a", "b"]
        ),
        ["'a.b' and 'a' > 'b'", "column 'a.b' of table 'root'", "Rename one"],
    ),
    (
        errors.InvalidValueError(reason="no_order", field="a.b", kind="variant"),
        ["'a.b'", "variant", "Cast it to a string"],
    ),
    (errors.InvalidValueError("none is left.", reason="too_many_ids", context="people"), ["'people'", "none is left."]),
    (glue_option_error("boundedFiles", "is 'x'. Write a number."), ["'boundedFiles' is 'x'", "Write a number"]),
    (errors.NotOffGlueError("DynamicFrame.unbox", "Use toDF()."), ["DynamicFrame.unbox", "not here", "Use toDF()"]),
    (
        errors.InvalidValueError(reason="contexts_exist", job_id="parking", contexts=["repairs", "landed"]),
        ["'parking'", "2 sources (repairs, landed)", "would delete", "Commit with the run", "reset the job"],
    ),
    (
        errors.InvalidValueError(reason="job_exists", job_id="parking", table_name="t"),
        ["'t'", "'parking'", "Nothing was copied", "watermarks copy parking --from t --to TABLE"],
    ),
    (
        errors.JobMovedError("parking", "t", "sqlite:/data/t.db"),
        ["'parking'", "'t'", "it is in sqlite:/data/t.db", "Give its script that table", "run it again"],
    ),
    (errors.TableNotFoundError("t", "eu-west-2"), ["'t'", "'eu-west-2'", "terraform apply", "create_table()"]),
    (errors.CredentialsError(reason="no_region"), ["No AWS region is set", "AWS_DEFAULT_REGION"]),
    (errors.TableSchemaError("t"), ["'t'", "'jobName' (S)", "'runId' (S)", "terraform/main.tf"]),
    (errors.AccessRefusedError("dynamodb:PutItem", "t"), ["dynamodb:PutItem", "'t'", "Allow it"]),
    (errors.AmbiguousHistoryError("parking", ["a", "b"]), ["'parking'", "2 items", "a, b", "adopt(job_id, run_id="]),
    (
        errors.ConfigurationError("It is large.", reason="legacy_item", job_id="parking", run_id="jr_1"),
        ["'jr_1'", "'parking'", "It is large.", "adopt('parking', run_id='jr_1', watermarks={...})"],
    ),
    (
        errors.UnknownWatermarkError("parking", "day", ["n", "rows"]),
        ["'parking'", "'day'", "n, rows", "create_watermark_item"],
    ),
    (errors.MissingOptionsError(), ["getResolvedOptions(sys.argv, ['JOB_NAME'])", "JOB_RUN_ID is in the result"]),
    (errors.NewerFormatError("parking", 2, 1), ["'parking'", "format 2", "up to 1", "Upgrade"]),
    (errors.CorruptItemError("parking", "~latest", "KeyError"), ["'parking'", "'~latest'", "KeyError", "backup"]),
    (errors.SourceError("s3://b/", "cannot be listed."), ["'s3://b/'", "cannot be listed."]),
    (
        errors.SourceError("s3://b/", reason="changed", context="landed", before="s3://a/"),
        ["'landed'", "'s3://a/'", "'s3://b/'", "transformation_ctx of its own"],
    ),
    (
        errors.SourceLostError("table b", reason="replaced", job_id="park ing", context="repairs", before="table a"),
        ["'park ing'", "'table a'", "'table b'", "reset 'park ing' --context repairs", "repairs source:null="],
    ),
    (
        errors.SourceError("public.repairs", reason="behind", context="repairs", what="clock"),
        ["'public.repairs'", "clock is behind the watermark of context 'repairs'", "Read from the primary", "rewind"],
    ),
    (
        errors.SourceError("s3://b/", reason="snapshot_behind", context="repairs", job_id="parking"),
        ["'s3://b/'", "'repairs'", "'parking'", "Nothing is read", "watermarks reset parking --context repairs"],
    ),
    (
        errors.SourceError("s3://b/", reason="snapshot_unchanged", context="repairs"),
        ["'s3://b/'", "'repairs'", "the same files", "on_same='skip'"],
    ),
    (
        errors.ChangedObjectError("s3://b/", ["a.csv"], ["b.csv"]),
        ["'s3://b/'", "overwritten: 'a.csv'", "deleted: 'b.csv'", "Discard the plan", "on_changed='skip'"],
    ),
    (
        errors.SourceError("s3://b/", reason="modified", keys=["a.csv"], count=3),
        ["'s3://b/'", "changed: 3,", "'a.csv'", 'on_modified="take"'],
    ),
    (
        errors.ArchivedObjectError("s3://b/", ["a.csv"], 3),
        ["'s3://b/'", "3 new objects", "'a.csv'", "Restore them", 'on_archived="skip"'],
    ),
    (option_error("changes", "'x' is unknown."), ["'changes'", "'x' is unknown."]),
    (
        errors.SourceError(
            "lake.db.t", reason="rewritten", context="sales", operations=["delete", "overwrite"], count=3
        ),
        [
            "'lake.db.t'",
            "rows: 3",
            "(delete, overwrite)",
            "'sales'",
            "'feed'",
            "on_overwrite='skip'",
            "on_overwrite='take'",
        ],
    ),
    (
        errors.SourceLostError("lake.db.t", " Or set it.", reason="rolled_back", context="sales", job_id="a job"),
        ["'lake.db.t'", "set back", "on_loss='take'", "reset 'a job' --context sales", " Or set it."],
    ),
    (
        errors.SourceLostError("lake.db.t", reason="expired", context="sales", job_id="job"),
        ["'lake.db.t'", "since the watermark", "on_loss='take'", "reset job --context sales"],
    ),
    (
        errors.SourceLostError("lake.db.t", reason="expired_plan", context="sales", job_id="a job"),
        ["'lake.db.t'", "open plan of job 'a job'", "discard-plan 'a job'", "on_loss='take'"],
    ),
    (
        errors.SourceError("public.repairs", reason="last_row_behind", context="repairs", job_id="a job"),
        ["'public.repairs'", "'repairs' of job 'a job'", "rewind 'a job' --context repairs", "on_behind='warn'"],
    ),
    (
        errors.SourceError("public.repairs", reason="rows_behind", context="repairs", job_id="a job"),
        ["'public.repairs': rows came below", "'repairs' of job 'a job'", "set 'a job' --context repairs edge:null="],
    ),
    (
        errors.SourceError("public.repairs", reason="last_row_changed", context="repairs", job_id="a job"),
        ["'public.repairs': the last row", "'repairs' of job 'a job'", "reset 'a job' --context repairs"],
    ),
    (
        errors.SourceError("lake.db.t", reason="merge_on_read"),
        ["'lake.db.t'", "write.delete.mode", "on_overwrite='take'"],
    ),
    (errors.SourceError("lake.db.t", reason="format_version_1"), ["'lake.db.t'", "Set 'format-version'='2'"]),
    (errors.SourceError("lake.db.t", "it keeps none.", reason="change_feed"), ["'lake.db.t'", "it keeps none."]),
    (
        errors.UnreadableObjectError("s3://b/", "a.csv", "AccessDenied", "Allow s3:GetObject."),
        ["'s3://b/'", "'a.csv' cannot be read (AccessDenied)", "Allow s3:GetObject"],
    ),
    (
        errors.UnreadableFilesError("s3://b/", {"a.csv": "it is no csv"}),
        ["'s3://b/'", "1 file", "'a.csv' (it is no csv)", "Run the job again"],
    ),
    (
        errors.SourceError("s3://b/", "none can be read.", reason="all_unreadable", reasons={"a.csv": "it is no csv"}),
        ["'s3://b/'", "none can be read.", "Nothing is set aside: check the rights"],
    ),
    (
        errors.SourceError("s3://b/", "none can be read.", reason="all_set_aside", reasons={"a.csv": "it is no csv"}),
        ["'s3://b/'", "none can be read.", "--retry-all"],
    ),
    (
        errors.FileContentError("s3://b/", "a.csv", "csv", "line 3 is cut off"),
        ["'s3://b/'", "'a.csv' cannot be read as csv: line 3 is cut off", "Upload it again"],
    ),
    (
        errors.SourceError("s3://b/", reason="set_aside_full", count=1_001, limit=1_000),
        ["'s3://b/'", "1,001 files", "1,000", "fix the cause"],
    ),
    (errors.SourceUnavailableError("public.repairs", "08001"), ["'public.repairs'", "08001", "Run again later"]),
    (errors.LedgerError("s3://b/", "it is damaged."), ["'s3://b/'", "it is damaged."]),
    (errors.StoreUnavailableError("t", "put_item", "Throttled"), ["'t'", "put_item", "Throttled", "Try again later"]),
]

FAMILIES = [
    (
        errors.NothingThereError,
        LookupError,
        [
            "UnknownJobError", "NoWatermarkError", "UnknownRunError", "UnknownWatermarkError",
        ],
    ),
    (
        errors.InvalidValueError,
        ValueError,
        [
            "InvalidIdError", "TooLargeError", "CursorError", "BoundsError", "KeyColumnError",
        ],
    ),
    (errors.StaleError, WatermarkError, ["FencedError", "PlanConflictError"]),
    (
        errors.ConfigurationError,
        WatermarkError,
        [
            "TableNotFoundError", "TableSchemaError", "CredentialsError", "AccessRefusedError",
            "AmbiguousHistoryError", "NewerFormatError", "JobMovedError",
            "CorruptItemError", "SourceError",
            "SourceLostError", "FileContentError",
            "UnreadableObjectError", "UnreadableFilesError",
            "ChangedObjectError", "ArchivedObjectError", "LedgerError",
            "SchemaChangedError", "MisfitError",
            "TargetUnavailableError",
            "SourceUnavailableError", "NotOffGlueError", "TargetError", "TargetAheadError",
            "RowsMissingError",
            "TargetSchemaError", "MissingConnectorError", "NoJvmError", "UnsupportedVersionError",
            "StagedFilesLostError", "UnprovenError",
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_error_is_a_documented_watermark_error_when_defined(error: type[Exception]) -> None:
    assert issubclass(error, WatermarkError)
    assert error.__doc__


@pytest.mark.parametrize(("family", "builtin", "members"), FAMILIES)
def test_family_holds_its_members_and_no_other_when_caught(
    family: type[Exception], builtin: type[Exception], members: list[str]
) -> None:
    found = {error.__name__ for error in EVERY_ERROR if issubclass(error, family) and error is not family}

    assert issubclass(family, builtin)
    assert found == set(members)


@pytest.mark.parametrize("builtin", [LookupError, ValueError])
def test_builtin_catches_only_one_family_when_used(builtin: type[Exception]) -> None:
    family = {LookupError: errors.NothingThereError, ValueError: errors.InvalidValueError}[builtin]

    assert all(issubclass(error, family) for error in EVERY_ERROR if issubclass(error, builtin))


def named(value: object) -> str:
    return value.kind if isinstance(value, WatermarkError) else "facts"


@pytest.mark.parametrize(("error", "facts"), BUILT, ids=named)
def test_text_has_facts_and_remedy_when_raised(error: WatermarkError, facts: list[str]) -> None:
    assert [fact for fact in facts if fact not in str(error)] == []
    assert str(error).endswith(".")


@pytest.mark.parametrize(("error", "_facts"), BUILT, ids=named)
def test_attributes_hold_the_arguments_of_an_error_when_raised(error: WatermarkError, _facts: list[str]) -> None:
    given = set(inspect.signature(type(error).__init__).parameters) - {"self", "detail", "remedy", "reason", "facts"}
    if error.reason in REASONS:
        given |= {name.partition("!")[0] for _, name, _, _ in Formatter().parse(REASONS[error.reason]) if name}
        given -= {"detail"}

    assert given <= set(vars(error))


def test_every_error_with_arguments_is_looked_at_when_the_texts_are_checked() -> None:
    plain = {"WatermarkError", "NothingThereError", "StaleError", "InvalidValueError", "InvalidIdError"} | {
        "ConfigurationError",
        "CredentialsError",
        "JobArgumentError",
    }

    assert {type(error).__name__ for error, _ in BUILT} >= {error.__name__ for error in EVERY_ERROR} - plain
    assert {error.reason for error, _ in BUILT} >= set(REASONS)
    assert all(REASONS[error.reason] for error, _ in BUILT if type(error).__name__ in plain)


CALLS = [
    (path, node)
    for path in files_below(REPOSITORY / "scripts")
    for node in ast.walk(parse(path))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error")
]


def constants_of(call: ast.Call) -> set[str]:
    given = [word.value for word in call.keywords if word.arg == "reason"]
    found = (node.value for value in given for node in ast.walk(value) if isinstance(node, ast.Constant))
    return {value for value in found if isinstance(value, str)}


def test_table_has_every_reason_and_its_facts_when_an_error_is_made_with_one() -> None:
    made = [(call, reason) for _, call in CALLS for reason in constants_of(call)]

    assert made
    for call, reason in made:
        fields = {name for _, name, _, _ in Formatter().parse(REASONS[reason]) if name}
        given = {word.arg for word in call.keywords}
        assert fields - {"detail"} <= given or None in given, f"line {call.lineno}: {reason}"
        assert "detail" not in fields or call.args


@pytest.mark.parametrize("reason", REASONS)
def test_reason_is_used_and_documented_when_it_is_in_the_table(reason: str) -> None:
    used = [path for path in files_below(REPOSITORY / "scripts") if f'"{reason}"' in path.read_text(encoding="utf-8")]
    told = (REPOSITORY / "docs" / "failures.md").read_text(encoding="utf-8")

    assert len(used) > 1
    assert f"`{reason}`" in told


def test_kind_names_the_reason_when_a_class_has_several() -> None:
    assert errors.NothingThereError(reason="unplaced_run", job_id="a", run_id="b").kind == (
        "NothingThereError[unplaced_run]"
    )
    assert errors.StoreUnavailableError("t", "put_item", "x").kind == "StoreUnavailableError"


def test_long_history_is_cut_when_named_in_the_text() -> None:
    error = errors.AmbiguousHistoryError("parking", [f"jr_{number:02d}" for number in range(40)])

    assert "40 items" in str(error)
    assert "jr_09, …" in str(error)
    assert "jr_10" not in str(error)
    assert len(error.run_ids) == 40
