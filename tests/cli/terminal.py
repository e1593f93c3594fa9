"""Run the command in a pseudo-terminal, in this process or in one of its own, and return the screen that it leaves."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import boto3
import pexpect
import pyte

from scripts.cli.main import main
from tests.cli.stories import NOW
from tests.support.places import REPOSITORY

SCREENS = Path(__file__).parent / "screens"
WRITE_SCREENS = "GLUE_WATERMARKS_WRITE_SCREENS"
"""Environment variable: overwrite the stored screens instead of comparing with them."""
LINES, SECONDS = 60, 90
_MASKED = [
    (r"\be[0-9a-f]{16}\b", "e" + "·" * 16),
    (r"\b[0-9a-f]{16}\b", "·" * 16),
    (r"((?:listed |(?m:^)modified +))\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", r"\g<1>····-··-·· ··:··:··Z"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:····"),
]


class Seen(NamedTuple):
    """What a terminal received: the screen as text, all the output, and the exit code."""

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
    """Call the command in this process on a terminal; type each answer once its question is on the screen.

    This takes a few hundredths of a second. A Python process of its own takes one or two seconds.
    """
    with _Terminal(columns, answers) as terminal, ExitStack() as undo:
        undo.enter_context(mock.patch.dict(os.environ, _environment(endpoint, environment), clear=True))
        # A session left by an earlier call would still use that call's endpoint.
        undo.enter_context(mock.patch.object(boto3, "DEFAULT_SESSION", None))
        undo.enter_context(mock.patch.object(sys, "argv", ["watermarks", "--now", NOW.isoformat(), *arguments]))
        undo.enter_context(_in_folder(folder))
        undo.enter_context(terminal.as_streams())
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Seen(_screen(terminal.raw, columns), terminal.raw, code)


def in_own_process(
    endpoint: str,
    *arguments: str,
    columns: int = 80,
    answers: Sequence[tuple[str, str]] = (),
    environment: dict[str, str] | None = None,
    folder: Path = REPOSITORY,
) -> Seen:
    """Run the command as a user does, in a folder; type each answer once its question is on the screen."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "scripts.cli", "--now", NOW.isoformat(), *arguments],
        cwd=str(folder),
        env=_environment(endpoint, environment),
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
    return Seen(_screen(raw, columns), raw, child.exitstatus if child.exitstatus is not None else -1)


def _environment(endpoint: str, more: dict[str, str] | None) -> dict[str, str]:
    """Return the environment variables for a command in a terminal."""
    names = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    names |= {"PYTHONPATH": str(REPOSITORY), "AWS_ENDPOINT_URL": endpoint, "TERM": "xterm-256color"}
    return names | (more or {})


def _screen(raw: str, columns: int) -> str:
    """Return what a terminal shows after it has received all the output."""
    screen = pyte.Screen(columns, LINES)
    pyte.Stream(screen).feed(raw)
    return "\n".join(line.rstrip() for line in screen.display).rstrip()


class _Terminal:
    """A pseudo-terminal with a thread that plays the user: it reads everything and answers questions.

    Attributes
    ----------
    raw
        All the output; complete once the terminal is closed.
    """

    def __init__(self, columns: int, answers: Sequence[tuple[str, str]]) -> None:
        self.raw = ""
        self._columns, self._answers = columns, answers
        self._person = threading.Thread(target=self._read_and_answer, daemon=True)

    def __enter__(self) -> _Terminal:
        self._near, self._far = pty.openpty()
        fcntl.ioctl(self._far, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, self._columns, 0, 0))
        self._person.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Close the far end first: only then does reading the near end stop, after the last byte.
        os.close(self._far)
        self._person.join(SECONDS)
        os.close(self._near)
        assert not self._person.is_alive(), "somebody holds the terminal open still"

    @contextmanager
    def as_streams(self) -> Iterator[None]:
        """Make the terminal the standard streams of this process, for Python and as file descriptors.

        rich and shutil ask the descriptors how wide the terminal is.
        """
        kept = {number: os.dup(number) for number in (1, 2)}
        with ExitStack() as undo:
            # Use new descriptors: with descriptor 0 itself, Python's input() would call readline.
            keyboard, out, err = (
                undo.enter_context(os.fdopen(os.dup(self._far), mode, encoding="utf-8", buffering=1))
                for mode in ("r", "w", "w")
            )
            for number in kept:
                os.dup2(self._far, number)
            try:
                with redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "stdin", keyboard):
                    yield
            finally:
                for number, copy in kept.items():
                    os.dup2(copy, number)
                    os.close(copy)

    def _read_and_answer(self) -> None:
        left, read, seen = list(self._answers), bytearray(), 0
        while chunk := self._next():
            read += chunk
            text = read.decode("utf-8", "ignore")
            if left and (at := text.find(left[0][0], seen)) >= 0:
                question, answer = left.pop(0)
                seen = at + len(question)
                os.write(self._near, f"{answer}\n".encode())
        self.raw = read.decode("utf-8")

    def _next(self) -> bytes:
        try:
            # Send an end of file (Ctrl-D) after a while: a question that no test expects would wait for ever.
            while not select.select([self._near], [], [], SECONDS)[0]:
                os.write(self._near, b"\x04")
            return os.read(self._near, 65_536)
        except OSError:  # Linux raises EIO where other systems report the end of the file.
            return b""


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def check_screen(name: str, seen: Seen) -> None:
    """Compare a screen with the stored one, ignoring values that differ from run to run."""
    text = masked(seen.screen) + f"\n[exit code {seen.code}]\n"
    path = SCREENS / f"{name}.txt"
    if writes_screens():
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def writes_screens() -> bool:
    """Return whether to overwrite the stored screens; fail if CI asks for it, because every comparison would pass."""
    is_asked = bool(os.environ.get(WRITE_SCREENS))
    assert not (is_asked and os.environ.get("CI")), f"{WRITE_SCREENS} is set in CI, where nothing would be compared"
    return is_asked


def masked(text: str) -> str:
    """Replace values that differ from run to run with dots of the same width."""
    for pattern, replacement in _MASKED:
        text = re.sub(pattern, replacement, text)
    return text
