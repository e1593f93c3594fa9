"""Names and links that lead out of a place: the files there are not read, moved, overwritten or deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.outputs import MANIFEST
from scripts.helpers.sinks.places import HadoopPlace, LocalPlace, Place, S3Place
from tests.support.staging import FilledSink

BATCH = BatchId("repairs", "e1", 3)
VICTIM = "the path of the victim"
LEADING_OUT = ["../victim/key.pem", "a/../../victim/key.pem", "..", "./a.csv", "a/./b.csv"]
EMPTY = ["a//b.csv", VICTIM, "a/", ""]
ACTS: dict[str, Callable[[Place, str], Any]] = {
    "read": lambda place, name: place.read(name),
    "write": lambda place, name: place.write(name, b"mine"),
    "move from": lambda place, name: place.move({name: "b.csv"}, {name: 1}, place),
    "move to": lambda place, name: place.move({"a.csv": name}, {"a.csv": 1}, place),
    "delete_folder": lambda place, name: place.delete_folder(name, f"{name}/{MANIFEST}"),
}


def delete(place: Place, name: str) -> None:
    place.delete([name])


@pytest.fixture(params=["local", "s3", "hadoop"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a place of each kind, with one file; a local place has a file of someone else next to it."""
    if request.param == "s3":
        made: Place = S3Place(f"s3://{request.getfixturevalue('bucket')}/raw", request.getfixturevalue("s3"))
    elif request.param == "hadoop":
        made = HadoopPlace(f"file://{tmp_path}/raw", request.getfixturevalue("spark"))
    else:
        made = LocalPlace(f"{tmp_path}/raw")
    made.write("a.csv", b"x")
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim" / "key.pem"
    path.parent.mkdir()
    path.write_bytes(b"theirs")
    return path


def found(folder: Path) -> dict[str, bytes]:
    """Return all files except the checksum files of Hadoop."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def check_refused(place: Place, folder: Path, act: Callable[[Place, str], Any], name: str) -> None:
    name = name.replace(VICTIM, f"{folder}/victim/key.pem")
    before = found(folder)

    with pytest.raises(TargetError) as caught:
        act(place, name)

    assert caught.value.target == place.uri("")
    assert f"the name {name!r} leads out of it" in str(caught.value)
    assert "Restore" in str(caught.value)
    assert (found(folder), place.read("a.csv")) == (before, b"x")


@pytest.mark.parametrize("act", [*ACTS.values(), delete], ids=[*ACTS, "delete"])
@pytest.mark.parametrize("name", LEADING_OUT)
def test_nothing_is_done_when_a_name_leads_out_of_the_place(
    place: Place, victim: Path, tmp_path: Path, name: str, act: Callable[[Place, str], Any]
) -> None:
    check_refused(place, tmp_path, act, name)


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("name", EMPTY)
def test_nothing_is_done_when_a_name_has_an_empty_component(
    place: Place, victim: Path, tmp_path: Path, name: str, act: Callable[[Place, str], Any]
) -> None:
    check_refused(place, tmp_path, act, name)


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("place", ["local", "hadoop"], indirect=True)
def test_nothing_is_deleted_when_a_name_has_an_empty_component(
    place: Place, victim: Path, tmp_path: Path, name: str
) -> None:
    check_refused(place, tmp_path, delete, name)


def test_object_is_deleted_when_its_key_has_empty_components(s3: Any, bucket: str) -> None:
    """S3 keeps such keys as they are; S3A, for example, leaves folder markers."""
    place = S3Place(f"s3://{bucket}/raw", s3)
    for name in ("job/", "job/attempt/", "job/attempt//a.csv", "job/attempt/_manifest"):
        s3.put_object(Bucket=bucket, Key=f"raw/{name}", Body=b"x")

    place.delete_folder("job/attempt", f"job/attempt/{MANIFEST}")
    place.delete(["job/"])

    assert place.files() == {}


@pytest.mark.parametrize("folder", ["..", "../victim", "a/../../victim", VICTIM])
@pytest.mark.parametrize("place", ["local", "hadoop"], indirect=True)
def test_folder_is_not_listed_when_its_name_leads_out_of_the_place(place: Place, victim: Path, folder: str) -> None:
    folder = folder.replace(VICTIM, str(victim.parent))

    with pytest.raises(TargetError, match=f"the name {folder!r} leads out of it"):
        place.files(folder)


# --- links ---------------------------------------------------------------------------------------------------------


class Links:
    """A local place below a link, with links to a folder and a file elsewhere, and to one of its own files."""

    def __init__(self, folder: Path, victim: Path) -> None:
        self.folder, self.root, self.victim = folder, folder / "raw", victim
        (folder / "real").mkdir()
        self.root.symlink_to("real")
        self.place = LocalPlace(str(self.root))
        self.place.write("job/own.csv", b"own")
        for name, to in (("folder", victim.parent), ("key.pem", victim), ("link.csv", "own.csv"), ("below", ".")):
            (self.root / "job" / name).symlink_to(to)


@pytest.fixture
def links(tmp_path: Path, victim: Path) -> Links:
    return Links(tmp_path, victim)


def test_links_are_names_of_their_own_when_a_folder_is_listed(links: Links) -> None:
    assert sorted(links.place.files()) == ["job/below", "job/folder", "job/key.pem", "job/link.csv", "job/own.csv"]
    assert links.place.files("job")["job/link.csv"] == len(b"own")
    assert [links.place.files(folder) for folder in ("job/folder", "job/below", "job/folder/")] == [{}, {}, {}]


@pytest.mark.parametrize("name", ["job/key.pem", "job/folder/key.pem"])
@pytest.mark.parametrize(
    "act",
    [
        lambda place, name: place.read(name),
        lambda place, name: place.move({name: "b.csv"}, {name: 1}, place),
    ],
    ids=["read", "move"],
)
def test_file_elsewhere_is_not_read_or_moved_when_a_link_leads_to_it(
    links: Links, act: Callable[[Place, str], Any], name: str
) -> None:
    with pytest.raises(TargetError, match=f"the name '{name}' leads out of it over a link.* Remove the link"):
        act(links.place, name)

    assert links.victim.read_bytes() == b"theirs"
    assert not (links.root / "b.csv").exists()


@pytest.mark.parametrize(
    "act",
    [
        lambda place: place.write("job/folder/key.pem", b"mine"),
        lambda place: place.write("job/folder/new/a.csv", b"mine"),
        lambda place: place.move({"job/own.csv": "job/folder/new/a.csv"}, {"job/own.csv": 3}, place),
        lambda place: place.delete(["job/folder/key.pem"]),
        lambda place: place.delete_folder("job/folder/sub", "job/folder/sub/_manifest"),
    ],
    ids=["write", "write-new", "move", "delete", "delete_folder"],
)
def test_folder_elsewhere_is_not_changed_when_a_link_leads_there(links: Links, act: Callable[[Place], Any]) -> None:
    (links.victim.parent / "sub").mkdir()
    before = sorted(links.folder.rglob("*"))

    with pytest.raises(TargetError, match="leads out of it over a link"):
        act(links.place)

    assert sorted(links.folder.rglob("*")) == before
    assert links.victim.read_bytes() == b"theirs"


def test_file_elsewhere_is_not_overwritten_when_a_link_has_the_name_of_an_unfinished_file(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.helpers.sinks.places.new_token", lambda: "0" * 16)
    (links.root / "a.csv.00000000.unfinished").symlink_to(links.victim)

    with pytest.raises(TargetError, match=r": write file://.*/raw/a\.csv: "):
        links.place.write("a.csv", b"mine")

    assert links.victim.read_bytes() == b"theirs"


def test_link_is_replaced_or_deleted_when_it_is_named_itself(links: Links) -> None:
    links.place.write("job/key.pem", b"new")
    links.place.move({"job/link.csv": "job/below"}, {"job/link.csv": 3}, links.place)
    links.place.delete(["job/folder"])

    assert links.place.files() == {"job/below": 3, "job/key.pem": 3, "job/own.csv": 3}
    assert links.victim.read_bytes() == b"theirs"


@pytest.mark.parametrize("folder", ["job", "job/folder", "job/below"])
def test_links_go_and_what_is_behind_them_stays_when_a_folder_is_deleted(links: Links, folder: str) -> None:
    links.place.delete_folder(folder, f"{folder}/{MANIFEST}")

    assert not (links.root / folder).exists() and not (links.root / folder).is_symlink()
    assert links.victim.read_bytes() == b"theirs"
    assert (links.root / "job" / "own.csv").exists() == (folder != "job")


# --- a job's target ------------------------------------------------------------------------------------------------


def fill(place: Place, folder: str) -> None:
    place.write(f"{folder}/part-0.csv", b"1\n")


def test_files_of_others_stay_when_a_link_to_them_is_in_the_folder_of_an_attempt_that_is_swept(
    tmp_path: Path, victim: Path
) -> None:
    sink = FilledSink(str(tmp_path / "raw"))
    loser, winner = (sink.stage_files(BATCH, fence, fill) for fence in (6, 7))
    (tmp_path / "_raw.staging" / loser.folder / "docs").symlink_to(victim.parent)

    sink.publish(winner)
    swept = sink.sweep(winner, [winner.folder])

    assert (swept, sink.staged(winner.job)) == (1, [winner.folder])
    assert victim.read_bytes() == b"theirs"


@pytest.mark.parametrize("name", ["../../../victim/key.pem", VICTIM])
@pytest.mark.parametrize("folders", [True, False])
def test_file_of_others_stays_when_a_manifest_names_it(tmp_path: Path, victim: Path, name: str, folders: bool) -> None:
    name = name.replace(VICTIM, str(victim))
    sink = FilledSink(str(tmp_path / "raw"), batch_folders=folders)
    output = sink.stage_files(BATCH, 7, fill)
    manifest = tmp_path / "_raw.staging" / output.folder / MANIFEST
    found = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(found | {"files": {**found["files"], name: 6}}))

    # Publish by another process, which reads the manifest; the one that staged the batch has it in memory.
    with pytest.raises(TargetError):
        FileSink(str(tmp_path / "raw"), batch_folders=folders).publish(output)

    assert victim.read_bytes() == b"theirs"
    assert [path for path in tmp_path.iterdir() if path.name not in ("_raw.staging", "raw", "victim")] == []
