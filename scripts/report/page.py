"""The page: an overview of all jobs, with what is known of each one packed beside it."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
STATES = {
    "unreadable": "Unreadable",
    "waiting": "Open plan",
    "abandoned": "Lease over",
    "running": "At work",
    "new": "No commit yet",
    "idle": "Idle",
}
"""What the states of `JobFacts` are called, as on the command line; what needs a person first."""


@dataclass(frozen=True)
class Entry:
    """One job as the overview shows it, with its details as HTML, packed."""

    facts: JobFacts
    versions: int
    failed: int
    spark: Markup
    details: str


def build_report(
    watermarks: Watermarks,
    *,
    jobs: Iterable[str] | None = None,
    since: datetime | None = None,
    now: datetime | None = None,
    values: bool = False,
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
        entries = pool.map(lambda job: make_entry(read_facts(watermarks, job, now, since), most, values), chosen)
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
    small = JobFacts(facts.job_id, facts.now, facts.head, facts.problem, (), facts.is_whole, facts.gaps)
    return Entry(small, len(facts.entries), facts.failed, _spark(spark), details)


def render(
    entries: Sequence[Entry], table_name: str, now: datetime, since: datetime | None = None, *, live: bool = False
) -> str:
    """Return the page; `live` where its server gives the details when they are asked for."""
    ordered = sorted(entries, key=attention)
    return _environment().get_template("page.html").render(
        entries=ordered, table_name=table_name, now=now, since=since, live=live, states=STATES,
        newest=LIVE_VERSIONS if live else MOST_VERSIONS,
        css=asset("page.css"), js=asset("page.js"), policy=policy(live),
        waiting=sum(entry.facts.state in ("waiting", "abandoned") for entry in entries),
        failed=sum(entry.failed > 0 for entry in entries),
        gaps=sum(entry.facts.gap_count > 0 for entry in entries),
        unreadable=sum(entry.facts.state == "unreadable" for entry in entries),
    )  # fmt: skip


def render_job(facts: JobFacts, most_rows: int, values: bool = False) -> str:
    """Return the details of one job as HTML."""
    periods = in_periods(facts)
    return _environment().get_template("job.html").render(
        facts=facts, entries=facts.entries[:most_rows], values=values, periods=periods, state=STATES[facts.state],
        charts=list(_charts(periods)) if periods else [], failures=[entry for entry in facts.entries if entry.failed],
    )  # fmt: skip


def attention(entry: Entry) -> tuple[int, float, str]:
    """Return the order of the overview: what needs a person first, then what is furthest behind."""
    facts = entry.facts
    rank = list(STATES).index(facts.state)
    # In these states nothing waits for a person, so what went wrong before decides.
    if facts.state in ("idle", "running", "new"):
        rank = len(STATES) + 2
        if facts.gap_count:
            rank = len(STATES) + 1
        if facts.failed_since:
            rank = len(STATES)
    # Not `lag or age`: a lag of nothing is a lag, and false.
    behind = facts.age if facts.lag is None else facts.lag
    if behind is None:
        behind = timedelta(0)
    return rank, -behind.total_seconds(), facts.job_id


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


def live_page(watermarks: Watermarks, now: datetime) -> str:
    """Return the page of all jobs, without their details: those are asked for one by one."""

    def entry(job: ListedJob) -> Entry:
        return make_entry(read_facts(watermarks, job, now, most=LIVE_VERSIONS, with_runs=False), 0, packed=False)

    with ThreadPoolExecutor(READERS) as pool:
        entries = pool.map(entry, choose(watermarks, None))
        return render(list(entries), watermarks.table_name, now, live=True)


def live_job(watermarks: Watermarks, job_id: str, now: datetime, values: bool = False) -> str:
    """Return the details of one job as HTML, read now."""
    facts = read_facts(watermarks, look_up(watermarks, job_id), now)
    try:
        return render_job(facts, MOST_VERSIONS, values)
    except DAMAGE as error:
        return render_job(damaged(job_id, now, error), 0, values)


# --- within -------------------------------------------------------------------------------------


def _charts(found: Periods) -> Iterable[dict[str, Any]]:
    """Yield the charts of one job, with the words beside them."""
    periods = found.periods
    lags = [None if period.lag is None else period.lag.total_seconds() for period in periods]
    highest = max((lag for lag in lags if lag is not None), default=0)
    last = lags[-1]
    name = "Lag" if found.measure == "lag" else "Time between versions"
    words = f"Highest {duration_text(timedelta(seconds=highest))}"
    if last is not None:
        words += f", in the last period {duration_text(timedelta(seconds=last))}"
    drawn = charts.area("c-lag", name, f"{words}.", lags)
    yield {"name": name, "words": words, "top": duration_text(timedelta(seconds=highest)), "svg": drawn}
    for title, kind, text in (("Rows", "rows", count_text), ("Files", "files", count_text)):
        # A job counts what it likes, so a count may be below 0, and a bar may not.
        amounts = [max(getattr(period, kind), 0) for period in periods]
        if any(amounts):
            words = f"{text(sum(amounts))} in all, most in one period {text(max(amounts))}"
            svg = charts.bars(f"c-{kind}", title, f"{words}.", amounts)
            yield {"name": title, "words": words, "top": text(max(amounts)), "svg": svg}
    versions, failed = [period.versions for period in periods], [period.failed for period in periods]
    words = f"{sum(versions):,} versions, {sum(failed):,} runs failed"
    svg = charts.bars("c-runs", "Versions and failed runs", f"{words}.", versions, failed)
    top = max(good + bad for good, bad in zip(versions, failed, strict=True))
    yield {"name": "Versions and failed runs", "words": words, "top": f"{top:,}", "svg": svg}


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
        "rows": _rows,
        "files": _files,
        "bytes": _bytes,
        "width": _width,
    }
    return environment
