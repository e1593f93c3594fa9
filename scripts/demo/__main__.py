"""Load a year of flights and weather with two jobs in several runs, one of which is killed half-way."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
from moto.server import ThreadedMotoServer
from rich.console import Console
from rich.table import Table

from scripts.demo import dataset
from scripts.demo.local_s3 import find_jars, short_lived, spark_conf
from scripts.helpers.display.redaction import aws_client
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import TRY_LATER
from scripts.report import build_report

BUCKET = "demo-bucket"
FLIGHTS, WEATHER = "flights", "weather"
MODULES = {FLIGHTS: "scripts.jobs.ingest_files", WEATHER: "scripts.jobs.ingest_table"}
LEASE_SECONDS = 10
"""Short, because the demo waits until the lease of the killed run ends."""
RUN_LIMIT_SECONDS = 900
"""Time limit of a run, which takes a minute on a busy machine."""
LATE_FILE = "2013-01-17"

console = Console() if Console().is_terminal else Console(width=110)
COLUMNS = ("rows", "bytes", "seconds", "version", "exit")


@dataclass
class Demo:
    """A table and a bucket on a local server, and one printed row for each run so far."""

    endpoint: str
    spark_settings: dict[str, str]
    rows: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.s3 = aws_client("s3")
        self.watermarks = Watermarks()
        self.watermarks.create_table()
        location: Any = {"LocationConstraint": os.environ["AWS_DEFAULT_REGION"]}
        self.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration=location)

    # --- landing --------------------------------------------------------------------------------

    def land_flights(self, table: pa.Table, first: int, last: int, *, only: str = "", without: str = "") -> None:
        """Put flights of some months into the bucket, an object a day. `only` selects one day, `without` skips one."""
        count = size = 0
        with progress(f"landing flights of months {first} to {last}"):
            for day, rows in dataset.days(dataset.rows_of_months(table, first, last)):
                if str(day) == without or (only and str(day) != only):
                    continue
                kind = dataset.format_of(day)
                body = dataset.to_bytes(rows, kind)
                self.s3.put_object(Bucket=BUCKET, Key=f"landing/flights/{day}.{kind}", Body=body)
                count, size = count + 1, size + len(body)
        console.print(f"  landed {count} objects of flights, {size:,} bytes", style="dim")

    def land_weather(self, table: pa.Table, first: int, last: int) -> None:
        """Append some months to the weather table, as one Parquet file."""
        sink = io.BytesIO()
        pyarrow.parquet.write_table(dataset.rows_of_months(table, first, last), sink)
        key = f"landing/weather/{first:02d}-{last:02d}.parquet"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=sink.getvalue())
        console.print(f"  landed weather, {len(sink.getvalue()):,} bytes", style="dim")

    # --- runs -----------------------------------------------------------------------------------

    def command(self, job: str, *extra: str) -> list[str]:
        """Return the command line of one run of a job, under a new run id."""
        own = ["--schema", dataset.FLIGHTS_SCHEMA, "--reader-options", '{"header": "true"}']
        if job == WEATHER:
            own = ["--cursor-column", "time_hour"]
        return [
            sys.executable, "-m", MODULES[job], "--JOB_NAME", job, "--JOB_RUN_ID", new_run_id(),
            "--source", f"s3a://{BUCKET}/landing/{job}/", "--target", f"s3a://{BUCKET}/raw/{job}/",
            "--lease", f"{LEASE_SECONDS}s", "--spark-conf", json.dumps(self.spark_settings), *own, *extra,
        ]  # fmt: skip

    def run(self, title: str, *jobs: str, expected_code: int = 0) -> None:
        """Run jobs in parallel, wait for them, and show what they did."""
        with progress(f"{' and '.join(jobs)}: {title}"), ThreadPoolExecutor() as pool:
            ended = pool.map(self.finished, jobs)
        for job, done in zip(jobs, ended, strict=True):
            if done.returncode != expected_code:
                console.print(done.stderr[-4000:], markup=False)
                raise SystemExit(f"{job} ended with exit code {done.returncode}; {expected_code} was expected")
            self.add_row(title, job, done.stderr, done.stdout, str(done.returncode))

    def finished(self, job: str) -> subprocess.CompletedProcess[str]:
        """Run a job and wait for it."""
        return subprocess.run(self.command(job), capture_output=True, text=True, timeout=RUN_LIMIT_SECONDS, check=False)

    def run_and_kill(self, title: str, job: str) -> None:
        """Run a job until it has written and not yet committed; start a second run beside it, then kill the first."""
        command = self.command(job, "--pause-before-commit", f"{RUN_LIMIT_SECONDS}s")
        log: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            guard = threading.Timer(RUN_LIMIT_SECONDS, process.kill)
            guard.start()
            assert process.stderr is not None
            try:
                with progress(f"{job}: {title}"):
                    for line in process.stderr:
                        log.append(line)
                        if "event=pausing" in line:
                            break
                    else:
                        console.print("".join(log)[-4000:], markup=False)
                        raise SystemExit(f"{job} ended before it could be killed")
                self.run("March, a second run", job, expected_code=TRY_LATER)
            finally:
                guard.cancel()
                process.kill()
        self.add_row(title, job, "".join(log), "", "SIGKILL")

    def wait_for_lease(self, job: str) -> None:
        """Wait until the lease of the killed run has ended."""
        claim = self.watermarks.latest(job).claim
        assert claim is not None
        with progress("waiting for the dead run's lease to end"):
            while (left := claim.lease_until.timestamp() - time.time()) > 0:
                time.sleep(min(left, 1) + 0.05)

    def add_row(self, title: str, job: str, log: str, output: str, ended: str) -> None:
        """Make a row that describes one run; keep it, and print it."""
        reports = [line for line in output.splitlines() if line.startswith("{")]  # Skip the log of Spark 3.3.
        report = json.loads(reports[-1]) if reports else {}
        planned = re.search(r"event=planned .*", log)
        plan = "refused" if ended == str(TRY_LATER) else "—"
        if planned:
            plan = plan_text(dict(re.findall(r"(\w+)=(\S+)", planned.group())))
        numbers = [f"{report[name]:,}" if name in report else "—" for name in ("rows_written", "bytes_read", "seconds")]
        self.rows.append([title, job, plan, *numbers, str(report.get("version", "—")), ended])
        show_runs(self.rows[-1:])


def plan_text(facts: dict[str, str]) -> str:
    """Return a text that says what a run planned, from the facts in its log."""
    if "files" in facts:
        is_empty, text = facts["files"] == "0", f"{facts['files']} files"
    else:
        is_empty, text = facts["empty"] == "True", f"window of {facts['column']}"
    if is_empty:
        text = "nothing new"
    return f"{text} (replay)" if facts["replay"] == "True" else text


def show_runs(rows: list[list[str]]) -> None:
    """Print a table of what the runs planned and did."""
    table = Table("run", "job", "planned")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a text during a long step: with a spinner in a terminal, as a line elsewhere."""
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        console.print(f"… {text}", style="dim")
        yield


def tell(demo: Demo, flights: pa.Table, weather: pa.Table) -> None:
    """Land data and run the jobs."""
    console.rule("January; one day's file is late")
    demo.land_flights(flights, 1, 1, without=LATE_FILE)
    demo.land_weather(weather, 1, 1)
    demo.run("January", FLIGHTS, WEATHER)

    console.rule("Again: nothing is new")
    demo.run("again", FLIGHTS)

    console.rule(f"February, and the late file of {LATE_FILE}")
    demo.land_flights(flights, 2, 2)
    demo.land_flights(flights, 1, 1, only=LATE_FILE)
    demo.run("February + late", FLIGHTS)

    console.rule("March: a second run is refused, the first is killed after its write and before its commit")
    demo.land_flights(flights, 3, 3)
    demo.run_and_kill("March, killed", FLIGHTS)

    console.rule("The rest of the year lands; the next run replays March and nothing else")
    demo.land_flights(flights, 4, 12)
    demo.land_weather(weather, 2, 12)
    demo.wait_for_lease(FLIGHTS)
    demo.run("March, replayed", FLIGHTS)

    console.rule("What landed meanwhile, in one go")
    demo.run("the rest", FLIGHTS, WEATHER)


def compare(source: pa.Table, target: pa.Table) -> pd.DataFrame:
    """Count for each month the source's rows, the target's rows, and the distinct rows whose two counts differ."""
    there = target.select(source.column_names).cast(source.schema).to_pandas().assign(source=0, target=1)
    rows = pd.concat([source.to_pandas().assign(source=1, target=0), there])
    counts = rows.groupby(source.column_names, dropna=False)[["source", "target"]].sum()
    return counts.assign(differing=counts["source"] != counts["target"]).groupby("month").sum()


def check(demo: Demo, flights: pa.Table, weather: pa.Table) -> pd.DataFrame:
    """Compare the target with the source, print the counts and return them."""
    lake = pyarrow.fs.S3FileSystem(endpoint_override=demo.endpoint, scheme="http")
    with progress("comparing target and source"):
        months = {}
        for name, table in ((FLIGHTS, flights), (WEATHER, weather)):
            target = pyarrow.dataset.dataset(f"{BUCKET}/raw/{name}/", filesystem=lake)
            months[name] = compare(table, target.to_table())
    found = pd.concat(months, names=["table"])
    console.print(found.to_string(), markup=False, highlight=False)
    return found


def show_history(watermarks: Watermarks) -> None:
    """Print look-ups as a user would make them in a REPL."""
    console.rule("The same, looked up in a REPL")
    console.print(">>> from scripts.helpers.watermarks import Watermarks", markup=False)
    console.print(">>> watermarks = Watermarks()", markup=False)
    for job in (FLIGHTS, WEATHER):
        console.print(f">>> watermarks.history({job!r})", markup=False)
        console.print(repr(watermarks.history(job)), markup=False, highlight=False, soft_wrap=True)
    console.print(f">>> watermarks.get_watermark_values({WEATHER!r})", markup=False)
    console.print(watermarks.get_watermark_values(WEATHER))


def show_end(watermarks: Watermarks) -> None:
    """Print the output of `watermarks jobs`, and the address of the HTML report."""
    console.rule("What watermarks jobs says now")
    # Run the command in a separate process on this terminal, so that it has the colours and width that a user sees.
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "scripts.cli", "jobs"], timeout=RUN_LIMIT_SECONDS, check=True)
    page = Path(tempfile.mkdtemp(prefix="watermarks-demo-")) / "watermarks.html"
    page.write_text(build_report(watermarks), encoding="utf-8")
    console.print(f"The page about these jobs: {page.as_uri()}", markup=False, soft_wrap=True)


def main() -> None:
    """Run the demo; exit with code 1 if target and source differ."""
    if not find_jars():
        raise SystemExit("The S3A jars are missing: pip install --no-deps sagemaker_pyspark==1.4.5")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    local = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_DEFAULT_REGION": "eu-west-2",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": short_lived(),
    }
    os.environ.update(local)
    os.environ.pop("AWS_PROFILE", None)
    settings = spark_conf(endpoint) | {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    started = time.monotonic()
    demo = Demo(endpoint, settings)
    flights, weather = dataset.flights(), dataset.weather()
    tell(demo, flights, weather)
    console.rule("All runs")
    show_runs(demo.rows)
    console.rule("Target against source")
    months = check(demo, flights, weather)
    show_history(demo.watermarks)
    wrong = (months["differing"] > 0).sum()
    seconds = time.monotonic() - started
    if wrong:
        raise SystemExit(f"{wrong} of {len(months)} months differ")
    total = months["source"].sum()
    console.print(f"[bold green]Nothing lost, nothing doubled[/]: {total:,} rows, {seconds:.0f} seconds.")
    show_end(demo.watermarks)
    server.stop()


if __name__ == "__main__":
    main()
