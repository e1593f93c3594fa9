"""Several paths in one source: which folders are listed, what is remembered, and how the paths share a limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.errors import InvalidValueError, PlanConflictError, RunInProgressError, SourceError
from scripts.helpers.files.rules import glob_to_regex
from scripts.helpers.glue import GlueContext, Job
from scripts.helpers.glue.connection_options import folders_to_read
from scripts.helpers.glue.paths import folders
from scripts.helpers.watermarks import Watermarks
from tests.glue.options import PAUSE, Put
from tests.support.reasons import because

Begin = Callable[..., Job]
Take = Callable[..., list[str]]


@pytest.fixture
def take(begin: Begin, glue_context: GlueContext, landing: str) -> Take:
    """Return a function that runs the job once over paths below `landing` and returns the files it read."""

    def run(paths: Sequence[str], run_id: str | None = None, mode: Any = None, **options: Any) -> list[str]:
        job = begin(run_id, **(mode or {}))
        frame = glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing + path for path in paths], **options}, "json", transformation_ctx="landed"
        )
        found = sorted(path.partition("/landing/")[2] for path in frame.toDF().inputFiles())
        job.commit()
        return found

    return run


# --- which folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "recurse", "found"),
    [
        (["s3://b/x.json", "s3://b/y.json"], True, {"s3://b/": ("x.json", "x.json/**", "y.json", "y.json/**")}),
        (["s3://b/a/", "s3a://b/a"], True, {"s3://b/a/": ()}),
        (["s3://b/x.json", "s3://b/"], True, {"s3://b/": ()}),
        (["s3://b/a/", "s3://b/a/c/"], True, {"s3://b/a/": ()}),
        (["s3://b/a/c/d.json", "s3://b/a/"], True, {"s3://b/a/": ()}),
        (["s3://b/a/", "s3://b/a/c/"], False, {"s3://b/a/": ("*", "*=*/**"), "s3://b/a/c/": ("*", "*=*/**")}),
        (["s3://b/a/", "s3://b/a/day=1/"], False, {"s3://b/a/": ("*", "*=*/**")}),
        (["s3://b/v1.0", "s3://b/v1.0/"], False, {"s3://b/": ("v1.0", "v1.0/*", "v1.0/*=*/**")}),
        (["file:///a/", "/a"], True, {"file:///a/": ()}),
        (["s3://b/a/", "s3://b/ab/"], True, {"s3://b/a/": (), "s3://b/ab/": ()}),
    ],
    ids=["files", "spellings", "file and folder", "below", "file below", "flat", "hive", "dot", "local", "apart"],
)
def test_no_file_is_listed_twice_when_paths_overlap(
    paths: list[str], recurse: bool, found: dict[str, tuple[str, ...]]
) -> None:
    assert {folder.base: folder.include for folder in folders(paths, recurse=recurse)} == found


@pytest.mark.parametrize(
    ("path", "exclusion", "left_out"),
    [
        ("s3://b/a/", "s3://b/**.pdf", {"x.pdf", "c/x.pdf", "c/d/x.pdf"}),
        ("s3://b/a/c/", "s3://b/a/**", {"x.pdf", "x.csv", "d/x.pdf"}),
        ("s3://b/a/c/", "s3a://*/a/*/?.{pdf,zip}", {"x.pdf"}),
        ("s3://b/a/", "s3://b/{a/c,e}/**", {"c/x.pdf", "c/x.csv", "c/d/x.pdf"}),
        ("s3://b/a/", "s3://b/{e,{a/c/{d,f},g}}/**", {"c/d/x.pdf"}),
        ("s3://b/a/", "s3://b/[!e]/c/*.csv", {"c/x.csv"}),
        ("s3://b/a/", "s3://b/{a/*,e}*", {"x.pdf"}),
        ("s3://b/a/", "s3://b/*/x.pdf", {"x.pdf"}),
        ("s3://b/a/", "s3://b/*.pdf", set()),
        ("s3://b/a/", "s3://other/**", set()),
        ("s3://b/a/", "b/**/d/**", {"c/d/x.pdf"}),
        ("s3://b/a/", "**/x.pdf", {"x.pdf", "c/x.pdf", "c/d/x.pdf"}),
        ("s3://b/a/", "c/*.csv", {"c/x.csv"}),
        ("file:///b/a/", "/b/**.pdf", {"x.pdf", "c/x.pdf", "c/d/x.pdf"}),
        ("/b/a/", "file:///b/*/c/**", {"c/x.pdf", "c/x.csv", "c/d/x.pdf"}),
    ],
)
def test_file_is_left_out_when_an_exclusion_matches_its_whole_path_or_the_one_below_its_folder(
    path: str, exclusion: str, left_out: set[str]
) -> None:
    below = path.partition("/a/")[2]
    keys = {key.removeprefix(below) for key in ("x.pdf", "c/x.pdf", "c/x.csv", "c/d/x.pdf") if key.startswith(below)}

    (folder,) = folders([path], recurse=True, exclusions=[exclusion])

    assert {key for key in keys if any(re.fullmatch(glob_to_regex(glob), key) for glob in folder.exclude)} == left_out


@given(
    folder=st.text("ab/", max_size=4),
    glob=st.lists(
        st.sampled_from(["a", "b", "/", "*", "**", "?", "[a/]", "[!b]", "{a,b*}", "{,a/{b,**}}", "\\*"]), max_size=5
    ),
    key=st.text("ab/*", min_size=1, max_size=4),
)
def test_exclusion_means_the_same_below_a_folder_as_for_whole_paths(folder: str, glob: list[str], key: str) -> None:
    exclusion = f"s3://b/{''.join(glob)}"

    (found,) = folders([f"s3://b/{folder}/"], recurse=True, exclusions=[exclusion])

    matches = re.fullmatch(glob_to_regex(exclusion), found.base + key) is not None
    assert any(re.fullmatch(glob_to_regex(glob), key) for glob in found.exclude) is matches


@pytest.mark.parametrize("exclusion", ["s3://b/{a/**", "s3://b/[z-y]/**", "{a"])
def test_exclusion_is_refused_when_it_is_no_glob(exclusion: str) -> None:
    with pytest.raises(InvalidValueError, match=r"The glob .*(brace|brackets)"):
        folders(["s3://b/a/"], recurse=True, exclusions=[exclusion])


def test_options_of_ours_are_taken_when_glue_has_them_by_another_name() -> None:
    given = {"paths": ["s3://b/"], "recurse": True, "exclusions": ["*.tmp"], "exclude": ["b"], "max_files": 2}

    request = folders_to_read(given)

    assert request.folders == (("s3://b/", {"exclude": ["*.tmp", "b"]}),)
    assert (request.max_files, request.max_bytes) == (2, None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"include": ["a"]}, "'include' is not taken here. Write paths, with recurse and exclusions"),
        ({"boundedFiles": 1, "max_files": 1}, "'boundedFiles' and 'max_files' are both given"),
    ],
    ids=["include", "two limits"],
)
def test_our_option_is_refused_when_an_option_of_glue_already_sets_it(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        folders_to_read({"paths": ["s3://b/"], **options})

    assert text in str(caught.value)


@pytest.mark.parametrize("where", ["a directory", "s3"])
def test_file_is_read_when_its_name_has_no_dot_and_the_path_no_slash(
    glue_context: GlueContext, landing: str, put: Put, s3: Any, bucket: str, where: str
) -> None:
    put("run-1-part-r-00000", "run-1-part-r-00000.crc", "run-1", "folder/part-1")
    source = landing
    if where == "s3":
        source = f"s3://{bucket}/landing/"
        for name in ("run-1-part-r-00000", "run-1-part-r-00000.crc", "run-1", "folder/part-1"):
            s3.put_object(Bucket=bucket, Key=f"landing/{name}", Body=f'{{"id": "{name}"}}')
    options = {"paths": [f"{source}run-1-part-r-00000", f"{source}folder"], "recurse": True}

    frame = glue_context.create_dynamic_frame.from_options("s3", options, "json")

    assert sorted(row["id"] for row in frame.toDF().collect()) == ["folder/part-1", "run-1-part-r-00000"]


def test_file_without_a_dot_is_remembered_when_runs_follow_each_other(take: Take, put: Put) -> None:
    put("part-00000", "part-00001")

    assert [take([path]) for path in ("part-00000", "part-00000", "part-00001")] == [["part-00000"], [], ["part-00001"]]


# --- what is remembered --------------------------------------------------------------------------------------------


def test_files_of_a_folder_are_read_once_when_they_are_named_in_any_order(take: Take, put: Put) -> None:
    put("x.json", "y.json", "z.json")

    batches = [take(paths) for paths in (["x.json", "y.json"], ["y.json", "x.json"], ["z.json", "y.json"])]

    assert batches == [["x.json", "y.json"], [], ["z.json"]]


def test_other_paths_go_on_when_the_first_one_is_left_out_and_comes_back(take: Take, put: Put) -> None:
    put("a/1", "b/2")
    batches = [take(["a/", "b/"])]
    put("a/3", "b/4")

    batches += [take(["b/"]), take(["b/", "a/"])]

    assert batches == [["a/1", "b/2"], ["b/4"], ["a/3"]]


def test_another_folder_is_refused_when_no_path_is_known(take: Take, put: Put) -> None:
    put("a/1", "b/2")
    take(["a/"])

    with pytest.raises(SourceError, check=because("changed"), match="'landed' remembers"):
        take(["b/"])


def test_plan_is_read_again_when_a_run_died_and_the_order_of_the_paths_differs(
    begin: Begin, glue_context: GlueContext, take: Take, put: Put, landing: str
) -> None:
    put("a/1", "b/2")
    begin()
    options = {"paths": [f"{landing}a/", f"{landing}b/"], "boundedFiles": "9"}
    glue_context.create_dynamic_frame.from_options("file", options, "json", transformation_ctx="landed")
    assert Job._batch is not None
    Job._batch.freeze()
    Job.forget()
    put("b/3")

    found = take(["b/", "a/"], boundedFiles="9")

    assert found == ["a/1", "b/2"]


# --- limits --------------------------------------------------------------------------------------------------------


def test_oldest_of_all_paths_come_first_when_a_batch_is_bounded(take: Take, put: Put, clock: Any) -> None:
    put("b/old", at=clock.now - timedelta(hours=2))
    put("a/1", "a/2", "a/3", at=clock.now - timedelta(hours=1))

    batches = [take(["a/", "b/"], boundedFiles="2") for _ in range(3)]

    assert batches == [["a/1", "b/old"], ["a/2", "a/3"], []]


def test_bytes_of_all_paths_stay_within_the_limit_when_there_are_several(take: Take, put: Put) -> None:
    put("a/1", "b/1", "c/1", body='{"id": "' + "x" * 90 + '"}')

    found = [len(take(["a/", "b/", "c/"], boundedSize="150")) for _ in range(3)]

    assert found == [1, 1, 1]


def test_range_has_all_files_of_its_runs_when_batches_were_bounded(take: Take, put: Put) -> None:
    put("a/1", "a/2", "b/0")
    batches = [take(["a/", "b/"], "jr_1", boundedFiles="3")]
    for number in (2, 3):
        put(f"a/{number}x", f"a/{number}y", f"b/{number}")
        batches.append(take(["a/", "b/"], f"jr_{number}", boundedFiles="3"))

    again = take(
        ["b/", "a/"], "jr_9", {**PAUSE, "job_bookmark_from": "jr_1", "job_bookmark_to": "jr_3"}, boundedFiles="3"
    )

    assert again == sorted(batches[1] + batches[2])


# --- a run that was refused ----------------------------------------------------------------------------------------


def test_nothing_is_read_or_committed_when_init_was_refused(
    begin: Begin, take: Take, glue_context: GlueContext, put: Put, landing: str, watermarks: Watermarks
) -> None:
    put("a/1")
    other = watermarks.begin("parking", "jr_other")
    with pytest.raises(RunInProgressError):
        begin("jr_1")

    with pytest.raises(PlanConflictError, match=r"Job\.init failed with RunInProgressError, so nothing is read"):
        glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing]}, "json", transformation_ctx="landed"
        )
    with pytest.raises(PlanConflictError, match="call init again"):
        Job(glue_context).commit()

    other.abort()
    assert take(["a/"]) == ["a/1"]


def test_keyword_is_named_in_a_warning_when_the_reader_or_writer_does_not_know_it(
    glue_context: GlueContext, put: Put, landing: str, raw: str, caplog: pytest.LogCaptureFixture
) -> None:
    put("a")

    frame = glue_context.create_dynamic_frame.from_options("file", {"paths": [landing]}, "json", transformation="x")
    glue_context.write_dynamic_frame.from_options(frame, "file", {"path": raw}, "json", mode="overwrite")

    warned = [record.message for record in caplog.records if "options_unknown" in record.message]
    assert warned == [
        "event=options_unknown call=create_dynamic_frame.from_options options=transformation: ignored",
        "event=options_unknown call=write_dynamic_frame.from_options options=mode: ignored",
    ]
