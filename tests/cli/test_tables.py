"""What the commands and the page show about a context that reads a table by its versions."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from scripts.helpers.tables import TableSpan
from scripts.helpers.watermarks import Watermarks
from scripts.report.page import render_job
from scripts.report.reading import look_up, read_facts
from tests.cli.stories import NOW, Command, document
from tests.support.steps import commit

AT = datetime(2026, 3, 15, 9, tzinfo=timezone.utc)
SALES = TableSpan("delta", 3, 7, source={"folder": "s3://lake/sales", "uuid": "u-1"}, at=AT)
STOCK = TableSpan("iceberg", None, 41, whole=True, source={"table": "lake.raw.stock", "uuid": "u-2"}, at=AT)
BAYS = TableSpan("iceberg", None, None, whole=True, source={"table": "lake.raw.bays", "uuid": "u-3"})
SPANS = {"sales": SALES, "stock": STOCK, "bays": BAYS}
WHY = ["--why", "the target was loaded by hand", "--who", "sam", "--yes"]


@pytest.fixture
def job(watermarks: Watermarks) -> Watermarks:
    """Return a table with a job that reads three tables."""
    commit(watermarks, "shop", "jr_1", {name: span.state_after for name, span in SPANS.items()})
    return watermarks


def test_versions_are_shown_as_their_format_calls_them_when_a_job_reads_tables(run: Command, job: Watermarks) -> None:
    shown, planned = run(job, "show", "shop").stdout, run(job, "plan", "shop").stdout
    known = {part["context"]: part for part in document(run(job, "plan", "shop", "--output", "json"))["contexts"]}

    assert "version 7, made " in shown
    assert "snapshot 41, made " in shown
    assert "no snapshot yet" in shown
    assert "what was committed after version 7" in planned
    assert known["stock"] == {"context": "stock", "kind": "table", "format": "iceberg", "after": 41}


def test_open_plan_of_tables_is_told_in_words_and_as_facts_when_asked_for(run: Command, watermarks: Watermarks) -> None:
    watermarks.begin("shop", "jr_1").freeze({name: span.to_plan() for name, span in SPANS.items()}, {})

    words, facts = run(watermarks, "plan", "shop").stdout, document(run(watermarks, "plan", "shop", "--output", "json"))

    assert "appended rows after version 3 up to version 7" in words
    assert "all rows at snapshot 41" in words
    assert facts["contexts"][1] == {
        "context": "sales", "kind": "table", "format": "delta", "after": 3, "until": 7, "whole": False,
        "changes": "append",
    }  # fmt: skip


def test_version_is_declared_by_hand_when_it_is_set(run: Command, job: Watermarks) -> None:
    done = run(job, "set", "shop", "value=9", "--context", "sales", *WHY)
    moved = run(job, "set", "shop", "source:null=", "--context", "sales", *WHY)
    begun = run(job, "set", "shop", "value:int=5", "--context", "bays", *WHY)

    assert [result.exit_code for result in (done, moved, begun)] == [0, 0, 0], done.output
    states = job.get_watermark_values("shop")
    assert (states["sales"]["value"], states["sales"]["source"], states["bays"]["value"]) == (9, None, 5)
    assert run(job, "rewind", "shop", "--to-version", "1", *WHY).exit_code == 0
    assert job.get_watermark_values("shop")["sales"]["value"] == 7


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "shop", "--rename-cursor", "id", "no", *WHY],
        ["complete-up-to", "shop", "--context", "sales"],
        ["backfill", "shop", "--context", "sales"],
    ],
)
def test_command_of_cursors_is_refused_when_a_job_reads_tables_only(
    run: Command, job: Watermarks, arguments: list[str]
) -> None:
    found = run(job, *arguments)

    assert found.exit_code != 0
    assert "of rows" in found.output


def test_page_and_doctor_take_the_job_as_it_is_when_it_reads_tables(run: Command, job: Watermarks) -> None:
    page = render_job(read_facts(job, look_up(job, "shop"), NOW), 20, values=True)

    assert "<td>table</td><td>version</td>" in page
    assert "<td>table</td><td>snapshot</td>" in page
    assert run(job, "doctor", "shop").exit_code == 0
