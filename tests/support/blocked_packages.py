"""A Python in which some packages cannot be imported, as if not installed, and only boto3 has been imported.

One interpreter imports boto3, which the package requires, and forks for each piece of code, because starting Python
and importing boto3 takes longer than most of that code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.places import REPOSITORY

_FORKING = """
import json, os, sys
import boto3, botocore.session

loaded = set(sys.modules)
given = None
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        given = json.loads(line)
        break
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in given["packages"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

if given is not None:
    assert loaded.isdisjoint(given["packages"]), given["packages"]
    for number, file in ((0, os.devnull), (1, given["stdout"]), (2, given["stderr"])):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(given["variables"])
    sys.argv = ["-c", *given["arguments"]]
    sys.meta_path.insert(0, Blocked())
    exec(compile(given["code"], "<string>", "exec"), {"__name__": "__main__", "sys": sys})
"""
"""Compiles the code separately, so that tracebacks show the code's own line numbers."""


@cache
def _forking() -> subprocess.Popen[str]:
    """Return the interpreter that forks; it ends with this process, which holds its standard input open."""
    command = [sys.executable, "-c", _FORKING]
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_without(packages: Collection[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code with `sys.argv[1:]` as given, in a process where the packages cannot be imported."""
    forking = _forking()
    assert forking.stdin is not None
    assert forking.stdout is not None
    with TemporaryDirectory() as folder:
        texts = {name: str(Path(folder, name)) for name in ("stdout", "stderr")}
        given = {"packages": sorted(packages), "code": code, "arguments": arguments, "variables": dict(os.environ)}
        forking.stdin.write(json.dumps(given | texts) + "\n")
        forking.stdin.flush()
        exit_code = int(forking.stdout.readline())
        stdout, stderr = (Path(text).read_text(encoding="utf-8") for text in texts.values())
    return subprocess.CompletedProcess(["-c", code, *arguments], exit_code, stdout, stderr)
