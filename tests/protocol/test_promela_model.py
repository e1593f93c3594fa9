"""SPIN checks the model in docs/model in all its states, and finds a fault in each of its mutations."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.components import missing_component
from tests.support.patience import LONG
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.if_changed("model")

MODEL = REPOSITORY / "docs" / "model" / "exactly_once.pml"
README = MODEL.with_name("README.md").read_text(encoding="utf-8")

VARIANTS = (("rename", ()), ("copy", ("COPY",)), ("late", ("LATE_TASK", "BEGINS=2")))
"""A file system; S3; tasks that still add files to a staged folder after the job has stopped waiting for them."""
MUTATIONS = (
    ("NO_STAGING",),
    ("PUBLISH_BEFORE_COMMIT",),
    ("SWEEP_BEFORE_PUBLISH",),
    ("NO_FENCE_IN_PATH",),
    ("DROP_UNPUBLISHED",),
    ("DROP_ON_UNKNOWN",),
    ("COMMIT_BLIND",),
    ("MANIFEST_AFTER_COMMIT",),
    ("SWEEP_ALL_VERSIONS",),
    ("LIST_NOT_MANIFEST", "LATE_TASK", "BEGINS=2"),
    ("RETRACT_FORGETS",),
    ("RETRACT_TARGET_FIRST",),
    ("RETRACT_MANIFEST_LAST",),
    ("RETRACT_BEFORE_DECISION",),
    ("FORGET_AT_ONCE", "COPY"),
    ("REWIND_TO_RETRACTED", "DECISIONS=2"),
)


def verify(folder: Path, settings: tuple[str, ...], optimized: str) -> str:
    """Check the model with some macros set, and return the verifier's output."""
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            missing_component(tool, f"apt-get install {tool}")
    # SPIN and gcc write pan.* and a trail to their working directory.
    shutil.copy(MODEL, folder)
    macros = [f"-D{setting}" for setting in settings]
    # COLLAPSE stores repeated parts of states once, in a quarter of the memory. It leaves no state out.
    options = ["-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-DMEMLIM=2000"]
    said = ""
    for command in (
        ["spin", *macros, "-a", MODEL.name],
        ["gcc", optimized, "-w", *options, "-o", "pan", "pan.c"],
        ["./pan", "-m100000"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONG, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
    return said


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("settings", [settings for _, settings in VARIANTS], ids=[name for name, _ in VARIANTS])
def test_model_has_no_fault_when_every_state_is_visited(settings: tuple[str, ...], tmp_path: Path) -> None:
    said = verify(tmp_path, settings, "-O2")

    assert "errors: 0" in said, said
    # Out of memory, or deeper than -m: states were left out.
    for part in ("Search not completed", "max search depth too small", "hash conflict: dropped"):
        assert part not in said, said
    assert "+ Partial Order Reduction" in said, said
    # A step that is never taken proves nothing.
    left_out = said.partition("unreached in proctype Run\n")[2].partition("unreached in")[0]
    assert re.findall(r'state \d+, "(.*)"', left_out) == ["-end-"], left_out


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("settings", MUTATIONS, ids=lambda settings: settings[0])
def test_model_has_a_fault_when_it_is_mutated(settings: tuple[str, ...], tmp_path: Path) -> None:
    # Compiled without optimization: a fault turns up before optimizing would pay off.
    said = verify(tmp_path, settings, "-O0")

    assert "assertion violated" in said, said
    assert "errors: 1" in said, said


def test_readme_names_every_mutation_when_it_is_compared_with_the_model() -> None:
    macros = set(re.findall(r"^#ifn?def (\w+)", MODEL.read_text(encoding="utf-8"), re.MULTILINE))
    chosen = {setting.partition("=")[0] for settings in MUTATIONS for setting in settings}

    assert macros - {"RUNS", "ROWS", "BEGINS", "DECISIONS"} == chosen - {"BEGINS", "DECISIONS"}
    assert [name for name in sorted(macros) if f"`{name}`" not in README and f"`-D{name}`" not in README] == []
