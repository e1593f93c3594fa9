"""The real command in a pseudo-terminal, and the screen that it leaves."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pexpect
import pyte

from tests.cli.stories import NOW
from tests.conftest import REPOSITORY

SCREENS = Path(__file__).parent / "screens"
WRITE_SCREENS = "GLUE_WATERMARKS_WRITE_SCREENS"
"""Environment variable: write the screens that tests compare with, instead of comparing."""
LINES, SECONDS = 60, 90
_MASKED = [
    (r"\be[0-9a-f]{16}\b", "e" + "·" * 16),
    (r"\b[0-9a-f]{16}\b", "·" * 16),
    (r"((?:listed |(?m:^)modified +))\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", r"\g<1>····-··-·· ··:··:··Z"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:····"),
]


class Seen(NamedTuple):
    """What a terminal got: the screen as text, every byte, and the exit code."""

    screen: str
    raw: str
    code: int


def in_terminal(
    endpoint: str,
    *arguments: str,
    columns: int = 80,
    answers: Sequence[tuple[str, str]] = (),
    environment: dict[str, str] | None = None,
    folder: Path = REPOSITORY,
) -> Seen:
    """Run the command as a user does, in a folder; give each answer once its question is on the screen."""
    names = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "scripts.cli", "--now", NOW.isoformat(), *arguments],
        cwd=str(folder),
        env={
            **names,
            "PYTHONPATH": str(REPOSITORY),
            "AWS_ENDPOINT_URL": endpoint,
            "TERM": "xterm-256color",
            **(environment or {}),
        },
        dimensions=(LINES, columns),
        encoding="utf-8",
        timeout=SECONDS,
    )
    raw = ""
    for question, answer in answers:
        child.expect_exact(question)
        raw += child.before + child.after
        child.sendline(answer)
    child.expect(pexpect.EOF)
    raw += child.before
    child.close()
    screen = pyte.Screen(columns, LINES)
    pyte.Stream(screen).feed(raw)
    text = "\n".join(line.rstrip() for line in screen.display).rstrip()
    return Seen(text, raw, child.exitstatus if child.exitstatus is not None else -1)


def check_screen(name: str, seen: Seen) -> None:
    """Compare a screen with the one that is kept, but for what is random."""
    text = masked(seen.screen) + f"\n[exit code {seen.code}]\n"
    path = SCREENS / f"{name}.txt"
    if os.environ.get(WRITE_SCREENS):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def masked(text: str) -> str:
    """Replace what no two runs have in common by dots of the same width."""
    for pattern, replacement in _MASKED:
        text = re.sub(pattern, replacement, text)
    return text
