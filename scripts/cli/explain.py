"""`watermarks files JOB --explain KEY`: show what happened to one file."""

from __future__ import annotations

import os
from shlex import quote
from typing import Any

from rich.text import Text

from scripts.cli.contexts import file_bookmark, state_in
from scripts.cli.deciding import confirm_place
from scripts.cli.documents import emit
from scripts.cli.progress import progress
from scripts.cli.screen import Cell, moment, show_facts
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable


def explain_file(around: Surroundings, job: str, key: str, context: str | None, **options: Any) -> None:
    """Show which run took a file and when, or why no run took it; `options` are the job's options for files."""
    bookmark_of = file_bookmark()
    with progress(around, f"reading {printable(job)}"):
        name, state = state_in(around, job, context, "files")
    source = state.source
    # Omit options that were not given, because `FileBookmark` checks every value that it is passed.
    given = {option: value for option, value in options.items() if value}
    bookmark = bookmark_of(source, state=state.to_store(), transformation_ctx=name, **given)
    relative = _relative(key, source)
    if relative is None:
        relative = key
        confirm_place(around, "source", source, f"the whole name of the file: {quote(source + key)}")
    with progress(around, f"looking at {printable(relative)}"):
        found = bookmark.explain(relative)
    if around.is_json:
        emit({"job": job, "context": name, "source": source, **found._asdict()})
        return
    facts: list[tuple[str, Cell]] = [
        ("file", Text(found.key, "bold")),
        ("state", found.state),
        ("why", found.reason),
    ]
    if found.size is not None:
        facts.append(("size", f"{found.size:,} bytes"))
    if found.modified is not None:
        facts.append(("modified", moment(found.modified)))
    facts.append(("source", source))
    show_facts(around.out, facts)


def _relative(key: str, source: str) -> str | None:
    """Return a key relative to its source. `key` may begin with s3a://, as in Spark, or be the path of a local file.

    None if the key does not begin with the source.
    """
    for named in (key.replace("s3a://", "s3://", 1), f"file://{key}", f"file://{os.path.abspath(key)}"):
        if named.startswith(source):
            return named.removeprefix(source)
    return None
