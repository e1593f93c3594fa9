"""What each call costs on the wire: its requests one by one, and the capacity that they consume.

docs/cost.md lists the requests of a whole run from S3 to S3, in this order and with reasons.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, unquote

import boto3
import pytest

from scripts.helpers.errors import StoreUnavailableError, UnpublishedError, WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.store import Store
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import text_of
from tests.protocol.capacity import Meter
from tests.sinks.rights import refusing
from tests.support.clock import Clock
from tests.support.faults import ONE_ATTEMPT, Wire
from tests.support.moto_server import MotoServer, OneAtATime
from tests.support.steps import add

JOB, LEGACY_JOB = "parking", "parking-legacy"
FIRST, SECOND, THIRD, FOURTH = (f"jr_{digit * 64}" for digit in "1234")
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}
LARGE = {"note": "x" * 60_000}


class MeteredJob:
    """A job with two committed runs, and the wire and the meter of the client that made them."""

    def __init__(self, table_name: str, client: Any, clock: Clock, **options: Any) -> None:
        self.client, self.clock = client, clock
        self.wire, self.meter = Wire(client), Meter(client)
        self.watermarks = Watermarks(table_name, client, clock=clock, **options)
        self.run: Run

    def commit(self, run_id: str, **values: Any) -> Run:
        run = self.watermarks.begin(JOB, run_id)
        run.freeze({"repairs": {"low": 0, "high": 1}}, {"n": 1, **values})
        run.commit(rows=1)
        return run

    def begin(self, run_id: str = THIRD) -> Run:
        self.run = self.watermarks.begin(JOB, run_id)
        return self.run

    def freeze(self, **values: Any) -> Run:
        run = self.begin()
        run.freeze({"repairs": {"low": 1, "high": 2}}, {"n": 2, **values})
        return run

    def put_legacy(self, *run_ids: str) -> None:
        for run_id in run_ids:
            item = {"jobName": {"S": LEGACY_JOB}, "runId": {"S": run_id}, "watermarks": {"M": {"n": {"N": "1"}}}}
            self.client.put_item(TableName=self.watermarks.table_name, Item=item)

    def clear(self) -> None:
        self.wire.clear()
        self.meter.clear()

    @property
    def labels(self) -> list[str]:
        return [f"{one.operation} {kind(one.range_key)}".strip() for one in self.wire.requests]


def kind(range_key: str | None) -> str:
    kinds = {None: "", "~l": "head", "!c": "log", "!p": "plan", "!s": "state"}
    return kinds.get(range_key and range_key[:2], "run")


@pytest.fixture
def make_metered(dynamodb: Any, make_watermarks: Callable[..., Watermarks], clock: Clock) -> Callable[..., MeteredJob]:
    """Return a builder of a new table with two runs of one job in it, whose requests are not counted."""

    def make(**options: Any) -> MeteredJob:
        config = CLIENT_CONFIG.merge(ONE_ATTEMPT)
        client = boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url, config=config)
        metered = MeteredJob(make_watermarks().table_name, client, clock, **options)
        metered.commit(FIRST)
        metered.commit(SECOND)
        metered.clear()
        return metered

    return make


@pytest.fixture
def metered(make_metered: Callable[..., MeteredJob]) -> MeteredJob:
    return make_metered()


def whole_run(metered: MeteredJob) -> None:
    metered.freeze().check()
    metered.run.commit(rows=1)


READ, WRITE, LOG = "GetItem head", "PutItem head", "PutItem log"
BEGIN = [READ, WRITE, "GetItem log"]
COMMIT = [WRITE, "PutItem run", LOG]
DECIDE = [READ, "GetItem log", WRITE, LOG]

Step = Callable[[MeteredJob], Any]


def nothing(metered: MeteredJob) -> None:
    pass


CALLS: dict[str, tuple[Step, Step, list[str]]] = {
    # name: (what comes before, the call, its requests)
    "most-recent": (nothing, lambda w: w.watermarks.get_most_recent_run_id(JOB), [READ]),
    "get-newest": (nothing, lambda w: w.watermarks.get_watermark(JOB), [READ]),
    "get-newest-by-run": (nothing, lambda w: w.watermarks.get_watermark(JOB, SECOND), [READ]),
    "get-earlier": (nothing, lambda w: w.watermarks.get_watermark(JOB, FIRST), [READ, "GetItem run"]),
    "get-values": (nothing, lambda w: w.watermarks.get_watermark_values(JOB), [READ]),
    "latest": (nothing, lambda w: w.watermarks.latest(JOB), [READ]),
    "history-of-1": (nothing, lambda w: w.watermarks.history(JOB, limit=1), [READ]),
    "history-of-2": (nothing, lambda w: w.watermarks.history(JOB, limit=2), [READ, "Query"]),
    "history": (nothing, lambda w: w.watermarks.history(JOB), [READ, "Query"]),
    "history-page": (nothing, lambda w: w.watermarks.history(JOB, limit=9, before=2), [READ, "Query"]),
    "exists": (nothing, lambda w: w.watermarks.exists(), ["DescribeTable"]),
    "begin": (nothing, MeteredJob.begin, BEGIN),
    "begin-with-plan": (MeteredJob.freeze, lambda w: w.watermarks.begin(JOB, THIRD), BEGIN),
    "freeze": (MeteredJob.begin, lambda w: w.run.freeze({}, {"n": 2}), [WRITE]),
    "check": (MeteredJob.begin, lambda w: w.run.check(), [READ]),
    "heartbeat": (MeteredJob.begin, lambda w: w.run.heartbeat(), ["UpdateItem head"]),
    "commit": (MeteredJob.freeze, lambda w: w.run.commit(rows=1), COMMIT),
    "abort": (MeteredJob.freeze, lambda w: w.run.abort(), [WRITE]),
    "whole-run": (nothing, whole_run, [*BEGIN, WRITE, READ, *COMMIT]),
    "add": (nothing, lambda w: add(w.watermarks, JOB, THIRD, n=2), [READ, "GetItem log", "GetItem run", *COMMIT]),
    "add-again": (
        lambda w: add(w.watermarks, JOB, THIRD, n=2),
        lambda w: add(w.watermarks, JOB, THIRD, n=2),
        [READ, "GetItem log", "GetItem run", "Query"],
    ),
    "rewind": (
        nothing,
        lambda w: w.watermarks.rewind(JOB, to_version=1, **WHY),
        [READ, "GetItem log", "GetItem log", "Query", WRITE, LOG],
    ),
    "reset": (nothing, lambda w: w.watermarks.reset(JOB, **WHY), [*DECIDE[:2], "Query", *DECIDE[2:]]),
    "set": (nothing, lambda w: w.watermarks.set_watermark(JOB, {"n": 9}, **WHY), DECIDE),
    "discard": (MeteredJob.freeze, lambda w: w.watermarks.discard_plan(JOB, **WHY), DECIDE),
    "adopt": (
        lambda w: w.put_legacy("jr_a", "jr_b"),
        lambda w: w.watermarks.adopt(LEGACY_JOB, "jr_a"),
        [READ, "Query", *COMMIT],
    ),
    "doctor": (nothing, lambda w: w.watermarks.doctor(JOB), [READ, "Query", READ, "DescribeTable"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_sends_these_requests_when_nothing_fails(
    metered: MeteredJob, name: str, record_property: Callable[[str, object], None]
) -> None:
    before, call, expected = CALLS[name]
    before(metered)
    metered.clear()

    call(metered)

    record_property("capacity", f"read {metered.meter.reads}, write {metered.meter.writes}")
    record_property("reported", metered.meter.reported)
    assert metered.labels == expected
    reads = [label for label in expected if label.startswith(("GetItem", "Query"))]
    writes = [label for label in expected if label.startswith(("PutItem", "UpdateItem"))]
    assert (metered.meter.reads, metered.meter.writes) == (len(reads), len(writes)), "a unit for each small item"
    assert len(metered.meter.reported) == len(reads) + len(writes)


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_whole_run_stays_within_its_budget_when_nothing_fails(
    make_metered: Callable[..., MeteredJob], commits: int
) -> None:
    metered = make_metered()
    job = f"{JOB}-{commits}"
    for number in range(commits):
        metered.watermarks.add_watermark(metered.watermarks.create_watermark_item(job, f"r{number}", n=number))
    metered.clear()

    run = metered.watermarks.begin(job, "r-run")
    run.freeze({"repairs": {"low": 0, "high": 1}}, {"n": 1})
    run.check()
    run.commit(rows=1)

    assert (len(metered.wire.reads), len(metered.wire.writes)) == (3, 5)
    assert (metered.meter.reads, metered.meter.writes) == (3, 5)


def test_costs_grow_with_the_watermarks_when_they_are_large(make_metered: Callable[..., MeteredJob]) -> None:
    metered = make_metered()
    metered.commit(THIRD, **LARGE)
    costs = {}

    for name, step in {
        "most recent": lambda: metered.watermarks.get_most_recent_run_id(JOB),
        "begin": lambda: metered.begin(FOURTH),
        "freeze": lambda: metered.run.freeze({}, {"n": 2}),
        "commit": lambda: metered.run.commit(rows=1),
        "most recent again": lambda: metered.watermarks.get_most_recent_run_id(JOB),
    }.items():
        metered.clear()
        step()
        costs[name] = (metered.meter.reads, metered.meter.writes)

    assert costs == {
        "most recent": (15, 0),
        "begin": (30, 60),
        "freeze": (0, 60),
        "commit": (0, 62),
        "most recent again": (1, 0),
    }


def test_commit_is_one_request_more_for_each_item_that_expires_when_there_is_a_retention(
    make_metered: Callable[..., MeteredJob],
) -> None:
    metered = make_metered(retention=timedelta(days=30))
    run = metered.freeze()
    metered.clear()

    run.commit()

    assert metered.labels == [*COMMIT, "UpdateItem run", "UpdateItem log"]


def test_each_chunk_is_one_request_when_a_plan_is_spilled(metered: MeteredJob) -> None:
    run = metered.begin()
    metered.clear()

    run.freeze({"files": {"paths": ["x" * 70_000]}}, {"files": {"seen": ["y" * 70_000]}})
    run.planned("files")
    run.commit()
    metered.watermarks.get_watermark_values(JOB)

    freeze, read_back = ["PutItem plan", "PutItem state", WRITE], ["GetItem plan"]
    assert metered.labels == [*freeze, *read_back, *COMMIT, "DeleteItem plan", READ, "GetItem state"]


def test_fenced_run_sends_one_write_and_one_read_when_it_commits(metered: MeteredJob) -> None:
    old = metered.freeze()
    metered.clock.move(hours=1)
    metered.watermarks.reset(JOB, **WHY)
    metered.clear()

    with pytest.raises(WatermarkError):
        old.commit()

    assert metered.labels == [WRITE, READ, "GetItem log"] or metered.labels == [WRITE, READ]


KINDS = (
    (r"landing/.*", "source"),
    (r"raw/_glue_watermarks_columns", "columns"),
    (r"raw/_glue_watermarks/.*", "record"),
    (r".*/_may-write", "probe"),
    (r"raw/.*", "target"),
    (r".*/_target", "note"),
    (r".*/_manifest", "manifest"),
    (r".*", "staged"),
)
"""Patterns of the bucket's keys, each with the purpose of the object."""


class Asked:
    """A server's application, and the requests it received, from boto3 or any other client."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self.lines: list[str] = []
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if "HTTP_X_AMZ_TARGET" in environ or environ["REQUEST_METHOD"] == "POST":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ = environ | {"wsgi.input": io.BytesIO(body)}
            self.lines.append(of_dynamodb(environ, body) if "HTTP_X_AMZ_TARGET" in environ else deletion(body))
        else:
            self.lines.append(of_s3(environ))
        return self._application(environ, start_response)


def of_dynamodb(environ: dict[str, Any], body: bytes) -> str:
    given = json.loads(body)
    key = given.get("Item") or given.get("Key") or {}
    return f"{environ['HTTP_X_AMZ_TARGET'].rpartition('.')[2]} {kind(key.get('runId', {}).get('S'))}".strip()


def deletion(body: bytes) -> str:
    return f"DeleteObjects {', '.join(sorted({*map(kind_of, re.findall('<Key>(.*?)</Key>', body.decode()))}))}"


def of_s3(environ: dict[str, Any]) -> str:
    query = parse_qs(environ["QUERY_STRING"])
    if "list-type" in query:
        return f"ListObjectsV2 {kind_of(query['prefix'][0])}"
    method = "Copy" if "HTTP_X_AMZ_COPY_SOURCE" in environ else environ["REQUEST_METHOD"].title()
    return f"{method}Object {kind_of(unquote(environ['PATH_INFO']).split('/', 2)[2])}"


def kind_of(key: str) -> str:
    return next(name for pattern, name in KINDS if re.fullmatch(pattern, key))


class WholeRun:
    """A job that writes the new files of one folder of a bucket to another folder."""

    def __init__(self, asked: Asked, server: MotoServer, bucket: str, clock: Clock) -> None:
        self.asked, self.bucket, self.clock = asked, bucket, clock
        self.s3 = boto3.client("s3", endpoint_url=server.url)
        self.watermarks = Watermarks("requests", boto3.client("dynamodb", endpoint_url=server.url), clock=clock)
        if not self.watermarks.exists():
            self.watermarks.create_table()

    def run(self, *new: str) -> list[str]:
        """Run the job with some new files; return its requests."""
        for name in new:
            self.s3.put_object(Bucket=self.bucket, Key=f"landing/{name}", Body=b"id,name\n1,a\n")
        self.clock.move(minutes=1)
        self.asked.lines.clear()
        with IncrementalJob(self.watermarks, self.bucket, s3_client=self.s3, clock=self.clock) as job:
            found = job.new_files(f"s3://{self.bucket}/landing/")
            job.write(found.read_pandas("csv"), f"s3://{self.bucket}/raw/")
        return list(self.asked.lines)

    def staged(self) -> list[str]:
        """Return the keys of rows that are staged, whether waiting or left over."""
        found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix="_raw.staging/").get("Contents", [])
        return [one["Key"] for one in found if kind_of(one["Key"]) == "staged"]


@pytest.fixture
def job(bucket: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[WholeRun]:
    asked = Asked(OneAtATime())
    server = MotoServer(asked)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    yield WholeRun(asked, server, bucket, clock)
    server.stop()


def of_page(heading: str) -> list[str]:
    """Return the requests that a table of the page names."""
    table = text_of("cost.md").partition(heading)[2].partition("\n#")[0]
    return re.findall(r"^\| `(.+?)` \|", table, re.M)


def test_run_sends_the_requests_of_the_page_when_one_file_is_new(job: WholeRun) -> None:
    job.run("1.csv")
    job.run("2.csv")

    assert job.run("3.csv") == of_page("### One new file")


def test_run_sends_the_requests_of_the_page_when_nothing_is_new(job: WholeRun) -> None:
    job.run("1.csv")
    job.run("2.csv")

    assert job.run() == of_page("### Nothing new")


def test_leftovers_are_swept_when_the_batch_after_a_lost_attempt_is_published_by_the_next_run(job: WholeRun) -> None:
    job.run("1.csv")
    with refusing(job.s3, "PutObject", key="_manifest"), pytest.raises(WatermarkError):
        job.run("2.csv")
    with refusing(job.s3, "CopyObject"), pytest.raises(UnpublishedError):
        job.run()
    assert len(job.staged()) == 2, "its rows, and those of the attempt that was lost"

    job.run()

    assert not job.staged()


def test_leftovers_are_swept_when_the_role_may_not_delete_at_the_target(job: WholeRun) -> None:
    job.run("1.csv")
    with refusing(job.s3, "PutObject", key="_manifest"), pytest.raises(WatermarkError):
        job.run("2.csv")

    with refusing(job.s3, "DeleteObjects", key="raw/_glue_watermarks/"):
        job.run()

    assert not job.staged()


def test_staging_is_listed_and_swept_when_an_attempt_was_lost_or_nine_versions_followed_without(job: WholeRun) -> None:
    listed = []
    for number in range(1, 13):
        if number == 4:
            with refusing(job.s3, "PutObject", key="_manifest"), pytest.raises(WatermarkError):
                job.run(f"{number}.csv")
            assert job.staged(), "its rows"
        sent = job.run(f"{number}.csv")
        if "ListObjectsV2 staged" in sent:
            listed.append(number)
            assert ("DeleteObjects record" in sent) == (number in (4, 10))
    assert listed == [4, 10]
    assert not job.staged()


def test_batch_waits_for_the_next_run_when_the_role_may_no_longer_publish(job: WholeRun) -> None:
    job.run("1.csv")
    with refusing(job.s3, "CopyObject"):
        with pytest.raises(UnpublishedError, match="version 2 is committed"):
            job.run("2.csv")
        with pytest.raises(UnpublishedError, match="version 2 is committed"):
            job.run("3.csv")

    job.run()

    assert sum(name.startswith("part-") for name in FileSink(f"s3://{job.bucket}/raw", s3_client=job.s3).visible()) == 3


def test_next_run_writes_the_log_entry_when_a_run_has_published_without_it(
    job: WholeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StoreUnavailableError("requests", "PutItem", "a test")

    job.run("1.csv")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_log", refuse)
        job.run("2.csv")

    sent = job.run()

    assert sent[2:5] == ["GetItem log", "PutItem run", "PutItem log"]
    assert [entry.version for entry in job.watermarks.history(job.bucket)] == [3, 2, 1]
