"""The cgroup of a job: where it is made, and what is left of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scripts.helpers.job_runs import cgroup

UNIFIED = "30 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
PART = "30 24 0:27 /system.slice /sys/fs/cgroup ro - cgroup2 cgroup ro\n"
HYBRID = (
    "36 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "39 31 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


@pytest.mark.parametrize(
    ("memberships", "mounts", "found"),
    [
        ("0::/\n", UNIFIED, "/sys/fs/cgroup"),
        ("0::/user.slice/user-1000.slice\n", UNIFIED, "/sys/fs/cgroup/user.slice/user-1000.slice"),
        ("4:memory:/other\n1:cpu:/\n0::/\n", HYBRID, "/sys/fs/cgroup/unified"),
        ("0::/system.slice/docker.scope\n", PART, "/sys/fs/cgroup/docker.scope"),
        ("0::/system.slices\n", PART, None),
        ("0::/user.slice\n", PART, None),
        ("1:cpu:/\n", HYBRID, None),
        ("0::/\n", "36 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", None),
    ],
    ids=["root", "below", "hybrid", "part", "like the part", "above the part", "version 1", "not mounted"],
)
def test_folder_is_that_of_the_process_when_version_2_is_mounted(
    memberships: str, mounts: str, found: str | None
) -> None:
    folder = cgroup.cgroup_folder(memberships, mounts)

    assert folder == (None if found is None else Path(found))


def test_no_cgroup_is_made_and_nothing_left_when_the_system_cannot_kill_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A plain folder has none of the files of a cgroup, as one of an old Linux has no cgroup.kill.
    monkeypatch.setattr(cgroup, "_own_folder", lambda: tmp_path)

    made = cgroup.make("job")

    assert (made, list(tmp_path.iterdir())) == (None, [])


def test_warning_names_what_is_left_when_it_does_not_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cgroup.kill").touch()
    (tmp_path / "cgroup.procs").write_text("17\n18\n")
    monkeypatch.setattr(cgroup, "DEATH_SECONDS", 0.0)

    cgroup.kill(tmp_path)

    assert (tmp_path / "cgroup.kill").read_text() == "1"
    assert caplog.messages == [f"event=not_killed cgroup={tmp_path} count=2 processes=['17', '18']"]


def test_cgroup_is_waited_for_when_its_processes_die_a_moment_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    removed, slept = iter([False, False, True]), list[float]()
    monkeypatch.setattr(cgroup, "remove", lambda _folder: next(removed))
    monkeypatch.setattr(time, "sleep", slept.append)

    cgroup.kill(tmp_path)

    assert (slept, list(removed), caplog.messages) == ([cgroup.POLL_SECONDS] * 2, [], [])


def test_cgroup_is_removed_when_another_has_removed_it(tmp_path: Path) -> None:
    (tmp_path / "full" / "inside").mkdir(parents=True)

    assert [cgroup.remove(tmp_path / name) for name in ("gone", "full", "full/inside")] == [True, False, True]
