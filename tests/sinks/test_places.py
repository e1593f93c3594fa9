"""Sinks use a local directory, a bucket and a Hadoop file system in the same way."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from botocore.exceptions import ClientError
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from scripts.helpers.errors import CredentialsError, InvalidValueError, TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import places
from scripts.helpers.sinks.places import HadoopPlace, LocalPlace, Place, S3Place, is_within, place_of
from scripts.helpers.watermarks import Watermarks
from tests.sinks.rights import refusing

NAMES = ["a.csv", "import_date=2026-11-23/b [1].csv", "x/y/ü%20 .csv"]
Make = Callable[[str], Place]


@pytest.fixture(params=["local", "s3", "hadoop"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that makes places of one kind, by the name of their folder."""
    if request.param == "local":
        return lambda name: LocalPlace(str(tmp_path / name))
    if request.param == "hadoop":
        spark = request.getfixturevalue("spark")
        return lambda name: HadoopPlace(f"file://{tmp_path}/{name}", spark)
    s3, bucket = request.getfixturevalue("s3"), request.getfixturevalue("bucket")
    return lambda name: S3Place(f"s3://{bucket}/{name}", s3)


def visible(place: Place, folder: str = "") -> dict[str, int]:
    """Return the files except the checksum files of Hadoop."""
    return {name: size for name, size in place.files(folder).items() if not name.endswith(".crc")}


def test_file_is_listed_and_read_when_written(make: Make) -> None:
    place = make("raw")

    for number, name in enumerate(NAMES):
        place.write(name, b"x" * number)

    assert visible(place) == {name: number for number, name in enumerate(NAMES)}
    assert visible(place, "x") == {NAMES[2]: 2}
    assert [place.read(name) for name in NAMES] == [b"", b"x", b"xx"]


def test_file_is_another_when_written_again(make: Make) -> None:
    place = make("raw")
    place.write("a.csv", b"first")

    place.write("a.csv", b"second")

    assert place.read("a.csv") == b"second"


@pytest.mark.parametrize(("last", "found"), [(3, b"def"), (6, b"abcdef"), (9, b"abcdef")])
def test_last_bytes_are_read_when_asked_for(make: Make, last: int, found: bytes) -> None:
    place = make("raw")
    place.write("a.csv", b"abcdef")

    assert place.read("a.csv", last) == found
    assert place.read("b.csv", last) is None


def test_content_is_that_of_the_function_when_a_file_is_updated(make: Make) -> None:
    place, seen = make("raw"), list[bytes | None]()

    def change(found: bytes | None) -> bytes | None:
        seen.append(found)
        return {None: b"first", b"first": b"second"}.get(found)

    for _ in range(3):
        place.update("_state", change)

    assert seen == [None, b"first", b"second"]
    assert place.read("_state") == b"second"


@pytest.mark.parametrize("there", [b"0", None], ids=["another", "new"])
def test_function_is_called_again_when_an_object_changed_meanwhile(s3: Any, bucket: str, there: bytes | None) -> None:
    place, seen = S3Place(f"s3://{bucket}/raw", s3), list[bytes | None]()
    if there is not None:
        place.write("_state", there)

    def change(found: bytes | None) -> bytes:
        if not seen:
            place.write("_state", b"of another job")
        seen.append(found)
        return (found or b"") + b"+"

    place.update("_state", change)

    assert seen == [there, b"of another job"]
    assert place.read("_state") == b"of another job+"


def test_function_is_called_again_when_an_object_was_deleted_meanwhile(s3: Any, bucket: str) -> None:
    place, seen = S3Place(f"s3://{bucket}/raw", s3), list[bytes | None]()
    place.write("_state", b"0")

    def change(found: bytes | None) -> bytes:
        place.delete(["_state"])
        seen.append(found)
        return b"1"

    place.update("_state", change)

    assert (seen, place.read("_state")) == ([b"0", None], b"1")


def test_update_ends_with_an_error_when_others_change_an_object_without_end(s3: Any, bucket: str) -> None:
    place, count = S3Place(f"s3://{bucket}/raw", s3), itertools.count()

    def change(_: bytes | None) -> bytes:
        place.write("_state", str(next(count)).encode())
        return b"mine"

    with pytest.raises(TargetError, match=r"s3:PutObject on s3://.*_state: others changed it 100 times meanwhile"):
        place.update("_state", change)


@pytest.mark.parametrize("action", ["GetObject", "PutObject"])
def test_action_is_named_when_an_update_is_refused(s3: Any, bucket: str, action: str) -> None:
    place = S3Place(f"s3://{bucket}/raw", s3)

    with refusing(s3, action), pytest.raises(TargetError, match=f"s3:{action} on s3://{bucket}/raw/_state"):
        place.update("_state", lambda _: b"1")


def test_file_is_not_updated_over_a_link_when_it_leads_out(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "_state.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(TargetError, match="lock"):
        LocalPlace(str(tmp_path / "raw")).update("_state", lambda _: b"1")

    assert not (tmp_path / "elsewhere").exists()


def test_all_bytes_are_on_disk_when_a_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda number: sizes.append(os.fstat(number).st_size))

    LocalPlace(str(tmp_path)).write("a.csv", b"abc")

    assert sizes == [3]


def test_file_is_whole_when_a_writer_died_before(make: Make) -> None:
    place = make("raw")
    place.write("a.csv.unfinished", b"of a writer that died")

    place.write("a.csv", b"whole")

    assert place.read("a.csv") == b"whole"


def test_nothing_is_there_when_nothing_was_written(make: Make) -> None:
    place = make("raw")

    assert (place.files(), place.files("x"), place.read("a.csv")) == ({}, {}, None)


def test_listing_ends_when_as_many_are_found_as_asked_for(make: Make) -> None:
    place = make("raw")
    for name in NAMES:
        place.write(name, b"x")

    assert len(place.files(most=2)) == 2


def test_listing_goes_to_the_next_page_when_a_page_of_s3_has_fewer_than_asked_for(own_s3: Any, bucket: str) -> None:
    place = S3Place(f"s3://{bucket}/raw", own_s3)
    for name in "abcdef":
        place.write(name, b"1")
    own_s3.meta.events.register("before-parameter-build.s3.ListObjectsV2", lambda params, **_: params.update(MaxKeys=2))

    assert [*place.files(most=3)] == ["a", "b", "c"]


def test_files_are_at_the_new_names_when_moved_to_another_place(make: Make) -> None:
    old, new = make("staging"), make("raw")
    for name in NAMES:
        old.write(name, name.encode())
    moves = {name: f"moved/{name}" for name in NAMES}

    gone = old.move(moves, dict.fromkeys(NAMES, 1), new)

    assert gone == []
    assert [new.read(name) for name in moves.values()] == [name.encode() for name in NAMES]


def test_file_is_renamed_and_not_copied_when_hadoop_moves_it_to_a_new_folder(spark: Any, tmp_path: Path) -> None:
    old, new = (HadoopPlace(f"file://{tmp_path}/{name}", spark) for name in ("staging", "raw"))
    old.write("a.csv", b"x")
    number = (tmp_path / "staging/a.csv").stat().st_ino

    old.move({"a.csv": "day=1/a.csv"}, {"a.csv": 1}, new)

    assert (tmp_path / "raw/day=1/a.csv").stat().st_ino == number


def test_file_that_is_not_there_is_told_when_moved(make: Make) -> None:
    old, new = make("staging"), make("raw")
    old.write("a.csv", b"x")

    gone = old.move({"a.csv": "a.csv", "b.csv": "b.csv"}, {"a.csv": 1, "b.csv": 1}, new)

    assert gone == ["b.csv"]
    assert visible(new) == {"a.csv": 1}


def test_object_too_large_for_one_request_is_copied_in_parts_when_moved(
    s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MAX_COPY_BYTES", 1)
    old, new = (S3Place(f"s3://{bucket}/{name}", s3) for name in ("staging", "raw"))
    old.write("a.csv", b"large")

    gone = old.move({"a.csv": "b.csv", "c.csv": "c.csv"}, {"a.csv": 5, "c.csv": 5}, new)

    assert gone == ["c.csv"]
    assert new.read("b.csv") == b"large"


def test_requests_are_as_few_as_s3_allows_when_objects_are_copied_and_deleted(own_s3: Any, bucket: str) -> None:
    place = S3Place(f"s3://{bucket}/raw", own_s3)
    place.write("a.csv", b"x")
    operations: list[str] = []
    own_s3.meta.events.register("before-call.s3", lambda model, **_: operations.append(model.name))

    place.move({"a.csv": "b.csv"}, {"a.csv": 5 * 1024**3 - 1}, place)
    place.delete([f"{number}.csv" for number in range(1_000)])
    # A larger object may need parts, so its size is requested first. One delete request takes 1,000 keys.
    place.move({"b.csv": "c.csv"}, {"b.csv": 5 * 1024**3}, place)
    place.delete([f"{number}.csv" for number in range(1_001)])

    assert operations == ["CopyObject", "DeleteObjects", "HeadObject", "CopyObject", "DeleteObjects", "DeleteObjects"]


def test_folder_is_gone_and_its_neighbour_is_not_when_deleted(make: Make, tmp_path: Path) -> None:
    place = make("staging")
    for name in ("one/_manifest", "one/a.csv", "one/x/b.csv", "one-more/a.csv"):
        place.write(name, b"x")

    place.delete_folder("one", "one/_manifest")
    place.delete_folder("never", "never/_manifest")

    assert visible(place) == {"one-more/a.csv": 1}
    assert not (tmp_path / "staging/one").exists()


def test_manifest_goes_last_when_a_folder_is_deleted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make("staging")
    for name in ("one/_manifest", "one/a.csv", "one/z.csv"):
        place.write(name, b"x")
    deleted: list[str] = []
    monkeypatch.setattr(place, "delete", deleted.extend)

    place.delete_folder("one", "one/_manifest")

    # Hadoop deletes the manifest with the folder, and keeps checksum files next to its files.
    own = [name for name in deleted if not name.endswith(".crc")]
    with_folder = isinstance(place, HadoopPlace)
    assert sorted(own[:2]) == ["one/a.csv", "one/z.csv"]
    assert own[2:] == ([] if with_folder else ["one/_manifest"])


def test_files_are_gone_when_deleted_and_may_have_been_before(make: Make) -> None:
    place = make("raw")
    place.write("a.csv", b"x")

    place.delete(["a.csv", "b.csv"])

    assert visible(place) == {}


def test_every_page_is_listed_and_deleted_when_there_are_more_than_a_thousand(s3: Any, bucket: str) -> None:
    place = S3Place(f"s3a://{bucket}/raw/", s3)
    names = [f"{number:04d}" for number in range(1_003)]
    for name in names:
        # A thousand requests would take most of the time of this test.
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, f"raw/{name}", b"")

    found = place.files()
    place.delete(found)

    assert list(found) == names
    assert place.files() == {}


@pytest.mark.parametrize(
    ("path", "kind", "uri"),
    [
        ("s3://raw/repairs/", S3Place, "s3://raw/repairs"),
        ("s3a://raw/repairs", S3Place, "s3a://raw/repairs"),
        ("s3://raw", S3Place, "s3://raw"),
        ("/data/raw/", LocalPlace, "file:///data/raw"),
        ("file:///data/raw", LocalPlace, "file:///data/raw"),
        ("file:/data/raw", LocalPlace, "file:///data/raw"),
    ],
)
def test_place_is_that_of_the_scheme_when_parsed(s3: Any, path: str, kind: type, uri: str) -> None:
    place = place_of(path, None, s3)

    assert (type(place), place.uri("")) == (kind, uri)


def test_server_and_login_are_those_of_spark_when_no_client_is_given(spark: Any, endpoint: str) -> None:
    session = spark.newSession()
    for name in ("access.key", "secret.key", "session.token"):
        session.conf.set(f"fs.s3a.{name}", f"{name} of Spark")

    place: Any = place_of("s3a://lake/raw", session, None)

    login = place.login()
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    assert [login[name] for name in names] == [
        endpoint,
        "access.key of Spark",
        "secret.key of Spark",
        "session.token of Spark",
    ]


@pytest.mark.parametrize(
    ("given", "tls", "server"),
    [
        ("minio:9000", "true", "https://minio:9000"),
        ("minio:9000", "false", "http://minio:9000"),
        ("https://minio:9000", "false", "https://minio:9000"),
        ("s3.amazonaws.com", "true", "http://of-the-environment"),
        ("", "true", "http://of-the-environment"),
    ],
)
def test_server_is_that_of_spark_when_it_names_one_that_is_not_of_aws(
    spark: Any, monkeypatch: pytest.MonkeyPatch, given: str, tls: str, server: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://of-the-environment")
    session = spark.newSession()
    session.conf.set("fs.s3a.endpoint", given)
    session.conf.set("fs.s3a.connection.ssl.enabled", tls)

    place: Any = place_of("s3a://lake/raw", session, None)

    assert place.login()["AWS_ENDPOINT_URL"] == server


def test_login_is_that_of_the_environment_when_spark_has_half_of_one(spark: Any) -> None:
    session = spark.newSession()
    session.conf.set("fs.s3a.access.key", "of Spark")
    session.conf.set("fs.s3a.secret.key", "")

    places: list[Any] = [place_of("s3a://lake/raw", each, None) for each in (session, None)]

    first, second = (place.login()["AWS_ACCESS_KEY_ID"] for place in places)
    assert first == second


def test_relative_path_is_below_the_directory_of_the_script_when_spark_was_started_elsewhere(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert place_of("raw", spark, None).uri("") == f"file://{tmp_path}/raw"


def test_path_without_a_scheme_is_at_the_default_file_system_when_that_is_no_directory(
    spark: Any, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("fs.defaultFS", "viewfs://default")
    session.conf.set("fs.viewfs.mounttable.default.link./raw", f"file://{tmp_path}")

    place = place_of("/raw/repairs", session, None)

    assert (type(place), place.uri("a.csv")) == (HadoopPlace, "viewfs://default/raw/repairs/a.csv")


@pytest.mark.parametrize("path", ["", " raw", "hdfs://node/raw", "gs://bucket/raw"])
def test_path_is_refused_when_nobody_can_write_there(path: str) -> None:
    with pytest.raises(InvalidValueError):
        place_of(path, None, None)


def test_action_and_file_are_named_when_s3_refuses(s3: Any, bucket: str) -> None:
    place = S3Place(f"s3://{bucket}-gone/raw", s3)

    with pytest.raises(TargetError, match=r"s3:ListBucket on s3://.*-gone/raw: NoSuchBucket"):
        place.files()


def test_action_and_file_are_named_when_s3_does_not_let_one_be_read(s3: Any, bucket: str) -> None:
    place = S3Place(f"s3://{bucket}/raw", s3)

    with refusing(s3, "GetObject"), pytest.raises(TargetError, match=r": s3:GetObject on s3://.*/raw/a\.csv: Access"):
        place.read("a.csv")


def test_object_is_named_when_s3_does_not_delete_one_of_many(s3: Any, bucket: str) -> None:
    place = S3Place(f"s3://{bucket}/raw", s3)
    for name in ("a.csv", "b.csv"):
        place.write(name, b"x")
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject"}
    policy = {"Version": "2012-10-17", "Statement": [denied | {"Resource": f"arn:aws:s3:::{bucket}/raw/a.csv"}]}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))

    with pytest.raises(TargetError, match=rf"s3:DeleteObject of 'raw/a\.csv' on s3://{bucket}/raw: AccessDenied"):
        place.delete(["a.csv", "b.csv"])

    s3.delete_bucket_policy(Bucket=bucket)
    assert place.files() == {"a.csv": 1}


def test_login_is_to_blame_when_s3_does_not_accept_it(s3: Any, bucket: str) -> None:
    with refusing(s3, "ListObjectsV2", "ExpiredToken"), pytest.raises(CredentialsError, match="ExpiredToken"):
        S3Place(f"s3://{bucket}/raw", s3).files()


def test_action_and_file_are_named_and_nothing_is_lost_when_hadoop_refuses(spark: Any, tmp_path: Path) -> None:
    place = HadoopPlace(f"file://{tmp_path}/raw", spark)
    place.write("x/a.csv", b"x")

    with pytest.raises(TargetError, match=r"delete file://.*/raw/x: java\.io\.IOException"):
        place.delete(["x"])
    with pytest.raises(TargetError, match=r"write file://.*/raw/x: java\.io\.IOException"):
        place.write("x", b"y")

    assert place.read("x/a.csv") == b"x"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "No space left on device. Free space there."),
        (errno.EDQUOT, "Disk quota exceeded. Free space there."),
        (errno.EIO, "Input/output error. Check the path, and the rights to that action there."),
    ],
)
def test_error_holds_the_reason_of_the_system_when_rows_cannot_be_stored(
    watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(TargetError) as raised, IncrementalJob(watermarks, "repairs") as job:
        rows = job.rows_since(pd.DataFrame({"id": [1]}), "id", delay=timedelta(0))
        job.write(rows, f"{tmp_path}/raw")

    assert str(raised.value).endswith(said)


def test_path_is_named_when_a_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("a file")

    with pytest.raises(TargetError, match=r"write file://.*/raw/a\.csv: "):
        LocalPlace(str(tmp_path / "raw")).write("a.csv", b"x")


@pytest.mark.parametrize(
    ("said", "act"),
    [
        (r"list file://.*/raw/a\.csv: ", lambda place: place.files("a.csv")),
        (r"read file://.*/raw/folder: ", lambda place: place.read("folder")),
        (r"rename to file://.*/raw/folder: ", lambda place: place.move({"a.csv": "folder"}, {}, place)),
        (r"delete file://.*/raw/folder: ", lambda place: place.delete(["folder"])),
        (r"make the folder .*/raw/a\.csv: ", lambda place: place.move({"b.csv": "a.csv/b.csv"}, {}, place)),
    ],
)
def test_action_and_path_are_named_when_a_file_and_a_folder_are_confused(
    tmp_path: Path, said: str, act: Callable[[Place], object]
) -> None:
    place = LocalPlace(str(tmp_path / "raw"))
    place.write("a.csv", b"x")
    place.write("folder/b.csv", b"x")

    with pytest.raises(TargetError, match=f": {said}"):
        act(place)


def test_error_is_not_hidden_when_it_is_none_of_the_storage(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="null byte"):
        LocalPlace(f"{tmp_path}\0").read("a.csv")


@pytest.mark.parametrize("name", ["a\0.csv", "a\0/b.csv", "a\ud800.csv"])
@pytest.mark.parametrize("act", [LocalPlace.read, lambda place, name: place.delete([name])])
def test_name_is_refused_when_no_local_file_has_it(tmp_path: Path, act: Any, name: str) -> None:
    with pytest.raises(TargetError, match=re.escape(f"the name {name!r} leads out of it")):
        act(LocalPlace(str(tmp_path)), name)


@pytest.mark.parametrize("name", ["raw", "raw\nin two lines"])
def test_action_and_path_are_named_when_hadoop_cannot_read_a_file(spark: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()

    with pytest.raises(TargetError, match=rf": read file://.*/{re.escape(name)}: java\.io\.FileNotFoundException"):
        HadoopPlace(f"file://{tmp_path}", spark).read(name)


def test_folder_that_may_not_be_written_is_named_when_hadoop_is_asked_before(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    opened, closed = (HadoopPlace(f"file://{tmp_path}/{name}", spark) for name in ("opened/raw", "closed/raw"))

    opened.check_rights(opened)
    with pytest.raises(TargetError, match=r": write below file://.*/closed/raw: .*AccessControlException"):
        opened.check_rights(closed)


def test_action_and_path_are_named_when_hadoop_cannot_rename_a_file(spark: Any, tmp_path: Path) -> None:
    """The rename is from one mount point to another."""
    session = spark.newSession()
    for name in ("staging", "raw"):
        (tmp_path / name).mkdir()
        session.conf.set(f"fs.viewfs.mounttable.mounts.link./{name}", f"file://{tmp_path}/{name}")
    old, new = (HadoopPlace(f"viewfs://mounts/{name}", session) for name in ("staging", "raw"))
    old.write("a.csv", b"x")

    with pytest.raises(TargetError, match=r": rename to viewfs://mounts/raw/a\.csv: java\.io\.IOException"):
        old.move({"a.csv": "a.csv"}, {"a.csv": 1}, new)


def test_action_and_path_are_named_when_hadoop_deletes_no_folder(spark: Any, tmp_path: Path) -> None:
    """The folder only exists as part of the path to a mounted folder."""
    session = spark.newSession()
    session.conf.set("fs.viewfs.mounttable.lake.link./raw/staging/repairs", f"file://{tmp_path}")

    with pytest.raises(TargetError, match=r": delete viewfs://lake/raw/staging: .*AccessControlException"):
        HadoopPlace("viewfs://lake/raw", session).delete_folder("staging", "staging/_manifest")


def test_action_and_path_are_named_when_hadoop_lists_a_folder_that_leads_nowhere(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    # Hadoop caches a file system by this name, together with the links that it was first opened with.
    session.conf.set("fs.viewfs.mounttable.nowhere.link./raw/staging/repairs", f"file://{tmp_path}/gone")

    with pytest.raises(TargetError, match=r": list viewfs://nowhere/raw/staging: java\.io\.FileNotFoundException"):
        place_of("viewfs://nowhere/raw", session, None).files("staging")


def test_action_and_path_are_named_when_a_file_is_where_hadoop_needs_a_folder(spark: Any, tmp_path: Path) -> None:
    place = HadoopPlace(f"file://{tmp_path}", spark)
    for name in ("a.csv", "b.csv"):
        place.write(name, b"x")

    with pytest.raises(TargetError, match=r": make the folder file://.*/a\.csv: org\.apache\.hadoop\."):
        place.move({"b.csv": "a.csv/b.csv"}, {}, place)


@pytest.mark.parametrize("name", ["raw", "raw/repairs"])
def test_action_and_path_are_named_when_hadoop_may_not_write_there_or_make_a_folder(
    spark: Any, tmp_path: Path, name: str
) -> None:
    (tmp_path / "raw").mkdir()
    staging, target = (HadoopPlace(f"file://{tmp_path}/{folder}", spark) for folder in ("staging", name))
    staging.check_rights(target)
    (tmp_path / "raw").chmod(0o555)

    with pytest.raises(TargetError, match=rf": write below file://.*/{name}: .*AccessControlException"):
        staging.check_rights(target)


@pytest.mark.parametrize("is_whole", [True, False], ids=["the-request", "the-key"])
@pytest.mark.parametrize("refused", ["raw", "staging"])
def test_only_deletion_in_the_staging_place_must_be_allowed_when_rights_are_checked(
    own_s3: Any, bucket: str, refused: str, *, is_whole: bool
) -> None:
    staging, target = (S3Place(f"s3://{bucket}/{name}", own_s3) for name in ("staging", "raw"))
    asked: list[str] = []

    def note(params: Any, **_: Any) -> None:
        asked[:] = [one["Key"] for one in params["Delete"]["Objects"]]
        if is_whole and any(key.startswith(refused) for key in asked):
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteObjects")

    def refuse(parsed: Any, **_: Any) -> None:
        parsed["Errors"] = [{"Key": key, "Code": "AccessDenied"} for key in asked if key.startswith(refused)]

    own_s3.meta.events.register("provide-client-params.s3.DeleteObjects", note)
    own_s3.meta.events.register("after-call.s3.DeleteObjects", refuse)

    with nullcontext() if refused == "raw" else pytest.raises(TargetError, match=r"s3:DeleteObject .*AccessDenied"):
        staging.check_rights(target)


def test_path_is_named_when_hadoop_cannot_make_a_directory(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("a file")

    with pytest.raises(TargetError, match=r"write file://.*/raw/a\.csv: org\.apache\.hadoop\."):
        HadoopPlace(f"file://{tmp_path}/raw", spark).write("a.csv", b"x")


@pytest.mark.parametrize(
    ("uri", "other", "is_below"),
    [
        ("s3a://b/a/raw", "s3://b/a/", True),
        ("s3://b/a", "s3n://b/a/", True),
        ("s3://b/a", "s3://b/", True),
        ("s3://b/ab", "s3://b/a/", False),
        ("s3://b/a/", "s3a://b/ab", False),
        ("gs://b/a/raw", "s3://b/a/", False),
        ("s3://data/a", "file:///data/", False),
        ("file:///data/a/../b", "file:///data/b/", True),
        ("file:///data", "file:///", True),
        ("file:/data/raw", "file:///data/", True),
        ("/data/raw", "file:///data/", True),
        ("/data/raw", "s3://data/", False),
    ],
)
def test_folders_lie_within_each_other_when_the_places_do_however_they_are_spelled(
    uri: str, other: str, is_below: bool
) -> None:
    assert is_within(uri, other) is is_below


@pytest.mark.parametrize("path", ["s3://lake/raw/../landing", "s3a://lake//raw", "s3://lake/./raw/"])
def test_path_is_refused_when_spark_and_s3_take_it_for_different_folders(path: str) -> None:
    with pytest.raises(InvalidValueError, match="S3 takes for a name"):
        place_of(path, None, None)


def test_file_is_whole_when_several_write_it_at_once(tmp_path: Path) -> None:
    place, contents = LocalPlace(str(tmp_path)), [letter.encode() * 100_000 for letter in "abcd"]

    def write(data: bytes) -> set[bytes | None]:
        found = set()
        for _ in range(50):
            place.write("folder/record", data)
            found.add(place.read("folder/record"))
        return found

    with ThreadPoolExecutor(len(contents)) as threads:
        found = set().union(*threads.map(write, contents))

    assert found <= set(contents)
    assert place.files() == {"folder/record": 100_000}
