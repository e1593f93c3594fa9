"""Objects of a batch are archived or deleted: which objects count as changed or gone, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from scripts.helpers.errors import (
    AccessRefusedError,
    ConfigurationError,
    CredentialsError,
    SourceError,
    SourceUnavailableError,
)
from scripts.helpers.listing.clearing import Cleared, Clearing, Taken
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import local_etag
from tests.support.faults import Raw

BODY, NEWER = b"id\n1\n", b"id\n33\n"
DONE, CHANGED, GONE = Cleared(1, len(BODY), 0, 0), Cleared(0, 0, 1, 0), Cleared(0, 0, 0, 1)
RENAME, COPY = os.rename, shutil.copyfileobj


class Local:
    """A directory with one file that a batch took, and an archive next to it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.archive = folder / "landing", folder / "archive"
        self.path, self.target = self.source / "a.csv", self.archive / "v3" / "a.csv"
        self.source.mkdir()
        self.path.write_bytes(BODY)
        found = self.path.stat()
        self.taken = Taken(
            "a.csv", local_etag(found), None, found.st_size, datetime.fromtimestamp(found.st_mtime, timezone.utc), 3
        )

    def clearing(self, *, archives: bool = True) -> Clearing:
        archive = Location.parse(str(self.archive)) if archives else None
        return Clearing(Location.parse(str(self.source)), archive, None)

    def clear(self, *, archives: bool = True) -> Cleared:
        return self.clearing(archives=archives).clear([self.taken])

    def overwrite(self) -> None:
        """Put another file in place of the file that was taken."""
        beside = self.source / "upload"
        beside.write_bytes(NEWER)
        beside.replace(self.path)

    @property
    def there(self) -> dict[str, bytes]:
        """All files, including hidden files."""
        files = (*self.source.rglob("*"), *self.archive.rglob("*"))
        return {str(path.relative_to(self.source.parent)): path.read_bytes() for path in files if path.is_file()}


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path)


def let_rename(
    monkeypatch: pytest.MonkeyPatch, local: Local, first: Callable[[], None], *, aside: bool = False
) -> None:
    """Call `first` just before a file is renamed: into the archive, or within the source before it is deleted."""

    def rename(path: str, target: str) -> None:
        if str(target).startswith(str(local.source if aside else local.archive)):
            first()
        RENAME(path, target)

    monkeypatch.setattr(os, "rename", rename)


def fail_with(code: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def refused_on(path: str) -> str:
    return (
        f"The file system refuses to write {path!r}. Check the rights of the user that runs the job, and whether the "
        "disk is full or read-only."
    )


def test_file_is_copied_with_its_time_and_then_deleted_when_the_archive_is_on_another_file_system(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    modified = local.path.stat().st_mtime_ns
    let_rename(monkeypatch, local, fail_with(errno.EXDEV))

    cleared = local.clear()

    assert (cleared, local.there) == (DONE, {"archive/v3/a.csv": BODY})
    assert local.target.stat().st_mtime_ns == modified


def test_copy_is_on_disk_before_it_has_its_name_when_it_is_of_another_file_system(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []

    def sync(file: int) -> None:
        synced.append((os.fstat(file).st_size, local.target.exists()))

    let_rename(monkeypatch, local, fail_with(errno.EXDEV))
    monkeypatch.setattr(os, "fsync", sync)

    local.clear()

    assert synced == [(len(BODY), False)]


def test_copy_is_not_kept_when_the_file_on_another_file_system_changed_meanwhile(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Any, target: Any) -> None:
        COPY(source, target)
        local.path.write_bytes(NEWER)

    let_rename(monkeypatch, local, fail_with(errno.EXDEV))
    monkeypatch.setattr(shutil, "copyfileobj", copy)

    assert (local.clear(), local.there) == (CHANGED, {"landing/a.csv": NEWER})


@pytest.mark.parametrize(
    ("module", "name"), [(shutil, "copyfileobj"), (os, "fsync"), (shutil, "copystat"), (os, "replace")]
)
def test_copy_is_not_kept_when_the_disk_of_another_file_system_is_full(
    local: Local, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    let_rename(monkeypatch, local, fail_with(errno.EXDEV))
    monkeypatch.setattr(module, name, fail_with(errno.ENOSPC))

    with pytest.raises(AccessRefusedError, match="whether the disk is full"):
        local.clear()

    assert local.there == {"landing/a.csv": BODY}


@pytest.mark.parametrize("archives", [True, False], ids=["archive", "delete"])
def test_file_is_put_back_when_it_was_overwritten_after_it_was_checked(
    local: Local, monkeypatch: pytest.MonkeyPatch, archives: bool
) -> None:
    let_rename(monkeypatch, local, local.overwrite, aside=not archives)

    assert (local.clear(archives=archives), local.there) == (CHANGED, {"landing/a.csv": NEWER})


def test_newest_file_is_kept_when_one_that_was_moved_is_put_back_to_its_place(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(path: str, target: str) -> None:
        local.overwrite()
        RENAME(path, target)
        local.path.write_bytes(b"newest")

    monkeypatch.setattr(os, "rename", rename)

    assert (local.clear(), local.there) == (CHANGED, {"landing/a.csv": b"newest"})


@pytest.mark.parametrize(("body", "is_kept"), [(b"id\n9\n", True), (BODY, False)])
def test_file_stays_when_one_with_other_bytes_and_the_same_time_is_in_its_place(
    local: Local, body: bytes, is_kept: bool
) -> None:
    local.target.parent.mkdir(parents=True)
    local.target.write_bytes(body)
    shutil.copystat(local.path, local.target)

    with pytest.raises(SourceError, match="another file exists there already") if is_kept else nullcontext():
        local.clear()

    kept = {"landing/a.csv": BODY} if is_kept else {}
    assert local.there == {"archive/v3/a.csv": body, **kept}


def test_file_counts_as_gone_when_it_is_not_there(local: Local) -> None:
    local.path.unlink()

    assert local.clear() == GONE


@pytest.mark.parametrize("archives", [True, False], ids=["archive", "delete"])
def test_file_stays_and_the_place_is_named_when_it_may_not_be_moved(
    local: Local, monkeypatch: pytest.MonkeyPatch, archives: bool
) -> None:
    let_rename(monkeypatch, local, fail_with(errno.EACCES), aside=not archives)

    with pytest.raises(AccessRefusedError) as raised:
        local.clear(archives=archives)

    assert str(raised.value) == refused_on(str(local.target if archives else local.path))
    assert local.there == {"landing/a.csv": BODY}


@pytest.mark.parametrize("refused", ["source", "archive"])
def test_folder_is_named_when_the_user_may_not_write_to_it(
    local: Local, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    # The archive does not exist yet, so it would be created in its parent folder.
    folder = f"{local.source}/" if refused == "source" else str(local.archive.parent)
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (folder, os.W_OK))

    with pytest.raises(AccessRefusedError) as raised:
        local.clearing().check_rights()

    assert str(raised.value) == refused_on(folder)


# --- S3 ---------------------------------------------------------------------------------------------------------


def test_upgrade_of_boto3_is_asked_for_when_it_cannot_delete_on_a_condition() -> None:
    delete = SimpleNamespace(input_shape=SimpleNamespace(members={"Bucket": None, "Key": None}))
    model = SimpleNamespace(operation_model=lambda name: {"DeleteObject": delete}[name])
    client: Any = SimpleNamespace(meta=SimpleNamespace(service_model=model))

    with pytest.raises(
        ConfigurationError, match=r"^after_commit needs a boto3 whose DeleteObject has IfMatch: .*Update"
    ):
        Clearing(Location.parse("s3://landing/"), None, client).check_rights()


def in_bucket(client: Any, bucket: str, *, archives: bool = True, by_time: bool = False) -> Clearing:
    archive = Location.parse(f"s3://{bucket}/archive/") if archives else None
    return Clearing(Location.parse(f"s3://{bucket}/landing/"), archive, client, by_time=by_time)


def put(client: Any, bucket: str, **facts: Any) -> Taken:
    """Write the object that a batch took, and return its record with some of the recorded facts replaced."""
    place: dict[str, Any] = {"Bucket": bucket, "Key": "landing/a.csv"}
    etag = client.put_object(**place, Body=BODY)["ETag"].strip('"')
    modified = client.head_object(**place)["LastModified"]
    return Taken("a.csv", etag, None, len(BODY), modified, 3)._replace(**facts)


@pytest.mark.parametrize(("by_time", "cleared"), [(True, CHANGED), (False, DONE)], ids=["by time", "by ETag"])
def test_object_of_another_time_counts_as_changed_when_times_are_compared(
    own_s3: Any, bucket: str, by_time: bool, cleared: Cleared
) -> None:
    taken = put(own_s3, bucket, modified=datetime(2026, 3, 1, tzinfo=timezone.utc))

    assert in_bucket(own_s3, bucket, archives=False, by_time=by_time).clear([taken]) == cleared


def test_source_stays_and_both_sizes_are_told_when_the_copy_has_another_one(own_s3: Any, bucket: str) -> None:
    taken = put(own_s3, bucket, size=99)

    with pytest.raises(SourceError) as raised:
        in_bucket(own_s3, bucket).clear([taken])

    assert str(raised.value) == (
        f"Source 's3://{bucket}/archive/v3/a.csv': it has 5 bytes and was copied of 99. The source keeps its file. "
        "Delete this one."
    )
    assert own_s3.get_object(Bucket=bucket, Key="landing/a.csv")["Body"].read() == BODY


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        ("ExpiredToken", CredentialsError, "AWS does not accept the credentials (ExpiredToken). Renew them."),
        (
            "InvalidRequest",
            SourceError,
            "Source {0!r}: s3:DeleteObject on {0}a.csv was refused (InvalidRequest). Check the rights to it there.",
        ),
        (
            "RequestTimeout",
            SourceUnavailableError,
            "Source {0!r}: it is unreachable or closed the connection (RequestTimeout). Run again later",
        ),
    ],
)
def test_error_says_who_is_to_act_when_s3_refuses_to_delete(
    own_s3: Any, bucket: str, code: str, error: type[Exception], told: str
) -> None:
    def refuse(request: Any, **_: Any) -> AWSResponse:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        return AWSResponse(request.url, 400, {}, Raw(body))  # type: ignore[arg-type]

    taken = put(own_s3, bucket)
    own_s3.meta.events.register("before-send.s3.DeleteObject", refuse)

    with pytest.raises(error) as raised:
        in_bucket(own_s3, bucket).clear([taken])

    assert type(raised.value) is error
    assert str(raised.value).startswith(told.format(f"s3://{bucket}/landing/"))
