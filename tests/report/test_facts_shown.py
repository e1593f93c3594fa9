"""Every number of the page: a job with all possible facts is rendered, and the visible text of its HTML is checked."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.files.states import FilesState, PartitionState
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.metrics.freshness import Threshold
from scripts.helpers.protocol.head import Change, Claim, Head, LogEntry, Plan
from scripts.report import charts
from scripts.report.facts import JobFacts
from scripts.report.page import make_entry, render, render_job
from scripts.report.periods import in_periods
from tests.report.shown import Details, Overview, parsed, text_of
from tests.support.known_jobs import NOW as KNOWN_AT
from tests.support.known_jobs import known_jobs
from tests.support.outputs import output_of

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def rows(value: Any, column: Any = "at", kind: Any = "timestamp") -> dict[str, Any]:
    return {"kind": "rows", "cursor_column": column, "type": kind, "value": value}


def entry(version: int, ago: timedelta, read_to: datetime, **given: Any) -> LogEntry:
    """Return a version that was committed `ago` before now, by a run of 40 seconds."""
    at = NOW - ago
    change = Change(
        "COMMIT", f"c{version}", at, run_id=f"jr_{version}", started_at=at - timedelta(seconds=40), fence=1, **given
    )  # fmt: skip
    return LogEntry("repairs", version, {"tickets": rows(read_to)}, change)


ENTRIES_OF_JOB = [
    entry(1_003, 1 * HOUR, NOW - 2 * HOUR, metrics={"rows_collected": 1_200, "files_read": 3, "bytes_read": 1_500}),
    entry(
        1_002, 2 * HOUR, NOW - 4 * HOUR, failed=2, attempt=3, metrics={"rows_written": 300, "bytes_written": 2_000_000}
    ),
    entry(1_001, 4 * HOUR, NOW - 5 * HOUR, metrics={"rows_collected": 0}),
]
STATES = {
    "tickets": rows(NOW - 2 * HOUR),
    "letters": rows([NOW - 3 * HOUR, 7], ["sent", "id"], ["timestamp", "bigint"]),
    "ids": rows(12, "id", "bigint"),
    "scans": {"kind": "files"},
    "own": 5,
}
GAPS: dict[str, Any] = {
    "tickets": [(NOW - 30 * HOUR, NOW - 27 * HOUR), (NOW - 20 * HOUR, None)],
    "ids": [(10, 1_212), (Decimal("1.5"), Decimal("4")), (None, 3)],
    "letters": None,
}
RUN = RunRecord(
    "repairs", "jr_lost", "FAILED", NOW - 3 * HOUR, NOW, {},
    running_since=NOW - 2.25 * HOUR, completed_on=NOW - 2 * HOUR, error="no disk",
)  # fmt: skip
FACTS = JobFacts(
    "repairs",
    NOW,
    Head("repairs", "e1", 1_003, 1, STATES, ENTRIES_OF_JOB[0].change),
    "",
    ENTRIES_OF_JOB,
    False,
    GAPS,
    [RUN],
)
CLAIM = Claim("jr_9", "t", 2, NOW + HOUR, NOW - 2 * HOUR)
PLAN = Plan("p1", {"tickets": {}, "letters": {}}, {}, NOW - timedelta(minutes=90))


def job(name: str, **given: Any) -> JobFacts:
    """Return a job with one version and no gaps; `given` sets fields of its head."""
    last = ENTRIES_OF_JOB[0].change
    fence = 1 + (given["claim"].attempt if "claim" in given else 0)
    head = Head(name, "e1", 1, fence, {"scans": {"kind": "files"}}, given.pop("last", last), **given)
    return JobFacts(name, NOW, head)


ALL = [
    job("fine"),
    FACTS,
    job("at-work", claim=CLAIM, plan=PLAN),
    job("left-open", claim=replace(CLAIM, lease_until=NOW), plan=PLAN),
    job("lease-over", claim=replace(CLAIM, lease_until=NOW)),
    job("never", last=None),
    JobFacts("odd", NOW, None, "cannot be read"),
]
ENTRIES = [make_entry(facts, 20) for facts in ALL]


@pytest.fixture(scope="module")
def details() -> Details:
    return Details(render_job(FACTS, 2, values=True))


@pytest.fixture(scope="module")
def overview() -> Overview:
    return Overview(render(ENTRIES, "council", NOW))


# --- one job ------------------------------------------------------------------------------------


def test_facts_of_a_job_are_those_of_its_head_when_shown(details: Details) -> None:
    assert details.facts == {
        "Lag": "3 h",
        "Age": "1 h",
        "Version": "1,003",
        "Last version": "2026-03-16 14:45:00 COMMIT",
        "Run in force": "jr_1003",
    }


def test_plan_and_owner_are_shown_when_a_run_is_at_work() -> None:
    shown = Details(render_job(job("at-work", claim=CLAIM, plan=PLAN), 2))

    assert shown.facts == {
        "Age": "1 h",
        "Version": "1",
        "Last version": "2026-03-16 14:45:00 COMMIT",
        "Run in force": "jr_1003",
        "Owner": "jr_9",
        "Open plan": "p1, 1 h 30 min, of letters, tickets",
    }


def test_sources_have_cursor_lag_gaps_and_watermark_when_shown(details: Details) -> None:
    sources = details.tables["The sources of the job"]

    assert [row["Context"] for row in sources] == ["ids", "letters", "scans", "tickets"]
    assert [row["Kind"] for row in sources] == ["rows", "rows", "files", "rows"]
    assert [row["Cursor"] for row in sources if row["Kind"] == "rows"] == ["id", "sent, id", "at"]
    assert [row["Lag"] for row in sources] == ["", "3 h", "", "2 h"]
    assert [row["Gaps"] for row in sources] == ["3", "unreadable", "", "2"]
    assert [row["Watermark"] for row in sources] == [
        "12",
        "2026-03-16 12:45:00+00:00, 7",
        "",
        "2026-03-16 13:45:00+00:00",
    ]


def test_sources_have_no_gap_when_none_were_read_for_them() -> None:
    (source,) = Details(render_job(replace(job("fine"), gaps={}), 2)).tables["The sources of the job"]
    facts = replace(FACTS, gaps={"tickets": []})

    counts = {row["Context"]: row["Gaps"] for row in Details(render_job(facts, 2)).tables["The sources of the job"]}

    assert source == {"Context": "scans", "Kind": "files"}
    assert counts == {"ids": "0", "letters": "0", "scans": "", "tickets": "0"}


def test_gap_has_a_length_only_when_it_has_two_ends(details: Details) -> None:
    gaps = details.tables["Ranges that were never read"]

    assert [(row["Context"], row["Gap"], row["Length"]) for row in gaps] == [
        ("ids", "1", "1,202"),
        ("ids", "2", "2.5"),
        ("ids", "3", "without end"),
        ("tickets", "1", "3 h"),
        ("tickets", "2", "without end"),
    ]
    assert [(row["From"], row["To, not included"]) for row in gaps[2:]] == [
        ("the very beginning", "3"),
        ("2026-03-15 09:45:00+00:00", "2026-03-15 12:45:00+00:00"),
        ("2026-03-15 19:45:00+00:00", "the very end"),
    ]


@pytest.mark.parametrize(
    ("gap", "length"),
    [
        ((date(2026, 3, 1), date(2026, 3, 4)), "3 d"),
        (((NOW - 2 * HOUR, 7), (NOW, 1)), "2 h"),
        (((10, "a"), (12,)), "2"),
        (("a", "b"), ""),
        ((5, 5), "0"),
    ],
    ids=["dates", "compound-times", "compound-numbers", "texts", "empty"],
)
def test_gap_length_is_taken_from_the_first_column_when_its_values_can_be_subtracted(gap: Any, length: str) -> None:
    (row,) = Details(render_job(replace(FACTS, gaps={"tickets": [gap]}), 2)).tables["Ranges that were never read"]

    assert row["Length"] == length


def test_no_value_is_shown_when_values_are_not_asked_for() -> None:
    shown = Details(render_job(FACTS, 2))

    assert "Watermark" not in shown.tables["The sources of the job"][0]
    assert set(shown.tables["Ranges that were never read"][0]) == {"Context", "Gap", "Length"}


def test_versions_show_their_counts_when_listed(details: Details) -> None:
    newest, older = details.tables["Versions of the job, newest first"]

    assert newest == {
        "Version": "1,003",
        "Made by": "COMMIT",
        "At": "2026-03-16 14:45:00",
        "Took": "40 s",
        "Rows": "1,200",
        "Files": "3",
        "Size": "1.5 KB",
        "Run": "jr_1003",
    }
    assert [older[name] for name in ("Version", "Rows", "Files", "Size")] == ["1,002", "300", "", "2.0 MB"]
    assert details.notes[-1] == "The newest 2 versions of 1,003. The charts are made of 3."


def test_count_is_shown_as_zero_when_a_version_counted_zero() -> None:
    oldest = Details(render_job(FACTS, 3)).tables["Versions of the job, newest first"][-1]

    assert [oldest[name] for name in ("Version", "Rows", "Files", "Size")] == ["1,001", "0", "", ""]


def test_failures_and_runs_without_success_are_named_when_there_are_some(details: Details) -> None:
    assert details.tables["Versions before which runs failed, newest first"] == [
        {
            "Before version": "1,002",
            "Failed runs": "2",
            "Made good": "2026-03-16 13:45:00 COMMIT",
            "By run": "jr_1002",
            "Its attempt": "3",
        }
    ]
    assert details.tables["Job runs that ended without success, newest first"] == [
        {
            "Run": "jr_lost",
            "State": "FAILED",
            "Attempt": "0",
            "Started": "2026-03-16 12:45:00",
            "Took": "15 min",
            "Error": "no disk",
        }
    ]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (job("fine"), "Idle Nothing is open."),
        (
            job("at-work", claim=CLAIM, plan=PLAN),
            (
                "At work Run jr_9 has worked on it since 2026-03-16 13:45:00, attempt 2. Its lease lasts until "
                "2026-03-16 16:45:00; its plan is open. 1 run failed since the last commit."
            ),
        ),
        (
            job("left-open", claim=replace(CLAIM, lease_until=NOW), plan=PLAN),
            (
                "Open plan A plan is open and no run works on it: run jr_9 is gone, its lease ended "
                "2026-03-16 15:45:00. Run the job again: it replays exactly this plan. "
                "To drop it instead, discard the plan. 2 runs failed since the last commit."
            ),
        ),
        (
            job("lease-over", claim=replace(CLAIM, lease_until=NOW)),
            (
                "Lease over Run jr_9 is gone and had planned nothing; its lease ended 2026-03-16 15:45:00. "
                "Nothing is lost. Run the job again. 2 runs failed since the last commit."
            ),
        ),
        (
            job("failing", last=replace(ENTRIES_OF_JOB[0].change, fence=0), failure="TargetError: it is full."),
            "Failing Nothing is open. 1 run failed since the last commit. The last error: TargetError: it is full.",
        ),
        (
            job("unpublished", unpublished=(output_of(job_id="unpublished"),)),
            "Unpublished 1 version committed and not at the target yet; the next run publishes.",
        ),
        (job("never", last=None), "Failing Nothing was committed yet."),
        (JobFacts("odd", NOW, None, "cannot be read"), "Problem cannot be read"),
    ],
    ids=["idle", "running", "waiting", "abandoned", "failing", "unpublished", "new", "unreadable"],
)
def test_page_describes_the_state_of_a_job_when_it_is_shown(facts: JobFacts, said: str) -> None:
    assert Details(render_job(facts, 2)).said.startswith(said)


def test_only_rows_and_files_contexts_are_sources_when_other_maps_are_stored() -> None:
    stored = {"ids": {"kind": "ids", "next_id": 4}, "own": {"seen": 1}, "plain": 5}
    values = ("year", "day"), ("int", "string"), (2026, "24")
    snapshot = PartitionState("s3://lake/days/", *values, files=1, sha256="0" * 64).to_store()
    sources = {"scans": FilesState("s3://lake/scans/").to_store(), "snapshot": snapshot}
    head = replace(job("fine").head or Head.first("fine"), watermarks={**stored, **sources})

    scans, latest = JobFacts("fine", NOW, head).contexts

    assert (scans.name, scans.columns, scans.value) == ("scans", "", "")
    assert (latest.name, latest.columns, latest.value) == ("snapshot", "year, day", "2026, 24")


# --- over time ----------------------------------------------------------------------------------


def test_charts_show_totals_and_ends_when_drawn(details: Details) -> None:
    ends = ("2026-03-16 11:45:00", "2026-03-16 15:45:00")

    assert details.charts == {
        "Lag": ("Highest 3 h, in the last period 2 h", "3 h", *ends),
        "Rows": ("1,500 in all, most in one period 1,200", "1,200", *ends),
        "Files": ("3 in all, most in one period 3", "3", *ends),
        "Versions and failed runs": ("3 versions, 2 runs failed; nothing in 46 of 49 periods", "3", *ends),
    }
    assert details.titles == {name: name for name in details.charts}


def test_times_without_a_version_are_named_for_a_screen_reader_when_drawn(details: Details) -> None:
    empty = (
        "No version from 2026-03-16 11:50:00 to 2026-03-16 13:45:00, from 2026-03-16 13:50:00 to 2026-03-16 14:45:00, "
        "from 2026-03-16 14:50:00 to 2026-03-16 15:50:00."
    )

    assert details.descriptions == {
        "Lag": "Highest 3 h, in the last period 2 h.",
        "Rows": f"1,500 in all, most in one period 1,200. {empty}",
        "Files": f"3 in all, most in one period 3. {empty}",
        "Versions and failed runs": f"3 versions, 2 runs failed; nothing in 46 of 49 periods. {empty}",
    }


def test_longest_times_without_a_version_are_named_when_there_are_many() -> None:
    hours = (1, 3, 6, 10, 15, 21)
    made = [entry(7 - place, hour * HOUR, NOW - 30 * HOUR) for place, hour in enumerate(hours)]

    shown = Details(render_job(replace(FACTS, entries=made), 2), "24h").descriptions["Versions and failed runs"]

    assert shown.endswith(
        "No version from 2026-03-15 19:00:00 to 2026-03-16 00:00:00, from 2026-03-16 01:00:00 to 2026-03-16 05:00:00, "
        "from 2026-03-16 06:00:00 to 2026-03-16 09:00:00, in 3 shorter times."
    )


def test_empty_columns_are_left_out_when_failures_are_listed() -> None:
    made = replace(ENTRIES_OF_JOB[1], change=replace(ENTRIES_OF_JOB[1].change, run_id=None))
    lost = replace(RUN, running_since=None, completed_on=None, error="")

    tables = Details(render_job(replace(FACTS, entries=[made], unsuccessful=[lost]), 2)).tables

    (failure,) = tables["Versions before which runs failed, newest first"]
    (run,) = tables["Job runs that ended without success, newest first"]
    assert set(failure) == {"Before version", "Failed runs", "Made good", "Its attempt"}
    assert set(run) == {"Run", "State", "Attempt", "Started"}


def test_page_says_how_many_gaps_there_are_when_it_shows_the_first_ones() -> None:
    gaps = [(number, number + 1) for number in range(0, 240, 2)]

    shown = Details(render_job(replace(FACTS, gaps={"ids": gaps}), 2))

    assert len(shown.tables["Ranges that were never read"]) == 50
    assert "ids: the first 50 of 120." in shown.notes


# --- a time range -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_range", "begins", "length", "periods"),
    [
        ("24h", "2026-03-15 15:45:00", "1 h", 25),
        ("7d", "2026-03-09 15:45:00", "6 h", 29),
        ("30d", "2026-02-14 15:45:00", "1 d", 31),
        ("all", "2026-02-02 00:00:00", "1 d", 43),
    ],
)
def test_charts_and_figures_cover_the_time_range_when_it_is_chosen(
    time_range: str, begins: str, length: str, periods: int
) -> None:
    made = [
        entry(4 - place, hours * HOUR, NOW - hours * HOUR, failed=1, metrics={"rows_collected": 10})
        for place, hours in enumerate((12, 2 * 24, 20 * 24, 42 * 24))
    ]
    facts = replace(FACTS, entries=made)
    html = render_job(facts, 10)

    shown = Details(html, time_range)

    ranged = {"24h": 1, "7d": 2, "30d": 3, "all": 4}[time_range]
    figures = shown.tables["The figures of the charts, newest period first"]
    assert shown.charts["Rows"] == (
        f"{ranged * 10} in all, most in one period 10", "10", begins, "2026-03-16 15:45:00",
    )  # fmt: skip
    assert f"in periods of {length}<" in html
    assert (len(figures), figures[-1]["From"]) == (periods, begins)
    assert sum(int(row["Versions"]) for row in figures) == ranged
    assert sum(int(row["Failed runs"]) for row in figures) == ranged


def test_lag_continues_from_the_previous_version_when_a_time_range_begins() -> None:
    made = [entry(2, 2 * HOUR, NOW - 3 * HOUR), entry(1, 40 * HOUR, NOW - 41 * HOUR)]

    found = in_periods(replace(FACTS, entries=made), 32, timedelta(days=1))

    assert found is not None
    # The first period is 15:45 to 16:00. The lag grows until the version of 13:45 brings it down.
    assert found.periods[0].lag == timedelta(hours=17, minutes=15)
    assert max(period.lag for period in found.periods if period.lag) == timedelta(hours=39)
    assert found.periods[-1].lag == 3 * HOUR


def test_time_before_the_oldest_read_version_is_unknown_when_older_ones_were_not_read() -> None:
    shown = Details(render_job(FACTS, 2), "24h")

    figures = shown.tables["The figures of the charts, newest period first"]
    known = [row for row in figures if row["Versions"]]
    assert [row["From"][11:16] for row in known] == ["15:00", "14:00", "13:00", "12:00", "11:00"]
    assert {row["Failed runs"] for row in figures[5:]} == {""}
    assert shown.bars["Rows"][0] == ("nothing", 0.0, 0.0, 480.0, 100.0)
    assert shown.bars["Lag"] == [("nothing", 0.0, 0.0, 480.0, 100.0)]
    assert shown.descriptions["Lag"].endswith("Nothing is known until 2026-03-16 11:00:00.")
    assert "nothing in 2 of 25 periods" in shown.charts["Versions and failed runs"][0]


def test_time_before_the_first_version_is_empty_when_the_first_version_was_read() -> None:
    (made,) = (entry(1, 2 * HOUR, NOW - 3 * HOUR, metrics={"rows_collected": 7}),)

    shown = Details(render_job(replace(FACTS, entries=[made]), 2), "24h")

    assert [kind for kind, *_ in shown.bars["Rows"]] == ["empty", "empty", "bar"]
    figures = shown.tables["The figures of the charts, newest period first"]
    assert {row["Versions"] for row in figures} == {"0", "1"}


def test_chart_is_left_out_when_no_version_is_in_the_time_range() -> None:
    made = entry(1, 40 * HOUR, NOW - 41 * HOUR, metrics={"rows_collected": 7})

    shown = Details(render_job(replace(FACTS, entries=[made]), 2), "24h")

    assert list(shown.charts) == ["Lag", "Versions and failed runs"]
    assert shown.charts["Versions and failed runs"][0] == "0 versions, 0 runs failed; nothing in 25 of 25 periods"
    assert set(shown.tables["The figures of the charts, newest period first"][0]) == {
        "From", "Versions", "Failed runs", "Highest lag",
    }  # fmt: skip


def test_empty_columns_are_left_out_when_figures_are_listed() -> None:
    made = [entry(1, HOUR, NOW - HOUR, metrics={"rows_collected": 5})]

    figures = Details(render_job(replace(FACTS, entries=made), 2)).tables[
        "The figures of the charts, newest period first"
    ]

    assert set(figures[0]) == {"From", "Versions", "Failed runs", "Rows", "Highest lag"}


def test_age_is_charted_instead_of_lag_when_a_job_has_no_time_cursor() -> None:
    counted = LogEntry("landing", 1, {"scans": {"kind": "files"}}, ENTRIES_OF_JOB[0].change)
    shown = Details(render_job(replace(job("fine"), entries=[counted]), 2))

    assert shown.charts["Time between versions"][0] == "Highest 1 h, in the last period 1 h"
    assert "Highest age" in shown.tables["The figures of the charts, newest period first"][0]


def test_chart_is_left_out_when_all_its_counts_are_negative() -> None:
    taken_back = entry(1, HOUR, NOW, metrics={"rows_collected": -5, "files_read": 2})
    shown = Details(render_job(replace(FACTS, entries=[taken_back]), 2))

    assert "Rows" not in shown.charts
    assert "Files" in shown.charts


def test_bars_are_as_high_as_their_numbers_when_drawn(details: Details) -> None:
    # There are 49 periods of five minutes. Versions are in periods 0, 24 and 36; failed runs are stacked on top.
    assert details.bars["Versions and failed runs"] == [
        ("empty", 12.2, 95.0, 280.1, 5.0),
        ("empty", 306.1, 95.0, 133.2, 5.0),
        ("empty", 453.1, 95.0, 145.4, 5.0),
        ("bar", 0.0, 66.7, 10.7, 33.3),
        ("bar", 293.9, 66.7, 10.7, 33.3),
        ("bad", 293.9, 0.0, 10.7, 66.7),
        ("bar", 440.8, 66.7, 10.7, 33.3),
    ]
    # A version that counted 0 also has a bar, as low as the mark of an empty period.
    assert details.bars["Rows"][3:] == [
        ("bar", 0.0, 95.0, 10.7, 5.0),
        ("bar", 293.9, 75.0, 10.7, 25.0),
        ("bar", 440.8, 0.0, 10.7, 100.0),
    ]


def test_periods_show_the_counts_of_their_versions_when_listed(details: Details) -> None:
    periods = details.tables["The figures of the charts, newest period first"]

    assert len(periods) == 49
    assert [row for row in periods if row["Versions"] != "0"] == [
        {
            "From": f"2026-03-16 {at}:00",
            "Versions": "1",
            "Failed runs": failed,
            "Rows": rows_read,
            "Files": files,
            "Size": size,
            "Highest lag": lag,
        }
        for at, failed, rows_read, files, size, lag in [
            ("14:45", "0", "1,200", "3", "1.5 KB", "1 h 5 min"),
            ("13:45", "2", "300", "", "2.0 MB", "2 h 5 min"),
            ("11:45", "0", "0", "", "", "1 h 5 min"),
        ]
    ]
    assert [row["Highest lag"] for row in periods[:2]] == ["2 h", "2 h"]


def test_failed_runs_since_the_last_version_are_in_the_last_period_when_listed() -> None:
    gone = Claim("jr_9", "t", 2, NOW, NOW - HOUR)
    head = FACTS.head
    assert head is not None
    shown = Details(render_job(replace(FACTS, head=replace(head, claim=gone, fence=head.fence + 2)), 2))

    failed = [row["Failed runs"] for row in shown.tables["The figures of the charts, newest period first"]]
    assert failed[0] != "0"
    assert [count for count in failed[1:] if count != "0"] == ["2"]


def test_version_is_in_the_last_period_when_it_is_newer_than_now() -> None:
    ahead = entry(1_004, -2 * HOUR, NOW, metrics={"rows_collected": 70})
    found = in_periods(replace(FACTS, entries=[ahead, *ENTRIES_OF_JOB]))

    assert found is not None
    assert (len(found.periods), found.periods[-1].versions, found.periods[-1].rows) == (49, 1, 70)
    assert sum(period.versions for period in found.periods) == 4


# --- all jobs -----------------------------------------------------------------------------------


def test_overview_has_what_is_known_of_each_job_when_shown(overview: Overview) -> None:
    facts = ("State", "Lag", "Age", "Last version", "Open plan", "Owner", "Gaps", "Failed runs")
    at = "2026-03-16 14:45:00"

    assert {name: tuple(cells[fact] for fact in facts) for name, cells in overview.jobs.items()} == {
        "odd": ("Problem", "", "", "", "", "", "", ""),
        "left-open": ("Open plan", "", "1 h", at, "1 h 30 min", "", "", "2"),
        "lease-over": ("Lease over", "", "1 h", at, "", "", "", "2"),
        "at-work": ("At work", "", "1 h", at, "1 h 30 min", "jr_9", "", "1"),
        "never": ("Failing", "", "", "", "", "", "", "1"),
        "repairs": ("Idle", "3 h", "1 h", at, "", "", "5", ""),
        "fine": ("Idle", "", "1 h", at, "", "", "", ""),
    }


def test_jobs_that_need_attention_come_first_when_ordered(overview: Overview) -> None:
    assert list(overview.jobs) == ["odd", "left-open", "lease-over", "never", "repairs", "at-work", "fine"]


def test_job_shows_what_is_wrong_and_a_command_when_it_needs_attention(overview: Overview) -> None:
    assert overview.why == {
        "odd": "Cannot be read.",
        "left-open": "Planned 1 h 30 min ago and not committed; the next run replays it.",
        "lease-over": "Run jr_9 ended 0 s ago without a plan; run the job again.",
        "never": "1 run failed and none has committed.",
        "repairs": "5 ranges were never read.",
        "at-work": "",
        "fine": "",
    }
    assert overview.commands["left-open"] == ["watermarks plan left-open"]
    assert overview.commands["repairs"] == ["watermarks backfill repairs"]
    assert overview.commands["fine"] == []


def test_late_job_comes_first_with_its_usual_interval_when_its_head_records_one() -> None:
    heads = {head.job_id: head for head in known_jobs()}
    facts = [JobFacts(name, KNOWN_AT, heads[name]) for name in ("daily-well-1", "daily-03", "hourly-30")]
    lenient = replace(facts[2], job_id="with-threshold", threshold=Threshold(error=timedelta(days=9)))

    overview = Overview(render([make_entry(one, 0) for one in (*facts, lenient)], "council", KNOWN_AT))

    words = {name: cells["State"] for name, cells in overview.jobs.items()}
    assert list(words.items())[:2] == [("hourly-30", "Missing"), ("daily-03", "Late")]
    assert (words["daily-well-1"], words["with-threshold"]) == ("Idle", "Idle")
    assert overview.why["hourly-30"].startswith("Usually every 1 h, last 1 d 6 h ago.")
    assert overview.numbers["late"] == "2"
    assert "2 of 4 jobs need attention." in text_of(overview.root)


def test_column_is_left_out_when_no_job_has_anything_in_it() -> None:
    overview = Overview(render([make_entry(job("fine"), 20)], "council", NOW))
    history = overview.details()["fine"].tables

    assert set(overview.jobs["fine"]) == {"State", "Age", "Last version"}
    assert "Nothing needs attention." in text_of(overview.root)
    assert "Versions of the job, newest first" not in history


def test_overview_has_no_age_and_no_line_when_nothing_was_ever_committed() -> None:
    overview = Overview(render([make_entry(job("never", last=None), 20)], "council", NOW))

    assert overview.jobs["never"] == {"State": "Failing", "Failed runs": "1"}
    headings = [text_of(heading) for heading in overview.root.iterfind(".//thead/tr/th/button")]
    assert headings == ["Job", "State", "Failed runs"]
    assert "Over time" not in [text_of(heading) for heading in overview.root.iterfind(".//thead/tr/th")]


def test_word_none_is_not_shown_when_fields_are_empty(overview: Overview) -> None:
    undated = replace(FACTS, entries=[entry(1, HOUR, NOW, who="sam")])

    shown = render_job(undated, 5)

    assert "None" not in text_of(parsed(shown))
    assert "None" not in text_of(overview.root).replace("None of", "")


def test_filter_buttons_show_how_many_jobs_match_when_shown(overview: Overview) -> None:
    assert overview.numbers == {"late": "0", "waiting": "2", "failed": "4", "gaps": "1", "unreadable": "1"}


def test_overview_can_be_sorted_by_seconds_when_read_by_its_script(overview: Overview) -> None:
    assert overview.data["left-open"] == {
        "name": "left-open",
        "state": "open plan",
        "word": "open plan",
        "rank": "1",
        "lag": "",
        "age": "3600",
        "plan": "5400",
        "gaps": "0",
        "failed": "2",
    }
    assert (overview.data["repairs"]["lag"], overview.data["repairs"]["gaps"]) == ("10800", "5")


def test_sparkline_is_drawn_when_a_job_has_versions(overview: Overview) -> None:
    # Of at most 24 periods there are 17, of 15 minutes each. The axis is from 1 minute to 30 days; 1 hour is at 38 %.
    lines = overview.sparks["repairs"]

    assert list(lines) == ["24h", "7d", "30d", "all"]
    assert lines["all"] == "M0 12H6V11H34V10H45V11H56V10H68V12H73V11H96"
    assert [lines for name, lines in overview.sparks.items() if name != "repairs"] == [{}] * 6


def test_details_are_packed_beside_the_overview_when_it_is_rendered(overview: Overview) -> None:
    found = overview.details()

    assert list(found) == list(overview.jobs)
    assert found["repairs"].facts["Version"] == "1,003"
    assert "Watermark" not in found["repairs"].tables["The sources of the job"][0]


def test_lag_lines_begin_at_the_first_version_with_a_cursor_when_older_ones_had_none() -> None:
    older = replace(ENTRIES_OF_JOB[2], watermarks={"scans": {"kind": "files"}})
    facts = replace(FACTS, entries=[*ENTRIES_OF_JOB[:2], older])

    overview = Overview(render([make_entry(facts, 20)], "council", NOW))
    shown = overview.details()["repairs"]

    assert overview.sparks["repairs"]["all"].startswith("M40 ")
    assert shown.lines["Lag"][0].startswith("282,")
    oldest = shown.tables["The figures of the charts, newest period first"][-1]
    assert (oldest["Versions"], oldest["Highest lag"]) == ("1", "")


# --- charts -------------------------------------------------------------------------------------


def test_line_breaks_when_a_value_is_missing() -> None:
    drawn = parsed(charts.area("c", "Lag", "in words", [1.0, None, 2.0, 4.0]))

    assert [line.attrib["points"] for line in drawn.iter("polyline")] == [
        "0,75.0 150,75.0",
        "300,50.0 450,50.0 450,0.0 600,0.0",
    ]
    assert [path.attrib["d"] for path in drawn.iter("path")] == [
        "M0,100 L0,75.0 150,75.0 L150,100 Z",
        "M300,100 L300,50.0 450,50.0 450,0.0 600,0.0 L600,100 Z",
    ]


def test_bars_are_apart_when_there_are_few_and_when_there_are_many() -> None:
    few = parsed(charts.bars("c", "Rows", "in words", [2.0, None, 1.0, 0.0]))
    many = parsed(charts.bars("c", "Rows", "in words", [1.0] * 300))

    assert [
        (bar.attrib["class"], bar.attrib["x"], bar.attrib["width"], bar.attrib["height"]) for bar in few.iter("rect")
    ] == [
        ("empty", "150.0", "148.5", "5.0"),
        ("bar", "0.0", "148.5", "100.0"),
        ("bar", "300.0", "148.5", "50.0"),
        ("bar", "450.0", "148.5", "5.0"),
    ]
    assert {bar.attrib["width"] for bar in many.iter("rect")} == {"1.4"}


def test_chart_is_named_for_a_screen_reader_when_its_words_hold_markup() -> None:
    (svg,) = parsed(charts.bars("c-rows", "<b>", "&", []))

    title, description = svg
    assert (title.text, description.text) == ("<b>", "&")
    assert svg.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
    assert (title.attrib["id"], svg.attrib["viewbox"]) == ("c-rows-t", "0 0 600 100")


def test_sparkline_stays_in_its_box_when_all_values_are_zero() -> None:
    (svg,) = parsed(charts.spark({"all": [0.0, 0.0]}))

    assert [line.attrib["d"] for line in svg] == ["M0 19H96"]
    assert svg.attrib["viewbox"] == "0 0 96 20"


def test_sparkline_breaks_when_a_value_is_missing() -> None:
    (svg,) = parsed(charts.spark({"7d": [60.0, None, 60.0, 30 * 86_400.0]}))

    assert [(line.attrib["data-in"], line.attrib["d"]) for line in svg] == [("7d", "M0 19H24M48 19H72V1H96")]
