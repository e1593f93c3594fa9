"""docs/command-line.md names the options that `plan` has, and those that it lacks."""

from __future__ import annotations

import re
from dataclasses import fields

from scripts.cli.main import cli
from scripts.helpers.files.rules import FileOptions
from tests.docs.pages import text_of

WITHOUT_EFFECT = {"mode", "workers"}
"""Options of a job that do not change the output of `plan`: `mode` is in the state, `workers` is about speed."""


def test_page_names_each_file_option_when_plan_has_it_or_lacks_it() -> None:
    [known] = re.findall(r"So pass the job's (.*?)\s+to `plan` as\s+well", text_of("command-line.md"), re.DOTALL)
    [unknown] = re.findall(r"A job that uses (.*?)\s+may\s+read\s+other files", text_of("command-line.md"), re.DOTALL)
    told, left_out = (set(re.findall(r"`(\w+)`", text)) for text in (known, unknown))
    offered = {option.name for option in cli.commands["plan"].params}
    options = {field.name for field in fields(FileOptions)}

    assert told == options & offered
    assert left_out == options - offered - WITHOUT_EFFECT
