"""How results of look-ups are displayed: printed, in a notebook, and as DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pandas as pd
import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.display.tables import Column, Table
from scripts.helpers.errors import ConfigurationError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.history import History
from scripts.helpers.watermarks import Watermarks
from tests.report.world import JOBS, SECRET, World
from tests.support.clock import Clock
from tests.support.steps import commit

RUN = "jr_" + "0" * 61 + "5a"


@pytest.fixture
def history(watermarks: Watermarks, clock: Clock) -> History:
    """Return the history of three versions: two commits and a reset by an operator."""
    run = watermarks.begin("repairs", RUN)
    run.freeze({}, {"mark": SECRET})
    clock.move(seconds=75)
    run.commit(rows_collected=1_234, bytes_read=56_789, version="of the caller")
    commit(watermarks, "repairs", "jr_2", {"mark": {}}, files_read=3)
    watermarks.reset("repairs", why="<b>new</b>", who="night")
    return watermarks.history("repairs")


def delta_of(folder: Path, count: int) -> FileDelta:
    for number in range(count):
        (folder / f"{number:02d}<i>.csv").write_text("id\n1\n")
    return FileBookmark(str(folder)).new_files()


# --- printed ------------------------------------------------------------------------------------


def test_history_is_a_table_without_values_when_it_is_printed(history: History) -> None:
    assert repr(history).splitlines() == [
        "repairs:",
        "version  op      at (UTC)             run                     took   rows  files    bytes  who    why",
        "      3  RESET   2026-03-16 15:46:15                                                       night  <b>new</b>",
        "      2  COMMIT  2026-03-16 15:46:15  jr_2                     0 s             3",
        "      1  COMMIT  2026-03-16 15:46:15  jr_000000000000…  1 min 15 s  1,234         56.8 KB",
    ]


def test_other_cells_are_shown_when_one_cannot_be_read() -> None:
    class Jobs(Table[dict[str, Any]]):
        columns = (Column("job", lambda row: row["job"]), Column("rows", lambda row: row["rows"], "count"))

    assert repr(Jobs([{"job": "sales", "rows": 3}, {"job": "repairs"}])).splitlines() == [
        "Jobs:",
        "job         rows",
        "sales          3",
        "repairs  damaged",
    ]


def test_history_shows_the_attempt_when_a_retry_made_the_version(watermarks: Watermarks) -> None:
    watermarks.begin("repairs", "jr_1")

    commit(watermarks, "repairs", "jr_1", {"mark": {}})

    assert repr(watermarks.history("repairs")).splitlines()[1:] == [
        "version  op      at (UTC)             run   attempt  took",
        "      1  COMMIT  2026-03-16 15:45:00  jr_1        2   0 s",
    ]


def test_history_behaves_like_a_list_when_it_is_used_as_one(history: History) -> None:
    assert isinstance(history, list)
    assert history == list(history)
    assert [entry.version for entry in history[:2]] == [3, 2]
    assert isinstance(history[:2], History) and history[1:].caption == "repairs"
    assert history[0].change.op == "RESET"


def test_history_says_that_it_is_empty_when_nothing_was_committed(watermarks: Watermarks) -> None:
    watermarks.begin("repairs", "jr_1")

    found = watermarks.history("repairs")

    assert repr(found) == "repairs: empty"
    assert found._repr_html_() == "<p>repairs: empty</p>"


class Numbers(Table[int]):
    columns = (Column("number", lambda row: row, "count"), Column("nothing", lambda row: None))


def test_long_table_shows_its_beginning_and_says_so_when_it_is_printed() -> None:
    lines = repr(Numbers(range(1_500))).splitlines()

    assert lines[:3] == ["Numbers:", "number", "     0"]
    assert lines[-2:] == ["    19", "… and 1,480 more"]
    assert Numbers(range(1_500))._repr_html_().count("<tr>") == 101


def test_gaps_look_like_a_plain_list_when_they_are_printed(world: World) -> None:
    gaps = world.watermarks.gaps("with-gap", "repairs")

    low, high = (datetime(2026, 3, day, 21, 45, tzinfo=timezone.utc) for day in (8, 17))
    assert repr(gaps) == repr([(low, high)])


def test_objects_are_one_short_line_without_values_when_they_are_printed(watermarks: Watermarks, clock: Clock) -> None:
    commit(watermarks, "repairs", "jr_1", {"mark": {"value": SECRET}})
    job = IncrementalJob(watermarks, "repairs", "jr_2")
    backfill = Backfill(watermarks, "repairs", "jr_3", transformation_ctx="mark", low=SECRET, high=None)
    before = repr(job)
    with job:
        job.run.freeze({"mark": {"high": SECRET}}, {"mark": {"value": SECRET}})
        head = watermarks.latest("repairs")
        shown = {
            "watermarks": repr(watermarks), "head": repr(head), "plan": repr(head.plan), "job": repr(job),
            "not begun": before, "backfill": repr(backfill), "run": repr(job.run),
        }  # fmt: skip

    assert shown == {
        "watermarks": f"Watermarks({watermarks.table_name!r})",
        "head": "<Head of 'repairs': version 1, COMMIT 2026-03-16 15:45:00Z run=jr_1, "
        f"held by run jr_2 until 2026-03-16 16:00:00Z, plan {head.plan.plan_id} open>",  # type: ignore[union-attr]
        "plan": f"<Plan {head.plan.plan_id}: contexts mark>",  # type: ignore[union-attr]
        "job": "<IncrementalJob 'repairs', run jr_2: 0 sources planned, "
        "<Run 'jr_2' of 'repairs': planned, version 1, attempt 1>>",
        "not begun": "<IncrementalJob 'repairs', run jr_2: not begun>",
        "backfill": "<Backfill of 'repairs', context 'mark': not begun, run jr_3>",
        "run": "<Run 'jr_2' of 'repairs': planned, version 1, attempt 1>",
    }


# --- in a notebook ------------------------------------------------------------------------------


def test_history_is_an_escaped_table_when_a_notebook_shows_it(history: History) -> None:
    html = history._repr_html_()

    assert "<caption>repairs</caption>" in html
    assert '<th scope="col" style="text-align:left">at (UTC)</th>' in html
    assert "&lt;b&gt;new&lt;/b&gt;" in html
    assert "<b>" not in html and str(SECRET) not in html


def test_delta_is_count_size_and_first_keys_when_a_notebook_shows_it(tmp_path: Path) -> None:
    html = delta_of(tmp_path, 25)._repr_html_()

    assert f"{tmp_path}/: 25 files, 125 bytes, of which the first 20 are</caption>" in html
    assert html.count("<tr>") == 21
    assert "00&lt;i&gt;.csv" in html and "<i>" not in html


def test_empty_delta_says_so_when_a_notebook_shows_it(tmp_path: Path) -> None:
    assert delta_of(tmp_path, 0)._repr_html_() == f"<p>file://{tmp_path}/: 0 files, 0 bytes: empty</p>"


def test_gaps_name_open_ends_when_a_notebook_shows_them(world: World) -> None:
    assert "2026-03-08 21:45:00" in world.watermarks.gaps("with-gap", "repairs")._repr_html_()
    assert "the very beginning" in world.watermarks.coverage("with-gap", "repairs")._repr_html_()


# --- as DataFrames ------------------------------------------------------------------------------


def test_history_keeps_all_in_utc_when_it_becomes_a_dataframe(history: History) -> None:
    found = history.to_pandas()

    assert (str(found["at"].dt.tz), str(found["started"].dt.tz)) == ("UTC", "UTC")
    assert list(found["version"]) == [3, 2, 1]
    assert found["run"][2] == RUN
    assert found["started"][2] == pd.Timestamp("2026-03-16 15:45:00", tz="UTC")
    assert found["duration"][2] == pd.Timedelta(seconds=75)
    assert (found["rows_collected"][2], found["metric.version"][2]) == (1_234, "of the caller")
    assert pd.isna(found["started"][0]) and str(SECRET) not in found.to_csv()


def test_types_are_the_same_when_the_dataframe_is_empty(watermarks: Watermarks) -> None:
    watermarks.begin("repairs", "jr_1")

    found = watermarks.history("repairs").to_pandas()

    assert len(found) == 0
    assert (str(found["at"].dt.tz), found["duration"].dtype.kind) == ("UTC", "m")


def test_delta_has_every_file_in_utc_when_it_becomes_a_dataframe(tmp_path: Path) -> None:
    found = delta_of(tmp_path, 25).to_pandas()

    assert len(found) == 25
    assert str(found["modified"].dt.tz) == "UTC"
    assert found["size"].sum() == 125


def test_gaps_keep_their_values_when_they_become_a_dataframe(world: World) -> None:
    found = world.watermarks.gaps("with-gap", "repairs").to_pandas()

    assert list(found.columns) == ["low", "high"]
    assert found["high"][0] - found["low"][0] == timedelta(days=9)


@pytest.mark.parametrize(
    "make", [lambda folder: History([]), lambda folder: delta_of(folder, 1)], ids=["history", "delta"]
)
def test_remedy_is_named_when_pandas_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    monkeypatch.setattr("scripts.helpers.display.tables.find_spec", lambda name: None)
    shown = make(tmp_path)

    with pytest.raises(ConfigurationError, match=r"to_pandas needs pandas. Install it: pip install"):
        shown.to_pandas()


# --- without requests to AWS --------------------------------------------------------------------


@pytest.fixture
def silent(dynamodb: Any) -> tuple[Any, list[str]]:
    """Return a client, and the list of the operations that it sends."""
    sent: list[str] = []
    client = boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url)
    client.meta.events.register("before-call.dynamodb", lambda model, **_: sent.append(model.name))
    return client, sent


def explore(thing: Any) -> None:
    """Do what consoles and debuggers do: list names, get every attribute, and call every display method."""
    for name in dir(thing):
        getattr(thing, name, None)
    for show in ("_repr_html_", "_repr_pretty_", "_ipython_display_", "_repr_mimebundle_"):
        found = getattr(thing, show, None)
        if found is not None:
            found()
    repr(thing)


def test_nothing_is_asked_of_aws_when_results_are_explored(
    world: World, silent: tuple[Any, list[str]], tmp_path: Path
) -> None:
    client, sent = silent
    live = Watermarks(world.watermarks.table_name, client, job_id_rule=".+")
    head, history, gaps = live.latest("with-gap"), live.history("with-gap"), live.gaps("with-gap", "repairs")
    sent.clear()

    for thing in (live, head, head.last, history, history[0], gaps, delta_of(tmp_path, 1), live.latest):
        explore(thing)

    assert sent == []


def test_nothing_is_asked_of_aws_when_ipython_completes(
    make_watermarks: Callable[..., Watermarks], silent: tuple[Any, list[str]], tmp_path: Path
) -> None:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    client, sent = silent
    table = make_watermarks().table_name
    live = Watermarks(table, client)
    job = IncrementalJob(live, "repairs", "jr_1")
    with job:
        job.new_files(str(tmp_path))
        shell = InteractiveShell.instance()
        shell.user_ns |= {"live": live, "job": job, "run": job.run}
        sent.clear()

        found = {}
        for text in ("live.", "live.lat", "job.", "job.run.", "run.plan.", "live.history('x')."):
            for jedi in (True, False):
                shell.Completer.use_jedi = jedi
                with provisionalcompleter():
                    found[text] = [one.text for one in shell.Completer.completions(text, len(text))]
        asked = list(sent)

    assert asked == []
    assert any("history" in text for text in found["live."])
    assert any("freeze" in text for text in found["job."])


# --- jobs ---------------------------------------------------------------------------------------


def test_jobs_are_a_table_without_values_when_they_are_listed(world: World) -> None:
    jobs = world.watermarks.list_jobs()

    printed, html, found = repr(jobs), jobs._repr_html_(), jobs.to_pandas()
    assert printed.splitlines()[1].split("  ")[0] == "job"
    assert "&lt;script&gt;alert(1)" in html and "<script>" not in html
    assert (len(found), str(found["last version"].dt.tz), found["lag"].dtype.kind) == (JOBS, "UTC", "m")
    assert str(SECRET) not in printed + html + found.to_csv()
