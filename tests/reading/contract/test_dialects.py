"""The table of dialects: the page shows it, and plans and targets of earlier versions keep their old dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import LedgerError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.reading.dialects import TABLE, with_dialect
from scripts.helpers.sinks.file_schema import COLUMNS, FileSchema
from scripts.helpers.watermarks import Watermarks
from tests.support.places import REPOSITORY


def page() -> str:
    """Return the table of `docs/files.md`."""
    formats: dict[tuple[str, ...], list[str]] = {}
    for option in TABLE:
        default = f"`{option.default}`" if not option.default[0].isalnum() else option.default
        here = "; ".join(filter(None, (option.glue_default, option.here)))
        glue_default = f"`{here}`" if here and len(here) == 1 else here.replace('"', '`"`')
        glue = ": ".join(filter(None, (option.glue and f"`{option.glue}`", glue_default)))
        formats.setdefault((option.name, default, option.meaning, glue), []).append(option.format)
    lines = ["| option | default | meaning | in Glue's names |", "|---|---|---|---|"]
    for (name, *cells), named in formats.items():
        lines.append("| " + " | ".join((f"`{name}` ({', '.join(named)})", *cells)) + " |")
    return "\n".join(lines) + "\n"


def test_page_is_that_of_the_table_when_it_is_built() -> None:
    text = (REPOSITORY / "docs" / "files.md").read_text()

    assert f"<!-- dialects -->\n{page()}<!-- end of dialects -->" in text


@pytest.mark.parametrize(
    ("format", "options", "escape"),
    [
        ("csv", {}, '"'),
        ("csv", {"QUOTE": "'"}, "'"),
        ("csv", {"quote": ""}, None),
        ("csv", {"Escape": "x"}, None),
        ("json", {}, None),
    ],
)
def test_quotes_are_doubled_when_nothing_else_is_asked_for(
    format: str, options: dict[str, Any], escape: str | None
) -> None:
    assert with_dialect(format, options).get("escape") == escape


@pytest.mark.parametrize("dialect", [None, 2])
def test_plan_is_refused_when_it_does_not_say_how_its_files_are_read(tmp_path: Path, dialect: int | None) -> None:
    (tmp_path / "1.csv").write_text("id,say\na,x\n")
    bookmark = FileBookmark(str(tmp_path))
    plan = bookmark.find().plan.to_store()
    plan = {name: value for name, value in plan.items() if name != "dialect"} | (
        {"dialect": dialect} if dialect else {}
    )

    with pytest.raises(LedgerError, match="dialect"):
        bookmark.resume(plan)


@pytest.mark.parametrize(
    ("options", "line"), [({}, '"he said \\"hi\\", ok"'), ({"escape": '"'}, '"he said ""hi"", ok"')]
)
def test_quotes_are_written_as_before_when_the_target_has_files(
    options: dict[str, str], line: str, watermarks: Watermarks, tmp_path: Path, spark: Any
) -> None:
    landing, target = tmp_path / "landing", tmp_path / "raw"
    landing.mkdir()

    def load(name: str) -> set[Path]:
        (landing / name).write_text('say\n"he said ""hi"", ok"\n')
        before = set(target.glob("*.csv"))
        with IncrementalJob(watermarks, "parking", spark=spark) as job:
            rows = job.new_files(str(landing)).read(spark, "csv", header=True)
            job.write(rows, str(target), format="csv")
        return set(target.glob("*.csv")) - before

    first = load("1.csv")
    there = FileSchema.read((target / COLUMNS).read_bytes())
    assert there is not None
    (target / COLUMNS).write_bytes(FileSchema(there.columns, {}, options, "csv", there.attempt).to_bytes())

    second = load("2.csv")

    assert [file.read_text().strip() for file in first] == ['"he said ""hi"", ok"']
    assert [file.read_text().strip() for file in second] == [line]
