"""`GlueContext`, `Job` and `DynamicFrame`: calls that scripts with Glue's bookmarks make, on files and the table."""

from __future__ import annotations

import gc
import json
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.helpers import glue
from scripts.helpers.errors import (
    FencedError,
    InvalidValueError,
    JobArgumentError,
    NotOffGlueError,
    PlanConflictError,
    RunInProgressError,
    StoreUnavailableError,
    UnknownJobError,
)
from scripts.helpers.glue import DynamicFrame, GlueContext, Job, VersionMismatchException
from scripts.helpers.job import IncrementalJob
from scripts.helpers.metrics.report import JobReport
from scripts.helpers.watermarks import Watermarks
from tests.glue.options import DISABLE, ENABLE, PAUSE, Put
from tests.support.clock import Clock
from tests.support.reasons import because

Begin = Callable[..., Job]


@pytest.fixture
def put(put_parquet: Put) -> Put:
    """Return a function that writes Parquet, because the format of most files is not the point here."""
    return put_parquet


def ids(frame: DynamicFrame) -> list[str]:
    """Return the files that a frame reads, without reading them."""
    return sorted(path.partition("/landing/")[2] for path in frame.toDF().inputFiles())


def read(
    context: GlueContext, *paths: str, ctx: str = "landed", format: str = "parquet", **options: Any
) -> DynamicFrame:
    return context.create_dynamic_frame.from_options(
        connection_type="file",
        connection_options={"paths": list(paths), **options},
        format=format,
        transformation_ctx=ctx,
    )


def ids_written(raw: str) -> list[str]:
    """Return the ids in the Parquet files of a target."""
    return list(pq.read_table(raw.removeprefix("file://"))["id"].to_pylist())


# --- the job -------------------------------------------------------------------------------------------------------


def test_each_file_is_read_once_when_three_runs_commit(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    batches = []
    for name in ("a", "b", ""):
        if name:
            put(name)
        job = begin()
        batches.append(ids(read(glue_context, landing)))
        job.commit()

    assert batches == [["a"], ["b"], []]
    assert [entry.version for entry in watermarks.history("parking")] == [3, 2, 1]


def test_job_objects_share_one_state_when_several_are_made(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    other = Job(glue_context)
    before = other.isInitialized()
    put("a")
    begin()
    read(glue_context, landing)

    other.commit()

    assert (before, other.isInitialized()) == (False, True)
    assert watermarks.latest("parking").version == 1


def test_all_sources_are_saved_in_one_write_when_the_job_commits(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    put("one/a", "two/b")
    job = begin()
    one, two = (read(glue_context, f"{landing}{name}/", ctx=name) for name in ("one", "two"))
    job.commit()
    job.commit()

    assert (ids(one), ids(two)) == (["one/a"], ["two/b"])
    assert set(watermarks.get_watermark_values("parking")) == {"one", "two"}
    assert len(watermarks.history("parking")) == 1


def test_sources_may_follow_writes_when_the_script_reads_and_writes_in_turn(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, raw: str
) -> None:
    put("one/a", "two/b")
    job = begin()
    for name in ("one", "two"):
        frame = read(glue_context, f"{landing}{name}/", ctx=name)
        glue_context.write_dynamic_frame.from_options(
            frame=frame, connection_type="s3", connection_options={"path": raw}, format="parquet"
        )
    job.commit()

    assert sorted(ids_written(raw)) == ["one/a", "two/b"]


@pytest.mark.parametrize("way", ["next init", "gone"])
def test_nothing_is_saved_and_an_error_says_so_when_commit_is_forgotten(
    way: str,
    begin: Begin,
    glue_context: GlueContext,
    put: Put,
    landing: str,
    watermarks: Watermarks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put("a")
    begin("jr_1")
    first = ids(read(glue_context, landing))
    if way == "gone":
        Job._batch = None
        gc.collect()

    begin("jr_2")

    (record,) = [found for found in caplog.records if "event=commit_forgotten" in found.message]
    assert record.levelno == logging.ERROR
    assert "jr_1" in record.message
    assert "nothing was saved" in record.message
    assert watermarks.latest("parking").version == 0
    assert (first, ids(read(glue_context, landing))) == (["a"], ["a"])


def test_warning_says_why_when_a_forgotten_run_cannot_be_aborted(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable(batch: IncrementalJob) -> None:
        raise StoreUnavailableError("bookmarks", "aborting", "no answer")

    begin("jr_1")
    monkeypatch.setattr(IncrementalJob, "abort", unreachable)
    with pytest.raises(RunInProgressError):
        begin("jr_2")  # The previous run still holds its lease.

    (warning,) = [found for found in caplog.messages if "event=abort_failed" in found]
    assert warning.startswith("event=abort_failed job=parking run=jr_1 error=aborting on table 'bookmarks' failed")


def test_second_run_is_refused_before_it_reads_when_the_first_is_at_work(
    begin: Begin, glue_context: GlueContext, watermarks: Watermarks
) -> None:
    watermarks.begin("parking", "jr_other")

    with pytest.raises(RunInProgressError, match="jr_other"):
        begin("jr_1")

    assert not Job(glue_context).isInitialized()


def test_commit_fails_in_glues_words_when_another_run_has_committed_meanwhile(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    put("a")
    job = begin("jr_1")
    read(glue_context, landing)
    other = watermarks.begin("parking", "jr_2", take_over=True)
    other.freeze({}, {"other": 1})
    other.commit()

    with pytest.raises(VersionMismatchException) as caught:
        job.commit()

    text = "Continuation update failed due to version mismatch. Expected version 0 but found version 1"
    assert text in str(caught.value)
    assert isinstance(caught.value, FencedError)
    assert watermarks.get_watermark_values("parking") == {"other": 1}


def test_commit_is_refused_when_another_run_has_taken_over_and_is_at_work(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    put("a")
    job = begin("jr_1")
    read(glue_context, landing)
    watermarks.begin("parking", "jr_2", take_over=True)

    with pytest.raises(FencedError) as caught:
        job.commit()

    assert not isinstance(caught.value, VersionMismatchException)
    assert watermarks.latest("parking").version == 0


def test_source_is_refused_when_the_job_is_committed(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("a")
    begin().commit()

    with pytest.raises(PlanConflictError, match=r"transformation_ctx='landed' is read after it\. Read it before job"):
        read(glue_context, landing)


def test_run_is_counted_when_no_source_is_read(begin: Begin, watermarks: Watermarks) -> None:
    begin("jr_1").commit()

    assert watermarks.get_most_recent_run_id("parking") == "jr_1"


# --- metrics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "variable"),
    [
        (["--GLUE_WATERMARKS_METRICS", "emf"], None),
        (["--day", "1", "--GLUE_WATERMARKS_METRICS=emf"], None),
        (["--GLUE_WATERMARKS_METRICS", "--day", "1"], None),
        ([], "emf"),
    ],
    ids=["argument", "argument with =", "argument alone", "environment"],
)
def test_run_prints_a_line_of_metrics_when_the_job_is_started_so(
    begin: Begin,
    glue_context: GlueContext,
    put: Put,
    landing: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    variable: str | None,
) -> None:
    monkeypatch.setattr(sys, "argv", ["job.py", *argv])
    if variable:
        monkeypatch.setenv("GLUE_WATERMARKS_METRICS", variable)
    put("a")

    job = begin("jr_1")
    read(glue_context, landing)
    job.commit()

    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["Job"], told["RunId"], told["Outcome"], told["Files"]) == ("parking", "jr_1", "committed", 1)


def test_nothing_is_printed_when_no_metrics_are_asked_for(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    begin("jr_1").commit()

    assert capsys.readouterr().out == ""


def test_reporters_of_the_script_are_told_when_it_gives_some(glue_context: GlueContext, watermarks: Watermarks) -> None:
    told: list[JobReport] = []
    reporter = SimpleNamespace(report=told.append)

    for run_id in ("jr_1", "jr_2"):
        job = Job(glue_context, watermarks, reporters=[reporter])
        job.init("parking", ENABLE | {"JOB_RUN_ID": run_id})
        if run_id == "jr_1":
            job.commit()
    Job.forget()

    assert [(report.run_id, report.outcome) for report in told] == [("jr_1", "committed"), ("jr_2", "failed")]


def test_job_is_refused_when_metrics_are_asked_for_in_another_way(
    begin: Begin, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_WATERMARKS_METRICS", "statsd")

    with pytest.raises(JobArgumentError) as caught:
        begin("jr_1")

    assert str(caught.value) == "GLUE_WATERMARKS_METRICS is 'statsd'. Write 'emf', or leave it out."
    with pytest.raises(UnknownJobError):
        watermarks.latest("parking")
    with pytest.raises(PlanConflictError, match=r"Job\.init failed with JobArgumentError"):
        Job.tracking("landed")


def test_failed_run_is_placed_when_the_script_gives_the_runs_of_glue(
    glue_context: GlueContext, begin: Begin, put: Put, landing: str, watermarks: Watermarks, clock: Clock
) -> None:
    for number, name in enumerate("ab", 1):
        put(name)
        job = begin(f"jr_{number}")
        read(glue_context, landing)
        job.commit()
        clock.move(minutes=5)
    runs = [{"Id": "jr_failed", "StartedOn": clock.now - timedelta(minutes=7)}]
    job = Job(glue_context, watermarks, job_runs=runs)

    job.init("parking", PAUSE | {"job_bookmark_from": "jr_failed", "job_bookmark_to": "jr_2"})

    assert ids(read(glue_context, landing)) == ["b"]


# --- modes ---------------------------------------------------------------------------------------------------------


def test_paused_job_reads_what_is_new_and_saves_nothing(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    batches = []
    for mode, name in (({}, "a"), (PAUSE, "b"), (PAUSE, "c"), ({}, "d")):
        put(name)
        job = begin(**mode)
        batches.append(ids(read(glue_context, landing)))
        job.commit()

    assert batches == [["a"], ["b"], ["b", "c"], ["b", "c", "d"]]
    assert watermarks.latest("parking").version == 2


@pytest.mark.parametrize("args", [DISABLE, {"job_bookmark_option": None}], ids=["disable", "no option"])
def test_everything_is_read_and_nothing_saved_when_bookmarks_are_disabled(
    args: dict[str, Any], begin: Begin, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    batches = []
    for name in ("a", "b"):
        put(name)
        job = begin(**args)
        batches.append(ids(read(glue_context, landing)))
        job.commit()

    assert batches == [["a"], ["a", "b"]]
    with pytest.raises(UnknownJobError):
        watermarks.latest("parking")


def test_everything_is_read_when_there_is_no_transformation_ctx(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, caplog: pytest.LogCaptureFixture
) -> None:
    put("a")
    batches = []
    for _ in range(2):
        job = begin()
        batches.append(ids(read(glue_context, landing, ctx="")))
        job.commit()

    assert batches == [["a"], ["a"]]
    assert "event=untracked job=parking: a source without transformation_ctx" in caplog.text


def test_everything_is_read_and_a_warning_says_so_when_init_was_not_called(
    glue_context: GlueContext, put: Put, landing: str, caplog: pytest.LogCaptureFixture
) -> None:
    put("a")

    batches = [ids(read(glue_context, landing)) for _ in range(2)]

    assert batches == [["a"], ["a"]]
    assert "event=untracked context=landed" in caplog.text


def test_bookmarks_are_separate_when_namespaces_differ(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("a")
    batches = []
    for namespace in ("north", "south", "north"):
        job = begin(BOOKMARK_CONTEXT=namespace)
        batches.append(ids(read(glue_context, landing)))
        job.commit()

    assert batches == [["a"], ["a"], []]


# --- options of files ----------------------------------------------------------------------------------------------


def test_options_are_taken_in_glues_spelling_when_reading_files(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, caplog: pytest.LogCaptureFixture
) -> None:
    put("a.parquet", "b.tmp", "sub/c.parquet", "sub/d.pdf", "old/e.parquet")
    begin()

    frame = read(
        glue_context, landing, recurse=True, groupFiles="inPartition",
        exclusions=f'["**.pdf", "*.tmp", "{landing}old/**"]', noSuchOption=1,
    )  # fmt: skip

    assert ids(frame) == ["a.parquet", "sub/c.parquet"]
    warned = [record.message for record in caplog.records if "options_unknown" in record.message]
    assert warned == ["event=options_unknown source=s3 options=noSuchOption: ignored"]


def test_subfolders_are_read_when_recurse_says_so_or_spark_would(
    glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("a.parquet", "sub/b.parquet", "day=1/c.parquet")

    flat, deep = ids(read(glue_context, landing, ctx="")), ids(read(glue_context, landing, ctx="", recurse="true"))

    assert flat == ["a.parquet", "day=1/c.parquet"]
    assert deep == ["a.parquet", "day=1/c.parquet", "sub/b.parquet"]


def test_paths_lead_to_folders_or_files_when_they_end_without_a_slash(
    glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("a/1", "ab/2", "a.parquet", "v1.0/3")

    found = [ids(read(glue_context, f"{landing}{name}", ctx="")) for name in ("a", "a.parquet", "v1.0")]

    assert found == [["a/1"], ["a.parquet"], ["v1.0/3"]]


def test_each_path_has_a_state_of_its_own_when_there_are_several_in_any_order(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str
) -> None:
    one, two = f"{landing}one/", f"{landing}two/"
    batches = []
    for paths, names in (([one], ["one/a"]), ([two, one], ["one/b", "two/c"]), ([one, two], ["two/d"])):
        put(*names)
        job = begin()
        batches.append(ids(read(glue_context, *paths)))
        job.commit()

    assert batches == [["one/a"], ["one/b", "two/c"], ["two/d"]]


def test_all_paths_share_the_limit_when_a_batch_is_bounded(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("one/a", "one/b", "two/c", "two/d")
    batches = []
    for _ in range(3):
        job = begin()
        batches.append(len(ids(read(glue_context, f"{landing}one/", f"{landing}two/", boundedFiles="3"))))
        job.commit()

    assert batches == [3, 1, 0]


def test_upload_older_than_any_band_is_taken_when_a_band_is_given_or_none(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, clock: Any
) -> None:
    begin()
    for ctx, options in (("exact", {}), ("band", {"maxBand": "900000"})):
        read(glue_context, landing, ctx=ctx, **options)
    Job(glue_context).commit()
    put("late", at=clock.now - timedelta(days=300))
    begin()

    exact, band = read(glue_context, landing, ctx="exact"), read(glue_context, landing, ctx="band", maxBand=900_000)

    assert (ids(exact), ids(band)) == (["late"], ["late"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"boundedFiles": "1", "boundedSize": "1"}, "'boundedFiles' and 'boundedSize' are both given"),
        ({"boundedFiles": "0"}, "'boundedFiles' is '0'. Write a whole number from 1"),
        ({"boundedSize": "1e6"}, "'boundedSize' is '1e6'. Write a whole number from 1"),
        ({"boundedFiles": True}, "'boundedFiles' is True"),
        ({"exclusions": '["**.pdf"'}, "which is not JSON"),
        ({"exclusions": [1]}, "Write a text or a list of texts"),
        ({"recurse": "yes"}, "'recurse' is 'yes'. Write True or False"),
        ({"excludeStorageClasses": ["GLACIER"]}, "GLACIER are left out together"),
        ({"enableSamplePath": True}, "'enableSamplePath' changes what is read"),
        ({"paths": []}, "'paths' is missing"),
        ({"paths": ["s3://bucket/*/x/"]}, "is a glob"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_bad_option_is_refused_before_anything_is_read(
    options: dict[str, Any], text: str, begin: Begin, glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("a")
    job = begin()

    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        read(glue_context, landing, **options)

    assert text in str(caught.value)
    assert ids(read(glue_context, landing)) == ["a"]
    job.commit()


# --- formats and frames --------------------------------------------------------------------------------------------


def test_csv_is_read_as_by_glue_when_it_has_no_header(glue_context: GlueContext, put: Put, landing: str) -> None:
    put("a.csv", body="1;'x;y'\n2;z\n")

    frame = glue_context.create_dynamic_frame.from_options(
        "s3", {"paths": landing}, "csv", {"separator": ";", "quoteChar": "'", "optimizePerformance": True}
    )

    assert [tuple(row) for row in frame.toDF().orderBy("col0").collect()] == [("1", "x;y"), ("2", "z")]
    assert frame.toDF().columns == ["col0", "col1"]


def test_mapping_selects_renames_and_casts_when_a_field_is_missing_or_no_number(
    glue_context: GlueContext, spark: Any
) -> None:
    df = spark.sql("SELECT '7' AS id, named_struct('name', 'A') AS bay UNION ALL SELECT 'x', named_struct('name', 'B')")
    mappings = [
        ("id", "string", "number", "long"),
        ("bay.name", "string", "bay", "varchar"),
        ("gone", "string", "gone", "string"),
    ]

    frame = DynamicFrame.fromDF(df, glue_context, "frame").apply_mapping(mappings)

    assert sorted(map(tuple, frame.toDF().collect()), key=str) == [(7, "A"), (None, "B")]
    assert frame.schema().simpleString() == "struct<number:bigint,bay:string>"


def test_frame_has_glues_short_methods_when_a_script_calls_them(
    glue_context: GlueContext, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = DynamicFrame.fromDF(spark.sql("SELECT 1 AS a, '2' AS b"), glue_context, "frame")

    frame.printSchema()
    frame.show()

    assert '{"a":1,"b":"2"}' in capsys.readouterr().out
    assert frame.count() == 1
    assert frame.select_fields(["a", "gone"]).toDF().columns == ["a"]
    assert frame.drop_fields("a").rename_field("b", "c").toDF().columns == ["c"]
    resolved = frame.resolveChoice(specs=[("b", "cast:int"), ("a", "project:string")])
    assert resolved.schema().simpleString() == "struct<a:int,b:int>"


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            lambda context, frame: frame.mapPartitions(list),
            "DynamicFrame.mapPartitions is Glue's own and not here. Call",
        ),
        (lambda context, frame: glue.FindMatches.apply(frame, "a"), "FindMatches.apply is Glue's own and not here"),
        (lambda context, frame: glue.EvaluateDataQuality.apply(frame, ""), "EvaluateDataQuality.apply is Glue's own"),
        (
            lambda context, frame: glue.EvaluateDataQuality().process_rows(frame, "Rules = [ RowCount > 0 ]"),
            "A ruleset of EvaluateDataQuality is Glue's own and not here",
        ),
        (lambda context, frame: glue.FillMissingValues(), "FillMissingValues is Glue's own and not here. Call toDF()"),
        (lambda context, frame: context.purge_table("a", "b"), "GlueContext.purge_table is Glue's own and not here"),
        (
            lambda context, frame: context.create_dynamic_frame.from_options("dynamodb", {}),
            "The connection type 'dynamodb' is Glue's own and not here. Read with glue_context.spark_session",
        ),
        (
            lambda context, frame: context.create_dynamic_frame.from_options("s3", {"paths": ["/x"]}, "ion"),
            "The format 'ion' is Glue's own and not here. Use one of csv",
        ),
        (
            lambda context, frame: context.create_dynamic_frame.from_hudi(),
            "create_dynamic_frame.from_hudi is Glue's own and not here. Read with glue_context.spark_session",
        ),
        (
            lambda context, frame: context.write_dynamic_frame.from_hudi(),
            "write_dynamic_frame.from_hudi is Glue's own and not here. Use from_options or toDF().write.",
        ),
        (
            lambda context, frame: context.write_dynamic_frame.from_options(frame, "dynamodb"),
            "A sink of 'dynamodb' is Glue's own and not here. Use toDF().write, with Spark's writer for it.",
        ),
        (
            lambda context, frame: context.getSink("file", path="/x").writeFrame(frame.split_fields("id", "a", "b")),
            "A DynamicFrameCollection is Glue's own and not here. Write its frames one by one.",
        ),
    ],
    ids=[
        "mapPartitions", "FindMatches", "quality", "ruleset", "FillMissingValues", "purge_table", "dynamodb", "ion",
        "from_hudi", "write from_hudi", "write to dynamodb", "collection",
    ],
)  # fmt: skip
def test_error_names_an_alternative_when_a_missing_feature_is_used(
    use: Callable[[GlueContext, DynamicFrame], Any], text: str, glue_context: GlueContext, spark: Any
) -> None:
    frame = DynamicFrame.fromDF(spark.range(1), glue_context, "frame")

    with pytest.raises(NotOffGlueError) as caught:
        use(glue_context, frame)

    assert text in str(caught.value)


@pytest.mark.parametrize(("least", "told"), [(0, "event=data_quality "), (1, "event=data_quality_failed ")])
def test_job_goes_on_and_outcomes_are_refused_when_glue_studios_rule_is_evaluated(
    least: int, told: str, glue_context: GlueContext, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    frame = DynamicFrame.fromDF(spark.range(1), glue_context, "frame")

    outcome: Any = glue.EvaluateDataQuality().process_rows(
        frame=frame, ruleset=f"\n    Rules = [\n        ColumnCount > {least}\n    ]\n",
        publishing_options={"dataQualityEvaluationContext": "node", "enableDataQualityResultsPublishing": True},
        additional_options={"dataQualityResultsPublishing.strategy": "BEST_EFFORT"},
    )  # fmt: skip

    assert f"{told}context=node columns=1" in caplog.text
    with pytest.raises(NotOffGlueError, match=r"The outcome of EvaluateDataQuality\.select is Glue's own"):
        glue.SelectFromCollection.apply(dfc=outcome, key="ruleOutcomes")
    with pytest.raises(NotOffGlueError, match=r"\['rowLevelOutcomes'\]"):
        outcome["rowLevelOutcomes"]


def test_spark_session_answers_when_the_context_is_used_as_one(glue_context: GlueContext) -> None:
    assert glue_context.sql("SELECT 1 AS a").count() == 1
    assert not hasattr(glue_context, "no_such_thing")


def test_private_name_is_missing_as_of_any_object_when_looked_up(glue_context: GlueContext, spark: Any) -> None:
    frame = DynamicFrame.fromDF(spark.range(1), glue_context, "frame")
    things = (
        glue_context, glue_context.create_dynamic_frame, glue_context.write_dynamic_frame, frame, glue.FindMatches,
    )  # fmt: skip

    name = "_gone"
    for thing in things:
        with pytest.raises(AttributeError) as caught:
            getattr(thing, name)

        assert (type(caught.value), str(caught.value)) == (AttributeError, name)


def test_predicate_is_refused_when_files_are_read_by_their_path(glue_context: GlueContext) -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        glue_context.create_dynamic_frame.from_options("s3", {"paths": ["/x"]}, "json", push_down_predicate="id > 1")

    assert str(caught.value) == (
        "Option 'push_down_predicate' needs a table of the catalogue. Use exclusions, or filter."
    )


def test_nested_rows_are_related_frames_when_relationalized(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("a", body='{"id": "a", "bays": [1, 2]}')
    job = begin()
    tables = read(glue_context, landing, format="json").relationalize(
        "root", "s3://not-used/", transformation_ctx="related"
    )
    counts = {name: frame.count() for name, frame in tables.items()}
    job.commit()

    assert counts == {"root": 1, "root_bays": 2}
    assert tables.select("root_bays").toDF().count() == 2


# --- writing -------------------------------------------------------------------------------------------------------


def test_target_grows_by_appending_when_runs_write_to_one_path(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, raw: str
) -> None:
    for name in ("a", "b", ""):
        if name:
            put(name, body=f'{{"id": "{name}", "bay": "{name}"}}')
        job = begin()
        glue_context.write_dynamic_frame.from_options(
            frame=read(glue_context, landing, format="json"),
            connection_type="s3",
            connection_options={"path": raw, "partitionKeys": ["bay"]},
            format="glueparquet",
            format_options={"useGlueParquetWriter": True},
        )
        job.commit()

    found = pq.read_table(raw.removeprefix("file://"), partitioning="hive").to_pylist()
    assert sorted((row["id"], row["bay"]) for row in found) == [("a", "a"), ("b", "b")]


@pytest.mark.parametrize(("per_batch", "copies"), [(True, 1), (False, 2)], ids=["perBatch", "as Glue"])
def test_rows_come_once_when_a_run_died_before_its_commit_and_batches_are_replaced(
    per_batch: bool, copies: int, begin: Begin, glue_context: GlueContext, put: Put, landing: str, raw: str
) -> None:
    put("a")
    for _ in range(2):
        job = begin()
        glue_context.write_dynamic_frame.from_options(
            frame=read(glue_context, landing),
            connection_type="s3",
            connection_options={"path": raw, "perBatch": per_batch},
            format="parquet",
        )
    job.commit()

    assert ids_written(raw) == ["a"] * copies


def test_second_batch_is_refused_when_the_run_has_written_one_to_the_path(
    begin: Begin, glue_context: GlueContext, put: Put, landing: str, raw: str
) -> None:
    put("one/a", "two/b")
    job = begin()
    one, two = (read(glue_context, f"{landing}{name}/", ctx=name) for name in ("one", "two"))
    options = {"path": raw, "perBatch": True}
    glue_context.write_dynamic_frame.from_options(one, "s3", options, "parquet")

    with pytest.raises(PlanConflictError, match="only one of the two writes would be kept"):
        glue_context.write_dynamic_frame.from_options(two, "s3", options, "parquet")

    job.commit()
    assert ids_written(raw) == ["one/a"]


@pytest.mark.parametrize("kind", ["s3", "postgresql"])
def test_nothing_is_written_when_another_run_has_taken_over(
    kind: str, begin: Begin, glue_context: GlueContext, put: Put, landing: str, raw: str, watermarks: Watermarks
) -> None:
    put("a")
    begin("jr_1")
    frame = read(glue_context, landing)
    watermarks.begin("parking", "jr_2", take_over=True)
    target = {"path": raw} if kind == "s3" else {"url": "jdbc:postgresql://h/d", "dbtable": "t"}

    with pytest.raises(FencedError, match="jr_1"):
        glue_context.write_dynamic_frame.from_options(frame, kind, target, "json")

    assert not Path(raw.removeprefix("file://")).exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "'path' is None"),
        ({"path": "s3://b/", "partitionKeys": "day"}, "'partitionKeys' is 'day'. Write a list of columns"),
        ({"path": "s3://b/", "partitionKeys": ["day"]}, "'partitionKeys' is ['day']"),
    ],
    ids=["no path", "no list", "no such column"],
)
def test_bad_target_is_refused_when_writing(
    options: dict[str, Any], text: str, glue_context: GlueContext, spark: Any
) -> None:
    frame = DynamicFrame.fromDF(spark.range(1), glue_context, "frame")

    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        glue_context.write_dynamic_frame.from_options(frame, "s3", options, "json")

    assert text in str(caught.value)


def test_context_and_job_take_a_session_when_a_script_has_no_spark_context(
    spark: Any, put: Put, landing: str, watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    put("a")

    job = Job(spark, watermarks)
    job.init("parking", ENABLE)
    landed = read(GlueContext(spark), landing)
    job.commit()

    assert ids(landed) == ["a"]
    assert GlueContext().spark_session is not None
    assert watermarks.latest("parking").version == 1
