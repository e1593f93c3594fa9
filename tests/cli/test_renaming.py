"""`watermarks set --rename-cursor`: the job continues, and keeps its watermark, gaps and coverage."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import SourceError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.schemas.kept import shown_schemas, with_schema
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import BAD_DATA, FAILED
from tests.cli.stories import Command, commit_rows, rows_state
from tests.support.listed_rows import ListedRows
from tests.support.reasons import because
from tests.support.steps import commit

JOB = "repairs"
WHY = ["--why", "the column has another name", "--who", "sam", "--yes"]


def source_of(name: str, *ids: int) -> ListedRows:
    return ListedRows((CursorColumn(name, "bigint"),), [(number,) for number in ids])


def read(watermarks: Watermarks, source: ListedRows, name: str) -> list[Any]:
    with IncrementalJob(watermarks, JOB, clock=watermarks.clock) as job:
        rows: list[Any] = job.rows_since(source, name, transformation_ctx="repairs")
    return [number for (number,) in rows]


def test_next_run_goes_on_and_gaps_stay_when_the_column_is_renamed(run: Command, watermarks: Watermarks) -> None:
    read(watermarks, source_of("id", 1, 2), "id")
    watermarks.set_watermark(JOB, {"value": 9}, transformation_ctx="repairs", why="loaded by hand")
    before = watermarks.gaps(JOB, "repairs"), watermarks.coverage(JOB, "repairs")
    renamed = source_of("repair_id", 1, 2, 5, 9, 10)
    with pytest.raises(SourceError, check=because("changed"), match="run: watermarks set JOB --rename-cursor OLD NEW"):
        read(watermarks, renamed, "repair_id")

    done = run(watermarks, "set", JOB, "--rename-cursor", "id", "repair_id", *WHY)

    assert done.exit_code == 0, done.output
    assert (watermarks.gaps(JOB, "repairs"), watermarks.coverage(JOB, "repairs")) == before == ([(3, 9)], [(None, 3)])
    assert read(watermarks, renamed, "repair_id") == [9, 10]
    assert watermarks.gaps(JOB, "repairs") == [(3, 9)]


def test_schema_has_the_new_name_of_the_column_when_the_cursor_is_renamed(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, JOB, "jr_1", {"rows": with_schema(rows_state(1, "bigint"), "spark", {"last_modified": "long"})})

    run(watermarks, "set", JOB, "--rename-cursor", "last_modified", "changed", *WHY)

    state = watermarks.get_watermark_values(JOB)["rows"]
    assert (state["cursor_column"], shown_schemas(state)) == ("changed", {"spark": {"changed": "bigint"}})


def test_one_of_several_columns_is_renamed_when_the_cursor_is_compound(run: Command, watermarks: Watermarks) -> None:
    state = {"kind": "rows", "cursor_column": ["at", "id"], "type": ["bigint", "bigint"], "value": [5, 7]}
    commit(watermarks, JOB, "jr_1", {"repairs": state})

    assert run(watermarks, "set", JOB, "--rename-cursor", "id", "no", *WHY).exit_code == 0

    kept = watermarks.get_watermark_values(JOB)["repairs"]
    assert (kept["cursor_column"], kept["value"]) == (["at", "no"], [5, 7])
    assert watermarks.gaps(JOB, "repairs") == []


@pytest.mark.parametrize(
    ("names", "code", "text"),
    [
        (["id", "new"], BAD_DATA, "has the cursor columns last_modified. OLD must be one of them, and NEW must not."),
        (["last_modified", "last_modified"], BAD_DATA, "NEW must not"),
        (["last_modified", ""], BAD_DATA, "NEW must not"),
        (["last_modified", "new", "--context", "b"], BAD_DATA, "has no context 'b' of rows"),
    ],
)
def test_nothing_changes_when_the_names_do_not_fit(
    run: Command, watermarks: Watermarks, names: list[str], code: int, text: str
) -> None:
    commit(watermarks, JOB, "jr_1", {"repairs": rows_state(5, "bigint")})

    done = run(watermarks, "set", JOB, "--rename-cursor", *names, *WHY)

    assert (done.exit_code, text in done.stderr) == (code, True)
    assert watermarks.latest(JOB).version == 1


def test_command_says_so_when_there_is_no_such_job(run: Command, watermarks: Watermarks, clock: Any) -> None:
    commit_rows(watermarks, JOB, "jr_1", clock.now, 1)

    assert run(watermarks, "set", "repair", "--rename-cursor", "last_modified", "new", *WHY).exit_code == FAILED
