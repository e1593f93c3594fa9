"""The page: an overview of all jobs, with what is known of each one packed beside it."""

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

from scripts.helpers.display.units import count_text, duration_text, id_text, size_text, time_text
from scripts.helpers.errors import DAMAGE, InvalidValueError
from scripts.helpers.metrics.freshness import Threshold, threshold_of
from scripts.helpers.metrics.urgency import LATE
from scripts.helpers.protocol.head import LogEntry
from scripts.helpers.protocol.history import counted
from scripts.helpers.protocol.jobs import ListedJob
from scripts.helpers.protocol.recent import BYTES, FILES, ROWS
from scripts.helpers.rows.cursor_ranges import ShownRange
from scripts.helpers.watermarks import Watermarks
from scripts.report import charts
from scripts.report.facts import JobFacts
from scripts.report.periods import Periods, in_periods
from scripts.report.reading import MOST_VERSIONS, choose, damaged, look_up, read_facts

READERS = 8
LIVE_VERSIONS = 50
"""Versions of each job that the live overview goes by: it is read anew at each reload."""
SPARK_PERIODS = 24
MOST_ROWS, LEAST_ROWS = 20_000, 20
"""Rows of all histories together, and of each at least: they bound the size of the file."""
REFRESH_SECONDS = 60
"""How often the live page reads again while somebody looks at it: each time is a list of the table."""


@dataclass(frozen=True)
class Entry:
    """One job as the overview shows it, with its details as HTML, packed."""

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
    """Return one HTML page about jobs that needs no other file and no network.

    Parameters
    ----------
    jobs
        Names, in the order of the page; by default all jobs of the table, without the slices of backfills.
    since
        Only versions from this time on; by default the newest 1,000 of each job.
    now
        The time that ages and lags are measured to; by default the system's.
    values
        Show watermarks and the ends of gaps, which may be personal data. By default only how many
        there are and how long.
    thresholds
        By job name or pattern, from when on a job is late. The others are judged by what is usual for them.

    Raises
    ------
    InvalidValueError
        `since` or `now` is a time without a zone.
    AccessRefusedError
        All jobs were asked for, and the role has no ``dynamodb:Scan``: name the jobs.
    """
    now = _aware(now or datetime.now(timezone.utc), "now")
    if since is not None:
        since = _aware(since, "since")
    chosen = choose(watermarks, jobs)
    most = max(MOST_ROWS // max(len(chosen), 1), LEAST_ROWS)
    # The histories of 500 jobs need not be in memory at once: each is packed in the thread that has read it.
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


def make_entry(facts: JobFacts, most_rows: int, values: bool = False, *, packed: bool = True) -> Entry:
    """Work out what the page shows of a job; the versions themselves are not kept.

    Anybody who may write to one job can put there what no reading foresees. It costs that job's line and no other.
    """
    try:
        entry = _entry(facts, most_rows, values, packed)
        # What the page asks of all jobs is asked of each here, where it ends nothing but its own line.
        attention(entry)
        return entry
    except DAMAGE as error:
        return _entry(damaged(facts.job_id, facts.now, error), most_rows, values, packed)


def _entry(facts: JobFacts, most_rows: int, values: bool, packed: bool) -> Entry:
    spark = in_periods(facts, SPARK_PERIODS)
    details = pack(render_job(facts, most_rows, values)) if packed else ""
    # Without its versions: the overview needs their numbers only, and has the facts of all jobs at once.
    small = replace(facts, entries=(), unsuccessful=())
    return Entry(small, len(facts.entries), _spark(spark), details)


def render(
    entries: Sequence[Entry],
    table_name: str,
    now: datetime,
    since: datetime | None = None,
    *,
    live: bool = False,
    refresh_seconds: float = REFRESH_SECONDS,
) -> str:
    """Return the page; `live` where its server gives the details when they are asked for."""
    ordered = sorted(entries, key=attention)
    all_facts = [entry.facts for entry in ordered]
    return _environment().get_template("page.html").render(
        entries=ordered, table_name=table_name, now=now, since=since, live=live, refresh=refresh_seconds,
        has=_columns(all_facts), unwell=sum(facts.needs_somebody for facts in all_facts),
        css=asset("page.css"), js=asset("page.js"), policy=policy(live),
        late=sum(facts.condition.word in LATE for facts in all_facts),
        waiting=sum(facts.state in ("waiting", "abandoned") for facts in all_facts),
        failed=sum(facts.failed_since > 0 for facts in all_facts),
        gaps=sum(facts.gap_count > 0 for facts in all_facts),
        unreadable=sum(facts.state == "unreadable" for facts in all_facts),
    )  # fmt: skip


def render_job(facts: JobFacts, most_rows: int, values: bool = False) -> str:
    """Return the details of one job as HTML."""
    periods = in_periods(facts)
    shown = facts.entries[:most_rows]
    return _environment().get_template("job.html").render(
        facts=facts, entries=shown, has=_history_columns(shown), values=values, periods=periods,
        charts=list(_charts(periods)) if periods else [], failures=[entry for entry in facts.entries if entry.failed],
    )  # fmt: skip


def attention(entry: Entry) -> tuple[float, float, str]:
    """Return the order of the overview, as `watermarks jobs` has it: urgency, then how far a job is behind."""
    facts = entry.facts
    # Not `lag or age`: a lag of nothing is a lag, and false.
    behind = facts.age if facts.lag is None else facts.lag
    if behind is None:
        behind = timedelta(0)
    return facts.rank, -behind.total_seconds(), facts.job_id


def _history_columns(entries: Sequence[LogEntry]) -> dict[str, bool]:
    """Tell which columns of a history have anything in them; the others are left out."""
    return {
        "took": any(entry.duration is not None for entry in entries),
        "rows": any(counted(entry, ROWS) is not None for entry in entries),
        "files": any(counted(entry, FILES) is not None for entry in entries),
        "bytes": any(counted(entry, BYTES) is not None for entry in entries),
        "run": any(entry.change.run_id for entry in entries),
        "who": any(entry.change.who or entry.change.releases for entry in entries),
    }


def _columns(all_facts: Sequence[JobFacts]) -> dict[str, bool]:
    """Tell which columns of the overview have anything in them; the others are left out."""
    return {
        "lag": any(facts.lag is not None for facts in all_facts),
        "plan": any(facts.plan_age is not None for facts in all_facts),
        "owner": any(facts.owner is not None for facts in all_facts),
        "gaps": any(facts.gap_count for facts in all_facts),
        "failed": any(facts.failed_since for facts in all_facts),
    }


def policy(live: bool) -> str:
    """Return the page's Content-Security-Policy: its own style and script, and nothing from elsewhere."""
    hashes = {name: b64encode(sha256(asset(name).encode()).digest()).decode() for name in ("page.css", "page.js")}
    fetched = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; style-src 'sha256-{hashes['page.css']}'; script-src 'sha256-{hashes['page.js']}'; "
        f"{fetched}img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def asset(name: str) -> Markup:
    """Return the style sheet or the script as they stand in the page."""
    return Markup(files("scripts.report").joinpath("templates").joinpath(name).read_text(encoding="utf-8"))


def pack(text: str) -> str:
    """Return a text compressed, in characters that need no escaping in HTML."""
    # Without a time, so that the same facts give the same page.
    return b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def live_page(
    watermarks: Watermarks,
    now: datetime,
    thresholds: Mapping[str, Threshold] | None = None,
    refresh_seconds: float = REFRESH_SECONDS,
) -> str:
    """Return the page of all jobs, without their details: those are asked for one by one."""

    def entry(job: ListedJob) -> Entry:
        threshold = threshold_of(job.job_id, thresholds or {})
        facts = read_facts(watermarks, job, now, most=LIVE_VERSIONS, with_runs=False, threshold=threshold)
        return make_entry(facts, 0, packed=False)

    with ThreadPoolExecutor(READERS) as pool:
        entries = pool.map(entry, choose(watermarks, None))
        return render(list(entries), watermarks.table_name, now, live=True, refresh_seconds=refresh_seconds)


def live_job(
    watermarks: Watermarks,
    job_id: str,
    now: datetime,
    values: bool = False,
    thresholds: Mapping[str, Threshold] | None = None,
) -> str:
    """Return the details of one job as HTML, read now."""
    threshold = threshold_of(job_id, thresholds or {})
    facts = read_facts(watermarks, look_up(watermarks, job_id), now, threshold=threshold)
    try:
        return render_job(facts, MOST_VERSIONS, values)
    except DAMAGE as error:
        return render_job(damaged(job_id, now, error), 0, values)


# --- within -------------------------------------------------------------------------------------


def _charts(found: Periods) -> Iterable[dict[str, Any]]:
    """Yield the charts of one job, with their words, and the columns of the table below that have their values."""
    periods = found.periods
    lags = [None if period.lag is None else period.lag.total_seconds() for period in periods]
    highest = max((lag for lag in lags if lag is not None), default=0)
    last = lags[-1]
    name = "Lag" if found.measure == "lag" else "Time between versions"
    words = f"Highest {duration_text(timedelta(seconds=highest))}"
    if last is not None:
        words += f", in the last period {duration_text(timedelta(seconds=last))}"
    drawn = charts.area("c-lag", name, f"{words}.", lags)
    yield {"name": name, "words": words, "top": duration_text(timedelta(seconds=highest)), "svg": drawn, "columns": "6"}
    for title, kind, column in (("Rows", "rows", "3"), ("Files", "files", "4")):
        # A job counts what it likes, so a count may be below 0, and a bar may not.
        amounts = [max(getattr(period, kind), 0) for period in periods]
        if any(amounts):
            words = f"{count_text(sum(amounts))} in all, most in one period {count_text(max(amounts))}"
            svg = charts.bars(f"c-{kind}", title, f"{words}.", amounts)
            yield {"name": title, "words": words, "top": count_text(max(amounts)), "svg": svg, "columns": column}
    versions, failed = [period.versions for period in periods], [period.failed for period in periods]
    words = f"{_count_of(sum(versions), 'version')}, {_count_of(sum(failed), 'run')} failed"
    svg = charts.bars("c-runs", "Versions and failed runs", f"{words}.", versions, failed)
    top = max(good + bad for good, bad in zip(versions, failed, strict=True))
    yield {"name": "Versions and failed runs", "words": words, "top": f"{top:,}", "svg": svg, "columns": "1 2"}


def _count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _spark(found: Periods | None) -> Markup:
    if found is None:
        return Markup("")
    return charts.spark([None if period.lag is None else period.lag.total_seconds() for period in found.periods])


def _width(span: ShownRange) -> str:
    """Return how long a gap of times is; nothing for one without end, or of other values."""
    # Of a compound cursor the first column says how long; the others only tell ties apart.
    low, high = (end[0] if isinstance(end, tuple) else end for end in span)
    if isinstance(low, date) and isinstance(high, date):
        return duration_text(high - low)
    if isinstance(low, int | Decimal) and isinstance(high, int | Decimal):
        return count_text(high - low)
    return ""


def _sentence(text: str) -> str:
    """Write a reason as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _seconds(duration: timedelta | None) -> str:
    return "" if duration is None else f"{duration.total_seconds():.0f}"


def _rows(entry: LogEntry) -> str:
    return _or_nothing(counted(entry, ROWS))


def _files(entry: LogEntry) -> str:
    return _or_nothing(counted(entry, FILES))


def _bytes(entry: LogEntry) -> str:
    found = counted(entry, BYTES)
    return "" if found is None else size_text(int(found))


def _or_nothing(count: float | None) -> str:
    return "" if count is None else count_text(count)


def _aware(moment: datetime, name: str) -> datetime:
    if moment.tzinfo is None:
        raise InvalidValueError(f"{name!r} is a time without a zone. Give an aware datetime, such as one in UTC.")
    return moment.astimezone(timezone.utc)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("scripts.report"),
        autoescape=True,
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
        "slug": lambda word: word.replace(" ", "-"),
        "sentence": _sentence,
        "rows": _rows,
        "files": _files,
        "bytes": _bytes,
        "width": _width,
    }
    return environment
