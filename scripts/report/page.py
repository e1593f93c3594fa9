"""Build the page: an overview of all jobs, which contains the details of each job as compressed HTML."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from scripts.helpers.display.tables import cell_text
from scripts.helpers.display.units import count_text, duration_text, id_text, printable, size_text, time_text
from scripts.helpers.errors import DAMAGE, InvalidValueError
from scripts.helpers.job_runs.run_record import Runs
from scripts.helpers.metrics.freshness import Threshold
from scripts.helpers.metrics.thresholds import threshold_of
from scripts.helpers.metrics.urgency import LATE
from scripts.helpers.protocol.head import LogEntry
from scripts.helpers.protocol.history import History
from scripts.helpers.rows.cursor_ranges import ShownRange
from scripts.helpers.watermarks import Watermarks
from scripts.report import charts
from scripts.report.facts import JobFacts
from scripts.report.periods import MAX_PERIODS_IN_RANGE, MOST, RANGES, Periods, in_periods, stretches
from scripts.report.reading import choose, damaged, read_facts

READERS = 8
"""How many jobs are read at once. Building the page is mostly waiting for DynamoDB."""
SPARK_PERIODS = 24
"""Points of a job's sparkline, one for every four pixels."""
MOST_NAMED = 3
"""How many stretches without a version a chart's description names, because screen readers read it without a pause."""
HISTORY_COLUMNS = {column.heading: column for column in History.columns}
"""The columns of a history, as shown in a REPL and on the command line, by their headings."""
MOST_ROWS, LEAST_ROWS = 20_000, 20
"""Rows of all histories together, and the minimum for each. They limit the size of the file."""


@dataclass(frozen=True)
class JobEntry:
    """One job as the overview shows it, with its details as compressed HTML."""

    facts: JobFacts
    versions: int
    spark: Markup
    details: str


def build_report(
    watermarks: Watermarks,
    *,
    jobs: Iterable[str] | None = None,
    since: datetime | None = None,
    now: datetime | None = None,
    values: bool = False,
    thresholds: Mapping[str, Threshold] | None = None,
) -> str:
    """Return one self-contained HTML page about jobs, which needs no other file and no network.

    Parameters
    ----------
    jobs
        Names of jobs; by default all jobs of the table, without those of backfills.
    since
        Only versions since this time; by default the newest 1,000 of each job.
    now
        The time at which ages and lags are measured; by default the system's time.
    values
        Whether to show watermarks and the ends of gaps (ranges that no run has read), which may be personal data. By
        default the page shows only how many gaps there are and how long they are.
    thresholds
        When a job counts as late, by job name or pattern. Other jobs are compared with their usual rhythm.

    Raises
    ------
    InvalidValueError
        `since` or `now` is a time without a zone.
    AccessRefusedError
        `jobs` is not given, and the role lacks ``dynamodb:Scan``: name the jobs.
    """
    now = _aware(now or datetime.now(timezone.utc), "now")
    if since is not None:
        since = _aware(since, "since")
    chosen = choose(watermarks, jobs)
    most = max(MOST_ROWS // max(len(chosen), 1), LEAST_ROWS)
    # Each thread packs the history that it has read, so that the histories of 500 jobs are not in memory at once.
    with ThreadPoolExecutor(READERS) as pool:
        entries = pool.map(
            lambda job: make_entry(
                read_facts(watermarks, job, now, since, threshold=threshold_of(job.job_id, thresholds or {})),
                most,
                values,
            ),
            chosen,
        )
        return render(list(entries), watermarks.table_name, now, since)


def make_entry(facts: JobFacts, most_rows: int, values: bool = False) -> JobEntry:
    """Return what the page shows of a job, without keeping the versions themselves.

    A job may have unexpected data, as many programs may write it. If the data raises an error, only this job shows it.
    """
    try:
        entry = _entry(facts, most_rows, values)
        # Compute the sort key here, where an error affects only this job, and not later when all jobs are sorted.
        attention(entry)
        return entry
    except DAMAGE as error:
        return _entry(damaged(facts.job_id, facts.now, error), most_rows, values)


def _entry(facts: JobFacts, most_rows: int, values: bool) -> JobEntry:
    spark = _spark(facts)
    details = _pack(render_job(facts, most_rows, values))
    # Drop the versions: the overview has the facts of all jobs in memory, and needs only how many versions there are.
    small = replace(facts, entries=(), unsuccessful=())
    return JobEntry(small, len(facts.entries), spark, details)


def render(entries: Sequence[JobEntry], table_name: str, now: datetime, since: datetime | None = None) -> str:
    """Return the page as HTML."""
    ordered = sorted(entries, key=attention)
    all_facts = [entry.facts for entry in ordered]
    return _environment().get_template("page.html").render(
        entries=ordered, table_name=table_name, now=now, since=since,
        has=_columns(ordered), unwell=sum(facts.needs_somebody for facts in all_facts),
        ranges=RANGES, css=asset("page.css"), js=asset("page.js"), policy=policy(),
        late=sum(facts.condition.word in LATE for facts in all_facts),
        waiting=sum(facts.state in ("open plan", "lease over") for facts in all_facts),
        failed=sum(facts.failed_since > 0 for facts in all_facts),
        gaps=sum(facts.gap_count > 0 for facts in all_facts),
        unreadable=sum(facts.state == "problem" for facts in all_facts),
    )  # fmt: skip


def render_job(facts: JobFacts, most_rows: int, values: bool = False) -> str:
    """Return the details of one job as HTML."""
    shown = facts.entries[:most_rows]
    since = {name: time_text(facts.now - span) for name, span in RANGES.items() if span is not None}
    failures = [entry for entry in facts.entries if entry.change.failed]
    has = _source_columns(facts, values) | _history_columns(shown)
    has["maker"] = any(entry.change.run_id for entry in failures)
    runs = [run.to_job_run() for run in facts.unsuccessful]
    return _environment().get_template("job.html").render(
        facts=facts, entries=shown, has=has, values=values, history=HISTORY_COLUMNS,
        over_time=_over_time(facts), since=since, failures=failures,
        runs=runs, run_columns=[column for column in Runs.columns if any(cell_text(column, run) for run in runs)],
    )  # fmt: skip


def attention(entry: JobEntry) -> tuple[float, float, str]:
    """Return the sort key of the overview, as in `watermarks jobs`: urgency, then how far a job is behind."""
    facts = entry.facts
    # Do not write `lag or age`, because a lag of 0 is valid but falsy.
    behind = facts.age if facts.lag is None else facts.lag
    if behind is None:
        behind = timedelta(0)
    return facts.rank, -behind.total_seconds(), facts.job_id


def _history_columns(entries: Sequence[LogEntry]) -> dict[str, bool]:
    """Return which columns of a history have a value in any row; the page omits the others."""
    has = {name: any(column.value(entry) is not None for entry in entries) for name, column in HISTORY_COLUMNS.items()}
    return has | {"who": any(entry.change.who or entry.change.releases for entry in entries)}


def _source_columns(facts: JobFacts, values: bool) -> dict[str, bool]:
    """Return which columns of the sources have a value in any row."""
    return {
        "cursor": any(context.columns for context in facts.contexts),
        "lag": any(context.lag is not None for context in facts.contexts),
        # None means that the gaps could not be read, which the page shows. Only contexts of rows can have gaps.
        "gaps": any(context.gaps is None or context.kind == "rows" for context in facts.contexts),
        "value": values and any(context.value for context in facts.contexts),
    }


def _columns(entries: Sequence[JobEntry]) -> dict[str, bool]:
    """Return which columns of the overview have a value in any row; the page omits the others."""
    all_facts = [entry.facts for entry in entries]
    return {
        "trend": any(entry.spark for entry in entries),
        # `age` also shows or omits the column of the last version, because the age is the time since that version.
        "age": any(facts.age is not None for facts in all_facts),
        "lag": any(facts.lag is not None or facts.why_no_lag for facts in all_facts),
        "plan": any(facts.plan_age is not None for facts in all_facts),
        "owner": any(facts.owner is not None for facts in all_facts),
        "gaps": any(facts.gap_count for facts in all_facts),
        "failed": any(facts.failed_since for facts in all_facts),
    }


def policy() -> str:
    """Return the page's Content-Security-Policy, which allows only its own style sheet and script."""
    hashes = {name: b64encode(sha256(asset(name).encode()).digest()).decode() for name in ("page.css", "page.js")}
    return (
        f"default-src 'none'; style-src 'sha256-{hashes['page.css']}'; script-src 'sha256-{hashes['page.js']}'; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def asset(name: str) -> Markup:
    """Return the style sheet or the script as it is embedded in the page."""
    return Markup(files("scripts.report").joinpath("templates").joinpath(name).read_text(encoding="utf-8"))


def _pack(text: str) -> str:
    """Return a text compressed and encoded in characters that need no escaping in HTML."""
    # Store no time, so that the same facts give the same page.
    return b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


# --- internals of the page ----------------------------------------------------------------------


@dataclass(frozen=True)
class FigureColumn:
    """A column in the table of figures of one time range, with a text for each period, oldest first."""

    key: str
    heading: str
    texts: Sequence[str]


@dataclass(frozen=True)
class Chart:
    """One chart of a time range.

    Attributes
    ----------
    words
        The text below the chart's name.
    top
        The value at the top of the chart, as text.
    columns
        Which columns of the table (`OverTime.columns`) the chart shows, counted from 1, such as ``"1 2"``.
    """

    name: str
    words: str
    top: str
    svg: Markup
    columns: str


@dataclass(frozen=True)
class OverTime:
    """A job over one time range: its charts, and the table of their figures.

    The range's `name` is one of `RANGES`; `bad` has for each period whether runs failed in it.
    """

    name: str
    found: Periods
    charts: Sequence[Chart]
    columns: Sequence[FigureColumn]
    bad: Sequence[bool]


def _over_time(facts: JobFacts) -> list[OverTime]:
    """Return the charts and figures of a job for each time range; empty for a job without a version."""
    made = []
    for name, span in RANGES.items():
        found = in_periods(facts, MOST if span is None else MAX_PERIODS_IN_RANGE, span)
        if found is None:
            return []
        columns = _figures(found)
        bad = [period.failed > 0 for period in found.periods]
        made.append(OverTime(name, found, list(_charts(name, found, columns)), columns, bad))
    return made


def _figures(found: Periods) -> list[FigureColumn]:
    """Return the columns of the table of figures that have a value in any period."""
    periods = found.periods
    highest = "Highest lag" if found.measure == "lag" else "Highest age"
    columns = [
        FigureColumn("versions", "Versions", [count_text(one.versions) if one.is_known else "" for one in periods]),
        FigureColumn("failed", "Failed runs", [count_text(one.failed) if one.is_known else "" for one in periods]),
        FigureColumn("rows", "Rows", [_or_nothing(one.rows) for one in periods]),
        FigureColumn("files", "Files", [_or_nothing(one.files) for one in periods]),
        FigureColumn("bytes", "Size", ["" if one.bytes is None else size_text(int(one.bytes)) for one in periods]),
        FigureColumn("lag", highest, ["" if one.lag is None else duration_text(one.lag) for one in periods]),
    ]
    return [column for column in columns if any(column.texts)]


def _charts(name: str, found: Periods, columns: Sequence[FigureColumn]) -> Iterable[Chart]:
    """Yield the charts of one time range, without those that have nothing to draw."""
    # Numbered from 1, because column 0 of the table has the periods.
    places = {column.key: str(number) for number, column in enumerate(columns, start=1)}
    empty = stretches(found.periods)
    gaps = f" {_named(empty)}" if empty else ""
    lags = [None if period.lag is None else period.lag.total_seconds() for period in found.periods]
    if any(lag is not None for lag in lags):
        yield _lag_chart(name, found, lags, places["lag"])
    for title, kind in (("Rows", "rows"), ("Files", "files")):
        # A job may report any number as a count, but a bar cannot be below 0.
        counts = [getattr(period, kind) for period in found.periods]
        amounts = [None if count is None else max(count, 0) for count in counts]
        if any(amounts):
            yield _amounts_chart(f"c-{kind}-{name}", title, found, amounts, gaps, places[kind])
    yield _runs_chart(name, found, gaps, f"{places['versions']} {places['failed']}")


def _lag_chart(name: str, found: Periods, lags: Sequence[float | None], columns: str) -> Chart:
    highest = duration_text(timedelta(seconds=max(lag for lag in lags if lag is not None)))
    title = "Lag" if found.measure == "lag" else "Time between versions"
    words = f"Highest {highest}"
    if lags[-1] is not None:
        words += f", in the last period {duration_text(timedelta(seconds=lags[-1]))}"
    said = f"{words}."
    if lags[0] is None:
        first = next(period.start for period in found.periods if period.lag is not None)
        said += f" Nothing is known until {time_text(first)}."
    return Chart(title, words, highest, charts.area(f"c-lag-{name}", title, said, lags), columns)


def _amounts_chart(
    chart_id: str, title: str, found: Periods, amounts: Sequence[float | None], gaps: str, columns: str
) -> Chart:
    known = [amount for amount in amounts if amount is not None]
    highest = count_text(max(known))
    words = f"{count_text(sum(known))} in all, most in one period {highest}"
    svg = charts.bars(chart_id, title, f"{words}.{gaps}", amounts, unknown=_unknown(found))
    return Chart(title, words, highest, svg, columns)


def _runs_chart(name: str, found: Periods, gaps: str, columns: str) -> Chart:
    title, periods = "Versions and failed runs", found.periods
    failed = [period.failed for period in periods]
    total = sum(period.versions for period in periods)
    words = f"{_count_of(total, 'version')}, {_count_of(sum(failed), 'run')} failed"
    without = sum(period.is_empty for period in periods)
    if without:
        words += f"; nothing in {without:,} of {_count_of(len(periods), 'period')}"
    # Use None instead of 0, so that a period without a version has no bar and is marked as empty.
    versions = [period.versions or None for period in periods]
    svg = charts.bars(f"c-runs-{name}", title, f"{words}.{gaps}", versions, failed, _unknown(found))
    highest = max(period.versions + period.failed for period in periods)
    return Chart(title, words, f"{highest:,}", svg, columns)


def _unknown(found: Periods) -> int:
    """Return how many periods are before the oldest version that was read; they are the first ones."""
    return sum(not period.is_known for period in found.periods)


def _named(empty: Sequence[tuple[datetime, datetime]]) -> str:
    """Return a sentence on when nothing happened: the longest stretches, and how many more there are."""
    longest = sorted(empty, key=lambda one: one[0] - one[1])[:MOST_NAMED]
    parts = [f"from {time_text(start)} to {time_text(end)}" for start, end in sorted(longest)]
    more = len(empty) - len(longest)
    if more:
        parts.append(f"in {more:,} shorter {'time' if more == 1 else 'times'}")
    return f"No version {', '.join(parts)}."


def _count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _spark(facts: JobFacts) -> Markup:
    """Draw the sparklines of a job; return empty markup for a job without a version."""
    lines = {}
    for name, span in RANGES.items():
        found = in_periods(facts, SPARK_PERIODS, span)
        if found is None:
            return Markup("")
        lines[name] = [None if period.lag is None else period.lag.total_seconds() for period in found.periods]
    return charts.spark(lines)


def _width(span: ShownRange) -> str:
    """Return the length of a gap of times or numbers as text; empty for other values or if an end is open."""
    # For a compound cursor the first column decides the length; the others only separate ties.
    low, high = (end[0] if isinstance(end, tuple) else end for end in span)
    if isinstance(low, date) and isinstance(high, date):
        return duration_text(high - low)
    if isinstance(low, int | Decimal) and isinstance(high, int | Decimal):
        return count_text(high - low)
    return ""


def _sentence(text: str) -> str:
    """Return a reason as a sentence, with a capital letter and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _seconds(duration: timedelta | None) -> str:
    return "" if duration is None else f"{duration.total_seconds():.0f}"


def _or_nothing(count: float | None) -> str:
    return "" if count is None else count_text(count)


def _aware(moment: datetime, name: str) -> datetime:
    if moment.tzinfo is None:
        raise InvalidValueError(f"{name!r} is a time without a zone. Give an aware datetime, such as one in UTC.")
    return moment.astimezone(timezone.utc)


def _shown(value: Any) -> Any:
    """Return a text with control, bidirectional and zero-width characters escaped; return other values unchanged."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("scripts.report"),
        autoescape=True,
        # `_shown` escapes characters with which a text from the table could reorder or hide the text next to it.
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": lambda duration: "" if duration is None else duration_text(duration),
        "seconds": _seconds,
        "time": time_text,
        "iso": lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "size": lambda size: size_text(int(size)),
        "number": count_text,
        "short": id_text,
        "printable": printable,
        "slug": lambda word: word.replace(" ", "-"),
        "sentence": _sentence,
        "cell": lambda row, column: cell_text(column, row),
        "width": _width,
    }
    return environment
