"""Glue's own bookmarks, taken over: what is exact, what would be read again, and what is refused."""

from __future__ import annotations

import hashlib
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from scripts.helpers.errors import BookmarkImportError, PlanConflictError, UnknownJobError
from scripts.helpers.glue.glue_states import BandState, KeyState, match, path_hash, read_bookmark
from scripts.helpers.glue.importing import FilesAt, ImportedContext, ImportReport, RowsBy, import_bookmark
from scripts.helpers.glue.paths import folder_context, folder_contexts
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.listing import Lister, Location
from scripts.helpers.watermarks import Watermarks
from tests.support import published_bookmark
from tests.support.buckets import NOON, SOURCE, Bucket

JOB = "parking"
RUN = "jr_" + "a" * 64
MINUTE = timedelta(minutes=1)
PLACE = "landing/parking/"


def stubbed(bookmark: Any, **asked: str) -> Any:
    """Return a real boto3 client for Glue whose answer is checked against the service model."""
    client = boto3.client("glue")
    stubber = Stubber(client)
    text = bookmark if isinstance(bookmark, str) else json.dumps(bookmark)
    entry = {"JobName": JOB, "Version": 4, "Run": 3, "Attempt": 0, "RunId": RUN, "JobBookmark": text}
    stubber.add_response("get_job_bookmark", {"JobBookmarkEntry": entry}, {"JobName": JOB} | asked)
    stubber.activate()
    return client


def glue_hash(*parts: str) -> str:
    """Write a hash as Glue does: without leading zeros."""
    return f"{int(hashlib.md5(''.join(parts).encode(), usedforsecurity=False).hexdigest(), 16):x}"


def hashes(uri: str, at: datetime) -> list[str]:
    return [glue_hash(uri, str(int(at.timestamp() * 1000))), glue_hash(uri)]


def files(started: datetime = NOON, included: Any = (), **more: Any) -> dict[str, Any]:
    stamps = {
        "RUN": "2", "HIGH_BAND": "900000", "CURR_LATEST_PARTITION": "0", "CURR_LATEST_PARTITIONS": "",
        "CURR_RUN_START_TIME": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "INCLUDE_LIST": included if isinstance(included, str) else ",".join(included),
    }  # fmt: skip
    return {"jsonClass": "HadoopDataSourceJobBookmarkState", "timestamps": stamps | more}


def keys(**fields: Any) -> dict[str, Any]:
    return {"jsonClass": "JDBCDataSourceJobBookmarkState", **fields}


def landing() -> Bucket:
    """Return files around a run of Glue at noon: two read before its band, two of the band read, three not yet."""
    bucket = Bucket(NOON + timedelta(hours=1))
    bucket.put("day=1/old.csv", at=NOON - timedelta(days=1))
    bucket.put("day=1/edge.csv", at=NOON - 15 * MINUTE)
    bucket.put("day=2/read.csv", at=NOON - 10 * MINUTE)
    bucket.put("day=2/read2.csv", at=NOON)
    bucket.put("day=2/late.csv", at=NOON - 5 * MINUTE)
    bucket.put("day=2/next.csv", at=NOON + MINUTE)
    bucket.put("_SUCCESS", at=NOON + MINUTE)
    return bucket


READ = [
    *hashes(f"s3://{PLACE}day=2/read.csv", NOON - 10 * MINUTE),
    *hashes(f"s3://{PLACE}day=2/read2.csv", NOON),
]


def imported(watermarks: Watermarks, bookmark: Any, sources: Any, **options: Any) -> ImportReport:
    return import_bookmark(stubbed(bookmark), watermarks, JOB, sources, **{"dry_run": False} | options)


def next_files(watermarks: Watermarks, bucket: Bucket, **options: Any) -> list[str]:
    """Return what the first run after the import takes of a listing."""
    with pytest.MonkeyPatch.context() as patch, IncrementalJob(watermarks, JOB) as job:
        patch.setattr(Lister, "look_at_each", lambda _, keys: bucket.look_at_each(keys))
        delta = job.new_files(SOURCE, transformation_ctx="landed", listing=bucket, on_changed=None, **options)
        return sorted(path.removeprefix(SOURCE) for path in delta.paths)


# --- files -----------------------------------------------------------------------------------------


def test_next_run_takes_what_glues_would_and_nothing_again_when_names_are_known(watermarks: Watermarks) -> None:
    bucket = landing()

    report = imported(watermarks, {"landed": files(included=READ)}, {"landed": FilesAt(SOURCE, listing=bucket)})

    (context,) = report.contexts
    assert (context.outcome, context.known, context.new, context.read_again) == ("exact", 4, 2, ())
    assert next_files(watermarks, bucket) == ["day=2/late.csv", "day=2/next.csv"]
    assert next_files(watermarks, bucket) == []


def test_import_is_one_version_with_glues_run_in_force_when_written(watermarks: Watermarks) -> None:
    sources = {"landed": FilesAt(SOURCE, listing=landing()), "repairs": RowsBy({"id": "bigint"})}

    report = imported(
        watermarks, {"landed": files(included=READ), "repairs": keys(id=5)}, sources, why="move to EMR", who="ann"
    )

    (version,) = watermarks.history(JOB)
    assert report.head is not None
    assert (version.version, version.change.op, version.change.run_id) == (1, "IMPORT", RUN)
    assert (version.change.why, version.change.who, version.runs) == ("move to EMR", "ann", 1)
    assert version.watermarks.keys() == {"landed", "repairs"}
    assert watermarks.get_most_recent_run_id(JOB) == RUN
    assert [context.outcome for context in report.contexts] == ["exact", "approximate"]


def test_run_is_the_one_asked_for_when_a_run_is_given(watermarks: Watermarks) -> None:
    client = stubbed({"repairs": keys(id=5)}, RunId=RUN)

    report = import_bookmark(
        client, watermarks, JOB, {"repairs": RowsBy({"id": "bigint"})}, run_id=RUN, job_id="repairs on emr",
        dry_run=False,
    )  # fmt: skip

    assert report.head is not None
    assert (report.head.job_id, watermarks.history("repairs on emr")[0].change.why) == (
        "repairs on emr",
        "bookmark of job parking in AWS Glue, version 4",
    )


def test_nothing_is_written_when_not_told_to(watermarks: Watermarks) -> None:
    client = stubbed({"landed": files(included=READ)})

    report = import_bookmark(client, watermarks, JOB, {"landed": FilesAt(SOURCE, listing=landing())})

    assert (report.head, report.contexts[0].outcome) == (None, "exact")
    with pytest.raises(UnknownJobError):
        watermarks.latest(JOB)


def test_nothing_is_written_to_the_ledger_when_not_told_to(watermarks: Watermarks, s3: Any, bucket: str) -> None:
    source = FilesAt(SOURCE, {"ledger_uri": f"s3://{bucket}/ledger/"}, listing=landing())
    bookmark = {"landed": files(included=READ)}

    import_bookmark(stubbed(bookmark), watermarks, JOB, {"landed": source}, s3_client=s3)
    before = s3.list_objects_v2(Bucket=bucket)["KeyCount"]
    imported(watermarks, bookmark, {"landed": source}, s3_client=s3)

    assert (before, s3.list_objects_v2(Bucket=bucket)["KeyCount"]) == (0, 1)


def test_next_run_takes_only_what_glue_has_not_read_when_the_files_are_in_s3(
    watermarks: Watermarks, s3: Any, bucket: str
) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        s3.put_object(Bucket=bucket, Key=f"in/{name}", Body=b"id\n1\n")
    there = {found["Key"]: found["LastModified"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    read = [text for key in ("in/a.csv", "in/c.csv") for text in hashes(f"s3://{bucket}/{key}", there[key])]
    bookmark = {"landed": files(max(there.values()) + timedelta(seconds=1), read)}

    imported(watermarks, bookmark, {"landed": FilesAt(f"s3a://{bucket}/in/")}, s3_client=s3)

    with IncrementalJob(watermarks, JOB, s3_client=s3) as job:
        assert job.new_files(f"s3://{bucket}/in/", transformation_ctx="landed").paths == [f"s3://{bucket}/in/b.csv"]


def test_file_is_read_again_and_named_when_it_was_changed_since_glue_read_it(watermarks: Watermarks) -> None:
    bucket = landing()
    bucket.put("day=2/read.csv", body="other", at=NOON - 4 * MINUTE)

    report = imported(watermarks, {"landed": files(included=READ)}, {"landed": FilesAt(SOURCE, listing=bucket)})

    assert report.contexts[0].outcome == "exact"
    assert report.contexts[0].read_again == (f"s3://{PLACE}day=2/read.csv",)
    assert next_files(watermarks, bucket) == ["day=2/late.csv", "day=2/next.csv", "day=2/read.csv"]


def test_files_of_the_band_are_read_again_and_named_when_no_hash_fits(watermarks: Watermarks) -> None:
    bucket = landing()
    strange = [glue_hash("another form", name) for name in ("read", "read2")]

    report = imported(watermarks, {"landed": files(included=strange)}, {"landed": FilesAt(SOURCE, listing=bucket)})

    (context,) = report.contexts
    in_band = [f"s3://{PLACE}day=2/{name}.csv" for name in ("late", "read", "read2")]
    assert (context.outcome, context.known, list(context.read_again)) == ("approximate", 2, in_band)
    assert "no file fits the hashes of names, so all of the band are read again" in context.detail
    assert next_files(watermarks, bucket) == [f"day=2/{name}.csv" for name in ("late", "next", "read", "read2")]


def test_band_without_files_is_exact_when_all_it_named_is_gone(watermarks: Watermarks) -> None:
    bucket = landing()
    bucket.delete(*(f"day=2/{name}.csv" for name in ("late", "read", "read2")))

    report = imported(watermarks, {"landed": files(included=READ)}, {"landed": FilesAt(SOURCE, listing=bucket)})

    assert (report.contexts[0].outcome, next_files(watermarks, bucket)) == ("exact", ["day=2/next.csv"])


def test_partitions_of_the_catalog_make_it_approximate_when_a_miss_is_accepted(watermarks: Watermarks) -> None:
    stamped = files(included=READ, CURR_LATEST_PARTITION="1710590400000")
    source = FilesAt(SOURCE, listing=landing(), partitions_may_be_missed=True)

    report = imported(watermarks, {"landed": stamped}, {"landed": source})

    assert report.contexts[0].outcome == "approximate"
    assert "files older than the band in partitions that Glue has not read may be missed" in report.contexts[0].detail


@pytest.mark.parametrize("stamp", [{"CURR_LATEST_PARTITION": "1710590400000"}, {"CURR_LATEST_PARTITIONS": "day=1"}])
def test_partitions_of_the_catalog_are_not_possible_when_a_miss_is_not_accepted(
    watermarks: Watermarks, stamp: dict[str, Any]
) -> None:
    stamped, source = files(included=READ, **stamp), FilesAt(SOURCE, listing=landing())
    report = import_bookmark(stubbed({"landed": stamped}), watermarks, JOB, {"landed": source})

    with pytest.raises(BookmarkImportError) as caught:
        imported(watermarks, {"landed": stamped}, {"landed": source})

    assert report.contexts[0].outcome == "not possible"
    assert "give FilesAt partitions_may_be_missed=True to accept that" in str(caught.value)
    with pytest.raises(UnknownJobError):
        watermarks.latest(JOB)


def test_each_folder_has_a_state_of_its_own_when_a_context_reads_several(
    watermarks: Watermarks, s3: Any, bucket: str
) -> None:
    folders = [f"s3://{bucket}/one/", f"s3://{bucket}/two/"]
    for folder in ("one", "two"):
        s3.put_object(Bucket=bucket, Key=f"{folder}/read.csv", Body=b"x")
        s3.put_object(Bucket=bucket, Key=f"{folder}/new.csv", Body=b"x")
    there = {found["Key"]: found["LastModified"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    read = [text for key, at in there.items() if "read" in key for text in hashes(f"s3://{bucket}/{key}", at)]
    bookmark = {"landed": files(max(there.values()), read)}

    report = imported(watermarks, bookmark, {"landed": FilesAt(folders)}, s3_client=s3)

    names = ["landed", folder_context("landed", folders[1], 1)]
    assert (report.contexts[0].known, report.contexts[0].new) == (2, 2)
    with IncrementalJob(watermarks, JOB, s3_client=s3) as job:
        taken = [
            job.new_files(folder, transformation_ctx=name).paths for folder, name in zip(folders, names, strict=True)
        ]
    assert taken == [[f"{folder}new.csv"] for folder in folders]


def test_files_of_one_folder_share_a_state_when_paths_name_them(watermarks: Watermarks, s3: Any, bucket: str) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        s3.put_object(Bucket=bucket, Key=f"in/{name}", Body=b"x")
    folder = f"s3://{bucket}/in"
    bookmark = {"landed": files(datetime.now(timezone.utc) + timedelta(days=1))}

    report = imported(watermarks, bookmark, {"landed": FilesAt([f"{folder}/a.csv", f"{folder}/b.csv"])}, s3_client=s3)

    assert (report.contexts[0].known, report.contexts[0].new) == (2, 0)
    assert set(watermarks.get_watermark_values(JOB)) == {"landed"}


def test_folders_have_the_contexts_that_the_glue_context_gives_them_when_there_are_several() -> None:
    class Run:
        run = property(lambda self: self)

        def state(self, context: str) -> None:
            return None

        planned = state

    folders = ["s3://landing/one/", "s3a://landing/two/"]

    given = folder_contexts(Run(), "landed", folders)  # type: ignore[arg-type]

    places = [Location.parse(folder).name for folder in folders]
    assert given == [folder_context("landed", place, index) for index, place in enumerate(places)]


# --- hashes ----------------------------------------------------------------------------------------


def test_hash_is_glues_when_with_and_without_a_time() -> None:
    at = datetime.fromtimestamp(1_730_080_925, timezone.utc)

    assert f"{path_hash('s3://bucket/a.csv'):032x}" == "e266a32288b3399967ec9a348f7ba6f8"
    assert f"{path_hash('s3://bucket/a.csv', at):032x}" == "da15ebdae537ddbf828d99a0a1dedca9"


def test_every_hash_is_of_a_file_when_the_bookmark_is_a_published_one_of_glues() -> None:
    state = read_bookmark(published_bookmark.BOOKMARK, JOB)[published_bookmark.CONTEXT]
    assert isinstance(state, BandState)

    found = match(state.hashes, published_bookmark.FILES)

    assert len(state.hashes) == 48
    assert all(state.started - state.band < at <= state.started for _, at in published_bookmark.FILES)
    assert (sorted(found.read), found.changed, found.unsure, found.unknown) == (
        sorted(place for place, _ in published_bookmark.FILES), [], [], 0,
    )  # fmt: skip


def test_file_has_changed_when_the_published_bookmark_has_it_with_another_time() -> None:
    state = read_bookmark(published_bookmark.BOOKMARK, JOB)[published_bookmark.CONTEXT]
    (place, at), *others = published_bookmark.FILES
    assert isinstance(state, BandState)

    found = match(state.hashes, [(place, at + timedelta(seconds=1)), *others])

    assert (len(found.read), found.changed) == (23, [place])


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_object_is_found_when_glue_wrote_its_uri_with_any_scheme(scheme: str) -> None:
    kept = {path_hash(f"{scheme}://{PLACE}a.csv", NOON), path_hash(f"{scheme}://{PLACE}a.csv")}

    found = match(kept, [(f"{PLACE}a.csv", NOON), (f"{PLACE}b.csv", NOON)])

    assert (found.read, found.changed, found.unsure, found.unknown) == ([f"{PLACE}a.csv"], [], [], 0)


def test_object_is_read_when_the_list_holds_names_only() -> None:
    found = match({path_hash(f"s3://{PLACE}a.csv")}, [(f"{PLACE}a.csv", NOON)])

    assert (found.read, found.changed, found.unsure, found.unknown) == ([f"{PLACE}a.csv"], [], [], 0)


def test_object_is_unsure_when_its_name_fits_and_no_time_does(watermarks: Watermarks) -> None:
    bucket = Bucket()
    bucket.put("a.csv", at=NOON - MINUTE)
    kept = hashes(f"s3://{PLACE}a.csv", NOON - 2 * MINUTE)

    report = imported(watermarks, {"landed": files(included=kept)}, {"landed": FilesAt(SOURCE, listing=bucket)})

    assert (report.contexts[0].outcome, report.contexts[0].read_again) == ("approximate", (f"s3://{PLACE}a.csv",))
    assert "some files may have been changed since Glue read them" in report.contexts[0].detail
    assert next_files(watermarks, bucket) == ["a.csv"]


# --- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "kind", "value"),
    [
        (5, "bigint", 6),
        ("5", "int", 6),
        ("12.50", "decimal(10,2)", Decimal("12.51")),
        ("2026-03-16", "date", date(2026, 3, 17)),
        ("2026-03-16 12:00:00.0", "timestamp_ntz", NOON + timedelta(microseconds=1)),
        ("2026-03-16T12:00:00Z", "timestamp", NOON + timedelta(microseconds=1)),
        ("A-7", "string", "A-7\x01"),
    ],
    ids=["number", "text", "decimal", "date", "wall-clock", "timestamp", "string"],
)
def test_rows_start_just_past_the_last_key_that_glue_read_when_typed(
    watermarks: Watermarks, shown: Any, kind: str, value: Any
) -> None:
    imported(watermarks, {"repairs": keys(keys={"ID": shown})}, {"repairs": RowsBy({"id": kind})})

    state = watermarks.get_watermark_values(JOB)["repairs"]
    assert (state["kind"], state["cursor_column"], state["type"], state["value"]) == ("rows", "id", kind, value)
    assert watermarks.gaps(JOB, "repairs") == []


def test_rows_start_just_below_the_last_key_when_keys_fall(watermarks: Watermarks) -> None:
    source = RowsBy({"id": "bigint"}, descending=True)

    imported(watermarks, {"repairs": keys(id=5, jobBookmarkKeysSortOrder="desc")}, {"repairs": source})

    state = watermarks.get_watermark_values(JOB)["repairs"]
    assert (state["value"], state["descending"]) == (4, True)


def test_rows_start_just_below_all_keys_together_when_several_fall(watermarks: Watermarks) -> None:
    fields = [{"name": "branch", "value": "12"}, {"name": "id", "value": "7"}]
    source = RowsBy({"branch": "int", "id": "bigint"}, descending=True)

    imported(watermarks, {"repairs": keys(bookmarkKeys=fields, jobBookmarkKeysSortOrder="desc")}, {"repairs": source})

    assert watermarks.get_watermark_values(JOB)["repairs"]["value"] == [12, 6]


def test_rows_start_past_all_keys_together_when_there_are_several(watermarks: Watermarks) -> None:
    fields = [{"name": "day", "value": "2026-03-16"}, {"name": "id", "value": "7"}]
    source = RowsBy({"day": "date", "id": "bigint"})

    imported(watermarks, {"repairs": keys(bookmarkKeys=fields)}, {"repairs": source})

    assert watermarks.get_watermark_values(JOB)["repairs"]["value"] == [date(2026, 3, 16), 8]


def test_rows_start_past_a_key_given_by_hand_when_the_bookmark_does_not_show_it(watermarks: Watermarks) -> None:
    imported(watermarks, {"repairs": keys(blob="?")}, {"repairs": RowsBy({"id": "bigint"}, last=("5",))})

    assert watermarks.get_watermark_values(JOB)["repairs"]["value"] == 6


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"id": 5}, "$"),
        ({"a": {"keys": {"ID": "5"}}}, "$.a.keys"),
        ({"k": [{"name": "id", "value": 5}]}, "$.k"),
        ({"k": [{"name": "no"}, {"id": 5}]}, "$.k[1]"),
    ],
    ids=["top", "nested", "list", "list of others"],
)
def test_rows_are_approximate_and_the_place_is_named_when_values_are_guessed(
    watermarks: Watermarks, fields: dict[str, Any], path: str
) -> None:
    sources = {"repairs": RowsBy({"id": "bigint"})}

    report = import_bookmark(stubbed({"repairs": keys(**fields)}), watermarks, JOB, sources)

    (context,) = report.contexts
    assert context.outcome == "approximate"
    assert context.detail == f"rows past the last id found at {path}; check it, and give RowsBy last="


def test_rows_are_exact_when_the_last_values_are_given(watermarks: Watermarks) -> None:
    sources = {"repairs": RowsBy({"id": "bigint"}, last=(5,))}

    report = import_bookmark(stubbed({"repairs": keys(id=7)}), watermarks, JOB, sources)

    assert report.is_exact


def test_rows_are_exact_when_the_last_values_are_given_and_the_state_is_not_known(watermarks: Watermarks) -> None:
    sources = {"repairs": RowsBy({"id": "bigint"}, last=(5,))}

    report = imported(watermarks, {"repairs": {"jsonClass": "Relationalize"}}, sources)

    assert report.is_exact
    assert watermarks.get_watermark_values(JOB)["repairs"]["value"] == 6


def test_next_run_reads_rows_past_the_key_when_imported(watermarks: Watermarks, spark: Any) -> None:
    df = spark.createDataFrame([(number,) for number in range(1, 9)], "id BIGINT")

    imported(watermarks, {"repairs": keys(id=5)}, {"repairs": RowsBy({"id": "bigint"})})

    with IncrementalJob(watermarks, JOB, spark=spark) as job:
        taken = job.rows_since(df, "id", transformation_ctx="repairs").collect()
    assert sorted(row.id for row in taken) == [6, 7, 8]


@pytest.mark.parametrize(
    ("state", "source", "detail"),
    [
        (keys(other=5), RowsBy({"id": "bigint"}), "it shows 0 values of id; give RowsBy last="),
        (keys(low={"id": 1}, high={"id": 5}), RowsBy({"id": "bigint"}), "it shows 2 values of id"),
        (keys(id="x"), RowsBy({"id": "bigint"}), "its values of id are none of bigint"),
        (keys(id=True), RowsBy({"id": "bigint"}), "it shows 0 values of id"),
        (keys(id=5), RowsBy({"id": "map"}), "its values of id are none of map"),
        (keys(id=2**63), RowsBy({"id": "bigint"}), "its values of id are none of bigint"),
        (keys(id="2026-03-16 12:00:00"), RowsBy({"id": "timestamp"}), "none of timestamp"),
        (keys(id=5, sortOrder="desc"), RowsBy({"id": "bigint"}), "its keys run in the other order"),
        (keys(id="A"), RowsBy({"id": "string"}, descending=True), "only numbers are read downwards"),
        (keys(id="2026-03-16"), RowsBy({"id": "date"}, descending=True), "only numbers are read downwards"),
        (keys(id=5), RowsBy({}, last=()), "it has 0 columns and 0 values"),
        (keys(id=5), RowsBy({"id": "bigint"}, last=(1, 2)), "it has 1 columns and 2 values"),
        (keys(id=5), FilesAt(SOURCE), "it reads rows, and sources has no RowsBy for it"),
        (keys(id=5), None, "it reads rows, and sources has no RowsBy for it"),
        (files(), RowsBy({"id": "bigint"}, last=(1,)), "it reads files, and sources has no FilesAt for it"),
        (files(), FilesAt([]), "its FilesAt has no path"),
        (files(LATEST="1"), FilesAt(SOURCE), "its shape is not known: timestamps with 'LATEST'"),
        (files() | {"x": 1}, FilesAt(SOURCE), "its shape is not known: HadoopDataSourceJobBookmarkState with 'x'"),
        (files(HIGH_BAND="-1"), FilesAt(SOURCE), "its HIGH_BAND is missing or cannot be read"),
        (files(CURR_RUN_START_TIME="?"), FilesAt(SOURCE), "its CURR_RUN_START_TIME is missing or cannot be read"),
        (files(included="xyz"), FilesAt(SOURCE), "its INCLUDE_LIST is missing or cannot be read"),
        ({"jsonClass": "Relationalize"}, None, "its jsonClass is 'Relationalize', which is not known"),
        ({}, None, "its jsonClass is None, which is not known"),
        (7, None, "it is not a JSON object"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_import_is_refused_naming_the_context_and_nothing_is_written_when_it_is_not_possible(
    watermarks: Watermarks, state: Any, source: Any, detail: str
) -> None:
    bookmark = {"repairs": keys(id=5), "strange": state}
    sources = {"repairs": RowsBy({"id": "bigint"})} | ({"strange": source} if source else {})
    report = import_bookmark(stubbed(bookmark), watermarks, JOB, sources)

    with pytest.raises(BookmarkImportError, match="Glue's bookmark of job 'parking', context 'strange': ") as caught:
        imported(watermarks, bookmark, sources)

    assert detail in str(caught.value)
    assert "Fix that, or name it in leave_out to go without it. Nothing is written." in str(caught.value)
    assert [context.outcome for context in report.contexts] == ["approximate", "not possible"]
    assert not report.is_exact
    with pytest.raises(UnknownJobError):
        watermarks.latest(JOB)


def test_other_contexts_are_taken_over_when_one_is_left_out(watermarks: Watermarks) -> None:
    bookmark = {"repairs": keys(id=5), "strange": 7}

    report = imported(watermarks, bookmark, {"repairs": RowsBy({"id": "bigint"})}, leave_out=["strange"])

    assert (list(watermarks.get_watermark_values(JOB)), report.is_exact) == (["repairs"], False)
    assert "strange: left out" in repr(report)


@pytest.mark.parametrize(
    ("bookmark", "text"),
    [
        ("[1]", "JobBookmark is not one JSON object. Was it cut off or encrypted?"),
        ('{"landed": {', "JobBookmark is not one JSON object"),
        ("[" * 100_000, "JobBookmark is not one JSON object"),
        ("{}", "it is empty, so the job starts here as on a first run."),
        ("", "it is empty, so the job starts here as on a first run."),
    ],
    ids=["list", "cut-off", "deep", "reset", "none"],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_bookmark_is_refused_and_nothing_is_written_when_it_cannot_be_read(
    watermarks: Watermarks, bookmark: str, text: str, dry_run: bool
) -> None:
    with pytest.raises(BookmarkImportError, match="Glue's bookmark of job 'parking': ") as caught:
        imported(watermarks, bookmark, {}, dry_run=dry_run)

    assert text in str(caught.value)
    with pytest.raises(UnknownJobError):
        watermarks.latest(JOB)


@pytest.mark.parametrize("given", [{"leave_out": ["other"]}, {"sources": {"other": RowsBy({"id": "bigint"})}}])
def test_context_is_refused_when_the_bookmark_has_none_of_that_name(
    watermarks: Watermarks, given: dict[str, Any]
) -> None:
    sources = given.pop("sources", {})

    with pytest.raises(BookmarkImportError, match=r"context 'other': it has no such context. It has: repairs\."):
        imported(watermarks, {"repairs": keys(id=5)}, sources, **given)


def test_import_is_refused_and_changes_nothing_when_the_job_has_watermarks(watermarks: Watermarks) -> None:
    sources = {"repairs": RowsBy({"id": "bigint"})}
    imported(watermarks, {"repairs": keys(id=5)}, sources)

    with pytest.raises(PlanConflictError, match="it has watermarks already"):
        imported(watermarks, {"repairs": keys(id=3)}, sources)

    assert watermarks.get_watermark_values(JOB)["repairs"]["value"] == 6
    watermarks.reset(JOB, why="import again")
    report = imported(watermarks, {"repairs": keys(id=3)}, sources)
    assert report.head is not None
    assert (report.head.version, watermarks.get_watermark_values(JOB)["repairs"]["value"]) == (3, 4)


def test_errors_of_glue_come_through_when_there_is_no_bookmark(watermarks: Watermarks) -> None:
    client = boto3.client("glue")
    stubber = Stubber(client)
    stubber.add_client_error("get_job_bookmark", "EntityNotFoundException", "Continuation for job parking not found")
    stubber.activate()

    with pytest.raises(ClientError, match="Continuation for job parking not found"):
        import_bookmark(client, watermarks, JOB, {})


# --- reading and telling ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        files(included=READ),
        json.dumps(files(included=READ)),
        files(included=READ, HIGH_BAND=900_000, CURR_RUN_START_TIME=int(NOON.timestamp() * 1000)),
        files(included=" ,\n".join(text.upper() for text in READ) + ",", CURR_RUN_START_TIME="2026-03-16T12:00:00"),
        files(included=READ) | {"timestamps": files(included=READ)["timestamps"] | {"INCLUDE_LIST": READ}},
    ],
    ids=["as-seen", "json-in-json", "numbers", "spaces", "list"],
)
def test_band_is_read_when_it_is_written_in_any_of_these_ways(given: Any) -> None:
    state = read_bookmark(json.dumps({"landed": given}), JOB)["landed"]

    assert state == BandState(NOON, timedelta(minutes=15), frozenset(int(text, 16) for text in READ))


def test_floats_stay_exact_when_keys_are_decimals() -> None:
    state = read_bookmark('{"c": {"jsonClass": "JDBC", "id": 0.1000000000000000055}}', JOB)["c"]

    assert isinstance(state, KeyState)
    assert list(state.values(["id"])) == [(Decimal("0.1000000000000000055"),)]


def test_report_names_files_and_no_values_when_printed(watermarks: Watermarks) -> None:
    bucket = landing()
    bucket.put("day=2/read.csv", body="other", at=NOON - 4 * MINUTE)
    bookmark = {"landed": files(included=READ), "repairs": keys(id=424_242)}
    landed, repairs = FilesAt(SOURCE, listing=bucket), RowsBy({"id": "bigint"})

    report = import_bookmark(stubbed(bookmark), watermarks, JOB, {"landed": landed, "repairs": repairs})

    assert repr(report).splitlines() == [
        f"Bookmark of job 'parking' after run '{RUN}', not written:",
        "  landed: exact. of 3 files in the band of 900 s, 1 are read; files known 3, for the next run 3; again: "
        + repr(f"s3://{PLACE}day=2/read.csv"),
        "  repairs: approximate. rows past the last id found at $; check it, and give RowsBy last=",
    ]


def test_ten_files_and_their_number_are_named_when_many_are_read_again() -> None:
    told = ImportedContext(
        "landed", "files", "approximate", "all.", 1_200, 3, tuple(f"f{no:04}" for no in range(1_100))
    )

    assert str(told).endswith("'f0008', 'f0009', … 1,100 in all")


def test_log_names_run_and_contexts_and_no_values_when_written(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    imported(watermarks, {"repairs": keys(id=424_242)}, {"repairs": RowsBy({"id": "bigint"})})

    assert f"event=imported job=parking version=1 glue_run={RUN} contexts=repairs" in caplog.text
    assert "42424" not in caplog.text
