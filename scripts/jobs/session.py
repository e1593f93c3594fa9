"""Connect a job to its environment: arguments, logging, Spark session, exit codes."""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import takewhile
from typing import Any, Literal, get_args, get_origin, get_type_hints

from scripts.helpers._lazy import SparkSession
from scripts.helpers.backfill import Backfill
from scripts.helpers.batch.modes import PREFIX, Mode, ModeName
from scripts.helpers.errors import InvalidValueError, JobArgumentError, StaleError, UnreadableFilesError, WatermarkError
from scripts.helpers.glue.arguments import OLD_SPELLINGS
from scripts.helpers.glue.runtime import glue_session
from scripts.helpers.glue_api.runs import on_glue
from scripts.helpers.job import IncrementalJob
from scripts.helpers.metrics.embedded import EmbeddedMetrics
from scripts.helpers.metrics.freshness import duration
from scripts.helpers.protocol.begin import MAX_LEASE
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks, table_by_default
from scripts.jobs.exit_codes import OK, STOPPED, exit_code

logger = logging.getLogger(__name__)

EXIT_CODES = """exit codes:
  0   committed, or nothing was new
  1   another failure; the next run replays the batch
  2   wrong arguments
  65  bad data or an unreadable source; fix it, then run again
  75  another run holds the job, or the store or the source did not answer; run again later
  78  wrong set-up (table, credentials, permissions); fix it, then run again
  143 stopped by SIGTERM; the lease is released and the next run replays the batch
"""


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that every job has."""
    made = argparse.ArgumentParser(
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--JOB_NAME", required=True, metavar="NAME", help="the job's name in the table; Glue sets it")
    made.add_argument(
        "--JOB_RUN_ID",
        metavar="ID",
        help="the run's id; Glue sets it. For a retry, pass the id of the run that it repeats",
    )
    made.add_argument("--JOB_ID", metavar="ID", help="ignored; Glue and the Job Runs API set it")
    made.add_argument(
        "--BOOKMARK_CONTEXT",
        metavar="NAME",
        help="namespace of the job's state; runs in different namespaces share no state (default: none)",
    )
    made.add_argument("--source", required=True, metavar="URI", help="s3://bucket/prefix/ or a local directory")
    made.add_argument("--target", required=True, metavar="URI", help="folder or s3:// URI to write Parquet to")
    made.add_argument(
        "--table", default=table_by_default(), help="the DynamoDB table, or sqlite:PATH (default: %(default)s)"
    )
    made.add_argument(
        "--lease",
        type=lease,
        default=in_minutes(DEFAULT_LEASE),
        metavar="TIME",
        help="how long other runs wait after this run dies; renewed while it runs (default: %(default)s)",
    )
    made.add_argument(
        "--take-over",
        metavar="RUN_ID",
        help="end the lease of this run, which you know to be dead, and finish its plan; refused if another run owns "
        "the job (see: watermarks release)",
    )
    made.add_argument(
        "--spark-conf",
        type=json_map,
        default={},
        metavar="JSON",
        help='Spark settings, such as {"spark.master": "local[2]"}; spark-submit has its own --conf',
    )
    made.add_argument(
        "--pause-before-commit",
        type=time_span,
        default="0s",
        metavar="TIME",
        help="wait between write and commit, to test a crash at that point",
    )
    made.add_argument(
        "--metrics",
        action="store_true",
        help="print a line of CloudWatch's Embedded Metric Format at the end of each batch",
    )
    mode = made.add_argument_group("bookmark", "the same arguments as in AWS Glue")
    mode.add_argument(
        "--job-bookmark-option",
        choices=tuple(PREFIX + name for name in get_args(ModeName)),
        help="enable: take what is new and save the state; pause: take what is new, or a range of runs, and save "
        "nothing; disable: take everything and save nothing (default: enable)",
    )
    mode.add_argument(
        "--job-bookmark-from", metavar="RUN_ID", help="with pause: take what the runs after this one took"
    )
    mode.add_argument(
        "--job-bookmark-to", metavar="RUN_ID", help="with pause: take up to and including what this run took"
    )
    mode.add_argument(
        "--continuation-option", choices=tuple(OLD_SPELLINGS), help="older name; --job-bookmark-option overrides it"
    )
    return made


def add_options(group: argparse._ActionsContainer, options: type, **own: Mapping[str, Any]) -> None:
    """Add an argument for each field of a class of options that `own` names, with the field's help and default.

    Parameters
    ----------
    own
        Keyword arguments for argparse, by the field's name. A ``help`` among them is appended to the field's help.
    """
    hints = get_type_hints(options)
    for name, given in own.items():
        kind, default = hints[name], getattr(options, name)
        said: dict[str, Any] = {"default": default}
        if get_origin(kind) is Literal:
            said["choices"] = get_args(kind)
        elif kind is bool:
            said["action"] = "store_true"
        elif kind is timedelta:
            said |= {"type": time_span, "default": in_minutes(default), "metavar": "TIME"}
        elif kind == int | None:
            said |= {"type": positive, "metavar": "N"}
        elif default == ():
            said |= {"action": "append", "default": []}
        said |= given
        shown = " (default: %(default)s)" if said["default"] else ""
        said["help"] = help_of_field(options, name) + given.get("help", "") + shown
        group.add_argument(f"--{name.replace('_', '-')}", **said)


def help_of_field(options: type, name: str) -> str:
    """Return the help of a field: the first sentence about it in its class's docstring, with a small first letter."""
    lines = iter(inspect.cleandoc(options.__doc__ or "").splitlines())
    any(name in line.split(", ") for line in lines)  # Advance the iterator past the field's name.
    text = " ".join(line.strip() for line in takewhile(lambda line: line.startswith(" "), lines))
    sentence = re.split(r"\.(?: |$)", text)[0].replace("`", "").replace("%", "%%")
    return sentence[:1].lower() + sentence[1:]


def parse(made: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse arguments. On Glue, ignore unknown arguments, because Glue adds its own; elsewhere they are an error."""
    arguments = made.parse_known_args(argv)[0] if on_glue() else made.parse_args(argv)
    if arguments.job_bookmark_option is None and arguments.continuation_option is not None:
        arguments.job_bookmark_option = OLD_SPELLINGS[arguments.continuation_option]
    try:
        mode = Mode.from_args(vars(arguments))
    except (JobArgumentError, InvalidValueError) as error:
        made.error(str(error))
    if arguments.take_over and not mode.saves:
        made.error("a job that saves nothing takes no lease: omit --take-over or --job-bookmark-option")
    return arguments


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    # Check the text, because int() would also accept digits of other alphabets, such as Arabic ones.
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def time_span(text: str) -> timedelta:
    """Parse a duration such as 90s, 15m, 2h or 1d."""
    try:
        return duration(text)
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def in_minutes(span: timedelta) -> str:
    """Return a duration as text that `time_span` parses, such as "5m"."""
    return f"{span // timedelta(minutes=1)}m"


def lease(text: str) -> timedelta:
    """Parse the duration of a lease: above 0, one day at most."""
    found = time_span(text)
    if not timedelta(0) < found <= MAX_LEASE:
        raise argparse.ArgumentTypeError(
            f"a lease of {text} is not above 0s and at most 1d. Give a shorter one: the job renews it while it runs"
        )
    return found


def json_map(text: str) -> dict[str, str]:
    """Parse a JSON map, with its values as texts."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('not a JSON map, such as {"header": "true"}')
    return {str(name): str(value) for name, value in found.items()}


def make_session(job_name: str, settings: dict[str, str]) -> SparkSession:
    """Return the Spark session: on Glue that of Glue, elsewhere the running one or a new one."""
    if on_glue():
        return glue_session()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(job_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def begin_job(arguments: argparse.Namespace, watermarks: Watermarks, **options: Any) -> IncrementalJob:
    """Return the job that the arguments name, not yet begun."""
    return IncrementalJob.from_args(vars(arguments), watermarks, **options)


def run_job(
    work: Callable[[Any, argparse.Namespace], bool],
    arguments: argparse.Namespace,
    begin: Callable[..., IncrementalJob | Backfill] = begin_job,
) -> int:
    """Run and commit batches until `work` returns that nothing is left; return the exit code.

    A job that does not save takes one batch. `begin` makes the job that is passed to `work`, as `begin_job` does.

    Each batch is reported as a line of JSON on standard output, with counts but no cursor values.
    SIGTERM ends the run as an error does, so that the next run need not wait for the lease.
    """
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)sZ level=%(levelname)s logger=%(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    logging.getLogger("scripts").setLevel(logging.INFO)
    has_more = True
    try:
        watermarks = Watermarks(arguments.table)
        with stoppable():
            if arguments.take_over:
                _take_over(begin_job(arguments, watermarks).job_id, watermarks, arguments.take_over)
            while has_more:
                try:
                    has_more = _run_batch(work, arguments, watermarks, begin)
                except UnreadableFilesError as error:
                    # Run the plan again, now without the unreadable files. It shrinks each time, so the loop ends.
                    logger.warning("event=batch_again job=%s error=%s", arguments.JOB_NAME, error)
    except WatermarkError as error:
        logger.error("event=failed job=%s error=%s: %s", arguments.JOB_NAME, error.kind, error)
        return exit_code(error)
    return OK


def _take_over(job_id: str, watermarks: Watermarks, dead_run: str) -> None:
    """End the lease of a run that is known to be dead, and of no other run. The next run finishes its plan.

    The caller names the dead run: if --take-over stays in a schedule, it must not take the job from a later, live run.
    """
    if watermarks.latest(job_id).claim is None:
        logger.warning("event=nothing_to_take_over job=%s run=%s: no run has the job", job_id, dead_run)
        return
    try:
        watermarks.release(job_id, run_id=dead_run, why="the job was started with --take-over")
    except StaleError as error:
        # Another run holds the job now, so let `begin` decide. If that run is an earlier attempt of this one, `begin`
        # lets this one continue. Otherwise it raises an error with the exit code for trying again later.
        logger.warning("event=not_taken_over job=%s run=%s: %s", job_id, dead_run, error)


def _run_batch(
    work: Callable[[Any, argparse.Namespace], bool],
    arguments: argparse.Namespace,
    watermarks: Watermarks,
    begin: Callable[..., IncrementalJob | Backfill],
) -> bool:
    started = time.monotonic()
    reporters = [EmbeddedMetrics()] if arguments.metrics else []
    with begin(arguments, watermarks, lease=arguments.lease, reporters=reporters) as begun:
        has_more = work(begun, arguments)
        job = begun.job if isinstance(begun, Backfill) else begun
        if arguments.pause_before_commit:
            seconds = arguments.pause_before_commit.total_seconds()
            logger.warning("event=pausing job=%s seconds=%d", job.job_id, seconds)
            time.sleep(seconds)
    report = {
        "job": job.job_id,
        "run": job.run_id,
        "mode": job.mode.name,
        "attempt": job.run.attempt,
        "replay": job.run.replay,
        "version": job.run.version,
        "seconds": round(time.monotonic() - started, 1),
    }
    # A job may report any metric. Print only integers, because other values may be data of the source.
    counts = {name: value for name, value in job.metrics.items() if isinstance(value, int)}
    sys.stdout.write(json.dumps(report | counts) + "\n")
    if has_more and not job.mode.saves:
        logger.warning(
            "event=more_left job=%s mode=%s: nothing is saved, so no batch follows this one", job.job_id, job.mode.name
        )
    # Stop after one batch if the job does not save: it would find the same batch again and again.
    return has_more and job.mode.saves


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the first SIGTERM into a SystemExit, so that a run in the block releases its job; ignore later ones.

    By default, SIGTERM ends Python at once. A handler that the caller has set stays in place. In threads
    other than the main one nothing changes, because Python does not allow handlers there.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: object) -> None:
        # Ignore a second SIGTERM: it would interrupt the release, and the next run would have to wait for the lease.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(STOPPED)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def leave(code: int) -> None:
    """Exit with a code. On success, just return, because Glue counts any SystemExit as a failure."""
    if code != OK:
        sys.exit(code)
