"""Commands on a double of the table, a job with hostile texts, and the part of the page that shows one job."""

from __future__ import annotations

import gzip
import re
from base64 import b64decode
from dataclasses import replace
from datetime import timedelta

import pytest
from click.testing import CliRunner, Result

from scripts.cli import surroundings
from scripts.cli.main import cli
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Claim, Plan
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, rows_state
from tests.support.spoiled_table import TableOfJobs
from tests.support.steps import commit

EVIL = "a\x1b[2J\x9b\x7fb"
SENT = ("\x1b", "\x9b", "\x7f")


def put_evil(watermarks: Watermarks, job: str) -> None:
    """Store a job with control characters in every text that another program can write."""
    commit(watermarks, job, "jr_1", {"rows": rows_state(NOW), "text": "one"})
    commit(watermarks, job, "jr_2", {"rows": rows_state(NOW), "text": EVIL})
    head = watermarks.latest(job)
    assert head.last is not None
    state = {**rows_state(NOW), "cursor_column": EVIL}
    spoilt = replace(
        head,
        watermarks={**head.watermarks, "rows": state, EVIL: 1},
        last=replace(head.last, op=EVIL, run_id=EVIL, who=EVIL, why=EVIL),
        claim=Claim(EVIL, EVIL, 1, NOW - timedelta(hours=1), NOW - timedelta(hours=2)),
        plan=Plan(EVIL, {EVIL: {**state, "low": None, "high": EVIL}}, {}, NOW),
    )
    watermarks.store.put(items.head_to_item(spoilt), if_new=False)


def called(monkeypatch: pytest.MonkeyPatch, table: TableOfJobs, *arguments: str) -> Result:
    """Call the command on a double instead of a table."""
    monkeypatch.setattr(surroundings, "make_table_client", lambda *_: table)
    return CliRunner().invoke(cli, ["--table", "table", "--now", NOW.isoformat(), *arguments], prog_name="watermarks")


def shown_of(page: str, job: str) -> str:
    """Return the details of a job in a page and its row, without its place among the other jobs."""
    (row,) = re.findall(rf'<tr role="row" data-name="{job}".*?</tr>', page, re.DOTALL)
    (place,) = re.findall(r'data-rank="(\d+)"', row)
    packed = re.search(rf'id="details-{place}">(.*?)</script>', page)
    details = gzip.decompress(b64decode(packed[1])).decode() if packed else ""
    return re.sub(r'data-rank="\d+"', "", row) + details
